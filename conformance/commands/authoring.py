"""`new-case` and `new-workflow`: what is written for others."""

from __future__ import annotations

import argparse

from conformance.commands.arguments import Adder, config_of


def add(command: Adder) -> None:
    """Put this command on the command line."""
    parser = command("new-case", new_case, "a new case: a file that runs as it is, with a wrong twin that it catches")
    parser.add_argument("family", help="user for your own project; init, rope, ... in the tool's checkout")
    parser.add_argument("name", help="what the case is called, as growth_keeps_what_it_had")

    parser = command("new-workflow", new_workflow, "a workflow for GitHub Actions: your model on every release, every week")
    parser.add_argument("subject", metavar="MODULE:BUILDER", help="your model, as for `check`: mypackage.model:build")
    parser.add_argument("--torch", default=">=2.4", metavar="SPEC", help="the releases (default: %(default)s)")
    parser.add_argument("--device", default="cpu", metavar="LIST", help="comma separated (default: %(default)s)")
    parser.add_argument(
        "--tool", default="", metavar="OWNER/NAME@COMMIT", help="this tool's repository (default: where it was installed from)"
    )


def new_case(arguments: argparse.Namespace) -> int:
    """Write the file of a new case and say what to do with it."""
    from conformance import scaffold

    path = scaffold.new_case(config_of(arguments), arguments.family, arguments.name)
    print("\n".join(scaffold.told(path, arguments.family, arguments.name)))
    return 0


def new_workflow(arguments: argparse.Namespace) -> int:
    """Write the workflow into the project and say what to do with it."""
    from conformance import scaffold
    from conformance.origin import origin

    tool = origin(arguments.tool)
    text = scaffold.workflow(tool, arguments.subject, arguments.torch, arguments.device)
    path = scaffold.new_workflow(config_of(arguments).project, "torch.yml", text)
    print(f"written: {path}, which calls {tool.repository} at {tool.ref}: that commit must be on GitHub\n\n{text}")
    return 0
