"""TensorFlow's own profiler, which runs during the training loop and records the events of threads, including tf.data
iterators.
"""

import sys
import threading
from pathlib import Path

from dlio_hpc.core.clock import now
from dlio_hpc.core.loaders.tensorflow import xplane
from dlio_hpc.core.loaders.tensorflow.xplane import XPlane
from dlio_hpc.files import rundir, safe_folders

# Number of ranks that are profiled, from rank 0 on, and time limit in seconds. TensorFlow keeps all events in memory
# until the profiler stops, twenty per record of a TFRecord file, and then writes them while Python is blocked.
RANKS, _LONGEST_S = 8, 30.0
# These levels record iterators, but no Python operations.
_OPTIONS = {"host_tracer_level": 2, "python_tracer_level": 0, "device_tracer_level": 0}
# Number of marker events at the start and at the end, from which the offset of the profiler's clock is computed.
_MARKS = 8


class Profiler:
    """Context manager that runs the profiler during its `with` block, but for at most 30 s. If the profiler fails, a
    message is printed and the run continues.
    """

    def __init__(self, folder: Path, rank: int) -> None:
        self._path = folder / rundir.TF_PROFILE / rundir.xplane_name(rank)
        self._rank = rank
        self._marks: dict[str, tuple[float, float]] = {}
        self._lock = threading.Lock()
        self._timer = threading.Timer(_LONGEST_S, self._stop)
        self._timer.daemon = True
        self._is_running = False
        self._until = 0.0

    def __enter__(self) -> None:
        try:
            import tensorflow as tf

            options = tf.profiler.experimental.ProfilerOptions(**_OPTIONS)
            tf.profiler.experimental.start(str(self._folder()), options)
            self._mark()
        except Exception as fault:  # noqa: BLE001 - a failure is only a note
            self._note(fault)
            return
        self._is_running = True
        self._timer.start()

    def __exit__(self, kind: object, *_: object) -> None:
        self._timer.cancel()
        if kind is None:
            self._stop()

    def _folder(self) -> Path:
        """Return the folder to which TensorFlow writes. Each rank has its own folder, because TensorFlow's file names
        contain only the host name and a timestamp with a resolution of one second.
        """
        return self._path.with_suffix(".tmp")

    def _mark(self) -> None:
        import tensorflow as tf

        for _ in range(_MARKS):
            name = f"dlio-hpc clock {len(self._marks)}"
            began = now()
            with tf.profiler.experimental.Trace(name):
                pass
            self._marks[name] = (began, now())

    def _stop(self) -> None:
        """Stop the profiler and move its file to its final path. Do nothing if the profiler is not running."""
        with self._lock:
            if not self._is_running:
                return
            self._is_running = False
            try:
                import tensorflow as tf

                self._mark()
                self._until = now()
                tf.profiler.experimental.stop()
                (written,) = self._folder().rglob("*.xplane.pb")
                written.replace(self._path)
            except Exception as fault:  # noqa: BLE001 - a failure is only a note
                self._note(fault)
            safe_folders.discard(self._folder())

    def profile(self) -> XPlane | None:
        """Return the recorded profile, or None if the profiler failed or its file cannot be read."""
        if not self._path.exists():
            return None
        try:
            return xplane.read(self._path.read_bytes(), self._marks, self._until)
        except Exception as fault:  # noqa: BLE001 - a failure is only a note
            self._note(fault)
            return None

    def _note(self, fault: Exception) -> None:
        reason = f"{type(fault).__name__}: {fault}"
        print(
            f"dlio-hpc: note: rank {self._rank} has no TensorFlow profile (--tf-profile): {reason}",
            file=sys.stderr,
            flush=True,
        )
