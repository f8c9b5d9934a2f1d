"""How cells are run, beside the configuration."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Options:
    """The options of one run, the same for each of its cells."""

    #: Worker processes; None: as configured or by the cores, 0: one process without pytest-xdist.
    workers: int | None = None
    repeat: int = 1
    twins: bool = False
    fresh: bool = False
    drop_environments: bool = False
    #: Run in the environment that runs this command.
    here: bool = False
