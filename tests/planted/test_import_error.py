"""Cannot be imported."""

import a_module_that_is_not_there


def test_never_collected() -> None:
    assert a_module_that_is_not_there
