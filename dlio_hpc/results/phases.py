"""The phases of a metadata workload."""

from typing import Literal, get_args

Phase = Literal["mkdir", "create", "write", "stat", "readdir", "open_read_close", "rename", "unlink", "rmdir"]
PHASES: tuple[Phase, ...] = get_args(Phase)
