"""The application: errors as one line, exit codes, and options that commands share."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import os
import sys
import traceback
import warnings
from collections.abc import Callable, Sequence
from typing import Annotated, Any, get_type_hints

import typer
from typer.core import TyperGroup

from geoskip.cli.messages import in_commands
from geoskip.errors import GeoskipError

USE, FAULT, INTERRUPTED, PIPE_CLOSED = 2, 3, 130, 141
"""Exit codes other than 0 and 1: wrong options, a fault found by verify or doctor, Ctrl-C, and a closed pipe."""

TRACEBACK = "GEOSKIP_TRACEBACK"


class CommandGroup(TyperGroup):
    """Group of commands that print an error as one line on standard error and exit with a code."""

    def invoke(self, ctx: Any) -> Any:
        """Run a command; if the reader of a pipe is gone, discard the remaining output."""
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(PIPE_CLOSED) from None
        return result

    def main(  # type: ignore[override]
        self, args: Sequence[str] | None = None, prog_name: str | None = None, **extra: Any
    ) -> Any:
        """Run a command and exit: see ``geoskip --help`` for the codes."""
        warnings.showwarning = _show_warning
        extra["standalone_mode"] = False
        if sys.stdout is None:  # the shell has closed it
            sys.stdout = open(os.devnull, "w")  # noqa: SIM115
        try:
            code = super().main(args, prog_name, **extra)
        except Exception as error:
            if os.environ.get(TRACEBACK):
                traceback.print_exc()
            code = _report(error)
        except KeyboardInterrupt:
            code = INTERRUPTED
        except SystemExit as error:  # raised by Rich and Click when they print the help
            if not isinstance(error.__context__, BrokenPipeError):
                raise
            code = PIPE_CLOSED
        sys.exit(code if isinstance(code, int) else 0)


def _report(error: Exception) -> int:
    """Print the problem and the remedy; return the exit code."""
    if isinstance(error, typer.Abort):
        return INTERRUPTED
    if (shown := getattr(error, "format_message", None)) is not None:  # an error of Click, which typer may vendor
        text, context = " ".join(shown().split()).removeprefix("Invalid value: "), getattr(error, "ctx", None)
        text = text.replace("Value error, ", "").rstrip(".")
        if type(error).__name__ == "NoArgsIsHelpError":
            print(shown(), file=sys.stderr)
            return USE
        command = context.command_path if context is not None else "geoskip"
        _say(f"{text} See {command} --help" if text.endswith("?") else f"{text}; see {command} --help")
        return USE
    _say(sentence(error))
    return 1


def sentence(error: Exception) -> str:
    """Describe an error in one line; for an error that is not geoskip's own, with its type."""
    text = " ".join(str(error).split())
    if isinstance(error, GeoskipError):
        return in_commands(text)
    if sys.modules.get("pyspark") is not None:
        from geoskip.spark.local_session import sentence_of

        if (why := sentence_of(error)) is not None:
            return f"Spark: {why}"
    if isinstance(error, OSError):
        return text
    way_out = f"set {TRACEBACK}=1 to see where; this is a fault of geoskip's, please report it"
    return f"unexpected {type(error).__name__}: {text}; {way_out}"


def _say(text: str) -> None:
    print(f"geoskip: {text}", file=sys.stderr, flush=True)


def _show_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    _say(f"warning: {in_commands(' '.join(str(message).split()))}")


def _print_version(wanted: bool) -> None:
    if wanted:
        from geoskip import __version__

        typer.echo(f"geoskip {__version__}")
        raise typer.Exit


app = typer.Typer(cls=CommandGroup, no_args_is_help=True, rich_markup_mode="rich", pretty_exceptions_enable=False)

EXIT_CODES = """[bold]To begin with[/bold]
geoskip index data/weather --minmax temp
geoskip explain data/weather "WHERE temp > 30"
geoskip doctor

[bold]Exit codes[/bold]
  0    done
  1    an error: of the data, the metadata, the machine or a value
  2    a missing or unknown command, option or argument
  3    verify or doctor found a fault
130    interrupted by Ctrl-C
141    the reader of a pipe has gone

Errors are one line on standard error: what is wrong, and what to do.
With --json a command prints one JSON object and nothing else."""


@app.callback(epilog=EXIT_CODES)
def main(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", is_eager=True, callback=_print_version)
    ] = False,
) -> None:
    """Data skipping for Apache Spark: index files, and see which of them a query must read."""


def command(
    *examples: str, name: str | None = None, panel: str | None = None
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Register a command; a parameter typed as a dataclass becomes options for the fields of the class.

    Parameters
    ----------
    *examples
        Lines at the end of the command's help.
    name
        The command's name. Default: the function's.
    panel
        The heading in the list of commands.
    """

    def register(function: Callable[..., None]) -> Callable[..., None]:
        shown = ["[bold]Examples[/bold]", *(example.replace("[", "\\[") for example in examples)]
        paragraphs = (" ".join(text.split()) for text in (inspect.getdoc(function) or "").split("\n\n"))
        app.command(
            name,
            help="\n\n".join(paragraphs),
            epilog="\n".join(shown) if examples else None,
            rich_help_panel=panel,
        )(_flatten_parameters(function))
        return function

    return register


def _flatten_parameters(function: Callable[..., None]) -> Callable[..., None]:
    """Replace parameters typed as dataclasses by keyword parameters for their fields."""
    hints = get_type_hints(function, include_extras=True)
    parameters: list[inspect.Parameter] = []
    groups: dict[str, tuple[type, list[str]]] = {}
    for parameter in inspect.signature(function).parameters.values():
        kind = hints[parameter.name]
        if not dataclasses.is_dataclass(kind):
            parameters.append(parameter.replace(annotation=kind, kind=parameter.KEYWORD_ONLY))
            continue
        of_fields = get_type_hints(kind, include_extras=True)
        groups[parameter.name] = (kind, list(of_fields))  # type: ignore[assignment]
        for each in dataclasses.fields(kind):
            default = each.default_factory() if callable(each.default_factory) else each.default
            parameters.append(
                inspect.Parameter(each.name, parameter.KEYWORD_ONLY, default=default, annotation=of_fields[each.name])
            )

    @functools.wraps(function)
    def run(**given: Any) -> None:
        made = {name: kind(**{each: given.pop(each) for each in names}) for name, (kind, names) in groups.items()}
        function(**given, **made)

    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run
