"""Has a case whose id another file has taken."""


def test_duplicate() -> None:
    assert True
