"""Checks of any model's caches: what grows in forward is found by itself, then asked what growth must keep."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from conformance.incell import Twin, catches, dtypes, requires, subjects, uncounted, values
from conformance.instruments.alongaxis import STRETCHES, Errors, errors
from conformance.instruments.assignments import assigned
from conformance.instruments.bits import same_bits
from conformance.instruments.compilation import compiling
from conformance.instruments.generalization import difference_of
from conformance.instruments.models import blame_first, run_as_it_is
from conformance.instruments.snapshots import OF_MODULES, tensors_of
from conformance.subjects.variations import resized

Code = Callable[..., Any]
Observe = Callable[..., None]

#: So far an axis is tried: bfloat16 holds no odd number above 256.
LONG = 320
#: Of what rounds alike everywhere the error grows by 1.3 at most (ten classes of transformers, 2.13); of cast frequencies by 10.
MOST_GROWTH = 4.0


def _held(model: nn.Module) -> dict[str, Tensor]:
    """Every tensor that a part of the model holds and that is no parameter: buffers and plain attributes, by dotted name."""
    found = dict(model.named_buffers())
    for prefix, part in model.named_modules():
        for name, value in vars(part).items():
            if isinstance(value, Tensor):
                found[f"{prefix}.{name}".lstrip(".")] = value
    return found


def _inside(model: nn.Module) -> dict[str, list[Tensor]]:
    """Tensors in the tuples, lists and dicts that parts of the model hold, by the dotted name of the container."""
    found: dict[str, list[Tensor]] = {}
    for prefix, part in model.named_modules():
        own = {name: value for name, value in vars(part).items() if name not in OF_MODULES and not isinstance(value, Tensor)}
        found.update({f"{prefix}.{name}".lstrip("."): list(tensors_of(value)) for name, value in own.items()})
    return found


def _by_elements(subject: Any) -> list[str]:
    return sorted(subject.variations, key=lambda name: sum(x.numel() for x in subject.inputs(name)))


Growth = tuple[str, Tensor, Tensor]


def _grown(names: list[str], subject: Any, model: nn.Module, run: Code, device: torch.device) -> Iterator[Growth]:
    """Name, tensor before and tensor after, of what changed its shape while `run` saw the variations `names`, the smallest first.

    Twice where it grew with the first of them and again later: from what was built, and from what that left.
    """
    stages = [_kept(model)]
    for some in (names[:1], names[1:]):
        for name in some:
            run(*subject.inputs(name, device))
        stages.append(_kept(model))
    for before, after in (stages[:2], stages[1:]):
        yield from ((name, before[name], now) for name, now in after.items() if name in before and before[name].shape != now.shape)


def _kept(model: nn.Module) -> dict[str, Tensor]:
    return {name: tensor.detach().clone() for name, tensor in _held(model).items()}


def _names(grown: Iterable[Growth]) -> str:
    return ", ".join(dict.fromkeys(name for name, _, _ in grown)) or "none"


def _lost(name: str, before: Tensor, after: Tensor, registered: set[str], model: nn.Module) -> str:
    """What growth took, in words; empty for nothing."""
    if after.dtype != before.dtype:
        return f"{name} became {after.dtype}, was {before.dtype}"
    if after.device != before.device:
        return f"{name} went to {after.device}"
    if (name in registered) != (name in dict(model.named_buffers())):
        return f"{name} is not registered any more"
    kept = tuple(slice(0, min(a, b)) for a, b in zip(before.shape, after.shape))
    return "" if same_bits(after[kept], before[kept]) else f"{name} lost the rows that it had"


def _check_growth(grown: list[Growth], registered: set[str], model: nn.Module, line: Callable[[str], dict[str, Any]]) -> None:
    """Raise AssertionError for the first that lost something, blamed on its `line`, which assigned it."""
    for name, before, after in grown:
        lost = _lost(name, before, after, registered, model)
        if lost:
            _blame(AssertionError(lost), line(name))


def _blame(error: AssertionError, line: dict[str, Any]) -> None:
    blame_first(error, [line])
    raise error


class BecomingPersistent(nn.Module):
    """Beside the model, a cache that no checkpoint holds until it grows, and is registered anew."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model
        self.register_buffer("cache", torch.zeros(0), persistent=False)

    def forward(self, *inputs: Tensor) -> Any:
        """The model's own inputs."""
        elements = sum(x.numel() for x in inputs)
        if elements > self.cache.size(0):
            self.register_buffer("cache", torch.zeros(elements, device=inputs[0].device))
        return self.model(*inputs)


class Regrowing(nn.Module):
    """Beside the model, a cache that grows to each length anew, in another dtype, with other rows."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model
        self.register_buffer("cache", torch.zeros(0, dtype=torch.bfloat16), persistent=False)

    def forward(self, *inputs: Tensor) -> Any:
        """The model's own inputs."""
        elements = sum(x.numel() for x in inputs)
        if elements > self.cache.size(0):
            self.cache = torch.full((elements,), float(elements), device=inputs[0].device)
        return self.model(*inputs)


@values
@subjects()
@catches(Regrowing, BecomingPersistent, wrap=run_as_it_is)
def test_subject_growth_keeps(wrap: Code, subject: Any, device: torch.device, observe: Observe) -> None:
    """What a subject grows in forward keeps its dtype, its device, its registration, whether it is saved, and the rows that it had.

    huggingface/transformers#24203, karpathy/nanochat#612; found by shape, whatever it is called. 1.13 to 2.15.
    """
    model = wrap(subject.build()).to(device)
    registered, saved = {name for name, _ in model.named_buffers()}, set(model.state_dict())
    with torch.no_grad(), assigned() as lines:
        grown = list(_grown(_by_elements(subject), subject, model, model, device))
    observe("grown", _names(grown))
    _check_growth(grown, registered, model, functools.partial(lines.line, model))
    new = [name for name in model.state_dict() if name not in saved]
    if new:
        _blame(
            AssertionError(f"a checkpoint of the used model holds {', '.join(new)}, which a fresh one has not"), lines.line(model, new[0])
        )


@requires("compile")
@uncounted("what is measured is a compiler")
@values
@subjects()
@catches(Regrowing, wrap=run_as_it_is)
def test_subject_growth_compiles(wrap: Code, subject: Any, device: torch.device, observe: Observe, stage: Any) -> None:
    """What a subject grows in forward keeps what it must under torch.compile too, and its answers are eager's.

    pytorch/pytorch#124717, karpathy/nanochat#612; observed is how often it was compiled again. Nothing is compiled where nothing
    grows. 2.0 to 2.15.
    """
    names = _by_elements(subject)
    model = wrap(subject.build()).to(device).eval()
    eager, registered = copy.deepcopy(model), {name for name, _ in model.named_buffers()}
    with torch.no_grad(), assigned() as lines:
        growing = _names(_grown(names, subject, eager, eager, device))
    observe("grown", growing)
    if growing == "none":
        return
    answered: list[Any] = []
    with torch.no_grad(), stage("compile"), compiling(model) as (compiled, report):

        def run(*inputs: Tensor) -> None:
            expected = eager(*inputs)
            try:
                answered.append(compiled(*inputs))
            except Exception as error:
                if answered:
                    raise
                pytest.skip(f"it cannot be compiled here at all, which is compile.subject_compiles_whole's question: {error!r:.200}")
            difference = difference_of(expected, answered[-1])
            assert not difference, f"compiled code answers otherwise while it grows: {difference}"

        grown = list(_grown([names[0], names[-1]], subject, model, run, device))
    observe("recompiles", len(report.recompiles), better="lower")
    observe("recompiles_told", "; ".join(report.recompiles) or "none")
    assert _names(grown) == growing, "compiled code grows other tensors than eager code does"
    _check_growth(grown, registered, model, functools.partial(lines.line, eager))


class GrowingWhileInferring(nn.Module):
    """Beside the model, a cache that is made when it is first needed, in whatever mode that is."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model, self.gain, self.cache = model, nn.Parameter(torch.ones(())), None

    def forward(self, *inputs: Tensor) -> Any:
        """The model's own inputs."""
        if self.cache is None:
            self.cache = torch.ones(2, device=inputs[0].device)
        return next(tensors_of(self.model(*inputs))) * (self.gain * self.cache).sum()


@values
@subjects()
@catches(Twin(GrowingWhileInferring, "raises"), wrap=run_as_it_is)
def test_subject_trains_after_inference(wrap: Code, subject: Any, device: torch.device, observe: Observe) -> None:
    """A subject that first ran in inference mode can be trained afterwards: no cache of it that training needs is an inference tensor.

    Dao-AILab/flash-attention#299. What it kept of inference mode is observed, and blamed where training raises. 1.13 to 2.15.
    """
    model = wrap(subject.build()).to(device)
    inputs = subject.inputs(device=device)
    with torch.inference_mode(), assigned() as lines:
        model(*inputs)
    there = {**_inside(model), **{name: [tensor] for name, tensor in _held(model).items()}}
    kept = sorted(name for name, tensors in there.items() if any(tensor.is_inference() for tensor in tensors))
    observe("kept", ", ".join(kept) or "nothing")
    try:
        losses = [tensor.float().pow(2).mean() for tensor in tensors_of(model(*inputs)) if tensor.requires_grad]
        if not losses:
            pytest.skip("nothing that the model gives requires a gradient")
        sum(losses).backward()  # type: ignore[union-attr]
    except RuntimeError as error:
        blame_first(error, [lines.line(model, name) for name in kept])
        raise


class CountingInLowPrecision(nn.Module):
    """Beside the model, a rotation by positions that were cast with it."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model
        self.register_buffer("frequency", torch.tensor(0.3), persistent=False)

    def forward(self, *inputs: Tensor) -> Any:
        """The model's own inputs."""
        answer = next(tensors_of(self.model(*inputs)))
        angles = torch.arange(answer.size(1), dtype=self.frequency.dtype, device=answer.device) * self.frequency
        return answer * angles.cos().view(1, -1, *[1] * (answer.dim() - 2))


def _long_axes(subject: Any) -> dict[str, int]:
    """Axes that vary, but the first of an argument, each with the size that it is tried at."""
    names = {name for (_, axis), name in (subject.axes or {}).items() if axis > 0}
    sizes = {name: min(LONG, (subject.bounds or {}).get(name, (1, LONG))[1]) for name in sorted(names)}
    return {name: size for name, size in sizes.items() if size >= 4 * STRETCHES}


def _errors_along(subject: Any, wrap: Code, name: str, size: int, dtype: torch.dtype, device: torch.device) -> list[Errors]:
    longer = (subject.resize or functools.partial(resized, subject.inputs(), subject.axes))({name: size})
    return errors(lambda: wrap(subject.build()), longer, dtype, device, size)


def _blame_growth(axis: str, grown: Errors, dtype: torch.dtype) -> None:
    told = ", ".join(f"{error:.1e}" for error in grown.by_stretch)
    error = AssertionError(
        f"what {grown.name} gives in {dtype} is further off the further along {axis} it stands: a position or a frequency was cast; "
        f"relative errors from eighth to eighth of the axis: {told}"
    )
    _blame(error, grown.line)


@values
@subjects()
@dtypes("bfloat16")
@catches(CountingInLowPrecision, wrap=run_as_it_is)
def test_subject_positions_keep_precision(wrap: Code, subject: Any, dtype: torch.dtype, device: torch.device, observe: Observe) -> None:
    """A subject cast to bfloat16 is no further off at later positions than at early ones, nor is any part of it.

    What grows is a position or a frequency that was cast: a buffer `inv_freq` goes with `model.to(torch.bfloat16)`
    (huggingface/transformers#25681, #29285, EleutherAI/gpt-neox#1003). Each axis but the first is tried at 320, or as far as its bounds
    go. 1.13 to 2.15.
    """
    tried: list[tuple[str, Errors]] = []
    refused = ["no axis but the first can be made 32 long"]
    for name, size in _long_axes(subject).items():
        try:
            tried += [(name, each) for each in _errors_along(subject, wrap, name, size, dtype, device)]
            refused.append(f"no answer has the axis {name}")
        except Exception as error:  # what a size or a dtype is refused with is another check's affair
            refused.append(f"{name} of {size} is refused: {type(error).__name__}: {error}")
    if not tried:
        pytest.skip(refused[-1])
    observe("growth", round(max(each.growth(dtype) for _, each in tried), 2), better="lower")
    grown = [(axis, each) for axis, each in tried if each.grow(dtype, MOST_GROWTH)]
    if grown:
        _blame_growth(*min(grown, key=lambda each: each[1].of_torch), dtype)
