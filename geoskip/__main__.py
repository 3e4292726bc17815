"""The command ``geoskip``, also as ``python -m geoskip``, with a message if its extra is missing."""

from __future__ import annotations

import os
import sys


def main() -> None:
    """Run the command; without typer, print which extra to install."""
    if sys.argv[1:] == ["--version"]:  # fast, and without typer
        from geoskip import __version__

        try:
            print(f"geoskip {__version__}", flush=True)
        except BrokenPipeError:
            os._exit(141)  # at a normal exit Python would flush stdout again
        return
    try:
        from geoskip.cli import app
    except ModuleNotFoundError as error:
        if error.name != "typer":
            raise
        print("geoskip: the command needs the package typer: pip install 'geoskip[cli]'", file=sys.stderr)
        sys.exit(2)
    app(prog_name="geoskip")


if __name__ == "__main__":
    main()
