"""What the harness costs beside bare pytest, as ratios in one run: machines are shared and noisy.

3,000 empty cases in a cell, CPU-seconds of all processes, with `-n 2` and without pytest-xdist; collection and supervisor are given
apart. Then a run with nothing to do, and start-up times. `python benchmarks/overhead.py [--cases 3000] [--torch 2.13.0] [--rounds 3]`
"""

from __future__ import annotations

import argparse
import io
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from conformance import configfile, plan
from conformance.environments import Environments
from conformance.options import Options
from conformance.progress import Progress
from conformance.supervisor import CellRun

ROOT = Path(__file__).parent.parent


def cpu_s(who: int) -> float:
    """CPU-seconds, user and system, of this process or of its ended children."""
    used = resource.getrusage(who)
    return used.ru_utime + used.ru_stime


def children_cpu_s(action: Callable[[], object]) -> float:
    """CPU-seconds that the processes took which `action` started and waited for."""
    before = cpu_s(resource.RUSAGE_CHILDREN)
    action()
    return cpu_s(resource.RUSAGE_CHILDREN) - before


class Bench:
    """Runs the same case file under bare pytest and under the harness."""

    def __init__(self, folder: Path, cases: int, torch: str) -> None:
        self.cases = cases
        (folder / "mine").mkdir()
        self.file = folder / "mine" / "test_empty.py"
        body = f'import pytest\n\n@pytest.mark.parametrize("number", range({cases}))\ndef test_empty(number):\n    pass\n'
        self.file.write_text(body, encoding="utf-8")
        environments = ROOT / ".conformance" / "environments"
        lines = ["[tool.conformance]", "cases = ['mine']", "families = []", f"environments = '{environments}'"]
        (folder / "pyproject.toml").write_text("\n".join(lines), encoding="utf-8")
        self.config = configfile.load(folder)
        self.plan = plan.make(self.config, plan.Selection(torch=torch, devices=("cpu",)))
        self.environments = Environments(self.config, print)
        self.python = str(self.environments.provide(self.environments.request(self.plan.cells[0])).python)

    def bare(self, workers: int) -> float:
        """CPU-seconds of bare pytest in the cell's environment."""
        spread = ["-p", "xdist.plugin", "-n", str(workers), "--dist", "worksteal"] if workers else []
        command = [self.python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", os.devnull, *spread, str(self.file)]
        variables = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONDONTWRITEBYTECODE": "1"}
        return children_cpu_s(lambda: subprocess.run(command, check=True, env=variables, stdout=subprocess.DEVNULL))

    def harness(self, workers: int) -> dict[str, float]:
        """CPU-seconds of the same cases in a cell: the cases, their collection, and the supervisor itself."""
        options = Options(workers=workers, fresh=True)
        run = CellRun(self.config, self.plan, self.plan.cells[0], options, self.environments, Progress(1, io.StringIO()))
        spent: dict[str, float] = {}
        for name in ("_collect", "_run_sets"):
            self._meter(run, name, spent)
        before = cpu_s(resource.RUSAGE_SELF)
        run.run()
        assert sum(run.ledger.verdicts().values()) == self.cases, run.ledger.verdicts()
        return {"cases": spent["_run_sets"], "collection": spent["_collect"], "supervisor": cpu_s(resource.RUSAGE_SELF) - before}

    @staticmethod
    def _meter(run: CellRun, name: str, spent: dict[str, float]) -> None:
        method = getattr(run, name)

        def metered(*arguments: object) -> None:
            spent[name] = children_cpu_s(lambda: method(*arguments))

        setattr(run, name, metered)

    def nothing_to_do(self) -> float:
        """CPU-seconds of a second run without a change."""
        command = [sys.executable, "-m", "conformance", "run", "--only", str(self.plan.cells[0].cell)]
        variables = {**os.environ, "PYTHONPATH": str(ROOT)}

        def rerun() -> None:
            subprocess.run(command, check=True, cwd=self.config.project, env=variables, capture_output=True)

        children_cpu_s(rerun)
        return children_cpu_s(rerun)


def start_up() -> dict[str, float]:
    """CPU-seconds of commands that start nothing."""
    commands = {
        "python -c ''": ["-c", ""],
        "conformance --help": ["-m", "conformance", "--help"],
        "conformance plan": ["-m", "conformance", "plan"],
    }
    variables = {**os.environ, "PYTHONPATH": str(ROOT)}
    found = {}
    for name, arguments in commands.items():
        command = [sys.executable, *arguments]
        runs = [children_cpu_s(lambda: subprocess.run(command, check=True, cwd=ROOT, env=variables, capture_output=True)) for _ in range(5)]  # noqa: B023
        found[name] = statistics.median(runs)
    return found


def report(bench: Bench, workers: int, rounds: int) -> None:
    """Print one setting's figures, the medians of interleaved rounds."""
    bare, ours = [], []
    for _ in range(rounds):
        bare.append(bench.bare(workers))
        ours.append(bench.harness(workers))
    base = statistics.median(bare)
    parts = {name: statistics.median(each[name] for each in ours) for name in ours[0]}
    more_ms = (parts["cases"] - base) / bench.cases * 1000
    ratio = parts["cases"] / base
    print(f"-n {workers}: bare pytest {base:.2f} CPU-s, in the cell {parts['cases']:.2f}: ratio {ratio:.2f}, {more_ms:+.3f} ms a case")
    print(f"      apart: collection {parts['collection']:.2f}, supervisor {parts['supervisor']:.2f} CPU-s")


def main() -> None:
    """Print all figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=3000)
    parser.add_argument("--torch", default="2.13.0")
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(Path(folder), arguments.cases, arguments.torch)
        for workers in (2, 0):
            report(bench, workers, arguments.rounds)
        print(f"a run with nothing to do: {bench.nothing_to_do():.2f} CPU-s")
    for name, seconds in start_up().items():
        print(f"{name}: {seconds:.2f} CPU-s")


if __name__ == "__main__":
    main()
