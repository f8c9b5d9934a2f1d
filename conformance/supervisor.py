"""One cell: environment, collection, cases, controls. In the end each planned case has exactly one record per attempt."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Sequence

from conformance import keys, selectors
from conformance.caselauncher import CaseLauncher
from conformance.cellfacts import CellFacts
from conformance.collector import Collector
from conformance.config import Config
from conformance.controls import Controls
from conformance.environments import Environments
from conformance.environmentspecs import Environment
from conformance.errors import InstallError
from conformance.harness import Harness
from conformance.incell.probe import ABSENT
from conformance.incell.requirementsets import BASE
from conformance.incell.verdicts import Stage, Verdict
from conformance.journals import Journals
from conformance.ledger import Entry, Ledger
from conformance.options import Options
from conformance.plan import Plan, PlannedCell
from conformance.progress import Progress


class CellRun:
    """The run of one cell. After `run` its folder under `results/` (or `twins/`) is written."""

    def __init__(
        self, config: Config, plan: Plan, planned: PlannedCell, options: Options, environments: Environments, progress: Progress
    ) -> None:
        self.config = config
        self.plan = plan
        self.planned = planned
        self.options = options
        self.environments = environments
        self.progress = progress
        kind, name = "twins" if options.twins else "results", str(planned.cell)
        work = config.reports / "work" / kind / name
        self.harness = Harness(config, planned, work, plan.depth, options.twins, plan.selection.subjects, self._tick)
        self.ledger = Ledger(name, config.reports / kind / name, work, self.harness.case_roots)
        #: How many cases, or files whose cases are not known, the selection left here.
        self.selected = 0
        self.files = tuple(file for file in plan.files if file.family not in planned.without)
        self._collect_key: str | None = None
        self._collector = Collector(self.harness)
        self._facts = CellFacts(self.harness, self._collector)
        self._launcher = CaseLauncher(self.harness, options.workers)

    def run(self) -> None:
        """Run the cell. A failed install or collection becomes records; an interrupt gets out once what is known is written."""
        self.progress.begin(str(self.planned.cell))
        self.ledger.load(fresh=self.options.fresh)
        for problem in self.ledger.problems:
            self.progress.say(f"{problem}; what it held is run again")
        try:
            self._measure()
        except BaseException:
            self.ledger.carry_over(None)
            self._write(interrupted=True)
            raise
        self._write(interrupted=False)
        self.progress.end(self.ledger.verdicts(), self._note())

    def collect(self) -> list[str]:
        """The ids of the cell's cases, and of files whose cases are not known; nothing is run or written."""
        try:
            base = self._provide(BASE, ())
            self._collect(base)
        except InstallError as error:
            self._not_installed(str(error))
        finally:
            shutil.rmtree(self.ledger.work, ignore_errors=True)
        return [*(record["case"] for record in self.ledger.file_records), *(entry["case"] for entry in self.ledger.entries)]

    def _measure(self) -> None:
        try:
            base = self._provide(BASE, ())
            self.ledger.facts = self._facts.read(base, self.files, self.ledger.previous_facts)
        except InstallError as error:
            self._not_installed(str(error))
            return
        self.ledger.installed()
        self._collect(base)
        self._run_sets()
        self._run_controls(base)
        self.ledger.carry_over([] if self.plan.selection.cases else self.files)

    def _write(self, *, interrupted: bool) -> None:
        used = self.harness.provided
        if used:
            self.ledger.facts["environments"] = {
                name: {"requirements": self.harness.scrub().tree(list(environment.request.requirements)), "freeze": list(environment.lock)}
                for name, environment in sorted(used.items())
            }
        complete = not interrupted and not self.plan.selection.cases
        known = {"key": self._collect_key, "complete": complete, "attempts": self.options.repeat, "depth": self.plan.depth}
        self.ledger.write({**known, "left_out": self._collector.left_out})

    def _note(self) -> str:
        off = self.ledger.facts.get("controls", {}).get("off")
        notes = [f"{self.ledger.kept} kept"] if self.ledger.kept else []
        return ", ".join([*notes, *([f"controls off: {', '.join(off)}"] if off else [])])

    def _tick(self, journals: Journals) -> None:
        verdicts = self.ledger.verdicts() + Counter(record["verdict"] for record in journals.records.values())
        self.progress.running(sum(verdicts.values()), len(self.ledger.entries) * self.options.repeat, verdicts)

    # -- environment

    def _provide(self, name: str, requirements: Sequence[str]) -> Environment:
        held = self.harness.provided[BASE].torch_build if name != BASE else ""
        environment = self.environments.provide(self.environments.request(self.planned, name, requirements, held))
        self.harness.provided[name] = environment
        return environment

    def _not_installed(self, reason: str) -> None:
        """No environment: one record per case file says so."""
        self.ledger.facts = self._facts.table("install-failed", reason, {})
        self.ledger.file_records = [self._collector.file_record(file, Verdict.ERROR, Stage.INSTALL, reason) for file in self.files]
        self.progress.say(f"{self.planned.cell}: {reason}")

    # -- collection

    def _collect(self, base: Environment) -> None:
        """Which cases exist here, unless the same files were collected in the same environment before."""
        code = [(file.case, keys.case_code(file.path)) for file in self.files]
        code += [(each.alias, f"{each.reference} {each.requirements}") for each in self.plan.selection.subjects]
        self._collect_key = keys.digest(self._facts.key, code, self.plan.depth, self.config.limits.timeout_s, self.options.twins)
        before = self.ledger.previous_collected
        if before.get("key") == self._collect_key and before.get("complete") and before["cases"]:
            self.ledger.entries = self.ledger.absolute(before["cases"])
            self.ledger.file_records = list(self.ledger.previous_file_records)
            self._collector.left_out = list(before.get("left_out", []))
        else:
            self.ledger.entries = self._collector.collect(base, self.files, self.ledger.file_records, self._facts.collected)
        self.ledger.collected(self.files)
        patterns = self.plan.selection.cases
        if patterns:
            wanted = selectors.chosen(patterns, (_without_twin(entry["case"]) for entry in self.ledger.entries))
            self.ledger.entries = [entry for entry in self.ledger.entries if _without_twin(entry["case"]) in wanted]
        self.selected = len(self.ledger.entries) + len(self.ledger.file_records)

    # -- cases

    def _run_sets(self) -> None:
        """Run every requirement set's cases in its own environment, the base first."""
        sets: dict[str, list[Entry]] = {}
        for entry in self.ledger.entries:
            entry["seed"] = self.config.seed
            if not self._needs_no_run(entry):
                sets.setdefault(entry["environment"], []).append(entry)
        for name, entries in sorted(sets.items(), key=lambda pair: (pair[0] != BASE, pair[0])):
            self._run_set(name, entries)

    def _needs_no_run(self, entry: Entry) -> bool:
        """Verdicts that need no run: a refused case, a device that does not work, one that holds no numbers."""
        status = self.ledger.facts["status"]
        if entry["refused"]:
            self._settle(entry, Verdict.ERROR, Stage.COLLECT, entry["refused"])
        elif status != "ok":
            absent = self.ledger.facts.get("device", {}).get("outcome") == ABSENT
            loud = self.planned.named or not absent
            self._settle(entry, Verdict.ERROR if loud else Verdict.UNSUPPORTED, Stage.IMPORT, self.ledger.facts["reason"])
        elif entry["unsupported"]:
            self._settle(entry, Verdict.UNSUPPORTED, Stage.COLLECT, entry["unsupported"])
        return status != "ok" or bool(entry["refused"] or entry["unsupported"])

    def _settle(self, entry: Entry, verdict: Verdict, stage: Stage, reason: str) -> None:
        fields = {"verdict": verdict.value, "stage": stage.value, "reason": self.harness.scrub().text(reason), "key": None}
        for attempt in range(1, self.options.repeat + 1):
            self.ledger.settle(entry, attempt, fields)

    def _run_set(self, name: str, entries: list[Entry]) -> None:
        lack = self.environments.lack(self.planned, entries[0]["requirements"])
        if lack:
            for entry in entries:
                self._settle(entry, Verdict.UNSUPPORTED, Stage.INSTALL, lack)
            return
        try:
            environment = self.harness.provided.get(name) or self._provide(name, entries[0]["requirements"])
        except InstallError as error:
            for entry in entries:
                self._settle(entry, Verdict.ERROR, Stage.INSTALL, str(error))
            return
        config, variables = self.config, self.planned.target.variables
        models = {each.alias: (each.reference, each.code()) for each in self.plan.selection.subjects}
        for entry in entries:
            surroundings = (sorted(environment.lock), config.seed, config.threads, sorted(variables), models.get(entry["subject"]))
            entry["key"] = keys.record_key(entry, surroundings)
        for attempt in range(1, self.options.repeat + 1):
            for entry in entries:
                self.ledger.keep(entry, attempt)
            self._launcher.run(environment, entries, attempt, self.ledger)

    # -- controls

    def _run_controls(self, base: Environment) -> None:
        """Run family `control`, unless the same harness in the same environment was found in order before."""
        known = self.ledger.facts.get("controls", {})
        if self.options.twins or self.ledger.facts["status"] != "ok" or (known.get("ok") and self.ledger.controls):
            return
        Controls(self._collector, self._launcher).run(base, self.ledger)


def _without_twin(case: str) -> str:
    """The case that a twin belongs to, or the case itself."""
    return case.partition("~")[0]
