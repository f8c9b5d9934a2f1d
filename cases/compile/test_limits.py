"""The recompile limit, and the ways to make recompilation loud."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from conformance.guards.compiling import no_recompiles, recompile_limit
from conformance.incell import catches, requires, uncounted
from conformance.instruments.compilation import compiling, has_dynamo_config

pytestmark = [requires("compile"), uncounted("what is measured is a compiler")]

Code = Callable[..., Any]
Observe = Callable[..., None]

LIMITS = ("recompile_limit", "cache_size_limit")
#: What a refusal says, on any release.
LOUD = "limit|fullgraph"


def add(x: Tensor) -> Tensor:
    """One operation; each number of dimensions is a graph of its own."""
    return x + 1


def _call_with_ranks(compiled: Code, ranks: range, device: torch.device) -> None:
    for rank in ranks:
        x = torch.ones([2] * rank, device=device)
        assert compiled(x).shape == x.shape


def set_limit(limit: int) -> Any:
    """By the guard, which knows the name."""
    return recompile_limit(limit)


def trusts_the_default(limit: int) -> Any:
    """Set nothing."""
    return contextlib.nullcontext()


@catches(trusts_the_default, limit_to=set_limit)
def test_limit_is_kept(limit_to: Code, device: torch.device, observe: Observe) -> None:
    """Past the recompile limit a frame runs in eager code, right and in silence: 3 graphs for 6 ranks under a limit of 3.

    pytorch/pytorch#114511, pytorch/pytorch#177936. By default 64 on 2.0 and 2.1, then 8; named cache_size_limit until 2.6,
    recompile_limit since 2.7.
    """
    from torch._dynamo import config

    name = next(name for name in LIMITS if has_dynamo_config(name))
    observe("limit", f"{name}={getattr(config, name)}")
    with limit_to(3), compiling(add, dynamic=False) as (compiled, report):
        _call_with_ranks(compiled, range(1, 7), device)
    observe("graphs", report.graphs)
    assert report.graphs == 3


def compile_with_default_limit(code: Code) -> Any:
    """As it is set."""
    return compiling(code, dynamic=False)


def compiles_dynamic(code: Code) -> Any:
    """Compile nothing at all: no limit is met."""
    return compiling(code, disable=True)


@catches(compiles_dynamic, compiled_by=compile_with_default_limit)
def test_default_limit_is_soft(compiled_by: Code, device: torch.device, observe: Observe) -> None:
    """12 ranks compile as many graphs as the default limit allows, and all are answered.

    pytorch/pytorch#114511. 12 on 2.0 and 2.1 (limit 64), 8 since 2.2.
    """
    from torch._dynamo import config

    limit = getattr(config, next(name for name in LIMITS if has_dynamo_config(name)))
    with compiled_by(add) as (compiled, report):
        _call_with_ranks(compiled, range(1, 13), device)
    observe("graphs", report.graphs)
    assert report.graphs == min(limit, 12)


def ask_for_fullgraph(code: Code) -> Any:
    """One graph or an error."""
    return compiling(code, dynamic=False, fullgraph=True)


def leaves_the_default(code: Code) -> Any:
    """Graphs where they can be had."""
    return compiling(code, dynamic=False)


@catches(leaves_the_default, compiled_by=ask_for_fullgraph)
def test_limit_is_loud_with_fullgraph(compiled_by: Code, device: torch.device, observe: Observe) -> None:
    """With `fullgraph=True` a frame past the recompile limit raises, and does not run in eager code.

    pytorch/pytorch#114511. Since 2.2; the class: Unsupported to 2.4, CacheLimitExceeded in 2.5, RecompileLimitExceeded in 2.6,
    FailOnRecompileLimitHit since 2.7.
    """
    with recompile_limit(3), compiled_by(add) as (compiled, _):
        _call_with_ranks(compiled, range(1, 4), device)
        with pytest.raises(Exception, match=LOUD) as caught:
            compiled(torch.ones([2] * 4, device=device))
    observe("class", type(caught.value).__name__)


FLAGS = ("fail_on_recompile_limit_hit", "fail_on_cache_limit_hit")


def raise_the_flag(name: str) -> Any:
    """Set it."""
    from torch._dynamo import config

    return config.patch({name: True})


def lowers_the_flag(name: str) -> Any:
    """Leave it as it is by default."""
    from torch._dynamo import config

    return config.patch({name: False})


@catches(lowers_the_flag, flag=raise_the_flag)
def test_limit_is_loud_when_asked(flag: Code, device: torch.device, observe: Observe) -> None:
    """A setting makes every recompile limit loud, with FailOnRecompileLimitHit.

    pytorch/pytorch#114511. fail_on_cache_limit_hit in 2.6, fail_on_recompile_limit_hit since 2.7.
    """
    name = next((name for name in FLAGS if has_dynamo_config(name)), None)
    if name is None:
        pytest.skip("no setting that makes the limit loud")
    with flag(name), recompile_limit(3), compiling(add, dynamic=False) as (compiled, _):
        _call_with_ranks(compiled, range(1, 4), device)
        with pytest.raises(Exception, match=LOUD) as caught:
            compiled(torch.ones([2] * 4, device=device))
    observe("class", type(caught.value).__name__)


def forbid_recompiles() -> Any:
    """By the guard."""
    return no_recompiles()


def patches_the_limit() -> Any:
    """A limit of one frame: what comes second runs in eager code and says nothing."""
    return recompile_limit(1)


@catches(patches_the_limit, forbid=forbid_recompiles)
def test_recompile_can_be_refused(forbid: Code, device: torch.device, observe: Observe) -> None:
    """Inside the guard no_recompiles a call that is compiled already answers, and one that needs a new graph raises RuntimeError.

    pytorch/pytorch#120934. Since 2.1: dynamo's error_on_recompile, from 2.6 torch.compiler.set_stance("fail_on_recompile").
    """
    if not has_dynamo_config("error_on_recompile"):
        pytest.skip("this torch cannot refuse to recompile")
    with compiling(add, dynamic=False) as (compiled, report):
        compiled(torch.ones(2, device=device))
        with forbid():
            assert compiled(torch.ones(2, device=device)).shape == (2,)
            with pytest.raises(RuntimeError) as caught:
                compiled(torch.ones(3, device=device))
    observe("class", type(caught.value).__name__)
    assert report.graphs == 1


#: Name of a stance -> what a call that is not compiled yet comes to: an error or an answer, in both cases no new graph.
STANCES = {"fail_on_recompile": RuntimeError, "eager_on_recompile": None, "force_eager": None}


def set_stance(name: str) -> Any:
    """As it is called."""
    return torch.compiler.set_stance(name)


def sets_default_stance(name: str) -> Any:
    """Compile what comes."""
    return torch.compiler.set_stance("default")


@requires("torch.compiler.set_stance")
@pytest.mark.parametrize("stance", STANCES)
@catches(sets_default_stance, enter=set_stance)
def test_stance_compiles_nothing(enter: Code, stance: str, device: torch.device) -> None:
    """Under a stance that forbids or avoids compilation a new shape is refused or answered in eager code, and no graph is added.

    pytorch/pytorch#161562. Since 2.6.
    """
    with compiling(add, dynamic=False) as (compiled, report):
        compiled(torch.ones(2, device=device))
        with enter(stance):
            assert compiled(torch.ones(2, device=device)).shape == (2,)
            if STANCES[stance] is None:
                assert compiled(torch.ones(3, device=device)).shape == (3,)
            else:
                with pytest.raises(STANCES[stance]):
                    compiled(torch.ones(3, device=device))
        assert report.graphs == 1
        assert compiled(torch.ones(3, device=device)).shape == (3,)
        assert report.graphs == 2


@requires("torch.compiler.set_stance")
@catches(sets_default_stance, enter=set_stance)
def test_stance_is_put_back(enter: Code, device: torch.device) -> None:
    """A stance ends with its block, an exception in it or not.

    Own observation. Since 2.6.
    """
    with compiling(add, dynamic=False) as (compiled, report):
        with contextlib.suppress(RuntimeError), enter("fail_on_recompile"):
            compiled(torch.ones(2, device=device))
        assert report.graphs == 0
        compiled(torch.ones(2, device=device))
    assert report.graphs == 1
