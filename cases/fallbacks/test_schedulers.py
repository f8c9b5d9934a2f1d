"""Learning-rate schedulers: arguments that went, a base class that is none, rates that cannot be read or are shared."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim import lr_scheduler

from conformance.guards import SchedulerBase, is_scheduler, learning_rates
from conformance.incell import Twin, catches, host

pytestmark = host


def sgd(rate: Any = 0.5) -> torch.optim.Optimizer:
    """One parameter."""
    return torch.optim.SGD([nn.Parameter(torch.ones(2))], lr=rate)


class Halving(SchedulerBase):
    """A scheduler of one's own: it gives its base the optimizer and the epoch, by name."""

    def __init__(self, optimizer: torch.optim.Optimizer, last_epoch: int = -1) -> None:
        super().__init__(optimizer, last_epoch=last_epoch)

    def get_lr(self) -> list[float]:
        """Half of the first rate, for good."""
        return [base / 2 for base in self.base_lrs]


class PassesEverything(Halving):
    """It passes on by position whatever some release's base took: no release takes all of it."""

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        SchedulerBase.__init__(self, optimizer, -1, False, True)


@catches(Twin(PassesEverything, "raises"), scheduler=Halving)
def test_own_scheduler(scheduler: Callable[..., Any]) -> None:
    """A scheduler of one's own sets its rate, when its base gets the optimizer and the epoch alone.

    huggingface/transformers#38197, pytorch/pytorch#147301. 1.13 to 2.15.
    """
    assert learning_rates(scheduler(sgd())) == [0.25]


class Positional(Halving):
    """It passes `verbose` to its base by position."""

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        SchedulerBase.__init__(self, optimizer, -1, False)


@pytest.mark.parametrize("how", ["keyword", "positional", "none"])
def test_verbose_native(how: str) -> None:
    """A scheduler takes `verbose`, by keyword and by position, or is made without.

    pytorch/pytorch#147301, huggingface/transformers#38197: TypeError since 2.7. Without it is right from 1.13 to 2.15.
    """
    made: dict[str, Callable[[], Any]] = {
        "keyword": lambda: lr_scheduler.StepLR(sgd(0.25), 1, verbose=False),  # type: ignore[call-arg]
        "positional": lambda: Positional(sgd()),
        "none": lambda: lr_scheduler.StepLR(sgd(0.25), 1),
    }
    assert made[how]().get_last_lr() == [0.25]


def derives_from_the_old_name(thing: object) -> bool:
    """Since 2.0 a class that no scheduler of torch's derives from."""
    return isinstance(thing, lr_scheduler._LRScheduler)


def derives_from_the_base(thing: object) -> bool:
    """Until 2.1 ReduceLROnPlateau derives from nothing."""
    return isinstance(thing, SchedulerBase)


MADE: dict[str, Callable[[], object]] = {
    "step": lambda: lr_scheduler.StepLR(sgd(), 1),
    "plateau": lambda: lr_scheduler.ReduceLROnPlateau(sgd()),
    "own": lambda: Halving(sgd()),
}


def has_a_step(thing: object) -> bool:
    """Optimizers have one too."""
    return hasattr(thing, "step")


@catches(derives_from_the_old_name, has_a_step, check=is_scheduler)
def test_what_is_a_scheduler(check: Callable[[object], bool]) -> None:
    """StepLR, ReduceLROnPlateau and a class of one's own are schedulers; an optimizer is none.

    Observed here: `_LRScheduler` is the base until 1.13 alone, and ReduceLROnPlateau derives from LRScheduler since 2.2.
    """
    assert [kind for kind, make in MADE.items() if check(make())] == list(MADE)
    assert not check(sgd())


@pytest.mark.parametrize("kind", list(MADE))
@pytest.mark.parametrize("check", [derives_from_the_old_name, derives_from_the_base], ids=["old_name", "base"])
def test_what_is_a_scheduler_native(check: Callable[[object], bool], kind: str) -> None:
    """A scheduler is an instance of torch's base class, by the name that this release has for it and by the older one.

    Observed here: of `_LRScheduler` on 1.13 alone; ReduceLROnPlateau of the base since 2.2.
    """
    assert check(MADE[kind]())


def reads_what_it_recorded(scheduler: Any) -> list[Any]:
    """`get_last_lr`: missing or failing for ReduceLROnPlateau until 2.3, tensors where the rate is one."""
    return list(scheduler.get_last_lr())


@catches(reads_what_it_recorded, read=learning_rates)
def test_rates_are_numbers(read: Callable[[Any], list[Any]]) -> None:
    """The rates that hold now can be read of any scheduler, as numbers, a rate that is a tensor and one before the first step included.

    Observed here: `get_last_lr` gives tensors then, and raises for ReduceLROnPlateau until 2.3. 1.13 to 2.15.
    """
    found = read(lr_scheduler.StepLR(sgd(torch.tensor(0.5)), 1))
    assert [type(rate) for rate in found] == [float]
    assert read(lr_scheduler.ReduceLROnPlateau(sgd(0.25))) == [0.25]


def test_rates_of_plateau_native() -> None:
    """`get_last_lr` of a ReduceLROnPlateau that has not stepped is its optimizer's rate.

    Observed here: the method is missing until 2.1, raises on 2.2, and is right since 2.3.
    """
    assert lr_scheduler.ReduceLROnPlateau(sgd()).get_last_lr() == [0.5]


def give_a_copy(rate: torch.Tensor) -> torch.optim.Optimizer:
    """Each optimizer has a rate of its own."""
    return sgd(rate.clone())


def keeps_the_callers(rate: torch.Tensor) -> torch.optim.Optimizer:
    """The tensor itself; scaled in place, as schedulers of newer releases do."""
    optimizer = sgd(rate)
    rate.mul_(0.1)
    return optimizer


def _check_rate_kept(make: Callable[[torch.Tensor], torch.optim.Optimizer]) -> None:
    rate = torch.tensor(0.5)
    optimizer = make(rate)
    scheduler = lr_scheduler.StepLR(optimizer, 1, gamma=0.1)
    optimizer.step()
    scheduler.step()
    assert learning_rates(scheduler) == [pytest.approx(0.05)]
    assert float(rate) == 0.5


@catches(keeps_the_callers, make=give_a_copy)
def test_tensor_rate_is_not_shared(make: Callable[[torch.Tensor], torch.optim.Optimizer]) -> None:
    """A rate given as a tensor stays as it was with its owner, when the optimizer gets a copy.

    Observed here. 1.13 to 2.15.
    """
    _check_rate_kept(make)


def test_tensor_rate_native() -> None:
    """A rate given as a tensor stays as it was with its owner.

    Observed here: a scheduler writes into it since 2.4, so two optimizers that share one decay twice; not until 2.3.
    """
    _check_rate_kept(sgd)


def optimizer_first(optimizer: torch.optim.Optimizer, scheduler: Any) -> None:
    """The step that the rate is for, then the next rate."""
    optimizer.step()
    scheduler.step()


def scheduler_first(optimizer: torch.optim.Optimizer, scheduler: Any) -> None:
    """The first rate is skipped; a warning says so, once."""
    scheduler.step()
    optimizer.step()


@catches(scheduler_first, order=optimizer_first)
def test_first_rate_is_used(order: Callable[..., None]) -> None:
    """The first step is made with the first rate.

    torch documentation, "How to adjust learning rate": since 1.1 in this order. 1.13 to 2.15.
    """
    weight = nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([weight], lr=1.0)
    scheduler = lr_scheduler.StepLR(optimizer, 1, gamma=0.1)
    weight.grad = torch.ones(1)
    order(optimizer, scheduler)
    assert weight.item() == -1.0


def resume_both(state: dict[str, Any]) -> Any:
    """Optimizer and scheduler."""
    optimizer = sgd()
    scheduler = lr_scheduler.StepLR(optimizer, 2, gamma=0.1)
    optimizer.load_state_dict(state["optimizer"])
    scheduler.load_state_dict(state["scheduler"])
    return scheduler


def resumes_the_optimizer_alone(state: dict[str, Any]) -> Any:
    """The rate is right, and the count of epochs begins anew."""
    optimizer = sgd()
    scheduler = lr_scheduler.StepLR(optimizer, 2, gamma=0.1)
    optimizer.load_state_dict(state["optimizer"])
    return scheduler


@catches(resumes_the_optimizer_alone, resume=resume_both)
def test_schedule_resumes(resume: Callable[[dict[str, Any]], Any]) -> None:
    """A schedule that was saved after epoch 1 and resumed goes on as if it had not stopped.

    torch documentation, "Saving and loading a general checkpoint". 1.13 to 2.15.
    """
    whole = lr_scheduler.StepLR(sgd(), 2, gamma=0.1)
    optimizer_first(whole.optimizer, whole)
    resumed = resume({"optimizer": whole.optimizer.state_dict(), "scheduler": whole.state_dict()})
    for scheduler in (whole, resumed):
        optimizer_first(scheduler.optimizer, scheduler)
    assert learning_rates(resumed) == learning_rates(whole)
