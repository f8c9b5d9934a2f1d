"""Record what a subject dispatches in inference, forward, backward and the optimizer's step, and what this build's dispatcher has for it.

`python -m conformance.incell.auditing SETTINGS`: SETTINGS is a JSON file (reference, alias, roots, entered, device, optimizer, keys,
about, leaves_bytecode, out).
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import json
import sys
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch

from conformance.incell import bytecode
from conformance.incell.devices import backend
from conformance.instruments.recording import Recording, recorded
from conformance.instruments.snapshots import tensors_of
from conformance.subjects import get, register
from conformance.subjects.subject import Subject

PHASES = ("inference", "forward", "backward", "step")


def record(subject: Subject, recording: Recording, *, device: str, entered: Iterable[str], optimizer: Callable[[Any], Any]) -> None:
    """Run the subject through its phases on `device`, each recorded; training is left out where nothing wants a gradient."""
    where = torch.device(device)
    inputs = subject.inputs(device=where)
    model = subject.fresh(where) if subject.fresh else subject.build().to(where)
    options: dict[str, Any] = {"device": device, "entered": entered}
    with torch.no_grad(), recorded(recording, "inference", **options):
        model.eval()(*inputs)
    model.train()
    with recorded(recording, "forward", **options):
        output = model(*inputs)
    wanting = [tensor for tensor in tensors_of(output) if tensor.requires_grad]
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    if not wanting or not parameters:
        return
    ones = [torch.ones_like(tensor) for tensor in wanting]
    with recorded(recording, "backward", **options):
        torch.autograd.backward(wanting, ones)
    stepper = optimizer(parameters)
    step = inspect.unwrap(type(stepper).step)  # what torch wraps it in imports the compiler, which takes seconds
    with torch.no_grad(), recorded(recording, "step", **options):
        step(stepper)
        step(stepper)  # the first one makes the state, the second one uses it


def main(path: str) -> None:
    """Carry out the settings in the file at `path`; on meta where that was asked and the subject can, else on the CPU, with the reason."""
    settings = json.loads(Path(path).read_text(encoding="utf-8"))
    sys.path += settings["roots"]
    torch.manual_seed(0)
    torch.set_num_threads(1)
    register(settings["alias"], settings["reference"])
    subject = get(settings["alias"])
    make = _optimizer(settings)
    refused = ""
    for device in dict.fromkeys((settings["device"], "cpu")):
        recording = Recording(settings["roots"])
        try:
            record(subject, recording, device=device, entered=settings["entered"], optimizer=make)
            break
        except Exception as error:
            if device == "cpu":
                raise
            refused = f"{type(error).__name__}: {error}".splitlines()[0]
    _load(settings["about"])
    found = [seen.as_json() for seen in recording]
    names = sorted({seen["op"] for seen in found})
    told = {
        "torch": torch.__version__,
        "device": device,
        "refused": refused,
        "seen": found,
        "declarations": str(Path(torch.__file__).parent.parent / "torchgen/packaged/ATen/native/native_functions.yaml"),
        "dispatcher": {key: dispatcher(names, key) for key in settings["keys"]},
    }
    Path(settings["out"]).write_text(json.dumps(told), encoding="utf-8")
    if settings["leaves_bytecode"]:
        bytecode.leave()


def _load(device: str) -> None:
    """Import what registers the device's kernels, where it is another package than torch and is there."""
    module = backend(device).module
    if module and importlib.util.find_spec(module) is not None:
        importlib.import_module(module)


def dispatcher(names: Iterable[str], key: str) -> dict[str, str]:
    """What this build has for those overloads at a dispatch key, a letter each as in the table of MPS; empty without such a backend."""
    has = torch._C._dispatch_has_kernel_for_dispatch_key
    if not has("aten::mm", key) and not has("aten::mm.out", key):
        return {}
    return {name: _letter(name if "::" in name else f"aten::{name}", key) for name in names}


def _letter(name: str, key: str) -> str:
    has = torch._C._dispatch_has_kernel_for_dispatch_key
    lacking = "f" if key == "XLA" else "n"  # torch-xla runs on the CPU what it has no kernel for, and counts it as `aten::`
    try:
        if has(name, key):
            return "m"
        if has(name, "CompositeExplicitAutograd"):
            return "e"
        if has(name, "CompositeImplicitAutograd") or (key == "XLA" and has(name, "AutogradXLA")):
            return "i"
        if not has(name, "CompositeExplicitAutogradNonFunctional"):
            return lacking
    except RuntimeError:  # a torch function that is no operator
        return "i"
    outs = _out_overloads(name)
    if any(has(out, "CompositeExplicitAutograd") for out in outs):
        return "e"
    return "d" if any(has(out, key) for out in outs) else lacking  # structured: its composite only calls its out overload


def _out_overloads(name: str) -> list[str]:
    namespace, _, rest = name.partition("::")
    operator = rest.partition(".")[0]
    overloads = getattr(getattr(torch.ops, namespace), operator).overloads()
    return [f"{namespace}::{operator}.{overload}" for overload in overloads if "out" in overload]


def _optimizer(settings: dict[str, Any]) -> Callable[[Any], Any]:
    """The function `optimizer(parameters)` beside the subject's builder, else the named class of torch.optim."""
    place = settings["reference"].rpartition(":")[0] or settings["reference"]
    beside = sys.modules.get(f"subject_{Path(place).stem}" if place.endswith(".py") else place)
    own = getattr(beside, "optimizer", None)
    if callable(own):
        return own  # type: ignore[no-any-return]
    kind = getattr(importlib.import_module("torch.optim"), settings["optimizer"])
    adding = getattr(torch.optim.Optimizer.add_param_group, "__wrapped__", None)
    if adding is not None:
        adding.__dynamo_disable = adding  # as torch itself would note it after an import of the compiler
    return lambda parameters: kind(parameters, lr=1e-3)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main(sys.argv[1])
