"""The user's subjects by alias: known to a process before anything imports torch, which the controls of a cell never need."""

from __future__ import annotations

#: Alias -> the reference that it stands for, as `package.module:build`.
REGISTERED: dict[str, str] = {}


def register(alias: str, reference: str) -> None:
    """Let `alias` stand for the subject that `reference` names."""
    REGISTERED[alias] = reference
