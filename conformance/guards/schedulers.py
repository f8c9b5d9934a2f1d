"""Learning-rate schedulers: their base class, what is one, and the rates that hold now."""

from __future__ import annotations

from typing import Any

from torch.optim import lr_scheduler

#: The class that torch's own schedulers derive from: LRScheduler from 2.0, `_LRScheduler` before. Since 2.0 the old name is a
#: class that none of them derives from.
SchedulerBase: Any = getattr(lr_scheduler, "LRScheduler", None) or lr_scheduler._LRScheduler


def is_scheduler(thing: object) -> bool:
    """Whether `thing` is a scheduler of torch's: ReduceLROnPlateau derives from the base from 2.2 alone."""
    return isinstance(thing, (SchedulerBase, lr_scheduler.ReduceLROnPlateau))


def learning_rates(scheduler: Any) -> list[float]:
    """The learning rates of the optimizer's groups, as numbers.

    `get_last_lr` of ReduceLROnPlateau came with 2.2 and raises before its first step until 2.3; where the rate is a tensor it
    gives tensors.
    """
    return [float(group["lr"]) for group in scheduler.optimizer.param_groups]
