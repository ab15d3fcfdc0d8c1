"""Check whether the I/O of a program looks like training. By default, no workload is derived for other programs.

A program is regarded as training only if its I/O shows passes over the data with steps in them, or repeated saves of a
model. Random order, worker processes and regular steps of several samples are evidence only if passes are repeated,
because programs that read their input once show these signs as well. The names of data files are not evidence of
training.
"""

import re
from collections.abc import Mapping, Sequence

import numpy as np

from dlio_hpc.base.units import counted, format_size
from dlio_hpc.programs.characterize.evidence import DerivedValue
from dlio_hpc.programs.files import file_roles
from dlio_hpc.programs.files.file_roles import Role
from dlio_hpc.programs.files.file_stats import FileStats
from dlio_hpc.programs.files.step_detection import Pace

# Smallest number of passes over the data, of steps in a pass, and of times that a model is written.
_AGAIN, _STEPS, _TWICE = 1.5, 4, 1.9
# A program that reads its data fewer times than this may compute statistics in two passes, or verify copies.
_FEW_PASSES = 2.5
# Smallest number of regular steps of a rank that are a sign of training.
_REGULAR = 8
# Smallest difference between the bytes of a step and those of a file, as a share of them.
_UNLIKE = 0.2
# Programs that read fewer bytes, or make fewer requests, do not show how they read.
_LEAST_BYTES, _LEAST_READS = 64 << 10, 16
# Files of models.
_MODEL = re.compile(
    r"[.](?:pt|pth|keras|safetensors|pdparams|tfckpt|ckpt|onnx|index|data-\d+-of-\d+)$"
    r"|(?:^|[/_.-])(?:model|weights|state_dict|optimizer)[^/]*$",
    re.IGNORECASE,
)


def against(roles: Sequence[Role], keys: Mapping[str, DerivedValue], pace: Pace | None, workers: int) -> list[str]:
    """Return the reasons why the program's I/O does not look like training, or an empty list if it does. keys: derived
    values. pace: pace of the steps; None without a trace. workers: number of processes of a rank that read at the same
    time.
    """
    data = file_roles.of(roles, "dataset")
    written = [*file_roles.of(roles, "output"), *file_roles.of(roles, "checkpoint")]
    size, out = sum(file.bytes_read for file in data), sum(file.bytes_written for file in written)
    own = [role.file for role in roles if role.role == "other" and role.is_own and role.file.bytes_read]
    own_data = f"{format_size(sum(file.bytes_read for file in own))} of data"
    if not size and own:
        return [f"it read {own_data}, all of which it had itself written to {counted(len(own), 'file')} before"]
    if not size:
        return [f"it wrote {format_size(out)}, and read no data except programs and libraries"]
    distinct, reads = sum(min(file.size, file.bytes_read) for file in data), sum(file.reads for file in data)
    times = size / max(sum(file.size * max(file.ranks, 1) for file in data), 1)  # per rank that opened a file
    if distinct < _LEAST_BYTES or reads < _LEAST_READS:
        reasons = [f"it read only {format_size(distinct)} of data, in {counted(reads, 'request')}"]
    elif _has_signs(data, written, keys, pace, workers):
        return []
    else:
        reasons = _against_passes(data, written, times, pace)
        if not reasons and ("train.epochs" not in keys or keys["train.epochs"].value < _FEW_PASSES):
            reasons = [
                f"its data were read only {times:.3g} times, and not in steps of several samples in random order"
            ]
    if reasons and own:
        reasons.append(
            f"{own_data} were read from {counted(len(own), 'file')} that it had itself written; --only selects them"
        )
    if reasons and (collective := sum(file.collective for file in written)) and out > size:
        reasons.append(f"{format_size(out)} were written, with {collective:,} collective MPI-IO calls")
    elif reasons and out >= 0.5 * size:
        reasons.append(f"{format_size(out)} were written, {format_size(size)} read")
    return reasons


def _has_signs(
    data: Sequence[FileStats], written: Sequence[FileStats], keys: Mapping[str, DerivedValue], pace: Pace | None,
    workers: int,
) -> bool:  # fmt: skip
    """Return whether the program has a sign of training."""
    is_repeated = "train.epochs" in keys and _is_repeated(keys["train.epochs"], pace)
    if is_repeated and (workers > 1 or _is_random(keys) or _has_batches(data, pace)):
        return True
    if _saves_model(written):
        return True
    is_table = "dataset.format" in keys and keys["dataset.format"].value == "csv"
    return is_table and len(written) > 1 and (is_repeated or _is_after(written, data))


def _is_after(written: Sequence[FileStats], data: Sequence[FileStats]) -> bool:
    """Return whether files were written after all data had been read. Programs that convert data write while they
    read.
    """
    begins = [file.written_s[0] for file in written if file.written_s is not None]
    ends = [file.read_s[1] for file in data if file.read_s is not None]
    return bool(begins and ends) and min(begins) >= max(ends)


def _is_repeated(epochs: DerivedValue, pace: Pace | None) -> bool:
    """Return whether the program reads its data several times. If data are not read equally often, passes are
    uncertain. A few uncertain passes are accepted only if they contain regular steps. Programs that look up records
    have no regular steps.
    """
    is_clear = epochs.confidence in ("high", "medium") or epochs.value > _FEW_PASSES
    is_regular = pace is not None and pace.begins is not None and pace.compute_s.confidence in ("high", "medium")
    return bool(epochs.value > _AGAIN and (is_clear or is_regular))


def _is_random(keys: Mapping[str, DerivedValue]) -> bool:
    """Return whether the log clearly shows that the program reads files or samples in random order."""
    return any(
        keys[key].value is True and keys[key].confidence in ("high", "medium")
        for key in ("reader.shuffle.files", "reader.shuffle.samples")
        if key in keys
    )


def _has_batches(data: Sequence[FileStats], pace: Pace | None) -> bool:
    """Return whether the program reads several samples at a time, in regular steps. Programs that process their input
    file by file read one file in a step. Programs that process several cases read all of their input in a step.
    """
    if pace is None or pace.begins is None or len(pace.begins) < _REGULAR:
        return False
    is_clear = pace.batch.value > 1 and pace.batch.confidence not in ("unknown", "low")
    size = np.array([file.size for file in data])
    unlike = np.abs(np.array([np.median(size), size.sum()]) / max(pace.bytes, 1) - 1) > _UNLIKE
    return bool(is_clear and unlike.all())


def _saves_model(written: Sequence[FileStats]) -> bool:
    """Return whether files with the name of a model were written more than once."""
    models = [file for file in written if _MODEL.search(file.path)]
    return sum(file.bytes_written / max(file.size, 1) for file in models) > _TWICE


def _against_passes(
    data: Sequence[FileStats], written: Sequence[FileStats], times: float, pace: Pace | None
) -> list[str]:
    """Return the reasons why the program's passes over its data do not look like epochs. times: number of passes."""
    if times <= _AGAIN:
        return [f"its {counted(len(data), 'data file')} were not read repeatedly ({times:.2g} times per rank)"]
    steps = None if pace is None or pace.begins is None else len(pace.begins) / times
    if steps is not None and steps < _STEPS:
        return [f"its data were read {times:.3g} times, each time in one burst and not in steps ({steps:.1f} bursts)"]
    writers = len({file.rank for file in written if file.rank is not None}) or 1
    if len(written) / writers >= max(_STEPS, 0.5 * times) and not any(
        file.bytes_written > 1.9 * file.size for file in written
    ):
        cases = "as by a program that processes several cases"
        return [f"its data were read {times:.3g} times and {len(written):,} files were written, {cases}"]
    return []
