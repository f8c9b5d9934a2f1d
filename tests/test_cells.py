from __future__ import annotations

import pytest

from conformance.cells import Cell


@pytest.mark.parametrize(
    "text",
    [
        "torch2.4.1-py3.11-cpu-linux_x86_64",
        "torch2.10.0-py3.13t-mps-macos_arm64-macos15",
        "torch2.16.0.dev20261120-py3.12-cuda-linux_x86_64-h200.cu130",
        "torch1.13.1-py3.10-meta-linux_aarch64",
    ],
)
def test_id_reads_back(text: str) -> None:
    assert str(Cell.parse(text)) == text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "torch2.4.1",
        "torch2.4.1-py3.11-cpu",
        "torch2.4.1+cpu-py3.11-cpu-linux_x86_64",
        "Torch2.4.1-py3.11-cpu-linux_x86_64",
        "torch2.4.1-py3.11-cpu-linux_x86_64-",
        "torch2.4.1-py3.11-cpu-linux_x86_64-a-b",
        "torch../x-py3.11-cpu-linux_x86_64",
        "torchx-py3.11-cpu-linux_x86_64",
        "torch2.4.1-py3.11-cpu-linux_x86_64\n",
    ],
)
def test_what_is_no_id_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        Cell.parse(text)


def test_releases_sort_as_versions() -> None:
    texts = [f"torch{version}-py3.11-cpu-linux_x86_64" for version in ("2.10.0", "2.9.1", "2.1.2", "2.10.0.dev1")]
    ordered = sorted((Cell.parse(text) for text in texts), key=lambda cell: cell.sort_key)
    assert [cell.torch for cell in ordered] == ["2.1.2", "2.9.1", "2.10.0.dev1", "2.10.0"]
