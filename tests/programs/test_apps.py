"""Small programs that really learn: the programs run, and `characterize` derives from their logs what they do."""

import importlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from dlio_hpc.analysis.log import merged_program, requests
from dlio_hpc.base.errors import ConfigError
from dlio_hpc.config import workload
from dlio_hpc.darshan import log_reader
from dlio_hpc.darshan.log import Log
from dlio_hpc.programs.characterize import characterize, derive
from dlio_hpc.programs.characterize.characterize import Character
from dlio_hpc.programs.reports import workload_yaml
from tests.conftest import BIN, Run
from tests.support import fidelity
from tests.support.places import ROOT
from tests.support.programs import OTHERS, PROGRAMS

# What characterize does not yet derive of these programs: keys with another value than the truth, or with a guess.
APART = {
    "npz_archives": {"dataset.sample.bytes"},
    "csv_memory": {"dataset.samples_per_file", "dataset.sample.shape", "reader.batch_size", "reader.shuffle.samples"},
    "tf_records": {"dataset.samples_per_file", "dataset.sample.bytes", "reader.batch_size", "reader.prefetch",
                   "reader.shuffle.samples", "reader.loader"},
    "torch_loader": {"reader.loader"},
}  # fmt: skip
CHARACTERIZED = ("npz_archives", "h5_patches", "csv_memory", "tf_records", "torch_loader")


def _truth(name: str) -> dict[str, Any]:
    """Return the keys that characterize derives, with their values."""
    return {key: value for key, value in PROGRAMS[name].truth.items() if key not in APART.get(name, ())}


def _values(character: Character) -> dict[str, Any]:
    return {key: estimate.value for key, estimate in character.derived.keys.items()}


@pytest.mark.parametrize("name", CHARACTERIZED)
def test_what_a_log_tells_is_what_the_program_does(name: str, tmp_path: Path) -> None:
    expected, computing = _truth(name), PROGRAMS[name].step_s
    character = fidelity.character(name)
    values = _values(character)
    assert {key: values.get(key) for key in expected} == expected
    unknown = {key for key in values if character.derived.keys[key].confidence == "unknown"}
    assert not unknown & set(expected)
    assert all(key in unknown or values.get(key) != PROGRAMS[name].truth[key] for key in APART.get(name, ()))
    if "checkpoint" in expected:
        assert not [key for key in values if key.startswith("checkpoint.")]
    if computing is not None and "reader.batch_size" not in unknown:
        assert computing <= values["compute.time"] <= 1.5 * computing
    assert fidelity.derived(character, name, tmp_path).dataset.files == expected["dataset.files"]


def _later(path: Path, seconds: float) -> Log:
    """Return the log of the process as if it had begun later. By default PyTorch starts new workers in each epoch."""
    log = log_reader.load(path)
    job = structs.replace(log.job, started=log.job.started + seconds, ended=log.job.ended + seconds)
    return log._replace(path=path.with_name(path.name.replace("-", "-9")), job=job)


def test_workers_of_one_epoch_after_another_are_no_more_at_a_time() -> None:
    logs = [log_reader.load(path) for path in fidelity.logs("torch_loader")]
    (main,) = (log for log in logs if not log.job.metadata.get("fork_parent"))
    workers = [log for log in logs if log is not main]
    again = [_later(log.path, 20.0) for log in workers]
    log = merged_program.merge([main, *workers, *again])
    made = derive.derive(log, requests.of_log(log, "DXT_POSIX", lambda _: True, None), lambda _: True, False)
    values = {key: estimate.value for key, estimate in made.keys.items()}
    assert (values["reader.read_threads"], values["reader.batch_size"], values["train.epochs"]) == (2, 8, 4)
    assert values["compute.time"] == pytest.approx(0.036, rel=0.1)


def test_renamed_logs_are_still_processes_of_one_program(tmp_path: Path, run: Run) -> None:
    """The names have no pids, the parent's log is missing, and the same log twice is an error."""
    copies = [Path(shutil.copy(path, tmp_path / f"w{at}.darshan"))
              for at, path in enumerate(fidelity.logs("torch_loader"))]  # fmt: skip
    for paths in (copies, copies[1:]):
        character = characterize.load(paths, None, False)
        assert (character.log.job.ranks, _values(character)["reader.read_threads"]) == (1, 2)
    with pytest.raises(ConfigError, match="a log is given twice"):
        characterize.load([copies[1], copies[1]], None, False)


def test_a_checkpoint_through_stdio_alone_is_counted_once() -> None:
    character = characterize.load(fidelity.logs("tf_records"), "tfrecord|[.]data$", False)
    assert _values(character)["checkpoint.files"] == [110_592]
    assert character.derived.keys["checkpoint.files"].confidence == "medium"


def test_libraries_and_scraps_are_told_from_data() -> None:
    """PyTorch's log has files of all kinds: the interpreter's modules, a pipe, a temporary file."""
    roles = fidelity.character("torch_loader").derived.roles
    of = {role.role: [part.file.path for part in roles if part.role == role.role] for role in roles}
    assert len(of["dataset"]) == 256
    assert of["checkpoint"] == ["/scratch/torch_loader/last.pt"]
    assert len(of["library"]) > 50
    assert not any("scratch" in path for path in of["library"])
    assert any(path.startswith("/tmp/") for path in of["other"])
    assert not {"auxiliary file", "output"} & set(of)


@pytest.mark.parametrize("name", CHARACTERIZED)
def test_counters_alone_tell_less_and_less_surely(name: str, tmp_path: Path) -> None:
    """Most facilities keep logs without traces."""
    logs = [log_reader.load(path)._replace(traced={}) for path in fidelity.logs(name)]
    whole = fidelity.character(name)
    made = derive.derive(merged_program.merge(logs), None, lambda _: True, is_forced=name == "h5_patches")
    expected = PROGRAMS[name].truth
    keys = {"dataset.format", "dataset.files", "dataset.file_access", "train.epochs"} & set(expected)
    if name == "h5_patches":  # two ranks, half of one file twice, or all of it once: counters cannot say
        keys.remove("train.epochs")
        assert (made.keys["train.epochs"].value, made.keys["reader.shard"].value) == (1, False)
        assert "high" not in {made.keys[key].confidence for key in ("train.epochs", "reader.shard")}
    assert {key: made.keys[key].value for key in keys} == {key: expected[key] for key in keys}
    levels = ["unknown", "low", "medium", "high"]
    sure = [
        sum(levels.index(estimate.confidence) for estimate in derived.keys.values()) / len(derived.keys)
        for derived in (made, whole.derived)
    ]
    assert sure[0] < sure[1]
    path = tmp_path / "derived.yaml"
    path.write_text(workload_yaml.write(whole._replace(derived=made), "derived"))
    workload.load(str(path))


def test_a_simulation_is_described(run: Run) -> None:
    done = run("dlio-hpc", "characterize", fidelity.APP_LOGS / "heat.darshan")
    assert done.code == 2
    assert "this program does not look like training" in done.err
    assert "collective" in done.out
    assert "20 MiB were written" in done.out


@pytest.mark.job
@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_run_and_learn(name: str, tmp_path: Path) -> None:
    for package in PROGRAMS[name].needs:
        pytest.importorskip(package)
    program = [sys.executable, "-m", f"tests.apps.{name}"]
    launcher = [str(BIN / "mpiexec"), "-n", str(PROGRAMS[name].ranks)] if PROGRAMS[name].ranks else []
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "TF_CPP_MIN_LOG_LEVEL": "3"}
    said = ""
    for part, before in (("prepare", []), ("train", launcher)):
        done = subprocess.run(
            [*before, *program, part, str(tmp_path)], capture_output=True, text=True, env=environment, check=False,
            cwd=ROOT,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        said = done.stdout
    losses = [float(line.rpartition(" ")[2]) for line in said.splitlines() if line.startswith("epoch")]
    if name == "heat":
        assert "hottest" in said
        assert len(list(tmp_path.glob("state_*.dat"))) == importlib.import_module("tests.apps.heat").STEPS // 20
    elif name in OTHERS:
        assert said.strip()
    else:
        assert losses[-1] < 0.7 * losses[0]


def test_the_evidence_is_beside_every_value(run: Run) -> None:
    done = run("dlio-hpc", "characterize", *fidelity.logs("tf_records"), "--json")
    assert done.code == 0, done.err
    estimates = json.loads(done.out)["estimates"]
    assert all(estimate["evidence"] and estimate["confidence"] for estimate in estimates.values())
