"""The command line: `conformance COMMAND`. Each command is a few lines over the library."""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType

from conformance import __version__
from conformance.commands import answers, auditing, authoring, claiming, reading, running, searching, sources, upkeep
from conformance.errors import ConformanceError, InstallError

#: What 1 says where a command judges results; each other command says for itself what it says there.
_JUDGED = "deviations that no expectation covers"
_EPILOG = """exit codes: 0 as expected,{one}2 wrong configuration or arguments, 3 nothing selected, 4 no environment could be made,
5 records incomplete"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code. Errors that a user can mend are one message on standard error."""
    arguments = _parser().parse_args(argv)
    signal.signal(signal.SIGTERM, _interrupt)
    command: Callable[[argparse.Namespace], int] = arguments.command
    try:
        return command(arguments)
    except ConformanceError as error:
        print(f"conformance: {error}", file=sys.stderr)
        return error.exit_code
    except InstallError as error:
        print(f"conformance: {error}", file=sys.stderr)
        return 4
    except KeyboardInterrupt:
        print("\nconformance: interrupted; what was recorded is kept, the same command goes on from there", file=sys.stderr)
        return 130
    except BrokenPipeError:
        return 141
    except OSError as error:
        print(f"conformance: {error.filename or 'the system'}: {error.strerror or error}", file=sys.stderr)
        return 2


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="conformance",
        description="A cross-device, cross-version conformance test matrix for PyTorch.",
        epilog=_EPILOG.format(one=f" 1 {_JUDGED}, or what a command's help says,\n"),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"torch-conformance {__version__}")
    parser.add_argument("--project", type=Path, default=Path(), metavar="DIR", help="folder of the pyproject.toml to read (default: here)")
    parser.add_argument("--reports", type=Path, metavar="DIR", help="folder of results, in place of the configured one")
    adders = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")

    def command(name: str, function: Callable[[argparse.Namespace], int], text: str, one: str = "") -> argparse.ArgumentParser:
        epilog = _EPILOG.format(one=f" 1 {one}, " if one else " ")
        added = adders.add_parser(name, help=text, description=text[0].upper() + text[1:] + ".", epilog=epilog)
        added.set_defaults(command=function)
        return added

    for module in (running, reading, answers, auditing, claiming, authoring, searching, sources, upkeep):
        module.add(command)
    return parser
