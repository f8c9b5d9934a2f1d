"""How processes are started inside a cell: command line, variables, settings, and what is read from them when they die."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from conformance import keys
from conformance.autopsy import post_mortem
from conformance.config import Config, builtin_cases
from conformance.environmentspecs import Environment
from conformance.incell.requirementsets import BASE
from conformance.incell.scrub import Scrubber, private_names
from conformance.incell.settings import VARIABLE, Settings
from conformance.journals import Journals
from conformance.launch import Bounds, Ending, launch
from conformance.ledger import placeholders
from conformance.plan import PlannedCell
from conformance.subjectspecs import SubjectSpec

_PACKAGE = Path(__file__).parent.resolve()
#: Variables of the user that would steer pytest or Python inside the cell.
_STEERING = ("PYTEST_ADDOPTS", "PYTEST_PLUGINS", "PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "PYTHONSTARTUP", "PYTHONINSPECT")
_CONSOLE_CHARACTERS = 2000


@dataclass
class Harness:
    """Starts and watches the processes of one cell. `work` takes what they write, a folder a launch."""

    config: Config
    planned: PlannedCell
    work: Path
    depth: str
    twins: bool = False
    subjects: tuple[SubjectSpec, ...] = ()
    tick: Callable[[Journals], None] = lambda journals: None
    #: Environments that were used, by requirement set.
    provided: dict[str, Environment] = field(default_factory=dict)

    @property
    def case_roots(self) -> list[Path]:
        """The cases that ship with the tool, then the user's own."""
        return [builtin_cases(), *self.config.cases]

    @property
    def workers(self) -> int:
        """One process per core, one where an accelerator must not be shared."""
        return 1 if self.planned.cell.device in ("cuda", "mps", "xpu") else min(os.cpu_count() or 1, 8)

    def new_folder(self, what: str) -> Path:
        """An empty folder for the next launch; names sort in order of time."""
        self.work.mkdir(parents=True, exist_ok=True)
        number = 1 + max((int(path.name[:4]) for path in self.work.iterdir() if path.name[:4].isdigit()), default=-1)
        folder = self.work / f"{number:04}-{what}"
        folder.mkdir()
        return folder

    def pytest(self, environment: Environment) -> list[str]:
        """pytest with our plugin and nothing of the user's: no ini file, no plugin that happens to be installed."""
        options = ["-p", "conformance.incell.plugin", "-p", "no:terminal", "-p", "no:faulthandler", "-p", "no:cacheprovider"]
        options += ["--capture=no", "--import-mode=importlib", "-c", os.devnull, "--rootdir", str(self.case_roots[0])]
        return [str(environment.python), "-m", "pytest", *options]

    def launch(
        self,
        command: Sequence[str],
        folder: Path,
        journals: Journals,
        *,
        environment: str = BASE,
        wanted: Path | None = None,
        attempt: int = 1,
        case_memory_mb: Mapping[str, int] | None = None,
        fingerprint: Path | None = None,
    ) -> Ending:
        """Run a command of the cell to its end, under the configured limits. It leaves its fingerprint where that is wanted."""
        limits = self.config.limits
        bounds = Bounds(
            memory_mb=limits.memory_mb,
            output_mb=limits.output_mb,
            silence_s=limits.timeout_s + 60,
            case_memory_mb=case_memory_mb or {},
        )
        with _short_folder() as temporary:
            settings = self._settings(environment, str(wanted or ""), attempt, folder, temporary)
            replace(settings, fingerprint=str(fingerprint or "")).save(folder / "settings.json")
            variables = self._variables(folder, temporary)
            return launch(command, folder=folder, variables=variables, bounds=bounds, journals=journals, tick=self.tick)

    def deaths(self, journals: Journals, ending: Ending) -> dict[str, dict[str, Any]]:
        """Case (or, while a file was imported, file) id -> what the death of its process says of it.

        A case that had just begun when its process was ended on another case's account is not among them: it is run again.
        """
        exits = {**journals.exits, ending.pid: ending.code}
        roots = (*(root.resolve() for root in self.case_roots), _PACKAGE / "subjects")
        scrub, now = self.scrub(), time.time()
        found = {}
        for process in journals.culprits():
            end = ending.ended.get(process.pid)
            if end is None or end.case in ("", process.open_case):
                fields = post_mortem(process, exits.get(process.pid), end, now=now, roots=roots, scrub=scrub)
                found[process.open_file or process.open_case] = fields
        return found

    def console(self, folder: Path) -> str:
        """The end of what a launch wrote to its console."""
        try:
            text = (folder / "console.txt").read_text(encoding="utf-8", errors="replace")
        except OSError:
            return ""
        return self.scrub().text(text).strip()[-_CONSOLE_CHARACTERS:]

    def scrub(self) -> Scrubber:
        """Takes this machine's paths and names out of what is written outside the cell."""
        roots = self._roots()
        for environment in self.provided.values():
            roots["<env>"] = str(environment.path)
            roots["<python>"] = str(environment.python.resolve().parent.parent)
        return Scrubber({**roots, "<home>": str(Path.home())}, private_names())

    def _roots(self) -> dict[str, str]:
        return {
            **{placeholder: str(base) for placeholder, base in placeholders(self.case_roots).items()},
            "<conformance>": str(self._payload() / "conformance"),
            "<project>": str(self.config.project),
            "<work>": str(self.work),
            "<environments>": str(self.config.environments),
        }

    def _settings(self, environment: str, wanted: str, attempt: int, folder: Path, temporary: Path) -> Settings:
        return Settings(
            cell=str(self.planned.cell),
            device=self.planned.cell.device,
            journal=str(folder),
            artifacts=str(self.config.reports / ("twins" if self.twins else "results") / str(self.planned.cell) / "artifacts"),
            environment=environment,
            leaves_bytecode=self.provided[environment].own,
            wanted=wanted,
            attempt=attempt,
            seed=self.config.seed,
            timeout_s=self.config.limits.timeout_s,
            depth=self.depth,
            twins=self.twins,
            subjects={each.alias: {"reference": each.reference, "requirements": list(each.requirements)} for each in self.subjects},
            subject_roots=[str(root) for root in dict.fromkeys(root for each in self.subjects for root in each.roots)],
            case_roots=[str(root) for root in self.case_roots],
            user_roots=[str(root) for root in self.config.cases],
            roots={**self._roots(), "<tmp>": str(temporary)},
            secrets=private_names(),
        )

    def _variables(self, folder: Path, temporary: Path) -> dict[str, str]:
        """The user's variables without what would steer pytest or Python, and with what makes runs equal."""
        threads = str(self.config.threads)
        return {
            **{name: value for name, value in os.environ.items() if name not in _STEERING},
            VARIABLE: str(folder / "settings.json"),
            "PYTHONPATH": str(self._payload()),
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONNOUSERSITE": "1",
            "PYTHONHASHSEED": "0",
            "PYTHONUNBUFFERED": "1",
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
            "OMP_NUM_THREADS": threads,
            "MKL_NUM_THREADS": threads,
            "TMPDIR": str(temporary),
            "HF_HUB_OFFLINE": "1",
            **dict(self.planned.target.variables),
        }

    def _payload(self) -> Path:
        """A folder that holds our package and nothing else: on the cell's import path, so that nothing of ours is installed there."""
        payload = self.config.environments.parent / "payload" / keys.digest(str(_PACKAGE))  # another checkout may share the environments
        link = payload / "conformance"
        if not link.is_symlink() or link.resolve() != _PACKAGE:
            payload.mkdir(parents=True, exist_ok=True)
            link.unlink(missing_ok=True)
            link.symlink_to(_PACKAGE, target_is_directory=True)
        return payload


@contextlib.contextmanager
def _short_folder() -> Iterator[Path]:
    """A folder for temporary files whose path is short: in a long one multiprocessing cannot open its sockets, and waits for ever."""
    folder = Path(tempfile.mkdtemp(prefix="cf-")).resolve()
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
