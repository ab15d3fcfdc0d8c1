"""Rules of criteria. A kind of rule consists of a requirement in words and a check. A rule of a criterion is applied to
a group of runs.
"""

import json
from collections.abc import Callable
from typing import Any, NamedTuple

from dlio_hpc.base import serialization
from dlio_hpc.base.units import format_size
from dlio_hpc.config import shipped, workload
from dlio_hpc.plan import plan
from dlio_hpc.records.outcomes import Outcome
from dlio_hpc.verdict.criteria_file import Criterion
from dlio_hpc.verdict.criterion_result import Check, CriterionGroup, Evidence


class Rule(NamedTuple):
    """A rule of a criterion, and the group that is checked. name: name of the criterion. key: YAML key of the rule.
    asked: what the rule requires, in words.
    """

    name: str
    key: str
    asked: str
    criterion: Criterion
    group: CriterionGroup

    @property
    def value(self) -> Any:
        """Value of the rule's key in the criterion."""
        return getattr(self.criterion, self.key)

    def check(self, is_met: bool, message: str, **rest: Any) -> Check:
        """Return a check with the outcome pass or fail."""
        return self._check("pass" if is_met else "fail", message, **rest)

    def unknown(self, message: str, evidence: tuple[Evidence, ...] = ()) -> Check:
        """Return a check that cannot be decided, because a value is unknown. Its outcome is `skipped` if the criterion
        is optional, otherwise `inconclusive`. message: what is unknown.
        """
        verdict: Outcome = "skipped" if self.criterion.optional is True else "inconclusive"
        return self._check(verdict, f"unknown: {message}", evidence=evidence)

    def _check(self, verdict: Outcome, message: str, **rest: Any) -> Check:
        title = self.criterion.title or self.name
        return Check(self.name, self.key, title, self.group.label, self.asked, verdict, message, **rest)


class RuleKind(NamedTuple):
    """A kind of rule. requirement: text; {} is the value of its key. check: function that checks a group."""

    requirement: str
    check: Callable[[Rule], Check]

    def in_words(self, key: str, criterion: Criterion) -> str:
        """Return a description of what the rule requires. key: the YAML key of the rule."""
        value = getattr(criterion, key)
        if key == "model_ranks" and criterion.subset_ranks is not None:
            return f"{self.requirement}; or {criterion.subset_ranks} of these ranks"
        if key == "rank_memory":
            return self.requirement.format(format_size(value))
        if isinstance(value, dict):
            return self.requirement.format(" or ".join(value))
        return self.requirement.format(", ".join(value) if isinstance(value, tuple) else value)


def shipped_settings(name: str) -> Any:
    """Return the shipped workload with this name as nested mappings, with the values of all defaults. Return None if
    there is none. A facility's own workload with the same name is not used.
    """
    path = shipped.root() / shipped.WORKLOADS / f"{name}.yaml"
    return json.loads(serialization.encode(plan.resolved(workload.load(str(path))))) if path.is_file() else None


def value_at(data: Any, key: str) -> Any:
    """Return the value of a dotted key in nested mappings, or None if the key is missing."""
    for name in key.split("."):
        data = data.get(name) if isinstance(data, dict) else None
    return data
