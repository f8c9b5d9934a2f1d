"""GitHub workflows as data, and enough of GitHub's own machine to run their jobs here: expressions, steps, outputs, artifacts."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parent.parent
FOLDER = ROOT / ".github" / "workflows"
#: What lies in a checkout and is no part of it.
UNTRACKED = (".git", ".conformance", ".nox", ".venv", "*_cache", "__pycache__", "build", "dist")
EXPRESSION = re.compile(r"\$\{\{\s*(.*?)\s*\}\}", re.S)
_TOKEN = re.compile(r"'(?:[^']|'')*'|&&|\|\||==|!=|[!(),]|[A-Za-z_][\w.-]*|\d+(?:\.\d+)?|\s+")


def load(path: Path) -> dict[str, Any]:
    """A workflow or an action; every scalar is a text, so that neither `on` nor `3.10` changes."""
    document: dict[str, Any] = yaml.load(path.read_text(encoding="utf-8"), Loader=yaml.BaseLoader)
    return document


def evaluate(text: Any, contexts: Mapping[str, Any], functions: Mapping[str, Callable[..., Any]] | None = None) -> Any:
    """The value of a text with `${{ }}` in it: that of the expression where it is nothing else, else a text."""
    if not isinstance(text, str):
        return text
    known = {"fromJSON": json.loads, **(functions or {})}
    whole = EXPRESSION.match(text)
    if whole and whole.end() == len(text):
        return _value(whole.group(1), contexts, known)
    return EXPRESSION.sub(lambda match: as_text(_value(match.group(1), contexts, known)), text)


def _value(expression: str, contexts: Mapping[str, Any], functions: Mapping[str, Callable[..., Any]]) -> Any:
    """GitHub's operators are Python's, `&&` and `||` give one of their operands as `and` and `or` do."""

    def word(match: re.Match[str]) -> str:
        token = match.group()
        fixed = {"&&": " and ", "||": " or ", "!": " not ", "true": "True", "false": "False"}
        if token in fixed:
            return fixed[token]
        if token[0] == "'":
            return repr(token[1:-1].replace("''", "'"))
        return f"look({token!r})" if re.match(r"[A-Za-z_]", token) and token not in functions else token

    if _TOKEN.sub("", expression):
        raise ValueError(f"not understood: {expression}")
    return eval(_TOKEN.sub(word, expression), {"__builtins__": {}}, {"look": lambda name: _look(name, contexts), **functions})


def _look(name: str, contexts: Mapping[str, Any]) -> Any:
    """What a dotted name stands for; a property that is not there is an empty text, as on GitHub."""
    found: Any = contexts
    for part in name.split("."):
        found = found.get(part, "") if isinstance(found, Mapping) else ""
    return found


def as_text(value: Any) -> str:
    """A value as it stands in a text, an environment variable or an output."""
    return value if isinstance(value, str) else json.dumps(value)


@dataclass
class JobRun:
    """One job on a machine of its own: its folder, what it put out, and how it ended. `log` is what its steps printed."""

    folder: Path
    outputs: dict[str, str] = field(default_factory=dict)
    result: str = "success"
    log: str = ""

    @property
    def summary(self) -> str:
        """What it wrote into the job summary."""
        path = self.folder / "summary"
        return path.read_text(encoding="utf-8") if path.is_file() else ""


@dataclass(frozen=True)
class Runner:
    """Runs jobs of one workflow: `project` is what checkout gives, `artifacts` what jobs share, `install` whether pip really installs."""

    project: Path
    artifacts: Path
    variables: Mapping[str, str]
    install: bool = False

    def run(self, job: Mapping[str, Any], folder: Path, contexts: Mapping[str, Any]) -> JobRun:
        """Run the steps of one job as its machine would: after a failure only those whose `if` asks for it."""
        done = JobRun(folder)
        workspace = folder / "workspace"
        workspace.mkdir(parents=True, exist_ok=True)
        steps: dict[str, Any] = {}
        # A machine of one's own: it keeps its environments, and uv's cache.
        runner = {"temp": str(folder), "environment": "self-hosted"}
        known: dict[str, Any] = {**contexts, "steps": steps, "runner": runner, "env": {}}
        known["env"] = {name: as_text(evaluate(value, known)) for name, value in (job.get("env") or {}).items()}
        for number, step in enumerate(job["steps"]):
            if not self._due(step, done, known):
                steps[step.get("id", str(number))] = {"outcome": "skipped", "outputs": {}}
                continue
            outputs, failed = self._step(step, workspace, known, done)
            steps[step.get("id", str(number))] = {"outcome": "failure" if failed else "success", "outputs": outputs}
            if failed and step.get("continue-on-error") != "true":
                done.result = "failure"
        done.outputs = {name: as_text(evaluate(value, known)) for name, value in (job.get("outputs") or {}).items()}
        return done

    def _due(self, step: Mapping[str, Any], done: JobRun, known: Mapping[str, Any]) -> bool:
        condition = step.get("if", "success()")
        status: dict[str, Callable[..., Any]] = {
            "success": lambda: done.result == "success",
            "always": lambda: True,
            "cancelled": lambda: False,
        }
        text = condition if "${{" in condition else f"${{{{ {condition} }}}}"
        asked = any(f"{name}()" in condition for name in status)
        return bool(evaluate(text, known, status)) and (asked or done.result == "success")

    def _step(self, step: Mapping[str, Any], workspace: Path, known: Mapping[str, Any], done: JobRun) -> tuple[dict[str, str], bool]:
        if "run" in step:
            return self._shell(step, workspace, known, done)
        given = {name: as_text(evaluate(value, known)) for name, value in (step.get("with") or {}).items()}
        action = step["uses"].partition("@")[0]
        if action == "actions/checkout":
            shutil.copytree(self.project, workspace, dirs_exist_ok=True, ignore=shutil.ignore_patterns(*UNTRACKED))
        elif action == "actions/upload-artifact":
            return {}, not self._upload(given, workspace, done)
        elif action == "actions/download-artifact":
            self._download(given, workspace)
        elif action != "actions/setup-python":
            raise NotImplementedError(f"{action} is not done here")
        return {}, False

    def _shell(self, step: Mapping[str, Any], workspace: Path, known: Mapping[str, Any], done: JobRun) -> tuple[dict[str, str], bool]:
        """The step under GitHub's default shell, `bash -e`; `pip install` of the tool only where that was asked for."""
        if step["run"].startswith("python -m pip install") and not self.install:
            return {}, False
        out = workspace.parent / "output"
        out.write_text("", encoding="utf-8")
        own = {name: as_text(evaluate(value, known)) for name, value in (step.get("env") or {}).items()}
        files = {"GITHUB_OUTPUT": str(out), "GITHUB_STEP_SUMMARY": str(workspace.parent / "summary"), "RUNNER_TEMP": str(workspace.parent)}
        environment = {**os.environ, **self.variables, **known["env"], **own, **files}
        command = ["bash", "-e", "-c", step["run"]]
        ran = subprocess.run(
            command, cwd=workspace, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
        )
        done.log += f"$ {step['run']}\n{ran.stdout}"
        pairs = (line.partition("=") for line in out.read_text(encoding="utf-8").splitlines())
        return {name: value for name, _, value in pairs}, ran.returncode != 0

    def _upload(self, given: Mapping[str, str], workspace: Path, done: JobRun) -> bool:
        """Puts the paths into an artifact whose root is what they have in common; files whose name begins with a dot stay behind."""
        paths = [workspace / line.strip() for line in given["path"].splitlines() if line.strip()]
        base = Path(os.path.commonpath(paths)) if len(paths) > 1 else paths[0] if paths[0].is_dir() else paths[0].parent
        files = [file for path in paths for file in ([path] if path.is_file() else sorted(path.rglob("*"))) if file.is_file()]
        shown = [file for file in files if not any(part.startswith(".") for part in file.relative_to(base).parts)]
        target = self.artifacts / given["name"]
        shutil.rmtree(target, ignore_errors=True)
        for file in shown:
            place = target / file.relative_to(base)
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(file, place)
        done.log += f"artifact {given['name']}: {len(shown)} files\n"
        return bool(shown) or given.get("if-no-files-found") != "error"

    def _download(self, given: Mapping[str, str], workspace: Path) -> None:
        """Each artifact of the pattern into a folder of its own name."""
        for artifact in sorted(self.artifacts.iterdir()):
            if fnmatch(artifact.name, given["pattern"]):
                shutil.copytree(artifact, workspace / given["path"] / artifact.name)
