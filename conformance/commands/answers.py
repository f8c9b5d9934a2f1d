"""`show` and `diff`: answers in the terminal."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from conformance import results
from conformance.columns import Group, groups
from conformance.commands.arguments import Adder, config_of, expectations_of
from conformance.config import Config
from conformance.errors import ConfigError, NothingSelectedError
from conformance.selectors import chosen, close_matches
from conformance.setdifferences import Comparison, compare_columns, compare_sets


def add(command: Adder) -> None:
    """Put these commands on the command line."""
    parser = command("show", show, "what was measured of a case, in a cell, at a release, or of a guard")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("name", nargs="?", help="a case or a cell, by id or glob, or a word of a case's id or title")
    what.add_argument("--release", metavar="RELEASE", help="what changed at a release, as 2.9 or 2.9.1, against the one measured before it")
    what.add_argument("--guard", metavar="NAME", help="where a guard is needed, and from which release on it may be dropped")
    what.add_argument("--floor", metavar="RELEASE", help="the guards that may be dropped where this is the oldest release supported")
    parser = command("diff", diff, "what changed between two result sets or two columns", "something got worse")
    parser.add_argument("old", metavar="OLD", nargs="?", help="a folder or file of results, or a cell (default: what was published)")
    parser.add_argument("new", metavar="NEW", nargs="?", help="another of the same kind (default: the results at hand)")
    parser.add_argument("--format", choices=("text", "markdown", "json"), default="text", help="how to print it (default: text)")


def show(arguments: argparse.Namespace) -> int:
    """Print the answer to one question."""
    config = config_of(arguments)
    columns = groups(results.read(config.reports, published=True))
    if arguments.release:
        from conformance.answers import release

        lines = release.answer(columns, arguments.release, expectations_of(config))
    elif arguments.guard or arguments.floor:
        lines = _guard(config, columns, arguments.guard, arguments.floor)
    else:
        lines = _named(config, columns, arguments.name)
    print("\n".join(lines))
    return 0


def _guard(config: Config, columns: list[Group], name: str | None, floor: str | None) -> list[str]:
    from conformance import guardneeds, plan
    from conformance.answers import guard
    from conformance.report.sources import case_sources, guard_users, read_files

    if floor:
        return guard.droppable(columns, guardneeds.ways(), floor)
    users = guard_users(case_sources(read_files(plan.case_files(config, plan.Selection()))))
    return guard.answer(columns, guardneeds.ways(), guardneeds.guards(), users, name or "")


def _named(config: Config, columns: list[Group], name: str) -> list[str]:
    """The lines of every cell and case that `name` matches, or of the cases whose id or title has that word."""
    from conformance.answers import case, cell

    by_cell = {str(column.cell): column for group in columns for column in group.columns}
    cases = sorted({each for column in by_cell.values() for each in column.outcomes})
    known = expectations_of(config)
    picked = chosen([name], by_cell)
    lines = [line for one in by_cell if one in picked for line in cell.answer(by_cell[one], known)]
    found = sorted(chosen([name], cases)) or ([] if picked else case.speaking_of(columns, name))
    lines += case.answer(columns, known, found)
    if not lines:
        raise NothingSelectedError(f"no case or cell matches {name!r}{close_matches(name, [*cases, *by_cell])}")
    return lines


def diff(arguments: argparse.Namespace) -> int:
    """Print what differs; 1 where something got worse."""
    config = config_of(arguments)
    old = arguments.old or str(config.reports / results.PUBLISHED)
    found = _compared(config, old, arguments.new or str(config.reports))
    if arguments.format == "json":
        print(json.dumps(found.as_json(), indent=1))
    elif arguments.format == "markdown":
        from conformance.answers import markdown

        print("\n".join(markdown.answer(found)))
    else:
        from conformance.answers import sets

        print("\n".join(sets.answer(found, expectations_of(config))))
    return found.exit_code


def _compared(config: Config, old: str, new: str) -> Comparison:
    paths = [Path(old), Path(new)]
    if all(path.exists() for path in paths):
        return compare_sets(*(results.read(path) for path in paths))
    columns = {str(column.cell): column for group in groups(results.read(config.reports, published=True)) for column in group.columns}
    picked = []
    for name, path in zip((old, new), paths):
        matched = sorted(chosen([name], columns))
        if path.exists() or len(matched) != 1:
            why = "is a folder, and the other is not" if path.exists() else f"names {len(matched)} cells"
            raise ConfigError(f"{name!r} {why}: give two folders or files of results, or two cells{close_matches(name, list(columns))}")
        picked.append(columns[matched[0]])
    return compare_columns(*picked)
