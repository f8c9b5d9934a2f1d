"""`matrix`, `run`, `check`, `plan`: what plans cells and runs them."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import replace

from conformance import matrix as matrices
from conformance import plan as plans
from conformance import subjectspecs
from conformance.commands.arguments import Adder, add_options, add_selection, config_of, options_of, selection_of
from conformance.commands.reading import build_report
from conformance.errors import ConformanceError, first_exit_code


def add(command: Adder) -> None:
    """Put these commands on the command line."""
    parsers = [
        command("matrix", matrix, "run the matrix, build the report, judge"),
        command("run", run, "run cells and record; the exit code says nothing of verdicts, `gate` does"),
        command("check", check, "run the checks of every family on a model of yours"),
    ]
    _, run_parser, check_parser = parsers
    plan_parser = command("plan", plan, "the cells and why each is in or out")
    check_parser.add_argument(
        "subject", help="package.module:build, file.py:build, transformers:LlamaModel, timm:resnet18, or a configured alias"
    )
    check_parser.add_argument("--alias", default="", help="what the model is called in case ids and reports, as my_gpt")
    check_parser.add_argument(
        "--with", dest="requirements", action="append", default=[], metavar="REQ", help="a package it needs; may be given again"
    )
    for parser in (*parsers, plan_parser):
        add_selection(parser)
    for parser in parsers:
        add_options(parser)
    run_parser.add_argument("--twins", action="store_true", help="give each case its wrong twins and record them under twins/")
    for parser in (run_parser, check_parser):
        parser.add_argument(
            "--here", action="store_true", help="in the environment that runs this command, which must have torch and pytest"
        )
    plan_parser.add_argument("--json", action="store_true", help="for a CI matrix")
    plan_parser.add_argument("--explain", action="store_true", help="name the cells that are out as well, with the reason")
    plan_parser.add_argument("--cases", action="store_true", help="collect in each cell's environment and list the cases")


def matrix(arguments: argparse.Namespace) -> int:
    """Run, report, gate; the exit code is the first of 2, 3, 4, 5, 1 that occurred."""
    config = config_of(arguments)
    plan = plans.make(config, selection_of(arguments))
    ran = 0
    try:
        matrices.run(config, plan, options_of(arguments))
    except ConformanceError as error:
        if error.exit_code != 4:
            raise
        print(f"conformance: {error}", file=sys.stderr)
        ran = error.exit_code
    return first_exit_code(ran, build_report(config, {str(cell.cell) for cell in plan.cells}))


def run(arguments: argparse.Namespace) -> int:
    """Run cells; 0 once results are recorded. With twins, 1 when a case did not give a twin the verdict that its pair states."""
    config = config_of(arguments)
    plan = plans.make(config, selection_of(arguments))
    matrices.run(config, plan, options_of(arguments))
    if arguments.twins:
        from conformance.twins import escaped

        found = escaped(config.reports, [str(cell.cell) for cell in plan.cells])
        print("\n".join(found.lines()))
        return found.exit_code
    return 0


def check(arguments: argparse.Namespace) -> int:
    """Run the checks on the user's model, print what they say, and leave the report; 1 where it fails one of them."""
    from conformance import checking, expectations

    config = config_of(arguments)
    model = subjectspecs.spec(arguments.subject, config, alias=arguments.alias, requirements=arguments.requirements)
    config = replace(config, reports=config.reports / "check" / model.alias)
    selection = replace(selection_of(arguments), subjects=(model,))
    if arguments.here:
        config, selection = checking.here(config, selection)
    known = [entry for path in config.expectations for entry in expectations.load(path)]
    return checking.check(config, plans.make(config, selection), options_of(arguments), model, known)


def plan(arguments: argparse.Namespace) -> int:
    """Print the plan."""
    config = config_of(arguments)
    made = plans.make(config, selection_of(arguments))
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
