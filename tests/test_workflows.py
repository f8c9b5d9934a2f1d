"""The workflows: pinned, with no more rights than they need, labels from the configuration, commands that the tool has."""

from __future__ import annotations

import argparse
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from conformance import cli, configfile, scaffold
from conformance.cells import Cell
from conformance.config import Release
from conformance.jobs import MOST, Job
from conformance.origin import Origin
from conformance.plan import PlannedCell
from tests.workflows import EXPRESSION, FOLDER, ROOT, evaluate, load

WORKFLOWS = {path.name: load(path) for path in sorted(FOLDER.glob("*.yml"))}
ACTION = load(ROOT / "action.yml")
LABELS = {target.runs_on for target in configfile.load(ROOT).targets} - {""}
#: What a job may do beyond reading the repository, and which may.
WRITES = {
    ("matrix.yml", "pages"): {"pages": "write", "id-token": "write"},
    ("matrix.yml", "history"): {"contents": "write", "pull-requests": "write"},
    ("releases.yml", "releases"): {"actions": "write", "contents": "write", "pull-requests": "write"},
}

JOBS = [(name, job) for name, workflow in WORKFLOWS.items() for job in workflow["jobs"]]
every_job = pytest.mark.parametrize(("name", "job"), JOBS, ids=[f"{name}:{job}" for name, job in JOBS])


def _job(name: str, job: str) -> dict[str, Any]:
    found: dict[str, Any] = WORKFLOWS[name]["jobs"][job]
    return found


def _steps() -> Iterator[tuple[str, dict[str, Any], dict[str, Any]]]:
    """Each step with where it is and its job."""
    for name, job in JOBS:
        for number, step in enumerate(_job(name, job).get("steps", ())):
            yield f"{name}:{job}[{number}]", step, _job(name, job)
    for number, step in enumerate(ACTION["runs"]["steps"]):
        yield f"action.yml[{number}]", step, {}


STEPS = list(_steps())
every_step = pytest.mark.parametrize(("step", "job"), [each[1:] for each in STEPS], ids=[each[0] for each in STEPS])


def _texts(node: Any) -> Iterator[str]:
    if isinstance(node, str):
        yield node
    for inner in node.values() if isinstance(node, dict) else node if isinstance(node, list) else ():
        yield from _texts(inner)


def _names(node: Any, context: str) -> set[str]:
    """The properties of a context that expressions in `node` read: `_names(job, "matrix")`."""
    expressions = [match for text in _texts(node) for match in EXPRESSION.findall(text)]
    return {name for each in expressions for name in re.findall(rf"(?<![\w.]){context}\.([\w-]+)", each)}


def test_there_are_workflows() -> None:
    assert {"ci.yml", "cells.yml", "matrix.yml", "releases.yml"} <= set(WORKFLOWS)


@pytest.mark.parametrize("path", [*FOLDER.glob("*.yml"), ROOT / "action.yml"], ids=lambda path: path.name)
def test_actions_are_pinned_by_commit_with_their_version_beside_it(path: Path) -> None:
    uses = re.findall(r"uses:\s*(\S+)(.*)", path.read_text(encoding="utf-8"))
    assert uses
    for action, comment in uses:
        if not action.startswith("./"):
            assert re.fullmatch(r"[\w-]+/[\w.-]+@[0-9a-f]{40}", action)
            assert re.fullmatch(r" # v\d+\.\d+\.\d+", comment)


def test_an_action_is_one_version_everywhere() -> None:
    found: dict[str, set[str]] = {}
    for _, step, _ in STEPS:
        action, _, commit = step.get("uses", "").partition("@")
        found.setdefault(action, set()).add(commit)
    assert {action: commits for action, commits in found.items() if len(commits) > 1} == {}


@every_job
def test_rights_are_given_job_by_job_and_no_more_than_needed(name: str, job: str) -> None:
    assert WORKFLOWS[name]["permissions"] in ({}, "{}", "")
    rights = dict(_job(name, job)["permissions"])
    if (name, job) in WRITES:
        assert rights == WRITES[name, job]
    else:
        assert rights == {"contents": "read"}


@pytest.mark.parametrize("name", WORKFLOWS)
def test_pull_requests_of_forks_get_no_secret_and_no_right_to_write(name: str) -> None:
    text = (FOLDER / name).read_text(encoding="utf-8")
    assert "secrets" not in text
    assert "pull_request_target" not in text
    if "pull_request" in WORKFLOWS[name]["on"]:
        assert "write" not in {right for job in WORKFLOWS[name]["jobs"].values() for right in job["permissions"].values()}


@every_step
def test_a_checkout_leaves_no_credentials(step: dict[str, Any], job: dict[str, Any]) -> None:
    if step.get("uses", "").startswith("actions/checkout@"):
        assert step["with"]["persist-credentials"] == "false"


@every_job
def test_jobs_end(name: str, job: str) -> None:
    if "uses" not in _job(name, job):
        assert 1 <= int(_job(name, job)["timeout-minutes"]) <= 360


@every_job
def test_labels_are_those_of_the_configuration(name: str, job: str) -> None:
    where = _job(name, job).get("runs-on", "ubuntu-24.04")
    if where == "${{ matrix.os }}":
        matrix = _job(name, job)["strategy"]["matrix"]
        assert {*matrix["os"], *(row["os"] for row in matrix["include"])} <= LABELS
    elif where != "${{ matrix.runs_on }}":
        assert where in LABELS


@every_job
def test_keys_of_the_matrix_exist(name: str, job: str) -> None:
    matrix = _job(name, job).get("strategy", {}).get("matrix", {})
    if isinstance(matrix, str):
        cell = PlannedCell(
            cell=Cell.parse("torch2.8.0-py3.11-cpu-linux_x86_64"),
            release=Release(version="2.8.0", python="3.11"),
            target=configfile.load(ROOT).targets[0],
            named=False,
        )
        known = set(Job(cells=(cell,)).as_json())
    else:
        known = {*matrix, *(key for row in matrix.get("include", ()) for key in row)} - {"include"}
    assert _names(_job(name, job), "matrix") <= known


@pytest.mark.parametrize("name", WORKFLOWS)
def test_inputs_exist(name: str) -> None:
    on = WORKFLOWS[name]["on"]
    declared = (
        {key for event in on.values() if isinstance(event, dict) for key in event.get("inputs", {})} if isinstance(on, dict) else set()
    )
    assert _names(WORKFLOWS[name], "inputs") <= declared


def test_inputs_of_the_action_exist_and_are_used() -> None:
    assert _names(ACTION["runs"], "inputs") == set(ACTION["inputs"])


def test_inputs_of_the_reusable_workflow_are_used_and_called_as_declared() -> None:
    declared = WORKFLOWS["cells.yml"]["on"]["workflow_call"]
    assert _names(WORKFLOWS["cells.yml"]["jobs"], "inputs") == set(declared["inputs"])
    callers = [_job(name, job) for name, job in JOBS if _job(name, job).get("uses") == "./.github/workflows/cells.yml"]
    assert len(callers) >= 2
    for caller in callers:
        assert set(caller["with"]) <= set(declared["inputs"])
    assert declared["inputs"]["jobs"]["default"] == str(MOST)


@every_job
def test_outputs_and_steps_that_are_read_exist(name: str, job: str) -> None:
    here = _job(name, job)
    assert _names(here, "steps") <= {step.get("id") for step in here.get("steps", ())}
    needed = here.get("needs", [])
    needed = [needed] if isinstance(needed, str) else needed
    assert _names(here, "needs") <= set(needed) <= set(WORKFLOWS[name]["jobs"])
    for text in _texts(here):
        for other, output in re.findall(r"needs\.([\w-]+)\.outputs\.([\w-]+)", text):
            called = WORKFLOWS[name]["jobs"][other]
            gives = WORKFLOWS["cells.yml"]["on"]["workflow_call"]["outputs"] if "uses" in called else called["outputs"]
            assert output in gives


@every_step
def test_a_step_is_two_lines_at_most_and_no_expression_reaches_its_shell(step: dict[str, Any], job: dict[str, Any]) -> None:
    script = step.get("run", "")
    assert len(script.strip().splitlines()) <= 2
    assert "${{" not in script
    own = {*job.get("env", {}), *step.get("env", {}), "jobs"}
    given = {name for name in re.findall(r"\$(\w+)", script) if not name.startswith(("GITHUB_", "RUNNER_"))}
    assert given <= own


def _commands(script: str) -> Iterator[list[str]]:
    """The words of each call of our command in a script; variables stand as they are."""
    for line in script.splitlines():
        match = re.search(r"(?:^|\()(conformance .*?)(?:\)$|>|$)", line)
        if match:
            yield shlex.split(match.group(1))[1:]


COMMANDS = [(where, words) for where, step, _ in STEPS for words in _commands(step.get("run", ""))]


@pytest.mark.parametrize("words", [words for _, words in COMMANDS], ids=[where for where, _ in COMMANDS])
def test_commands_are_ours(words: list[str]) -> None:
    values = {"$DEPTH": "default", "$JOBS": "256", "$INDEX": "pytorch"}
    parsed = cli._parser().parse_args([values.get(word, word) for word in words if word != "$KEEP"])
    assert isinstance(parsed, argparse.Namespace)


def test_the_label_of_a_runner_decides_what_a_cell_keeps() -> None:
    keep = _job("cells.yml", "cell")["env"]["KEEP"]
    assert evaluate(keep, {"runner": {"environment": "github-hosted"}}) == "--drop-environments"
    assert evaluate(keep, {"runner": {"environment": "self-hosted"}}) == ""


def test_the_ten_lines_of_the_docs_are_ten_and_give_inputs_that_exist() -> None:
    blocks = re.findall(r"```yaml\n(.*?)```", (ROOT / "docs" / "machines.md").read_text(encoding="utf-8"), re.S)
    workflow, step = (yaml.load(block, Loader=yaml.BaseLoader) for block in blocks)
    assert len(blocks[0].strip().splitlines()) == 10
    job = workflow["jobs"]["torch"]
    assert job["uses"].endswith("/.github/workflows/cells.yml@REF")
    assert set(job["with"]) <= set(WORKFLOWS["cells.yml"]["on"]["workflow_call"]["inputs"])
    assert workflow["permissions"] == {"contents": "read"}
    assert blocks[0] == scaffold.workflow(Origin("OWNER/torch-conformance", "REF"), "mypackage.model:build", ">=2.4", "cpu,mps")
    assert set(step[0]["with"]) <= set(ACTION["inputs"])


def test_expressions_are_evaluated_as_on_github() -> None:
    contexts = {"inputs": {"torch": "", "n": 3}, "needs": {"plan": {"outputs": {"jobs": '{"include": []}'}}}}
    assert evaluate("${{ inputs.torch || 'full' }}", contexts) == "full"
    assert evaluate("a ${{ inputs.n }} b", contexts) == "a 3 b"
    assert evaluate("${{ inputs.n }}.${{ inputs.n }}", contexts) == "3.3"
    assert evaluate("${{ fromJSON(needs.plan.outputs.jobs) }}", contexts) == {"include": []}
    assert evaluate("${{ inputs.gone == '' && !inputs.torch }}", contexts) is True
    with pytest.raises(ValueError, match="not understood"):
        evaluate("${{ inputs.n + 1 }}", contexts)
