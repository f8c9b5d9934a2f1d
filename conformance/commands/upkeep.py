"""`expect` and `clean`: upkeep of the expectations file and of the environments."""

from __future__ import annotations

import argparse
from datetime import date
from pathlib import Path

from conformance import selectors
from conformance.commands.arguments import Adder, config_of, editable_file, expectations_of
from conformance.errors import ConfigError


def add(command: Adder) -> None:
    """Put these commands on the command line."""
    parser = command("expect", expect, "upkeep of the expectations file")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--update", action="store_true", help="write entries for deviations that none covers")
    what.add_argument("--prune", action="store_true", help="remove entries that nothing bears out any more")
    what.add_argument("--tighten", action="store_true", help="narrow entries to the releases that bear them out, and move their bounds")
    what.add_argument("--explain", action="store_true", help="say of each entry what it stands on")
    parser.add_argument("--file", type=Path, help="the expectations file, in place of the configured one")
    parser.add_argument("--case", action="append", default=[], metavar="ID", help="with --update or --tighten: these cases only")
    parser.add_argument("--reason", help="with --update: why the deviation is known; never made up")
    parser.add_argument("--link", help="with --update: the issue")
    parser.add_argument("--review", metavar="DATE", help="with --update: when to look again, as 2027-06-01")
    command("clean", clean, "remove the environments and prune uv's cache")


def expect(arguments: argparse.Namespace) -> int:
    """Write, tighten, prune or explain expectations."""
    from conformance import expectation_edits, results
    from conformance.coverage import covering

    config = config_of(arguments)
    result = results.read(config.reports)
    if arguments.explain:
        print("\n".join(expectation_edits.explain(expectations_of(config), result, date.today())))
        return 0
    path = arguments.file or editable_file(config)
    if arguments.update:
        known = expectations_of(config)
        outcomes = (record for cell in result.judged() for record in cell.outcomes().values())
        records = [record for record in outcomes if _wanted(record["case"], arguments.case) and covering(record, known) is None]
        written = expectation_edits.update(path, records, arguments.reason, arguments.link, _date(arguments.review))
        print(f"{len(written)} entries written to {path}")
    elif arguments.tighten:
        from conformance.expectation_bounds import tighten

        print("\n".join(tighten(path, result, arguments.case)) or f"no entry of {path} can be tightened")
    else:
        print(f"{len(expectation_edits.prune(path, result))} entries removed from {path}")
    return 0


def clean(arguments: argparse.Namespace) -> int:
    """Remove environments."""
    from conformance import environments

    environments.clean(config_of(arguments), print)
    return 0


def _wanted(case: str, patterns: list[str]) -> bool:
    return not patterns or any(selectors.matches(pattern, case) for pattern in patterns)


def _date(text: str | None) -> date | None:
    try:
        return date.fromisoformat(text) if text else None
    except ValueError as error:
        raise ConfigError(f"--review {text!r} is no date, as 2027-06-01") from error
