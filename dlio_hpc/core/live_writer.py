"""State of this rank during a run, written for commands that watch the job (live_state.py)."""

import os
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from dlio_hpc.core import clock, darshan_fd_gate
from dlio_hpc.core.distributions import BYTES, COMPUTED, READY, STARTED, SYNCED
from dlio_hpc.core.merge import Host
from dlio_hpc.core.progress import Progress
from dlio_hpc.core.train import Recorder
from dlio_hpc.files import filesystem, storage_proofs
from dlio_hpc.results import live_state
from dlio_hpc.results.live_state import Phase, RankState

# Least seconds between two states of a rank, and most files that the nodes of a job write in a second.
_LEAST_S, _MOST_FILES = 1.0, 64
# Kinds of file systems on which other nodes see what was written, or which no other node sees. On others, such as NFS,
# pages reach the server late: one rank of a node has them written. The file is not closed for this purpose, because
# Darshan may lose track of a file that another thread opens meanwhile.
_COHERENT = storage_proofs.COUNTED | storage_proofs.MEMORY | {"lustre", "gpfs", "ceph"}


class LiveWriter:
    """Writer of the state of this rank. A thread calls look() at least once a second. If a state cannot be written, no
    more states are written, and the run continues.

    folder: folder for the states of a run. The folder exists only if commands can watch the run. hosts: nodes of all
    ranks.
    """

    def __init__(self, folder: Path, hosts: Sequence[Host], rank: int, progress: Progress) -> None:
        mine = [number for number, host in enumerate(hosts) if host == hosts[rank]]
        self._path = folder / live_state.file_name(mine[0])
        self._offset, self._is_first = mine.index(rank) * live_state.LINE_BYTES, rank == mine[0]
        self._syncs = False
        self._rank, self._host, self._progress = rank, hosts[rank].name, progress
        self._pause_s = max(_LEAST_S, len(set(hosts)) / _MOST_FILES)
        self._due, self._file = 0.0, -1
        self._recorder: Recorder | None = None
        self._sums, self._summed = np.zeros(4), 0

    def watch(self, recorder: Recorder) -> None:
        """From now on, write the state of the steps that this recorder records."""
        self._recorder = recorder

    def look(self) -> None:
        """Write the state if it is due."""
        if clock.now() < self._due:
            return
        self._due = clock.now() + self._pause_s
        try:
            self._write(live_state.line(self._generating() if self._recorder is None else self._training()))
        except OSError:
            self._due = float("inf")

    def close(self) -> None:
        """Close the file of the node."""
        if self._file >= 0:
            with darshan_fd_gate.closing():
                os.close(self._file)
        self._due, self._file = float("inf"), -1

    def _write(self, line: bytes) -> None:
        if self._file < 0:
            with darshan_fd_gate.opening():
                self._file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
            self._syncs = self._is_first and filesystem.of(self._path.parent).kind not in _COHERENT
        os.pwrite(self._file, line, self._offset)
        if self._syncs:
            os.fdatasync(self._file)

    def _generating(self) -> RankState:
        made = self._progress
        phase: Phase = "generate" if made.unit else "start"
        return RankState(
            self._rank, self._host, time.time(), phase, made.done, made.total, made.unit,
            elapsed_s=made.elapsed_s, bytes=made.bytes,
        )  # fmt: skip

    def _training(self) -> RankState:
        recorder = self._recorder
        assert recorder is not None
        done, steps = recorder.done, recorder.steps
        rows = steps.reshape(-1, steps.shape[-1])
        new = rows[self._summed : done]
        self._sums += [
            float((new[:, end] - new[:, begin]).sum())
            for begin, end in ((STARTED, READY), (READY, COMPUTED), (COMPUTED, SYNCED))
        ] + [float(new[:, BYTES].sum())]
        self._summed = done
        wait_s, compute_s, sync_s, moved = self._sums.tolist()
        elapsed_s = clock.now() - float(rows[0, STARTED]) if rows[0, STARTED] else 0.0
        arrived, asked = recorder.from_storage()
        return RankState(
            self._rank, self._host, time.time(), recorder.phase, done, len(rows), "steps",
            min(done // steps.shape[1] + 1, len(steps)), len(steps), elapsed_s, int(moved), wait_s, compute_s, sync_s,
            arrived, asked,
        )  # fmt: skip
