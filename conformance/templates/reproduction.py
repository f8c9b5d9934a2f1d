"""How a single-file reproduction runs its case and says which of two answers this torch gives."""

from __future__ import annotations

import contextlib
import sys
import traceback
from typing import Any

import torch

#: What is compared: the observation of this name, or the verdict where it is empty.
OBSERVATION = ""
#: Who answers so, and the answer: a release each, or what the case asks for and a release that does not do it.
BEFORE, AFTER = ("", ""), ("", "")
OBSERVED: dict[str, Any] = {}


def described(value: Any, better: str | None) -> Any:
    """Stands for the matrix's own description of an observed value."""


def lacking() -> str:
    """Stands for what the case requires."""
    return ""


def case() -> None:
    """Stands for the call of the case."""


# ---- how it is run


class SkippedError(Exception):
    """Stands for what a case raises that cannot run here."""


def observe(name: str, value: Any, better: str | None = None) -> None:
    """Keep what the case observes, as the matrix describes it."""
    OBSERVED[name] = described(value, better)


@contextlib.contextmanager
def stage(name: str) -> Any:
    """A case says how far it came; here nobody listens."""
    yield


def outcome() -> tuple[str, str]:
    """The verdict of the case, and why."""
    reason = lacking()
    if reason:
        return "unsupported", reason
    try:
        case()
    except SkippedError as error:
        return "unsupported", str(error)
    except Exception as error:
        traceback.print_exc()
        innermost = traceback.extract_tb(error.__traceback__)[-1].filename
        ours = innermost == __file__ or "torch/testing" in innermost.replace("\\", "/")
        return "wrong" if isinstance(error, AssertionError) and ours else "raises", f"{type(error).__name__}: {error}"
    return "pass", ""


def told(observed: Any) -> str:
    """An observation as one word: the digest of a tensor, else the value."""
    return str(observed.get("digest") or observed.get("value"))


def main() -> int:
    """Run the case, print what it came to; 0 as the first of the two, 1 as the second, 2 as neither."""
    torch.set_num_threads(1)
    verdict, reason = outcome()
    print(f"torch {torch.__version__}: {verdict}" + (f": {reason.splitlines()[0]}" if reason else ""))
    for name, observed in sorted(OBSERVED.items()):
        print(f"  {name} = {told(observed)}")
    absent = f"none ({verdict})"
    found = (told(OBSERVED[OBSERVATION]) if OBSERVATION in OBSERVED else absent) if OBSERVATION else verdict
    for code, (who, value) in enumerate((BEFORE, AFTER)):
        if found == value:
            print(f"as {who}")
            return code
    print(f"as neither: not {BEFORE[1]} as {BEFORE[0]}, not {AFTER[1]} as {AFTER[0]}")
    return 2


if __name__ == "__main__":
    sys.exit(main())
