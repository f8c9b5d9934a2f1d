"""The guards: their numbers against float64, and that they refuse what they must."""

from __future__ import annotations

import pytest
import torch

from conformance.guards import (
    RotaryCache,
    UninitialisedError,
    causal_mask,
    initialise,
    is_compiling,
    is_tracing,
    materialise,
    padding_mask,
    rms_norm,
    rotate,
)
from conformance.guards.masks import positions_like
from conformance.instruments.weights import uniform
from conformance.subjects.subject import on_meta


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64], ids=str)
@pytest.mark.parametrize("scale", [1.0, 1e-3])
def test_rms_norm_is_float64s(dtype: torch.dtype, scale: float) -> None:
    x, gain = (uniform((3, 16)) * scale).to(dtype), uniform((16,), "gain")
    wide = x.double()
    eps = torch.finfo(torch.float64 if dtype == torch.float64 else torch.float32).eps
    expected = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps) * gain.to(dtype).double()
    got = rms_norm(x, gain)
    assert got.dtype == dtype
    torch.testing.assert_close(got.double(), expected, rtol=3 * float(torch.finfo(dtype).eps), atol=1e-6)


def test_rotary_cache_grows_in_place_of_its_buffers() -> None:
    cache = RotaryCache(8, rows=4, dtype=torch.bfloat16)
    before = cache.cos.clone()
    cos, sin = cache(6)
    assert (cos.shape, sin.shape, cache.rows) == ((6, 4), (6, 4), 8)
    assert (cache.cos.dtype, list(cache.state_dict()), sorted(dict(cache.named_buffers()))) == (torch.bfloat16, [], ["cos", "sin"])
    assert torch.equal(cache.cos[:4], before)
    cache.grow_to(6)
    assert cache.rows == 8


def test_rotary_cache_grown_in_inference_mode_can_be_trained_with() -> None:
    cache = RotaryCache(8, rows=2)
    with torch.inference_mode():
        cache(5)
    x = torch.ones(1, 5, 1, 8, requires_grad=True)
    rotate(x, *cache(5)).sum().backward()
    assert x.grad is not None


def test_rotary_cache_refuses_to_grow_while_captured() -> None:
    cache = RotaryCache(8, rows=4)
    with pytest.raises(RuntimeError, match="exceeds dimension size"):
        torch.jit.trace(lambda x: rotate(x, *cache(x.size(1))), (torch.ones(1, 6, 1, 8),))
    assert cache.rows == 4
    with pytest.raises(ValueError, match="odd"):
        RotaryCache(7)


def test_rotation_keeps_length_and_turns_by_distance() -> None:
    cache = RotaryCache(8, rows=32)
    x, y = uniform((1, 1, 1, 8)), uniform((1, 1, 1, 8), "y")
    scores = [float((rotate(x, *cache(1, p + 5)) * rotate(y, *cache(1, p))).sum()) for p in (0, 3, 20)]
    assert max(scores) - min(scores) < 1e-5


def test_causal_mask_and_positions() -> None:
    x = torch.full((2, 3, 4), float("nan"))
    assert positions_like(x).tolist() == [0, 1, 2]
    assert positions_like(torch.zeros(2, 5, dtype=torch.bool)).dtype == torch.int64
    seen = causal_mask(x, past=2) == 0
    assert seen[0, 0].tolist() == [[True] * 3 + [False] * 2, [True] * 4 + [False], [True] * 5]
    assert padding_mask(torch.tensor([1, 3]), 3).tolist() == [[True, False, False], [True] * 3]


class Shared(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one, self.other = torch.nn.Linear(2, 2, bias=False), torch.nn.Linear(2, 2, bias=False)
        self.other.weight = self.one.weight
        self.gain = torch.nn.Parameter(torch.empty(1))


def test_initialise_keeps_ties_and_names_what_is_left() -> None:
    module = materialise(on_meta(Shared), "cpu")
    assert module.one.weight is module.other.weight
    with pytest.raises(UninitialisedError, match="never initialised: gain"):
        initialise(on_meta(Shared), "cpu")


def test_capturing_is_told() -> None:
    assert (is_compiling(), is_tracing()) == (False, False)
    seen = []

    def code(x: torch.Tensor) -> torch.Tensor:
        seen.append(is_tracing())
        return x + 1

    torch.jit.trace(code, (torch.ones(1),), check_trace=False)
    assert seen == [True]
    if hasattr(torch, "compile"):
        # A branch the compiler folds: what it sees is what the guard says while compiling.
        assert torch.compile(lambda x: x + (1 if is_compiling() else 0), backend="eager", fullgraph=True)(torch.zeros(1)).item() == 1.0
