"""Whole studies run on the local site as a user runs them."""

import itertools
import json
import os
import re
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from dlio_hpc.analysis.log import requests
from dlio_hpc.darshan import log_reader
from dlio_hpc.plan import planned
from tests.conftest import Outcome, Run
from tests.darshan.test_darshan_job import REAL, STANDIN
from tests.support.standins import libdarshan
from tests.support.standins.login import until

KIB = 1 << 10
# 16 samples of 64 KiB in 4 files: a few milliseconds a run.
WORKLOAD = """\
name: tiny
dataset: {format: FORMAT, files: 4, samples_per_file: 4, sample: {bytes: 64 KiB}}
reader: {batch_size: 4, shuffle: {files: true, samples: true, seed: 7}}
"""
# Two measurements a job, by what they are expected to take; they take much less.
_SPLIT = ("-S", "site.expected_rates.launch=20s", "-S", "site.warning_time=1", "-t", "70s")
_LOCAL = ("-s", "local", "-d", "data", "--ppn", 2, "--seed", 5)


@pytest.fixture
def tiny(tmp_path: Path) -> Callable[..., Path]:
    def write(kind: str = "npz", more: str = "") -> Path:
        path = tmp_path / f"{kind}.yaml"
        path.write_text(WORKLOAD.replace("FORMAT", kind) + more)
        return path

    return write


def _measured(study: Any) -> dict[str, list[Any]]:
    """Results of the study's runs by their point's title, each with its directory."""
    by_title: dict[str, list[Any]] = {}
    for job in study["jobs"]:
        plan = json.loads(Path(job["directory"], "plan.json").read_bytes())
        points = {f"{run['number']:02}-{run['name']}": run["point"] for run in plan["runs"]}
        for run in job["runs"]:
            if points[run["name"]] is not None and run["result"]:
                run["folder"] = Path(job["directory"], "runs", run["name"])
                by_title.setdefault(plan["titles"][str(points[run["name"]])], []).append(run)
    return by_title


def _requests(run: Any) -> dict[int, int]:
    """Return the requests that the core counted, by the lower edge of their size."""
    with h5py.File(run["folder"] / "timeline.h5") as file:
        counts, edges = np.array(file["request_sizes/counts"]).sum(axis=0), np.array(file["request_sizes/edges"])
    return {int(edges[place]): int(counts[place]) for place in np.flatnonzero(counts)}


def _traced(run: Any) -> set[int]:
    """Sizes of all reads of the dataset in the trace of a run's Darshan log."""
    (path,) = (run["folder"] / "darshan").glob("*.darshan")
    reads = requests.of_log(log_reader.load(path), "DXT_POSIX", lambda name: "/data/" in name, None)
    return set(reads.length[~reads.write].tolist())


def test_a_sweep_of_transfer_sizes_makes_requests_of_those_sizes(run: Run, tiny: Any) -> None:
    done = run(
        "dlio-submit", tiny(), *_LOCAL, "-P", "reader.transfer_size=4KiB..64KiB*4", "--repeat", 2, "--wait", "--json"
    )
    assert done.code == 0, done.err
    (job,) = done.json["jobs"]
    assert [entry["kind"] for entry in job["runs"]].count("generate") == 1, "readers alone differ: one dataset"
    measured = _measured(done.json)
    assert {title: len(runs) for title, runs in measured.items()} == {
        "reader.transfer_size=4 KiB": 2, "reader.transfer_size=16 KiB": 2, "reader.transfer_size=64 KiB": 2,
    }  # fmt: skip
    for size in (4, 16, 64):
        for entry in measured[f"reader.transfer_size={size} KiB"]:
            assert _requests(entry) == {size * KIB: 16 * 64 // size}
            assert entry["result"]["summary"]["bytes_read"] == 16 * 64 * KIB


def test_a_sweep_of_chunk_sizes_makes_requests_of_those_sizes(run: Run, tiny: Any) -> None:
    sweeps = ("-P", "dataset.chunk=4KiB..64KiB*4", "-P", "reader.mode=posix,framework")
    done = run("dlio-submit", tiny("hdf5"), *_LOCAL, *sweeps, "--wait", "--json")
    assert done.code == 0, done.err
    (job,) = done.json["jobs"]
    assert len({entry["result"]["dataset"]["path"] for entry in job["runs"]}) == 3
    assert [entry["kind"] for entry in job["runs"]].count("generate") == 3, "each geometry once, whatever the mode"
    measured = _measured(done.json)
    for size in (4, 16, 64):
        (floor,) = measured[f"dataset.chunk={size} KiB, reader.mode=posix"]
        assert _requests(floor) == {size * KIB: 16 * 64 // size}
        (library,) = measured[f"dataset.chunk={size} KiB, reader.mode=framework"]
        summary = library["result"]["summary"]
        chunks = 16 * 64 // size
        assert chunks <= summary["reads"] <= chunks + 4 * 40, "besides, HDF5 looks up where the chunks lie"


@pytest.mark.parametrize("library", [STANDIN, *REAL])
def test_darshan_sees_the_sizes_that_were_asked_for(run: Run, tiny: Any, tmp_path: Path, library: Path | None) -> None:
    """The stand-in sees what Python reads; a real Darshan sees what HDF5 reads, too."""
    watched: tuple[str, ...] = ("-S", f"site.darshan={library or libdarshan.install(tmp_path / 'lib')}")
    if library is None:
        watched = (*watched, "-S", libdarshan.rank_environment())
    sweeps: list[tuple[Path, str, tuple[str, ...]]] = [(tiny(), "reader.transfer_size", ())]
    if library is not None:
        sweeps.append((tiny("hdf5"), "dataset.chunk", ("-S", "reader.mode=framework")))
    for workload, key, more in sweeps:
        varied = (*more, "-P", f"{key}=4KiB..64KiB*4")
        assert run("dlio-submit", workload, *_LOCAL, *varied, "--generate", "only", "--no-darshan", "--wait").code == 0
        done = run("dlio-submit", workload, *_LOCAL, *varied, *watched, "--wait", "--json")
        assert done.code == 0, done.err
        for title, (entry,) in _measured(done.json).items():
            assert entry["darshan"]["why_not"] is None
            assert entry["darshan"]["differences"] == []
            size = int(title.partition("=")[2].split()[0]) * KIB
            assert {length for length in _traced(entry) if length >= 4 * KIB} == {size}


def _study(done: Outcome) -> Path:
    assert done.code == 0, done.err
    return Path(done.json["jobs"][0]["directory"].rpartition("-")[0])


def _table(study: Any) -> Any:
    """Return what does not depend on the machine's speed: points, how often each was measured, what it read."""
    return sorted(
        (title, len(runs), {(entry["result"]["summary"]["samples"], entry["result"]["summary"]["bytes_read"],
                             entry["result"]["summary"]["reads"]) for entry in runs})
        for title, runs in _measured(study).items()
    )  # fmt: skip


def test_a_study_killed_in_the_middle_and_resumed_is_like_one_that_was_not(run: Run, tiny: Any) -> None:
    options = ("-P", "reader.transfer_size=4KiB..64KiB*4", "--repeat", 3, "-S", "compute.time=50ms")
    whole = run("dlio-submit", tiny(), *_LOCAL, *options, "--wait", "--json")
    assert whole.code == 0, whole.err
    folder = _study(run("dlio-submit", tiny(), *_LOCAL, *options, "--json"))
    directory = folder.with_name(f"{folder.name}-1")
    until(lambda: len(list(directory.glob("runs/*/result.json"))) >= 5)
    leader = int(json.loads((directory / "job.json").read_bytes())["batch_id"].partition(".")[0])
    os.killpg(leader, signal.SIGKILL)
    _kill_session(leader)
    collected = run("dlio-hpc", "collect", folder)
    assert collected.code == 7
    assert "measurements are missing" in collected.err
    assert "reader.transfer_size=" in collected.err
    assert f"dlio-submit --resume {folder}" in collected.err
    missing = collected.err.count(", repeat ")
    assert 0 < missing < 9
    again = run("dlio-submit", "--resume", folder.name, "--wait", "--json")
    assert again.code == 0, again.err
    first, second = again.json["jobs"]
    assert (first["state"], second["state"]) == ("lost", "completed")
    assert sum(entry["kind"] == "measure" for entry in second["runs"]) == missing, "those alone"
    assert again.json["missing"] == []
    assert _table(again.json) == _table(whole.json)
    rows = [
        [(point["title"], len(point["measurements"])) for point in study["points"]]
        for study in (again.json, whole.json)
    ]
    assert rows[0] == rows[1]
    settled = run("dlio-submit", "--resume", folder)
    assert settled.code == 0
    assert "nothing to resume: 9 measurements exist" in settled.err
    assert "all 9 measurements of 3 points exist" in run("dlio-hpc", "collect", folder).err


def _kill_session(leader: int) -> None:
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                fields = Path(f"/proc/{entry}/stat").read_bytes().rpartition(b")")[2].split()
                if int(fields[3]) == leader:
                    os.kill(int(entry), signal.SIGKILL)
            except OSError:
                continue


def test_what_does_not_fit_into_one_job_is_split_and_run_one_after_the_other(run: Run, tiny: Any) -> None:
    options = ("-P", "reader.shuffle.seed=1..4", "-S", "compute.time=1s", *_SPLIT)
    done = run("dlio-submit", tiny(), *_LOCAL, *options, "--json")
    assert done.code == 0, done.err
    jobs = [Path(job["directory"]) for job in done.json["jobs"]]
    assert len(jobs) == 2
    assert [job["state"] for job in run("dlio-hpc", "status", *jobs, "--json").json["jobs"]][1] == "queued"
    waited = run("dlio-hpc", "wait", _study(done).name, "--json")
    assert waited.code == 0, waited.err
    spans = [
        (entry["result"]["started"], entry["result"]["ended"]) for job in waited.json["jobs"] for entry in job["runs"]
    ]
    assert spans == sorted(spans), "never two at a time"
    assert all(ended <= started for (_, ended), (started, _) in itertools.pairwise(spans))
    first, second = waited.json["jobs"]
    assert not first["runs"][0]["result"]["generated"]["reused"]
    assert second["runs"][0]["result"]["generated"]["reused"]


def test_cancelling_a_study_reaches_the_jobs_that_wait(run: Run, tiny: Any) -> None:
    options = ("-P", "reader.shuffle.seed=1..4", "-S", "compute.time=1s", *_SPLIT)
    done = run("dlio-submit", tiny(), *_LOCAL, *options, "--json")
    folder = _study(done)
    assert run("dlio-hpc", "cancel", folder.name).code == 0
    waited = run("dlio-hpc", "wait", folder.name, "--json")
    assert waited.code == 7
    assert [job["state"] for job in waited.json["jobs"]] == ["cancelled", "cancelled"]
    again = run("dlio-submit", "--resume", folder, "--dry-run", "--json", "-t", "1h")
    assert again.code == 0, again.err
    (job,) = again.json["jobs"]
    assert job["job"].endswith("-3")
    assert not Path(job["directory"]).exists()


def test_a_point_that_fails_does_not_stop_the_others(run: Run, tiny: Any, tmp_path: Path) -> None:
    sweeps = ("-P", "dataset.format=npz,tfrecord,hdf5", "-P", "reader.batch_size=1,4")
    shown = run("dlio-submit", tiny(), *_LOCAL, *sweeps, "--dry-run", "--json").json
    assert not (tmp_path / "data").exists()
    assert len(shown["jobs"]) == 1
    first = run("dlio-submit", tiny(), *_LOCAL, *sweeps, "--generate", "only", "--wait", "--json")
    assert first.code == 0, first.err
    (broken,) = (tmp_path / "data").glob("tfrecord-*")
    (broken / "dlio-dataset.json").unlink()
    done = run("dlio-submit", tiny(), *_LOCAL, *sweeps, "--wait", "--json")
    assert done.code == 2, "as the point that failed"
    (job,) = done.json["jobs"]
    assert job["state"] == "failed"
    measured = _measured(done.json)
    assert len(measured) == 4
    assert not [title for title in measured if "tfrecord" in title]
    assert len(done.json["missing"]) == 2
    assert all(
        "no dataset" in missing["why"] or "dlio-dataset.json" in missing["why"] for missing in done.json["missing"]
    )
    for path in broken.iterdir():
        path.unlink()
    again = run("dlio-submit", "--resume", _folder(done), "--wait", "--json")
    assert again.code == 0, again.err
    assert len(_measured(again.json)) == 6


def _folder(done: Outcome) -> Path:
    return Path(done.json["jobs"][0]["directory"].rpartition("-")[0])


def test_a_job_that_waits_may_be_cancelled_and_none_runs_beside_another(run: Run, tiny: Any) -> None:
    options = ("-P", "reader.shuffle.seed=1..6", "-S", "compute.time=1s", *_SPLIT)
    done = run("dlio-submit", tiny(), *_LOCAL, *options, "--json")
    first, second, third = (Path(job["directory"]) for job in done.json["jobs"])
    until(lambda: list(first.glob("runs/*measure/result.json")))
    assert run("dlio-hpc", "cancel", second).code == 0
    waited = run("dlio-hpc", "wait", _study(done).name, "--json")
    assert waited.code == 7
    assert [job["state"] for job in waited.json["jobs"]] == ["completed", "cancelled", "completed"]
    ended, started = (json.loads((path / "job.json").read_bytes())["states"] for path in (first, third))
    results = [json.loads(path.read_bytes()) for path in sorted(third.glob("runs/*/result.json"))]
    assert results[0]["started"] > max(
        json.loads(path.read_bytes())["ended"] for path in first.glob("runs/*/result.json")
    ), (ended, started)


def test_a_study_that_was_moved_or_damaged_is_resumed(run: Run, tiny: Any, tmp_path: Path) -> None:
    options = ("-P", "reader.shuffle.seed=1..3", "--wait", "--json")
    done = run("dlio-submit", tiny(), *_LOCAL, *options)
    assert done.code == 0, done.err
    name = _study(done).name
    (tmp_path / "dlio-runs").rename(tmp_path / "moved")
    job = tmp_path / "moved" / f"{name}-1"
    lost = next(job.glob("runs/*p1-measure"))
    (lost / "result.json").unlink()
    (tmp_path / "moved" / "archive" / f"{name}-1.tar.zst").unlink()
    (tmp_path / "moved" / f"{name}-2").mkdir()  # of a submission that was killed at once
    (tmp_path / "moved" / name / "study.json").unlink()
    (tmp_path / "moved" / name).rmdir()
    collected = run("dlio-hpc", "collect", f"moved/{name}")
    assert "1 of 3 measurements are missing" in collected.err
    again = run("dlio-submit", "--resume", f"moved/{name}", "--wait", "--json")
    assert again.code == 0, again.err
    assert not (tmp_path / "dlio-runs").exists()
    assert [Path(job["directory"]).name for job in again.json["jobs"]] == [f"{name}-1", f"{name}-3"]
    assert again.json["missing"] == []
    next(job.glob("runs/*p2-measure/result.json")).write_text("{")
    shown = run("dlio-hpc", "report", name, "-o", "moved", "--json")
    assert shown.code == 0, "its archive is whole"
    (tmp_path / "moved" / "archive" / f"{name}-1.tar.zst").unlink()
    broken = run("dlio-hpc", "report", name, "-o", "moved")
    assert broken.code == 7
    assert f"left out a job that cannot be read: {name}-1:" in " ".join(broken.out.split())
    rest = run("dlio-submit", "--resume", f"moved/{name}", "--wait", "--json")
    assert rest.code == 0, rest.err
    assert rest.json["missing"] == []


def test_what_was_never_handed_over_is_measured_by_the_next_job(run: Run, tiny: Any) -> None:
    done = run("dlio-submit", tiny(), *_LOCAL, "-P", "reader.shuffle.seed=1..2", "--wait", "--json")
    folder = _study(done)
    job = folder.with_name(f"{folder.name}-1")
    record = json.loads((job / "job.json").read_bytes())
    (job / "job.json").write_text(json.dumps(record | {"batch_id": None, "states": record["states"][:1]}))
    for path in (
        *job.glob("runs/*measure/result.json"),
        job / "exit_status",
        job / "job.out",
        *folder.parent.glob("archive/*"),
    ):
        path.unlink()
    assert "was never submitted to the batch system" in run("dlio-hpc", "collect", folder).err
    again = run("dlio-submit", "--resume", folder, "--wait", "--json")
    assert again.code == 0, again.err
    assert [entry["state"] for entry in again.json["jobs"]] == ["cancelled", "completed"]


def test_limits_hold_for_what_is_resumed(run: Run, tiny: Any) -> None:
    limited = ("-S", "site.limits.node_hours=1", "-t", "10m", "-S", "compute.time=1s")
    done = run("dlio-submit", tiny(), *_LOCAL, *limited, "-P", "reader.shuffle.seed=1..2", "--json")
    folder = _study(done)
    assert run("dlio-hpc", "cancel", folder).code == 0
    until(lambda: "cancelled" in run("dlio-hpc", "status", folder).out)
    refused = run("dlio-submit", "--resume", folder, "-t", "20h")
    assert refused.code == 2
    assert "cost 20 node-hours" in refused.err
    assert not folder.with_name(f"{folder.name}-2").exists()


def test_layouts_that_no_file_system_knows_are_no_measurement(
    run: Run, tiny: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the submission cannot check the file system, the jobs report that no layout was set."""
    sweep = ("-P", "site.layout.stripe_count=1,2", "--wait", "--json")
    refused = run("dlio-submit", tiny(), *_LOCAL, *sweep)
    assert refused.code == 2
    assert "which is not Lustre, so no layout can be set" in refused.err
    monkeypatch.setattr(planned, "_check_layouts", lambda _: None)
    done = run("dlio-submit", tiny(), *_LOCAL, *sweep)
    assert done.code == 7
    assert all("the layout was not set" in missing["why"] for missing in done.json["missing"])
    assert len(done.json["missing"]) == 2


def test_what_came_from_the_page_cache_is_said(run: Run, tiny: Any) -> None:
    done = run("dlio-submit", tiny(), *_LOCAL, "-P", "reader.shuffle.seed=1..2", "--wait")
    assert done.code == 0, done.err
    cached = "Not measured: Cached (bytes came from memory instead of storage): 2 of 2 measurements."
    assert done.out.startswith(cached)
    # The kernel counts what other readers fetch on this file system, too, so the share is not always 0 %.
    text = " ".join(done.out.split())
    assert re.search(r"Read from storage: [0-9.]+ % of the bytes; the rest came from the page cache", text)


def test_a_submission_killed_between_two_jobs_is_resumed(run: Run, tiny: Any) -> None:
    options = ("-P", "reader.shuffle.seed=1..4", "-S", "compute.time=1s", *_SPLIT)
    done = run("dlio-submit", tiny(), *_LOCAL, *options, "--json")
    folder = _study(done)
    last = Path(done.json["jobs"][-1]["directory"])
    assert run("dlio-hpc", "cancel", last).code == 0
    until(lambda: run("dlio-hpc", "status", last).out.count("cancelled"))
    for path in sorted(last.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    last.rmdir()
    collected = run("dlio-hpc", "collect", folder)
    assert "no job was submitted for it" in collected.err
    again = run("dlio-submit", "--resume", folder, "--json")
    assert again.code == 0, again.err
    waited = run("dlio-submit", "--resume", folder, "--wait", "--json")
    assert waited.code == 0, waited.err
    assert waited.json["missing"] == []
    assert sum(len(runs) for runs in _measured(waited.json).values()) == 4


def test_a_study_file_of_the_users_own(run: Run, tiny: Any, tmp_path: Path) -> None:
    workload = tiny()
    (tmp_path / "mine.yaml").write_text(f"""\
name: mine
description: two things at once
workload: {workload}
repeat: 1
set: {{reader.batch_size: 2}}
parts:
  sizes: {{title: Transfer sizes, sweep: {{reader.transfer_size: 16 KiB..64 KiB*2}}}}
  ranks: {{title: Ranks, ranks_per_node: [1, 2], nodes: [1]}}
""")
    done = run("dlio-submit", "--study", "mine.yaml", "-s", "local", "-d", "data", "--wait", "--json")
    assert done.code == 0, done.err
    assert done.json["study"].startswith("mine-")
    measured = _measured(done.json)
    assert set(measured) == {
        "sizes: reader.transfer_size=16 KiB", "sizes: reader.transfer_size=32 KiB",
        "sizes: reader.transfer_size=64 KiB", "ranks: ranks per node=1", "ranks: ranks per node=2",
    }  # fmt: skip
    assert {entry["result"]["ranks"] for runs in measured.values() for entry in runs} == {1, 2, 4}
    estimate = run("dlio-hpc", "estimate", _folder(done), "--json").json
    assert estimate["points"] == 5
    assert estimate["total"]["space"] == 0, "the dataset lies there"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("demo", "-P", "reader.read_threads=1,2", "-S", "reader.read_threads=4"), "varies this key; leave -S out"),
        (("demo", "-P", "reader.read_threads=1,2", "--zip"), "--zip needs at least two options -P"),
        (("demo", "--weak"), "--weak needs several values of --nodes or --ppn"),
        (("demo", "--full"), "--full needs --study"),
        (("demo", "--study", "fig11"), "give a WORKLOAD, or --study NAME"),
        (
            ("--study", "fig99"),
            "no study 'fig99'; did you mean 'fig9'? give a YAML file or one of: fig10",
        ),
        (("--study", "fig11", "-P", "reader.batch_size=1,2"), "fig11 sets which keys vary"),
        (("demo", "--resume", "x"), "--resume continues a study with the options of that study"),
        (("--resume", "x", "-N", "2"), "--resume continues a study with the options of that study"),
        (("--resume", "absent"), "no job or study 'absent' in dlio-runs"),
        (("demo", "-N", "1,2", "-s", "local"), "--nodes 2: site local allows at most 1 per job"),
        (("demo", "--ppn", "1,x"), "found text 'x'; use whole numbers"),
        (("demo", "--repeat", "2", "-S", "site.limits.node_hours=0.1"), "allows 0.1 per submission; lower --time"),
        (("demo", "-S", "site.limits.space=1MiB"), "take up 261.1 MiB, but site local allows 1 MiB"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_written(
    run: Run, tmp_path: Path, arguments: tuple[str, ...], message: str
) -> None:
    done = run("dlio-submit", *arguments)
    assert done.code == 2
    assert message in " ".join(done.err.split())
    assert list(tmp_path.iterdir()) == []


def test_what_a_study_would_cost(run: Run, tmp_path: Path) -> None:
    estimate = run(
        "dlio-hpc", "estimate", "cosmoflow", "-s", "theta", "-d", "/d", "-N", "128..2048*2", "--weak", "-t", "3h"
    )
    assert estimate.code == 0
    assert max(map(len, estimate.out.splitlines())) <= 100
    assert [line.split()[:3] for line in estimate.out.splitlines() if line[:1].isdigit()] == [
        ["1", "128", "2"], ["2", "256", "2"], ["3", "512", "2"], ["4", "1024", "2"], ["5", "2048", "2"],
    ]  # fmt: skip
    assert "15.56 TiB" in estimate.out, "1/16 of 2 TiB for each doubling, four epochs each, and the ends of requests"
    as_json = run("dlio-hpc", "estimate", "demo", "-s", "local", "-P", "dataset.files=8,16", "--json").json
    assert as_json["total"]["bytes_read"] == 2 * (8 + 16) * (4 << 20)
    assert as_json["total"]["files"] == 8 + 16 + 2
    assert list(tmp_path.iterdir()) == []


@pytest.mark.job
def test_a_slowdown_of_one_point_is_found_and_the_others_are_alike(run: Run) -> None:
    """One point computes for 20 % longer a step. Steps are so long that other tests add little noise."""
    done = run(
        "dlio-submit", "null", "-s", "local", "--ppn", 1, "--seed", 5, "--repeat", 5, "--zip", "--wait", "--json",
        "-S", "train.steps=10", "-P", "reader.shuffle.seed=1..4", "-P", "compute.time=100ms,100ms,120ms,100ms",
    )  # fmt: skip
    assert done.code == 0, done.err
    (finding,) = done.json["findings"]
    (comparison,) = finding["comparisons"]
    verdicts = {point["point"]: point["verdict"] for point in comparison["points"]}
    assert verdicts.pop(2) == "slower"
    assert "slower" not in verdicts.values(), comparison
    (slow,) = [point for point in comparison["points"] if point["point"] == 2]
    assert 0.75 < slow["to_best"] < 0.9
    assert comparison["recommended"] == comparison["reference"]
    report = run("dlio-hpc", "report", _folder(done).name)
    assert "worse" in report.out
    assert report.out.count(" same") + report.out.count(" best\n") >= 3


def test_the_preflight_looks_at_all_of_a_study(run: Run, tiny: Any) -> None:
    varied = ("-P", "dataset.files=4,8", "--ppn", "1,2", "-s", "local", "-d", "data", "--no-launch", "--json")
    done = run("dlio-hpc", "check", tiny(), *varied)
    assert done.code == 0, done.out
    texts = {finding["what"]: finding["text"] for finding in done.json["findings"]}
    assert texts["space"].startswith("3.06 MiB needed")
    refused = run("dlio-hpc", "check", tiny(), *varied, "-S", "site.limits.space=1MiB")
    assert refused.code == 2
    assert "take up 3.06 MiB, but site local allows 1 MiB" in refused.out
