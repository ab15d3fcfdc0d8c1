"""Hooks for Orbax, which saves the states of JAX."""

from __future__ import annotations

import os
from types import ModuleType
from typing import Any

from .hooks import Context, argument, wrap


def checkpointers(context: Context, module: ModuleType) -> None:
    """Record states that a manager or a checkpointer saves and restores. A manager uses checkpointers."""

    def noted(kind: str, is_manager: bool) -> Any:
        def transferred(seconds: float, arguments: Any, keys: Any, result: Any) -> None:
            target = argument(arguments, keys, 1, "step" if is_manager else "directory")
            if is_manager:
                target = os.path.join(os.fspath(arguments[0].directory), str(target))
            context.recording.add(kind, "orbax", round(seconds, 6), context.file(target), None)

        return transferred

    for name in (
        "CheckpointManager",
        "StandardCheckpointer",
        "AsyncCheckpointer",
        "PyTreeCheckpointer",
        "Checkpointer",
    ):
        owner = getattr(module, name, None)
        if owner is not None:
            for kind in ("save", "restore"):
                wrap(context, owner, kind, noted(kind, name == "CheckpointManager"), is_outermost=True)
