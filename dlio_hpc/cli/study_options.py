"""What is to be measured: the options that every command which plans jobs has, and the study that comes of them."""

import os
from pathlib import Path
from typing import Any, NamedTuple

import click
from msgspec import structs

from dlio_hpc import document, units
from dlio_hpc.cli.verbs import PATH, option, parsed
from dlio_hpc.config import shipped, site, workload
from dlio_hpc.errors import ConfigError
from dlio_hpc.plan import cost, packing, plan, site_limits, study, study_file, sweep
from dlio_hpc.plan.plan import Plan

# What an override of the site's profile begins with.
_SITE = "site."
_NO_WORKLOAD = "Missing argument 'WORKLOAD'"


class _Lines(click.types.StringParamType):
    """Text that may hold blanks; in the environment variable, one value a line."""

    envvar_list_splitter = "\n"


def _counts(ctx: click.Context, param: click.Parameter, value: str | None) -> tuple[int, ...] | None:
    """Numbers from 1 on, between commas, or a range: 128,256 or 1..8*2."""
    if value is None:
        return None
    try:
        return sweep.counts(document.parse_yaml(f"[{value}]", "--"), "")
    except ConfigError as fault:
        raise click.BadParameter(str(fault).lstrip("-: "), ctx, param) from fault


_REQUEST = (
    option(
        "-s", "--site", metavar="NAME|FILE", help="Site profile. Default: the one for this host's name, else local."
    ),
    option("-N", "--nodes", callback=_counts, metavar="N[,N...]", help="Nodes; several: jobs for each.  [default: 1]"),
    option(
        "--ppn",
        "ranks_per_node",
        callback=_counts,
        metavar="N[,N...]",
        help="Ranks a node; several: jobs for each. Default: the site's.",
    ),
    option("-A", "--account", help="Account or project to charge."),
    option("-q", "--queue", help="Queue or partition."),
    option(
        "-t",
        "--time",
        "walltime",
        metavar="TIME",
        callback=parsed(units.walltime),
        help="Limit of a job: 30 (minutes), 30m, 1:30:00.",
    ),
    option(
        "-J",
        "--job-option",
        "job_options",
        multiple=True,
        type=_Lines(),
        metavar="OPT",
        help="Verbatim to the batch system; repeatable.",
    ),
    option("-d", "--data", type=PATH, metavar="DIR", help="Where datasets go: the file system under test."),
    option(
        "--ab",
        type=PATH,
        nargs=2,
        metavar="DIR_A DIR_B",
        help="Compare two file systems: both in one job, in turns (ABBA), instead of --data.",
    ),
    option("-o", "--runs", type=PATH, metavar="DIR", default="dlio-runs", show_default=True, help="Jobs' directories."),
    option("--archive", type=PATH, metavar="DIR", help="Where archives go. Default: RUNS/archive."),
    option(
        "-S",
        "--set",
        "overrides",
        multiple=True,
        type=_Lines(),
        metavar="KEY=VALUE",
        help="Override a key: dataset.files=8; of the site: site.depth=2.",
    ),
    option(
        "-P",
        "--sweep",
        "sweeps",
        multiple=True,
        type=_Lines(),
        metavar="KEY=A,B,...",
        help="Measure a key's values: reader.read_threads=1,2,4 or 1..4*2; repeatable: every combination.",
    ),
    option("--zip", "zipped", is_flag=True, help="Lists of -P side by side, not every combination."),
    option("--weak", is_flag=True, help="With several -N or --ppn: each rank reads as much, however many there are."),
    option("--study", "study_name", metavar="NAME|FILE", help="What to measure from a study file, such as fig11."),
    option(
        "--suite", "suite_name", metavar="NAME|FILE", help="As --study, with a verdict at its end: nightly, acceptance."
    ),
    option(
        "--full",
        is_flag=True,
        help="With --study, and with --suite on site local: as large as the file says, not as on a laptop.",
    ),
    option("--seed", type=click.IntRange(0), metavar="N", help="Of the order of a study's runs. Default: drawn."),
    option(
        "--repeat",
        type=click.IntRange(1),
        metavar="N",
        help="Measured runs of each point.  [default: 1, with --ab 4, or the study file's]",
    ),
    option(
        "--warmup",
        type=click.IntRange(0),
        metavar="N",
        help="Runs before those, of each dataset.  [default: 0, or the study file's]",
    ),
    option(
        "--dataset-size",
        metavar="SIZE",
        callback=parsed(units.size),
        help="Size of the dataset, to within one file. Changes the number of files, or of samples in a shared file.",
    ),
    option(
        "--generate",
        type=click.Choice(["auto", "separate", "only", "never"]),
        default="auto",
        show_default=True,
        help="auto: generate the dataset if it does not exist; separate: in a job of its own; only: generate it and "
        "measure nothing; never: the dataset must exist.",
    ),
    option(
        "--darshan/--no-darshan",
        default=None,
        help="Runs under Darshan. Default: where the site names a libdarshan.",
    ),
    option(
        "--tf-profile",
        is_flag=True,
        help="With loader tensorflow: keep what its profiler sees of ranks 0 to 7 in each run's first 30 s.",
    ),
)


def asks(function: Any) -> Any:
    """The options that say what is to be measured, as every command that plans jobs has them."""
    for add in reversed(_REQUEST):
        function = add(function)
    return function


class Planned(NamedTuple):
    """What is to be measured, and the jobs that do it."""

    study: study.Study
    jobs: tuple[Plan, ...]

    @property
    def notes(self) -> list[str]:
        """Notes of all jobs, without duplicates."""
        return list(dict.fromkeys(note for job in self.jobs for note in job.notes))


def planned(workload_name: str | None, options: dict[str, Any]) -> Planned:
    """What comes of the options of asks(); ConfigError where the site does not allow it."""
    found = drafted(workload_name, options)
    check(found)
    return found


def check(found: Planned) -> None:
    """ConfigError where the site does not allow it."""
    site_limits.check(found.jobs)
    if site_limits.has_budget(found.study.site):
        site_limits.check_cost(found.study.site, cost.of_jobs(found.jobs))


def drafted(workload_name: str | None, options: dict[str, Any]) -> Planned:
    """As planned(), whatever the site allows."""
    rest, what = dict(options), dict[str, Any]()
    path, full = _file(workload_name, rest.pop("study_name"), rest.pop("suite_name")), rest.pop("full")
    what["folders"] = _folders(rest)
    overrides = rest.pop("overrides")
    of_site, of_workload = _apart(overrides)
    machine = site.load(rest.pop("site") or site.here(), of_site)
    for key in ("sweeps", "zipped", "weak", "nodes", "ranks_per_node", "dataset_size"):
        what[key] = rest.pop(key)
    if path is None:
        if full:
            raise click.UsageError("--full goes with --study and --suite")
        assert workload_name is not None
        parts, about = [_asked(workload_name, machine, of_workload, what)], study.About()
        usual = {"repeat": _PAIRS if what["folders"] else 1, "warmup": 0}
        name = parts[0].workload.name
    else:
        parts, file = _from_file(path, machine, of_workload, full, what)
        usual, name = {"repeat": file.repeat, "warmup": file.warmup}, file.name
        asked = {override.partition("=")[0] for override in of_workload}
        warmup_set = {key: value for key, value in file.warmup_set.items() if key not in asked}
        about = study.About(file.description, file.verdict, warmup_set)
        if file.verdict is not None and file.verdict.criteria is not None:
            from dlio_hpc.verdict import criteria_file

            criteria_file.load(file.verdict.criteria)  # now, not when everything has been measured
    request = study.Request(**rest | {key: value for key, value in usual.items() if rest[key] is None})
    for part in parts:
        _check_fixed(part.axes, overrides)
    made = study.make(plan.job_name(name), parts, request, about)
    return Planned(made, packing.plans(made))


# Of two file systems that are compared: A B B A A B B A.
_PAIRS = 4


def _file(workload_name: str | None, study_name: str | None, suite_name: str | None) -> Path | None:
    """The study file or suite that is asked for, by an option or in the place of a workload; None: a workload is."""
    given = [name for name in (workload_name, study_name, suite_name) if name is not None]
    if len(given) != 1:
        told = " and ".join(given) or _NO_WORKLOAD
        raise click.UsageError(f"{told}: give a WORKLOAD, or --study NAME, or --suite NAME")
    if study_name is not None:
        return shipped.find(shipped.STUDIES, study_name)
    if suite_name is not None:
        return shipped.find(shipped.SUITES, suite_name)
    assert workload_name is not None
    is_suite = workload_name in shipped.names(shipped.SUITES) and workload_name not in shipped.names(shipped.WORKLOADS)
    return shipped.find(shipped.SUITES, workload_name) if is_suite else None


def _folders(rest: dict[str, Any]) -> tuple[str, ...]:
    """Of --ab, which stands for --data."""
    given = rest.pop("ab") or ()
    if given and rest["data"] is not None:
        raise click.UsageError("--ab names the folders for datasets; leave --data out")
    folders = tuple(map(plan.absolute, given))
    if folders and os.path.realpath(folders[0]) == os.path.realpath(folders[1]):
        raise click.UsageError(f"--ab: {folders[0]} and {folders[1]} are the same folder")
    if folders:
        rest["data"] = Path(folders[0])
    return folders


def _apart(overrides: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The site's and the workload's."""
    of_site = tuple(text.removeprefix(_SITE) for text in overrides if text.startswith(_SITE))
    return of_site, tuple(text for text in overrides if not text.startswith(_SITE))


def _asked(name: str, machine: site.Site, overrides: tuple[str, ...], what: dict[str, Any]) -> study.Asked:
    axes = tuple(map(sweep.axis, what["sweeps"]))
    nodes, ranks_per_node = what["nodes"] or (1,), what["ranks_per_node"] or ()
    return study.Asked(
        workload.draft(name, overrides), machine, axes, what["zipped"], nodes, ranks_per_node, what["weak"],
        what["dataset_size"], folders=what["folders"],
    )  # fmt: skip


def _from_file(
    path: Path, machine: site.Site, overrides: tuple[str, ...], full: bool, what: dict[str, Any]
) -> tuple[list[study.Asked], study_file.StudyFile]:
    if what["sweeps"] or what["zipped"] or what["weak"]:
        raise click.UsageError(f"{path.stem} says what varies; for -P, --zip and --weak, copy its file and change that")
    file = study_file.load(str(path))
    # A suite is called by its name and nothing else wherever there is a real machine.
    full = full or (file.verdict is not None and machine.scheduler != "local")
    changes = study_file.Changes(
        full, overrides, what["nodes"], what["ranks_per_node"], what["dataset_size"], what["folders"]
    )
    parts = study_file.asked_of(file, machine, changes)
    return parts, file


def _check_fixed(axes: tuple[sweep.Axis, ...], overrides: tuple[str, ...]) -> None:
    fixed = {text.partition("=")[0].strip() for text in overrides}
    for axis in axes:
        if any(f"{key}.".startswith(f"{axis.key}.") for key in fixed):
            raise click.UsageError(f"{axis.key} is varied; it cannot be set with -S as well")


def resumed(found: study.Study, options: dict[str, Any]) -> study.Study:
    """The study with the options that may be others the second time."""
    changed = {key: options[key] for key in RESUMABLE if options[key]}
    if found.generate == "separate":
        changed["generate"] = "auto"  # what is there is found, what is not may have been why it was interrupted
    return structs.replace(found, **changed)


# What may be said again with --resume.
RESUMABLE = ("walltime", "account", "queue", "job_options")


def given_options(context: click.Context, beside: set[str]) -> list[str]:
    """Options on the command line, by their long names, beside some."""
    return [
        param.opts[-1]
        for param in context.command.params
        if isinstance(param, click.Option)
        and param.name not in beside
        and context.get_parameter_source(str(param.name)) is click.core.ParameterSource.COMMANDLINE
    ]


def study_folder(name: str, runs: Path) -> Path:
    """The folder of a study, by its path or its name below `runs`."""
    return Path(name) if os.sep in name or Path(name).is_dir() else runs / name
