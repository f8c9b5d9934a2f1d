"""The command line: `conformance COMMAND`. Each command is a few lines over the library."""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType

from conformance import __version__, commands
from conformance.config import DEPTHS, DEVICES
from conformance.errors import ConformanceError, InstallError

_EPILOG = """exit codes: 0 as expected, 1 deviations that no expectation covers, 2 wrong configuration or arguments, 3 nothing selected,
4 no environment could be made, 5 records incomplete"""


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
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"torch-conformance {__version__}")
    parser.add_argument("--project", type=Path, default=Path(), metavar="DIR", help="folder of the pyproject.toml to read (default: here)")
    parser.add_argument("--reports", type=Path, metavar="DIR", help="folder of results, in place of the configured one")
    adders = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    _add_runs(adders)
    _add_readers(adders)
    _add_upkeep(adders)
    return parser


_Adders = "argparse._SubParsersAction[argparse.ArgumentParser]"


def _command(adders: _Adders, name: str, function: Callable[[argparse.Namespace], int], text: str) -> argparse.ArgumentParser:  # type: ignore[valid-type]
    parser: argparse.ArgumentParser = adders.add_parser(name, help=text, description=text[0].upper() + text[1:] + ".", epilog=_EPILOG)  # type: ignore[attr-defined]
    parser.set_defaults(command=function)
    return parser


def _add_runs(adders: _Adders) -> None:  # type: ignore[valid-type]
    matrix = _command(adders, "matrix", commands.matrix, "run the matrix, build the report, judge")
    run = _command(adders, "run", commands.run, "run cells and record; the exit code says nothing of verdicts, `gate` does")
    plan = _command(adders, "plan", commands.plan, "the cells and why each is in or out")
    for parser in (matrix, run, plan):
        _add_selection(parser)
    for parser in (matrix, run):
        _add_options(parser)
    run.add_argument("--twins", action="store_true", help="give each case its wrong twins and record them under twins/")
    check = _command(adders, "check", commands.check, "run the checks of every family on a model of yours")
    check.add_argument("subject", help="package.module:build, file.py:build, transformers:LlamaModel, timm:resnet18, or a configured alias")
    check.add_argument("--alias", default="", help="what the model is called in case ids and reports, as my_gpt")
    check.add_argument(
        "--with", dest="requirements", action="append", default=[], metavar="REQ", help="a package it needs; may be given again"
    )
    _add_selection(check)
    _add_options(check)
    for parser in (run, check):
        parser.add_argument(
            "--here", action="store_true", help="in the environment that runs this command, which must have torch and pytest"
        )
    plan.add_argument("--json", action="store_true", help="for a CI matrix")
    plan.add_argument("--explain", action="store_true", help="name the cells that are out as well, with the reason")
    plan.add_argument("--cases", action="store_true", help="collect in each cell's environment and list the cases")


def _add_selection(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("selection")
    group.add_argument("--profile", default="", help="the releases: quick, full, or one of the configuration")
    group.add_argument("--torch", default="", metavar="SPEC", help="one specifier ('>=2.4,<2.9') or exact versions ('2.1.2,2.4.1')")
    group.add_argument("--device", default="", metavar="LIST", help=f"auto, {', '.join(DEVICES)}; comma separated")
    group.add_argument("--family", default="", metavar="LIST", help="families of cases, comma separated")
    group.add_argument("--only", action="append", default=[], metavar="CELL", help="cells by id or glob; may be given again")
    group.add_argument("--skip", action="append", default=[], metavar="CELL", help="cells to leave out, by id or glob")
    group.add_argument("--case", action="append", default=[], metavar="ID", help="cases by id or glob ([ and ] are literal)")
    group.add_argument("--depth", choices=DEPTHS, default="", help="deep: also the cases that cost minutes")
    group.add_argument("--platform", default="", help="plan for another platform, as macos_arm64, or for all")


def _add_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("running")
    group.add_argument("-n", "--workers", type=_count, metavar="N", help="processes in a cell; 0: one process, without pytest-xdist")
    group.add_argument("--repeat", type=_positive, default=1, metavar="N", help="attempts per case, each with a record of its own")
    group.add_argument("--fresh", action="store_true", help="forget what was recorded for the selected cells and start anew")
    group.add_argument(
        "--drop-environments", action="store_true", help="free each environment, and its files in uv's cache, after its cell"
    )
    group.add_argument("--index", choices=("auto", "pytorch", "pypi"), help="where torch comes from, in place of the configured index")
    group.add_argument("--timeout", type=_seconds, metavar="S", help="seconds a case may take, in place of limits.timeout-s")


def _add_readers(adders: _Adders) -> None:  # type: ignore[valid-type]
    collect = _command(adders, "collect", commands.collect, "merge the results of several machines")
    collect.add_argument("sources", nargs="+", type=Path, metavar="DIR", help="folders of results, in any order")
    report = _command(adders, "report", commands.report, "build the site, the table and the summary from results")
    report.add_argument("directory", nargs="?", type=Path, metavar="DIR", help="folder of results, in place of the configured one")
    gate = _command(adders, "gate", commands.gate, "judge the results: the only command that does")
    gate.add_argument("directory", nargs="?", type=Path, metavar="DIR", help="folder of results, in place of the configured one")
    show = _command(adders, "show", commands.show, "what was measured of a case or in a cell")
    show.add_argument("name", help="a case or a cell, by id or glob")
    apis = _command(adders, "apis", commands.apis, "the torch APIs that a source touches and that are newer than a release")
    apis.add_argument("paths", nargs="*", type=Path, metavar="PATH", help="files or folders of Python source (default: the project)")
    apis.add_argument("--since", default="1.13.1", metavar="RELEASE", help="the lowest release that the project supports (default: 1.13.1)")
    apis.add_argument("--table", action="store_true", help="read the names of the planned cells' releases into the table that ships")
    _add_selection(apis)
    catalogue = _command(adders, "catalogue", commands.catalogue, "what each case asks, where that is known from, and what it catches")
    catalogue.add_argument("families", nargs="*", metavar="FAMILY", help="families of cases (default: the configured ones)")
    catalogue.add_argument("--write", type=Path, metavar="DIR", help="write the table of cases into each family's page, DIR/<family>.md")


def _add_upkeep(adders: _Adders) -> None:  # type: ignore[valid-type]
    expect = _command(adders, "expect", commands.expect, "upkeep of the expectations file")
    what = expect.add_mutually_exclusive_group(required=True)
    what.add_argument("--update", action="store_true", help="write entries for deviations that none covers")
    what.add_argument("--prune", action="store_true", help="remove entries that nothing bears out any more")
    what.add_argument("--explain", action="store_true", help="say of each entry what it stands on")
    expect.add_argument("--file", type=Path, help="the expectations file, in place of the configured one")
    expect.add_argument("--case", action="append", default=[], metavar="ID", help="with --update: these cases only")
    expect.add_argument("--reason", help="with --update: why the deviation is known; never made up")
    expect.add_argument("--link", help="with --update: the issue")
    expect.add_argument("--review", metavar="DATE", help="with --update: when to look again, as 2027-06-01")
    _command(adders, "clean", commands.clean, "remove the environments and prune uv's cache")


def _count(text: str) -> int:
    number = int(text)
    if number < 0:
        raise argparse.ArgumentTypeError("must be 0 or more")
    return number


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("must be 1 or more")
    return number


def _seconds(text: str) -> float:
    number = float(text)
    if not 0 < number < float("inf"):
        raise argparse.ArgumentTypeError("must be more than 0")
    return number
