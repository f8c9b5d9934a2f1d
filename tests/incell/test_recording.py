"""The recorder of dispatched operators: composites are opened, with what they call under them, and call sites are the user's."""

from __future__ import annotations

import torch
from torch import nn

from conformance.incell.auditing import dispatcher
from conformance.instruments.recording import Recording, Seen, recorded


def _recorded(function, entered=(), phase="forward"):
    recording = Recording([__file__])
    with recorded(recording, phase, entered=entered):
        function()
    return list(recording)


def _names(found: list[Seen]) -> set[str]:
    return {seen.op for seen in found}


def test_a_composite_is_opened_and_its_parts_stand_under_it():
    found = _recorded(lambda: torch.zeros_like(torch.ones(2)))
    assert ("zero_", ("zeros_like",)) in [(seen.op, seen.inside) for seen in found]


def test_convolutions_are_leaves():
    layer, images = nn.Conv2d(2, 3, 2), torch.ones(1, 2, 4, 4)
    assert _names(_recorded(lambda: layer(images))) == {"convolution"}


def test_what_the_device_enters_stands_before_what_the_cpu_runs():
    matrix = torch.eye(2)
    found = {seen.op: seen.inside for seen in _recorded(lambda: torch.linalg.svd(matrix), entered=["linalg_svd"])}
    assert found["linalg_svd"] == ()
    assert found["_linalg_svd"] == ("linalg_svd",)
    assert "linalg_svd" not in _names(_recorded(lambda: torch.linalg.svdvals(matrix), entered=["linalg_svd"]))


def test_attention_takes_its_plain_path():
    query = torch.ones(1, 2, 3, 4)
    names = _names(_recorded(lambda: torch.nn.functional.scaled_dot_product_attention(query, query, query)))
    assert not [name for name in names if "flash" in name or "efficient" in name]
    assert "bmm" in names


def test_a_backward_operator_is_sited_at_its_forward_call():
    recording = Recording([__file__])
    value = torch.ones(3, requires_grad=True)
    with recorded(recording, "forward"):
        first = value.exp()
        second = first.sin()
    with recorded(recording, "backward"):
        torch.autograd.backward([second], [torch.ones(3)])
    sources = {seen.op: seen.source for seen in recording if seen.phase == "backward"}
    assert sources["cos"] == "second = first.sin()"


def test_flags_of_calls():
    parameter = torch.zeros(2, 3).t()
    found = _recorded(lambda: parameter.addcdiv_(torch.ones(3, 2), torch.ones(3, 2)))
    assert [list(seen.flags) for seen in found if seen.op == "addcdiv_"] == [["inplace_noncontiguous"]]
    half = torch.zeros(2, dtype=torch.float16)
    flags = [flag for seen in _recorded(lambda: half.double()) for flag in seen.flags]
    assert "float64" in flags
    images = torch.ones(1, 1, 4, 4)
    assert any("uneven_pool" in seen.flags for seen in _recorded(lambda: torch.nn.functional.adaptive_avg_pool2d(images, 3)))
    assert not any("uneven_pool" in seen.flags for seen in _recorded(lambda: torch.nn.functional.adaptive_avg_pool2d(images, 2)))


def test_flags_of_functions_that_decompose():
    query = torch.ones(1, 4, 2, 8).transpose(1, 2)
    found = _recorded(lambda: torch.nn.functional.scaled_dot_product_attention(query, query, query))
    assert [list(seen.flags) for seen in found if seen.op == "scaled_dot_product_attention"] == [["noncontiguous"]]


def test_switches_are_put_back():
    before = torch.backends.cuda.flash_sdp_enabled()
    _recorded(lambda: None)
    assert torch.backends.cuda.flash_sdp_enabled() is before
    assert torch.backends.mkldnn.enabled


def test_without_sites_nothing_is_looked_up():
    recording = Recording(None)
    with recorded(recording, "forward"):
        torch.ones(2).exp()
    assert {(seen.site, seen.source) for seen in recording} == {("", "")}


def test_a_dispatcher_tells_kernels_from_composites_that_only_hand_on():
    names = ("mm", "linalg_qr", "zeros_like", "view_copy", "linear")
    letters = {"mm": "m", "linalg_qr": "n", "zeros_like": "e", "view_copy": "e", "linear": "i"}
    assert dispatcher(names, "SparseCPU") == letters
    assert dispatcher(names[:2], "Meta") == {"mm": "m", "linalg_qr": "m"}
    assert dispatcher(names, "XLA") == {}
