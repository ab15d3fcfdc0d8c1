"""Finished jobs are written in the directory layout of MLPerf Storage."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from msgspec import structs

from dlio_hpc.base import serialization, units
from dlio_hpc.batch.schedulers.scheduler import State
from dlio_hpc.config import workload
from dlio_hpc.files import rundir
from dlio_hpc.plan import plan
from dlio_hpc.reports.mlperf_storage import figures
from dlio_hpc.reports.mlperf_storage.editions import EDITIONS
from dlio_hpc.results import run_result
from dlio_hpc.results.run_result import CheckpointSummary, Distribution, Epoch, RestoreSummary
from dlio_hpc.verdict import criteria_file
from tests.conftest import Outcome, Run
from tests.support import studies

_BEGIN = units.timestamp("2026-11-21T10:00:00Z")
_NODE = {"host": "n1", "cores": 16, "memory_bytes": 64 << 30}
_TIMES = Distribution(2.0, 2.0, 3.0, 3.0, 3.0)
_SAVED = CheckpointSummary(10, 10 << 30, _TIMES, _TIMES, _TIMES, None, 1073.741824, None, safe_s=_TIMES)
_LOADED = RestoreSummary(10, 10 << 30, _TIMES, _TIMES, 2147.483648, 1.0, None, None, None, None, 0.0)


def _job(
    folder: Path,
    name: str,
    *settings: str,
    begins: float = 0.0,
    state: State = "completed",
    au: float | None = 0.95,
    **rest: Any,
) -> Path:
    """Write a job of a shipped workload with a warm-up and two measurements, a minute apart. begins: seconds."""
    request = {key: rest.pop(key) for key in ("generate",) if key in rest}
    asked = studies.asked(name, settings=settings)
    made = studies.make(folder / "dlio-runs", asked, repeat=2, name=name, warmup=1, **request)
    studies.write(made, lambda _, repeat: 100.0, state, **rest)
    job = folder / "dlio-runs" / name
    for number, path in enumerate(sorted(job.glob(f"runs/*/{rundir.RESULT}"))):
        result, start = run_result.decode(path.read_bytes(), str(path)), _BEGIN + begins + 60 * number
        epochs = [Epoch(1, 11.0, 10, 1000, 10**9, wait_s=1.0, compute_s=8.0, sync_s=1.0, au_mlperf=au)]
        result = structs.replace(
            result, started=units.utc(start, True), ended=units.utc(start + 30, True),
            epochs=[] if result.kind == "generate" else epochs,
        )  # fmt: skip
        path.write_bytes(serialization.encode(result))
    (job / rundir.ENVIRONMENT).write_text(json.dumps({"nodes": [_NODE]}))
    return job


def _report(run: Run, *names: object, edition: str = "v2", options: tuple[str, ...] = ()) -> Outcome:
    chosen = ("--edition", edition, "--division", "closed", "--submitter", "acme", "--system", "fast")
    return run("dlio-hpc", "mlperf-report", "out", *names, *chosen, *options)


def _json(folder: Path, pattern: str) -> Any:
    (path,) = folder.glob(pattern)
    return json.loads(path.read_text())


def _config(folder: Path, name: str) -> Any:
    return yaml.safe_load((folder / "dlio_config" / name).read_text())


def test_a_training_job_has_the_files_of_the_layout(run: Run, tmp_path: Path) -> None:
    done = _report(run, _job(tmp_path, "unet3d_h100"))
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith("Wrote 4 runs in the layout of MLPerf Storage v2.0. This is not a submission: ")
    model = tmp_path / "out/closed/acme/results/fast/training/unet3d"
    assert sorted(path.relative_to(model).as_posix() for path in model.glob("*/*")) == [
        "datagen/20261121_100000", "run/20261121_100100", "run/20261121_100200", "run/20261121_100300",
    ]  # fmt: skip
    files = {path.relative_to(model).as_posix() for path in model.glob("run/20261121_100200/**/*.*")}
    assert {name.removeprefix("run/20261121_100200/") for name in files} == {
        "training_run.stdout.log", "training_run.stderr.log", "dlio.log", "summary.json", "0_output.json",
        "0_per_epoch_stats.json", "training_20261121_100200_metadata.json", "dlio_config/config.yaml",
        "dlio_config/hydra.yaml", "dlio_config/overrides.yaml",
    }  # fmt: skip
    assert not (model / "datagen/20261121_100000/summary.json").exists(), "generation has no figures"
    assert "A submission is made with MLCommons' own tool" in (tmp_path / "out/README.md").read_text()


def test_the_figures_are_those_of_the_results(run: Run, tmp_path: Path) -> None:
    assert _report(run, _job(tmp_path, "unet3d_h100")).code == 0
    folder = tmp_path / "out/closed/acme/results/fast/training/unet3d/run/20261121_100200"
    summary = _json(folder, "summary.json")
    assert (summary["start"], summary["end"]) == ("2026-11-21T10:02:00.000", "2026-11-21T10:02:30.000")
    assert (summary["num_accelerators"], summary["num_hosts"], summary["num_files_train"]) == (4, 1, 168)
    assert (summary["host_memory_GB"], summary["host_cpu_count"]) == ([64.0], [16])
    metric = summary["metric"]
    assert metric["train_au_percentage"] == [pytest.approx(95.0)]
    assert (metric["train_au_mean_percentage"], metric["train_au_stdev_percentage"]) == (pytest.approx(95.0), 0.0)
    assert metric["train_au_meet_expectation"] == "success"
    assert metric["train_throughput_samples_per_second"] == [pytest.approx(1000 / 11)]
    assert metric["train_throughput_mean_samples_per_second"] == 100.0
    assert metric["train_io_mean_MB_per_second"] == pytest.approx(100e6 / (1 << 20))
    assert _json(folder, "0_per_epoch_stats.json") == {"1": {"duration": "11.00"}}


def test_the_au_is_judged_by_the_limit_of_the_edition(run: Run, tmp_path: Path) -> None:
    assert _report(run, _job(tmp_path, "cosmoflow_h100", au=0.7)).code == 0
    assert _report(run, _job(tmp_path, "resnet50_h100", au=0.89)).code == 0
    for model, expected in (("cosmoflow", "success"), ("resnet50", "fail")):
        folder = tmp_path / "out/closed/acme/results/fast/training" / model / "run/20261121_100200"
        assert _json(folder, "summary.json")["metric"]["train_au_meet_expectation"] == expected


def test_what_is_unknown_is_null_and_listed(run: Run, tmp_path: Path) -> None:
    job = _job(tmp_path, "unet3d_h100", "reader.loader=native", "reader.mode=posix", au=None)
    (job / rundir.ENVIRONMENT).unlink()
    done = _report(run, job)
    summary = _json(tmp_path, "out/closed/acme/results/fast/training/unet3d/run/20261121_100200/summary.json")
    assert summary["host_memory_GB"] is None
    assert summary["metric"]["train_au_meet_expectation"] is None
    for line in (
        "host_memory_GB is null",
        "AU is null: epochs have only one step",
        "framework, reader.data_loader: dlio_benchmark has no loader native",
        "no key for the change (shipped / measured) reader.mode: framework / posix",
        "systems/SYSTEM.pdf",
        "UNKNOWN",
    ):
        assert line in done.out, line


def test_changed_settings_are_overrides_in_the_keys_of_dlio_benchmark(run: Run, tmp_path: Path) -> None:
    changes = ("dataset.files=336", "reader.read_threads=2", "reader.batch_size=2", "reader.verify_content=none")
    assert _report(run, _job(tmp_path, "unet3d_h100", *changes)).code == 0
    folder = tmp_path / "out/closed/acme/results/fast/training/unet3d/run/20261121_100200"
    data, *others = _config(folder, "overrides.yaml")
    assert data.startswith("++workload.dataset.data_folder=")
    assert {line.removeprefix("++workload.") for line in others} == {
        "dataset.num_files_train=336", "reader.read_threads=2", "reader.batch_size=2",
    }  # fmt: skip
    config = _config(folder, "config.yaml")["workload"]
    assert (config["model"]["name"], config["framework"], config["metric"]) == ("unet3d", "pytorch", {"au": 0.9})
    assert config["workflow"] == {"generate_data": False, "train": True, "checkpoint": False}
    assert config["dataset"]["record_length_bytes"] == 146600628
    assert config["reader"]["file_shuffle"] == "seed"
    metadata = _json(folder, "*_metadata.json")
    assert metadata["parameters"] == config
    assert metadata["override_parameters"]["reader.batch_size"] == 2
    assert (metadata["model"], metadata["accelerator"], metadata["num_processes"]) == ("unet3d", "h100", 4)


def test_checkpoints_of_a_training_are_a_change(run: Run, tmp_path: Path) -> None:
    assert _report(run, _job(tmp_path, "unet3d_h100", "checkpoint.model_bytes=499153191")).code == 0
    folder = tmp_path / "out/closed/acme/results/fast/training/unet3d/run/20261121_100200"
    assert _config(folder, "config.yaml")["workload"]["workflow"]["checkpoint"] is True
    changed = _config(folder, "overrides.yaml")
    for line in ("model.model_size_bytes=499153191", "checkpoint.checkpoint_after_epoch=1"):
        assert f"++workload.{line}" in changed


def test_checkpoints_have_a_folder_without_a_phase(run: Run, tmp_path: Path) -> None:
    job = _job(tmp_path, "llama3_8b", checkpoint=_SAVED, restored=_LOADED)
    assert _report(run, job, edition="v3").code == 0
    model = tmp_path / "out/closed/acme/results/fast/checkpointing/llama3-8b"
    folders = sorted(path.name for path in model.iterdir())
    assert folders == ["20261121_100000", "20261121_100100", "20261121_100200"]
    metric = _json(model / folders[1], "summary.json")["metric"]
    assert metric == pytest.approx(
        {
            "checkpoint_size_GB": 1.0, "save_checkpoint_io_mean_GB_per_second": 1.0,
            "save_checkpoint_duration_mean_seconds": 2.0, "load_checkpoint_io_mean_GB_per_second": 2.0,
            "load_checkpoint_duration_mean_seconds": 2.0,
        }
    )  # fmt: skip
    config = _config(model / folders[1], "config.yaml")["workload"]
    assert config["checkpoint"]["mode"] == "subset", "four ranks write a part of the checkpoint of eight"
    assert (config["model"]["num_layers"], config["checkpoint"]["num_checkpoints_read"]) == (32, 10)
    arguments = _json(model / folders[1], "*_metadata.json")["args"]
    assert (arguments["model"], arguments["num_checkpoints_write"]) == ("llama3-8b", 10)


@pytest.mark.parametrize(
    ("name", "rest", "code", "message"),
    [
        ("demo", {}, 2, "MLPerf Storage v2.0 has no workload 'demo'; leave the job out. It has: unet3d_a100, "),
        ("unet3d_b200", {}, 2, "MLPerf Storage v2.0 has no workload 'unet3d_b200'"),
        (
            "unet3d_h100",
            {"state": "failed"},
            6,
            "has no valid result; submit it again. job unet3d_h100 ended as failed",
        ),
        ("unet3d_h100", {"steps": 9}, 7, "submit it again. job unet3d_h100 stopped close to its time limit"),
        ("unet3d_h100", {"generate": "only"}, 2, "job unet3d_h100 only generates a dataset"),
    ],
)
def test_other_jobs_are_refused(
    run: Run, tmp_path: Path, name: str, rest: dict[str, Any], code: int, message: str
) -> None:
    done = _report(run, _job(tmp_path, name, **rest))
    assert done.code == code
    assert message in done.err
    assert not (tmp_path / "out").exists()


def test_a_job_that_has_not_ended_is_refused(run: Run, tmp_path: Path) -> None:
    job = _job(tmp_path, "unet3d_h100")
    record = json.loads((job / rundir.JOB).read_text())
    record["states"] = record["states"][:1]
    (job / rundir.JOB).write_text(json.dumps(record | {"batch_id": None, "state": "planned"}))
    done = _report(run, job)
    assert done.code == 7
    assert "only jobs that have ended can be reported" in done.err


def test_rules_that_are_not_met_are_named_everywhere(run: Run, tmp_path: Path) -> None:
    """The job has two measured runs of a few steps, and another batch size than the shipped workload."""
    job = _job(tmp_path, "unet3d_h100", "reader.batch_size=2")
    done = _report(run, job)
    assert done.code == 0
    head = done.out.splitlines()[0]
    assert "This is not a submission" in head
    assert re.search(
        r"Of \d+ rules of the closed division of MLPerf Storage v2.0 that dlio-hpc checks, \d+ are not", head
    )
    listed = done.out.partition("Rules that are not met:\n")[2].partition("Rules that could not be checked")[0]
    for rule in (
        "number of runs (Submission_guidelines.md 3, 6.6): unet3d_h100 on local, 1 x 4 ranks: required: measured",
        "division of 3D U-Net (Submission_guidelines.md 10.1, 10.2): ",
        "the division closed does not let these keys change, shipped / measured: reader.batch_size: 7 / 2",
    ):
        assert rule in listed
    unmet = _json(tmp_path / "out", "closed/**/run/20261121_100200/*_metadata.json")["rules_not_met"]
    assert [f"  {line}" for line in unmet] == [line for line in listed.splitlines() if line.startswith("  ")]
    readme = (tmp_path / "out/README.md").read_text()
    assert head in readme
    assert "## Rules that are not met\n\n- " in readme
    assert all(f"- {line}\n" in readme for line in unmet)


def test_rules_are_those_of_the_criteria_and_the_division(run: Run, tmp_path: Path) -> None:
    """What dlio-hpc accept calls a failure is listed. A key that may change in the open division is not."""
    job = _job(tmp_path, "unet3d_b200", "dataset.samples_per_file=2")
    closed = _report(run, job, edition="v3").out
    opened = run(
        "dlio-hpc", "mlperf-report", "out", job, "--edition", "v3", "--division", "open", "--submitter", "acme",
        "--system", "fast",
    ).out  # fmt: skip
    assert "dataset.samples_per_file: 1 / 2" in closed
    assert "samples_per_file" not in opened.partition("Folders in")[0]
    judged = run("dlio-hpc", "accept", job, "--criteria", "mlperf_storage_v3", "--json").json["checks"]
    unmet = (
        opened.partition("Rules that are not met:\n")[2]
        .partition("\nFolders")[0]
        .partition("Rules that could not be checked")[0]
    )
    failed = [check for check in judged if check["outcome"] not in ("pass", "skipped", "inconclusive")]
    assert failed
    assert len(unmet.strip().splitlines()) == len(failed)
    assert all(check["text"] in unmet for check in failed)


def test_a_narrowed_checkpoint_is_said_to_be_one(run: Run, tmp_path: Path) -> None:
    job = _job(tmp_path, "llama3_8b", "checkpoint.model={layers: 32, hidden: 64, feed_forward: 256, heads: 32, "
               "kv_heads: 8, vocabulary: 2048}", "checkpoint.parallelism={data: 8}", "checkpoint.zero=3",
               checkpoint=_SAVED, restored=_LOADED)  # fmt: skip
    out = _report(run, job, edition="v3").out
    assert "ranks of the model (Rules.md 4.3.3, 4.3.5, 4.6.1)" in out
    assert "checkpoint.model.hidden: 4096 / 64" in out
    assert "ranks per node (Rules.md 4.6.2)" in out


def test_two_accelerators_of_a_model_do_not_share_a_folder(run: Run, tmp_path: Path) -> None:
    jobs = (_job(tmp_path, "unet3d_a100"), _job(tmp_path, "unet3d_h100", begins=600))
    done = _report(run, *jobs)
    assert done.code == 2
    assert "one accelerator for unet3d, and these jobs have a100 and h100" in done.err
    one = _report(run, *jobs, options=("--accelerator", "a100"))
    assert one.out.startswith("Wrote 4 runs")
    assert "unet3d_h100" not in one.out
    none = _report(run, *jobs, options=("--accelerator", "b200", "--replace"))
    assert "no run is on the accelerator b200; the jobs have: a100, h100" in none.err
    same_time = _report(run, jobs[0], _job(tmp_path / "other", "unet3d_a100"), options=("--replace",))
    assert same_time.code == 0, "the same job, given twice"
    assert same_time.out.startswith("Wrote 4 runs")


def test_a_report_is_replaced_only_on_request_and_only_if_it_is_ours(run: Run, tmp_path: Path) -> None:
    job = _job(tmp_path, "unet3d_h100")
    model = tmp_path / "out/closed/acme/results/fast/training/unet3d"
    assert _report(run, job).code == 0
    assert _report(run, _job(tmp_path, "resnet50_h100")).code == 0, "another workload has a folder of its own"
    again = _report(run, job)
    assert again.code == 2
    assert f"{model.relative_to(tmp_path)} is not empty; give another DIR or --system, or replace it" in again.err
    (model / "run/results.json").write_text("[]")
    assert _report(run, job, options=("--replace",)).code == 0
    assert not (model / "run/results.json").exists()
    for name in ("20261121_110000/summary.json", "20261121_100200/notes.txt"):
        foreign = model / "run" / name
        foreign.parent.mkdir(exist_ok=True)
        foreign.write_text("{}")
        refused = _report(run, job, options=("--replace",))
        assert refused.code == 2
        assert f"{name} was not written by dlio-hpc" in refused.err
        assert foreign.exists()
        foreign.unlink()
    assert not list((tmp_path / "out").rglob(".*")), "no temporary folders are left"


def test_a_readme_of_others_is_kept(run: Run, tmp_path: Path) -> None:
    readme = tmp_path / "out/README.md"
    readme.parent.mkdir()
    readme.write_text("mine")
    assert "README.md was not written by dlio-hpc" in _report(run, _job(tmp_path, "unet3d_h100")).err
    assert readme.read_text() == "mine"
    assert [path.name for path in readme.parent.iterdir()] == ["README.md"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--edition", "v1"), "found 'v1'; use one of: v2, v3"),
        (("--division", "shut"), "found 'shut'; use one of: closed, open"),
        (("--submitter", "../up"), "'../up' is not a name of letters, digits"),
        (("--system", ".hidden"), "'.hidden' is not a name of letters, digits"),
    ],
)
def test_names_that_the_layout_does_not_have_are_usage_errors(run: Run, options: tuple[str, ...], message: str) -> None:
    done = _report(run, "job", options=options)
    assert done.code == 2
    assert message in done.err


def test_a_study_stands_for_its_jobs_and_an_archive_for_its_job(run: Run, tmp_path: Path) -> None:
    job = _job(tmp_path, "unet3d_h100")
    assert run("dlio-hpc", "collect", job).code == 0
    (archive,) = (tmp_path / "dlio-runs").rglob("*.tar.zst")
    assert _report(run, archive).out.startswith("Wrote 4 runs")
    parts = studies.asked("resnet50_h100", "reader.read_threads=2,4")
    made = studies.make(tmp_path / "dlio-runs", parts, repeat=1)
    studies.write(made, lambda *_: None)
    assert "job tune-1" in _report(run, "tune").err


def test_every_workload_of_an_edition_is_shipped_and_has_the_source_s_format() -> None:
    for edition in EDITIONS.values():
        training = [name for name, model in edition.models.items() if model.family == "training"]
        allowed = criteria_file.load(edition.criteria).workloads
        assert set(training) == {name for name in allowed if not name.startswith("llama3")}
        for name, model in edition.models.items():
            plan.resolved(workload.load(name))
            assert model.accelerator is None or name.endswith(f"_{model.accelerator}")


def test_an_epoch_without_time_has_no_au() -> None:
    epoch = Epoch(1, 0.0, 0, 0, 0, 0.0, 0.0, 0.0)
    assert figures.epoch_au(epoch) is None
    assert figures.epoch_rate(epoch) is None
