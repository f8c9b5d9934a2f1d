"""`bisect`: the first release where something changed."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

from conformance import subjectspecs
from conformance.commands.arguments import Adder, add_options, add_requirements, config_of, options_of
from conformance.config import DEPTHS, DEVICES


def add(command: Adder) -> None:
    """Put this command on the command line."""
    parser = command(
        "bisect", bisect, "the first release where a case's verdict, or the class of what it observes, changed", "no change was found"
    )
    parser.add_argument("case", metavar="CASE", help="one case by id, as init.initialiser_repeats[float32-trunc_normal_]")
    parser.add_argument("--between", nargs=2, default=(), metavar=("A", "B"), help="search between these releases; B may be nightly")
    parser.add_argument("--device", choices=DEVICES, default="cpu", help="the device whose cells are compared (default: cpu)")
    parser.add_argument("--observation", default="", metavar="NAME", help="compare what the case observes by this name, not its verdict")
    parser.add_argument("--subject", default="", metavar="REF", help="your own model, as for `check`: net.py:build")
    add_requirements(parser)
    parser.add_argument("--depth", choices=DEPTHS, default="", help="deep: for a case that costs minutes")
    parser.add_argument("--keep-environments", action="store_true", help="keep the environments that are made for it")
    parser.add_argument("--reproduction", type=Path, metavar="FILE", help="where the single-file reproduction is written")
    add_options(parser)


def bisect(arguments: argparse.Namespace) -> int:
    """Search, print the answer, write the reproduction; 0 where a change was found, 1 where none was."""
    from conformance.bisecting import bisect as search
    from conformance.bisectresult import Asked, reproduce

    config = config_of(arguments)
    model = subjectspecs.spec(arguments.subject, config, requirements=arguments.requirements) if arguments.subject else None
    if model is not None:
        subjectspecs.check_found(model)
    if model is not None:
        config = replace(config, reports=config.reports / "check" / model.alias)
    asked = Asked(
        case=arguments.case,
        device=arguments.device,
        observation=arguments.observation,
        between=tuple(arguments.between),
        depth=arguments.depth,
        subject=model,
        options=options_of(arguments),
        keep_environments=arguments.keep_environments,
    )
    found = search(config, asked, print)
    print("\n".join([*found.lines(), *reproduce(config, found, arguments.reproduction)]))
    return found.exit_code
