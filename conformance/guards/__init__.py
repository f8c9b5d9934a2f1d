"""Guards: right idioms that a user may depend on or copy. They need torch alone and import on every release."""

from conformance.guards.accelerators import default_device, is_usable, synchronize, working_accelerator
from conformance.guards.amp import autocast, autocast_dtype, custom_bwd, custom_fwd, grad_scaler
from conformance.guards.arrays import from_numpy, to_numpy
from conformance.guards.attention import sdpa
from conformance.guards.capturing import is_compiling, is_tracing
from conformance.guards.checkpoints import CheckpointError, load_checkpoint
from conformance.guards.compiling import no_recompiles, not_compiled, recompile_limit, uncompiled, without_prefix
from conformance.guards.construction import (
    constant_like,
    drawn_like,
    fill_value,
    filled_like,
    generator_for,
    holds_dtype,
    narrowed_dtype,
    range_like,
    steps_like,
    table_like,
    to_device,
)
from conformance.guards.distributed import dtensor, is_dtensor
from conformance.guards.fused import fused_options
from conformance.guards.initialisation import UninitialisedError, initialise, materialise, uninitialised
from conformance.guards.masks import causal_mask, padding_mask, visible
from conformance.guards.muon import split_for_muon
from conformance.guards.norms import rms_norm
from conformance.guards.optimisation import (
    adamw_step_,
    addcdiv_,
    addcmul_,
    clip_grad_norm_,
    has_matmul,
    lerp_,
    optimizer_for,
    orthogonalise,
    scalar_for,
    widened,
)
from conformance.guards.precision import at_float32_precision, float32_precision, set_float32_precision
from conformance.guards.presence import find_attribute, release_number, takes_keyword
from conformance.guards.pytrees import register_pytree
from conformance.guards.rotary import DynamicRotaryCache, RotaryCache, halves_from_pairs, rotate
from conformance.guards.schedulers import SchedulerBase, is_scheduler, learning_rates
from conformance.guards.stateless import functional_call

__all__ = [
    "CheckpointError",
    "DynamicRotaryCache",
    "RotaryCache",
    "SchedulerBase",
    "UninitialisedError",
    "adamw_step_",
    "addcdiv_",
    "addcmul_",
    "at_float32_precision",
    "autocast",
    "autocast_dtype",
    "causal_mask",
    "clip_grad_norm_",
    "constant_like",
    "custom_bwd",
    "custom_fwd",
    "default_device",
    "drawn_like",
    "dtensor",
    "fill_value",
    "filled_like",
    "find_attribute",
    "float32_precision",
    "from_numpy",
    "functional_call",
    "fused_options",
    "generator_for",
    "grad_scaler",
    "halves_from_pairs",
    "has_matmul",
    "holds_dtype",
    "initialise",
    "is_compiling",
    "is_dtensor",
    "is_scheduler",
    "is_tracing",
    "is_usable",
    "learning_rates",
    "lerp_",
    "load_checkpoint",
    "materialise",
    "narrowed_dtype",
    "no_recompiles",
    "not_compiled",
    "optimizer_for",
    "orthogonalise",
    "padding_mask",
    "range_like",
    "recompile_limit",
    "register_pytree",
    "release_number",
    "rms_norm",
    "rotate",
    "scalar_for",
    "sdpa",
    "set_float32_precision",
    "split_for_muon",
    "steps_like",
    "synchronize",
    "table_like",
    "takes_keyword",
    "to_device",
    "to_numpy",
    "uncompiled",
    "uninitialised",
    "visible",
    "widened",
    "without_prefix",
    "working_accelerator",
]
