"""A subject from a reference: `package.module:build`, `path/to/file.py:build`, `transformers:LlamaModel`, `timm:resnet18`, `nanochat:gpt`.

What the reference names is a Subject, or a function, class or module that gives an `nn.Module`, alone or with example inputs. What stands
beside it in the same module is used by its name: `inputs` (a function whose integer parameters are sizes, a dict of functions by variation,
or the inputs themselves), `axes`, `bounds`, and what subjects/parts.py says: `init`, `loss`, `optimizer`, `tolerance`.
"""

from __future__ import annotations

import copy
import functools
import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import nn

from conformance.guards.initialisation import reset_all
from conformance.instruments import weights
from conformance.instruments.draws import drawn_from
from conformance.instruments.generalization import difference_of
from conformance.instruments.models import blame_first
from conformance.instruments.repetition import why_another
from conformance.instruments.snapshots import tensors_of
from conformance.instruments.zeroed import Zeroed
from conformance.subjects import adapters, parts, variations
from conformance.subjects.keywords import Named
from conformance.subjects.parts import SubjectError
from conformance.subjects.subject import Axes, Inputs, Subject, on_meta

#: Names beside the reference that give a module's inputs, the first one found wins.
_INPUTS = ("inputs", "example_inputs", "get_inputs", "dummy_inputs")


def load(alias: str, reference: str) -> Subject:
    """The subject that `reference` names, under `alias`. What the user's code raises gets out as it is."""
    beside, target = adapters.find(reference) or locate(reference)
    if isinstance(target, Subject):
        return replace(target, alias=alias)
    own = parts.of(beside, reference)
    make = _maker(target, reference)
    with Zeroed(), drawn_from(0):
        model, given = _split(make(), reference)
    makers, axes = _variations(model, given, beside, reference)
    _check_answer(model, next(iter(makers.values()))(), reference)
    build = functools.partial(_filled, make, reference)
    return Subject(
        alias=alias,
        build=build,
        rebuild=functools.partial(build, seed=1),
        variations=makers,
        skeleton=lambda: on_meta(lambda: _split(make(), reference)[0]),
        initialise=own.init or _own_init(model),
        axes=axes or None,
        fresh=lambda device: _split(make(), reference)[0].to(device),
        resize=functools.partial(variations.resized, next(iter(makers.values()))(), axes) if axes else None,
        bounds=_bounds(getattr(beside, "bounds", None), makers),
        loss=own.loss,
        optimizer=own.optimizer,
        tolerance=own.tolerance,
    )


def locate(reference: str) -> tuple[ModuleType, Any]:
    """The module and the object of `module:object` or `file.py:object`; the object is `build` where none is named."""
    place, _, path = reference.partition(":") if not reference.endswith(".py") else (reference, "", "")
    module = _from_file(place) if place.endswith(".py") else importlib.import_module(place)
    target: Any = module
    for name in (path or "build").split("."):
        if not hasattr(target, name):
            known = sorted(each for each in vars(target) if not each.startswith("_")) if hasattr(target, "__dict__") else []
            raise SubjectError(f"{place} has no {path or 'build'!r}; it has {', '.join(known[:20]) or 'nothing public'}")
        target = getattr(target, name)
    return module, target


def _from_file(path: str) -> ModuleType:
    name = f"subject_{Path(path).stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None or not Path(path).is_file():
        raise SubjectError(f"there is no Python file at {path}")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def _maker(target: Any, reference: str) -> Callable[[], Any]:
    if isinstance(target, nn.Module):
        return lambda: copy.deepcopy(target)
    if not callable(target):
        raise SubjectError(f"{reference} is a {type(target).__name__}: give a function that returns an nn.Module, or such a class")
    wanted = [
        name
        for name, parameter in inspect.signature(target).parameters.items()
        if parameter.default is parameter.empty and parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
    ]
    if wanted:
        raise SubjectError(f"{reference} wants {', '.join(wanted)}: give a function without arguments that builds the model small")
    return target


def _split(made: Any, reference: str) -> tuple[nn.Module, Any]:
    """The module and the inputs that came with it, None where none did."""
    model, given = made if isinstance(made, tuple) and len(made) == 2 else (made, None)
    if not isinstance(model, nn.Module):
        raise SubjectError(f"{reference} gave a {type(model).__name__}, not an nn.Module or a pair of one and its example inputs")
    if isinstance(given, Mapping):
        return Named(model, tuple(given)), tuple(given.values())
    return model, given


def _filled(make: Callable[[], Any], reference: str, seed: int = 0) -> nn.Module:
    """The module in eval mode on the CPU, its weights filled without a random stream; what else it draws is drawn from `seed`."""
    with Zeroed(), drawn_from(seed):
        model, _ = _split(make(), reference)
    return weights.fill(model).eval()


def _variations(model: nn.Module, given: Any, beside: Any, reference: str) -> tuple[dict[str, variations.Maker], Axes]:
    if given is None:
        given = next((getattr(beside, name) for name in _INPUTS if hasattr(beside, name)), None)
    runnable = weights.fill(model).eval()
    if callable(given):
        makers = variations.accepted(runnable, variations.of_function(given))
        return makers, variations.function_axes(makers, given)
    if isinstance(given, Mapping):
        return {str(name): _made(maker) for name, maker in given.items()}, {}
    if given is None:
        if any(parameter.default is parameter.empty for parameter in inspect.signature(model.forward).parameters.values()):
            raise SubjectError(
                f"{reference} takes inputs that nobody gave: return (module, example_inputs), or put a function "
                f"`inputs(batch=2, length=8)` beside it that returns the arguments of forward"
            )
        return {"example": tuple}, {}
    example = variations.as_inputs(given)
    axes: Axes = getattr(beside, "axes", None) or variations.infer_axes(example)
    return variations.accepted(runnable, variations.of_example(example, axes)), axes


@torch.no_grad()
def _check_answer(model: nn.Module, inputs: Inputs, reference: str) -> None:
    """Whatever is compared later needs an answer that holds tensors and is the same when it is asked for again."""
    first, second = model(*inputs), model(*inputs)
    if next(tensors_of(first), None) is None:
        raise SubjectError(f"{reference} gives no tensor: forward returned {type(first).__name__}")
    difference = difference_of(first, second)
    if difference:
        reason, lines = why_another(model, inputs)
        error = SubjectError(f"{reference} gives another answer when it is asked again, in eval mode ({difference}): {reason}")
        blame_first(error, lines)
        raise error


def _bounds(given: dict[str, tuple[int, int]] | None, makers: Mapping[str, variations.Maker]) -> dict[str, tuple[int, int]] | None:
    """The bounds that were given; an axis whose size eager code does not take at 1 begins at 2."""
    if given is None:
        return None
    return {name: (low if low > 1 or f"{name}1" in makers else 2, high) for name, (low, high) in given.items()}


def _made(maker: Any) -> variations.Maker:
    return lambda: variations.as_inputs(maker() if callable(maker) else maker)


def _own_init(model: nn.Module) -> Callable[[nn.Module], None]:
    """The init that the model brings: a method `init_weights` without arguments, else each part's own `reset_parameters`."""
    for name in ("init_weights", "initialize_weights", "_init_weights"):
        method = getattr(model, name, None)
        if callable(method) and not _wanted(method):
            return lambda module: getattr(module, name)()
    return reset_all


def _wanted(method: Callable[..., Any]) -> list[str]:
    parameters = inspect.signature(method).parameters.values()
    return [each.name for each in parameters if each.default is each.empty and each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)]
