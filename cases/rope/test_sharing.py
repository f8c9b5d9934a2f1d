"""Tables that are shared: by layers, by models, by calls with another dtype, device or base, and by copies."""

from __future__ import annotations

import copy
import functools
import io
import pickle
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from conformance.guards.rotary import RotaryCache
from conformance.incell import catches, values
from conformance.incell.marks import Twin
from conformance.instruments import rotation

Build = Callable[..., Any]


def _cosines(rows: int, dim: int, base: float, device: Any, dtype: torch.dtype) -> Tensor:
    return rotation.angles(range(rows), dim, base).cos().to(dtype).to(device)


def key_by_everything() -> Build:
    """The cache of a function whose arguments are all that its result depends on."""
    return functools.lru_cache(maxsize=None)(_cosines)


def _keeping(key: Callable[..., Any]) -> Build:
    kept: dict[Any, Tensor] = {}

    def cosines(*arguments: Any) -> Tensor:
        return kept.setdefault(key(*arguments), _cosines(*arguments))

    return cosines


def keys_by_size() -> Build:
    """A cache by size: the first caller's base, device and dtype are everybody's."""
    return _keeping(lambda rows, dim, base, device, dtype: (rows, dim))


def keys_by_half_the_size() -> Build:
    """A cache by the number of elements: a narrow long table is taken for a wide short one."""
    return _keeping(lambda rows, dim, base, device, dtype: (rows * dim, base, str(device), dtype))


def keys_by_device_kind() -> Build:
    """A cache that reads the dtype from whatever came first on the device."""
    return _keeping(lambda rows, dim, base, device, dtype: (rows, dim, base, str(device)))


@values
@catches(keys_by_size, keys_by_half_the_size, keys_by_device_kind, make=key_by_everything)
def test_key_holds_all_that_matters(make: Callable[[], Build], device: torch.device) -> None:
    """A cache of tables tells size, base, device and dtype apart: layers with another base (local and global) get their own.

    ml-explore/mlx#561 (the size), quic/efficient-transformers#1296 (layer types), whittle-org/whittle#21. Holds on 1.13 to 2.15.
    """
    cosines = make()
    wanted = [
        (8, 16, 1e4, device, torch.float32),
        (16, 8, 1e4, device, torch.float32),
        (8, 16, 1e6, device, torch.float32),
        (8, 16, 1e4, device, torch.bfloat16),
        (8, 16, 1e4, torch.device("meta"), torch.float32),
    ]
    for rows, dim, base, place, dtype in wanted:
        got = cosines(rows, dim, base, place, dtype)
        assert (tuple(got.shape), got.device.type, got.dtype) == ((rows, dim // 2), place.type, dtype)
        assert got.is_meta or rotation.error(got, rotation.angles(range(rows), dim, base).cos()) < 5e-3


def scale_aside(table: Tensor, factor: float) -> Tensor:
    """A new tensor."""
    return table * factor


def scales_in_place(table: Tensor, factor: float) -> Tensor:
    """The table that all layers hold."""
    return table.mul_(factor)


@values
@catches(scales_in_place, scale=scale_aside)
def test_layer_scales_its_own_table(scale: Callable[[Tensor, float], Tensor], device: torch.device) -> None:
    """A layer that scales cosines for itself (YaRN, xPos) leaves the shared table to the others, and to its own next call.

    What a cache gives out are views. sgl-project/sglang#33575 (a table shared by models) is the kin. Holds on 1.13 to 2.15.
    """
    cache = RotaryCache(8, rows=8, device=device)
    for _ in range(2):
        got = scale(cache(8)[0], 0.5)
    assert rotation.error(got, 0.5 * rotation.angles(range(8), 8).cos()) < 1e-6
    assert rotation.error(cache(8)[0], rotation.angles(range(8), 8).cos()) < 1e-6


def repeat_for_each(table: Tensor, batch: int) -> Tensor:
    """Memory for each sequence."""
    return table.repeat(batch, 1, 1)


def expands_for_each(table: Tensor, batch: int) -> Tensor:
    """One memory for all sequences."""
    return table.expand(batch, *table.shape)


@values
@catches(expands_for_each, spread=repeat_for_each)
def test_one_sequence_is_written_alone(spread: Callable[[Tensor, int], Tensor], device: torch.device) -> None:
    """Writing the rows of one sequence into a batch of tables changes that sequence alone.

    Observed here: into an expanded table `tables[0] *= s` writes all sequences and the cache itself, in silence, on 1.13 to 2.15.
    """
    cache = RotaryCache(8, rows=8, device=device)
    tables = spread(cache.cos, 3)
    tables[0] *= 0.5
    right = rotation.angles(range(8), 8).cos()
    assert rotation.error(tables[0], 0.5 * right) < 1e-6
    assert rotation.error(tables[1], right) < 1e-6
    assert rotation.error(cache.cos, right) < 1e-6


def copy_deeply(module: nn.Module) -> Any:
    """A copy with tables of its own."""
    return copy.deepcopy(module)


def copies_the_shell(module: nn.Module) -> Any:
    """`copy.copy`: two modules, one dict of buffers."""
    return copy.copy(module)


@catches(copies_the_shell, duplicate=copy_deeply)
def test_copy_grows_alone(duplicate: Callable[[nn.Module], Any], device: torch.device) -> None:
    """A copy of a module with a grown table has its rows, and grows further without the original.

    lucidrains/rotary-embedding-torch#18 (EMA copies). Holds on 1.13 to 2.15.
    """
    module = RotaryCache(8, rows=8, device=device)
    module.grow_to(20)
    twin = duplicate(module)
    assert twin.rows == 20
    twin.grow_to(100)
    assert (module.rows, twin.rows) == (20, 100)


class HoldsAFunction(RotaryCache):
    """Remembers how to compute its angles in a function made at construction."""

    def __init__(self, head_dim: int, **options: Any) -> None:
        super().__init__(head_dim, **options)
        self.frequency = lambda channel: self.base ** (-channel / head_dim)


class LeavesItsTablesOut(RotaryCache):
    """Keeps its tables out of the pickle, as they are out of the state dict."""

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_buffers": dict.fromkeys(self._buffers)}


@values
@catches(Twin(HoldsAFunction, "raises"), Twin(LeavesItsTablesOut, "raises"), cache=RotaryCache)
def test_table_survives_pickling(cache: Build, device: torch.device) -> None:
    """A whole model that is pickled has its grown table when it is read again, in the same place and dtype.

    coreweave/tensorizer#96 (tables after deserialisation). Holds on 1.13 to 2.15.
    """
    file, module = io.BytesIO(), cache(8, rows=4, device=device, dtype=torch.float32)
    module.grow_to(8)
    pickle.dump(module, file)
    file.seek(0)
    read = pickle.load(file)
    assert (read.rows, read.cos.device.type, list(read.state_dict())) == (8, device.type, [])
    assert rotation.error(read(8)[0], rotation.angles(range(8), 8).cos()) < 1e-6


class Shared:
    """One cache for all models that ask for the same size, made anew when the kept one is dead."""

    def __init__(self) -> None:
        self.kept: dict[int, RotaryCache] = {}

    def alive(self, cache: RotaryCache, device: torch.device) -> bool:
        """Whether the tables are where they are needed, and hold numbers."""
        return cache.cos.device.type == device.type

    def get(self, dim: int, device: torch.device) -> RotaryCache:
        """The cache for heads of `dim`."""
        cache = self.kept.get(dim)
        if cache is None or not self.alive(cache, device):
            cache = self.kept[dim] = RotaryCache(dim, rows=8, device=device)
        return cache


class NeverAsks(Shared):
    """One cache for all models, whatever became of it."""

    def alive(self, cache: RotaryCache, device: torch.device) -> bool:
        """Taken for granted."""
        return True


@values
@catches(NeverAsks, shared=Shared)
def test_shared_cache_is_alive(shared: Build, device: torch.device) -> None:
    """A model gets live tables from a process-wide cache, though an earlier model took the same ones to meta with it.

    sgl-project/sglang#33575: queries were left unturned in silence. Holds on 1.13 to 2.15.
    """
    caches = shared()
    nn.Sequential(caches.get(8, device)).to("meta")
    later = nn.Sequential(caches.get(8, device))
    table = later[0](8)[0]
    assert table.device.type == device.type
    assert rotation.error(table, rotation.angles(range(8), 8).cos()) < 1e-6
