"""Guards: right idioms that a user may depend on or copy. They need torch alone and import on every release."""

from conformance.guards.capturing import is_compiling, is_tracing
from conformance.guards.initialisation import UninitialisedError, initialise, materialise, uninitialised
from conformance.guards.masks import causal_mask, padding_mask, visible
from conformance.guards.norms import rms_norm
from conformance.guards.rotary import RotaryCache, rotate

__all__ = [
    "RotaryCache",
    "UninitialisedError",
    "causal_mask",
    "initialise",
    "is_compiling",
    "is_tracing",
    "materialise",
    "padding_mask",
    "rms_norm",
    "rotate",
    "uninitialised",
    "visible",
]
