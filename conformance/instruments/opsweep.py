"""The sweep of one op: its samples on a device, in variants that must change no number, against float64 on the CPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from conformance.instruments import opinfo
from conformance.instruments.opcalls import ALL, FEW, PLAIN, Call, Variant, Watch
from conformance.instruments.opresults import coarsest, form_off, leaves, numbers_off

CPU = torch.device("cpu")
#: Samples with elements in their result that the fast sweep takes of an entry, and how many it looks through for them. Its variants beside
#: the plain one are for the first of them that they can change.
FEW_SAMPLES, SEEN_SAMPLES = 3, 12
#: After so many errors of the device an op is not tried further: it is not there.
_MOST_ERRORS = 3
#: Ops that look behind the elements, at strides and storage: another layout is another question.
_OF_STORAGE = frozenset({"aten::as_strided", "aten::as_strided_", "aten::as_strided_scatter", "aten::as_strided_copy", "aten::set_"})
#: Ops whose sums take in padding, where one kernel multiplies it with NaN and another leaves it out.
_CONTRACTING = frozenset(
    f"aten::{name}"
    for name in ("convolution", "_convolution", "mm", "addmm", "bmm", "baddbmm", "mv", "addmv", "addbmm", "dot", "vdot", "addr", "linear")
)
_DEPENDING = ("data_dependent_output", "dynamic_output_shape")

Run = Callable[[Call], Any]
Process = Callable[[Any], Any]


class Sweep:
    """Checks of one op in one dtype on one device. `wrong` is the first fault; `raised` the first error that the CPU does not have."""

    def __init__(self, run: Run, device: torch.device, dtype: torch.dtype, *, deep: bool) -> None:
        self.run, self.device, self.dtype, self.deep = run, device, dtype, deep
        self.wrong = ""
        self.raised: Exception | None = None
        self.errors = 0
        #: Calls whose result was looked at, and of these how many had numbers that could be foretold.
        self.checked = self.foretold = 0
        #: Samples whose result had elements.
        self.telling = 0
        #: Why the CPU itself cannot make a call.
        self.refused = ""
        #: Why a call was held against the CPU in its own dtype and not in float64.
        self.narrow = ""

    def check(self, info: Any) -> None:
        """Check an entry of OpInfo."""
        left, few = list(ALL if self.deep else FEW), self.telling + FEW_SAMPLES
        for number, sample in enumerate(opinfo.samples(info, self.dtype, None if self.deep else SEEN_SAMPLES)):
            for variant in list(left):
                call = self._call(info, variant, sample)
                if call is None or not variant.applies(call):
                    continue
                what = f"{opinfo.title(info)}, sample {number}, {variant.name}"
                told = self._try(what, call, variant, getattr(sample, "output_process_fn_grad", None))
                if self.wrong or self.errors >= _MOST_ERRORS:
                    return
                self.telling += told and variant is PLAIN
                if told and not self.deep and variant is not PLAIN:
                    left.remove(variant)
            if not self.deep and self.telling >= few:
                return

    def _call(self, info: Any, variant: Variant, sample: Any) -> Call | None:
        if not variant.in_place:
            return Call.of(info.op, sample)
        op = info.get_inplace()
        writable = isinstance(sample.input, Tensor) and not sample.broadcasts_input and sample.input.dtype == self.dtype
        return Call.of(op, sample) if op is not None and writable else None

    def _try(self, what: str, call: Call, variant: Variant, process: Process | None) -> bool:
        """One call, and whether its result had elements: what the CPU refuses or leaves open is not asked of the device."""
        filled = variant.filled(call)
        given = variant.laid_out(filled)
        watch, cpu, there = Watch(), given.to(CPU), given.to(self.device)
        try:
            with watch:
                same = _outcome(cpu, variant)
        except Exception as error:
            self.refused = self.refused or _told(error)
            return False
        if self._is_beside_the_point(watch, variant):
            return False
        try:
            got = _outcome(there, variant, self.run)
            fault = form_off(got, same, self.device.type)
            if not fault and watch.draws:
                fault = _random_fault(given, cpu, there)
            elif not fault and self.device.type != "meta":
                fault = self._numbers_fault(got, same, self._wide(filled, variant, same), watch, process, coarsest(given.tensors))
        except Exception as error:
            if not self._refuses(given, variant):
                self.raised, self.errors = self.raised or error, self.errors + 1
            return False
        self.checked += 1
        self.wrong = f"{what}: {fault}" if fault else ""
        return any(x.numel() for x in same)

    def _refuses(self, given: Call, variant: Variant) -> bool:
        """Whether the CPU refuses a call when nobody watches it: some checks of values are left out under a dispatch mode (quantile)."""
        try:
            _outcome(given.to(CPU), variant)
        except Exception as error:
            self.refused = self.refused or _told(error)
            return True
        return False

    def _is_beside_the_point(self, watch: Watch, variant: Variant) -> bool:
        if self.device.type == "meta" and any(getattr(torch.Tag, tag, None) in watch.tags for tag in _DEPENDING):
            self.refused = self.refused or "its result's shape or value depends on numbers, and meta holds none"
            return True
        if variant.lay_out is not None and watch.names & _OF_STORAGE:
            return True
        return "NaN" in variant.name and bool(watch.names & _CONTRACTING)

    def _wide(self, filled: Call, variant: Variant, same: list[Tensor]) -> list[Tensor]:
        """The CPU's results in float64 for arguments in plain layout; `same` where the op has no float64, or gives other results in it."""
        try:
            wide = _outcome(filled.to(CPU, wide=True), variant)
        except Exception as error:
            self.narrow = self.narrow or f"in float64 the CPU raises {type(error).__name__}"
            return same
        if [x.shape for x in wide] == [x.shape for x in same]:
            return wide
        self.narrow = self.narrow or "in float64 the CPU gives results of other shapes"
        return same

    def _numbers_fault(
        self, got: list[Tensor], same: list[Tensor], wide: list[Tensor], watch: Watch, process: Process | None, coarse: float
    ) -> str:
        """How numbers are wrong; empty for right ones, and for memory that nobody wrote.

        Eigenvectors are right up to their phase: OpInfo's samples say what of a result is determined (`output_process_fn_grad`).
        """
        fault = ""
        for mine, cpu, reference in zip(got, same, wide):
            if not watch.is_unwritten(cpu):
                self.foretold += bool(cpu.numel())
                fault = fault or numbers_off(mine, reference, cpu, coarse)
        if fault and process is not None:
            determined = [leaves(process(tuple(found) if len(found) > 1 else found[0])) for found in (got, wide, same)]
            if [x.shape for x in determined[0]] == [x.shape for x in got]:
                return next((off for each in zip(*determined) if (off := numbers_off(*each, coarse))), "")
        return fault


def _told(error: Exception) -> str:
    return f"the CPU cannot: {type(error).__name__}: {(str(error).splitlines() or [''])[0][:150]}"


def _random_fault(given: Call, cpu: Call, there: Call) -> str:
    """Random numbers cannot be foretold, but where the CPU's op fills its argument with them, the device's must not leave it as it was."""
    before = given.args[0] if given.args else None
    if not isinstance(before, Tensor) or there.args[0].device.type == "meta":
        return ""
    left_alone = _changed(there.args[0].cpu(), before) < 0.1 < 0.5 < _changed(cpu.args[0], before)
    return "its argument is as it was, where the CPU fills it with random numbers" if left_alone else ""


def _outcome(call: Call, variant: Variant, run: Run | None = None) -> list[Tensor]:
    """What a call leaves: its result, or its first argument where it writes there."""
    with torch.no_grad():
        result = run(call) if run is not None else call()
    return [call.args[0]] if variant.in_place else leaves(result)


def _changed(x: Tensor, before: Tensor) -> float:
    """The part of the elements that are other than before."""
    return float((x != before).double().mean()) if x.shape == before.shape and x.numel() else 0.0
