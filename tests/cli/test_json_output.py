"""What verbs print with --json is one document that follows its schema, also if they fail."""

import grp
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import click
import jsonschema
import msgspec
import pytest

from dlio_hpc.cli import json_documents, json_schema
from dlio_hpc.cli.json_documents import DOCUMENTS, FAILURE, WITHOUT
from dlio_hpc.cli.verb_groups import VERBS
from dlio_hpc.cli.verbs import cli
from dlio_hpc.documents.studies import MeasurementDocument
from dlio_hpc.files import rundir
from dlio_hpc.results.metrics import METRICS
from tests.conftest import Outcome, Run, runner
from tests.support import studies
from tests.support.places import LOGS

_WORKLOAD = """\
name: small
dataset: {format: npz, files: 4, samples_per_file: 4, sample: {shape: [30, 100], dtype: float32}}
reader: {batch_size: 4, read_threads: 2}
compute: {time: 1 ms}
"""
_OF_DLIO = """\
model: {name: tiny, type: cnn}
framework: tensorflow
workflow: {generate_data: false, train: true}
dataset: {data_folder: data/tiny, format: npz, num_files_train: 8, num_samples_per_file: 4, record_length: 1024}
reader: {batch_size: 4, read_threads: 2}
train: {epochs: 1, computation_time: 0.01}
"""


class Done(NamedTuple):
    """A folder with a job and a study that have run, and a runner of commands in it."""

    run: Run
    folder: Path
    job: str
    study: str


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Done:
    folder = tmp_path_factory.mktemp("json")
    (folder / "small.yaml").write_text(_WORKLOAD)
    (folder / "imported").mkdir()
    (folder / "imported" / "tiny.yaml").write_text(_OF_DLIO)
    (folder / "imported" / "wrong.yaml").write_text("dataset: {format: zarr}\n")
    run = runner(folder)
    job = run("dlio-submit", "small.yaml", "-s", "local", "-d", "data", "--wait", "--json", "--ppn", "2")
    assert job.code == 0, job.err
    _checked("submit", job)
    sweep = ("-P", "reader.read_threads=1,2", "--ppn", "2")
    study = run("dlio-submit", "small.yaml", "-s", "local", "-d", "data", *sweep, "--wait", "--json")
    assert study.code == 0, study.err
    _checked("submit", study)
    made = Done(run, folder, job.job["job"], study.json["study"])
    accepted = run("dlio-hpc", "baseline", "accept", made.job, "--message", "shared", "--force", "--json")
    _checked("baseline accept", accepted)
    return made


def _schema(verb: str) -> Any:
    """Return the schema of a verb's document in which a field that it does not name is a fault."""
    kinds = [*json_documents.structs_of(verb), json_documents.struct(FAILURE)]
    return json_schema.of_documents(verb, kinds, is_closed=True)


def _checked(verb: str, outcome: Outcome) -> Any:
    """Return what a verb printed on stdout, which is one document that follows its schema."""
    content = json.loads(outcome.out)
    faults = list(jsonschema.Draft202012Validator(_schema(verb)).iter_errors(content))
    assert not faults, "\n".join(_line(fault) for fault in faults)
    return content


def _line(fault: jsonschema.ValidationError) -> str:
    """Return the innermost reason, which is that of the alternative that fits best."""
    best = jsonschema.exceptions.best_match([fault])
    return f"{'/'.join(map(str, best.absolute_path))}: {best.message[:500]}"


# The exit code is that of the verdict in the document.
_OWN_VERDICT = -1
# Arguments of each verb, its exit code, and a field of its document. A verb may be there several times.
_CASES: list[tuple[str, Callable[[Done], list[object]], int, str]] = [
    ("submit", lambda done: ["small.yaml", "-s", "local", "-d", "data", "--dry-run"], 0, "jobs"),
    ("submit", lambda done: ["--resume", done.study], 0, "points"),
    ("check", lambda done: ["small.yaml", "-s", "local", "-d", "data", "--no-launch"], 0, "findings"),
    ("estimate", lambda done: ["small.yaml", "-s", "local", "-d", "data"], 0, "jobs"),
    ("estimate", lambda done: ["small.yaml", "-s", "local", "-d", "data", "--detect", "20%"], 0, "detection"),
    ("datasize", lambda done: ["small.yaml", "--ppn", "2", "--memory", "1GiB"], 0, "samples"),
    ("status", lambda done: [], 0, "jobs"),
    ("wait", lambda done: [done.job], 0, "jobs"),
    ("wait", lambda done: [done.study], 0, "points"),
    ("cancel", lambda done: [done.job], 0, "jobs"),
    ("collect", lambda done: [], 0, "jobs"),
    ("collect", lambda done: [done.study], 0, "studies"),
    ("report", lambda done: [done.job], 0, "jobs"),
    ("report", lambda done: [f"dlio-runs/archive/{done.job}.tar.zst"], 0, "jobs"),
    ("report", lambda done: [done.study], 0, "points"),
    ("compare", lambda done: [done.job], _OWN_VERDICT, "verdicts"),
    ("compare", lambda done: [done.study, "--force"], _OWN_VERDICT, "verdicts"),
    ("accept", lambda done: [done.job, "--criteria", "acceptance"], _OWN_VERDICT, "checks"),
    ("baseline list", lambda done: [], 0, "baselines"),
    ("baseline show", lambda done: [done.job], 0, "group"),
    ("history", lambda done: [], 0, "jobs"),
    ("history", lambda done: ["nothing-*"], 2, "jobs"),
    ("darshan", lambda done: [LOGS / "mpi4_npz.darshan", LOGS / "mpi4_npz_truncated.darshan"], 3, "logs"),
    ("darshan", lambda done: [LOGS / "mpi4_npz.darshan", "--merge"], 0, "logs"),
    ("darshan", lambda done: [LOGS / "mpi4_npz.darshan", "--summary"], 0, "rows"),
    ("characterize", lambda done: [LOGS / "apps" / "tf_records.darshan"], 0, "estimates"),
    ("similarity", lambda done: [done.job, LOGS / "mpi4_npz.darshan"], 0, "factors"),
    ("similarity", lambda done: [done.job, "--matrix", "--against", "theta_8_nodes"], 0, "rows"),
    ("import", lambda done: ["imported/tiny.yaml"], 0, "workloads"),
    ("import", lambda done: ["imported", "-o", "made"], 2, "workloads"),
    ("workloads", lambda done: [], 0, "workloads"),
    ("workloads", lambda done: ["demo"], 0, "dataset"),
    ("sites", lambda done: [], 0, "sites"),
    ("sites", lambda done: ["theta"], 0, "launcher"),
    ("sites new", lambda done: ["mine", "--to", "-"], 0, "yaml"),
    ("datasets list", lambda done: ["-d", "data"], 0, "datasets"),
    ("datasets verify", lambda done: ["-d", "data"], 0, "datasets"),
    ("datasets remove", lambda done: ["-d", "data", "--unfinished", "--dry-run"], 0, "datasets"),
    ("archive verify", lambda done: [f"dlio-runs/archive/{done.job}.tar.zst"], 0, "archives"),
    ("archive list", lambda done: [f"dlio-runs/archive/{done.job}.tar.zst"], 0, "archives"),
    ("archive extract", lambda done: [f"dlio-runs/archive/{done.job}.tar.zst", "--to", "out"], 0, "archives"),
    ("archive share", lambda done: ["shared", "--group", grp.getgrgid(os.getegid()).gr_name], 0, "changed"),
    ("archive prune", lambda done: ["dlio-runs/archive", "--keep", "1d", "--dry-run"], 0, "kept"),
    ("install-site", lambda done: ["prefix"], 0, "files"),
    ("site-report", lambda done: ["site", "--quiet"], 0, "written"),
    ("clean", lambda done: ["--dry-run"], 0, "removed"),
    ("doctor", lambda done: ["-s", "local"], 0, "packages"),
]


@pytest.mark.parametrize(
    ("verb", "arguments", "code", "field"), _CASES, ids=[f"{place}-{case[0]}" for place, case in enumerate(_CASES)]
)
def test_a_verb_prints_the_document_of_its_schema(
    done: Done, verb: str, arguments: Callable[[Done], list[object]], code: int, field: str
) -> None:
    outcome = done.run("dlio-hpc", *verb.split(), *arguments(done), "--json")
    content = _checked(verb, outcome)
    assert field in content, outcome.err
    assert outcome.code == (content["exit_code"] if code == _OWN_VERDICT else code), outcome.err


def test_the_check_of_a_derived_workload(done: Done) -> None:
    outcome = done.run(
        "dlio-hpc", "characterize", LOGS / "mpi4_npz.darshan", "--force", "--check", "-s", "local", "--json"
    )
    assert _checked("characterize", outcome)["check"]["exit_code"] == outcome.code


def test_a_baseline_is_accepted_and_retired(done: Done) -> None:
    accept = done.run("dlio-hpc", "baseline", "accept", done.study, "--message", "x", "--force", "--json")
    made = _checked("baseline accept", accept)["baselines"]
    assert len(made) == 2
    retired = done.run("dlio-hpc", "baseline", "retire", made[0]["id"], "--message", "wrong", "--json")
    assert _checked("baseline retire", retired)["id"] == made[0]["id"]
    listed = _checked("baseline list", done.run("dlio-hpc", "baseline", "list", "--all", "--json"))["baselines"]
    assert {entry["state"] for entry in listed} >= {"replaced", "retired"}


def test_datasets_that_are_unfinished_are_removed(run: Run, tmp_path: Path) -> None:
    for number in range(2):
        (tmp_path / "data" / f"raw-8x4x1KiB-{number:012x}").mkdir(parents=True)
    assert len(_checked("datasets list", run("dlio-hpc", "datasets", "list", "-d", "data", "--json"))["datasets"]) == 2
    done = run("dlio-hpc", "datasets", "remove", "-d", "data", "--unfinished", "--json")
    assert len(_checked("datasets remove", done)["datasets"]) == 2
    assert not list((tmp_path / "data").iterdir())


def test_a_study_of_two_file_systems_and_jobs_of_mlperf(run: Run, tmp_path: Path) -> None:
    asked = studies.asked("demo", folders=("/old", "/new"))
    studies.write(studies.make(tmp_path / "dlio-runs", asked, repeat=4, name="ab"), lambda *_: 100.0)
    assert len(_checked("report", run("dlio-hpc", "report", "ab", "--json"))["stragglers"]) == 2
    made = studies.make(tmp_path / "dlio-runs", studies.asked("unet3d_h100"), repeat=1, name="unet")
    studies.write(made, lambda *_: 100.0)
    chosen = ("--edition", "v2", "--division", "closed", "--submitter", "acme", "--system", "fast")
    report = run("dlio-hpc", "mlperf-report", "out", "unet", *chosen, "--json")
    assert report.code == 0, report.err
    assert _checked("mlperf-report", report)["folders"]


def test_what_a_job_lacks_is_in_its_document(run: Run, tmp_path: Path) -> None:
    made = studies.make(tmp_path / "dlio-runs", studies.asked("demo", "reader.read_threads=1,2"), name="tune")
    studies.write(made, lambda point, repeat: None if point else 100.0, "failed")
    (tmp_path / "dlio-runs" / "tune" / rundir.STDERR).write_text("it broke\n")
    collected = run("dlio-hpc", "collect", "tune", "--json")
    (study,) = _checked("collect", collected)["studies"]
    assert collected.code
    assert len(study["missing"]) == 3
    assert study["resume"].startswith("dlio-submit --resume ")
    _checked("report", run("dlio-hpc", "report", "tune", "--json"))


def _verbs() -> Iterator[tuple[str, click.Command]]:
    """Yield all verbs with their commands. A group is a verb only if it does something by itself."""
    for name in VERBS:
        command = cli.get_command(click.Context(cli), name)
        assert command is not None
        if not isinstance(command, click.Group) or command.invoke_without_command:
            yield name, command
        if isinstance(command, click.Group):
            yield from ((f"{name} {inner}", made) for inner, made in command.commands.items())


def test_each_verb_has_json_or_a_reason() -> None:
    verbs = dict(_verbs())
    listed = {*DOCUMENTS, *WITHOUT}
    assert not verbs.keys() - listed, f"list in cli/json_documents.py: {sorted(verbs.keys() - listed)}"
    assert not listed - verbs.keys(), f"no such verb, but in cli/json_documents.py: {sorted(listed - verbs.keys())}"
    with_json = {name for name, command in verbs.items() if any("--json" in param.opts for param in command.params)}
    unlike = sorted(with_json ^ DOCUMENTS.keys())
    assert not unlike, f"give the option JSON of cli/verbs.py and a row in DOCUMENTS, or a reason in WITHOUT: {unlike}"
    tested = {case[0] for case in _CASES} | {"baseline accept", "baseline retire", "mlperf-report", "top"}
    assert not DOCUMENTS.keys() ^ tested, f"add to _CASES: {sorted(DOCUMENTS.keys() ^ tested)}"


@pytest.mark.parametrize("verb", DOCUMENTS)
def test_a_verb_that_fails_prints_the_reason(run: Run, verb: str) -> None:
    outcome = run("dlio-hpc", *verb.split(), "--no-such-option", "--json")
    assert outcome.code == 2
    error = _checked(verb, outcome)["error"]
    assert (error["kind"], error["exit_code"]) == ("UsageError", 2)
    assert "--no-such-option" in error["message"]
    assert error["message"] in " ".join(outcome.err.split())


@pytest.mark.parametrize(("verb", "arguments", "kind", "code"), [
    ("report", ("absent",), "ConfigError", 2),
    ("archive extract", ("broken.tar.zst",), "InvalidRun", 3),
    ("status", ("-o", "absent"), "ConfigError", 2),
    ("submit", ("demo", "-s", "local", "-o", "/proc/runs"), "InfrastructureError", 6),
])  # fmt: skip
def test_the_kind_of_a_failure(
    run: Run, tmp_path: Path, verb: str, arguments: tuple[str, ...], kind: str, code: int
) -> None:
    (tmp_path / "broken.tar.zst").write_bytes(b"no archive")
    outcome = run("dlio-hpc", *verb.split(), *arguments, "--json")
    content = _checked(verb, outcome)
    assert outcome.code == code
    if verb != "archive extract":
        assert (content["error"]["kind"], content["error"]["exit_code"]) == (kind, code)
        assert content["error"]["message"] in outcome.err
    else:
        assert content["archives"] == [], "a document of a verb for several files has those without a fault"
    assert run("dlio-hpc", *verb.split(), *arguments, DLIO_HPC_JSON="1").out == outcome.out


@pytest.mark.parametrize("verb", DOCUMENTS)
def test_the_schema_of_a_verb_is_printed_and_valid(run: Run, verb: str) -> None:
    printed = run("dlio-hpc", "schema", "--json-of", verb).json
    jsonschema.Draft202012Validator.check_schema(printed)
    assert printed["title"] == f"dlio-hpc {verb} --json"
    assert "FailureDocument" in printed["$defs"]


def test_each_field_of_a_document_has_a_meaning() -> None:
    undescribed = [
        f"{name}.{key}"
        for verb in DOCUMENTS
        for name, definition in _schema(verb)["$defs"].items()
        for key, value in definition["properties"].items()
        if name.endswith("Document") and "description" not in value and key not in METRICS
    ]
    assert not undescribed


def test_a_measurement_has_every_metric() -> None:
    names = [field.name for field in msgspec.structs.fields(MeasurementDocument)]
    lacking = [metric for metric in METRICS if metric not in names]
    assert not lacking, f"add fields to documents/studies.MeasurementDocument: {lacking}"
