"""Advice: what cures a check that a model does not pass, with the guard or the page that says more."""

from __future__ import annotations

import re
from dataclasses import dataclass

from conformance.artifacts import Record
from conformance.incell.verdicts import Stage, Verdict


@dataclass(frozen=True)
class Advice:
    """What to do for a failed check. `guard` is a name in conformance.guards, empty where a rewrite is the cure."""

    cure: str
    guard: str = ""
    page: str = ""

    def __str__(self) -> str:
        more = " or ".join(part for part in (f"conformance.guards.{self.guard}" if self.guard else "", self.page) if part)
        return f"{self.cure} ({more})" if more else self.cure


#: By the beginning of the case's name; the longest that fits speaks.
_CURES = {
    "fallbacks.subject_touches": Advice(
        "ask whether torch has the name, and compute the same without it", "", "docs/families/fallbacks.md"
    ),
    "init.subject_init_writes_everything": Advice(
        "write every parameter and buffer in the init function, scalars too", "initialise", "docs/families/init.md"
    ),
    "init.subject_init_repeats": Advice("draw from torch's generator alone, seeded right before; no hash(), time or numpy stream"),
    "init.subject_init_is_the_cpus": Advice(
        "seed right before the init, write all that it must write, and let nothing in it depend on the device", "initialise"
    ),
    "init.subject_init_reads_no_memory": Advice("write a weight before anything in the init reads it, from the first part to the last"),
    "init.subject_init_is_every_process": Advice("draw in an order that every process has: walk over a list or a dict, not over a set"),
    "init.subject_resumes": Advice("keep what training changes in parameters and persistent buffers, a running number as a buffer too"),
    "init.subject_step_repeats": Advice("draw from torch's generators alone; seed or pass on any other one that the step uses"),
    "init.subject_optimizer_round_trips": Advice("save and restore the optimizer's state_dict with the model's; keep no state beside it"),
    "init.subject_round_trips": Advice("keep what a checkpoint must hold in parameters and persistent buffers", "materialise"),
    "init.subject_copies": Advice("keep no tensor that is on a graph as an attribute: detach what is cached"),
    "init.subject_leaves": Advice("change no weight in forward: compute what it is made of, and answer in memory that is the caller's"),
    "init.subject_loads": Advice("make what depends on weights anew at each call, or drop it in a hook when weights are loaded"),
    "init.subject_casts": Advice("make constants beside the input, in its dtype; compute tables in float32 and cast once", "RotaryCache"),
    "mps.subject_equals_float64": Advice("compute norms, softmax and position tables in float32, cast the result", "rms_norm"),
    "mps.subject_gradients_equal_float64": Advice("keep what backward needs in float32: norms, softmax, long sums", "rms_norm"),
    "mps.subject_answer_repeats": Advice("draw nothing in forward, and let no earlier call change a later one"),
    "mps.subject_answers_alike_in_grad_modes": Advice(
        "compute the same with gradients and without: ask for no torch.is_grad_enabled(), and try nothing that raises then alone"
    ),
    "mps.subject_answers_alike_in_layouts": Advice(
        "ask for .contiguous() before as_strided, data_ptr() or a kernel of your own, or use the strides that the tensor has"
    ),
    "mps.subject_gives_numbers": Advice(
        "hide what is masked with a large finite number, or give a row that is hidden whole something to look at", "sdpa"
    ),
    "mps.subject_follows_its_device": Advice("make every tensor beside the input or on its device; register what is cached as a buffer"),
    "compile.": Advice("move what breaks the graph out of forward: prints, .item(), branches on data", "", "docs/families/compile.md"),
    "compile.subject_settles": Advice(
        "change no number, list or dict of the module at each call: count in a buffer in place, and keep statistics outside of forward"
    ),
    "trace.subject_trace": Advice("keep sizes as .size() gives them: no int(), len() or .item()", "causal_mask", "docs/families/trace.md"),
    "trace.subject_export": Advice("name what varies as Dim, and branch on no size or value in forward", "", "docs/families/trace.md"),
    "trace.subject_fx": Advice(
        "give torch.fx no branch or loop on sizes or values: torch.fx.wrap what has one, or capture by torch.export",
        "",
        "docs/families/trace.md",
    ),
    "trace.subject_onnx": Advice(
        "use ops that the exporter knows, and name what varies; the newer exporter is torch.onnx.export(dynamo=True)"
    ),
    "lowering.": Advice(
        "write what is blamed without sizes as numbers, branches on data or ops that the dialect has not", "", "docs/families/lowering.md"
    ),
    "rope.subject_forgets": Advice(
        "keep nothing in forward that another input would have made otherwise: key what is cached by all that it depends on", "RotaryCache"
    ),
    "rope.subject_casts_after_use": Advice(
        "cache in a registered buffer, which a cast takes along, or key what is cached by dtype and device too", "RotaryCache"
    ),
    "rope.subject_positions": Advice(
        "count positions and compute frequencies, angles and tables in float32, whatever the model is cast to, and round the table once",
        "RotaryCache",
    ),
    "rope.": Advice("grow tables with headroom, in their dtype, in the registered buffer, and never while capturing", "RotaryCache"),
}


#: Beginning of the case's name, what its reason holds, and the cure that is closer than the check's own; the first that fits speaks.
_CLOSER = (
    (
        "compile.subject_compiles",
        r"^call .*differ|^call .*answers",
        Advice(
            "let forward ask nothing about compilation (is_compiling, try around what raises there), and keep no number, list or dict "
            "that compiled code has no guard on",
            "",
            "docs/families/compile.md",
        ),
    ),
    (
        "trace.subject_",
        r"not a known type|unrecognized type|Tracer cannot infer type|Only tensors, lists, tuples",
        Advice("answer in tensors, or tuples, lists and dicts of them; register another class as a pytree", "register_pytree"),
    ),
    (
        "trace.subject_export",
        r"differ",
        Advice(
            "let the answer depend on the inputs alone: on no flag that says that a program is made (is_compiling, is_exporting), and on "
            "nothing that an earlier call left",
            "",
            "docs/families/trace.md",
        ),
    ),
    (
        "init.",
        r"Unexpected key",
        Advice("register what forward makes anew with persistent=False, as it was registered first", "RotaryCache"),
    ),
    (
        "init.subject_copies",
        r"answers otherwise",
        Advice(
            "keep no function that holds the module or its parameters (a lambda, a bound method) as an attribute: a copy keeps the old one"
        ),
    ),
    (
        "init.subject_init_is_the_cpus",
        r"other numbers under the same seed",
        Advice("draw from torch's global generator alone, seeded right before: no numpy, no random, no generator that is kept"),
    ),
)
#: Verdicts that answer what the check asks; a death or a hang may have any cause.
_ANSWERS = frozenset({Verdict.WRONG.value, Verdict.RAISES.value, Verdict.UNEXERCISED.value})
#: Stages before a check asks anything.
UNASKED = frozenset({Stage.INSTALL.value, Stage.COLLECT.value, Stage.IMPORT.value, Stage.BUILD.value})


def advice(record: Record) -> Advice | None:
    """What cures the check of that record; None where it passes, says nothing about the model, or did not come to its question."""
    if record["verdict"] not in _ANSWERS or record["stage"] in UNASKED:
        return None
    reason = str(record["reason"] or "")
    for name, told, cure in _CLOSER:
        if record["case"].startswith(name) and re.search(told, reason):
            return cure
    fitting = [name for name in _CURES if record["case"].startswith(name)]
    return _CURES[max(fitting, key=len)] if fitting else None
