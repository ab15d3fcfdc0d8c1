"""Planning of a study and its jobs from the options of a command."""

import json
import math
import os
import re
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from msgspec import structs

from dlio_hpc.base import serialization, units
from dlio_hpc.base.errors import ConfigError
from dlio_hpc.config import shipped, site, workload
from dlio_hpc.config.dlio_benchmark import hydra_settings
from dlio_hpc.dataset import folder_kinds
from dlio_hpc.files import filesystem
from dlio_hpc.plan import cost, mix, packing, plan, site_limits, study, study_file, sweep, user_options
from dlio_hpc.plan.options import Options
from dlio_hpc.plan.plan import Plan

# Prefix of an override that sets a key of the site profile and not of the workload.
# What to set instead of a key of the dataset that the scan of existing files determines.
_INSTEAD = {"documents": "; to read runs of tokens across documents, set dataset.existing.sample_bytes"}
_SITE = "site."
# Number of measured runs of each point if two file systems, A and B, are compared. The order is A B B A A B B A.
_PAIRS = 4
# Bytes below which a request may lack its unit, and number of requests of a sample that is doubtful.
_SMALL_BYTES, _MANY = 512, 10_000
# An environment variable that a shell replaces, such as $SCRATCH.
_VARIABLE = re.compile(r"\$\{?[A-Z][A-Z0-9_]+\}?")
# Options that may be given again when a study is resumed.
RESUMABLE = ("walltime", "account", "queue", "job_options")


class Planned(NamedTuple):
    """A study and the jobs that measure it. A submission of a single workload is a study too."""

    study: study.Study
    jobs: tuple[Plan, ...]

    @property
    def notes(self) -> list[str]:
        """Notes of all jobs, without duplicates."""
        return list(dict.fromkeys(note for job in self.jobs for note in job.notes))


def _silent(_: str) -> None:
    """Ignore a line."""


def planned(options: Options, report: Callable[[str], None] = _silent) -> Planned:
    """Plan the study and its jobs. report: function that is called with lines on the progress of scans of existing
    datasets. Raise ConfigError if the site does not allow the jobs.
    """
    drafted = draft(options, report)
    _check_layouts(drafted)
    doubts = list(dict.fromkeys((*_long_times(drafted), *_small_requests(drafted))))
    try:
        with _in_file(None if options.nodes else _file(options), {"--nodes ": ("nodes",)}):
            check(drafted)
    except ConfigError as fault:
        raise type(fault)("; ".join((str(fault), *doubts))) from fault
    if options.existing is None:
        for note in (*_given_twice(options), *_absent_folders(options, drafted)):
            report(f"note: {note}")
    for note in dict.fromkeys((*doubts, *_layouts_without_effect(options, drafted))):
        report(f"note: {note}")
    return drafted


def _long_times(drafted: Planned) -> Iterator[str]:
    """Yield a note for each time of a step or a sample that is so long that it may be meant in milliseconds. A file may
    give such a time without a unit.
    """
    for run in (run for job in drafted.jobs for run in job.runs):
        times = {
            "compute.time": run.workload.compute.time.mean,
            "reader.preprocess_time": run.workload.reader.preprocess_time,
        }
        for key, time_s in times.items():
            if time_s >= units.MOST_STEP_S and not time_s % 1:
                yield f"{key} is {time_s:g} s; if milliseconds are meant, write {time_s:g} ms"


# Number of bytes of resized samples below which pixels of a side may be meant.
_MOST_PIXELS = 4096


def _small_requests(drafted: Planned) -> Iterator[str]:
    """Yield a note for each size of requests that is so small that it may be meant in KiB or MiB."""
    for run in (run for job in drafted.jobs for run in job.runs):
        reader, checkpoint, sample = run.workload.reader, run.workload.checkpoint, run.workload.dataset.sample_bytes
        size, dataset = reader.transfer_size, run.workload.dataset
        chunk = math.prod(dataset.chunk_shape or ()) * dataset.sample.item_bytes
        if dataset.chunk is not None and dataset.existing is None and chunk < min(_SMALL_BYTES, sample):
            yield (
                f"dataset.chunk: a chunk has {units.format_size(chunk)}, so a sample takes "
                f"{units.counted(-(-sample // chunk), 'chunk')}{_with_unit(chunk)}; if a number of samples is meant, "
                f"give the shape of a chunk, which counts samples first: dataset.chunk.shape=[{chunk}, ...]"
            )
        if size is not None and (size < min(_SMALL_BYTES, sample) or size * _MANY < sample):
            requests = f"a sample of {units.format_size(sample)} takes {units.counted(-(-sample // size), 'request')}"
            yield f"reader.transfer_size is {units.format_size(size)}, so {requests}{_with_unit(size)}"
        if 0 < (pixels := reader.resize or 0) < _MOST_PIXELS:
            yield (
                f"reader.resize is {units.format_size(pixels)}, the size of a sample in a batch; if pixels are meant, "
                f"give the bytes: {pixels} x {pixels} x 3 = {pixels * pixels * 3}"
            )
        model = checkpoint.model_bytes if checkpoint is not None else None
        if model is not None and model < _SMALL_BYTES:
            yield f"checkpoint.model_bytes is {units.format_size(model)}: the model is very small{_with_unit(model)}"
        if checkpoint is not None and (checkpoint.transfer_size or _SMALL_BYTES) < _SMALL_BYTES:
            small = checkpoint.transfer_size or 0
            yield f"checkpoint.transfer_size is {units.format_size(small)}: requests are very small{_with_unit(small)}"


def _with_unit(size: int) -> str:
    return f"; if KiB or MiB are meant, write {size}KiB or {size}MiB" if size < _SMALL_BYTES else ""


def _layouts_without_effect(options: Options, drafted: Planned) -> Iterator[str]:
    """Yield a note for each folder that is not on Lustre, if the user sets a layout with -S or -P."""
    if any(text.startswith("site.layout") for text in (*options.overrides, *options.sweeps)):
        for folder, kind in _other_file_systems(drafted).items():
            yield f"{folder} is on {kind}, which is not Lustre: site.layout will not be set"


def _check_layouts(drafted: Planned) -> None:
    """Raise ConfigError if the study varies the Lustre layout, but its jobs run here, in a folder that is not on
    Lustre: there are no such points to measure.
    """
    layouts = {axis.key for part in drafted.study.parts for axis in part.axes if axis.is_layout}
    if layouts and drafted.study.site.scheduler == "local":
        for folder, kind in _other_file_systems(drafted).items():
            raise ConfigError(
                f"{', '.join(sorted(layouts))}: {folder} is on {kind}, which is not Lustre, so no layout can be set; "
                "give a folder on Lustre (--data), or vary other keys"
            )


def _other_file_systems(drafted: Planned) -> dict[str, str]:
    """Return the kinds of the file systems other than Lustre, by the folder for datasets. A folder that does not exist
    yet is on the file system of its nearest parent. With a batch system, such a folder is left out if only the root
    exists here: the nodes may mount its file system.
    """
    folders = {folder: filesystem.existing(Path(folder)) for job in drafted.jobs for folder in job.folders}
    is_queue = drafted.study.site.scheduler != "local"
    known = {folder: place for folder, place in folders.items() if not is_queue or place != Path("/")}
    kinds = {folder: filesystem.of(place) for folder, place in known.items()}
    return {folder: system.kind for folder, system in kinds.items() if not system.is_lustre}


def _check_folders(options: Options) -> None:
    """Raise ConfigError if a folder for datasets, jobs or archives is in a dataset, or already holds something else."""
    for option, folders in _data_folders(options).items():
        for folder in folders:
            if _VARIABLE.search(str(folder)) and not folder.exists():
                raise ConfigError(
                    f"{option} {folder}: the shell did not replace the variable, perhaps because of single quotes; use "
                    "double quotes, or give the path"
                )
            if options.existing is None:
                folder_kinds.refuse_target(folder, "datasets", option)
    folder_kinds.refuse_target(options.runs, "jobs", "--runs")
    if options.archive is not None:
        folder_kinds.refuse_target(options.archive, "archives", "--archive")


def _check_links(options: Options, machine: site.Site) -> None:
    """Raise ConfigError if a folder of the user is a link to a folder that does not exist. On another computer, the
    link of a folder for datasets may lead to a folder.
    """
    data = _data_folders(options) if machine.scheduler == "local" else {}
    own = {"--runs": (options.runs,), "--archive": () if options.archive is None else (options.archive,)}
    for option, folders in (data | own).items():
        for folder in folders:
            if (link := _dead_link(folder)) is not None:
                raise ConfigError(f"{option} {folder}: {link}; create that folder, or correct the link")


def _dead_link(folder: Path) -> str | None:
    """Return a description of the link in a path that leads nowhere; None if there is none."""
    path = next((path for path in (folder, *folder.parents) if path.is_symlink() and not path.exists()), None)
    return None if path is None else f"{path} is a link to {path.readlink()}, which does not exist"


def _data_folders(options: Options) -> dict[str, tuple[Path, ...]]:
    return {"--ab": options.ab or (), "--data": () if options.data is None else (options.data,)}


# Keys of the site that an option of the command line sets, too, and the fields of these options.
_OF_OPTIONS = {
    "site.queue": "queue", "site.account": "account", "site.walltime": "walltime",
    "site.ranks_per_node": "ranks_per_node", "site.data": "data",
}  # fmt: skip


def _given_twice(options: Options) -> Iterator[str]:
    """Yield a note for each key of the site that the user gives both with -S and by its own option, which counts."""
    for text in options.overrides:
        key, _, value = text.partition("=")
        field = _OF_OPTIONS.get(key.strip(), "")
        if field and getattr(options, field) and str(getattr(options, field)) != value.strip():
            option = {"walltime": "time", "ranks_per_node": "ppn"}.get(field, field)
            yield f"-S {key.strip()}={value} has no effect, because --{option} is given, too; leave one of them out"


def _absent_folders(options: Options, drafted: Planned) -> Iterator[str]:
    """Yield a note for each folder for datasets that the user names and that does not exist."""
    for option, folders in _data_folders(options).items():
        for folder in (Path(plan.absolute(folder)) for folder in folders):
            if (link := _dead_link(folder)) is not None:
                yield f"{option} {folder}: {link} here"
            elif not folder.exists() and not _ends_without(drafted.study):
                yield f"{option} {folder} does not exist{_use_of_folder(drafted.study, filesystem.existing(folder))}"


def _ends_without(made: study.Study) -> bool:
    """Return whether the command ends with an error if the folder for datasets does not exist: jobs run here, and read
    a dataset that no job generates.
    """
    is_read = any(point.workload.dataset.is_generated for point in made.points)
    return is_read and made.generate == "never" and made.site.scheduler == "local"


def _use_of_folder(made: study.Study, place: Path) -> str:
    """Return what jobs do with a folder given by --data that does not exist, to be appended to this fact. place: its
    nearest existing parent.
    """
    workloads = [point.workload for point in made.points]
    if any(point.dataset.is_generated for point in workloads):
        if made.generate == "never":
            return (
                " here; with --generate never, no job generates its dataset, and a job without it ends with exit code 2"
            )
        return f"; a job that generates a dataset creates this folder in {place}"
    if any(point.metadata is not None for point in workloads):
        return f"; a metadata job creates this folder in {place}, makes its files there and removes them at its end"
    if any(point.inference is not None for point in workloads):
        return f"; an inference job creates this folder in {place}, keeps its blocks there and removes them at its end"
    if any(point.writes_outputs for point in workloads):
        return f"; a job creates this folder in {place}, and writes its checkpoints there"
    return "; this workload stores nothing there"


def check(drafted: Planned) -> None:
    """Raise ConfigError if the jobs exceed the limits of the site, its queue or its budget."""
    site_limits.check(drafted.jobs)
    if site_limits.has_budget(drafted.study.site):
        site_limits.check_cost(drafted.study.site, cost.of_jobs(drafted.jobs))


def draft(options: Options, report: Callable[[str], None] = _silent) -> Planned:
    """Plan the study and its jobs without checking the limits of the site. report: as in planned()."""
    _check_folders(options)
    path, folders = _file(options), _folders(options)
    of_site, of_workload = _separated((*_existing(options), *options.overrides))
    _check_scanned(options, of_workload)
    for text in options.sweeps:
        hydra_settings.refuse(text, workload.is_key, "-P")
    _check_times((*of_workload, *options.sweeps))
    name_of_site = options.site or site.here()
    machine = site.load(name_of_site, of_site)
    if options.data is None and options.ab is None:
        site.check_data(machine, name_of_site, of_site)
    _check_links(options, machine)
    of_workload = (*of_workload, *user_options.settings(options, machine, of_workload))
    if path is None:
        if options.full:
            raise ConfigError("--full needs --study or --suite")
        parts, about = _of_options(options, machine, of_workload, folders)
        repeat, warmup = _PAIRS if folders or options.mix else 1, 0
        name = "-".join(dict.fromkeys(part.workload.name for part in parts))
    else:
        file = study_file.load(str(path))
        if options.suite is not None and file.verdict is None:
            raise ConfigError(
                f"{path} has no verdict, so it is a study: give it with --study, or add the key verdict, such as "
                "verdict: {criteria: acceptance}"
            )
        with _in_file(path, _workloads(file)):
            parts = _parts(file, path, options, machine, of_workload, folders)
        keys = {override.partition("=")[0] for override in of_workload}
        warmup_set = {key: value for key, value in file.warmup_set.items() if key not in keys}
        about = study.About(file.description, file.verdict, warmup_set, file.mixes)
        repeat, warmup, name = file.repeat, file.warmup, file.name
    for part in parts:
        _check_fixed(part.axes, options.overrides)
    if options.every is not None and options.nights == 1:
        raise ConfigError("--every sets the time between nights: give --nights 2 or more as well, or leave --every out")
    request = _request(options, folders, repeat, warmup)
    swept = {f"{axis.key}=": ("parts", part.name, "sweep", axis.key) for part in parts for axis in part.axes}
    zipped = next((part.name for part in parts if part.zipped), "")
    with _in_file(path, {"no criteria ": ("verdict", "criteria"), "--zip ": ("parts", zipped, "zip"), **swept}):
        made = study.make(plan.job_name(name), parts, request, about, report)
    return Planned(made, packing.plans(made))


def _workloads(file: study_file.StudyFile) -> dict[str, tuple[str, ...]]:
    """Return the keys that name workloads, by the beginning of the message for an unknown workload."""
    of_parts = {f"no workload {part.workload!r}": ("parts", name, "workload") for name, part in file.parts.items()}
    return {f"no workload {file.workload!r}": ("workload",), **of_parts}


@contextmanager
def _in_file(path: Path | None, places: Mapping[str, tuple[str, ...]]) -> Iterator[None]:
    """Add the line of a study file to ConfigErrors that are raised in the `with` block. places: keys of the file, by
    the beginning of the messages about them. path: the study file; None if there is none.
    """
    try:
        yield
    except ConfigError as fault:
        steps = next((steps for begin, steps in places.items() if str(fault).startswith(begin)), None)
        if path is None or steps is None:
            raise
        raise ConfigError(f"{serialization.in_file(path, steps)}: {fault}") from fault


def _file(options: Options) -> Path | None:
    """Return the path of the study file of the requested study or suite, or None if a single workload is to be
    measured.
    """
    given = [name for name in (options.workload, options.study, options.suite) if name is not None]
    given += [f"--mix {options.mix[0]}"] if options.mix else []
    if len(given) != 1:
        names = " and ".join(given) or "nothing to measure"
        raise ConfigError(f"{names}: give a WORKLOAD, or --study NAME, or --suite NAME, or --mix A=0.5 --mix B=0.5")
    if not options.mix and (options.mix_pairs or options.mix_until != "last"):
        raise ConfigError("--mix-pairs and --mix-until need loads: give --mix; a study file sets `mixes`")
    if options.mix:
        return None
    if options.study is not None:
        return shipped.find(shipped.STUDIES, options.study)
    if options.suite is not None:
        return shipped.find(shipped.SUITES, options.suite)
    assert options.workload is not None
    suites, workloads = shipped.names(shipped.SUITES), shipped.names(shipped.WORKLOADS)
    is_suite = options.workload in suites and options.workload not in workloads
    return shipped.find(shipped.SUITES, options.workload) if is_suite else None


def _folders(options: Options) -> tuple[str, ...]:
    """Return the two folders of the option --ab as absolute paths, or an empty tuple if the option is not given. Raise
    ConfigError if the folders are the same, or if --data is given too.
    """
    if options.ab is None:
        return ()
    if options.data is not None:
        raise ConfigError("--ab already names the folders for datasets; leave --data out")
    folders = tuple(map(plan.absolute, options.ab))
    if os.path.realpath(folders[0]) == os.path.realpath(folders[1]):
        raise ConfigError(f"--ab: {folders[0]} and {folders[1]} are the same folder")
    absent = [folder for folder in folders if not os.path.exists(folder)]
    if len(absent) == 1 and options.existing is None:
        raise ConfigError(
            f"--ab: the folder {absent[0]} does not exist, but the other one does; correct its name, or create it"
        )
    return folders


def _existing(options: Options) -> tuple[str, ...]:
    """Return the override of the workload for the option --existing."""
    if options.existing is None:
        return ()
    pattern = options.existing.rstrip("/") or options.existing  # the shell completes the name of a folder with a slash
    while pattern.startswith("./") and len(pattern) > 2:
        pattern = pattern[2:]
    return (f"dataset.existing.glob={json.dumps(pattern)}",)


def _check_scanned(options: Options, overrides: tuple[str, ...]) -> None:
    """Raise ConfigError if existing files are to be read, and an option -S sets a key that the scan of these files
    determines.
    """
    if options.existing is None and not any(text.startswith("dataset.existing") for text in overrides):
        return
    for text in overrides:
        key, _, value = text.partition("=")
        section, _, name = key.strip().partition(".")
        name = name.partition(".")[0]
        if section == "dataset" and name in workload.SCANNED_KEYS and value.strip() not in ("null", "~", ""):
            raise ConfigError(
                f"-S {text} has no effect with --existing: the existing files determine {key.strip()}; leave it out"
                f"{_INSTEAD.get(name, '')}"
            )


def _check_times(assignments: Sequence[str]) -> None:
    """Raise ConfigError if the time of a step or of a sample has no unit, and is so large that it was probably meant in
    milliseconds. assignments: texts of -S and -P.
    """
    for text in assignments:
        key, _, values = text.partition("=")
        if sweep.unit_of(key.strip()) != "seconds":
            continue
        for value in (value.strip() for value in values.split(",")):
            try:
                if value.replace(".", "", 1).isdigit():
                    units.step_time(value)
            except ValueError as fault:
                raise ConfigError(f"{key.strip()}: {fault}") from fault


def _separated(overrides: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return two tuples: the overrides of the site, without their prefix "site.", and the overrides of the workload."""
    of_site = tuple(text.removeprefix(_SITE) for text in overrides if text.startswith(_SITE))
    return of_site, tuple(text for text in overrides if not text.startswith(_SITE))


# Name of the mix of the option --mix.
_MIX = "mix"


def _of_options(
    options: Options, machine: site.Site, overrides: tuple[str, ...], folders: tuple[str, ...]
) -> tuple[list[study.PartRequest], study.About]:
    """Return the parts of a study without a file: one for the workload, or one for each load of --mix."""
    if not options.mix:
        return [_asked(options, machine, overrides, folders)], study.About()
    parts: dict[str, study.PartRequest] = {}
    for text in options.mix:
        name, share = _load_of(text)
        asked = _asked(structs.replace(options, workload=name), machine, overrides, folders)
        with _of_every_load(text, overrides):
            asked.workload.with_settings({})
        same = [other for other in parts.values() if other.workload.name == asked.workload.name]
        part = f"{asked.workload.name}-{len(same) + 1}" if same else asked.workload.name
        parts[part] = structs.replace(asked, name=part, mix=_MIX, share=share)
    until = {"until": options.mix_until}
    if options.mix_until not in typing.get_args(mix.Until):
        until = {"until": "time", "time": options.mix_until}
    keys = serialization.convert({**until, "pairs": options.mix_pairs}, mix.MixKeys, "--mix-until")
    return list(parts.values()), study.About(mixes=keys)


@contextmanager
def _of_every_load(load: str, overrides: Sequence[str]) -> Iterator[None]:
    """Add to ConfigErrors that are raised in the `with` block that -S sets keys of all loads. load: value of --mix."""
    try:
        yield
    except ConfigError as fault:
        if not overrides:
            raise
        hint = "with --mix, -S sets keys of every load; a study file sets those of each load"
        raise ConfigError(f"--mix {load}: {fault} ({hint})") from fault


def _load_of(text: str) -> tuple[str, float]:
    """Return the workload and the share of the ranks in a value of --mix."""
    name, equals, share = text.rpartition("=")
    try:
        value = float(share.removesuffix("%")) / (100 if share.endswith("%") else 1)
    except ValueError:
        value = 0.0
    if not equals or not name or not 0 < value <= 1:
        raise ConfigError(f"--mix {text}: write WORKLOAD=SHARE with a share of the ranks, such as cosmoflow=0.5 or 50%")
    return name, value


def _asked(
    options: Options, machine: site.Site, overrides: tuple[str, ...], folders: tuple[str, ...]
) -> study.PartRequest:
    assert options.workload is not None
    return study.PartRequest(
        workload.draft(options.workload, overrides), machine, tuple(map(sweep.axis, options.sweeps)), options.zipped,
        options.nodes or (1,), options.ranks_per_node or (), options.weak, options.dataset_size, folders=folders,
    )  # fmt: skip


def _parts(
    file: study_file.StudyFile, path: Path, options: Options, machine: site.Site, overrides: tuple[str, ...],
    folders: tuple[str, ...],
) -> list[study.PartRequest]:  # fmt: skip
    if options.sweeps or options.zipped or options.weak:
        raise ConfigError(f"the study file {file.name} sets which keys vary; to vary others, change a copy of the file")
    # Off the local site a suite runs at full size without --full, because cron jobs call it by its name only.
    full = options.full or (file.verdict is not None and machine.scheduler != "local")
    changes = study_file.FileChanges(
        full, overrides, options.nodes, options.ranks_per_node, options.dataset_size, folders
    )
    return study_file.asked_of(file, machine, changes, path)


def _request(options: Options, folders: tuple[str, ...], repeat: int, warmup: int) -> study.JobRequest:
    return study.JobRequest(
        runs=options.runs,
        archive=options.archive,
        data=Path(folders[0]) if folders else options.data,
        walltime=options.walltime,
        account=options.account,
        queue=options.queue,
        job_options=options.job_options,
        repeat=repeat if options.repeat is None else options.repeat,
        warmup=warmup if options.warmup is None else options.warmup,
        generate=options.generate,
        darshan=options.darshan,
        tf_profile=options.tf_profile,
        seed=options.seed,
        nights=options.nights,
        every=options.every or study.EVERY,
    )


def _check_fixed(axes: tuple[sweep.Axis, ...], overrides: tuple[str, ...]) -> None:
    fixed = {text.partition("=")[0].strip() for text in overrides}
    for axis in axes:
        if any(f"{key}.".startswith(f"{axis.key}.") for key in fixed):
            raise ConfigError(f"-S {axis.key}: -P or the study file varies this key; leave -S out")


def resumed(known: study.Study, options: Options) -> study.Study:
    """Return the study `known` with the changes for its resumption. The options walltime, account, queue and
    job_options are replaced if they are given again. If the datasets were to be generated by a separate job, the
    measuring jobs now generate missing datasets.
    """
    changed = {key: value for key in RESUMABLE if (value := getattr(options, key))}
    if known.generate == "separate":
        # Existing datasets are used; a missing one may be the reason for the interruption.
        changed["generate"] = "auto"
    return structs.replace(known, **changed)
