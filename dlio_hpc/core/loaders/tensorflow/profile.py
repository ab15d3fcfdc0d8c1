"""TensorFlow's own profiler around the training loop: what its threads did when, tf.data's iterators among it."""

import sys
import threading
from pathlib import Path

from dlio_hpc import folders, rundir
from dlio_hpc.core.clock import now
from dlio_hpc.core.loaders.tensorflow import xplane
from dlio_hpc.core.loaders.tensorflow.xplane import Profile

# Ranks from 0 on that are looked at, and for how long: TensorFlow keeps every event in memory until it is stopped,
# twenty for each record of a TFRecord file, and then writes them while Python stands still.
RANKS, _LONGEST_S = 8, 30.0
# What shows iterators, and no operations of Python's.
_OPTIONS = {"host_tracer_level": 2, "python_tracer_level": 0, "device_tracer_level": 0}
# Events of ours on either side, by which the profiler's clock is told.
_MARKS = 8


class Profiler:
    """The block in which it runs, half a minute at most. What goes wrong with it is a note, no fault of the run."""

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
        except Exception as fault:  # noqa: BLE001 - as the class says
            self._note(fault)
            return
        self._is_running = True
        self._timer.start()

    def __exit__(self, kind: object, *_: object) -> None:
        self._timer.cancel()
        if kind is None:
            self._stop()

    def _folder(self) -> Path:
        """Where TensorFlow writes, of this rank's own: it names its files by host and second."""
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
        """The file in its place."""
        with self._lock:
            if not self._is_running:
                return
            self._is_running = False
            try:
                import tensorflow as tf

                self._mark()
                self._until = now()
                tf.profiler.experimental.stop()
                (made,) = self._folder().rglob("*.xplane.pb")
                made.replace(self._path)
            except Exception as fault:  # noqa: BLE001 - as the class says
                self._note(fault)
            folders.discard(self._folder())

    def profile(self) -> Profile | None:
        """What it saw; None when it failed."""
        if not self._path.exists():
            return None
        try:
            return xplane.read(self._path.read_bytes(), self._marks, self._until)
        except Exception as fault:  # noqa: BLE001 - as the class says
            self._note(fault)
            return None

    def _note(self, fault: Exception) -> None:
        said = f"{type(fault).__name__}: {fault}"
        print(f"dlio-hpc: note: rank {self._rank} has no --tf-profile: {said}", file=sys.stderr, flush=True)
