"""Arguments that commands share, and what they are read into: configuration, selection, options, expectations."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from conformance import configfile
from conformance import plan as plans
from conformance.config import DEPTHS, DEVICES, Config, builtin_cases
from conformance.errors import ConfigError
from conformance.options import Options

if TYPE_CHECKING:
    from conformance.expectations import Expectation


class Adder(Protocol):
    """What a module of commands is handed, to put each of its commands on the command line."""

    def __call__(self, name: str, function: Callable[[argparse.Namespace], int], text: str, one: str = "") -> argparse.ArgumentParser:
        """Add the command `name`, which `text` describes and `function` carries out; `one`: what exit code 1 says. Returns its parser."""
        ...


def add_results(parser: argparse.ArgumentParser) -> None:
    """The folder of results that a reader reads."""
    parser.add_argument("directory", nargs="?", type=Path, metavar="DIR", help="folder of results, in place of the configured one")


def add_requirements(parser: argparse._ActionsContainer) -> None:
    """What a model needs beside torch."""
    parser.add_argument(
        "--with", dest="requirements", action="append", default=[], metavar="REQ", help="a package the model needs; may be given again"
    )


def add_selection(parser: argparse.ArgumentParser) -> None:
    """What a command runs or plans."""
    group = parser.add_argument_group("selection")
    group.add_argument("--profile", default="", help="the releases: quick, full, or one of the configuration")
    group.add_argument("--torch", default="", metavar="SPEC", help="one specifier ('>=2.4,<2.9') or exact versions ('2.1.2,2.4.1')")
    group.add_argument("--device", default="", metavar="LIST", help=f"auto, {', '.join(DEVICES)}; comma separated")
    group.add_argument("--family", default="", metavar="LIST", help="families of cases, comma separated")
    group.add_argument("--only", action="append", default=[], metavar="CELL", help="cells by ids or globs; may be given again")
    group.add_argument("--skip", action="append", default=[], metavar="CELL", help="cells to leave out, by ids or globs")
    group.add_argument("--case", action="append", default=[], metavar="ID", help="cases by id or glob ([ and ] are literal)")
    group.add_argument("--depth", choices=DEPTHS, default="", help="deep: also the cases that cost minutes")
    group.add_argument("--platform", default="", help="plan for another platform, as macos_arm64, or for all")


def add_options(parser: argparse.ArgumentParser) -> None:
    """How it runs."""
    group = parser.add_argument_group("running")
    group.add_argument("-n", "--workers", type=_count, metavar="N", help="processes in a cell; 0: one process, without pytest-xdist")
    group.add_argument("--repeat", type=_positive, default=1, metavar="N", help="attempts per case, each with a record of its own")
    group.add_argument("--fresh", action="store_true", help="forget what was recorded for the selected cells and start anew")
    group.add_argument(
        "--drop-environments", action="store_true", help="free each environment, and its files in uv's cache, after its cell"
    )
    group.add_argument("--index", choices=("auto", "pytorch", "pypi"), help="where torch comes from, in place of the configured index")
    group.add_argument("--timeout", type=_seconds, metavar="S", help="seconds a case may take, in place of limits.timeout-s")


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


def config_of(arguments: argparse.Namespace) -> Config:
    """The configuration with what the command line says over it."""
    overrides = {"index": arguments.index} if getattr(arguments, "index", None) else {}
    if not arguments.project.is_dir():
        raise ConfigError(f"--project {arguments.project}: there is no such folder")
    config = configfile.load(arguments.project, overrides)
    if getattr(arguments, "timeout", None):
        config = replace(config, limits=replace(config.limits, timeout_s=arguments.timeout))
    reports = getattr(arguments, "directory", None) or arguments.reports
    return replace(config, reports=reports.absolute()) if reports else config


def selection_of(arguments: argparse.Namespace) -> plans.Selection:
    """What the command line selects."""
    return plans.Selection(
        profile=arguments.profile,
        torch=arguments.torch,
        devices=listed(arguments.device),
        families=listed(arguments.family),
        cells=_words("--only", arguments.only),
        skip=_words("--skip", arguments.skip),
        cases=tuple(arguments.case),
        depth=arguments.depth,
        platform=arguments.platform,
    )


def listed(text: str) -> tuple[str, ...]:
    """The words of a comma separated list."""
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _words(option: str, texts: Sequence[str]) -> tuple[str, ...]:
    """Ids and globs of cells hold no spaces: one argument may name several. One that names none is no wish for all of them."""
    if not all(text.split() for text in texts):
        raise ConfigError(f"{option} is given and names no cell: is the variable or the line that it comes from empty?")
    return tuple(word for text in texts for word in text.split())


def options_of(arguments: argparse.Namespace) -> Options:
    """How the command line wants it run."""
    return Options(
        workers=arguments.workers,
        repeat=arguments.repeat,
        twins=getattr(arguments, "twins", False),
        fresh=arguments.fresh,
        drop_environments=arguments.drop_environments,
        here=getattr(arguments, "here", False),
    )


def expectation_files(config: Config) -> list[Path]:
    """The project's own expectations of the built-in cases, then the user's."""
    own = builtin_cases() / "expectations.toml"
    return [*([own] if own.is_file() else []), *config.expectations]


def editable_file(config: Config) -> Path:
    """The file that `expect` edits: the user's own; that of the built-in cases only in the project that they belong to."""
    own = builtin_cases() / "expectations.toml"
    if config.expectations:
        return config.expectations[-1]
    if own.resolve() == config.project / "cases" / own.name:
        return own
    raise ConfigError("no expectations file of this project is configured: set [tool.conformance] expectations, or give one by --file")


def expectations_of(config: Config) -> list[Expectation]:
    """All entries that are known."""
    from conformance.expectations import load

    return [entry for path in expectation_files(config) for entry in load(path)]
