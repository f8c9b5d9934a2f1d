"""Planted faults, each followed by an ordinary case: what a case does to its process must cost that case alone."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import sys
import time
import unittest

import pytest

from conformance.incell import limits

_LIBC = ctypes.CDLL(None)


def test_null_dereference() -> None:
    ctypes.string_at(0)


def test_ordinary_1() -> None:
    assert True


def test_abort() -> None:
    os.abort()


def test_exit_0() -> None:
    os._exit(0)


def test_ordinary_2() -> None:
    assert True


def test_kills_itself() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def test_system_exit() -> None:
    sys.exit(3)


@pytest.fixture
def dies_in_teardown():
    yield
    ctypes.string_at(0)


def test_teardown_segfault(dies_in_teardown) -> None:
    assert True


@limits(timeout_s=1.5)
def test_hang_in_sleep() -> None:
    time.sleep(600)


@limits(timeout_s=1.5)
def test_hang_in_c_without_gil() -> None:
    _LIBC.sleep(600)


@limits(timeout_s=1.5)
def test_hang_in_c_with_gil() -> None:
    ctypes.PyDLL(None).sleep(600)


def test_ordinary_3() -> None:
    assert True


@pytest.fixture
def fails():
    raise RuntimeError("the fixture is broken")


def test_failing_fixture(fails) -> None:
    assert True


@pytest.fixture
def fails_late():
    yield
    raise RuntimeError("the fixture is broken at its end")


def test_failing_teardown(fails_late) -> None:
    assert True


def test_prints_10000_lines() -> None:
    for number in range(10_000):
        print(f"line {number}")
    assert 1 + 1 == 3


@limits(memory_mb=1500)
def test_memory_hog() -> None:
    kept = []
    while True:
        kept.append(bytearray(os.urandom(1 << 20) * 64))


class Unprintable(Exception):
    def __str__(self) -> str:
        raise ValueError("no words for it")


def test_unprintable_exception() -> None:
    raise Unprintable


def test_wrong() -> None:
    assert [1, 2] == [1, 3]


def test_did_not_raise() -> None:
    with pytest.raises(ValueError):
        pass


def test_raises() -> None:
    raise KeyError("absent")


def test_skips() -> None:
    pytest.skip("not here")


@pytest.mark.xfail(reason="hides a verdict")
def test_xfail() -> None:
    assert False


def test_says_who_it_is() -> None:
    raise RuntimeError(f"{os.getcwd()} {sys.executable} {os.environ['PLANTED_SECRET_HOME']} {os.uname().nodename} zaphod")


class OwnError(Exception):
    pass


@pytest.mark.parametrize("path", [__file__], ids=str)
def test_path_as_parameter(path: str) -> None:
    raise OwnError(path)


def test_keyboard_interrupt() -> None:
    raise KeyboardInterrupt


def test_pytest_exit() -> None:
    pytest.exit("the whole session")


def test_json_patched() -> None:
    json.dumps = None
    time.time = None


def test_leaks() -> None:
    os.chdir("/")
    sys.path.clear()
    sys.setrecursionlimit(200)
    signal.alarm(2)


def test_leaks_are_put_back() -> None:
    assert os.getcwd() != "/"
    assert sys.path
    assert sys.getrecursionlimit() >= 1000
    assert signal.alarm(0) == 0


def test_leaves_a_process_of_its_own_session() -> None:
    subprocess.Popen(["sleep", "299"], start_new_session=True)


def test_forked_child_goes_on() -> None:
    if os.fork() == 0:
        return
    os.wait()


class TestOuter:
    class TestInner:
        def test_nested(self) -> None:
            assert True


class TestOther:
    class TestInner:
        def test_nested(self) -> None:
            assert True


def test_observes_what_it_cannot(observe) -> None:
    observe("too large", 10**400)


def test_ordinary_5() -> None:
    assert True


class TestOld(unittest.TestCase):
    def test_unittest_style(self) -> None:
        self.assertEqual(1, 2)


async def test_async() -> None:
    raise AssertionError


def test_duplicate() -> None:
    assert True


def test_ordinary_4() -> None:
    assert True
