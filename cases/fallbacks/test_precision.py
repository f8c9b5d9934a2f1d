"""TF32: switches that switch nothing, and that read back what was written there."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from conformance.guards import at_float32_precision, float32_precision, set_float32_precision
from conformance.incell import Twin, catches, deep, host

pytestmark = host

Switch = Callable[[str], object]


@pytest.fixture(autouse=True)
def _switches_put_back() -> Iterator[None]:
    """What the cases move, beyond what the harness watches."""
    convolutions, had = torch.backends.cudnn.allow_tf32, hasattr(torch.backends, "fp32_precision")
    yield
    if hasattr(torch._C, "_get_fp32_precision_getter"):
        torch.backends.fp32_precision = "none"
    elif hasattr(torch.backends, "fp32_precision") and not had:
        del torch.backends.fp32_precision
    torch.set_float32_matmul_precision("highest")
    torch.backends.cudnn.allow_tf32 = convolutions


def really() -> str:
    """What CUDA's matrix product does, by the switch that it reads."""
    try:
        return "tf32" if torch.backends.cuda.matmul.fp32_precision == "tf32" else "ieee"
    except (AttributeError, AssertionError):
        return "tf32" if torch.backends.cuda.matmul.allow_tf32 else "ieee"


def writes_the_general_switch(precision: str) -> None:
    """An attribute that nobody reads until 2.8, and that an earlier choice for matmul overrules since."""
    torch.backends.fp32_precision = precision  # type: ignore[attr-defined]


@pytest.mark.parametrize("precision", ["tf32", "ieee"])
@catches(writes_the_general_switch, switch=set_float32_precision)
def test_switch_switches(switch: Switch, precision: str) -> None:
    """A float32 precision that is asked for is the one that matrix products use, whatever was chosen before.

    karpathy/nanochat (commit d6c4f3b), huggingface/transformers#42428, pytorch/pytorch#179445. 1.13 to 2.15.
    """
    torch.set_float32_matmul_precision("highest" if precision == "tf32" else "high")
    switch(precision)
    assert really() == precision


def test_general_switch_native(observe: Callable[..., None]) -> None:
    """Writing `torch.backends.fp32_precision = "tf32"` on a fresh process lets matrix products use TF32.

    karpathy/nanochat (commit d6c4f3b). From 1.13 to 2.8 the write makes an attribute, which reads back; it switches since 2.9.
    """
    if hasattr(torch._C, "_get_fp32_precision_getter"):
        torch.backends.cuda.matmul.fp32_precision = "none"  # as in a fresh process
    writes_the_general_switch("tf32")
    observe("reads_back", torch.backends.fp32_precision)
    assert really() == "tf32"


def reads_the_general_switch() -> str:
    """What was written there."""
    return str(getattr(torch.backends, "fp32_precision", "none"))


@pytest.mark.parametrize("earlier", ["highest", "high"])
@catches(reads_the_general_switch, read=float32_precision)
def test_reading_tells_what_is_switched(read: Callable[[], str], earlier: str) -> None:
    """The precision that is read is the one that matrix products use, after choices by either interface.

    pytorch/pytorch#179445. 1.13 to 2.15.
    """
    writes_the_general_switch("ieee" if earlier == "high" else "tf32")
    torch.set_float32_matmul_precision(earlier)
    assert read() == {"highest": "ieee", "high": "tf32"}[earlier]


def writes_the_matmul_switch(precision: str) -> None:
    """The newer interface for matmul: absent until 2.8, and the older one cannot be read afterwards."""
    if not hasattr(torch._C, "_get_fp32_precision_getter"):
        raise AttributeError("this torch has no torch.backends.cuda.matmul.fp32_precision")
    torch.backends.cuda.matmul.fp32_precision = precision


@catches(Twin(writes_the_matmul_switch, "raises"), switch=set_float32_precision)
def test_both_interfaces_stay_readable(switch: Switch) -> None:
    """After the switch, `get_float32_matmul_precision` and `allow_tf32` still answer, and agree with it.

    pytorch/pytorch#189955: once the newer interface chose TF32 both raise, in the compiler too. 1.13 to 2.15.
    """
    switch("tf32")
    assert torch.get_float32_matmul_precision() == "high"
    assert torch.backends.cuda.matmul.allow_tf32


def guesses(word: str) -> None:
    """Whatever is not `ieee` must mean fast."""
    torch.set_float32_matmul_precision("highest" if word == "ieee" else "high")


@pytest.mark.parametrize("word", ["bogus", "TF32", "high"])
@catches(guesses, switch=set_float32_precision)
def test_misspelt_precision_is_refused(switch: Switch, word: str) -> None:
    """A precision that does not exist is refused, and nothing is switched.

    pytorch/pytorch#179445 (read with it). 1.13 to 2.15.
    """
    before = really()
    with pytest.raises(ValueError, match="precision"):
        switch(word)
    assert really() == before


UNKNOWN = """
import torch
torch.set_float32_matmul_precision("tf32")
torch.library.Library("conformance_unknown", "DEF")
print(torch.get_float32_matmul_precision())
"""


@deep
def test_unknown_level_native() -> None:
    """A word that `set_float32_matmul_precision` does not know changes nothing: no precision, and nothing else in the process.

    Observed here in fresh processes: until 2.6 the next `torch.library.Library` takes the word for its dispatch key and raises (as if
    it were written over an empty string that both share); harmless on 2.8 and later. The precision stays as it was on all.
    """
    run = subprocess.run([sys.executable, "-W", "ignore", "-c", UNKNOWN], capture_output=True, text=True, check=False)
    assert (run.returncode, run.stdout.strip()) == (0, "highest")


def test_misspelt_precision_native() -> None:
    """`torch.backends.fp32_precision` refuses a word that it does not know.

    pytorch/pytorch#179445 (read with it). Taken and ignored on 2.9, refused since 2.10.
    """
    if not hasattr(torch._C, "_get_fp32_precision_getter"):
        pytest.skip("this torch has no fp32_precision")
    with pytest.raises((RuntimeError, ValueError)):
        torch.backends.fp32_precision = "bogus"


def test_absent_switch_probed_native() -> None:
    """`hasattr` of a switch that a release lacks says no.

    Observed here: `torch.backends.cuda.matmul` raises AssertionError for unknown names from 1.13 to 2.1, which neither hasattr
    nor a getattr with a default catches; AttributeError since 2.2.
    """
    assert not hasattr(torch.backends.cuda.matmul, "no_such_switch")


def switches_and_forgets(precision: str) -> Any:
    """The switch in place of the block: it stays."""
    set_float32_precision(precision)
    return contextlib.nullcontext()


@catches(switches_and_forgets, block=at_float32_precision)
def test_precision_of_a_block(block: Callable[[str], Any]) -> None:
    """A precision for a block ends with it, an exception included, for products and convolutions.

    pytorch/pytorch#179445. 1.13 to 2.15.
    """
    set_float32_precision("ieee")
    inside = []
    with contextlib.suppress(KeyError), block("tf32"):
        inside += [really(), torch.backends.cudnn.allow_tf32]
        raise KeyError
    assert inside == ["tf32", True]
    assert (really(), torch.backends.cudnn.allow_tf32) == ("ieee", False)
