"""A recording together with Darshan logs of the same run: the recording gives values of the program, and the log gives
requests.
"""

from dlio_hpc.base.errors import ConfigError
from dlio_hpc.base.units import format_seconds, format_size
from dlio_hpc.programs.characterize.characterize import Character
from dlio_hpc.programs.characterize.evidence import DerivedValue, sureness
from dlio_hpc.programs.files import file_roles

# Keys that say how requests are made, which only a log shows.
_OF_REQUESTS = (
    "reader.transfer_size", "reader.keep_open", "reader.reopen", "checkpoint.transfer_size", "checkpoint.requests",
    "checkpoint.fsync", "checkpoint.read_back",
)  # fmt: skip
# Keys that belong together: all are taken from one source.
_GEOMETRY = (
    "dataset.samples_per_file", "dataset.sample.", "dataset.arrays", "dataset.row_group", "reader.batch_size",
    "reader.array_order", "reader.by_array",
)  # fmt: skip
# Key of the size of a sample, share of it below which requests are smaller, and above which they have several samples.
_SIZE, _LESS, _MORE = "dataset.sample.bytes", 0.95, 1.9
# Share of the shorter run that both must have in common, and of the files of the dataset.
_SAME = 0.5


def combine(recording: Character, log: Character) -> Character:
    """Return the character of a program from its recording and its log. log: character derived from the log. It must
    have a workload even if the I/O in the log does not look like training, because the recording decides whether the
    program trains. Raise ConfigError if recording and log are not from the same run.
    """
    _check(recording, log)
    notes = [*recording.notes, *log.notes]
    keys = recording.derived.keys
    if keys and log.derived.keys:
        if _share_of_files(recording, log) < _SAME:
            notes.append("the log shows another dataset than the recording, so no value is taken from the log")
        else:
            keys = _chosen(keys, log.derived.keys)
            unfit = _unfit(keys, log.derived.keys)
            keys = {key: value for key, value in keys.items() if key not in unfit}
    derived = log.derived._replace(
        keys=keys, sides=log.derived.sides if keys else [], against=recording.derived.against
    )
    paths = [*recording.paths, *log.paths]
    return log._replace(derived=derived, notes=notes, paths=paths, is_recording=True, steps=recording.steps)


def _check(recording: Character, log: Character) -> None:
    mine, its = recording.log.job, log.log.job
    common = min(mine.ended, its.ended) - max(mine.started, its.started)
    if common < _SAME * min(mine.seconds, max(its.seconds, 1.0)):
        begun = its.started - mine.started
        raise ConfigError(
            "the log and the recording are not of the same run: the log begins "
            f"{format_seconds(abs(begun))} {'after' if begun > 0 else 'before'} the recording"
        )


def _share_of_files(recording: Character, log: Character) -> float:
    """Return the share of the recorded files of the dataset that are also in the log."""
    recorded = {file.path for file in file_roles.of(recording.derived.roles, "dataset")}
    logged = {file.path for file in file_roles.of(log.derived.roles, "dataset")}
    return len(recorded & logged) / max(len(recorded), 1)


def _chosen(recorded: dict[str, DerivedValue], logged: dict[str, DerivedValue]) -> dict[str, DerivedValue]:
    """Return the value with the higher confidence for each key. If both have the same confidence, return the recorded
    value. If both have low confidence in the shape of a sample, the value of the log is used, because the log at least
    shows the arrays that are read.
    """
    is_unsure = _least(recorded) <= sureness("low")
    is_geometry_logged = _least(logged) >= _least(recorded) if is_unsure else _least(logged) > _least(recorded)
    keys = dict(recorded)
    is_same = logged["dataset.format"].value == recorded["dataset.format"].value
    for key, value in logged.items():
        if key == "reader.mode" and not is_same:  # as another format would be read
            continue
        if key.startswith(_GEOMETRY):
            if is_geometry_logged:
                keys[key] = value
        elif key in _OF_REQUESTS or key not in keys or sureness(value.confidence) > sureness(keys[key].confidence):
            keys[key] = value
    if not is_geometry_logged:
        return keys | _request(recorded, logged)
    return {key: value for key, value in keys.items() if not key.startswith(_GEOMETRY) or key in logged}


def _unfit(keys: dict[str, DerivedValue], logged: dict[str, DerivedValue]) -> set[str]:
    """Return the keys that do not fit the chosen order or the chosen samples."""
    samples = "dataset.samples_per_file"
    has_others = samples not in logged or keys[samples].value != logged[samples].value
    unfit = {"reader.shuffle.block": not keys["reader.shuffle.samples"].value, "reader.reopen": has_others}
    return {key for key, is_unfit in unfit.items() if is_unfit}


def _request(recorded: dict[str, DerivedValue], logged: dict[str, DerivedValue]) -> dict[str, DerivedValue]:
    """Return `reader.transfer_size` if the log treats each request as a sample, but the samples in the recording are
    larger than a request. Also return it if the samples are smaller than a request and the format is HDF5, because a
    program may then read several samples in a call.
    """
    request, own, size = logged.get("reader.transfer_size"), *(made.get(_SIZE) for made in (logged, recorded))
    if request is None or request.value is not None or own is None or size is None or "dataset.chunk" in recorded:
        return {}
    is_slab = recorded["dataset.format"].value == "hdf5" and own.value >= _MORE * size.value
    if own.value >= _LESS * size.value and not is_slab:
        return {}
    evidence = f"{request.evidence}; samples have {format_size(size.value)}"
    return {"reader.transfer_size": request._replace(value=own.value, evidence=evidence)}


def _least(keys: dict[str, DerivedValue]) -> int:
    """Return the lowest confidence of the keys that describe a sample. The key for the type of its values is not
    included.
    """
    return min(
        sureness(value.confidence)
        for key, value in keys.items()
        if key.startswith(_GEOMETRY) and key != "dataset.sample.dtype"
    )
