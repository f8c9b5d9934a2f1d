# /// script
# dependencies = ["nox[uv]>=2025.5"]
# ///
"""The project's sessions: `nox -s matrix` is the main one, `nox -l` lists all."""

import sys
from pathlib import Path

import nox

sys.path.insert(0, str(Path(__file__).parent))  # the plan that `nox -l` lists is read from the checkout, which may not be installed

from conformance.nox import conformance, matrix

nox.needs_version = ">=2024.4.15"
nox.options.default_venv_backend = "uv|virtualenv"
nox.options.reuse_existing_virtualenvs = True
nox.options.sessions = ["matrix"]

matrix(Path(__file__).parent, install=("-e", "."))


@nox.session(default=False)
def tests(session: nox.Session) -> None:
    """All tests; `nox -s tests -- -m "not slow"` for those that take seconds and need no torch."""
    session.install("-e", ".", *nox.project.dependency_groups(nox.project.load_toml("pyproject.toml"), "tests"))
    session.run("pytest", *session.posargs)


@nox.session(default=False)
def lint(session: nox.Session) -> None:
    """ruff, mypy, and of workflows and schedulers zizmor and their schemas."""
    session.install("-e", ".", *nox.project.dependency_groups(nox.project.load_toml("pyproject.toml"), "lint"))
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")
    session.run("mypy")
    session.run("zizmor", "--offline", "--persona", "auditor", ".")
    workflows = [str(path) for path in Path(".github/workflows").glob("*.yml")]
    session.run("check-jsonschema", "--builtin-schema", "vendor.github-workflows", *workflows)
    session.run("check-jsonschema", "--builtin-schema", "vendor.github-actions", "action.yml")
    session.run("kubernetes-validate", "--strict", "docs/schedulers/kubernetes.yaml")


@nox.session(default=False)
def bench(session: nox.Session) -> None:
    """The harness's overhead beside bare pytest, start-up times, a run with nothing to do; many records beside pandas and pytest-html."""
    session.install("-e", ".", "pytest", "pytest-xdist", "pytest-html")
    session.run("python", "benchmarks/overhead.py", *session.posargs)
    session.run("python", "benchmarks/scale.py", "--peers")


@nox.session(default=False)
def clean(session: nox.Session) -> None:
    """Remove the measured environments and prune uv's cache."""
    session.install("-e", ".")
    conformance(session, "clean")
