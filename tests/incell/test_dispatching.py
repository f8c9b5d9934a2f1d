"""The recorder finds each kind of hazard where it is planted, and nothing in code that is clean."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as functional
from torch import Tensor, nn

from conformance.guards import holds_dtype, narrowed_dtype, to_device
from conformance.instruments.dispatching import KINDS, elsewhere, recorded, refusing
from conformance.instruments.layouts import LAYOUTS, in_storage_order
from conformance.instruments.weights import uniform

X = uniform((4, 4))

PLANTED: dict[str, Callable[[], object]] = {
    "float64": lambda: X.double() * 2,
    "mixed": lambda: X * X.bfloat16(),
    "sync": lambda: X.sum().item(),
    "layout": lambda: functional.linear(uniform((4, 8))[:, ::2], X),
    "in_place_on_view": lambda: X.clone().t().add_(1),
    "rank": lambda: torch.ones([1] * 17),
    "int64": lambda: torch.arange(3).max(),
    "float_step": lambda: torch.arange(0.0, 1.0, 0.25),
    "uneven_pool": lambda: functional.adaptive_avg_pool2d(uniform((1, 1, 5, 5)), 3),
    "unawaited": lambda: X.to("cpu", non_blocking=True),
}


@pytest.mark.parametrize("kind", PLANTED)
def test_planted_hazard_is_found(kind: str) -> None:
    with recorded("cpu") as seen:
        PLANTED[kind]()
    assert seen.count(kind) >= 1
    assert "test_dispatching.py:" in seen.of(kind)[0]


@pytest.mark.parametrize(
    ("kind", "planted"),
    [
        ("stray", lambda: torch.arange(3)),
        ("crossing", lambda: torch.ones(3, device="meta") * torch.ones(())),
        ("copy", lambda: torch.ones(3).to("meta")),
    ],
    ids=["stray", "crossing", "copy"],
)
def test_what_stays_on_the_host_is_found(kind: str, planted: Callable[[], object]) -> None:
    with recorded("meta") as seen:
        planted()
    assert seen.count(kind) == 1


READS: dict[str, Callable[[Tensor], object]] = {
    "tolist": Tensor.tolist,
    "cpu": Tensor.cpu,
    "bool": bool,
    "float": float,
    "nonzero": Tensor.nonzero,
    "mask": lambda x: torch.ones(1)[x > 0],
}


@pytest.mark.parametrize("read", READS)
def test_each_way_to_wait_is_counted(read: str) -> None:
    with recorded("cpu") as seen:
        READS[read](torch.ones(1))
    assert seen.count("sync") == 1


def test_clean_training_step_has_no_hazard() -> None:
    model = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, foreach=False)
    with recorded("cpu") as seen:
        model(X).square().mean().backward()
        optimizer.step()
    assert seen.of(*KINDS) == []
    assert seen.ops["addmm"] == 2


def test_refused_dtype_is_refused_on_that_device_alone() -> None:
    with refusing("meta"):
        assert not holds_dtype(torch.float64, "meta")
        assert holds_dtype(torch.float64, "cpu")
        assert narrowed_dtype(torch.complex128, "meta") == torch.complex64
        with pytest.raises(TypeError, match="float64"):
            torch.ones(2, dtype=torch.float64).to("meta")
        assert to_device([torch.ones(2, dtype=torch.float64)], "meta")[0].dtype == torch.float32
    assert holds_dtype(torch.float64, "meta")


def test_elsewhere_is_never_the_host() -> None:
    assert elsewhere(torch.device("cpu")).type == "meta"
    assert elsewhere(torch.device("meta")).type == "meta"


@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts_keep_numbers_and_lose_contiguity(layout: str) -> None:
    x = uniform((3, 5))
    strided = LAYOUTS[layout](x)
    assert torch.equal(strided, x)
    assert not strided.is_contiguous()
    assert not torch.equal(in_storage_order(strided), x)
