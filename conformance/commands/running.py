"""`matrix`, `run`, `check`, `plan`: what plans cells and runs them."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import replace

from conformance import jobs, subjectspecs
from conformance import matrix as matrices
from conformance import plan as plans
from conformance.artifacts import write_json
from conformance.commands.arguments import Adder, add_options, add_requirements, add_selection, config_of, listed, options_of, selection_of
from conformance.commands.reading import build_report
from conformance.config import Config
from conformance.environmentathand import here
from conformance.errors import NoEnvironmentError, first_exit_code
from conformance.uses import EAGER, USES


def add(command: Adder) -> None:
    """Put these commands on the command line."""
    parsers = [
        command("matrix", matrix, "run the matrix, build the report, judge", "deviations that no expectation covers"),
        command("run", run, "run cells and record; `gate` judges what they came to", "with --twins: a wrong twin got away"),
        command("check", check, "run the checks of every family on models of yours", "a check that counts fails"),
    ]
    _, run_parser, check_parser = parsers
    plan_parser = command("plan", plan, "the cells and why each is in or out")
    check_parser.add_argument(
        "subjects",
        nargs="+",
        metavar="SUBJECT",
        help="package.module:build, file.py:build, transformers:LlamaModel, timm:resnet18, or a configured alias",
    )
    check_parser.add_argument(
        "--use",
        dest="uses",
        default="",
        metavar="LIST",
        help=f"what the models are for ({', '.join(USES)}, all; default: {EAGER}): loud faults of other uses are told and not counted, "
        "silent ones always are",
    )
    for parser in (run_parser, plan_parser):
        parser.add_argument(
            "--subject",
            dest="subjects",
            action="append",
            default=[],
            help="the checks on this model, named as for `check`, in place of the built-in cases; may be given again",
        )
    for parser in (run_parser, plan_parser, check_parser):
        parser.add_argument("--alias", default="", help="what the model is called in case ids and reports, as my_gpt")
        add_requirements(parser)
    for parser in (*parsers, plan_parser):
        add_selection(parser)
    for parser in parsers:
        add_options(parser)
    run_parser.add_argument("--twins", action="store_true", help="give each case its wrong twins and record them under twins/")
    for parser in (run_parser, check_parser):
        parser.add_argument(
            "--here", action="store_true", help="in the environment that runs this command, which must have torch and pytest: its own cell"
        )
    _add_scheduling(plan_parser)
    plan_parser.add_argument("--explain", action="store_true", help="name the cells that are out as well, with the reason")
    plan_parser.add_argument("--cases", action="store_true", help="collect in each cell's environment and list the cases")


def _add_scheduling(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("for schedulers")
    group.add_argument("--json", action="store_true", help="the cells, or the jobs, for a CI matrix")
    group.add_argument("--list", action="store_true", help="a line per job: its cells, as --only takes them")
    group.add_argument(
        "--jobs", type=int, metavar="N", help=f"deal the cells out to at most N jobs (GitHub: {jobs.MOST}); default: one each"
    )
    group.add_argument("--runs-on", default="", metavar="LABELS", help="runner labels, as 'macos_arm64=macos-26 linux_x86_64/cuda=gpu'")
    group.add_argument("--write", action="store_true", help="write plan.json, so that `collect` and `gate` know what is to come")


def matrix(arguments: argparse.Namespace) -> int:
    """Run, report, gate; the exit code is the first of 2, 3, 4, 5, 1 that occurred."""
    config = config_of(arguments)
    plan = plans.make(config, selection_of(arguments))
    ran = 0
    try:
        matrices.run(config, plan, options_of(arguments))
    except NoEnvironmentError as error:
        print(f"conformance: {error}", file=sys.stderr)
        ran = error.exit_code
    return first_exit_code(ran, build_report(config, {str(cell.cell) for cell in plan.cells}))


def run(arguments: argparse.Namespace) -> int:
    """Run cells; 0 once results are recorded. With twins, 1 when a case did not give a twin the verdict that its pair states."""
    config = config_of(arguments)
    selection = _selection(arguments, config)
    if arguments.here and not (selection.torch or selection.cells):
        config, selection = here(config, selection)
    plan = plans.make(config, selection)
    matrices.run(config, plan, options_of(arguments))
    if arguments.twins:
        from conformance.twins import escaped

        found = escaped(config.reports, [str(cell.cell) for cell in plan.cells])
        print("\n".join(found.lines()))
        return found.exit_code
    return 0


def check(arguments: argparse.Namespace) -> int:
    """Run the checks on the user's models, print what they say, and leave the report; 1 where one fails a check that counts."""
    from conformance import checking, expectations

    config = config_of(arguments)
    selection = _selection(arguments, config)
    models = selection.subjects
    config = replace(config, reports=config.reports / "check" / "-".join(model.alias for model in models))
    if arguments.here:
        config, selection = here(config, selection)
    known = [entry for path in config.expectations for entry in expectations.load(path)]
    return checking.check(config, plans.make(config, selection), options_of(arguments), models, known)


def _selection(arguments: argparse.Namespace, config: Config) -> plans.Selection:
    """What the command line selects, with the models that it names. `--subject ""` names none: a workflow's input may be empty."""
    named = arguments.subjects if arguments.command is check else [text for text in arguments.subjects if text]
    uses = listed(getattr(arguments, "uses", ""))
    models = subjectspecs.specs(named, config, alias=arguments.alias, requirements=arguments.requirements, uses=uses)
    for model in models if not getattr(arguments, "here", False) else ():
        subjectspecs.check_found(model)
    return replace(selection_of(arguments), subjects=models)


def plan(arguments: argparse.Namespace) -> int:
    """Print the plan."""
    config = jobs.labelled(config_of(arguments), arguments.runs_on)
    made = plans.make(config, _selection(arguments, config))
    dealt = jobs.jobs(made.cells, len(made.cells) if arguments.jobs is None else arguments.jobs)
    if arguments.write:
        write_json(config.reports / "plan.json", made.as_json())
    if arguments.json:
        rows = [cell.as_json() for cell in made.cells] if arguments.jobs is None else [job.as_json() for job in dealt]
        print(json.dumps({"include": rows}))
    elif arguments.list:
        print("\n".join(job.ids for job in dealt))
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
