"""Which operators each OpInfo of the installed release dispatches, forward and backward, over its own samples.

`python -m conformance.incell.opinfo_recording SETTINGS`: SETTINGS is a JSON file (entered, dtype, samples, out).
"""

from __future__ import annotations

import itertools
import json
import sys
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch.utils._pytree import tree_flatten

from conformance.instruments.dispatching import WIDE
from conformance.instruments.recording import Recording, Seen, recorded


def recordings(dtype: torch.dtype, entered: Iterable[str], most: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """Name of each OpInfo that takes `dtype` on the CPU, with what at most `most` of its samples dispatched in each phase.

    Of an operator: its name, phase, the composites around it, flags, how often it ran, and in which samples.
    """
    from torch.testing._internal.common_methods_invocations import op_db

    for op in op_db:
        if dtype in op.supported_dtypes("cpu") and not op.name.startswith("jiterator"):
            yield op.name + op.variant_test_name, _recorded(op, dtype, frozenset(entered), most)


def _recorded(op: Any, dtype: torch.dtype, entered: frozenset[str], most: int) -> dict[str, Any]:
    recording = Recording(None)
    samples: dict[tuple[str, ...], list[int]] = {}
    done, failed = 0, ""
    torch.manual_seed(0)
    try:
        for sample in itertools.islice(op.sample_inputs("cpu", dtype, requires_grad=_differentiable(op, dtype)), most):
            if not _asks_for_wide(sample):
                before = _counts(recording)
                _run(op, sample, recording, entered)
                for key, count in _counts(recording).items():
                    if count > before.get(key, 0):
                        samples.setdefault(key, []).append(done)
                done += 1
    except Exception as error:
        failed = f"{type(error).__name__}: {error}"[:200]
    seen = [[each.op, each.phase, list(each.inside), sorted(each.flags), each.count, samples.get(_key(each), [])] for each in recording]
    return {"aten": op.aten_name or op.name, "samples": done, "failed": failed, "seen": seen}


def _counts(recording: Recording) -> dict[tuple[str, ...], int]:
    return {_key(each): each.count for each in recording}


def _key(seen: Seen) -> tuple[str, ...]:
    return (seen.phase, seen.op, *seen.inside)


def _run(op: Any, sample: Any, recording: Recording, entered: frozenset[str]) -> None:
    with recorded(recording, "forward", entered=entered):
        result = op(sample.input, *sample.args, **sample.kwargs)
    if sample.output_process_fn_grad is not None:
        result = sample.output_process_fn_grad(result)
    wanting = [each for each in _tensors(result) if each.requires_grad and each.is_floating_point()]
    if wanting:
        ones = [torch.ones_like(each) for each in wanting]
        with recorded(recording, "backward", entered=entered):
            torch.autograd.backward(wanting, ones)


def _differentiable(op: Any, dtype: torch.dtype) -> bool:
    return bool(op.supports_autograd and dtype in op.supported_backward_dtypes("cpu"))


def _asks_for_wide(sample: Any) -> bool:
    """Whether a sample asks for float64 by name: upstream's samples for MPS never do."""
    return any(leaf in WIDE for leaf in tree_flatten([sample.args, sample.kwargs])[0] if isinstance(leaf, torch.dtype))


def _tensors(tree: Any) -> list[torch.Tensor]:
    return [leaf for leaf in tree_flatten(tree)[0] if isinstance(leaf, torch.Tensor)]


def main(path: str) -> None:
    """Carry out the settings in the file at `path`."""
    settings = json.loads(Path(path).read_text(encoding="utf-8"))
    torch.set_num_threads(1)
    found = dict(recordings(getattr(torch, settings["dtype"]), settings["entered"], settings["samples"]))
    Path(settings["out"]).write_text(json.dumps({"torch": torch.__version__, "ops": found}), encoding="utf-8")


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main(sys.argv[1])
