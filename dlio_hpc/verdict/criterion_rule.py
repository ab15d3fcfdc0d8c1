"""A rule of a criterion, applied to a group of runs: its requirement in words, and its outcome."""

import json
from typing import Any, NamedTuple

from dlio_hpc.base import serialization
from dlio_hpc.base.units import format_size
from dlio_hpc.config import shipped, workload
from dlio_hpc.plan import plan
from dlio_hpc.records.outcomes import Outcome
from dlio_hpc.verdict.criteria_file import Criterion
from dlio_hpc.verdict.criterion_result import Check, CriterionGroup, Evidence

# Requirements in words, by YAML key.
_WORDS = {
    "min_steps": "steps per epoch >= {}",
    "min_dataset_over_memory": "dataset >= {:g} x the nodes' memory",
    "min_checkpoint_over_memory": "checkpoints of each node >= {:g} x its memory, or read from storage",
    "rank_memory": "a checkpoint fits into {} of each rank",
    "model_ranks": "all ranks of the model's parallelism, and the shipped model",
    "min_ranks_per_node": "ranks per node >= {}",
    "max_prefetch": "reader.prefetch <= {}, or a batch per thread",
    "warmups": "warm-ups = {}",
    "measured_runs": "measured runs = {}",
    "min_measured_runs": "measured runs >= {}",
    "gaps": "gaps shorter than a run",
    "separate_results_fs": "results on another file system than the data",
    "unmodified": "{} as shipped",
    "divisions": "a workload of the division {}",
}


class Rule(NamedTuple):
    """A rule of a criterion, and the group that is checked. name: name of the criterion. key: YAML key of the rule."""

    name: str
    key: str
    criterion: Criterion
    group: CriterionGroup

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
        title, asked = self.criterion.title or self.name, in_words(self.key, self.criterion)
        return Check(self.name, self.key, title, self.group.label, asked, verdict, message, **rest)


def in_words(key: str, criterion: Criterion) -> str:
    """Return a description of what a rule requires. key: the YAML key of the rule."""
    value = getattr(criterion, key)
    if isinstance(value, dict):
        return _WORDS[key].format(" or ".join(value))
    if key == "model_ranks" and criterion.subset_ranks is not None:
        return f"{_WORDS[key]}; or {criterion.subset_ranks} ranks of it"
    if key == "rank_memory":
        return _WORDS[key].format(format_size(value))
    return _WORDS[key].format(", ".join(value) if isinstance(value, tuple) else value)


def shipped_settings(name: str) -> Any:
    """Return the shipped workload with this name as nested mappings, with the values of all defaults. Return None if
    there is none. A facility's own workload with the same name does not count.
    """
    path = shipped.root() / shipped.WORKLOADS / f"{name}.yaml"
    return json.loads(serialization.encode(plan.resolved(workload.load(str(path))))) if path.is_file() else None
