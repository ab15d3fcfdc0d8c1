"""Packing of a study into batch jobs: which points share a job, in which order they are measured, and which runs each
job has.
"""

import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from msgspec import structs

from dlio_hpc.base import serialization, units
from dlio_hpc.base.errors import ConfigError
from dlio_hpc.config.site import check_options
from dlio_hpc.dataset import fingerprints
from dlio_hpc.plan import cost, night_chain, notes, packages, plan, run_plan
from dlio_hpc.plan.mix import LaunchScale
from dlio_hpc.plan.plan import Kind, Plan, Run
from dlio_hpc.plan.study import JobRequest, PartRequest, Point, Study
from dlio_hpc.plan.study import make as make_study


class Unit(NamedTuple):
    """A measurement of a point. point: number of the point. repeat: number of earlier measurements of the same
    point.
    """

    point: int
    repeat: int


_NOTHING: Mapping[Unit, float] = {}
# Maximum number of jobs of a study. It is above the limits of usual queues.
_MOST_JOBS = 200
# Lower bound of the expected duration of a run, in seconds.
_SHORT = 1e-2


def order(study: Study) -> list[Unit]:
    """Return all measurements of the study in the order in which they run. Return an empty list if the study only
    generates datasets. Each round measures all points once, in an order that depends on the seed, so that drift affects
    all points alike. If two file systems are compared, the two points of a pair are measured one after the other. The
    points that are measured in one launch follow each other.
    """
    if study.generate == "only":
        return []
    if study.is_plain:
        return [Unit(0, repeat) for repeat in range(study.repeat)]

    import random

    rounds: list[Unit] = []
    for repeat in range(study.repeat):
        shuffled = random.Random(f"{study.seed}-{repeat}")
        blocks = study.blocks if not study.is_ab else [[pair] for pair in _pairs(study)]
        shuffled.shuffle(blocks)
        way = -1 if repeat % 2 and study.is_ab else 1  # pairs alternate A, B and B, A: drift affects both alike
        for block in blocks:
            shuffled.shuffle(block)
            rounds += [Unit(point, repeat) for group in block for point in group[::way]]
    return rounds


def _pairs(study: Study) -> list[tuple[int, ...]]:
    """Return the numbers of the two points of each pair of a study that compares two file systems."""
    return [(first, first + 1) for first in range(0, len(study.points), 2)]


def plans(
    study: Study, wanted: Iterable[Unit] | None = None, first: int = 1, taken: Mapping[Unit, float] = _NOTHING,
    begins: Mapping[int, str] | None = None,
) -> tuple[Plan, ...]:  # fmt: skip
    """Return the jobs that make the measurements `wanted`; None means all measurements of the study. Each job runs
    after the previous one has ended. The limits of the site are not checked. first: number of the first job. taken:
    duration in seconds of each measurement that was already made; these durations correct the expected ones. begins:
    time (UTC) at which each night begins, empty if it begins immediately; None for the nights of a new study.
    """
    _check(study)
    wanted = order(study) if wanted is None else _whole_blocks(study, wanted)
    is_generated = any(point.workload.dataset.is_generated for point in study.points)
    if study.generate == "only":
        if not is_generated:
            raise ConfigError(
                f"--generate only: {_without_dataset(study)}, so there is nothing to generate; leave --generate out"
            )
        return (_generating(study, study.study if study.is_plain else f"{study.study}-generate"),)
    ahead = []
    if study.generate == "separate" and is_generated:
        ahead = [_generating(study, f"{study.study}-generate")]
    slower, written = _slower(study, taken), set[str]()
    groups = [
        group
        for of_night in _nights(study, wanted)
        for scale in _scales(study, of_night)
        for group in _split(study, scale, slower, written)
    ]
    times = night_chain.planned(study) if begins is None else begins
    jobs = list(ahead)
    for number, group in enumerate(groups, first):
        night = study.night(group[0].repeat)
        plain = f"{study.study}-read" if ahead else study.study
        name = plain if study.is_plain else night_chain.job_name(study, night, number)
        measuring = _measuring(study, group, name)
        jobs.append(structs.replace(measuring, night=night, begins=times[night]))
    if len(jobs) > _MOST_JOBS:
        raise ConfigError(
            f"the study needs {len(jobs)} jobs, more than {_MOST_JOBS}; increase --time, or vary fewer values"
            f"{', or measure fewer nights' if study.nights > 1 else ''}"
        )
    return tuple(jobs)


def _without_dataset(study: Study) -> str:
    """Return why the workloads of a study have no dataset that is generated."""
    made = study.points[0].workload
    if not made.reads_samples:
        return f"{made.name} is {made.kind_in_words} and has no dataset"
    return "existing files are read" if made.dataset.existing is not None else "dataset.format=null stores no files"


def _check(study: Study) -> None:
    try:
        check_options("--job-option", study.job_options)
    except ValueError as fault:
        raise ConfigError(str(fault)) from fault
    if study.generate == "only" and study.nights > 1:
        raise ConfigError(
            "--nights: --generate only measures nothing, so nights have no effect; use one of the two options"
        )
    if study.generate in ("separate", "only") and any(point.workload.dataset.existing for point in study.points):
        raise ConfigError(
            f"--generate {study.generate}: an existing dataset is read as it is and never generated; leave --generate "
            "out"
        )
    for point in study.points:
        try:
            run_plan.check(study, point)
        except ConfigError as fault:
            raise fault if study.is_plain else ConfigError(f"{study.title(point)}: {fault}") from fault


def _nights(study: Study, wanted: Iterable[Unit]) -> list[list[Unit]]:
    """Divide the measurements into lists, one for each night, in the order of the nights."""
    by_night: dict[int, list[Unit]] = {}
    for unit in wanted:
        by_night.setdefault(study.night(unit.repeat), []).append(unit)
    return [by_night[night] for night in sorted(by_night)]


def _scales(study: Study, wanted: Sequence[Unit]) -> list[list[Unit]]:
    """Divide the measurements into lists, one for each combination of nodes and ranks per node. The lists are in the
    order in which these combinations appear in the study's points.
    """
    scales: dict[LaunchScale, list[Unit]] = {point.launched: [] for point in study.points}
    for unit in wanted:
        scales[study.points[unit.point].launched].append(unit)
    return [group for group in scales.values() if group]


def _whole_blocks(study: Study, wanted: Iterable[Unit]) -> list[Unit]:
    """Return these measurements, and the others of their blocks: loads alone and together are compared in one job."""
    block_of = {point: block for block in study.blocks for launch in block for point in launch}
    whole = dict.fromkeys(
        Unit(point, unit.repeat) for unit in wanted for launch in block_of[unit.point] for point in launch
    )
    return [unit for unit in order(study) if unit in whole] if study.is_mixed else list(whole)  # in random order


def _blocks(study: Study, wanted: Sequence[Unit]) -> list[list[Unit]]:
    """Divide the measurements into lists, one for each repeat of a block of launches."""
    block_of = {point: number for number, block in enumerate(study.blocks) for launch in block for point in launch}
    groups: dict[tuple[int, int], list[Unit]] = {}
    for unit in wanted:
        groups.setdefault((block_of[unit.point], unit.repeat), []).append(unit)
    return list(groups.values())


class _Expected(NamedTuple):
    """Expected durations of the runs of a point in a job, in seconds. dataset: folder of the point's dataset. generate:
    time to generate the dataset. find: time to check that the dataset exists. warm_up: time of all warm-up runs.
    measure: time of one measurement.
    """

    dataset: str
    generate: float
    find: float
    warm_up: float
    measure: float


def _split(study: Study, wanted: Sequence[Unit], slower: float, written: set[str]) -> Iterator[list[Unit]]:
    """Split the measurements into jobs that are expected to fit into the walltime. Each job has at least one
    measurement. A comparison of two file systems stays in one job. slower: factor by which runs take longer than
    expected. written: folders of datasets that earlier jobs generate. The function adds to this set the folders of the
    datasets that the returned jobs generate.
    """
    if study.is_plain or study.is_ab:
        yield list(wanted)
        return
    room = (study.walltime - plan.warning_time(study.site, study.walltime)) / slower
    expected = {number: _expected(study, number) for number in {unit.point for unit in wanted}}
    group: list[Unit] = []
    used, here = 0.0, set[str]()
    launch_of = {point: launch for launch in study.launches for point in launch}
    for block in _blocks(study, wanted):
        points = [expected[unit.point] for unit in block]
        launches = {launch_of[unit.point]: [expected[point] for point in launch_of[unit.point]] for unit in block}
        more = _more(list(launches.values()), here, written)
        if group and used + more > room:
            yield group
            group, used, here = [], 0.0, set()
            more = _more(list(launches.values()), here, written)
        group += block
        used += more
        here |= {point.dataset for point in points}
        written |= {point.dataset for point in points}
    yield group


def _slower(study: Study, taken: Mapping[Unit, float]) -> float:
    """Return the factor by which measurements take longer than expected: the median of measured / expected duration
    over all measurements in `taken`. Return 1 if the median is below 1, or if there are no measurements.
    """
    launch = study.site.expected_rates.launch
    expected = {number: _expected(study, number).measure for number in {unit.point for unit in taken}}
    ratios = sorted((took + launch) / max(expected[unit.point], _SHORT) for unit, took in taken.items())
    return max(1.0, ratios[len(ratios) // 2]) if ratios else 1.0


def _more(launches: Sequence[Sequence[_Expected]], used: set[str], written: set[str]) -> float:
    """Return the seconds that launches add to a job. launches: for each launch, the points that are measured at the
    same time. used: folders of datasets that the job already uses. written: folders of datasets that this job or
    earlier jobs generate. For these, only the time to find the dataset is counted, not the time to generate it.
    """
    new = {point.dataset: point for launch in launches for point in launch if point.dataset not in used}
    generating = sum(point.find if name in written else point.generate for name, point in new.items())
    warming = sum(point.warm_up for point in new.values())
    return generating + warming + sum(max(point.measure for point in launch) for launch in launches)


def _expected(study: Study, number: int) -> _Expected:
    point, rates = study.points[number], study.site.expected_rates
    generate, measure = (run_plan.of_point(study, point, kind, kind, "") for kind in _BOTH)
    takes = cost.of_run(measure, point.nodes, point.ranks, rates).seconds + cost.probing(study.site, measure)
    made = study.generate == "auto" and point.workload.dataset.is_generated
    writing = cost.of_run(generate, point.nodes, point.ranks, rates).seconds if made else 0.0
    return _Expected(
        generate.dataset,
        writing,
        rates.launch * made,
        study.warmup * (takes - cost.probing(study.site, measure)),
        takes,
    )


_BOTH: tuple[Kind, Kind] = ("generate", "measure")


def _generating(study: Study, job: str) -> Plan:
    """Return a job that generates all datasets and measures nothing, on the largest number of ranks in the study."""
    largest = max(study.points, key=lambda point: math.prod(point.launched))
    return _plan(study, job, largest, _runs(study, _distinct(study.points, True), "generate", job))


def _measuring(study: Study, wanted: Sequence[Unit], job: str) -> Plan:
    """Return a job that generates the missing datasets of its points, runs the warm-ups and then the measurements
    `wanted`.
    """
    points = _distinct([study.points[number] for number in sorted({unit.point for unit in wanted})])
    made = _runs(study, _distinct(points, True), "generate", job) if study.generate == "auto" else []
    warm = _runs(study, [point for point in points for _ in range(study.warmup)], "warmup", job)
    measured = []
    for unit in wanted:
        point, name = study.points[unit.point], _numbered("measure", unit.repeat, study.repeat)
        if not study.is_plain:
            name = f"p{point.number:0{len(str(len(study.points) - 1))}}-{name}"
        run = run_plan.of_point(study, point, "measure", name, job)
        measured.append(structs.replace(run, point=None if study.is_plain else unit.point, repeat=unit.repeat))
    return _plan(study, job, study.points[wanted[0].point], [*made, *warm, *measured])


def _distinct(points: Iterable[Point], with_evaluation: bool = False) -> list[Point]:
    """Return one point per dataset: for each dataset of these points, the first point that uses it. with_evaluation:
    whether datasets of evaluation passes are included.
    """
    first: dict[tuple[str | None, str], Point] = {}
    both = ((point, run_plan.of_evaluation(point) if with_evaluation else None) for point in points)
    for point in (point for pair in both for point in pair if point is not None):
        fingerprint = fingerprints.of(plan.resolved(point.workload).dataset, point.layout)
        first.setdefault((point.data, fingerprint), point)
    return list(first.values())


def _runs(study: Study, points: Sequence[Point], kind: Kind, job: str) -> list[Run]:
    """Return a run of the kind `kind` for each point. If `kind` is "generate", leave out points whose dataset has no
    files.
    """
    some = [point for point in points if kind != "generate" or point.workload.dataset.is_generated]
    return [
        run_plan.of_point(study, point, kind, _numbered(kind, number, len(some)), job)
        for number, point in enumerate(some)
    ]


def _numbered(name: str, index: int, count: int) -> str:
    return name if count == 1 else f"{name}-{index + 1}"


def _plan(study: Study, job: str, scale: Point, listed: Sequence[Run]) -> Plan:
    """Return a job that makes the runs in `listed`. The function numbers these runs and adds the notes. scale: a point
    with the job's number of nodes and ranks.
    """
    numbers = sorted({run.point for run in listed if run.point is not None})
    points = [study.points[number] for number in numbers] if numbers else [scale]
    made = Plan(
        version=study.version,
        job=job,
        study=study.study,
        created=units.utc_now(),
        directory=os.path.join(study.runs, job),
        archive=study.archive,
        data=study.data,
        site=study.site,
        nodes=scale.launched.nodes,
        ranks_per_node=scale.launched.ranks_per_node,
        walltime=study.walltime,
        account=study.account,
        queue=study.queue,
        job_options=study.job_options,
        notes=tuple(notes.of_study(study, points)),
        runs=tuple(_launched(study, listed)),
        is_link=bool(numbers),
        packages=_packages(study, listed),
        nights=study.nights,
        titles={number: study.title(study.points[number]) for number in numbers},
    )
    try:
        serialization.encode(made)
    except UnicodeEncodeError as fault:
        raise ConfigError(f"{fault.object!r} is not valid UTF-8; rename it") from fault
    return structs.replace(made, notes=(*made.notes, *notes.of_plan(made)))


def _launched(study: Study, listed: Sequence[Run]) -> Iterator[Run]:
    """Yield the runs with their numbers, and with the launch of those that are loads of a mix."""
    launch_of = {point: number for number, launch in enumerate(study.launches) for point in launch}
    first: dict[tuple[int, int], int] = {}
    for number, run in enumerate(listed):
        launch = None
        if run.load is not None:
            launch = number if run.point is None else first.setdefault((launch_of[run.point], run.repeat), number)
        yield structs.replace(run, number=number, launch=launch)


def _packages(study: Study, listed: Sequence[Run]) -> tuple[str, ...]:
    """Return the names of packages that ranks import before the job generates data. A missing package is thus found
    before data are generated. Return an empty tuple if the job generates no data, or if the study only generates data.
    """
    if study.generate == "only" or all(run.kind != "generate" for run in listed):
        return ()
    return packages.needed(point.workload for point in study.points)


def single_job(asked: PartRequest, request: JobRequest) -> Plan:
    """Make a study with the single part `asked`, and return the plan of its job. The study must fit into one job."""
    (made,) = plans(make_study(plan.job_name(asked.workload.name), [asked], request))
    return made
