"""JSON documents about comparisons, acceptance, baselines and the history."""

from collections.abc import Sequence
from typing import Literal

from msgspec import UNSET, Struct, UnsetType, structs

from dlio_hpc.documents.versioned import Versioned
from dlio_hpc.records.outcomes import Outcome
from dlio_hpc.results.metrics import METRICS, MetricName
from dlio_hpc.verdict import acceptance
from dlio_hpc.verdict.acceptance import Acceptance
from dlio_hpc.verdict.baseline_comparison import Judgement, Verdict
from dlio_hpc.verdict.baselines import Accepted, Baseline, Retired
from dlio_hpc.verdict.baselines import State as BaselineState
from dlio_hpc.verdict.criteria_file import Criteria
from dlio_hpc.verdict.criterion_result import Check
from dlio_hpc.verdict.history_entry import Entry, Key
from dlio_hpc.verdict.run_groups import Group


class CompareDocument(Versioned, frozen=True):
    """Comparison of jobs with baselines and earlier jobs."""

    verdicts: tuple[Verdict, ...]
    """A verdict for each metric of each measurement key."""
    outcome: Outcome
    """Most severe outcome of the verdicts."""
    exit_code: int
    """Exit code of the command for this outcome."""
    text: str
    """Line that states how many verdicts have each outcome."""


class AcceptanceResult(Struct, frozen=True):
    """Result of an acceptance test."""

    summary: str
    """The result in one line."""
    outcome: Outcome
    """Most severe outcome of the checks."""
    exit_code: int
    """Exit code of this outcome."""
    studies: list[str]
    """Names of the studies that were judged."""
    criteria: Criteria
    """Content of the criteria file, with all defaults filled in."""
    checks: tuple[Check, ...]
    """The checks: first the checks of all jobs together, then the checks of each group."""


class AcceptDocument(AcceptanceResult, frozen=True, kw_only=True):
    """Result of an acceptance test, printed by `accept`."""

    schema: Literal[1] = 1
    """Version of the document, as in Versioned."""


class MadeBaseline(Struct, frozen=True):
    """A baseline that was accepted."""

    id: str
    """Id of the baseline."""
    job: str
    """Name of the job."""
    key: Key
    """Measurement key."""
    replaces: str | None
    """Id of the earlier baseline that has the same key; null: there was none."""
    warnings: list[str]
    """Objections that were overridden by --force."""


class BaselineAcceptDocument(Versioned, frozen=True):
    """Baselines that were made from a job."""

    baselines: list[MadeBaseline]
    """A baseline for each measurement key."""
    left_out: list[str]
    """Reasons why some runs did not become a baseline."""


class BaselineDocument(Struct, frozen=True):
    """A baseline."""

    id: str
    """Id of the baseline."""
    state: BaselineState
    """State of the baseline: active, replaced or retired."""
    replaced_by: str | None
    """Id of the baseline that replaced it; null: none."""
    retired: Retired | None
    """Decision that retired the baseline; null: the baseline is not retired."""
    job: str
    """Name of the job."""
    key: Key
    """Measurement key."""
    message: str
    """Reason for accepting it."""
    who: str
    """User and host that accepted the baseline."""
    when: str
    """Time at which the baseline was accepted, UTC."""
    warnings: list[str]
    """Objections that were overridden by --force."""
    metrics: dict[MetricName, list[float]]
    """Values of the valid runs, by metric."""
    group: Group | UnsetType = UNSET
    """The runs of the baseline; printed by `baseline show` only."""


class BaselineListDocument(Versioned, frozen=True):
    """Baselines in a folder of archives."""

    baselines: list[BaselineDocument]
    """The active baselines; with --all, all baselines."""


class BaselineShowDocument(BaselineDocument, frozen=True, kw_only=True):
    """A baseline with its runs."""

    signed_by: str | None
    """Name of the user who signed the baseline, as in the file allowed_signers; null: signatures are not checked."""
    schema: Literal[1] = 1
    """Version of the document, as in Versioned."""


class BaselineRetireDocument(Versioned, frozen=True):
    """Decision that retires a baseline."""

    id: str
    """Id of the baseline."""
    message: str
    """Reason."""
    who: str
    """User and host that made the decision."""
    when: str
    """Time of the decision, UTC."""


class HistoryDocument(Versioned, frozen=True):
    """Jobs in the history of a folder of archives."""

    jobs: list[Entry]
    """The jobs, the oldest first."""


def of_judgement(judged: Judgement) -> CompareDocument:
    """Return the document of a comparison."""
    return CompareDocument(judged.verdicts, judged.outcome, judged.exit_code, judged.text)


def of_acceptance(accepted: Acceptance) -> AcceptanceResult:
    """Return the result of an acceptance test, as part of a document."""
    return AcceptanceResult(
        acceptance.summary(accepted), accepted.outcome, accepted.exit_code, list(accepted.what), accepted.criteria,
        accepted.checks,
    )  # fmt: skip


def of_accept(accepted: Acceptance) -> AcceptDocument:
    """Return the document of an acceptance test."""
    return AcceptDocument(**structs.asdict(of_acceptance(accepted)))


def of_made(made: Sequence[Accepted], before: dict[Key, str], left_out: list[str]) -> BaselineAcceptDocument:
    """Return the document of baselines that were accepted. before: ids of the earlier baselines of keys."""
    return BaselineAcceptDocument(
        [
            MadeBaseline(new.id, new.group.job, new.group.key, before.get(new.group.key), list(new.warnings))
            for new in made
        ],
        left_out,
    )


def of_baseline(baseline: Baseline) -> BaselineDocument:
    """Return a baseline as part of a list."""
    accepted = baseline.accepted
    return BaselineDocument(
        id=accepted.id,
        state=baseline.state,
        replaced_by=baseline.by,
        retired=baseline.retired,
        job=accepted.group.job,
        key=accepted.group.key,
        message=accepted.message,
        who=accepted.who,
        when=accepted.when,
        warnings=list(accepted.warnings),
        metrics={name: list(values) for name in METRICS if (values := accepted.group.values(name))},
    )


def of_shown(baseline: Baseline, signer: str | None) -> BaselineShowDocument:
    """Return the document of one baseline, with its runs. signer: name of the user who signed the baseline; None if
    unknown.
    """
    more = {"group": baseline.accepted.group, "signed_by": signer}
    return BaselineShowDocument(**structs.asdict(of_baseline(baseline)) | more)
