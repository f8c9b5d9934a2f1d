"""Kills the process that imports it."""

import ctypes

ctypes.string_at(0)


def test_never_collected() -> None:
    assert True
