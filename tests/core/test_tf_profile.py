"""Events of TensorFlow's profiler are placed on the benchmark's clock."""

from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from dlio_hpc.config import site, workload
from dlio_hpc.core.loaders.tensorflow import xplane
from tests.conftest import Run
from tests.support import planning

_TFRECORD = ("reader.loader=tensorflow", "reader.mode=framework", "dataset.format=tfrecord", "reader.read_threads=1")


def test_a_job_of_two_ranks_with_the_profiler_on(run: Run, small: Path) -> None:
    """Each batch that TensorFlow hands over lies within a step's wait, on the benchmark's clock."""
    pytest.importorskip("tensorflow")
    keys = [word for key in (*_TFRECORD, "reader.shuffle.samples=false") for word in ("-S", key)]
    command = ("dlio-submit", small, "-s", "local", "--ppn", 2, *keys, "--tf-profile", "--warmup", 1)
    done = run(*command, "--wait", "--json")
    assert done.code == 0, done.err
    generate, warmup, measure = sorted((Path(done.job["directory"]) / "runs").iterdir())
    assert not (generate / "tf-profile").exists()
    for folder in (warmup, measure):
        files = {path.name: path.stat().st_size for path in (folder / "tf-profile").iterdir()}
        assert set(files) == {"rank-0.xplane.pb", "rank-1.xplane.pb"}
        assert min(files.values()) > 1000
    with h5py.File(measure / "timeline.h5") as file:
        _check_events(file, done.job["runs"][-1]["result"]["summary"])


def _check_events(file: h5py.File, summary: Any) -> None:
    group = file["tf_profile"]
    rank, thread, name, start, duration = (
        group[column][...] for column in ("rank", "thread", "name", "start", "duration")
    )
    names = [text.decode() for text in group["names"]]
    assert group.attrs["ranks"].tolist() == [0, 1]
    assert group.attrs["left_out"].tolist() == [0, 0]
    assert group.attrs["clock_error"].max() < 0.001
    assert (group["thread_ranks"][...][thread] == rank).all()
    assert len(group["threads"]) == len(group["thread_ranks"]) == thread.max() + 1
    assert any(text.startswith("Iterator::") and text.endswith("TFRecord") for text in names)
    assert not any("dlio-hpc clock" in text for text in names)
    assert start.min() > -1
    assert (start + duration).max() < group.attrs["until"].max()
    assert group.attrs["until"].min() > summary["wall_s"]
    for number in range(2):
        begins = file["steps/start"][number].reshape(-1)
        ends = begins + file["steps/wait"][number].reshape(-1)
        handed = (rank == number) & (name == names.index("IteratorGetNextOp::DoCompute"))
        step = np.searchsorted(begins, start[handed], side="right") - 1
        assert sorted(step) == [0, *range(summary["steps"])], "one a step, and one of the empty pipeline before"
        assert (start[handed] + duration[handed] < ends[step] + 0.001).all()


def test_runs_of_a_plan_say_whether_they_are_profiled(tmp_path: Path) -> None:
    request = planning.Request(runs=tmp_path, tf_profile=True)
    made = planning.make(workload.load("demo", ("reader.loader=tensorflow",)), site.load("local"), request)
    assert [run.tf_profile for run in made.runs] == [False, True], "nothing is read in the first"


def test_a_profiler_that_cannot_start_is_a_note(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tf = pytest.importorskip("tensorflow")
    from dlio_hpc.core.loaders.tensorflow.profile import Profiler

    tf.profiler.experimental.start(str(tmp_path / "another"))
    profiler = Profiler(tmp_path, 3)
    try:
        with profiler:
            pass
    finally:
        tf.profiler.experimental.stop(save=False)
    assert profiler.profile() is None
    assert (
        "dlio-hpc: note: rank 3 has no TensorFlow profile (--tf-profile): AlreadyExistsError: "
        in capsys.readouterr().err
    )
    assert not list(tmp_path.glob("tf-profile/*"))


def _space(events: int) -> Any:
    """A thread whose events take 1, 2, .. us, begun 10 us apart, and a mark before them at 5 us on its clock."""
    pytest.importorskip("tensorflow")
    space = xplane._classes().XSpace()
    plane = space.planes.add(name="/host:CPU")
    for number, name in enumerate(("mark", "even", "odd")):
        plane.event_metadata[number].name = name
    line = plane.lines.add(name="reader/12345", timestamp_ns=5000)
    line.events.add(metadata_id=0, offset_ps=0, duration_ps=1_000_000)
    for number in range(events):
        parts = {"offset_ps": (number + 1) * 10_000_000, "duration_ps": (number + 1) * 1_000_000}
        line.events.add(metadata_id=1 + number % 2, **parts)
    return space


def test_the_longest_events_are_kept_and_the_clock_is_the_marks() -> None:
    content = _space(xplane.MOST + 5).SerializeToString()
    profile = xplane.read(content, {"mark": (100.0, 100.000003)}, 200.0)
    assert (profile.left_out, len(profile.start)) == (5, xplane.MOST)
    assert (profile.threads, profile.names) == (["reader"], ["even", "odd"])
    assert (np.diff(profile.start) > 0).all()
    assert profile.clock_error == pytest.approx(1e-6)
    assert profile.start[0] == pytest.approx(100.000001 + 6 * 10e-6, abs=1e-9)
    assert profile.duration[0] == pytest.approx(6e-6)
    assert profile.name[:2].tolist() == [1, 0]


def test_a_file_without_our_marks_tells_no_times() -> None:
    with pytest.raises(ValueError, match="the profile has no marker events"):
        xplane.read(_space(3).SerializeToString(), {}, 0.0)


def test_older_releases_have_the_files_classes_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    content = _space(3).SerializeToString()
    monkeypatch.setattr(xplane, "_CLASSES", ("tensorflow.absent.xplane_pb2", xplane._CLASSES[0]))
    assert len(xplane.read(content, {"mark": (1.0, 2.0)}, 3.0).start) == 3
