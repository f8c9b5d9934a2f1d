"""`claims`: what the project says of itself against what was measured."""

from __future__ import annotations

import argparse
from pathlib import Path

from conformance.commands.arguments import Adder, add_results, config_of, expectations_of


def add(command: Adder) -> None:
    """Put this command on the command line."""
    parser = command(
        "claims",
        claims,
        "what the project claims (dependencies, classifiers, README) against what was measured",
        "a claim is not borne out",
    )
    add_results(parser)
    parser.add_argument("--profile", default="", help="judge the releases of this profile alone (default: every configured one)")
    parser.add_argument("--write", action="store_true", help="write the honest bound, and the badge and table between the README's markers")
    parser.add_argument("--marks", type=Path, metavar="FILE", help="write a module of skipif marks for the project's own tests")


def claims(arguments: argparse.Namespace) -> int:
    """Judge the claims; 1 where the results do not bear one of them out. With --write, write what they do bear out first."""
    from conformance import claim_edits, plan, results, skipmarks
    from conformance import claims as all_claims
    from conformance.support import bounds, table

    config = config_of(arguments)
    result = results.read(config.reports, published=True)
    releases = plan.releases_of(config, arguments.profile) if arguments.profile else ()
    found = table(result, expectations_of(config), config, releases)
    told = all_claims.read(config.project)
    if arguments.write:
        for line in claim_edits.write(config.project, found, told.claimed_devices):
            print(f"written: {line}")
        told = all_claims.read(config.project)
    if arguments.marks:
        arguments.marks.write_text(skipmarks.module(found, result), encoding="utf-8")
        print(f"written: {arguments.marks}")
    devices = told.claimed_devices
    wrong = [*all_claims.findings(told, found, [cell.cell for cell in result.judged()], config.elsewhere)]
    wrong += claim_edits.stale(config.project, found, devices)
    print(f"measured to work on {', '.join(devices)}: torch {bounds(found, devices)}")
    print("\n".join([*(f"claimed, not borne out: {finding}" for finding in wrong), all_claims.verdict(wrong)]))
    return 1 if wrong else 0
