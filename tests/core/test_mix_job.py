"""Loads that run at the same time in one launch: whole jobs on this computer and on a real Slurm."""

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Outcome, Run
from tests.support import file_servers
from tests.support.cluster import Cluster
from tests.support.node_files import ranks

# Three loads with different numbers of ranks: training, checkpoints, metadata.
_THREE = """
name: three
repeat: 1
ranks_per_node: 4
mixes: {until: %s}
parts:
  train:
    workload: demo
    mix: busy
    share: 0.5
    set: {dataset.format: raw, dataset.files: 6, dataset.samples_per_file: 4, "dataset.sample": {bytes: 64 KiB},
          reader.drop_cache: true, reader.batch_size: 2, compute.time: 2 ms, train.epochs: 3}
  save:
    workload: llama3_8b
    mix: busy
    share: 0.25
    set: {compute.time: 150 ms, checkpoint: {writes: 4, model_bytes: 1 MiB, fsync: true}}
  storm:
    workload: metadata_own
    mix: busy
    share: 0.25
    set: {metadata.files: 200, train.epochs: 2}
"""


def _submit(run: Run, tmp_path: Path, text: str, *options: object) -> Outcome:
    file = tmp_path / "mix.yaml"
    file.write_text(text)
    return run("dlio-submit", "--study", file, "-d", tmp_path / "data", "--wait", "--json", *options)


def _runs(done: Outcome) -> dict[tuple[str, bool], Any]:
    """Return the summary of each measured run, by the name of its load and whether other loads ran."""
    runs = [one for job in done.json["jobs"] for one in job["runs"] if one["result"] and one["result"]["summary"]]
    summaries = [one["result"]["summary"] | {"ranks": one["result"]["ranks"]} for one in runs]
    return {(one["mix"]["load"], bool(one["mix"]["others"])): one for one in summaries}


@pytest.mark.job
@pytest.mark.parametrize("until", ["last", "time, time: 2 s"])
def test_loads_run_at_the_same_time_on_ranks_of_their_own(run: Run, tmp_path: Path, until: str) -> None:
    done = _submit(run, tmp_path, _THREE % until)
    assert done.code == 0, done.err
    runs = _runs(done)
    assert len(runs) == 6
    planned = {"train": 3 * 6, "save": 4, "storm": 2 * 4}
    for (load, has_others), summary in runs.items():
        assert summary["ranks"] == {"train": 2, "save": 1, "storm": 1}[load]
        assert summary["steps"] >= planned[load]
        assert summary["steps_planned"] == summary["steps"]
        assert summary["cut_short"] is None
        if not has_others and until == "last":
            assert summary["steps"] == planned[load]
            assert summary["mix"]["overlap"] == 1
    together = {load: one["mix"] for (load, has_others), one in runs.items() if has_others}
    assert len({tuple(mix["common_s"]) for mix in together.values()}) == 1
    assert all(mix["overlap"] >= 0.8 for mix in together.values())
    if until != "last":
        assert all(1 < mix["ended_s"] < 3 for mix in together.values()), together
    train = runs["train", True]
    assert train["samples"] == train["steps"] * 2 * 2
    assert train["bytes_read"] == train["samples"] * 65536
    assert runs["save", True]["checkpoint"]["count"] >= 4
    assert {one["phase"] for one in runs["storm", True]["metadata"]} == {"create", "stat", "open_read_close", "unlink"}
    assert list((tmp_path / "data").glob("outputs-*")) == []
    assert {one["load"] for one in done.json["slowdowns"] if one["is_main"]} == {"train", "save", "storm"}
    (environment,) = (tmp_path / "dlio-runs").glob("*/environment.json")
    assert len(json.loads(environment.read_bytes())["nodes"]) == 1


@pytest.mark.job
def test_all_loads_stop_when_the_first_one_ends(run: Run, tmp_path: Path) -> None:
    text = _THREE.replace("train.epochs: 3", "train.epochs: 300").replace("metadata.files: 200", "metadata.files: 20")
    text = text.replace("writes: 4", "writes: 30").replace("train.epochs: 2", "train.epochs: 3000")
    done = _submit(run, tmp_path, text % "first")
    runs = _runs(done)
    assert runs["save", True]["checkpoint"]["count"] == 30, "the first load makes all its checkpoints"
    assert runs["train", True]["steps"] < runs["train", False]["steps"] == 300 * 6
    assert runs["storm", True]["steps"] < runs["storm", False]["steps"] == 3000 * 4
    assert done.code == 0, done.err


def _started(run: Run, tmp_path: Path, text: str, launch: str) -> Path:
    """Submit a study, and return the directory of its job when the launch with this run has begun."""
    (tmp_path / "mix.yaml").write_text(text)
    assert run("dlio-submit", "--study", tmp_path / "mix.yaml", "-d", tmp_path / "data").code == 0
    for _ in range(600):
        if list((tmp_path / "dlio-runs").glob(f"*/runs/*{launch}*/live/*")):
            break
        time.sleep(0.05)
    (directory,) = (path.parent for path in (tmp_path / "dlio-runs").glob("*/job.sh"))
    return directory


@pytest.mark.job
def test_a_killed_rank_ends_all_loads_and_no_result_is_lost(run: Run, tmp_path: Path) -> None:
    text = _THREE.replace("train.epochs: 3", "train.epochs: 300") % "last"
    directory = _started(run, tmp_path, text, "p1-measure")
    started = time.monotonic()
    while time.monotonic() - started < 20 and not (victims := ranks(directory)):
        time.sleep(0.1)
    os.kill(max(victims), signal.SIGKILL)
    done = run("dlio-hpc", "wait", directory.name.rsplit("-", 1)[0], "--json")
    assert done.code not in (0, 2, 70), done.err
    assert ranks(directory) == []
    together = [path for path in directory.glob("runs/*-p[135]-*") if (path / "result.json").exists()]
    assert together == [], "the launch has no result"
    alone = [path for path in directory.glob("runs/*-p[024]-*") if (path / "result.json").exists()]
    assert len(alone) == 3, "the other launches have theirs"
    resumed = run("dlio-submit", "--resume", directory.name.rsplit("-", 1)[0], "--wait", "--json")
    assert resumed.code == 0, resumed.err
    judged = [one for one in resumed.json["slowdowns"] if one["is_main"]]
    assert [one["pairs"] for one in judged] == [1, 1, 1], "loads alone were measured again, in the job of the others"
    assert run("dlio-hpc", "clean").code == 0
    assert list((tmp_path / "data").glob("outputs-*")) == []


@pytest.mark.job
def test_a_load_that_has_started_again_at_the_time_limit_is_incomplete(run: Run, tmp_path: Path) -> None:
    text = _THREE.replace("writes: 4", "writes: 3000") % "last"
    directory = _started(run, tmp_path, text, "p1-measure")
    time.sleep(2)  # the training has made its epochs, and starts again
    (directory / "stop").write_text("time limit\n")
    done = run("dlio-hpc", "wait", directory.name.rsplit("-", 1)[0], "--json")
    assert done.code == 7, done.err
    assert "were planned" not in done.err
    assert done.json["slowdowns"] == []


@pytest.mark.job
def test_damaged_data_of_one_load_never_give_a_slowdown(run: Run, tmp_path: Path) -> None:
    text = _THREE % "last"
    (tmp_path / "mix.yaml").write_text(text)
    made = run("dlio-submit", "--study", tmp_path / "mix.yaml", "-d", tmp_path / "data", "--generate", "only", "--wait")
    assert made.code == 0, made.err
    file = max((tmp_path / "data").glob("raw*/*.raw"))
    os.truncate(file, file.stat().st_size - 1000)
    done = _submit(run, tmp_path, text, "--generate", "never")
    assert done.code == 3, done.err
    assert file.name in done.err
    assert not any(has_others for _, has_others in _runs(done))
    assert done.json["slowdowns"] == []


@contextmanager
def _limited(folder: Path, *names: str, rate: str) -> Iterator[list[Path]]:
    """Yield mount points of bindfs, each with a limit on the bytes that are read in a second."""
    source = folder / "source"
    source.mkdir()
    mounts = [folder / name for name in names]
    try:
        for mount in mounts:
            mount.mkdir()
            subprocess.run(["bindfs", f"--read-rate={rate}", source, mount], check=True)
        yield mounts
    finally:
        for mount in mounts:
            subprocess.run(["umount", "-l", mount], check=False)


_READERS = """
name: readers
repeat: 3
ranks_per_node: 2
parts:
  one: {workload: demo, mix: pair, share: 0.5, data: ONE, set: &s {dataset.format: raw, dataset.files: 4,
        dataset.samples_per_file: 16, reader.direct: true, compute.time: 0, train.epochs: 1}}
  other: {workload: demo, mix: pair, share: 0.5, data: OTHER, set: *s}
"""


@pytest.mark.job
@pytest.mark.skipif(file_servers.missing("bindfs") is not None, reason="bindfs is not installed, or cannot mount")
@pytest.mark.parametrize("is_shared", [True, False])
def test_a_made_slowdown_is_seen_and_an_absent_one_is_not(run: Run, tmp_path: Path, is_shared: bool) -> None:
    """Two loads read through one mount with a limited rate, or each through a mount of its own."""
    with _limited(tmp_path, "first", "second", rate="50M") as (first, second):
        text = _READERS.replace("ONE", str(first / "a")).replace("OTHER", str((first if is_shared else second) / "b"))
        done = _submit(run, tmp_path, text)
    assert done.code == 0, done.err
    judged = [one for one in done.json["slowdowns"] if one["is_main"]]
    assert len(judged) == 2
    for one in judged:
        assert one["verdict"] == ("slower" if is_shared else "same"), one
        assert 1.7 < one["slowdown"] < 2.6 if is_shared else 0.9 < one["slowdown"] < 1.1


@pytest.mark.cluster
@pytest.mark.parametrize("place", ["nodes", "ranks"])
def test_loads_have_their_nodes_on_slurm(run: Run, slurm: Cluster, tmp_path: Path, place: str) -> None:
    text = (_THREE % "last").replace("{until:", f"{{place: {place}, until:")
    text = text.replace("ranks_per_node: 4", "ranks_per_node: 2" if place == "nodes" else "ranks_per_node: 4")
    (tmp_path / "mix.yaml").write_text(text)
    done = run(
        "dlio-submit", "--study", tmp_path / "mix.yaml", "-s", "slurm", "-N", 4 if place == "nodes" else 2, "-d",
        tmp_path / "data", "-t", "5m", "--wait", "--json", "-S", "site.job_options=[]", **slurm.environment,
    )  # fmt: skip
    assert done.code == 0, done.err
    results = [one["result"] for job in done.json["jobs"] for one in job["runs"] if one["result"]]
    hosts = {
        (one["summary"]["mix"]["load"], bool(one["summary"]["mix"]["others"])): (one["hosts"], one["ranks"])
        for one in results
        if one["summary"] is not None
    }
    if place == "nodes":
        expected: dict[str, Any] = {"train": (["n1", "n2"], 4), "save": (["n3"], 2), "storm": (["n4"], 2)}
    else:
        expected = {"train": (["n1", "n2"], 4), "save": (["n1", "n2"], 2), "storm": (["n1", "n2"], 2)}
    assert hosts == {(load, has_others): place for load, place in expected.items() for has_others in (False, True)}
