"""`collect`, `report`, `gate`: what reads results, builds from them and judges them."""

from __future__ import annotations

import argparse
from datetime import date
from pathlib import Path

from conformance import selectors
from conformance.commands.arguments import Adder, add_results, config_of, expectations_of
from conformance.config import Config
from conformance.errors import ConfigError, NothingSelectedError
from conformance.results import PUBLISHED, ResultSet


def add(command: Adder) -> None:
    """Put these commands on the command line."""
    parser = command("collect", collect, "merge the results of several machines")
    parser.add_argument("sources", nargs="+", type=Path, metavar="DIR", help="folders of results, in any order")
    parser = command("report", report, "build the site, the table and the summary from results")
    add_results(parser)
    parser.add_argument("--published", action="store_true", help="from the published columns alone, not from newer results")
    parser = command("gate", gate, "judge the results: the only command that does", "deviations that no expectation covers")
    add_results(parser)
    parser.add_argument("--publish", action="store_true", help="judge which columns may be published, and publish those")
    parser.add_argument("--into", type=Path, metavar="DIR", help="with --publish: the published set (default: published/ of the results)")
    parser.add_argument(
        "--accept", action="append", default=[], metavar="CELL", help="with --publish: publish this column whatever is wrong"
    )
    parser.add_argument("--reason", default="", help="with --accept: why; it is told beside the column")


def collect(arguments: argparse.Namespace) -> int:
    """Merge folders of results into the configured one."""
    from conformance.merge import collect as merge

    config = config_of(arguments)
    merged = merge(arguments.sources, config.reports)
    print("\n".join(merged.lines()))
    return merged.exit_code


def report(arguments: argparse.Namespace) -> int:
    """Build the report of everything at hand, published columns where there are no newer results; 0 once it is written."""
    from conformance import results

    config = config_of(arguments)
    if arguments.published:
        columns = results.read(config.reports / PUBLISHED)
        if not any(cell.records for cell in columns.cells):
            raise NothingSelectedError(f"no column is published under {config.reports / PUBLISHED}: conformance gate --publish says why")
        _build(config, columns)
    else:
        _build(config, results.read(config.reports, published=True))
    return 0


def gate(arguments: argparse.Namespace) -> int:
    """Judge the results, or with --publish which columns may be published."""
    from conformance import results
    from conformance.gate import judge

    config = config_of(arguments)
    result = results.read(config.reports)
    if arguments.publish:
        return _publish(config, result, arguments.into or config.reports / PUBLISHED, arguments.accept, arguments.reason)
    if arguments.into or arguments.accept or arguments.reason:
        raise ConfigError("--into, --accept and --reason go with --publish")
    judgement = judge(result, expectations_of(config), date.today())
    print("\n".join(judgement.lines()))
    return judgement.exit_code


def _publish(config: Config, result: ResultSet, folder: Path, accepted: list[str], reason: str) -> int:
    """Publish the columns that may be; 1 where one is held back."""
    from conformance import publishgate, results

    if accepted and not reason.strip():
        raise ConfigError('--accept needs --reason "...": it is told beside the column')
    names = selectors.select(accepted, [str(cell.cell) for cell in result.cells], "cell")
    old = results.read(folder) if folder.is_dir() else ResultSet()
    decisions = publishgate.decide(result, old, config.publish_swing, dict.fromkeys(names, reason.strip()))
    publishgate.publish(decisions, folder)
    print("\n".join(decisions.lines()))
    return decisions.exit_code


def build_report(config: Config, cells: set[str]) -> int:
    """Read, judge and write the report, and say what changed against the published columns; returns the gate's exit code."""
    from conformance import results

    result = results.read(config.reports, cells)
    code = _build(config, result)
    published = results.read(config.reports / PUBLISHED, cells) if (config.reports / PUBLISHED).is_dir() else ResultSet()
    if {str(cell.cell) for cell in published.cells} & {str(cell.cell) for cell in result.cells}:
        from conformance.answers.sets import brief
        from conformance.setdifferences import compare_sets

        print("\n".join(brief(compare_sets(published, result))))
    return code


def _build(config: Config, result: ResultSet) -> int:
    """Judge, write the report, print the table and where the report is; returns the gate's exit code."""
    from conformance import plan
    from conformance.gate import judge
    from conformance.report import build
    from conformance.report.terminal import show as show_table

    expectations = expectations_of(config)
    judgement = judge(result, expectations, date.today())
    page = build(result, expectations, judgement, config.reports, plan.case_files(config, plan.Selection()))
    show_table(result, expectations)
    print("\n".join(judgement.lines(limit=20)))
    print(f"report: {page}")
    return judgement.exit_code
