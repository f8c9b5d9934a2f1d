"""Scatter, accumulate, count and select: repeated indices, empty inputs, and what a kernel must not lose."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as functional
from torch import Tensor, nn

from conformance.incell import catches, dtypes, values
from conformance.incell.marks import Twin
from conformance.instruments.weights import uniform


def add_by_index(total: Tensor, index: Tensor, amount: Tensor) -> Tensor:
    """Each occurrence adds."""
    return total.index_add(0, index, amount)


def adds_by_indexed_sum(total: Tensor, index: Tensor, amount: Tensor) -> Tensor:
    """Read, add, write: the last occurrence wins."""
    total = total.clone()
    total[index] += amount
    return total


def puts_without_accumulating(total: Tensor, index: Tensor, amount: Tensor) -> Tensor:
    """One of the occurrences is put."""
    return total.index_put((index,), total[index] + amount)


@values
@dtypes("float32", "int64", "bfloat16")
@catches(adds_by_indexed_sum, puts_without_accumulating, accumulate=add_by_index)
def test_repeated_indices_add_up(accumulate: Callable[..., Tensor], device: torch.device, dtype: torch.dtype) -> None:
    """Amounts for an index that occurs twice are both added.

    pytorch/pytorch#42805, pytorch/pytorch#3844. 1.13 to 2.15.
    """
    total, amount = torch.zeros(3, dtype=dtype, device=device), torch.ones(4, dtype=dtype, device=device)
    assert accumulate(total, torch.tensor([0, 2, 0, 0], device=device), amount).tolist() == [3, 0, 1]


ACCUMULATING: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "index_add": lambda i, v: torch.zeros(4, device=v.device).index_add_(0, i, v),
    "scatter_add": lambda i, v: torch.zeros(4, device=v.device).scatter_add_(0, i, v),
    "index_put": lambda i, v: torch.zeros(4, device=v.device).index_put_((i,), v, accumulate=True),
    "put": lambda i, v: torch.zeros(4, device=v.device).put_(i, v, accumulate=True),
    "scatter_reduce": lambda i, v: torch.zeros(4, device=v.device).scatter_reduce_(0, i, v, "sum"),
    "one_hot": lambda i, v: (i[:, None] == torch.arange(4, device=v.device)).to(v.dtype).t() @ v,
}


def accumulate_natively(op: str, index: Tensor, amounts: Tensor) -> Tensor:
    """As torch has it."""
    return ACCUMULATING[op](index, amounts)


def keeps_last_amount(op: str, index: Tensor, amounts: Tensor) -> Tensor:
    """Later amounts replace earlier ones."""
    last = {int(i): at for at, i in enumerate(index.tolist())}
    kept = torch.tensor(sorted(last.values()), device=index.device)
    return ACCUMULATING[op](index[kept], amounts[kept])


@values
@pytest.mark.parametrize("op", ACCUMULATING)
@catches(keeps_last_amount, accumulate=accumulate_natively)
def test_accumulating_op_adds_all(accumulate: Callable[..., Tensor], op: str, device: torch.device) -> None:
    """Each accumulating op adds a thousand amounts into four places as float64 does.

    pytorch/pytorch#39227 (index_put_ by device). On the CPU right on 1.13 to 2.15.
    """
    index = (torch.arange(1000) * 7 % 4).to(device)
    amounts = uniform((1000,)).to(device)
    expected = torch.zeros(4, dtype=torch.float64).index_add_(0, index.cpu(), amounts.cpu().double())
    torch.testing.assert_close(accumulate(op, index, amounts).cpu().double(), expected, rtol=1e-4, atol=1e-4)


def count_to_the_end(labels: Tensor, classes: int) -> Tensor:
    """As many counts as classes."""
    return torch.bincount(labels, minlength=classes)


def counts_what_occurs(labels: Tensor, classes: int) -> Tensor:
    """As many counts as the largest label asks for."""
    del classes
    return torch.bincount(labels)


@values
@catches(counts_what_occurs, count=count_to_the_end)
def test_every_class_is_counted(count: Callable[..., Tensor], device: torch.device) -> None:
    """Counts per class have one entry a class, though the last did not occur.

    Observed on 1.13 to 2.15: `bincount` ends at the largest label of the batch, so batches disagree in shape.
    """
    assert count(torch.tensor([0, 2, 2], device=device), 5).tolist() == [1, 0, 2, 0, 0]


def look_up_within(table: Tensor, ids: Tensor) -> Tensor:
    """Ids are checked against the table on the host before the device sees them."""
    if int(ids.max()) >= table.size(0):
        raise IndexError("an id is beyond the table")
    return functional.embedding(ids, table)


def wraps_around(table: Tensor, ids: Tensor) -> Tensor:
    """Python's modulo: some row comes."""
    return functional.embedding(ids % table.size(0), table)


def clamps_to_the_table(table: Tensor, ids: Tensor) -> Tensor:
    """The last row stands for all beyond."""
    return functional.embedding(ids.clamp(max=table.size(0) - 1), table)


@values
@catches(wraps_around, clamps_to_the_table, look_up=look_up_within)
def test_id_beyond_the_table_is_refused(look_up: Callable[..., Tensor], device: torch.device) -> None:
    """A token id beyond the table raises IndexError, on devices whose kernels do not check too.

    pytorch/pytorch#144824 (MPS gave zeros). The CPU checks by itself on 1.13 to 2.15.
    """
    table = uniform((4, 3)).to(device)
    with pytest.raises(IndexError):
        look_up(table, torch.tensor([1, 4], device=device))


EMPTY: dict[str, Callable[[torch.device], tuple[Tensor, tuple[int, ...]]]] = {
    "linear": lambda device: (nn.Linear(3, 2, device=device)(torch.empty(0, 3, device=device)), (0, 2)),
    "conv2d": lambda device: (nn.Conv2d(3, 2, 3, device=device)(torch.empty(0, 3, 5, 5, device=device)), (0, 2, 3, 3)),
    "embedding": lambda device: (nn.Embedding(3, 2, device=device)(torch.empty(0, 4, dtype=torch.int64, device=device)), (0, 4, 2)),
    "layer_norm": lambda device: (nn.LayerNorm(3, device=device)(torch.empty(0, 3, device=device)), (0, 3)),
    "softmax": lambda device: (torch.empty(0, 3, device=device).softmax(-1), (0, 3)),
    "max_pool": lambda device: (functional.max_pool2d(torch.empty(0, 3, 4, 4, device=device), 2), (0, 3, 2, 2)),
    "cat": lambda device: (torch.cat([torch.empty(0, 3, device=device), torch.ones(2, 3, device=device)]), (2, 3)),
    "lstm": lambda device: (nn.LSTM(3, 2, device=device)(torch.empty(4, 0, 3, device=device))[0], (4, 0, 2)),
    "matmul": lambda device: (torch.empty(2, 0, device=device) @ torch.empty(0, 3, device=device), (2, 3)),
    "sort": lambda device: (torch.empty(0, 3, device=device).sort(dim=0).values, (0, 3)),
    "topk": lambda device: (torch.empty(0, 3, device=device).topk(2).values, (0, 2)),
    "cumsum": lambda device: (torch.empty(0, 3, device=device).cumsum(0), (0, 3)),
}


def run_empty(layer: str, device: torch.device) -> tuple[Tensor, tuple[int, ...]]:
    """A batch of nothing."""
    return EMPTY[layer](device)


def drops_the_batch(layer: str, device: torch.device) -> tuple[Tensor, tuple[int, ...]]:
    """`squeeze` and what becomes of it."""
    out, shape = EMPTY[layer](device)
    return out.flatten(), shape


@pytest.mark.parametrize("layer", EMPTY)
@catches(drops_the_batch, run=run_empty)
def test_empty_batch_keeps_its_shape(run: Callable[..., tuple[Tensor, tuple[int, ...]]], layer: str, device: torch.device) -> None:
    """A batch of no samples goes through a layer and comes out with that layer's shape.

    pytorch/pytorch#12013 (layers and empty batches). On the CPU right on 1.13 to 2.15.
    """
    torch.ones(1, device=device)
    out, shape = run(layer, device)
    assert out.shape == shape
    if not out.is_meta:
        assert bool(out.isfinite().all())


def average_of_some(losses: Tensor) -> Tensor:
    """None of none is zero."""
    return losses.sum() / max(1, losses.numel())


def averages_nothing(losses: Tensor) -> Tensor:
    """None of none is NaN."""
    return losses.mean()


@values
@catches(averages_nothing, average=average_of_some)
def test_mean_of_nothing_is_zero(average: Callable[[Tensor], Tensor], device: torch.device) -> None:
    """The mean loss of a shard without samples is zero, so that the sum over shards is a number.

    Observed on 1.13 to 2.15: `mean` of nothing is NaN, in silence.
    """
    assert float(average(torch.empty(0, device=device))) == 0.0


def index_by_int64(table: Tensor, index: Tensor) -> Tensor:
    """Cast, then index."""
    return table[index.long()]


def indexes_by_float(table: Tensor, index: Tensor) -> Tensor:
    """torch refuses."""
    return table[index]


@values
@catches(Twin(indexes_by_float, "raises"), take=index_by_int64)
def test_index_is_of_integers(take: Callable[..., Tensor], device: torch.device) -> None:
    """An index that was computed in floating point is cast before it is used; as it is, it raises.

    Observed on 1.13 to 2.15.
    """
    assert take(torch.arange(4, device=device), torch.tensor([3.0, 1.0], device=device)).tolist() == [3, 1]
