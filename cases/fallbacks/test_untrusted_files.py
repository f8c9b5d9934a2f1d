"""Loading files of others: no code of theirs runs, and a refusal names what was asked for."""

from __future__ import annotations

import argparse
import io
import pathlib
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch

from conformance.guards import CheckpointError, load_checkpoint
from conformance.incell import catches, host

pytestmark = host

Load = Callable[[Any], Any]


def saved(content: object, archive: bool = True) -> io.BytesIO:
    """What torch.save writes, ready to be read: an archive, or the format from before 1.6."""
    file = io.BytesIO()
    torch.save(content, file, _use_new_zipfile_serialization=archive)
    file.seek(0)
    return file


RAN: list[str] = []


def leave_a_trace(text: str) -> str:
    """What a file's code does here: it says that it ran."""
    RAN.append(text)
    return text


class Loaded:
    """Pickled as a call."""

    def __reduce__(self) -> tuple[Any, ...]:
        return leave_a_trace, ("ran",)


def trusts_any_file(file: Any) -> Any:
    """The default until 2.5, and what an error message advises since."""
    return torch.load(file, weights_only=False)


@pytest.mark.parametrize("archive", [True, False], ids=["archive", "older_format"])
@catches(trusts_any_file, load=load_checkpoint)
def test_no_code_of_a_file_runs(load: Load, archive: bool) -> None:
    """A file that holds a call is refused with a CheckpointError that names the function, which has not run.

    pytorch/pytorch#52596. 1.13 to 2.15.
    """
    RAN.clear()
    refused: list[str] = []
    try:
        load(saved({"weight": torch.ones(2), "bias": Loaded()}, archive))
    except CheckpointError as error:
        refused = error.refused
    assert RAN == []
    assert len(refused) == 1
    assert refused[0].endswith("leave_a_trace")


def load_with_allowance(file: Any) -> Any:
    """The guard, told what to take."""
    return load_checkpoint(file, allow=[argparse.Namespace])


def takes_what_is_left(file: Any) -> Any:
    """Arguments of another run replaced by empty ones when they do not load."""
    try:
        return load_checkpoint(file)
    except pickle.UnpicklingError:
        return {"args": argparse.Namespace()}


@catches(takes_what_is_left, load=load_with_allowance)
def test_allowed_class_loads(load: Load) -> None:
    """A class that the caller allows comes back with its content; without, the refusal names it.

    huggingface/transformers#40500 (the same of numpy). torch refuses argparse.Namespace by default since 2.6. 1.13 to 2.15.
    """
    content = {"args": argparse.Namespace(lr=0.1, layers=[1, 2])}
    with pytest.raises(CheckpointError, match=r"argparse\.Namespace"):
        load_checkpoint(saved(content))
    assert load(saved(content))["args"] == content["args"]


def loads_with_a_growing_list(file: Any) -> Any:
    """What was allowed once is allowed for good."""
    return load_checkpoint(file, allow=[pathlib.PurePosixPath])


@catches(loads_with_a_growing_list, load=load_checkpoint)
def test_allowance_ends_with_the_call(load: Load) -> None:
    """What one call allows, the next one refuses: no list of the process grows.

    huggingface/accelerate#3036 takes its own off by hand. 1.13 to 2.15.
    """
    content = {"path": pathlib.PurePosixPath("a")}
    assert load_checkpoint(saved(content), allow=[pathlib.PurePosixPath]) == content
    with pytest.raises(CheckpointError):
        load(saved(content))


class Refusing(pickle.Unpickler):
    """An unpickler that builds no class: the way that Python's documentation shows to restrict a file."""

    def find_class(self, module: str, name: str) -> Any:
        """Refuse."""
        raise pickle.UnpicklingError(f"{module}.{name} is refused")


class RefusingModule:
    """What `torch.load` takes as pickle_module."""

    Unpickler = Refusing

    @staticmethod
    def load(file: Any, **options: Any) -> Any:
        """As pickle.load."""
        return Refusing(file, **options).load()


def test_pickle_module_native() -> None:
    """`torch.load(file, pickle_module=...)` reads the file with the unpickler that it is given.

    Observed here: 1.13 ignores it in silence and runs the file's code by Python's own; used since 2.0.
    """
    RAN.clear()
    with pytest.raises(pickle.UnpicklingError):
        torch.load(saved(Loaded()), pickle_module=RefusingModule, weights_only=False)
    assert RAN == []
