"""`collect`, `report`, `gate`: what reads results, builds from them and judges them."""

from __future__ import annotations

import argparse
from datetime import date
from pathlib import Path

from conformance.commands.arguments import Adder, add_results, config_of, expectations_of
from conformance.config import Config


def add(command: Adder) -> None:
    """Put these commands on the command line."""
    parser = command("collect", collect, "merge the results of several machines")
    parser.add_argument("sources", nargs="+", type=Path, metavar="DIR", help="folders of results, in any order")
    add_results(command("report", report, "build the site, the table and the summary from results"))
    add_results(command("gate", gate, "judge the results: the only command that does"))


def collect(arguments: argparse.Namespace) -> int:
    """Merge folders of results into the configured one."""
    from conformance.merge import collect as merge

    config = config_of(arguments)
    merged = merge(arguments.sources, config.reports)
    print("\n".join(merged.lines()))
    return merged.exit_code


def report(arguments: argparse.Namespace) -> int:
    """Build the report of everything in the folder of results; 0 once it is written."""
    build_report(config_of(arguments), None)
    return 0


def gate(arguments: argparse.Namespace) -> int:
    """Judge the results."""
    from conformance import results
    from conformance.gate import judge

    config = config_of(arguments)
    judgement = judge(results.read(config.reports), expectations_of(config), date.today())
    print("\n".join(judgement.lines()))
    return judgement.exit_code


def build_report(config: Config, cells: set[str] | None) -> int:
    """Read, judge, write the report, print the table and where the report is; returns the gate's exit code."""
    from conformance import results
    from conformance.gate import judge
    from conformance.report import build
    from conformance.report.terminal import show as show_table

    expectations = expectations_of(config)
    result = results.read(config.reports, cells)
    judgement = judge(result, expectations, date.today())
    page = build(result, expectations, judgement, config.reports)
    show_table(result, expectations)
    print("\n".join(judgement.lines(limit=20)))
    print(f"report: {page}")
    return judgement.exit_code
