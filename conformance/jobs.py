"""Jobs: the cells of a plan dealt out to the machines that a scheduler starts, each with the label of the runner that it needs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from conformance import selectors
from conformance.config import Config, Target
from conformance.errors import ConfigError
from conformance.plan import PlannedCell

#: GitHub makes no more jobs than this of one matrix (docs.github.com, "Usage limits" of workflows).
MOST = 256


@dataclass(frozen=True, kw_only=True)
class Job:
    """What one machine runs, one cell after the other: cells of one runner, releases side by side since they share environments."""

    cells: tuple[PlannedCell, ...]

    @property
    def name(self) -> str:
        """The id of its first cell, and how many follow: also the name of its artifact."""
        first = str(self.cells[0].cell)
        return first if len(self.cells) == 1 else f"{first}+{len(self.cells) - 1}"

    @property
    def ids(self) -> str:
        """Its cells as `--only` takes them, separated by spaces."""
        return " ".join(str(planned.cell) for planned in self.cells)

    def as_json(self) -> dict[str, Any]:
        """Its row of `plan --json --jobs`. `runs_on` is a label, or a list of those that a runner must have together."""
        labels = [label.strip() for label in self.cells[0].target.runs_on.split(",")]
        return {
            "job": self.name,
            "cells": self.ids,
            "runs_on": labels[0] if len(labels) == 1 else labels,
        }


def jobs(cells: Sequence[PlannedCell], most: int) -> list[Job]:
    """At most `most` jobs that hold every cell once, of sizes as equal as the kinds of runner allow. One cell each where there is room.

    Raises ConfigError where there are more kinds of runner than jobs.
    """
    kinds: dict[tuple[str, str], list[PlannedCell]] = {}
    for planned in sorted(cells, key=lambda planned: (planned.cell.platform, planned.cell.version, planned.cell.sort_key)):
        kinds.setdefault((planned.cell.platform, planned.target.runs_on), []).append(planned)
    if len(kinds) > most:
        told = ", ".join(f"{platform} ({label or 'no label'})" for platform, label in kinds)
        raise ConfigError(f"--jobs {most}: the plan needs {len(kinds)} kinds of runner: {told}")
    parts = dict.fromkeys(kinds, 1)
    while sum(parts.values()) < min(most, len(cells)):
        fullest = max(kinds, key=lambda kind: len(kinds[kind]) / parts[kind])
        parts[fullest] += 1
    return [Job(cells=part) for kind, members in kinds.items() for part in _parts(members, parts[kind])]


def _parts(members: Sequence[PlannedCell], count: int) -> list[tuple[PlannedCell, ...]]:
    """`members` in `count` stretches whose sizes differ by one at most."""
    bounds = [len(members) * number // count for number in range(count + 1)]
    return [tuple(members[begin:end]) for begin, end in pairwise(bounds)]


def labelled(config: Config, text: str) -> Config:
    """The configuration with runner labels of `text` in place of those of its targets: words as `macos_arm64=macos-26`,
    `linux_x86_64/cuda=self-hosted,linux,gpu` or `macos_arm64/mps/macos26=macos-26` (platform, device, tag).

    A platform alone relabels its untagged targets that have a label. No label means no job. Raises ConfigError for what names no target.
    """
    targets = list(config.targets)
    for word in text.split():
        place, equals, label = word.partition("=")
        meant = [number for number, target in enumerate(targets) if _means(place, target)]
        if not equals or not meant:
            known = [name for target in config.targets for name in (target.platform, f"{target.platform}/{target.device}")]
            hint = selectors.close_matches(place, list(dict.fromkeys(known)))
            raise ConfigError(f"--runs-on {word!r}: write PLATFORM[/DEVICE[/TAG]]=LABEL of a configured target{hint}")
        for number in meant:
            targets[number] = replace(targets[number], runs_on=label)
    return replace(config, targets=tuple(targets))


def _means(place: str, target: Target) -> bool:
    platform, _, rest = place.partition("/")
    device, _, tag = rest.partition("/")
    if platform != target.platform or tag != target.tag:
        return False
    return device == target.device or (not device and bool(target.runs_on))
