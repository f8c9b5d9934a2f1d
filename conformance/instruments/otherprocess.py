"""The initial weights of a subject in another process, whose strings have other hashes: what a set's order decides differs there."""

from __future__ import annotations

import json
import os
import sys
from typing import Any

import torch

from conformance.guards import materialise
from conformance.incell.observations import describe_tensor
from conformance.incell.registered import REGISTERED, register
from conformance.incell.torchstate import seed_all
from conformance.instruments import children, poison

#: Begins the one line of the child's output that is ours; the user's code may print.
_MARK = "conformance initial bits: "
#: The child imports torch and builds a small model, which takes it seconds; a CUDA build of torch reserves much address space.
_LIMIT = children.Limit(seconds=120.0, megabytes=400_000)
#: Names in an error of the child that is told.
_LAST = 3


def initial_bits(subject: Any) -> dict[str, str]:
    """A digest of each parameter and buffer, of the model as it is built under seed 0, and as its init writes it under seed 0."""
    cpu, found = torch.device("cpu"), {}
    for way, make in (("built", _built), ("initialised", _initialised)):
        seed_all(0, "cpu")
        model = make(subject, cpu)
        if model is not None:
            named = [*model.named_parameters(), *model.named_buffers()]
            found.update({f"{name} ({way})": str(describe_tensor(tensor)["digest"]) for name, tensor in named})
    return found


def _built(subject: Any, device: torch.device) -> Any:
    return subject.fresh(device) if subject.fresh else None


def _initialised(subject: Any, device: torch.device) -> Any:
    """What the init forgets holds one number, and is another check's affair."""
    if subject.skeleton is None or subject.initialise is None:
        return None
    model = poison.fill(materialise(subject.skeleton(), device), 1)
    seed_all(0, "cpu")
    subject.initialise(model)
    return model


def bits_elsewhere(alias: str) -> dict[str, str]:
    """`initial_bits` of the subject `alias` in a new process with another PYTHONHASHSEED. Raises RuntimeError with its last words."""
    other = "2" if os.environ.get("PYTHONHASHSEED") == "1" else "1"
    variables = {"PYTHONHASHSEED": other, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-m", __name__, alias, REGISTERED.get(alias, "")]
    ended = children.run(command, _LIMIT, "building the model in another process", variables)
    told = [line for line in ended.out.splitlines() if line.startswith(_MARK)]
    if not told:
        last = " / ".join(ended.err.strip().splitlines()[-_LAST:])
        raise RuntimeError(f"another process did not build the model: {last}")
    bits: dict[str, str] = json.loads(told[-1][len(_MARK) :])
    return bits


def _main(alias: str, reference: str) -> None:
    from conformance import subjects

    if reference:
        register(alias, reference)
    print(f"\n{_MARK}{json.dumps(initial_bits(subjects.get(alias)))}")


if __name__ == "__main__":
    _main(*sys.argv[1:])
