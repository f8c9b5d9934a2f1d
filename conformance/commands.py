"""What each command does. Imports of pandas and jinja2 wait until a command needs them."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING

from packaging.version import InvalidVersion, Version

from conformance import configfile, selectors, subjectspecs
from conformance import matrix as matrices
from conformance import plan as plans
from conformance.config import Config, builtin_cases
from conformance.errors import ConfigError, ConformanceError, first_exit_code
from conformance.supervisor import Options

if TYPE_CHECKING:
    from conformance.expectations import Expectation


def matrix(arguments: argparse.Namespace) -> int:
    """Run, report, gate; the exit code is the first of 2, 3, 4, 5, 1 that occurred."""
    config = _config(arguments)
    plan = plans.make(config, _selection(arguments))
    ran = 0
    try:
        matrices.run(config, plan, _options(arguments))
    except ConformanceError as error:
        if error.exit_code != 4:
            raise
        print(f"conformance: {error}", file=sys.stderr)
        ran = error.exit_code
    return first_exit_code(ran, _report(config, {str(cell.cell) for cell in plan.cells}))


def run(arguments: argparse.Namespace) -> int:
    """Run cells; 0 once results are recorded. With twins, 1 when a case did not give a twin the verdict that its pair states."""
    config = _config(arguments)
    plan = plans.make(config, _selection(arguments))
    matrices.run(config, plan, _options(arguments))
    if arguments.twins:
        from conformance.twins import escaped

        found = escaped(config.reports, [str(cell.cell) for cell in plan.cells])
        print("\n".join(found.lines()))
        return found.exit_code
    return 0


def check(arguments: argparse.Namespace) -> int:
    """Run the checks on the user's model, print what they say, and leave the report; 1 where it fails one of them."""
    from conformance import checking, expectations

    config = _config(arguments)
    model = subjectspecs.spec(arguments.subject, config, alias=arguments.alias, requirements=arguments.requirements)
    config = replace(config, reports=config.reports / "check" / model.alias)
    selection = replace(_selection(arguments), subjects=(model,))
    if arguments.here:
        config, selection = checking.here(config, selection)
    known = [entry for path in config.expectations for entry in expectations.load(path)]
    return checking.check(config, plans.make(config, selection), _options(arguments), model, known)


def plan(arguments: argparse.Namespace) -> int:
    """Print the plan."""
    config = _config(arguments)
    made = plans.make(config, _selection(arguments))
    if arguments.json:
        print(json.dumps({"include": [cell.as_json() for cell in made.cells]}))
    elif arguments.cases:
        for cell, names in matrices.collect_only(config, made):
            print("\n".join([cell, *(f"  {name}" for name in names)]))
    else:
        print("\n".join(_plan_lines(made, explain=arguments.explain)))
    return 0


def _plan_lines(made: plans.Plan, *, explain: bool) -> list[str]:
    lines = [f"{len(made.cells)} cells, {len(made.files)} case files, depth {made.depth}"]
    if not explain:
        return lines + [f"  {cell.cell}" for cell in made.cells]
    lines += [f"  in   {cell.cell}: device {'asked for by name' if cell.named else 'found here by its hints'}" for cell in made.cells]
    return lines + [f"  out  {cell}: {why}" for cell, why in made.excluded]


def collect(arguments: argparse.Namespace) -> int:
    """Merge folders of results into the configured one."""
    from conformance.merge import collect as merge

    config = _config(arguments)
    merged = merge(arguments.sources, config.reports)
    print("\n".join(merged.lines()))
    return merged.exit_code


def report(arguments: argparse.Namespace) -> int:
    """Build the report of everything in the folder of results; 0 once it is written."""
    _report(_config(arguments), None)
    return 0


def gate(arguments: argparse.Namespace) -> int:
    """Judge the results."""
    from conformance import results
    from conformance.gate import judge

    config = _config(arguments)
    judgement = judge(results.read(config.reports), _expectations(config), date.today())
    print("\n".join(judgement.lines()))
    return judgement.exit_code


def _report(config: Config, cells: set[str] | None) -> int:
    """Read, judge, write the report, print the table and where the report is; returns the gate's exit code."""
    from conformance import results
    from conformance.gate import judge
    from conformance.report import build
    from conformance.report.terminal import show as show_table

    expectations = _expectations(config)
    result = results.read(config.reports, cells)
    judgement = judge(result, expectations, date.today())
    page = build(result, expectations, judgement, config.reports)
    show_table(result, expectations)
    print("\n".join(judgement.lines(limit=20)))
    print(f"report: {page}")
    return judgement.exit_code


def apis(arguments: argparse.Namespace) -> int:
    """Print the APIs that a source touches and that are newer than a release, or bring the table of first releases up to date."""
    from conformance import apis as tables

    config = _config(arguments)
    if arguments.table:
        tables.write(matrices.public_names(config, plans.make(config, _selection(arguments))))
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

    config = _config(arguments)
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


def show(arguments: argparse.Namespace) -> int:
    """Print what is known of a case or a cell."""
    from conformance import results
    from conformance.report.details import details

    config = _config(arguments)
    print("\n".join(details(results.read(config.reports), _expectations(config), arguments.name)))
    return 0


def expect(arguments: argparse.Namespace) -> int:
    """Write, prune or explain expectations."""
    from conformance import expectation_edits, results
    from conformance.standings import covering

    config = _config(arguments)
    result = results.read(config.reports)
    if arguments.explain:
        print("\n".join(expectation_edits.explain(_expectations(config), result, date.today())))
        return 0
    path = arguments.file or _editable(config)
    if arguments.update:
        known = _expectations(config)
        outcomes = (record for cell in result.judged() for record in cell.outcomes().values())
        records = [record for record in outcomes if _wanted(record["case"], arguments.case) and covering(record, known) is None]
        written = expectation_edits.update(path, records, arguments.reason, arguments.link, _date(arguments.review))
        print(f"{len(written)} entries written to {path}")
    else:
        print(f"{len(expectation_edits.prune(path, result))} entries removed from {path}")
    return 0


def clean(arguments: argparse.Namespace) -> int:
    """Remove environments."""
    from conformance import environments

    environments.clean(_config(arguments), print)
    return 0


def _wanted(case: str, patterns: list[str]) -> bool:
    return not patterns or any(selectors.matches(pattern, case) for pattern in patterns)


def _date(text: str | None) -> date | None:
    try:
        return date.fromisoformat(text) if text else None
    except ValueError as error:
        raise ConfigError(f"--review {text!r} is no date, as 2027-06-01") from error


def _config(arguments: argparse.Namespace) -> Config:
    """The configuration with what the command line says over it."""
    overrides = {"index": arguments.index} if getattr(arguments, "index", None) else {}
    if not arguments.project.is_dir():
        raise ConfigError(f"--project {arguments.project}: there is no such folder")
    config = configfile.load(arguments.project, overrides)
    if getattr(arguments, "timeout", None):
        config = replace(config, limits=replace(config.limits, timeout_s=arguments.timeout))
    reports = getattr(arguments, "directory", None) or arguments.reports
    return replace(config, reports=reports.absolute()) if reports else config


def _selection(arguments: argparse.Namespace) -> plans.Selection:
    return plans.Selection(
        profile=arguments.profile,
        torch=arguments.torch,
        devices=_listed(arguments.device),
        families=_listed(arguments.family),
        cells=tuple(arguments.only),
        skip=tuple(arguments.skip),
        cases=tuple(arguments.case),
        depth=arguments.depth,
        platform=arguments.platform,
    )


def _listed(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _options(arguments: argparse.Namespace) -> Options:
    return Options(
        workers=arguments.workers,
        repeat=arguments.repeat,
        twins=getattr(arguments, "twins", False),
        fresh=arguments.fresh,
        drop_environments=arguments.drop_environments,
        here=getattr(arguments, "here", False),
    )


def _expectation_files(config: Config) -> list[Path]:
    """The project's own expectations of the built-in cases, then the user's."""
    own = builtin_cases() / "expectations.toml"
    return [*([own] if own.is_file() else []), *config.expectations]


def _editable(config: Config) -> Path:
    """The file that `expect` edits: the user's own; that of the built-in cases only in the project that they belong to."""
    own = builtin_cases() / "expectations.toml"
    if config.expectations:
        return config.expectations[-1]
    if own.resolve() == config.project / "cases" / own.name:
        return own
    raise ConfigError("no expectations file of this project is configured: set [tool.conformance] expectations, or give one by --file")


def _expectations(config: Config) -> list[Expectation]:
    from conformance.expectations import load

    return [entry for path in _expectation_files(config) for entry in load(path)]
