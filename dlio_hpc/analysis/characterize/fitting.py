"""What a workload does not allow beside the rest (config/workload_rules.py) is taken back, with a word about it."""

from typing import Any

from dlio_hpc.analysis.characterize.evidence import Estimate
from dlio_hpc.config import reader_keys, workload_rules

_ROOM = 2**31


def fit(keys: dict[str, Estimate]) -> None:
    """`keys` in place."""

    def value(key: str) -> Any:
        return keys[key].value if key in keys else None

    def give_up(key: str, instead: Any, why: str) -> None:
        keys[key] = Estimate(instead, "unknown", f"{why}; seen: {keys[key].evidence}")

    _transfer(keys, value, give_up)
    _memory(keys, value, give_up)
    if (threads := value("reader.read_threads")) > (ahead := value("reader.prefetch") or 0) and ahead:
        keys["reader.prefetch"] = keys["reader.prefetch"]._replace(value=threads)
    if value("reader.interleave") and (why := _against_turns(value)):
        give_up("reader.interleave", None, why)
    if (chunk := value("dataset.chunk")) and chunk > _file_bytes(value):
        give_up("dataset.chunk", None, "a chunk larger than a file's data")
    if value("reader.shuffle.files") and value("dataset.files") == 1:
        give_up("reader.shuffle.files", False, "one file has no order")


def _against_turns(value: Any) -> str | None:
    """Why files cannot be read in turn."""
    if value("reader.shuffle.files") and value("reader.shuffle.samples"):
        return "any sample may come next"
    is_whole = value("reader.mode") == "framework" and value("dataset.format") in workload_rules.LIBRARIES
    return "files are loaded whole" if is_whole else None


def _transfer(keys: dict[str, Estimate], value: Any, give_up: Any) -> None:
    name, request = value("dataset.format"), value("reader.transfer_size")
    library = workload_rules.LIBRARIES.get(name) if value("reader.mode") == "framework" else None
    if library is not None and name == "npz":
        return  # of the buffer, however small samples are
    if library is not None:
        give_up("reader.transfer_size", None, f"in mode: framework {library} chooses its requests")
    elif value("dataset.chunk"):
        give_up("reader.transfer_size", None, "HDF5 reads chunks")
    elif (
        name != "tfrecord" and request >= (value("dataset.sample.bytes") or 0) and value("dataset.sample.shape") is None
    ):
        words = keys["reader.transfer_size"]
        keys["reader.transfer_size"] = words._replace(value=None, evidence=f"a request a sample: {words.evidence}")
    elif request > reader_keys.LARGEST_REQUEST:
        give_up("reader.transfer_size", reader_keys.LARGEST_REQUEST, "no request may be larger")


def _memory(keys: dict[str, Estimate], value: Any, give_up: Any) -> None:
    ahead = value("reader.prefetch")
    batches = 1 + (2 * value("reader.read_threads") if ahead is None else ahead)
    if value("reader.batch_size") * batches > _ROOM:
        give_up("reader.batch_size", 1, "so many samples fit into no memory")


def _file_bytes(value: Any) -> int:
    return int(value("dataset.samples_per_file") * (value("dataset.sample.bytes") or 1))
