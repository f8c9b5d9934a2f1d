"""What `conformance check gpt --here` costs, and how much of it is torch's import: CPU-seconds and ratios within one run.

The first check of a model, and a second one with nothing changed. `python benchmarks/here.py [--torch 2.13.0] [--subject gpt]`
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from overhead import children_cpu_s

from conformance import configfile, plan
from conformance.environments import Environments
from conformance.environmentspecs import Environment

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parent.parent
#: The command, and how many processes of the cell had torch in their memory, as Linux tells of them.
COUNTED = """
import pathlib, sys
from conformance import cli, harness
launch, seen = harness.launch, set()
def counted(*arguments, tick, **named):
    def look(journals):
        for process in journals.processes.values():
            maps = pathlib.Path(f"/proc/{process.pid}/maps")
            if process.pid not in seen and maps.exists() and "libtorch_python" in maps.read_text():
                seen.add(process.pid)
        tick(journals)
    return launch(*arguments, tick=look, **named)
harness.launch = counted
code = cli.main(sys.argv[1:])
print("importing", len(seen))
sys.exit(code)
"""


def environment(folder: Path, torch: str) -> Environment:
    """An environment as a user's own: torch and what this tool needs."""
    (folder / "pyproject.toml").write_text(
        f"[tool.conformance]\nenvironments = '{ROOT / '.conformance' / 'environments'}'\n", encoding="utf-8"
    )
    needs = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["dependencies"]
    config = configfile.load(folder)
    (planned,) = plan.make(config, plan.Selection(torch=torch, devices=("cpu",))).cells
    environments = Environments(config, print)
    return environments.provide(environments.request(planned, "here", tuple(needs)))


def run(*command: str, folder: Path) -> tuple[float, str]:
    """CPU-seconds of the command and its children, and what it printed."""
    variables = {**os.environ, "PYTHONPATH": str(ROOT)}
    printed: list[str] = []

    def command_once() -> None:
        printed.append(subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True, check=False).stdout)

    return children_cpu_s(command_once), printed[0]


def main() -> None:
    """Print all figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--torch", default="2.13.0")
    parser.add_argument("--subject", default="gpt")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        python = str(environment(folder, arguments.torch).python)
        run(python, "-c", "import torch", folder=folder)  # its files are read from disk once
        (imported, _), (empty, _) = (run(python, "-c", code, folder=folder) for code in ("import torch", ""))
        check = (python, "-c", COUNTED, "check", arguments.subject, "--here", "--device", "cpu", "-n", "0")
        begun = time.monotonic()
        first, printed = run(*check, folder=folder)
        clock = time.monotonic() - begun
        again, _ = run(*check, folder=folder)
    importing, one = int(printed.split()[-1]), imported - empty
    print(f"the first check: {first:.1f} CPU-s in {clock:.1f} s on the clock; an import of torch is {one / first:.0%} of it")
    print(f"{importing} of its processes import torch, which is {importing * one / first:.0%} of the check")
    print(f"the second, with nothing changed: {again / first:.1%} of the first")


if __name__ == "__main__":
    main()
