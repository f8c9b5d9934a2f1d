"""`apis`, `catalogue` and `releases`: what is read from source and from the package index alone."""

from __future__ import annotations

import argparse
from pathlib import Path

from packaging.version import InvalidVersion, Version

from conformance import matrix as matrices
from conformance import plan as plans
from conformance import subjectspecs
from conformance.commands.arguments import Adder, add_selection, config_of, selection_of
from conformance.errors import ConfigError


def add(command: Adder) -> None:
    """Put these commands on the command line."""
    parser = command("apis", apis, "the torch APIs that a source touches and that are newer than a release")
    parser.add_argument("paths", nargs="*", type=Path, metavar="PATH", help="files or folders of Python source (default: the project)")
    parser.add_argument("--since", default="1.13.1", metavar="RELEASE", help="the lowest release that is supported (default: 1.13.1)")
    parser.add_argument("--table", action="store_true", help="read the names of the planned cells' releases into the table that ships")
    add_selection(parser)
    parser = command("catalogue", catalogue, "what each case asks, where that is known from, and what it catches")
    parser.add_argument("families", nargs="*", metavar="FAMILY", help="families of cases (default: the configured ones)")
    parser.add_argument("--write", type=Path, metavar="DIR", help="write the table of cases into each family's page, DIR/<family>.md")
    parser = command("releases", releases, "the configured releases of torch, and those that the package index has beyond them")
    parser.add_argument("--new", action="store_true", help="ask the index, and name only what the configuration has not")
    parser.add_argument("--write", action="store_true", help="with --new: add them to the configuration")


def apis(arguments: argparse.Namespace) -> int:
    """Print the APIs that a source touches and that are newer than a release, or bring the table of first releases up to date."""
    from conformance import apis as tables

    config = config_of(arguments)
    if arguments.table:
        tables.write(matrices.public_names(config, plans.make(config, selection_of(arguments))))
        return 0
    roots = [(config.project / path).absolute() for path in arguments.paths] or [config.project]
    missing = [str(root) for root in roots if not root.exists()]
    if missing:
        raise ConfigError(f"there is no {', '.join(missing)}")
    found = tables.touched((file for root in roots for file in subjectspecs.sources(root)), _release(arguments.since))
    print("\n".join(tables.lines(found, config.project, arguments.since)))
    return 0


def _release(text: str) -> str:
    try:
        return str(Version(text))
    except InvalidVersion as error:
        raise ConfigError(f"--since {text!r} is no release, as 2.1.2") from error


def catalogue(arguments: argparse.Namespace) -> int:
    """Print the catalogue of the cases, or write it into the families' pages."""
    from conformance import catalogue as catalogues

    config = config_of(arguments)
    files = plans.case_files(config, plans.Selection(families=tuple(arguments.families)))
    for family in dict.fromkeys(file.family for file in files):
        found = catalogues.entries(file for file in files if file.family == family)
        if arguments.write is None:
            print("\n".join(catalogues.lines(found)))
            continue
        path = arguments.write / f"{family}.md"
        if not path.is_file():
            raise ConfigError(f"there is no page at {path}: write what the family asks, and the line {catalogues.MARKER}")
        path.write_text(catalogues.page(path.read_text(encoding="utf-8"), found), encoding="utf-8")
        print(f"{path}: {len(found)} cases")
    return 0


def releases(arguments: argparse.Namespace) -> int:
    """Print the configured releases, or the new ones, a line each; nothing where there are none."""
    from conformance import releases as known

    config = config_of(arguments)
    if not arguments.new:
        print("\n".join(f"{each.version} python {each.python}" for each in config.releases.values()))
        return 0
    found = known.new(config, known.asked_of_uv)
    print("\n".join(map(str, found)), end="\n" if found else "")
    if arguments.write and found:
        print(f"written to {known.add(config, found).relative_to(config.project)}")
    return 0
