"""JSON documents about programs: tables of programs, derived workloads, similarity."""

from collections import Counter
from collections.abc import Sequence
from typing import Any, Literal

from msgspec import Struct, structs

from dlio_hpc.darshan.log import LogJob
from dlio_hpc.documents.versioned import Versioned
from dlio_hpc.programs.characterize.characterize import Character
from dlio_hpc.programs.characterize.evidence import Confidence
from dlio_hpc.programs.files.file_roles import Name as RoleName
from dlio_hpc.programs.program_table import ProgramRow, Training, Trust
from dlio_hpc.programs.reports import characterization_page, check_page, program_table_page
from dlio_hpc.programs.reports.check_page import Checked, CheckedRequests, NotDerived
from dlio_hpc.programs.similarity import request_distance, similarity
from dlio_hpc.programs.similarity.io_profile import Kind as ProfileKind
from dlio_hpc.programs.similarity.io_profile import Profile
from dlio_hpc.programs.similarity.request_distance import Distance, RequestDistribution
from dlio_hpc.programs.similarity.similarity import FACTORS, Factor, Matrix, ScoreRange, Similarity, Yardsticks
from dlio_hpc.programs.step_check import StepFactor, StepVerdict
from dlio_hpc.records.outcomes import Outcome

DistributionName = Literal["sizes", "volumes", "jumps"]
DISTRIBUTIONS: tuple[DistributionName, ...] = ("sizes", "volumes", "jumps")


class ProgramRowDocument(Struct, frozen=True):
    """A program and its logs. A field is null if its value is unknown."""

    logs: list[str]
    """Paths of the Darshan logs."""
    name: str
    """Short name of the script that the program runs."""
    command: str
    """Command line of the program."""
    job: int | None
    """Number of the batch job in which the program ran."""
    processes: int | None
    """Number of ranks of a program with MPI; number of logs of a program without MPI."""
    ranks: int | None
    """Number of ranks after logs are merged; a forked process belongs to the rank of its parent."""
    seconds: float | None
    """Duration of the program in seconds."""
    bytes_read: int | None
    """Number of bytes read."""
    bytes_written: int | None
    """Number of bytes written."""
    read_MBps: float | None
    """Bytes read, divided by the time with a read in flight or, without a trace, by a rank's mean time in reads."""
    is_traced: bool
    """True if the logs have a trace of all requests."""
    usual_request: int | None
    """Most frequent size of requests in bytes."""
    trust: Trust
    """Whether the logs can be trusted; "part" if the counters are complete, but other data are not."""
    faults: list[str]
    """Names of the faults of the logs."""
    training: Training
    """Whether the reads look like reads of a training program."""
    why: str
    """Reason why the reads do not look like reads of a training program."""
    error: str | None
    """Reason why the logs cannot be read; null if they can be read."""


class DarshanSummaryDocument(Versioned, frozen=True):
    """Table of the programs that wrote logs (`darshan --summary`)."""

    summary: str
    """The table in one sentence."""
    logs: int
    """Number of logs."""
    copies: int
    """Number of logs that are copies of others."""
    programs: int
    """Number of programs."""
    good: int
    """Number of programs with good logs."""
    part: int
    """Number of programs whose logs have complete counters, but not a complete trace."""
    incomplete: int
    """Number of programs with incomplete logs."""
    unreadable: int
    """Number of programs whose logs cannot be read."""
    training: int
    """Number of programs whose reads look like training."""
    rows: list[ProgramRowDocument]
    """The programs that wrote the logs."""


class PaperScore(Struct, frozen=True):
    """Similarity by the measure of the DLIO paper."""

    cosine: float | None
    """Cosine similarity; null if no factor can be compared."""
    left_out: list[str]
    """Factors that are unknown for at least one of the programs."""


class PatternScore(Struct, frozen=True):
    """Similarity of access patterns."""

    similarity: float | None
    """Mean over the factors of the smaller value divided by the larger; null if no factor can be compared."""
    cosine: float | None
    """Cosine similarity over the same factors; null if no factor can be compared."""
    left_out: list[str]
    """Factors that are unknown for at least one of the programs."""


class DistanceDocument(Struct, frozen=True):
    """Distance between two distributions of requests."""

    octaves: float
    """Mean distance between the distributions in octaves; an octave is a doubling of the size."""
    near: float
    """Closeness of the distributions: 1 if they are equal, halved by each octave of distance."""
    resolution: str
    """Resolution at which the distributions were compared."""


class ScoresDocument(Struct, frozen=True):
    """Similarity of two programs."""

    paper: PaperScore
    """Similarity by the measure of the DLIO paper."""
    pattern: PatternScore
    """Pattern similarity: the measure over factors that do not depend on machine and scale."""
    factors: tuple[Factor, ...]
    """Values of the factors for both programs."""
    distances: dict[DistributionName, DistanceDocument | None]
    """Distances between the distributions of both programs, by name; null if a program lacks the distribution."""


class QuantilesDocument(Struct, frozen=True):
    """Quantiles of a distribution, in octaves."""

    p5: float
    """5th percentile."""
    p25: float
    """25th percentile."""
    p50: float
    """Median."""
    p75: float
    """75th percentile."""
    p95: float
    """95th percentile."""


class ProfileDocument(Struct, frozen=True):
    """I/O profile of a program."""

    title: str
    """Name of the program for the user."""
    kind: ProfileKind
    """Kind of the data from which the profile is made."""
    application: str
    """Application that does this I/O; empty if it is unknown."""
    source: str
    """Name of the data from which the profile is made."""
    ranks: int | None
    """Number of ranks; null if it is unknown."""
    factors: dict[str, float | None]
    """Values of the factors, by name; null if a value is unknown."""
    octaves: dict[DistributionName, QuantilesDocument | None]
    """Quantiles of the distributions of request sizes, volumes and jumps; null if a distribution is unknown."""
    notes: list[str]
    """Limitations of the data of the profile."""


class ScoreRangeDocument(Struct, frozen=True):
    """Range of the scores of pairs of programs."""

    least: float
    """Smallest score."""
    median: float
    """Median score."""
    most: float
    """Largest score."""
    pairs: int
    """Number of pairs of programs."""


class PublishedScores(Struct, frozen=True):
    """Scores of published pairs of programs by one measure."""

    same_application: ScoreRangeDocument
    """Scores of pairs of the same application."""
    different: ScoreRangeDocument
    """Scores of pairs of different applications."""


class PublishedDocument(Struct, frozen=True):
    """Scores of published pairs of programs."""

    paper: PublishedScores
    """Scores by the measure of the DLIO paper, a cosine similarity."""
    pattern: PublishedScores
    """Scores by pattern similarity."""
    pattern_cosine: PublishedScores
    """Scores by the cosine similarity over the factors of pattern similarity."""


class PairScores(ScoresDocument, frozen=True):
    """Comparison of two programs: their profiles, their similarity, and published scores."""

    a: ProfileDocument
    """I/O profile of the first program."""
    b: ProfileDocument
    """I/O profile of the second program."""
    published: PublishedDocument
    """Scores of published pairs, for comparison."""


class SimilarityDocument(PairScores, frozen=True, kw_only=True):
    """Comparison of two programs."""

    schema: Literal[1] = 1
    """Version of the document, as in Versioned."""


class MatrixRowDocument(ProfileDocument, frozen=True):
    """A program that is compared with each column of a matrix."""

    scores: dict[str, float | None]
    """Pattern similarity to each column; null if it is the same program, or if no factor can be compared."""
    left_out: list[str]
    """Factors that are not used in this row, because they are unknown for a program."""
    nearest: list[str]
    """Columns with the highest pattern similarity to this row."""
    nearest_is_own: bool | None
    """True if the nearest columns include the application of this row; null if no column has this application."""
    nearest_as_seen: list[str]
    """Nearest columns by pattern similarity over only the factors that are observed and not set by the workload."""
    against: dict[str, ScoresDocument | None]
    """Similarity to the program of each column; null if it is the same program."""


class MatrixDocument(Versioned, frozen=True):
    """Comparison of many programs (`similarity --matrix`)."""

    columns: list[ProfileDocument]
    """Programs of the columns."""
    rows: list[MatrixRowDocument]
    """Programs of the rows."""
    published: PublishedDocument
    """Scores of published pairs, for comparison."""


class RoleDocument(Struct, frozen=True):
    """Files of a log with the same role."""

    role: RoleName
    """Role of the files."""
    files: int
    """Number of files."""
    bytes_read: int
    """Number of bytes read."""
    bytes_written: int
    """Number of bytes written."""
    reads: int
    """Number of read requests."""
    writes: int
    """Number of write requests."""
    collective: int
    """Number of collective requests."""
    why: str
    """Reason why the files have this role."""
    examples: list[str]
    """Paths of the busiest files."""


class EstimatedKey(Struct, frozen=True):
    """Value of a key of the workload."""

    value: Any
    """Value of the key."""
    confidence: Confidence
    """Confidence in the value; "unknown" if the value is a default."""
    evidence: str
    """Evidence for the value, such as numbers of requests."""


class NotDerivedDocument(Struct, frozen=True):
    """Parts of the program's I/O that the workload does not take from the log."""

    keys: dict[str, Any]
    """Defaults of keys that the log does not show."""
    left_out: list[str]
    """Lines of text about files that are left out of the workload."""
    untraced_bytes: int
    """Bytes that the log counts but does not trace."""
    notes: list[str]
    """Limitations of the log."""


class EmulationCheckDocument(PairScores, frozen=True, kw_only=True):
    """Comparison of a run of the derived workload with the log (`characterize --check`)."""

    verdict: Outcome
    """Verdict: pass, fail, or incomplete if too few factors are compared."""
    exit_code: int
    """Exit code of the command for this verdict."""
    summary: str
    """The verdict in one sentence."""
    tolerance: float
    """Smallest pattern similarity that passes."""
    similarity: float | None
    """Pattern similarity of the log and the check run; null if no factor can be compared."""
    differing: tuple[Factor, ...]
    """Factors that differ between the log and the check run, the largest difference first."""
    not_compared: list[str]
    """Observed factors that are unknown for the log or the run."""
    not_derived: NotDerivedDocument
    """Parts of the program's I/O that the workload does not take from the log."""


class StepCheckDocument(Struct, frozen=True):
    """Comparison of the steps of a recorded program with the steps of a run of the derived workload."""

    verdict: Outcome
    """Verdict: pass, fail, or incomplete if too few values of a step are known, or if the recording is in doubt."""
    exit_code: int
    """Exit code of the command for this verdict."""
    summary: str
    """The verdict in one sentence."""
    tolerance: float
    """Tolerance: the smaller value, divided by the larger value, must be at least this ratio."""
    factors: tuple[StepFactor, ...]
    """Values of a step of the program and of the check run."""
    not_derived: NotDerivedDocument
    """Parts of the program's I/O that the workload does not take from the recording."""


class CharacterizeDocument(Versioned, frozen=True):
    """Workload that was derived from Darshan logs."""

    logs: list[str]
    """Paths of the Darshan logs."""
    job: LogJob
    """Batch job in which the logs were recorded."""
    traced: bool
    """True if the trace was used in addition to counters."""
    notes: list[str]
    """Limitations of the data."""
    against: list[str]
    """Reasons why the program's I/O does not look like training."""
    roles: list[RoleDocument]
    """Files of the logs, by role."""
    estimates: dict[str, EstimatedKey]
    """Derived values, by key of the workload."""
    auxiliary_files: list[dict[str, Any]]
    """Entries of dataset.auxiliary_files, each with its evidence."""
    yaml: str | None
    """YAML text of the workload; null if no workload was derived."""
    check: EmulationCheckDocument | None
    """Comparison of the log's requests with requests of a check run; null without --check, or without a log."""
    step_check: StepCheckDocument | None
    """Comparison of recorded steps with steps of a check run; null without --check, or without recorded steps."""


def of_programs(rows: Sequence[ProgramRow], copies: int) -> DarshanSummaryDocument:
    """Return the document of the programs that wrote logs. copies: number of logs that are copies of others."""
    counts = Counter(row.trust for row in rows)
    return DarshanSummaryDocument(
        summary=program_table_page.banner_of(rows, copies).line,
        logs=sum(len(row.logs) for row in rows) + copies,
        copies=copies,
        programs=len(rows),
        good=counts["good"],
        part=counts["part"],
        incomplete=counts["incomplete"],
        unreadable=counts["unreadable"],
        training=sum(row.training == "yes" for row in rows),
        rows=[_row(row) for row in rows],
    )


def _row(row: ProgramRow) -> ProgramRowDocument:
    error = None if row.error is None else str(row.error)
    changed = {"logs": list(map(str, row.logs)), "faults": list(row.faults), "error": error}
    return ProgramRowDocument(**row._asdict() | changed)


def of_pair(a: Profile, b: Profile, compared: Similarity, known: Yardsticks) -> SimilarityDocument:
    """Return the document of two programs. known: scores of published pairs."""
    return SimilarityDocument(**_of_pair(a, b, compared, known))


def _of_pair(a: Profile, b: Profile, compared: Similarity, known: Yardsticks) -> dict[str, Any]:
    """Return the fields of PairScores."""
    return {**structs.asdict(_scores(compared)), "a": _profile(a), "b": _profile(b), "published": _published(known)}


def of_matrix(matrix: Matrix, known: Yardsticks) -> MatrixDocument:
    """Return the document of a matrix. known: scores of published pairs."""
    columns = [profile.title for profile in matrix.columns]
    rows = [
        MatrixRowDocument(
            **structs.asdict(_profile(row.profile)),
            scores=dict(zip(columns, row.scores, strict=True)),
            left_out=row.left_out,
            nearest=[columns[at] for at in row.nearest],
            nearest_is_own=row.finds_own,
            nearest_as_seen=[columns[at] for at in observed.nearest],
            against={columns[at]: None if cell is None else _scores(cell) for at, cell in enumerate(row.cells)},
        )
        for row, observed in zip(matrix.rows, similarity.as_seen(matrix).rows, strict=True)
    ]
    return MatrixDocument([_profile(profile) for profile in matrix.columns], rows, _published(known))


def _profile(profile: Profile) -> ProfileDocument:
    return ProfileDocument(
        title=profile.title,
        kind=profile.kind,
        application=profile.application,
        source=profile.source,
        ranks=profile.ranks,
        factors={name: getattr(profile, name) for name in FACTORS},
        octaves={name: _quantiles(getattr(profile, name)) for name in DISTRIBUTIONS},
        notes=list(profile.notes),
    )


def _quantiles(distribution: RequestDistribution | None) -> QuantilesDocument | None:
    if distribution is None or not len(distribution.at):
        return None
    return QuantilesDocument(*request_distance.quantiles(distribution, [0.05, 0.25, 0.5, 0.75, 0.95]))


def _scores(compared: Similarity) -> ScoresDocument:
    paper, pattern = compared.paper, compared.pattern
    return ScoresDocument(
        PaperScore(paper.cosine, list(paper.left_out)),
        PatternScore(pattern.ratio, pattern.cosine, list(pattern.left_out)),
        compared.factors,
        {name: _distance(getattr(compared, name)) for name in DISTRIBUTIONS},
    )


def _distance(distance: Distance | None) -> DistanceDocument | None:
    if distance is None:
        return None
    return DistanceDocument(distance.octaves, distance.closeness, request_distance.GRAINS[distance.grain])


def _published(known: Yardsticks) -> PublishedDocument:
    return PublishedDocument(*(PublishedScores(_range(yard.kindred), _range(yard.strangers)) for yard in known))


def _range(scores: ScoreRange) -> ScoreRangeDocument:
    return ScoreRangeDocument(*scores)


def of_character(character: Character, content: str | None, checked: Checked | None) -> CharacterizeDocument:
    """Return the document of a derived workload. content: YAML text; None if no workload was derived."""
    return CharacterizeDocument(
        logs=[str(path) for path in character.paths],
        job=character.log.job,
        traced=character.derived.traced,
        notes=character.notes,
        against=character.derived.against,
        roles=[RoleDocument(**row) for row in characterization_page.roles(character.derived.roles)],
        estimates={key: EstimatedKey(*value) for key, value in character.derived.keys.items()},
        auxiliary_files=[{**side.keys, "evidence": side.note} for side in character.derived.sides],
        yaml=content,
        check=None if checked is None or checked.requests is None else _check(checked.requests, checked.absent),
        step_check=None if checked is None or checked.steps is None else _step_check(checked.steps, checked.absent),
    )


def _step_check(verdict: StepVerdict, absent: NotDerived) -> StepCheckDocument:
    return StepCheckDocument(
        verdict.outcome,
        verdict.exit_code,
        check_page.banner_of_steps(verdict).line,
        verdict.tolerance,
        verdict.factors,
        NotDerivedDocument(*absent),
    )


def _check(checked: CheckedRequests, absent: NotDerived) -> EmulationCheckDocument:
    verdict = checked.verdict
    return EmulationCheckDocument(
        **_of_pair(checked.log, checked.run, checked.compared, checked.known),
        verdict=verdict.outcome,
        exit_code=verdict.exit_code,
        summary=check_page.banner_of(verdict, checked.run).line,
        tolerance=verdict.tolerance,
        similarity=verdict.similarity,
        differing=verdict.differing,
        not_compared=list(verdict.not_compared),
        not_derived=NotDerivedDocument(*absent),
    )
