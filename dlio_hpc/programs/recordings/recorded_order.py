"""Order in which a recorded program reads its samples, and the number of times that it opens their files."""

from collections import Counter
from collections.abc import Mapping
from itertools import pairwise

from dlio_hpc.base.units import counted
from dlio_hpc.programs.characterize.evidence import Confidence, DerivedValue, weaker
from dlio_hpc.programs.files import access_pattern
from dlio_hpc.programs.recordings.recorded_files import RecordedData
from dlio_hpc.programs.recordings.recorded_training import RecordedTraining

# Share of pairs of samples that follow each other, from which on an order is that of the dataset, and below which it is
# random. Between them, samples are read in blocks.
_IN_ORDER, _RANDOM = 0.99, 0.5
# Share of files that come after the one before by name, from which on their order is that of the names.
_BY_NAME = 0.9
# Share by which the length of blocks may differ from a batch, which then is the block.
_CHANCE = 0.2
# Number of files whose order is no chance.
_MANY = 8
# Number of samples from which on two random orders that begin alike are the same.
_LONG = 8
# Number of reads of a row group in a pass, from which on its rows do not stay together.
_TWICE = 1.5
# Share by which the number of opens may differ from that of samples, if a file is opened for each sample.
_NEARLY = 0.05


def of_loader(made: RecordedTraining, data: RecordedData, per_file: int, is_in_memory: bool) -> dict[str, DerivedValue]:
    """Return the keys for the order in which samples are read from files. If the program first reads its data into
    memory, this is not the order of the loader. per_file: samples per file. is_in_memory: whether the program reads its
    data into memory.
    """
    if made.pipeline is not None:
        evidence = "samples are read in the order of their file"
        level: Confidence = "medium" if made.pipeline.shuffles_samples else "recorded"
        return {
            "reader.shuffle.files": _recorded(made.pipeline.shuffles_files, "order of the names in the pipeline"),
            "reader.shuffle.samples": DerivedValue(False, level, evidence),
        }
    orders = [one.order for passes in made.passes for one in passes if one.order and one.order[0] > 1]
    if not orders or made.settings.get("is_iterable") or is_in_memory:
        return {"reader.shuffle.files": _by_names(data), "reader.shuffle.samples": _by_rows(data)}
    share = sum(order[1] for order in orders) / sum(order[0] - 1 for order in orders)
    evidence = f"sampler {made.settings.get('sampler')}: {share:.0%} of samples follow the previous sample"
    in_file = data.arrays is not None or (per_file > 1 and (data.is_mapped or not data.form))
    if share < _RANDOM:
        keys = {"reader.shuffle.files": _recorded(True, evidence), "reader.shuffle.samples": _recorded(True, evidence)}
        if not in_file:
            keys["reader.shuffle.samples"] = _recorded(False, "one sample in a file")
        return keys | _seed(made)
    if share < _IN_ORDER:
        count = sum(order[0] for order in orders)
        return _in_blocks(made, round(count / (count - sum(order[1] for order in orders))), in_file, evidence)
    read = _by_names(data)
    if read.value and len(data.files) >= _MANY and not in_file:
        reason = f"{evidence}, but the dataset reads its files in another order: {read.evidence}"
        return {
            "reader.shuffle.files": DerivedValue(True, "medium", reason),
            "reader.shuffle.samples": _recorded(False, "one sample in a file"),
        }
    keys = {"reader.shuffle.files": _recorded(False, evidence), "reader.shuffle.samples": _recorded(False, evidence)}
    if in_file and not data.library:
        reason = f"{evidence}; where Python reads in a file is not recorded"
        keys["reader.shuffle.samples"] = DerivedValue(False, "medium", reason)
    return keys


def _in_blocks(made: RecordedTraining, length: int, in_file: bool, evidence: str) -> dict[str, DerivedValue]:
    """Return the keys for an order in which most samples are adjacent to the previous sample, such as blocks of
    adjacent samples in random order. length: mean number of adjacent samples. Some of them are adjacent by chance.
    """
    usual = Counter(batch.samples for batch in made.batches).most_common(1)[0][0]
    length = usual if usual and abs(length - usual) <= _CHANCE * usual else length
    reason = f"{evidence}, as in blocks of {length:,} samples"
    if not in_file:
        return {
            "reader.shuffle.files": DerivedValue(True, "medium", reason),
            "reader.shuffle.samples": _recorded(False, "one sample in a file"),
        }
    return {
        "reader.shuffle.files": DerivedValue(False, "medium", reason),
        "reader.shuffle.samples": DerivedValue(True, "medium", reason),
        "reader.shuffle.block": DerivedValue(length, "medium", reason),
    } | _seed(made)


def _recorded(value: bool | int, evidence: str) -> DerivedValue:
    return DerivedValue(value, "recorded", evidence)


def _seed(made: RecordedTraining) -> dict[str, DerivedValue]:
    """Return the seed of the random order, and whether passes have different orders, as far as these were recorded."""
    keys = {}
    seed = made.settings.get("seed")
    if seed is not None and 0 <= seed < 1 << 53:
        keys["reader.shuffle.seed"] = _recorded(seed, "seed of the loader's generator or sampler")
    firsts = [[one.order[3] for one in passes if one.order] for passes in made.passes]
    pairs = [(one, other) for mine in firsts for one, other in pairwise(mine) if min(len(one), len(other)) >= _LONG]
    if pairs:
        same = sum(one == other for one, other in pairs)
        evidence = f"{same:,} of {len(pairs):,} passes begin with the same samples as the previous pass"
        keys["reader.shuffle.reseed"] = _recorded(same < len(pairs), evidence)
    return keys


def _by_names(data: RecordedData) -> DerivedValue:
    """Return whether each process reads files in another order than the order of their names."""
    by_process: dict[object, list[str]] = {}
    for read in data.reads:
        by_process.setdefault(read.process, []).append(read.path)
    if len(data.files) < 3:
        return DerivedValue(False, "unknown", f"{counted(len(data.files), 'file')}")
    names = list(data.files)
    natural = dict(zip(names, access_pattern.natural(names).tolist(), strict=True))
    pairs = [pair for paths in by_process.values() for pair in pairwise(dict.fromkeys(paths))]
    rising = max(
        sum(a < b for a, b in pairs), sum(natural[a] < natural[b] for a, b in pairs)
    ) / max(len(pairs), 1)  # fmt: skip
    return DerivedValue(rising < _BY_NAME, "medium", f"{rising:.0%} of files come after the previous file by name")


def _by_rows(data: RecordedData) -> DerivedValue:
    places = [
        (read.path, read.place[1], read.place[2]) for read in data.reads if read.place and read.place[1] is not None
    ]
    pairs = [(a, b) for a, b in pairwise(places) if a[0] == b[0]]
    if not pairs:
        return DerivedValue(False, "unknown", "the order of samples within a file was not recorded")
    share = sum(b[1] == a[1] + (a[2] or 1) for a, b in pairs) / len(pairs)
    return DerivedValue(share < _RANDOM, "medium", f"{share:.0%} of reads of a file follow the previous read")


def blocks(keys: dict[str, DerivedValue], data: RecordedData) -> dict[str, DerivedValue]:
    """Return the number of samples that stay together in a random order. If each row group of the Parquet files was
    read about once in a pass, it is the number of rows of a row group.
    """
    group = keys.get("dataset.row_group")
    if group is None or group.value < 2 or not keys["reader.shuffle.samples"].value:
        return {}
    times = Counter((read.path, str(read.place)) for read in data.reads if read.library == "pyarrow.row_group")
    passes = keys["train.epochs"].value
    if times.total() > _TWICE * passes * len(times):
        return {}
    evidence = f"{len(times):,} row groups were read {times.total():,} times in {counted(passes, 'pass')}, with "
    "all their rows"
    return {"reader.shuffle.block": DerivedValue(group.value, weaker(group.confidence, "medium"), evidence)}


def reopened(keys: Mapping[str, DerivedValue], data: RecordedData, samples: int) -> dict[str, DerivedValue]:
    """Return `reader.reopen` if files with several samples were opened again for each sample. Otherwise, return an
    empty dict. samples: number of samples that all ranks used.
    """
    is_one_request = keys["reader.mode"].value == "posix" or keys["dataset.format"].value == "hdf5"
    if keys["dataset.samples_per_file"].value < 2 or keys["reader.load"].value != "on_demand" or not is_one_request:
        return {}
    opens = sum(read.is_first for read in data.reads)
    if data.is_mapped or not 1 - _NEARLY <= opens / max(samples, 1) <= 1 + _NEARLY:
        return {}
    return {"reader.reopen": DerivedValue(True, "medium", f"{opens:,} opens of files for {samples:,} samples")}
