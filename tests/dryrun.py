"""The reusable workflow, executed here job by job: plan, N machines, artifacts as files, one table, the gates; then machines that fail.

python tests/dryrun.py --torch 2.11.0,2.13.0 --devices cpu,meta --families init
python tests/dryrun.py --torch 2.9.0,2.11.0,2.13.0 --devices cpu,meta,xla --families init --install
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.workflows import FOLDER, ROOT, JobRun, Runner, load

#: What lies in a folder of results beside the report.
FACTS = ("plan.json", "results", "conflicts", "published", "work", ".lock")
OUT = "conformance-out"


@dataclass
class Chain:
    """What one execution of the workflow left: its jobs, each on a machine of its own, and the folder of their artifacts."""

    folder: Path
    runner: Runner
    inputs: dict[str, Any]
    plan: JobRun
    cells: dict[str, JobRun] = field(default_factory=dict)

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The jobs of the plan."""
        found: list[dict[str, Any]] = json.loads(self.plan.outputs["jobs"])["include"]
        return found

    def report(self, name: str, artifacts: Path | None = None) -> JobRun:
        """The last job, on a machine of its own, from these artifacts or from others."""
        runner = replace(self.runner, artifacts=artifacts or self.runner.artifacts)
        needs = {"plan": {"result": self.plan.result, "outputs": self.plan.outputs}}
        return runner.run(_job("report"), self.folder / name, {"inputs": self.inputs, "needs": needs})


def _job(name: str) -> dict[str, Any]:
    found: dict[str, Any] = load(FOLDER / "cells.yml")["jobs"][name]
    return found


def start(project: Path, folder: Path, *, install: bool = False, **given: str) -> Chain:
    """Plan, then run each planned job; `given` are inputs of the workflow. With `install` each machine installs the tool for itself."""
    declared = load(FOLDER / "cells.yml")["on"]["workflow_call"]["inputs"]
    inputs: dict[str, Any] = {name: each.get("default", "") for name, each in declared.items()}
    inputs.update({"gate": True, "tool": str(ROOT), **given})
    (folder / "artifacts").mkdir(parents=True)
    runner = Runner(project, folder / "artifacts", variables(folder, install), install)
    chain = Chain(folder, runner, inputs, runner.run(_job("plan"), folder / "plan", {"inputs": inputs}))
    if chain.plan.result != "success":
        raise SystemExit(chain.plan.log)
    for row in chain.rows:
        contexts = {"inputs": inputs, "matrix": row, "needs": {"plan": {"outputs": chain.plan.outputs}}}
        chain.cells[row["job"]] = runner.run(_job("cell"), folder / row["job"], contexts)
    return chain


def variables(folder: Path, install: bool) -> dict[str, str]:
    """The variables of a machine: without `install` a `conformance` command that runs this checkout under this Python."""
    if install:
        return {}
    command = folder / "bin" / "conformance"
    command.parent.mkdir(parents=True)
    code = f"import sys; sys.path[0] = {str(ROOT)!r}; from conformance.cli import main; sys.exit(main())"
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -c "{code}" "$@"\n', encoding="utf-8")
    command.chmod(0o755)
    return {"PATH": f"{command.parent}{os.pathsep}{os.environ['PATH']}"}


def single_machine(chain: Chain) -> Path:
    """The folder that one machine would have left which ran every cell itself: each cell's files as its machine wrote them."""
    reports = chain.folder / "single"
    shutil.copytree(chain.folder / "plan" / "workspace" / OUT, reports)
    for job in chain.cells.values():
        shutil.copytree(job.folder / "workspace" / OUT / "results", reports / "results", dirs_exist_ok=True)
    return reports


def report_files(reports: Path) -> dict[str, bytes]:
    """The files of the report under a folder, by their relative paths."""
    places = [(file, file.relative_to(reports)) for file in sorted(reports.rglob("*")) if file.is_file()]
    return {place.as_posix(): file.read_bytes() for file, place in places if place.parts[0] not in FACTS}


def spoil(artifacts: Path, into: Path, **faults: str) -> Path:
    """A copy of the artifacts in which the named ones are `lost`, came `twice`, are `damaged` (cut off) or of a `newer` schema."""
    shutil.copytree(artifacts, into)
    if "lost" in faults:
        shutil.rmtree(into / faults["lost"])
    if "twice" in faults:
        shutil.copytree(into / faults["twice"], into / f"{faults['twice']}.again")
    if "damaged" in faults:
        for path in (into / faults["damaged"]).rglob("records.jsonl"):
            path.write_bytes(path.read_bytes()[:-20])
    if "newer" in faults:
        for path in (into / faults["newer"]).rglob("results/*/*.json*"):
            path.write_bytes(path.read_bytes().replace(b'"schema":1', b'"schema":2').replace(b'"schema": 1', b'"schema": 2'))
    return into


def told(job: JobRun) -> list[str]:
    """What `collect` said in that job."""
    after = job.log.partition("collect machines\n")[2].splitlines()
    return after[: next((number for number, line in enumerate(after) if line.startswith("$ ")), len(after))]


def main() -> None:
    """Run the chain, compare it with one machine, spoil it, and print what was seen."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("torch", ""), ("devices", "cpu,meta"), ("families", "init"), ("index", "auto"), ("runners", "macos_arm64=")):
        parser.add_argument(f"--{name}", default=default)
    parser.add_argument("--project", type=Path, default=ROOT, help="the repository whose matrix it is (default: this one)")
    parser.add_argument("--install", action="store_true", help="each machine installs the tool with pip")
    parser.add_argument("--keep", type=Path, help="a folder to leave everything in")
    options = vars(parser.parse_args())
    keep, install, project = options.pop("keep"), options.pop("install"), options.pop("project")
    with tempfile.TemporaryDirectory() as temporary:
        _show(start(project, (keep or Path(temporary)) / "dryrun", install=install, **options))


def _show(chain: Chain) -> None:
    began = time.monotonic()
    for name, job in chain.cells.items():
        records = sum(len(path.read_bytes().splitlines()) for path in job.folder.rglob("records.jsonl"))
        print(f"{name}: {job.result}, {records} records")
    whole = chain.report("report")
    print("\n".join(["", f"one table: {whole.result}", *told(whole)]))
    print(_equality(chain, whole))
    names = sorted(path.name for path in chain.runner.artifacts.iterdir() if not path.name.endswith((".plan", "-report", "-pages")))
    faults: Mapping[str, str] = dict(zip(("lost", "twice", "damaged", "newer"), names))
    spoiled = chain.report("spoiled-report", spoil(chain.runner.artifacts, chain.folder / "spoiled", **faults))
    print("\n".join(["", f"with {', '.join(f'{name} {kind}' for kind, name in faults.items())}: {spoiled.result}", *told(spoiled)]))
    print(f"{time.monotonic() - began:.0f} s for both tables")


def _equality(chain: Chain, whole: JobRun) -> str:
    """How the report of many machines compares with that of one, byte by byte."""
    one = single_machine(chain)
    job = {"steps": [{"run": f"conformance --reports {one} report"}]}
    chain.runner.run(job, chain.folder / "single-report", {})
    many, single = report_files(whole.folder / "workspace" / OUT), report_files(one)
    differ = [name for name in sorted({*many, *single}) if many.get(name) != single.get(name)]
    size = sum(map(len, many.values()))
    return f"report of one machine: {len(single)} files, {size} bytes, {'byte for byte the same' if not differ else f'other in {differ}'}"


if __name__ == "__main__":
    main()
