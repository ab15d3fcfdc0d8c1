"""Every value of a Literal has an entry in every table that is keyed by it, so that a new value raises no KeyError."""

import ast
import importlib
import pkgutil
import typing
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import NamedTuple

import dlio_hpc
from dlio_hpc.batch import container, surrounding_job
from dlio_hpc.batch.schedulers.scheduler import ENDED
from dlio_hpc.batch.schedulers.scheduler_table import SCHEDULERS
from dlio_hpc.config import shipped, site
from dlio_hpc.config.dataset_keys import EXISTING_FORMATS
from dlio_hpc.core import environment
from dlio_hpc.dataset import file_scans
from dlio_hpc.records import job_outcome
from dlio_hpc.results import metrics

_ROOT = Path(dlio_hpc.__file__).parent

# Tables that omit values on purpose, by module and keys. Their users call get(), iterate, or check the key.
_PARTIAL = {
    ("reports/study_rows.py", "au read_MBps samples_per_s wall_s"): "metrics with a column of their own",
    ("reports/study_rows.py", "checkpoint_write_MBps wall_s"): "metrics of checkpoints with a column of their own",
    ("reports/study_rows.py", "checkpoint_read_MBps restore_s wall_s"): "the same without fsync",
    ("results/metrics.py", "1/s share x"): "units that an axis writes in another way",
    ("batch/launchers.py", "aprun pals"): "launchers with an option for variables",
    ("config/launcher_rules.py", "aprun flux pals srun"): "launchers of a batch system",
    ("config/launcher_rules.py", "hydra openmpi pals srun"): "launchers whose bindings have names alike",
    ("reports/bottleneck.py", "cached unknown"): "origins of bytes that are not storage",
    ("reports/advice.py", "pytorch tensorflow"): "loaders with a name of their own",
    ("programs/characterize/candidates.py", "bytes"): "a chunk that is given by its size",
    ("programs/files/library_marks.py", "hdf5 npz tfrecord"): "formats with a header",
    (
        "dataset/file_scans.py",
        "hdf5 indexed jpeg npy npz parquet png raw tar tfrecord zarr",
    ): "formats of existing files",
    ("dataset/inflate.py", "gzip zlib"): "compressions of whole files",
    ("core/formats/packed_records.py", "gzip zlib"): "compressions of whole files",
    ("core/formats/zarr/codecs.py", "gzip zlib"): "compressions by deflate",
    ("core/formats/zarr/codecs.py", "gzip zstd"): "compressions whose data claim their size in one place",
    ("core/formats/zarr/codecs.py", "blosc gzip none zlib zstd"): "compressions of Zarr",
    ("dataset/stored_parts.py", "zarr"): "formats whose parts depend on the dataset",
    ("dataset/zarr_store.py", "blosc gzip none zlib zstd"): "compressions of version 2 of Zarr",
    ("dataset/zarr_store.py", "blosc gzip zstd"): "compressions of version 3 of Zarr",
    ("config/dlio_benchmark/dataset.py", "jpeg png"): "images",
    ("programs/files/named_formats.py", "indexed jpeg npy png tar"): "special kinds of raw files",
    ("config/image_keys.py", "jpeg png"): "images",
    ("config/workload.py", "bytes"): "the size of the samples of a workload without a dataset",
    ("records/job_outcome.py", "cancelled completed failed lost node_fail out_of_memory timeout"): "states at the end",
    ("reports/figures/sweep_plots.py", "best|same as best"): "verdicts that are framed",
    (
        "reports/verdict_banners.py",
        "bug cached fail incomplete inconclusive infrastructure invalid not_comparable pass skipped",
    ): "criteria compare no jobs",
    ("verdict/performance_criteria.py", "ttft_p95_s ttft_p99_s"): "quantiles that need many requests",
    (
        "reports/figures/regression_plots.py",
        "improved inconclusive pass regression",
    ): "outcomes with a colour of their own",
    ("reports/mlperf_storage/run_files.py", "hydra"): "the file hydra.yaml, no launcher",
    ("verdict/validity_criteria.py", "bug incomplete infrastructure invalid"): "faults of runs",
}


class _Table(NamedTuple):
    module: str
    line: int
    keys: frozenset[str]

    @property
    def place(self) -> tuple[str, str]:
        mark = "|" if any(not key or " " in key for key in self.keys) else " "
        return self.module, mark.join(sorted(self.keys))


def _modules() -> Iterator[typing.Any]:
    for module in pkgutil.walk_packages(dlio_hpc.__path__, "dlio_hpc."):
        if not module.name.endswith((".__main__", ".local_successor")):
            yield importlib.import_module(module.name)


def _values(kind: typing.Any) -> Iterator[frozenset[str]]:
    """The values of each Literal with several strings in a type."""
    if typing.get_origin(kind) is typing.Literal:
        values = [word for word in typing.get_args(kind) if isinstance(word, str)]
        if len(values) > 1:
            yield frozenset(values)
        return
    for part in typing.get_args(kind):
        yield from _values(part)


def _literals() -> set[frozenset[str]]:
    """The values of all Literals in the package: named ones, and those of the fields of its classes."""
    literals: set[frozenset[str]] = set()
    for module in _modules():
        for value in vars(module).values():
            literals |= set(_values(value))
            if isinstance(value, type) and value.__module__ == module.__name__:
                for kind in getattr(value, "__annotations__", {}).values():
                    literals |= set(_values(kind))
    return literals


def _tables() -> Iterator[_Table]:
    """All dictionary displays in the package's source with strings as keys."""
    for path in sorted(_ROOT.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Dict) and node.keys:
                keys = [key.value if isinstance(key, ast.Constant) else None for key in node.keys]
                names = frozenset(key for key in keys if isinstance(key, str))
                if len(names) == len(keys):
                    yield _Table(path.relative_to(_ROOT).as_posix(), node.lineno, names)


def test_every_table_has_an_entry_for_every_value_of_its_literal() -> None:
    literals = _literals()
    assert frozenset({"posix", "framework"}) in literals
    lacking, partial = [], {}
    for table in _tables():
        fitting = [values for values in literals if table.keys <= values]
        if not fitting or table.keys in fitting:
            continue
        missing = sorted(min(fitting, key=len) - table.keys)
        if table.place in _PARTIAL:
            partial[table.place] = _PARTIAL[table.place]
        else:
            lacking.append(f"{table.module}:{table.line} has no entry for {missing}")
    assert not lacking, "\n".join(lacking)
    assert partial == _PARTIAL, "what is listed is there"


def test_tables_that_leave_values_out_are_never_asked_for_those() -> None:
    assert frozenset(job_outcome._ENDED) == ENDED
    assert set(file_scans._SCANS) == set(EXISTING_FORMATS)
    for unit in typing.get_args(metrics.Unit):
        assert metrics.format_value(0.5, unit)


def test_each_batch_system_is_in_every_place_that_needs_it() -> None:
    """Each place that CONTRIBUTING lists has all batch systems; the test above checks tables by their names."""
    profiles = {site.load(name).scheduler for name in shipped.names(shipped.SITES)}
    marks = {mark for surrounding in surrounding_job._SURROUNDINGS for mark in surrounding.marks}
    lacking = []
    for name, scheduler in SCHEDULERS.items():
        variable = scheduler.job_variable
        places = {
            f"templates/{name}.sh.j2": (shipped.root() / "templates" / f"{name}.sh.j2").is_file(),
            "a profile in site_profiles/": name in profiles,
            "the variable that it sets in its jobs, in its Scheduler": bool(variable),
            f"the variable begins with {name.upper()}_, or environment.json lacks it": variable.startswith(
                environment._VARIABLES
            ),
            "a row in batch/surrounding_job.py with the variable": variable in marks,
            "a pattern in batch/container.py for the variable": any(
                fnmatchcase(variable, pattern) for pattern in container._PASSED
            ),
        }
        lacking += [f"{name}: {place}" for place, is_there in places.items() if scheduler.is_queue and not is_there]
    assert not lacking, "\n".join(lacking)
