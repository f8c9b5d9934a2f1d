"""Where a seed comes from and what its stream survives: processes, workers, checkpoints, threads, default dtypes, inference mode."""

from __future__ import annotations

import os
import subprocess
import sys
import zlib
from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor, nn

from conformance.incell import catches, host, limits, values
from conformance.instruments.bits import same_bits

Observe = Callable[..., None]

_CHILD = """
import sys, torch
torch.manual_seed({seed})
print(" ".join(value.hex() for value in torch.empty(64).normal_().tolist()))
"""


def seed_by_checksum(name: str) -> str:
    """An expression that gives the same number in each process."""
    return str(zlib.crc32(name.encode()))


def seeds_by_hash(name: str) -> str:
    """`hash` of a text is salted anew by each process."""
    return f"hash({name!r}) % 2**31"


def _drawn(seed: str, **variables: str) -> Tensor:
    environ = {**os.environ, **variables}
    done = subprocess.run([sys.executable, "-c", _CHILD.format(seed=seed)], env=environ, capture_output=True, text=True, check=True)
    return torch.tensor([float.fromhex(value) for value in done.stdout.split()])


@host
@limits(timeout_s=120)
@catches(seeds_by_hash, seed=seed_by_checksum)
def test_seed_is_the_same_in_each_process(seed: Callable[[str], str], observe: Observe) -> None:
    """A seed made from a layer's name draws the same numbers in two processes; observed is how far another vector level is off.

    Python's salted `hash`; float32 normals differ in their last bits between ATen's default and AVX2 kernels (observed here). 1.13 to 2.15.
    """
    first = _drawn(seed("layers.0"), PYTHONHASHSEED="1")
    plain = _drawn(seed("layers.0"), PYTHONHASHSEED="2", ATEN_CPU_CAPABILITY="default")
    observe("vector_level_difference", float((first - plain).abs().max()), better="lower")
    torch.testing.assert_close(first, plain, atol=1e-5, rtol=1e-5)


#: Workers are forked, so by a process that has done nothing before.
_LOADS = """
import torch

class Drawing(torch.utils.data.Dataset):
    def __init__(self, generator):
        self.generator = generator
    def __len__(self):
        return 4
    def __getitem__(self, index):
        return torch.rand(3, generator=self.generator)

loader = torch.utils.data.DataLoader(Drawing({generator}), batch_size=1, num_workers=2, multiprocessing_context="fork")
for item in loader:
    print(*item.flatten().tolist())
"""


def draw_from_the_workers_stream() -> str:
    """The loader seeds torch's stream of each worker apart."""
    return "None"


def carries_a_generator() -> str:
    """A generator made once, of which each worker gets a copy."""
    return "torch.Generator().manual_seed(0)"


@host
@limits(timeout_s=120)
@pytest.mark.skipif(sys.platform != "linux", reason="workers are forked")
@catches(carries_a_generator, generator=draw_from_the_workers_stream)
def test_workers_draw_apart(generator: Callable[[], str]) -> None:
    """Two workers of a loader do not draw the same augmentation.

    pytorch/pytorch#5059: state copied into each worker repeats in each. 1.13 to 2.15.
    """
    command = [sys.executable, "-c", _LOADS.format(generator=generator())]
    items = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    assert len(items) == 4
    assert len(set(items)) == len(items)


def put_the_state_back(draw: Callable[[], Tensor], pause: Callable[[], object]) -> Iterator[Tensor]:
    """What was saved is the stream's state."""
    yield draw()
    state = torch.get_rng_state()
    pause()
    torch.set_rng_state(state)
    yield draw()


def seeds_again(draw: Callable[[], Tensor], pause: Callable[[], object]) -> Iterator[Tensor]:
    """What was saved is the seed: the stream begins anew."""
    yield draw()
    seed = torch.initial_seed()
    pause()
    torch.manual_seed(seed)
    yield draw()


@host
@catches(seeds_again, resume=put_the_state_back)
def test_resumed_stream_goes_on(resume: Callable[..., Iterator[Tensor]]) -> None:
    """A run that is resumed draws what the uninterrupted run would have drawn.

    The documentation of `torch.get_rng_state`. 1.13 to 2.15.
    """
    torch.manual_seed(11)
    whole = [torch.rand(20) for _ in range(2)]
    torch.manual_seed(11)
    resumed = list(resume(lambda: torch.rand(20), lambda: torch.rand(5)))
    assert all(same_bits(one, other) for one, other in zip(resumed, whole))


def fork_the_stream(build: Callable[[], nn.Module]) -> nn.Module:
    """Build under a stream of its own."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(5)
        return build()


def seeds_in_passing(build: Callable[[], nn.Module]) -> nn.Module:
    """Seed for this module, and everything after it is of that seed too."""
    torch.manual_seed(5)
    return build()


@host
@catches(seeds_in_passing, add=fork_the_stream)
def test_added_module_leaves_the_stream(add: Callable[[Callable[[], nn.Module]], nn.Module]) -> None:
    """A module added with a seed of its own leaves the stream of the training where it was.

    The documentation of `torch.random.fork_rng`. 1.13 to 2.15.
    """
    torch.manual_seed(2)
    wanted = torch.rand(8)
    torch.manual_seed(2)
    add(lambda: nn.Linear(4, 4))
    assert same_bits(torch.rand(8), wanted)


def draw_whole(shape: tuple[int, int]) -> Tensor:
    """One draw."""
    return torch.empty(shape).normal_()


def draws_a_chunk_a_thread(shape: tuple[int, int]) -> Tensor:
    """One seed and one draw for each thread."""
    threads = torch.get_num_threads()
    rows = [len(chunk) for chunk in torch.arange(shape[0]).chunk(threads)]
    chunks = [torch.empty(count, shape[1]).normal_(generator=torch.Generator().manual_seed(index)) for index, count in enumerate(rows)]
    return torch.cat(chunks)


@host
@catches(draws_a_chunk_a_thread, draw=draw_whole)
def test_bits_do_not_follow_threads(draw: Callable[[tuple[int, int]], Tensor]) -> None:
    """The same seed gives a large matrix the same bits with one thread and with four.

    Observed here, as nothing promises it: `torch.set_num_threads` changes neither normal_ nor its order. 1.13 to 2.15.
    """
    threads, drawn = torch.get_num_threads(), []
    try:
        for count in (1, 4):
            torch.set_num_threads(count)
            torch.manual_seed(0)
            drawn.append(draw((512, 128)))
    finally:
        torch.set_num_threads(threads)
    assert same_bits(*drawn)


def build_then_cast() -> nn.Module:
    """Draw in float32, cast once."""
    return nn.Linear(32, 32).to(torch.bfloat16)


def builds_under_a_low_default() -> nn.Module:
    """Let the default dtype reach the initialisers."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.bfloat16)
    try:
        return nn.Linear(32, 32)
    finally:
        torch.set_default_dtype(before)


@host
@catches(builds_under_a_low_default, build=build_then_cast)
def test_low_precision_weights_are_those_of_float32(build: Callable[[], nn.Module], observe: Observe) -> None:
    """A bfloat16 layer has the weights of the float32 layer of that seed, rounded.

    Observed here: under a default dtype of bfloat16 the initialisers draw other, coarser numbers. 1.13 to 2.15.
    """
    torch.manual_seed(0)
    wanted = nn.Linear(32, 32).weight.detach().to(torch.bfloat16)
    torch.manual_seed(0)
    weight = build().weight.detach()
    observe("distinct", len(set(weight.flatten().tolist())), better="higher")
    assert weight.dtype == torch.bfloat16
    assert same_bits(weight, wanted)


def build_outside(make: Callable[[], nn.Module]) -> nn.Module:
    """Build with inference mode off, whatever the caller is in."""
    with torch.inference_mode(False):
        return make()


def builds_where_it_stands(make: Callable[[], nn.Module]) -> nn.Module:
    """Build in the caller's inference mode."""
    return make()


@values
@catches(builds_where_it_stands, build=build_outside)
def test_model_built_while_inferring_trains(build: Callable[[Callable[[], nn.Module]], nn.Module], device: torch.device) -> None:
    """A model that is built lazily inside `inference_mode` can be trained afterwards.

    sgl-project/sglang#33470, facebookresearch/dinov2#472: parameters made there refuse backward for ever. 1.13 to 2.15.
    """
    with torch.inference_mode():
        module = build(lambda: nn.Linear(2, 1, device=device))
    assert not any(parameter.is_inference() for parameter in module.parameters())
    module(torch.ones(1, 2, device=device)).sum().backward()
    assert module.weight.grad is not None
