"""The command ``geoskip``, also as ``python -m geoskip``, with a message where its extra is missing."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command; without typer, print the version or the extra to install."""
    try:
        from geoskip.cli import app
    except ModuleNotFoundError as error:
        if error.name != "typer":
            raise
        if sys.argv[1:] == ["--version"]:
            from geoskip import __version__

            print(f"geoskip {__version__}")
            return
        print("geoskip: the command needs the package typer: pip install 'geoskip[cli]'", file=sys.stderr)
        sys.exit(2)
    app(prog_name="geoskip")


if __name__ == "__main__":
    main()
