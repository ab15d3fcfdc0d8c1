"""JSON Schemas of the YAML files that people write, against the files and against what dlio-hpc itself refuses."""

import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from dlio_hpc.base import serialization
from dlio_hpc.base.errors import ConfigError
from dlio_hpc.cli import json_schema
from dlio_hpc.config import shipped, workload
from tests.conftest import Run

_FOLDERS = {
    "workload": shipped.WORKLOADS, "site": shipped.SITES, "study": shipped.STUDIES, "suite": shipped.SUITES,
    "criteria": shipped.CRITERIA,
}  # fmt: skip
_FILES = [
    (name, path) for name, folder in _FOLDERS.items() for path in sorted((shipped.root() / folder).glob("*.yaml"))
]
_MODEL = "name: w\ncheckpoint: {writes: 2, model: llama3_8b}"
_DATASET = "name: w\ndataset: {format: raw, files: 1, samples_per_file: 1, sample: {bytes: 1 KiB}}"


def _validator(name: str) -> jsonschema.Draft202012Validator:
    return jsonschema.Draft202012Validator(json_schema.of(name))


@pytest.mark.parametrize("name", json_schema.KINDS)
def test_the_shipped_schema_is_that_of_the_keys(name: str, run: Run) -> None:
    jsonschema.Draft202012Validator.check_schema(json_schema.of(name))
    printed = run("dlio-hpc", "schema", name).out
    path = shipped.root() / "share" / "schemas" / f"{name}.json"
    assert path.read_text() == printed, f"run: dlio-hpc schema {name} > {path}"


@pytest.mark.parametrize(("name", "path"), _FILES, ids=lambda value: getattr(value, "stem", value))
def test_shipped_files_name_their_schema_and_follow_it(name: str, path: Path) -> None:
    first = re.fullmatch(r"# yaml-language-server: \$schema=(\S+)", path.read_text().splitlines()[0])
    assert first is not None
    assert (path.parent / first[1]).resolve() == shipped.root() / "share" / "schemas" / f"{name}.json"
    _validator(name).validate(serialization.read_yaml(path))


def test_every_key_is_described() -> None:
    def undescribed(schema: Any, path: str) -> list[str]:
        if not isinstance(schema, dict):
            return []
        own = [f"{path}.{key}" for key, value in schema.get("properties", {}).items() if "description" not in value]
        return own + [line for key, value in schema.items() for line in undescribed(value, f"{path}.{key}")]

    assert not [line for name in json_schema.KINDS for line in undescribed(json_schema.of(name), name)]


@pytest.mark.parametrize("text", [
    _MODEL,
    _DATASET,
    f"{_DATASET}\ncompute: {{time: 20 ms}}",
    f"{_DATASET}\ncompute: {{time: {{mean: 0.02}}}}\nreader: {{transfer_size: 1.5MB, read_threads: 4}}",
    "name: w\ndataset: {format: raw, existing: '*.bin'}",
    "name: w\ndataset: {format: hdf5, files: 1, samples_per_file: 4, sample: {shape: [4, 4]}, chunk: [1, 4, 4]}",
    "name: w\ndataset: {format: null, files: 1, samples_per_file: 4, sample: {bytes: 4096}}",
])  # fmt: skip
def test_what_dlio_hpc_accepts_the_schema_accepts(text: str, tmp_path: Path) -> None:
    (tmp_path / "w.yaml").write_text(text)
    workload.draft(str(tmp_path / "w.yaml"))
    if "existing" not in text:  # needs files
        workload.load(str(tmp_path / "w.yaml"))
    _validator("workload").validate(serialization.parse_yaml(text, "w.yaml"))


@pytest.mark.parametrize(("text", "key"), [
    (f"{_DATASET}\nreeder: {{}}", "reeder"),
    (f"{_DATASET}\nreader: {{mode: mmap}}", "mode"),
    (f"{_DATASET}\nreader: {{batch_size: four}}", "batch_size"),
    (f"{_DATASET}\nreader: {{batch_size: 0}}", "batch_size"),
    (f"{_DATASET}\nreader: {{shuffle: {{sample: true}}}}", "sample"),
    (f"{_DATASET}\nreader: {{transfer_size: 1 parsec}}", "transfer_size"),
    (f"{_DATASET}\ncompute: {{time: soon}}", "time"),
    ("name: w", "dataset"),
    ("dataset: {format: raw, files: 1, samples_per_file: 1, sample: {bytes: 1}}", "name"),
    ("name: w\ndataset: {format: raw, files: 1}", "samples_per_file"),
    ("name: w\ndataset: {format: zipped, files: 1, samples_per_file: 1, sample: {bytes: 1}}", "format"),
])  # fmt: skip
def test_what_dlio_hpc_refuses_the_schema_refuses(text: str, key: str, tmp_path: Path) -> None:
    (tmp_path / "w.yaml").write_text(text)
    with pytest.raises(ConfigError):
        workload.load(str(tmp_path / "w.yaml"))
    faults = list(_validator("workload").iter_errors(serialization.parse_yaml(text, "w.yaml")))
    assert key in json.dumps([[*map(str, fault.absolute_path), fault.message, str(fault.schema)] for fault in faults])


def test_a_printed_file_names_its_schema_by_an_absolute_path(run: Run) -> None:
    for command, name in (("workloads", "demo"), ("sites", "local")):
        first = run("dlio-hpc", command, name).out.splitlines()[0]
        path = Path(first.partition("$schema=")[2])
        assert path.is_absolute()
        assert path.is_file()


def test_an_unknown_name_lists_those_that_exist(run: Run) -> None:
    done = run("dlio-hpc", "schema", "workloads")
    assert done.code == 2
    assert "did you mean 'workload'? use one of: workload, site, study, suite, criteria" in done.err
