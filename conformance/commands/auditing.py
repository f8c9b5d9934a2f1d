"""`audit` and `mps`: what a device can do by what releases register, asked of an operator or of a model, and the upkeep of that table."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from packaging.version import InvalidVersion, Version

from conformance import subjectspecs
from conformance.artifacts import write_json
from conformance.commands.arguments import Adder, add_requirements, config_of
from conformance.config import Config
from conformance.errors import ConfigError, InstallError, NoEnvironmentError
from conformance.incell.upstreamwords import DTYPES
from conformance.selectors import select_releases

if TYPE_CHECKING:
    from conformance.mps.testlists import Lists

#: The first release that is looked up where none is asked for: MPS grew up with it.
_SINCE = "2.1"
_DEVICES = ("mps", "cuda", "xla", "meta")


def add(command: Adder) -> None:
    """Put these commands on the command line."""
    _add_audit(
        command(
            "audit",
            audit,
            "will an operator, or a model's operators, run on MPS: by what each release registers, without a Mac",
            "something stops there, or is known to be wrong",
        )
    )
    parser = command("mps", upkeep, "upkeep of the table of MPS support, and its score", "score: a release is below the aims")
    parser.add_argument(
        "what",
        choices=("table", "lists", "score", "csv"),
        help="table: read a release from its wheel for macOS; lists: execute a release's own test lists, and record what its composites "
        "call; score: predictions against those lists, and against what was observed; csv: everything known of every operator",
    )
    parser.add_argument("--release", action="append", default=[], metavar="VERSION", help="a torch release; may be given again")
    parser.add_argument(
        "--python", action="append", default=[], type=Path, metavar="PATH", help="with lists and score: an interpreter that has the release"
    )


def _add_audit(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("subject", nargs="?", default="", help="package.module:build, file.py:build, transformers:LlamaModel, gpt or opt")
    parser.add_argument("--op", default="", metavar="NAME", help="in place of a subject: linalg_qr, torch.linalg.qr, aten::linalg_qr.out")
    parser.add_argument(
        "--dtype", default="float32", choices=(*DTYPES, "float64", "complex128"), help="with --op: the dtype that it is asked for"
    )
    parser.add_argument(
        "--device", default="mps", choices=_DEVICES, help="mps from the table; the others from the recording build's dispatcher"
    )
    parser.add_argument(
        "--torch", default="", metavar="SPEC", help=f"the releases to look up (default: those since {_SINCE}; with --op all)"
    )
    parser.add_argument("--macos", default="26", metavar="VERSION", help="the macOS to answer for (default: 26)")
    group = parser.add_argument_group("recording")
    group.add_argument("--here", action="store_true", help="record in the environment that runs this command, which must have torch")
    group.add_argument("--each", action="store_true", help="record each release in an environment of its own; makes environments")
    group.add_argument(
        "--on", default="cpu", choices=("cpu", "meta"), help="what it is recorded on; meta holds no numbers and takes no memory"
    )
    group.add_argument("--optimizer", default="AdamW", metavar="NAME", help="of torch.optim, where the subject's module has no `optimizer`")
    add_requirements(group)
    parser.add_argument("--all", action="store_true", help="list every operator, not only those that are not plainly there")


def audit(arguments: argparse.Namespace) -> int:
    """Print what runs and what does not; 0 where everything does as far as is known, 1 where something does not."""
    if bool(arguments.op) == bool(arguments.subject):
        raise ConfigError("audit takes a subject (module:build) or an operator (--op NAME), one of them")
    return _audit_operator(arguments) if arguments.op else _audit_subject(arguments, config_of(arguments))


def _audit_operator(arguments: argparse.Namespace) -> int:
    from conformance.mps import operators
    from conformance.mps.table import stored

    table = stored()
    told, runs = operators.told(table, arguments.op, _wanted(arguments.torch or ">=1.13"), arguments.dtype, _macos(arguments.macos))
    print("\n".join(told))
    return 0 if runs else 1


def _audit_subject(arguments: argparse.Namespace, config: Config) -> int:
    from conformance.mps import audits, recorders
    from conformance.mps.table import stored
    from conformance.report import audit as page

    model = subjectspecs.spec(arguments.subject, config, requirements=arguments.requirements)
    if not arguments.here:
        subjectspecs.check_found(model)
    spec = arguments.torch or f">={_SINCE}"
    releases = recorders.xla_releases(config, spec) if arguments.device == "xla" else _wanted(spec)
    recordings = _recordings(arguments, config, model, releases)
    if arguments.device != "mps":
        releases = list(recordings)  # a dispatcher answers for its own build alone
    table = stored()
    for recording in recordings.values():
        table = recorders.with_own(table, recording)
    made = audits.of(recordings, table, releases, subject=model.alias, device=arguments.device, macos=_macos(arguments.macos))
    print("\n".join(page.lines(made, config.project, everything=arguments.all)))
    folder = config.reports / "audit"
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / f"{model.alias}-{arguments.device}.json", page.as_json(made))
    return made.exit_code


def _recordings(
    arguments: argparse.Namespace, config: Config, model: subjectspecs.SubjectSpec, releases: Sequence[str]
) -> dict[str, dict[str, Any]]:
    """Release -> recording: one for all, or with --each one for each release that an environment could be made for."""
    from conformance.mps import recorders
    from conformance.mps.table import stored

    how = recorders.How(stored().entered, arguments.on, arguments.optimizer, arguments.device)
    if arguments.here:
        recording = recorders.here(model, how)
        return {recorders.release_of(recording): recording}
    environments = recorders.environments_of(config)
    if not arguments.each:
        return {releases[-1]: recorders.provided(environments, config, releases[-1], model, how)}
    found: dict[str, dict[str, Any]] = {}
    for release in releases:
        try:
            found[release] = recorders.provided(environments, config, release, model, how)
        except (InstallError, ConfigError) as error:
            print(f"conformance: torch {release}: {error}", file=sys.stderr)
    if not found:
        raise NoEnvironmentError("the subject could be recorded on no release")
    return found


def _wanted(text: str) -> list[str]:
    from conformance.mps.table import stored

    return select_releases(text, stored().releases)


def _macos(text: str) -> str:
    try:
        return str(Version(text))
    except InvalidVersion as error:
        raise ConfigError(f"--macos {text!r} is no version, as 15 or 14.5") from error


def upkeep(arguments: argparse.Namespace) -> int:
    """Read releases into what ships, score it, or write it out."""
    return {"table": _table, "lists": _lists, "score": _score, "csv": _csv}[arguments.what](arguments, config_of(arguments))


def _table(arguments: argparse.Namespace, config: Config) -> int:
    from conformance.mps import registrations, table

    if not arguments.release:
        raise ConfigError("mps table wants --release VERSION: the release to read into the table")
    newest = config.releases[max(config.releases, key=Version)]
    for version in arguments.release:
        found = registrations.read(version, config.releases.get(version, newest).python)
        table.write(table.stored().with_release(version, found.rows))
        print("\n".join(registrations.lines(found)))
    return 0


def _lists(arguments: argparse.Namespace, config: Config) -> int:
    from conformance.mps import testlists
    from conformance.mps.table import stored

    for lists in _executed(arguments, config, ">=1"):
        testlists.write(testlists.digest().with_lists(lists, stored()))
        listed = f"the lists of {len(lists.words)} OpInfos" if lists.words else f"no lists (they come with torch {testlists.SINCE})"
        print(f"torch {lists.release}: {listed}, {len(lists.recordings)} OpInfos recorded", flush=True)
    return 0


def _score(arguments: argparse.Namespace, config: Config) -> int:
    """1 where a release's forward is below the targets."""
    from conformance.mps import scores
    from conformance.mps.table import stored

    made = [
        scores.score(lists.release, lists.truth(phase=phase), lists.recordings, stored(), phase=phase)
        for lists in _to_score(arguments, config)
        for phase in ("forward", "backward")
    ]
    print("\n".join(scores.lines(made)))
    return int(any(each.phase == "forward" and not each.is_good for each in made))


def _to_score(arguments: argparse.Namespace, config: Config) -> Iterator[Lists]:
    """Raises ConfigError where a release has nothing to score against."""
    from conformance.mps.testlists import SINCE

    for lists in _executed(arguments, config, f">={SINCE}"):
        if not lists.words:
            raise ConfigError(f"torch {lists.release} has no lists to score against: they come with torch {SINCE} and later")
        yield lists


def _executed(arguments: argparse.Namespace, config: Config, default: str) -> Iterator[Lists]:
    """The lists of the releases asked for, or those that `default` takes: of interpreters at hand, else in environments of the tool."""
    from conformance.mps import recorders, testlists
    from conformance.mps.table import stored

    for python in arguments.python:
        yield testlists.executed(python, stored())
    releases = arguments.release if arguments.release or arguments.python else _wanted(default)
    environments = recorders.environments_of(config)
    for release in releases:
        yield testlists.executed(recorders.environment(environments, config, release, "opinfo", testlists.REQUIREMENTS), stored())


def _csv(arguments: argparse.Namespace, config: Config) -> int:
    from conformance import results
    from conformance.mps import oprows

    path = config.reports / "mps-ops.csv"
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = oprows.rows(oprows.observed(results.read(config.reports)))
    path.write_text(oprows.as_csv(rows), encoding="utf-8")
    print(f"{path}: {len(rows)} operators")
    return 0
