"""Guards: right idioms that a user may depend on or copy. They need torch alone and import on every release."""

from conformance.guards.capturing import is_compiling, is_tracing
from conformance.guards.construction import (
    constant_like,
    drawn_like,
    fill_value,
    filled_like,
    generator_for,
    holds,
    narrowed,
    range_like,
    steps_like,
    table_like,
    to_device,
)
from conformance.guards.initialisation import UninitialisedError, initialise, materialise, uninitialised
from conformance.guards.masks import causal_mask, padding_mask, visible
from conformance.guards.norms import rms_norm
from conformance.guards.optimisation import (
    adamw_step_,
    addcdiv_,
    addcmul_,
    clip_grad_norm_,
    lerp_,
    multiplies,
    optimizer_for,
    orthogonalise,
    scalar_for,
    widened,
)
from conformance.guards.rotary import RotaryCache, rotate

__all__ = [
    "RotaryCache",
    "UninitialisedError",
    "adamw_step_",
    "addcdiv_",
    "addcmul_",
    "causal_mask",
    "clip_grad_norm_",
    "constant_like",
    "drawn_like",
    "fill_value",
    "filled_like",
    "generator_for",
    "holds",
    "initialise",
    "is_compiling",
    "is_tracing",
    "lerp_",
    "materialise",
    "multiplies",
    "narrowed",
    "optimizer_for",
    "orthogonalise",
    "padding_mask",
    "range_like",
    "rms_norm",
    "rotate",
    "scalar_for",
    "steps_like",
    "table_like",
    "to_device",
    "uninitialised",
    "visible",
    "widened",
]
