"""How fast ops are checked, beside plain OpInfo under pytest and TorchCTS: op x dtype checks per CPU-second in one run, one after another.

The same ops in float32 on the CPU, with the same number of samples an op, and TorchCTS once more with all the samples that it takes by
itself; each in one process, without pytest-xdist. What is
measured is the CPU time of the whole process, imports and collection included, and beside it that without what a run with no op takes.
A check is an op in a dtype, whatever its samples and variants; how many results were held against others is counted beside it
(comparisons.py). A run before the measured one lets Python compile what is imported.
`python benchmarks/sweep.py [--torch 2.11.0] [--samples 3]`. TorchCTS is made for torch 2.7 to 2.12; on the CPU it runs each op and
compares no numbers (its "CPU validation mode").
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from overhead import children_cpu_s

from conformance import configfile, plan
from conformance.environments import Environments
from conformance.incell.requirementsets import environment_name

ROOT = Path(__file__).parent.parent
NEEDS = ("expecttest", "hypothesis", "pyyaml", "setuptools<80", "torchcts==0.4.1")


@dataclass
class Outcome:
    """What one contender came to: CPU-seconds, and for each op the worst of passed, skipped, failed."""

    cpu_s: float
    idle_s: float
    ops: dict[str, str]
    comparisons: int

    @property
    def rate(self) -> float:
        """Checks a CPU-second."""
        return sum(outcome != "skipped" for outcome in self.ops.values()) / self.cpu_s

    def line(self, name: str) -> str:
        counted = Counter(self.ops.values())
        checks = counted["passed"] + counted["failed"]
        net = checks / max(self.cpu_s - self.idle_s, 0.1)
        spent = f"{self.cpu_s:7.1f} s ({self.idle_s:.1f} s of them idle)"
        told = f"{self.rate:6.1f}/s, net {net:6.1f}/s, {self.comparisons} comparisons"
        return f"{name:<24} {checks:5} checks {spent} {told}  {dict(counted)}"


def _python(torch: str) -> str:
    """An interpreter with that torch and what the three need."""
    folder = Path(tempfile.mkdtemp())
    (folder / "pyproject.toml").write_text(
        f"[tool.conformance]\nfamilies = ['mps']\nenvironments = '{ROOT / '.conformance' / 'environments'}'\n", encoding="utf-8"
    )
    configured = configfile.load(folder)
    cell = plan.make(configured, plan.Selection(torch=torch, devices=("cpu",), families=("mps",))).cells[0]
    environments = Environments(configured, print)
    return str(environments.provide(environments.request(cell, environment_name(NEEDS), NEEDS)).python)


def _cpu_s(command: Sequence[str], folder: Path, variables: dict[str, str]) -> float:
    return children_cpu_s(lambda: subprocess.run(command, cwd=folder, env={**os.environ, **variables}, check=False, capture_output=True))


def _ops(report: Path, op_of: dict[str, str]) -> dict[str, str]:
    """Op -> its worst outcome, from a JUnit report; `op_of` maps what a case's brackets hold to the op."""
    order = ("passed", "skipped", "failed")
    found: dict[str, str] = {}
    for case in ElementTree.parse(report).iter("testcase"):
        op = op_of.get(case.get("name", "").partition("[")[2].removesuffix("]"))
        kinds = {child.tag for child in case}
        outcome = "failed" if kinds & {"failure", "error"} else "skipped" if "skipped" in kinds else "passed"
        if op is not None:
            found[op] = max(found.get(op, "passed"), outcome, key=order.index)
    return found


def _listed(python: str, variables: dict[str, str]) -> list[tuple[str, str, str]]:
    """Name, variant and formatted name of each op of the list that takes float32."""
    code = (
        "import torch\nfrom torch.testing._internal.common_methods_invocations import op_db\n"
        "for i in op_db:\n"
        " if torch.float32 in i.supported_dtypes('cpu'): print('OP', i.name, i.variant_test_name or '-', i.formatted_name)\n"
    )
    done = subprocess.run([python, "-c", code], env={**os.environ, **variables}, check=True, capture_output=True, text=True)
    rows = [line.split() for line in done.stdout.splitlines() if line.startswith("OP ")]
    return [(name, variant, formatted) for _, name, variant, formatted in rows]


def run(python: str, samples: int, ops: str) -> dict[str, Outcome]:
    """All three, one after another, on the ops whose cases pytest's expression `ops` matches; all where it is empty."""
    variables = {"OMP_NUM_THREADS": "1", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONDONTWRITEBYTECODE": "", "SAMPLES": str(samples)}
    variables["PYTHONPATH"] = os.pathsep.join([str(ROOT), str(ROOT / "benchmarks"), *filter(None, [os.environ.get("PYTHONPATH")])])
    listed = _listed(python, variables)
    pytest = [python, "-m", "pytest", "-q", "-c", os.devnull, "-p", "no:cacheprovider"]
    mine = [
        *pytest,
        "-p",
        "conformance.incell.plugin",
        "--rootdir",
        str(ROOT),
        "--import-mode=importlib",
        str(ROOT / "cases/mps/test_ops.py"),
    ]
    plain = [*pytest, str(ROOT / "benchmarks" / "plain_opinfo.py")]
    suite = "import torchcts.opinfo as o; print(o.__path__[0])"
    folder = subprocess.run([python, "-c", suite], env={**os.environ, **variables}, check=True, capture_output=True, text=True)
    forward = f"{folder.stdout.splitlines()[-1]}/test_opinfo_forward.py"
    whole = [python, "-m", "torchcts", "run", "--device", "cpu", "--dtype", "float32", "--suite", "opinfo", "--level", "8"]
    whole += ["--non-interactive", forward, "-p", "no:cacheprovider", "-q"]
    theirs = [*whole, "--max-samples", str(samples)]
    names = {
        "this sweep": (mine, "", {f"{name.replace('.', '_')}-float32": name for name, _, _ in listed}),
        "plain OpInfo": (plain, "", {formatted: name for name, _, formatted in listed}),
        "TorchCTS 0.4.1, clean": (theirs, "clean", _of_torchcts(listed)),
        "TorchCTS, all samples": (whole, "clean", _of_torchcts(listed)),
    }
    outcomes = {}
    for contender, (command, keyword, op_of) in names.items():
        with tempfile.TemporaryDirectory() as work:
            report, counted = Path(work) / "report.xml", Path(work) / "comparisons"
            variables |= {"COMPARISONS": str(counted), "PYTHONPYCACHEPREFIX": str(Path(work) / "bytecode")}
            command += ["-p", "comparisons"]
            chosen = ["-k", " and ".join(f"({part})" for part in (keyword, ops) if part)] if keyword or ops else []
            if "torchcts" in command:
                _cpu_s([python, "-m", "torchcts", "init", "--non-interactive"], Path(work), variables)
            _cpu_s([*command, "-k", "qr"], Path(work), variables)
            idle = _cpu_s([*command, "-k", "no_such_op"], Path(work), variables)
            spent = _cpu_s([*command, *chosen, f"--junitxml={report}"], Path(work), variables)
            outcomes[contender] = Outcome(spent, idle, _ops(report, op_of), int(counted.read_text(encoding="utf-8")))
            print(outcomes[contender].line(contender), flush=True)
    return outcomes


def _of_torchcts(listed: list[tuple[str, str, str]]) -> dict[str, str]:
    """TorchCTS names a case condition, op and dtype; its op is the name, with a dot and the variant behind it."""
    found = {}
    for name, variant, _ in listed:
        for op in (name, f"{name}.{variant}", f"{name}_{variant}"):
            found.update({f"clean-{op}-{dtype}": name for dtype in ("float32", "torch.float32")})
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--torch", default="2.11.0")
    parser.add_argument("--samples", type=int, default=3)
    parser.add_argument("--ops", default="", help="pytest's expression for the cases to run, as 'fft or linalg' (default: all)")
    parser.add_argument("--python", help="an interpreter that has torch, pytest, what op_db imports, and torchcts, in place of a new one")
    arguments = parser.parse_args()
    outcomes = run(arguments.python or _python(arguments.torch), arguments.samples, arguments.ops)
    mine = outcomes.pop("this sweep")
    for name, other in outcomes.items():
        both = sorted(set(mine.ops) & set(other.ops))
        differ = [op for op in both if mine.ops[op] != other.ops[op]]
        print(f"beside {name}: {mine.rate / other.rate:.1f} times the checks a CPU-second")
        print(f"    {len(both)} ops in both, {len(differ)} judged otherwise")
        for op in differ:
            print(f"    {op}: {mine.ops[op]} here, {other.ops[op]} there")


if __name__ == "__main__":
    sys.exit(main())
