"""`new-case`: what makes cases."""

from __future__ import annotations

import argparse

from conformance.commands.arguments import Adder, config_of


def add(command: Adder) -> None:
    """Put this command on the command line."""
    parser = command("new-case", new_case, "a new case: a file that runs as it is, with a wrong twin that it catches")
    parser.add_argument("family", help="user for your own project; init, rope, ... in the tool's checkout")
    parser.add_argument("name", help="what the case is called, as growth_keeps_what_it_had")


def new_case(arguments: argparse.Namespace) -> int:
    """Write the file of a new case and say what to do with it."""
    from conformance import scaffold

    path = scaffold.new_case(config_of(arguments), arguments.family, arguments.name)
    print("\n".join(scaffold.told(path, arguments.family, arguments.name)))
    return 0
