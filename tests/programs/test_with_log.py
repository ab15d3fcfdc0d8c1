"""Recordings beside the Darshan logs of the same runs, which libdarshan wrote."""

from pathlib import Path

import pytest

from dlio_hpc.base.errors import ConfigError
from dlio_hpc.programs.characterize import characterize
from dlio_hpc.programs.characterize.characterize import Character
from dlio_hpc.programs.characterize.evidence import DerivedValue
from dlio_hpc.programs.recordings import recorded_character, with_log
from dlio_hpc.programs.reports import accepted_workload
from tests.support import characters
from tests.support.places import LOGS

CASES = {case.name: case for case in characters.cases()}


def _recording(name: str) -> Character:
    return recorded_character.load(LOGS / "recorded" / name / "recording", True)


def _log(name: str) -> Character:
    return characterize.load(sorted((LOGS / "recorded" / name).glob("*.darshan")), None, True)


def _both(name: str) -> Character:
    return with_log.combine(_recording(name), _log(name))


@pytest.mark.parametrize("name", ["torch_loader", "csv_chunks"])
def test_values_are_right_and_requests_are_those_of_the_log(name: str) -> None:
    made = _both(name)
    right = {one.key: one.is_right for one in characters.judged(CASES[name], made) if one.confidence != "unknown"}
    assert [key for key, is_right in right.items() if not is_right and key != "compute.time"] == []
    assert len(right) >= 14
    log = _log(name).derived.keys
    for key in ("reader.transfer_size", "checkpoint.transfer_size", "checkpoint.fsync"):
        assert made.derived.keys[key] == log[key]
    assert made.log.traced
    _, text = accepted_workload.write(made, name)
    assert "recording" in text


def test_a_recorded_value_wins_and_a_surer_one_of_the_log_does(tmp_path: Path) -> None:
    keys = _both("torch_loader").derived.keys
    assert keys["reader.batch_size"].confidence == "recorded"
    assert keys["reader.mode"].confidence == "high"
    # Lines and batches of a table are in the recording; the log has blocks.
    table = _both("csv_chunks").derived.keys
    assert (table["dataset.sample.shape"].value, table["reader.batch_size"].value) == ([1201], 20)
    assert table["train.epochs"].confidence == "high"


def test_a_log_of_another_run_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"not of the same run: the log begins .* after the recording"):
        with_log.combine(_recording("torch_loader"), _log("csv_chunks"))


def test_a_log_of_other_files_gives_no_value() -> None:
    recording, log = _recording("torch_loader"), _log("torch_loader")
    roles = [role._replace(file=role.file._replace(path=f"/other{role.file.path}")) for role in log.derived.roles]
    made = with_log.combine(recording, log._replace(derived=log.derived._replace(roles=roles)))
    assert made.derived.keys == recording.derived.keys
    assert "the log shows another dataset than the recording, so no value is taken from the log" in made.notes


@pytest.mark.parametrize(("size", "request_bytes"), [(4096, 4096), (196_608, None)])
def test_a_request_that_the_log_takes_for_a_sample_is_a_part_of_it(size: int, request_bytes: int | None) -> None:
    """The recording knows samples of 196,608 B."""
    recording, log = _recording("torch_loader"), _log("torch_loader")
    keys = log.derived.keys | {
        "dataset.sample.bytes": DerivedValue(size, "low", "of the test"),
        "reader.transfer_size": DerivedValue(None, "medium", "one request per sample"),
    }
    recorded = recording.derived.keys | {"dataset.sample.bytes": DerivedValue(196_608, "recorded", "of the test")}
    made = with_log.combine(
        recording._replace(derived=recording.derived._replace(keys=recorded)),
        log._replace(derived=log.derived._replace(keys=keys)),
    )
    assert made.derived.keys["reader.transfer_size"].value == request_bytes
    assert made.derived.keys["dataset.sample.bytes"].value == 196_608
