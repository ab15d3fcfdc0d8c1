"""State of the ranks during a run. The ranks of a node write to one file of the run. Each rank has a line of a fixed
length at a fixed position. Commands that watch the job read these files.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Struct

from dlio_hpc.base.errors import DlioError
from dlio_hpc.files import safe_folders

# Bytes of the line of a rank, and the longest host name in it: all other values take less than the rest.
LINE_BYTES = 512
_LONGEST_HOST = 64
_PREFIX = "node-"

# Numbers beyond these limits are of no run: a file of the job's directory may hold anything.
_Count = Annotated[int, Meta(ge=0, le=1 << 62)]
_Seconds = Annotated[float, Meta(ge=0, le=1e10)]
Phase = Literal["start", "generate", "steps", "checkpoint", "evaluation", "restore"]


class RankState(Struct, frozen=True, omit_defaults=True):
    """State of a rank. time: seconds since 1970 of the node's clock. phase: current activity. done, total: work that
    this rank has done, and all work of the rank, in `unit`. epoch, epochs: number of the epoch, from 1, and of all
    epochs; 0 for a run without epochs. elapsed_s: seconds since the first step, or since the first file. bytes: bytes
    of samples that this rank read, or bytes of files that it wrote. wait_s, compute_s, sync_s: parts of the steps that
    are done. arrived, asked: bytes that came from storage in the epochs that have ended, and bytes of samples in these
    epochs; `arrived` is None if no epoch has ended, or if there is no counter for these bytes.
    """

    rank: _Count
    host: str
    time: _Seconds
    phase: Phase
    done: _Count
    total: _Count
    unit: str
    epoch: _Count = 0
    epochs: _Count = 0
    elapsed_s: _Seconds = 0.0
    bytes: _Count = 0
    wait_s: _Seconds = 0.0
    compute_s: _Seconds = 0.0
    sync_s: _Seconds = 0.0
    arrived: _Count | None = None
    asked: _Count = 0


def line(state: RankState) -> bytes:
    """Return the line of a rank, with LINE_BYTES bytes."""
    short = msgspec.structs.replace(state, host=state.host[:_LONGEST_HOST])
    return msgspec.json.encode(short).ljust(LINE_BYTES - 1) + b"\n"


def file_name(first_rank: int) -> str:
    """Return the name of the file of a node. first_rank: lowest rank on the node."""
    return f"{_PREFIX}{first_rank}"


def read(folder: Path) -> list[RankState]:
    """Return the states in a folder by rank. A line that is being written, or that is damaged, is left out."""
    states: dict[int, RankState] = {}
    for path in folder.glob(f"{_PREFIX}*"):
        states |= {state.rank: state for state in _states(path)}
    return [states[rank] for rank in sorted(states)]


def _states(path: Path) -> Iterator[RankState]:
    try:
        content = safe_folders.content(path, LINE_BYTES << 16)
    except (OSError, DlioError):
        return
    for text in content.splitlines():
        try:
            state = msgspec.json.decode(text.strip(b" \0"), type=RankState)
        except msgspec.DecodeError:
            continue
        if state.done <= state.total and (state.host + state.unit).isprintable():
            yield state
