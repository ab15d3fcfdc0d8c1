"""Rules on checkpoints: the number of ranks that write a model, and the size of checkpoints relative to the memory of
nodes and accelerators.
"""

from typing import NamedTuple

from dlio_hpc.base import serialization
from dlio_hpc.base.errors import ConfigError
from dlio_hpc.base.units import format_size
from dlio_hpc.config import workload
from dlio_hpc.config.checkpoint_keys import Checkpoint
from dlio_hpc.dataset import checkpoint_files
from dlio_hpc.verdict.criterion_result import Check, CriterionGroup, Evidence, Ran
from dlio_hpc.verdict.criterion_rule import Rule, RuleKind, shipped_settings
from dlio_hpc.verdict.history_entry import changes


class _Saving(NamedTuple):
    """The checkpoints of a workload that only writes checkpoints. ranks: number of ranks that ran. ranks_per_node:
    number of ranks on each node, in the order of the nodes.
    """

    checkpoint: Checkpoint
    writes: int
    ranks: int
    ranks_per_node: int

    @property
    def least_of_a_node(self) -> int:
        """Bytes of a checkpoint on the node that writes least. Nodes that do not write are ignored."""
        by_rank = [
            sum(file.size for file in checkpoint_files.of_rank(self.checkpoint, rank)) for rank in range(self.ranks)
        ]
        nodes = range(0, self.ranks, self.ranks_per_node)
        return min(filter(None, (sum(by_rank[first : first + self.ranks_per_node]) for first in nodes)), default=0)


def _saving(group: CriterionGroup) -> _Saving | None:
    """Return the checkpoints of a group whose workload only writes checkpoints and reads no samples. Otherwise, or if
    the workload cannot be read, return None.
    """
    try:
        checkpoint = serialization.convert(group.runs[0].workload, workload.Workload, group.label).checkpoint
    except ConfigError:  # an older version recorded it
        return None
    if checkpoint is None or checkpoint.writes is None:
        return None
    return _Saving(checkpoint, checkpoint.writes, group.ranks, group.key.ranks_per_node)


def _over_memory(rule: Rule) -> Check:
    """Compare the bytes of all checkpoints of a node with the memory of the node. If the ratio is below the limit, the
    checkpoints must have been read from storage.
    """
    saving, least = _saving(rule.group), rule.value
    if saving is None:
        return rule.unknown("the sizes of the checkpoints were not recorded")
    written = saving.least_of_a_node * saving.writes
    evidence = tuple(_against_memory(ran, written, rule.group.key.nodes, least) for ran in rule.group.runs)
    if any(item.is_met is None for item in evidence):
        return rule.unknown("node memory was not recorded", evidence)
    worst = min(evidence, key=lambda item: (bool(item.is_met), item.value))
    advice = ("read them on other nodes (checkpoint.reorder), or on nodes with less memory",)
    return rule.check(
        bool(worst.is_met), worst.text, evidence=evidence, value=worst.value, limit=least, unit="x",
        advice=() if worst.is_met else advice,
    )  # fmt: skip


def _against_memory(ran: Ran, written: int, nodes: int, least: float) -> Evidence:
    """Return the bytes that a node writes divided by its memory, and whether the run meets the rule. written: bytes of
    the node that writes least. All nodes are assumed to have the same memory.
    """
    storage = ran.run.storage
    if storage is None or not storage.memory_bytes:
        return Evidence(ran.job, ran.run.run, None, "unknown")
    memory = storage.memory_bytes // nodes
    ratio = written * nodes / storage.memory_bytes
    sizes = f"checkpoints of {format_size(written)} on a node, {format_size(memory)} of memory"
    if ratio >= least:
        return Evidence(ran.job, ran.run.run, ratio, sizes, is_met=True)
    return Evidence(ran.job, ran.run.run, ratio, f"{sizes}; {storage.text()}", storage.outcome() == "storage")


def _rank_memory(rule: Rule) -> Check:
    saving, memory = _saving(rule.group), rule.value
    if saving is None:
        return rule.unknown("the sizes of the checkpoints were not recorded")
    size, total = checkpoint_files.size(saving.checkpoint, saving.ranks), memory * saving.ranks
    message = f"a checkpoint of {format_size(size)}, {format_size(total)} of memory of {saving.ranks} ranks"
    return rule.check(size <= total, message, value=total / size, limit=1.0, unit="x")


def _model_ranks(rule: Rule) -> Check:
    """Compare the number of ranks with the model's parallelism, and the model with the shipped model."""
    saving = _saving(rule.group)
    state = None if saving is None else saving.checkpoint.state
    shipped = _shipped_checkpoint(rule.group.key.workload)
    if saving is None or state is None or shipped is None or shipped.state is None:
        return rule.unknown(f"no shipped model {rule.group.key.workload!r}")
    parts = serialization.plain(state.model), serialization.plain(shipped.state.model)
    narrowed = changes(parts[1], parts[0], "checkpoint.model")
    wanted, subset = state.parallelism.ranks, rule.criterion.subset_ranks
    fewest = shipped.state.parallelism.data
    advice = "without --dataset-size" if narrowed else f"--ppn and --nodes for {wanted} ranks"
    if narrowed:
        message = f"the model differs from the shipped one (shipped / measured): {'; '.join(narrowed)}"
    elif state.parallelism.data < fewest:
        message = f"checkpoint.parallelism.data is {state.parallelism.data}, the shipped model has {fewest}"
        advice = f"checkpoint.parallelism.data of at least {fewest}"
    elif saving.ranks == wanted:
        return rule.check(True, f"all {wanted} ranks", value=float(saving.ranks), limit=float(wanted))
    elif saving.ranks == subset and state.parallelism == shipped.state.parallelism:
        return rule.check(True, f"only {subset} of {wanted} ranks write", value=float(saving.ranks))
    else:
        message = f"the job had {saving.ranks} ranks, but the model's parallelism needs {wanted}"
    return rule.check(False, message, value=float(saving.ranks), limit=float(wanted), advice=(advice,))


def _shipped_checkpoint(name: str) -> Checkpoint | None:
    data = shipped_settings(name)
    return None if data is None else serialization.convert(data, workload.Workload, name).checkpoint


# Kinds of rules, by YAML key, in the order of the checks.
RULES: dict[str, RuleKind] = {
    "min_checkpoint_over_memory": RuleKind(
        "checkpoints of each node >= {:g} x its memory, or read from storage", _over_memory
    ),
    "rank_memory": RuleKind("a checkpoint fits into {} of each rank", _rank_memory),
    "model_ranks": RuleKind("all ranks of the model's parallelism, and the shipped model", _model_ranks),
}
