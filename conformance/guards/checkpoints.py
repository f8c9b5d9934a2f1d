"""Loading checkpoints without running code of theirs, with the same answer on every release."""

from __future__ import annotations

import collections
import functools
import importlib
import io
import pickle
import re
from collections.abc import Iterable
from typing import Any

import torch

#: Plain data that Python pickles by name, and that torch's own list lacks on some releases.
_PLAIN: dict[str, Any] = {
    "builtins.set": set,
    "builtins.frozenset": frozenset,
    "builtins.complex": complex,
    "builtins.bytearray": bytearray,
    "collections.OrderedDict": collections.OrderedDict,
    "collections.Counter": collections.Counter,
    "torch.device": torch.device,
    "torch.Size": torch.Size,
    **{f"torch.{name}": value for name, value in vars(torch).items() if isinstance(value, torch.dtype)},
}


class CheckpointError(pickle.UnpicklingError):
    """The file asks for classes or functions that nobody allowed; `refused` names them."""

    def __init__(self, refused: Iterable[str]) -> None:
        self.refused = sorted(set(refused))
        names = ", ".join(self.refused) or "something that its message does not name"
        super().__init__(f"this checkpoint asks for {names}; if you trust the file, allow it: load_checkpoint(file, allow=[...])")


def load_checkpoint(file: Any, map_location: Any = "cpu", allow: Iterable[Any] = ()) -> Any:
    """What `torch.save` wrote to `file`: tensors, states of optimizers and schedulers, RNG states, numpy arrays and scalars, plain data.

    Anything else is refused with a CheckpointError that names it, unless it is in `allow`: classes or functions, or pairs of
    one and the full name that the file has for it. No code of the file runs. Tensors go to `map_location`.

    `torch.load` runs a file's code by default until 2.5, and from 2.6 refuses numpy (huggingface/transformers#40500). From 2.6
    this is torch's own `weights_only` with a longer list; until 2.5, whose own one cannot build numpy arrays or sets, a
    restricted unpickler with the same list.
    """
    allowed = {**_PLAIN, **_numpy(), **dict(map(_named, allow))}
    if hasattr(torch.serialization, "get_unsafe_globals_in_checkpoint"):
        return _load_natively(file, map_location, allowed)
    known = importlib.import_module("torch._weights_only_unpickler")._get_allowed_globals()
    return _load_restricted(file, map_location, {**known, **allowed})


def _named(allowed: Any) -> tuple[str, Any]:
    if isinstance(allowed, tuple):
        return allowed[1], allowed[0]
    return f"{allowed.__module__}.{allowed.__qualname__}", allowed


def _numpy() -> dict[str, Any]:
    """What numpy's arrays, scalars and RNG states are pickled by, under the names of numpy 1 and of numpy 2."""
    try:
        import numpy
    except ImportError:
        return {}
    core = getattr(numpy, "_core", None) or numpy.core
    found: dict[str, Any] = {"numpy.ndarray": numpy.ndarray, "numpy.dtype": numpy.dtype, "_codecs.encode": _encode}
    for home in ("numpy.core.multiarray", "numpy._core.multiarray"):
        found[f"{home}._reconstruct"] = core.multiarray._reconstruct
        found[f"{home}.scalar"] = core.multiarray.scalar
    for letter in "?bBhHiIlLqQefdFDSU":
        kind = type(numpy.dtype(letter))  # dtypes are built by their own classes
        found[f"{kind.__module__}.{kind.__qualname__}"] = kind
    return found


def _encode(text: str, encoding: str) -> bytes:
    """How bytes are pickled by protocol 2."""
    if encoding != "latin1":
        raise CheckpointError([f"_codecs.encode({encoding!r})"])
    return text.encode("latin1")


def _load_natively(file: Any, map_location: Any, allowed: dict[str, Any]) -> Any:
    with torch.serialization.safe_globals([(thing, name) for name, thing in allowed.items()]):
        try:
            return torch.load(file, map_location=map_location, weights_only=True)
        except pickle.UnpicklingError as error:
            raise CheckpointError(_refused(file, error)) from error


def _refused(file: Any, error: pickle.UnpicklingError) -> list[str]:
    """All that the file asks for and nobody allowed; what the message names, where the file cannot be read again."""
    try:
        if hasattr(file, "seek"):
            file.seek(0)
        found = torch.serialization.get_unsafe_globals_in_checkpoint(file)
    except (RuntimeError, ValueError, OSError):
        found = []
    return found or re.findall(r"GLOBAL (\S+) was not", str(error))


def _restricted(allowed: dict[str, Any]) -> Any:
    """A stand-in for the module pickle that builds what is allowed and nothing else."""

    class Unpickler(pickle.Unpickler):
        def find_class(self, module: str, name: str) -> Any:
            full = f"{'builtins' if module == '__builtin__' else module}.{name}"
            if full not in allowed:
                raise CheckpointError([full])
            return allowed[full]

    return _pickle_module(Unpickler)


def _pickle_module(unpickler: type[pickle.Unpickler]) -> Any:
    return type("restricted", (), {"Unpickler": unpickler, "load": staticmethod(lambda file, **options: unpickler(file, **options).load())})


def _load_restricted(file: Any, map_location: Any, allowed: dict[str, Any]) -> Any:
    stand_in = _restricted(allowed)
    if _pickle_module_is_used():
        return torch.load(file, map_location=map_location, pickle_module=stand_in, weights_only=False)
    plain, torch.serialization.pickle = torch.serialization.pickle, stand_in
    try:
        return torch.load(file, map_location=map_location, weights_only=False)
    finally:
        torch.serialization.pickle = plain


@functools.lru_cache(maxsize=1)
def _pickle_module_is_used() -> bool:
    """1.13 takes an argument `pickle_module` and loads with Python's own pickle all the same."""
    used = []

    class Probe(pickle.Unpickler):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            used.append(True)
            super().__init__(*arguments, **options)

    file = io.BytesIO()
    torch.save({}, file)
    file.seek(0)
    torch.load(file, pickle_module=_pickle_module(Probe), weights_only=False)
    return bool(used)
