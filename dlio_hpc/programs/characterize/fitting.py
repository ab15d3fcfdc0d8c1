"""Correction of derived values, if a workload may not have all of them together (see config/workload_rules.py)."""

from typing import Any

from dlio_hpc.config import reader_keys
from dlio_hpc.config.format_facts import FORMATS
from dlio_hpc.programs.characterize.evidence import DerivedValue

# Largest number of samples in the batches of a rank.
_ROOM = 2**31


def fit(keys: dict[str, DerivedValue]) -> None:
    """Change `keys` in place so that they form a valid workload. The evidence of a changed value names the reason."""

    def value(key: str) -> Any:
        return keys[key].value if key in keys else None

    def withdraw(key: str, instead: Any, why: str) -> None:
        keys[key] = DerivedValue(instead, "unknown", f"{why}; observed: {keys[key].evidence}")

    _transfer(keys, value, withdraw)
    _memory(keys, value, withdraw)
    if (threads := value("reader.read_threads")) > (ahead := value("reader.prefetch") or 0) and ahead:
        keys["reader.prefetch"] = keys["reader.prefetch"]._replace(value=threads)
    if value("reader.interleave") and (why := _against_interleave(value)):
        withdraw("reader.interleave", None, why)
    if (chunk := value("dataset.chunk")) and chunk > _file_bytes(value):
        withdraw("dataset.chunk", None, "the chunk is larger than a file's data")
    if value("reader.shuffle.files") and value("dataset.files") == 1:
        withdraw("reader.shuffle.files", False, "a single file has no order")


def _against_interleave(value: Any) -> str | None:
    """Return the reason why the workload cannot have `reader.interleave`, or None if it can."""
    if value("reader.shuffle.files") and value("reader.shuffle.samples"):
        return "shuffled samples come from all files"
    is_whole = value("reader.mode") == "framework" and FORMATS[value("dataset.format")].loads_whole
    return "files are loaded whole" if is_whole else None


def _transfer(keys: dict[str, DerivedValue], value: Any, withdraw: Any) -> None:
    name, request = value("dataset.format"), value("reader.transfer_size")
    if request is None:
        return
    facts = FORMATS[name]
    chooses = facts.loads_whole or facts.chooses_requests
    library = facts.library if value("reader.mode") == "framework" and chooses else None
    # The size of a buffer does not depend on the size of samples.
    is_buffer = name == "npz" or (name == "raw" and request < value("dataset.sample.bytes"))
    if library is not None and is_buffer:
        if (request or 0) > reader_keys.LARGEST_REQUEST:
            withdraw("reader.transfer_size", None, "no buffer is that large")
        return
    if library is not None:
        withdraw("reader.transfer_size", None, f"in framework mode, {library} chooses the request size")
    elif value("dataset.arrays"):
        size = keys["reader.transfer_size"]
        keys["reader.transfer_size"] = size._replace(value=None, evidence=f"one request per array: {size.evidence}")
    elif value("dataset.chunk"):
        withdraw("reader.transfer_size", None, "HDF5 reads chunks")
    elif (
        name != "tfrecord" and request >= (value("dataset.sample.bytes") or 0) and value("dataset.sample.shape") is None
    ):
        size = keys["reader.transfer_size"]
        keys["reader.transfer_size"] = size._replace(value=None, evidence=f"one request per sample: {size.evidence}")
    elif request > reader_keys.LARGEST_REQUEST:
        withdraw("reader.transfer_size", reader_keys.LARGEST_REQUEST, "limited to the largest request allowed")


def _memory(keys: dict[str, DerivedValue], value: Any, withdraw: Any) -> None:
    ahead = value("reader.prefetch")
    batches = 1 + (2 * value("reader.read_threads") if ahead is None else ahead)
    if value("reader.batch_size") * batches > _ROOM:
        withdraw("reader.batch_size", 1, "the batches would not fit into memory")


def _file_bytes(value: Any) -> int:
    return int(value("dataset.samples_per_file") * (value("dataset.sample.bytes") or 1))
