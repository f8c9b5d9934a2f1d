"""A check of models: plan, run, and the answer in the terminal, with the report left beside it."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from datetime import date
from pathlib import Path

from conformance import apis, claimwidth, matrix, results, uses
from conformance.config import Config
from conformance.errors import NoEnvironmentError
from conformance.expectations import Expectation
from conformance.gate import judge
from conformance.options import Options
from conformance.plan import Plan, device_hint
from conformance.report import build
from conformance.report.check import lines, outcomes_by_release
from conformance.subjectspecs import BUILTIN, SubjectSpec


def _asked_elsewhere(models: Sequence[SubjectSpec], *, here: bool) -> list[str]:
    """What no cell of this machine answers: whether a Mac has the model's operators, which is looked up."""
    if device_hint("mps"):
        return []
    option = " --here" if here else ""
    named = [model.alias if model.alias in BUILTIN else model.reference.replace(f"{Path.cwd()}/", "") for model in models]
    return [f"on a Mac? no check here ran on MPS: conformance audit {name}{option}" for name in named]


def _newer_apis(plan: Plan, models: Sequence[SubjectSpec], config: Config, cells: Sequence[results.CellResult]) -> list[str]:
    """The APIs that the models touch, by their sources and as they ran, and that the lowest release asked for has not."""
    lowest = str(min(planned.cell.version for planned in plan.cells))
    found = apis.touched((file for model in models for file in model.sources()), lowest)
    recordings = [apis.recordings(cells, model.alias) for model in models]
    found = found.with_recorded(touch for records in recordings for touch in apis.recorded(records, lowest))
    known = "by its source and by what it called" if all(recordings) else "by its source alone: what it calls was not recorded"
    told = apis.lines(found, config.project, lowest)
    return ["", f"newer than torch {lowest}, {known}", *(f"  {line}" for line in told)] if found.touches or found.unread else []


def _claimed(config: Config, own: set[str]) -> claimwidth.Claimed | None:
    """What the project claims, where models of its own are checked and it has a pyproject."""
    return claimwidth.claimed(config.project) if own and (config.project / "pyproject.toml").is_file() else None


def _claims(plan: Plan, claimed: claimwidth.Claimed | None, own: set[str], cells: Sequence[results.CellResult]) -> list[str]:
    """How what the project claims stands to what was measured."""
    if claimed is None:
        return []
    pythons = {planned.cell.version: planned.cell.python for planned in plan.cells}
    told = claimwidth.lines(claimed, outcomes_by_release(cells, own), pythons)
    return ["", "what its pyproject claims", *told]


def _relative(folder: Path) -> str:
    """A folder as one types it from here."""
    return str(folder.relative_to(Path.cwd()) if folder.is_relative_to(Path.cwd()) else folder)


def check(config: Config, plan: Plan, options: Options, models: Sequence[SubjectSpec], expectations: Sequence[Expectation]) -> int:
    """Run the plan, build the report, print what it says of each model; 1 where one fails that counts, 4 or 5 as the matrix has them."""
    own = {model.alias for model in models if model.own}
    claimed = _claimed(config, own)  # a file that cannot be read is told before anything runs
    failed = 0
    try:
        matrix.run(config, plan, options)
    except NoEnvironmentError as error:
        print(f"conformance: {error}", file=sys.stderr)
        failed = error.exit_code
    found = results.read(config.reports, {str(cell.cell) for cell in plan.cells})
    judged = uses.judged(judge(found, expectations, date.today()), {model.alias: model.uses for model in models})
    judgement = judged.judgement
    page = build(found, expectations, judgement, config.reports)
    told = [line for model in models for line in lines(found.cells, model.alias)]
    print("\n".join([*told, *_claims(plan, claimed, own, found.cells), *_newer_apis(plan, models, config, found.cells)]))
    code = failed or judgement.exit_code
    print("\n".join(uses.lines(judged, code, _relative(config.reports))))
    print("\n".join(_asked_elsewhere(models, here=options.here)))
    print(f"report: {page}")
    return code
