"""Python between tensor operations: closures, generators, exceptions, numbers. Each must do what Python does."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor

from conformance.incell import catches, requires, uncounted, values
from conformance.instruments.compilation import compiling
from conformance.instruments.compiled_calls import call, check_compiled
from conformance.instruments.replaying import replays_first_program
from conformance.instruments.weights import uniform

pytestmark = [requires("compile"), values, uncounted("what is measured is a compiler")]

Code = Callable[..., Any]
Observe = Callable[..., None]


def _closures(x: Tensor, n: int) -> Tensor:
    w = x.mean()

    def inner(y: Tensor, k: int = 1) -> Tensor:
        return y * k + w

    bound = functools.partial(inner, k=n)
    return (lambda z: bound(z) + inner(z))(x)


def _unpack(x: Tensor, n: int) -> Tensor:
    a, b, c = (x * i for i in range(n, n + 3))
    return a + b * 2 + c * 3


def _grown(x: Tensor, n: int) -> Tensor:
    held = [x.sum()]

    def walk() -> Iterator[Tensor]:
        for item in held:
            if len(held) < n:
                held.append(item + 1)
            yield item

    return torch.stack(list(walk())).sum()


def _nonlocal(x: Tensor, n: int) -> Tensor:
    count = 0

    def step(y: Tensor) -> Tensor:
        nonlocal count
        count += n
        return y + count

    return step(step(x))


def _late_binding(x: Tensor, n: int) -> Tensor:
    steps = [lambda y: y * i + n for i in range(3)]  # noqa: B023  # that all three see the last `i` is what is asked about
    for step in steps:
        x = step(x)
    return x


def _early_return(x: Tensor, n: int) -> Tensor:
    for i in range(5):
        x = x + 1
        if i == n:
            return x * 10
    return x


def _while_else(x: Tensor, n: int) -> Tensor:
    while n > 0:
        n -= 1
        if n == 7:
            break
        x = x + n
    else:
        x = x * 2
    return x


def _try_except(x: Tensor, n: int) -> Tensor:
    try:
        if n > 2:
            raise KeyError(n)
        return x + n
    except KeyError:
        return x * n
    finally:
        n += 1


def _try_missing(x: Tensor, n: int) -> Tensor:
    try:
        return x.this_is_no_attribute
    except AttributeError:
        return x * n


def _try_index(x: Tensor, n: int) -> Tensor:
    try:
        return x.sum(dim=n - 2) + x
    except IndexError:
        return x * n


def _match(x: Tensor, n: int) -> Tensor:
    table = {2: torch.sin, 3: torch.cos}
    return table.get(n, torch.neg)(x)


def _comprehensions(x: Tensor, n: int) -> Tensor:
    nested = [[i * j for j in range(n)] for i in range(n)]
    return x * sum(sum(row) for row in nested) + len({i % 2 for i in range(n)})


def _format(x: Tensor, n: int) -> Tensor:
    return x * len(f"{n:03d}-{n!r}") + int("12"[n % 2])


def _sorted(x: Tensor, n: int) -> Tensor:
    parts = {"b": x * 2, "a": x * n, "c": x}
    return torch.stack([parts[name] for name in sorted(parts, reverse=n > 2)])


def _iterators(x: Tensor, n: int) -> Tensor:
    walk = iter([x, x * 2, x * n])
    first = next(walk)
    return first + sum(i * y for i, y in enumerate(walk, n))


def _reversed(x: Tensor, n: int) -> Tensor:
    walk = reversed([1, 2, n])
    next(walk)
    return x * next(iter(walk)) + n


def _zip_of_one(x: Tensor, n: int) -> Tensor:
    walk = iter([n, 2, 3, 4])
    return x * sum(10 * a + b for a, b in zip(walk, walk))


def _equal_keys(x: Tensor, n: int) -> Tensor:
    table = {1: n, True: 2 * n, 1.0: 3 * n}  # noqa: F601  # that it is one key is what is asked about
    return x * len(table) + table[1]


def _grad_mode_of_a_generator(x: Tensor, n: int) -> Tensor:
    weight = torch.ones_like(x).requires_grad_()

    def walk() -> Iterator[int]:
        with torch.no_grad():
            yield from range(n)

    total = x * n
    for i in walk():
        product = weight * x
        total = total + (i + 1) * int(product.requires_grad)
    return total


def _itertools(x: Tensor, n: int) -> Tensor:
    for a, b in itertools.product(range(n), repeat=2):
        x = x + a * b
    return x * sum(itertools.accumulate(range(n))) + sum(1 for _ in itertools.chain((1, 2), range(n)))


def _math(x: Tensor, n: int) -> Tensor:
    return x * math.sqrt(n) + math.ceil(n / 2) + math.prod(range(1, n))


def _identity(x: Tensor, n: int) -> Tensor:
    a = [1]
    b = a if n > 2 else [1]
    b.append(n)
    return x * len(a) + (1 if a is b else 2)


def _delete(x: Tensor, n: int) -> Tensor:
    held = list(range(n))
    del held[0]
    held[1:1] = [7, 8]
    return x * sum(i * v for i, v in enumerate(held))


def _recursion(x: Tensor, n: int) -> Tensor:
    return x if n == 0 else _recursion(x + n, n - 1)


def _divide(x: Tensor, n: int) -> Tensor:
    return x * (-7 // n) + (-7 % n) + divmod(-7, n)[1] + round(n / 2) + (n << 2)


@functools.cache
def _cached(n: int) -> float:
    return n * 1.5


#: Name -> a function of a tensor and a Python number.
FORMS: dict[str, Code] = {
    "closures": _closures,
    "unpack_generator": _unpack,
    "grown_while_walked": _grown,
    "nonlocal": _nonlocal,
    "late_binding": _late_binding,
    "early_return": _early_return,
    "while_else": _while_else,
    "try_except": _try_except,
    "try_missing_attribute": _try_missing,
    "try_index_error": _try_index,
    "dict_of_functions": _match,
    "comprehensions": _comprehensions,
    "format": _format,
    "sorted_names": _sorted,
    "iterators": _iterators,
    "reversed": _reversed,
    "zip_of_one": _zip_of_one,
    "equal_keys": _equal_keys,
    "grad_mode_of_a_generator": _grad_mode_of_a_generator,
    "itertools": _itertools,
    "math": _math,
    "identity": _identity,
    "delete": _delete,
    "recursion": _recursion,
    "integer_division": _divide,
    "cached_function": lambda x, n: x * _cached(n),
}


@pytest.mark.parametrize("form", FORMS)
@catches(replays_first_program, compiled_by=compiling)
def test_python_does_what_it_does(compiled_by: Code, form: str, device: torch.device, observe: Observe) -> None:
    """Python between tensor operations gives in compiled code what it gives in eager code; what breaks for it is observed.

    pytorch/pytorch#175855 (a list grown while it is walked), pytorch/pytorch#174166 and pytorch/pytorch#198192 (except),
    pytorch/pytorch#196211 (reversed; an iterator that is zipped with itself is the kin), pytorch/pytorch#196173 (identity).
    """
    x = uniform((3,)).to(device)
    check_compiled(FORMS[form], {f"n{n}": (x, n) for n in (2, 3, 5)}, observe, compiled_by=compiled_by)


@contextmanager
def breaks_on_the_way(code: Code, **options: Any) -> Any:
    """The same behind a break."""

    def behind(*arguments: Any) -> Any:
        torch._dynamo.graph_break()
        return code(*arguments)

    with compiling(behind, **options) as pair:
        yield pair


WHOLE = {"closures": _closures, "unpack_generator": _unpack}


@pytest.mark.parametrize("form", WHOLE)
@catches(breaks_on_the_way, compiled_by=compiling)
def test_python_stays_whole(compiled_by: Code, form: str, device: torch.device, observe: Observe) -> None:
    """Nested functions with functools.partial and lambda, and unpacking a generator, are one graph.

    pytorch/pytorch#99609. Closures since 2.3 (2.1: 2 breaks, 2.2: an internal error); the generator since 2.2.
    """
    report = check_compiled(WHOLE[form], {"any": call(uniform((3,)).to(device), 4)}, observe, compiled_by=compiled_by)
    assert (report.graphs, len(report.breaks), len(report.skipped)) == (1, 0, 0)
