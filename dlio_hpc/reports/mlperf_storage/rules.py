"""The rules of an edition and a division that the reported runs do not meet, or that cannot be checked. The rules are
in the criteria file of the edition, which dlio-hpc accept uses, too.
"""

from collections.abc import Sequence
from typing import NamedTuple

from msgspec import structs

from dlio_hpc.reports.mlperf_storage.editions import Division, Edition
from dlio_hpc.reports.mlperf_storage.selection import ReportedRun
from dlio_hpc.verdict import acceptance, criteria_file, history_entry
from dlio_hpc.verdict.criteria_file import Criteria
from dlio_hpc.verdict.criterion_result import Check
from dlio_hpc.verdict.history_entry import Entry


class RuleFindings(NamedTuple):
    """Lines on the rules, each with the number of the rule in the edition's rules, if it has one. unmet: rules that the
    runs do not meet. undecided: rules that could not be checked. met: number of rules that the runs meet.
    """

    unmet: tuple[str, ...]
    undecided: tuple[str, ...]
    met: int

    def sentence(self, edition: Edition, division: Division) -> str:
        """Return a sentence on how many rules are met."""
        name = f"the {division} division of MLPerf Storage {edition.version}"
        checked = len(self.unmet) + len(self.undecided) + self.met
        if not self.unmet and not self.undecided:
            return f"The runs meet all {checked} rules of {name} that dlio-hpc checks."
        parts = [f"{len(self.unmet)} are not met"] if self.unmet else []
        parts += [f"{len(self.undecided)} are undecided"] if self.undecided else []
        return f"Of {checked} rules of {name} that dlio-hpc checks, {' and '.join(parts)}."


def judged(runs: Sequence[ReportedRun], edition: Edition, division: Division) -> RuleFindings:
    """Judge the jobs of the reported runs by the criteria of the edition, restricted to the division."""
    criteria = criteria_file.of_division(criteria_file.load(edition.criteria), division)
    checks = [check for check in acceptance.judge(criteria, _entries(runs)).checks if _concerns(check)]
    of_outcome = {outcome: [check for check in checks if check.outcome == outcome] for outcome in ("pass", "skipped")}
    undecided = [check for check in checks if check.outcome == "inconclusive"] + of_outcome["skipped"]
    unmet = [check for check in checks if not check.is_met and check.outcome != "inconclusive"]
    return RuleFindings(
        tuple(_line(check, criteria) for check in unmet),
        tuple(_line(check, criteria) for check in undecided),
        sum(check.criterion in criteria.criteria for check in of_outcome["pass"]),
    )


def _entries(runs: Sequence[ReportedRun]) -> list[Entry]:
    """Return the entries of the jobs, restricted to the reported runs."""
    outcomes = {run.outcome.job.job: run.outcome for run in runs}
    reported = {(run.outcome.job.job, run.run.name) for run in runs}
    entries = [history_entry.of(outcome) for outcome in outcomes.values()]
    return [
        structs.replace(
            entry, measurements=tuple(run for run in entry.measurements if (entry.job, run.run) in reported)
        )
        for entry in entries
    ]


def _concerns(check: Check) -> bool:
    """Return whether a check concerns these runs. If a criterion applies to none of the runs, its check is skipped and
    has no group.
    """
    return check.outcome != "skipped" or bool(check.group)


def _line(check: Check, criteria: Criteria) -> str:
    """Return the rule, the runs, the requirement and the result as a line of text."""
    criterion = criteria.criteria.get(check.criterion)
    rule = criterion.rule if criterion is not None and criterion.rule else ""
    title = f"{check.title} ({rule})" if rule else check.title
    return ": ".join(filter(None, (title, check.group, f"required: {check.asked}; {check.text}")))
