"""What `collect` and `report` take for many records, beside pytest-html and pandas on the same results; one run, machines are noisy.

`python benchmarks/scale.py [--records 100000] [--peers]`: time, memory and size of the site, the front page and the largest page. Records
are made up in the proportions of real ones: 20 releases, 5 devices, most cases pass, one in ten changes at some release.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from conformance.artifacts import encode
from conformance.cells import Cell
from conformance.incell.records import blank

ROOT = Path(__file__).parent.parent
RELEASES = [f"{major}.{minor}.1" for major, minor in [(1, 13), *((2, minor) for minor in range(19))]]
DEVICES = ("cpu", "cuda", "mps", "xla", "xpu")
FAMILIES = ("init", "fallbacks", "mps", "rope", "compile", "trace")
#: What cases that do not pass come to, by number.
FATES = (("wrong", "assert {0} == {1}"), ("raises", "RuntimeError: no kernel {0} for this dtype"), ("unsupported", "no torch.api_{0} here"))


@dataclass(frozen=True)
class Case:
    """A made-up case: from release `changes` on it is as `late` says, before as `early`; observations for six of ten."""

    number: int

    @property
    def name(self) -> str:
        """Its id."""
        family = FAMILIES[self.number % len(FAMILIES)]
        return f"{family}.case_{self.number // 24:05}[{('float32', 'bfloat16', 'float16', 'float64')[self.number % 4]}-{self.number % 24}]"

    def fate(self, release: int, device: int) -> int | None:
        """Which of FATES it comes to there, None for a pass."""
        if device == 3 and self.number % 4:
            return 2
        if self.number % 10:
            return None
        changes = self.number // 10 % (len(RELEASES) + 4)
        return self.number // 10 % 3 if release < changes else None

    def record(self, cell: str, release: int, device: int) -> dict[str, Any]:
        """Its record in one cell."""
        fate = self.fate(release, device)
        fields: dict[str, Any] = {"verdict": "pass"}
        if fate is not None:
            verdict, reason = FATES[fate]
            reason = reason.format(self.number % 97, self.number % 89)
            fields = {"verdict": verdict, "reason": reason}
            if verdict != "unsupported":
                file = f"<cases>/{FAMILIES[self.number % 6]}/test_{self.number % 120}.py"
                fields["exception"] = {"type": "AssertionError", "message": reason}
                fields["blame"] = {"file": file, "line": self.number % 200, "source": f"assert found == {self.number % 89}"}
                fields["output_tail"] = f"Traceback (most recent call last):\n  File {file}, line 7\n    check(given)\n{reason}" * 2
        if self.number % 10 < 6:
            fields["observations"] = self.observed(release)
        return blank(cell, self.name, duration_s=self.number % 1000 / 1e4, started_at="2026-11-30T10:01:45.078+00:00",
                     params={"dtype": "float32"}, seed=0, key=f"{self.number:016x}", **fields)  # fmt: skip

    def observed(self, release: int) -> dict[str, Any]:
        """Two numbers, and for one case in fifty a digest that changes at one release."""
        seen: dict[str, Any] = {
            "breaks": {"kind": "number", "value": self.number % 5 + (release < 6), "better": "lower"},
            "error_ulp": {"kind": "number", "value": round(self.number % 7 / 3, 3), "better": "lower"},
        }
        if self.number % 50 == 1:
            seen["bits"] = {"kind": "tensor", "digest": f"{self.number * 31 + (release > 12):016x}", "dtype": "float32", "shape": [64]}
        return seen

    def entry(self) -> dict[str, Any]:
        """What collection lists of it."""
        family, name = self.name.split(".", 1)
        place = {"file": f"<cases>/{family}/test_{self.number % 120}.py", "file_case": f"{family}.{self.number % 120}"}
        told = {"title": f"What {name} says holds for every input of that kind.", "line": self.number % 200, "key": f"{self.number:016x}"}
        rest = {"expected": None, "memory_mb": None, "params": {}, "refused": "", "requirements": [], "seed": 0, "unsupported": ""}
        return {"case": self.name, "family": family, "environment": "base", "subject": None, "timeout_s": 120.0, **place, **told, **rest}


def cells() -> Iterator[tuple[Cell, int, int]]:
    """Every cell, with the numbers of its release and device."""
    for release, version in enumerate(RELEASES):
        for device, name in enumerate(DEVICES):
            yield Cell(torch=version, python="3.11", device=name, platform="linux_x86_64"), release, device


def make(folder: Path, records: int) -> int:
    """Result sets of `records` records under `folder`, one source for each device; returns how many there are."""
    count = records // (len(RELEASES) * len(DEVICES))
    cases = [Case(number) for number in range(count)]
    listed = encode({"schema": 1, "cases": [case.entry() for case in cases], "files": [], "complete": True}, indent=1)
    for cell, release, device in cells():
        place = folder / DEVICES[device] / "results" / str(cell)
        place.mkdir(parents=True)
        facts = {"torch": {"version": f"{cell.torch}+cpu"}, "device": {"type": cell.device, "name": cell.device}}
        sound = {"controls": {"ok": True, "off": []}, "started_at": "2026-11-30T10:01:45+00:00"}
        environment = {"schema": 1, "cell": str(cell), "status": "ok", **facts, **sound}
        (place / "environment.json").write_bytes(encode(environment, indent=1))
        (place / "collected.json").write_bytes(listed)
        (place / "controls.jsonl").write_bytes(b"")
        with (place / "records.jsonl").open("wb") as stream:
            for case in cases:
                stream.write(encode(case.record(str(cell), release, device)) + b"\n")
    return count * len(RELEASES) * len(DEVICES)


@dataclass(frozen=True)
class Cost:
    """What one command took: seconds by the clock and of CPU, and the most memory that it held."""

    wall_s: float
    cpu_s: float
    peak_mb: float

    def __str__(self) -> str:
        return f"{self.wall_s:7.1f} s, {self.cpu_s:7.1f} CPU-s, {self.peak_mb:6.0f} MB"


def cost(command: list[str], folder: Path) -> Cost:
    """Run `command` in `folder`; a failure ends the benchmark with its output."""
    variables = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    with (folder / "output.txt").open("wb") as output:
        began = time.perf_counter()
        process = subprocess.Popen(command, cwd=folder, env=variables, stdout=output, stderr=subprocess.STDOUT)
        _, status, used = os.wait4(process.pid, 0)
        wall = time.perf_counter() - began
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode not in (0, 1):
        sys.exit((folder / "output.txt").read_text(encoding="utf-8", errors="replace")[-3000:])
    return Cost(wall, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024)


def ours(folder: Path, sources: Path) -> None:
    """Print what our two commands take, and how large the pages are."""
    tool = [sys.executable, "-m", "conformance", "--project", str(folder), "--reports", str(folder / "reports")]
    (folder / "pyproject.toml").write_text("[tool.conformance]\n", encoding="utf-8")
    print(f"collect      {cost([*tool, 'collect', *(str(sources / device) for device in DEVICES)], folder)}", flush=True)
    print(f"report       {cost([*tool, 'report'], folder)}", flush=True)
    sizes = {path.relative_to(folder): path.stat().st_size for path in (folder / "reports" / "site").rglob("*.html")}
    largest = max(sizes, key=lambda path: sizes[path])
    print(f"site: {len(sizes)} pages, {sum(sizes.values()) / 1e6:.0f} MB; largest {largest.name} {sizes[largest] / 1e6:.2f} MB", flush=True)
    print(f"front page: {sizes[Path('reports/site/index.html')]} bytes", flush=True)


PANDAS = """
import glob, json, sys
import pandas as pd
rows = [json.loads(line) for path in sorted(glob.glob(sys.argv[1] + "/*/results/*/records.jsonl")) for line in open(path)]
table = pd.DataFrame(rows).pivot(index="case", columns="cell", values="verdict")
table.to_html(sys.argv[2])
"""
PYTEST = """
import glob, json, os
import pytest

paths = sorted(glob.glob(os.environ["SOURCES"] + "/*/results/*/records.jsonl"))
ROWS = [json.loads(line) for path in paths for line in open(path)]

@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["cell"] + "-" + row["case"])
def test_row(row):
    if row["verdict"] == "unsupported":
        pytest.skip(row["reason"])
    assert row["verdict"] == "pass", row["reason"]
"""


def peers(folder: Path, sources: Path) -> None:
    """Print what pandas and pytest-html take for the same results, each on one page."""
    (folder / "to_html.py").write_text(PANDAS, encoding="utf-8")
    (folder / "test_rows.py").write_text(PYTEST, encoding="utf-8")
    os.environ["SOURCES"] = str(sources)
    page = folder / "pandas.html"
    told = cost([sys.executable, "to_html.py", str(sources), str(page)], folder)
    print(f"pandas       {told}, one page of {page.stat().st_size / 1e6:.1f} MB", flush=True)
    options = ["-q", "-p", "no:cacheprovider", "--tb=line", "-c", os.devnull, "--rootdir", str(folder)]
    plain = [sys.executable, "-m", "pytest", *options, "test_rows.py"]
    print(f"pytest       {cost([*plain, '-p', 'no:html'], folder)}, no page", flush=True)
    page = folder / "pytest.html"
    told = cost([*plain, "--html", str(page), "--self-contained-html"], folder)
    print(f"pytest-html  {told}, one page of {page.stat().st_size / 1e6:.1f} MB", flush=True)


def main() -> None:
    """Print all figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=100_000)
    parser.add_argument("--peers", action="store_true", help="also pandas and pytest-html, which must be installed")
    parser.add_argument("--keep", type=Path, help="a folder to work in, which stays")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = arguments.keep or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        sources = folder / "sources"
        made = make(sources, arguments.records) if not sources.exists() else arguments.records
        size = sum(path.stat().st_size for path in sources.rglob("*.jsonl")) / 1e6
        print(f"{made:,} records, {size:.0f} MB", flush=True)
        ours(folder, sources)
        if arguments.peers:
            peers(folder, sources)


if __name__ == "__main__":
    main()
