"""Names that come and go: probes of presence, stubs, exceptions, versions."""

from __future__ import annotations

import importlib
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch

from conformance.guards import find_attribute, release_number
from conformance.incell import Twin, catches, deep, host

pytestmark = host

Find = Callable[[str], Any]

#: The first release that has a name, as observed.
SINCE = {
    "torch.linalg.eigh": (1, 8),
    "torch.inference_mode": (1, 9),
    "torch.nn.functional.scaled_dot_product_attention": (2, 0),
    "torch.func.functional_call": (2, 0),
    "torch.vmap": (2, 0),
    "torch.set_default_device": (2, 0),
    "torch.optim.lr_scheduler.LRScheduler": (2, 0),
    "torch.compiler.disable": (2, 1),
    "torch.export.export": (2, 1),
    "torch.float8_e4m3fn": (2, 1),
    "torch.cpu.synchronize": (2, 1),
    "torch.nn.utils.parametrizations.weight_norm": (2, 1),
    "torch.utils._pytree.register_pytree_node": (2, 2),
    "torch.utils.deterministic": (2, 2),
    "torch.compiler.is_compiling": (2, 3),
    "torch.amp.GradScaler": (2, 3),
    "torch.nn.attention.sdpa_kernel": (2, 3),
    "torch.get_default_device": (2, 3),
    "torch.uint16": (2, 3),
    "torch.nn.functional.rms_norm": (2, 4),
    "torch.nn.RMSNorm": (2, 4),
    "torch.amp.custom_fwd": (2, 4),
    "torch.serialization.add_safe_globals": (2, 4),
    "torch.library.custom_op": (2, 4),
    "torch.nn.attention.flex_attention.flex_attention": (2, 5),
    "torch.optim.Adafactor": (2, 5),
    "torch.nn.Buffer": (2, 5),
    "torch.distributed.tensor.DTensor": (2, 5),
    "torch.accelerator.current_accelerator": (2, 6),
    "torch.compiler.set_stance": (2, 6),
    "torch.distributed.fsdp.fully_shard": (2, 6),
    "torch.compiler.is_exporting": (2, 7),
    "torch.float8_e8m0fnu": (2, 7),
    "torch.float4_e2m1fn_x2": (2, 8),
    "torch.optim.Muon": (2, 9),
    "torch.backends.fp32_precision": (2, 9),
    "torch.nn.functional.grouped_mm": (2, 10),
    "torch.nn.functional.scaled_mm": (2, 10),
    "torch.nn.attention.varlen": (2, 10),
}
#: Names that went: first release with, and first release without.
GONE = {
    "torch._six": ((1, 0), (2, 0)),
    "torch.distributed.pipeline": ((1, 8), (2, 4)),
    "torch.onnx.dynamo_export": ((2, 1), (2, 9)),
    "torch._export.capture_pre_autograd_graph": ((2, 1), (2, 7)),
}


def asks_for_a_dotted_name(path: str) -> Any:
    """`hasattr(torch, "nn.functional")` is False: an attribute has no dots."""
    return getattr(torch, path.split(".", 1)[1], None)


@catches(asks_for_a_dotted_name, look=find_attribute)
def test_names_appear_as_tabled(look: Find, observe: Callable[..., None]) -> None:
    """Each of 43 names is there from its first release on, and gone from its last.

    Observed here on 1.13 to 2.15. A submodule may need an import, and that import may fail with ValueError (torch.distributed.fsdp of
    1.13 on Python 3.11).
    """
    here = release_number()
    expected = {path: here >= first for path, first in SINCE.items()}
    expected.update({path: first <= here < last for path, (first, last) in GONE.items()})
    found = {path: look(path) is not None for path in expected}
    observe("present", ", ".join(sorted(path for path in found if found[path])))
    assert found == expected


def catches_import_error_alone(path: str) -> Any:
    """A missing attribute is no ImportError, and a broken import may be anything."""
    owner, _, name = path.rpartition(".")
    try:
        return getattr(importlib.import_module(owner), name)
    except ImportError:
        return None


@catches(Twin(catches_import_error_alone, "raises"), look=find_attribute)
def test_absence_is_no_exception(look: Find) -> None:
    """A name that is not there is None: in a module that is there, and below one that is not.

    explosion/thinc#615 (the pattern). 1.13 to 2.15.
    """
    assert look("torch.no_such_module.name") is None
    assert look("torch.amp.NoSuchName") is None


def compare_numbers(version: str, floor: tuple[int, int]) -> bool:
    """The guard."""
    return release_number(version) >= floor


def compares_text(version: str, floor: tuple[int, int]) -> bool:
    """Letter by letter "2.10" comes before "2.4"."""
    return version >= f"{floor[0]}.{floor[1]}"


def compares_floats(version: str, floor: tuple[int, int]) -> bool:
    """2.10 is 2.1."""
    return float(".".join(version.split(".")[:2])) >= float(f"{floor[0]}.{floor[1]}")


def compares_torch_versions(version: str, floor: tuple[int, int]) -> bool:
    """By the rules of packaging a build of main comes before its release, and a local label after it."""
    return bool(torch.torch_version.TorchVersion(version) >= f"{floor[0]}.{floor[1]}")


def splits_all(version: str, floor: tuple[int, int]) -> bool:
    """Every part a number: until there is a `0a0+git` among them."""
    return tuple(int(part) for part in version.split(".")) >= floor


@catches(compares_text, compares_floats, compares_torch_versions, Twin(splits_all, "raises"), at_least=compare_numbers)
def test_versions_compare_as_numbers(at_least: Callable[..., bool]) -> None:
    """Versions compare by their numbers: 2.10 is after 2.9, and builds of main count as their release.

    Observed here: `str(torch.__version__) >= "2.10"` is True from 2.2 on. 1.13 to 2.15.
    """
    told = {version: at_least(version, (2, 4)) for version in ("1.13.1", "2.3.1+cu121", "2.4.0a0+git1234", "2.4.1", "2.10.0+cpu", "2.15.0")}
    assert list(told.values()) == [False, False, True, True, True, True]
    assert at_least("2.10.0", (2, 9))
    assert not at_least("2.9.1", (2, 10))


@pytest.mark.parametrize("comparison", ["text", "torch_version"])
def test_own_version_native(comparison: str) -> None:
    """The version at hand is not after 2.10 unless it is.

    `torch.__version__` compares by numbers, as a text it does not: wrong from 2.2 to 2.9, right before, and since 2.10, by luck.
    """
    version: Any = torch.__version__ if comparison == "torch_version" else str(torch.__version__)
    assert bool(version >= "2.10") == (release_number() >= (2, 10))


FRESH = "import torch; before = hasattr(torch, '{0}'); {1}; print(before, hasattr(torch, '{0}'))"


def _in_a_fresh_process(name: str, then: str) -> list[str]:
    command = [sys.executable, "-W", "ignore", "-c", FRESH.format(name, then)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()


@deep
def test_probe_before_an_import_native() -> None:
    """`hasattr(torch, "_dynamo")` answers alike before and after somebody imported it.

    Observed here in fresh processes: False, then True on 2.0; steady since 2.1, where torch loads it on demand. 1.13 has none.
    """
    before, after = _in_a_fresh_process(
        "_dynamo", "__import__('importlib').util.find_spec('torch._dynamo') and __import__('torch._dynamo')"
    )
    assert before == after


def read_upper_half(matrix: torch.Tensor) -> torch.Tensor:
    """The successor, told which half holds the numbers."""
    return torch.linalg.eigvalsh(matrix, UPLO="U")


def reads_the_other_half(matrix: torch.Tensor) -> torch.Tensor:
    """The successor's default is the lower half, the predecessor's was the upper."""
    return torch.linalg.eigvalsh(matrix)


@catches(reads_the_other_half, eigenvalues=read_upper_half)
def test_eigenvalues_of_an_upper_half(eigenvalues: Callable[..., torch.Tensor]) -> None:
    """Eigenvalues of a symmetric matrix stored in its upper half are those of the whole, by the name that every release has.

    Observed here, in the message of the stub that is left: `torch.symeig` read the upper half, `torch.linalg.eigh` reads the lower.
    1.13 to 2.15.
    """
    torch.testing.assert_close(eigenvalues(torch.tensor([[2.0, 1.0], [0.0, 2.0]])), torch.tensor([1.0, 3.0]))


def test_name_that_is_a_stub_native() -> None:
    """What `hasattr(torch, "symeig")` promises, a call keeps.

    Observed here: the name is there from 1.13 to 2.15, and raises since 2.0.
    """
    matrix = torch.tensor([[2.0, 1.0], [1.0, 2.0]])
    found = torch.symeig(matrix)[0] if hasattr(torch, "symeig") else torch.linalg.eigvalsh(matrix)
    torch.testing.assert_close(found, torch.tensor([1.0, 3.0]))
