"""Context managers inside compiled code, and breaks inside them: entered, left, put back."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

from conformance.incell import catches, requires, uncounted, values
from conformance.instruments.compilation import Report, compiling
from conformance.instruments.compiled_calls import check_compiled

pytestmark = [requires("compile"), values, uncounted("what is measured is a compiler")]

Code = Callable[..., Any]
Observe = Callable[..., None]


def _break() -> None:
    torch._dynamo.graph_break()


def _nothing() -> None:
    return None


def _no_grad(x: Tensor, between: Code) -> Tensor:
    with torch.no_grad():
        s = x.sum()
        between()
        s = s * 2
    return (x * s).sum()


def _no_grad_decorated(x: Tensor, between: Code) -> Tensor:
    @torch.no_grad()
    def total(y: Tensor) -> Tensor:
        between()
        return y.sum()

    return (x * total(x)).sum()


def _set_grad_enabled(x: Tensor, between: Code) -> Tensor:
    torch.set_grad_enabled(False)
    s = x.sum()
    between()
    torch.set_grad_enabled(True)
    return (x * s).sum()


def _enable_grad(x: Tensor, between: Code) -> Tensor:
    with torch.no_grad():
        with torch.enable_grad():
            y = x * x
            between()
        s = y.sum() * 2
    return y.sum() + s


def _inference_mode(x: Tensor, between: Code) -> Tensor:
    with torch.inference_mode():
        s = x.detach().sum()
        between()
        s = s * 2
    return (x * float(s)).sum() if between is _break else (x * s.clone()).sum()


def _autocast(x: Tensor, between: Code) -> tuple[Tensor, ...]:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = x @ x
        between()
        z = x @ x
    return y, z, x @ x


def _autocast_off(x: Tensor, between: Code) -> tuple[Tensor, ...]:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        with torch.autocast("cpu", enabled=False):
            y = x @ x
            between()
        z = x @ x
    return y, z


FACTOR = [1.0]


@contextlib.contextmanager
def scaled_by(factor: float) -> Iterator[None]:
    """A generator as a context manager, which changes what the code inside reads."""
    before = FACTOR[0]
    FACTOR[0] = factor
    try:
        yield
    finally:
        FACTOR[0] = before


class Scaled:
    """A class as a context manager."""

    def __init__(self, factor: float) -> None:
        self.factor, self.before = factor, 1.0

    def __enter__(self) -> Scaled:
        self.before, FACTOR[0] = FACTOR[0], self.factor
        return self

    def __exit__(self, *problem: object) -> None:
        FACTOR[0] = self.before


def _generator(x: Tensor, between: Code) -> Tensor:
    with scaled_by(3.0):
        y = x * FACTOR[0]
        between()
        y = y * FACTOR[0]
    return y * FACTOR[0]


def _class(x: Tensor, between: Code) -> Tensor:
    with Scaled(3.0) as scaled:
        y = x * FACTOR[0]
        between()
        y = y * scaled.factor
    return y * FACTOR[0]


def _suppressing(x: Tensor, between: Code) -> Tensor:
    with contextlib.suppress(ValueError):
        x = x + 1
        between()
        raise ValueError
    return x * 2


def _null(x: Tensor, between: Code) -> Tensor:
    with contextlib.nullcontext(3.0) as factor:
        y = x * factor
        between()
    return y * 2


def _stack(x: Tensor, between: Code) -> Tensor:
    with contextlib.ExitStack() as stack:
        stack.enter_context(torch.no_grad())
        s = x.sum()
        between()
    return (x * s).sum()


FORMS: dict[str, Code] = {
    "no_grad": _no_grad,
    "no_grad_decorated": _no_grad_decorated,
    "set_grad_enabled": _set_grad_enabled,
    "enable_grad": _enable_grad,
    "inference_mode": _inference_mode,
    "autocast": _autocast,
    "autocast_off": _autocast_off,
    "generator": _generator,
    "class": _class,
    "suppress": _suppressing,
    "null": _null,
    "exit_stack": _stack,
}


def _modes() -> tuple[Any, ...]:
    return torch.is_grad_enabled(), torch.is_inference_mode_enabled(), torch.is_autocast_cpu_enabled(), FACTOR[0]


@contextlib.contextmanager
def forgets_contexts(code: Code, **options: Any) -> Any:
    """The operations of a graph without the modes around them: gradients and dtypes are those outside."""

    def run(x: Tensor) -> Any:
        result = code(x.detach()) if x.requires_grad else code(x.clone())
        tensors = result if isinstance(result, tuple) else (result,)
        return tuple(t.float() + (x * x).sum() for t in tensors) if isinstance(result, tuple) else tensors[0] * 3 + (x * x).sum()

    yield run, Report()


@pytest.mark.parametrize("between", [_nothing, _break], ids=["whole", "broken"])
@pytest.mark.parametrize("form", FORMS)
@catches(forgets_contexts, compiled_by=compiling)
def test_context_is_entered_and_left(compiled_by: Code, form: str, between: Code, device: torch.device, observe: Observe) -> None:
    """Values, dtypes and gradients inside and behind a context manager are eager's, with a graph break inside it too; nothing leaks.

    pytorch/pytorch#100241, pytorch/pytorch#93890. 2.0 to 2.15 for torch's own contexts, a function
    decorated by `no_grad` since 2.8; `contextlib.nullcontext` since 2.9, with a break inside since 2.14.
    """
    if "autocast" in form and device.type != "cpu":
        pytest.skip("the CPU's autocast")
    x = torch.tensor([[1.0, 0.0], [1.0, 1.0]], device=device).requires_grad_(form != "suppress")
    before = _modes()
    try:
        check_compiled(lambda x: FORMS[form](x, between), {"first": (x,), "second": (x,)}, observe, compiled_by=compiled_by, backward=True)
        assert _modes() == before
    finally:
        FACTOR[0] = 1.0
        torch.set_grad_enabled(True)


@pytest.mark.parametrize("form", ["no_grad", "autocast"])
@catches(forgets_contexts, compiled_by=compiling)
def test_context_is_whole(compiled_by: Code, form: str, device: torch.device, observe: Observe) -> None:
    """no_grad and autocast inside the function are one graph under `fullgraph=True`, with eager's gradients and dtypes.

    pytorch/pytorch#100241, pytorch/pytorch#93890. 2.0 to 2.15.
    """
    if form == "autocast" and device.type != "cpu":
        pytest.skip("the CPU's autocast")
    x = torch.tensor([[1.0, 0.0], [1.0, 1.0]], device=device).requires_grad_()
    report = check_compiled(
        lambda x: FORMS[form](x, _nothing), {"any": (x,)}, observe, compiled_by=compiled_by, backward=True, fullgraph=True
    )
    assert report.graphs == 1
