"""Mixes: several loads, each a workload, that run at the same time in one launch, on ranks of their own.

Each load is measured alone first, on the ranks that it has in the mix, and then together with the other loads.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Literal, NamedTuple

from msgspec import Meta, Struct

from dlio_hpc.base import units
from dlio_hpc.base.errors import ConfigError

Until = Literal["first", "last", "time"]
Share = Annotated[float, Meta(gt=0, le=1)]
# Key of the axis of the points of a load, and the label of the point without other loads.
AXIS, ALONE = "mix", "alone"
# Accepted difference of a share times a number of ranks from a whole number: shares such as 0.333 are rounded.
_ROUNDING = 0.01
# Least share of the time of a load in which the other loads must run, so that it is measured together with them.
OVERLAP = 0.8
# Separators of the parts of Load.company, and of what follows it in measurement keys.
_AS, _OF, MARK = ": ", ", of ", " #"
# Names of loads: letters, digits, and some marks that have no meaning elsewhere.
_NAME = re.compile(r"[\w.+-]+( [\w.+-]+)*")


class MixKeys(Struct, frozen=True, forbid_unknown_fields=True):
    """Rules of all mixes of a study."""

    until: Until = "last"
    """End of a run with several loads. first: all loads stop when the first one ends. last: a load that ends starts
    again with its first epoch, until every load has ended once. time: all loads start again until `time` is over.
    """
    time: units.Seconds | None = None
    """Length of a run if `until` is time. Example: 60 s"""
    pairs: bool = False
    """Also measure each pair of the loads of a mix, which shows which load slows down which."""
    place: Literal["nodes", "ranks"] | None = None
    """nodes: each load has nodes of its own. ranks: each load has ranks on every node. null: nodes if the shares give
    whole numbers of nodes, otherwise ranks.
    """

    def __post_init__(self) -> None:
        if (self.until == "time") != (self.time is not None):
            raise ValueError("until: time needs a time, such as time: 60 s, and the other values of until need none")


class Load(Struct, frozen=True, kw_only=True):
    """The place of a load in a launch. mix, name: names of the mix and of the load. others: names of the loads that run
    at the same time; empty if the load runs alone. first_node, nodes: the nodes that the load has. first_rank,
    ranks_per_node: the ranks that it has on each of them. job_nodes, job_ranks_per_node: those of the launch. until,
    time_s: end of the run, as in MixKeys.
    """

    mix: str
    name: str
    others: tuple[str, ...] = ()
    first_node: int
    nodes: int
    first_rank: int
    ranks_per_node: int
    job_nodes: int
    job_ranks_per_node: int
    until: Until = "last"
    time_s: float | None = None

    def has(self, rank: int) -> bool:
        """Return whether the load has this rank of the launch. The ranks of a node have consecutive numbers."""
        node, on_node = divmod(rank, self.job_ranks_per_node)
        return (
            self.first_node <= node < self.first_node + self.nodes
            and self.first_rank <= on_node < self.first_rank + self.ranks_per_node
        )

    @property
    def together(self) -> frozenset[str]:
        """Names of all loads of the launch."""
        return frozenset((self.name, *self.others))

    @property
    def shares_nodes(self) -> bool:
        """Whether other loads run on the nodes of this load."""
        return bool(self.others) and self.ranks_per_node < self.job_ranks_per_node

    @property
    def label(self) -> str:
        """The other loads in words, such as "with training and storm"."""
        return f"with {units.listed(self.others)}" if self.others else ALONE

    @property
    def place(self) -> str:
        """The ranks of the load in words, such as "nodes 1 to 2" or "ranks 0 to 1 of each node"."""
        if self.ranks_per_node == self.job_ranks_per_node:
            return _numbers("node", self.first_node + 1, self.nodes)
        return f"{_numbers('rank', self.first_rank, self.ranks_per_node)} of each node"

    @property
    def company(self) -> str:
        """The load, the other loads and the launch in words, such as "train: with storm, of 1 x 4 ranks"."""
        return f"{self.name}{_AS}{self.label}{_OF}{self.job_nodes} x {self.job_ranks_per_node} ranks"


def _numbers(noun: str, first: int, count: int) -> str:
    return f"{noun} {first}" if count == 1 else f"{noun}s {first} to {first + count - 1}"


class LaunchScale(NamedTuple):
    """Numbers of nodes, and of ranks on each of them."""

    nodes: int
    ranks_per_node: int


def placed(mix: str, shares: Mapping[str, float], scale: LaunchScale, keys: MixKeys) -> dict[str, Load]:
    """Return the place of each load of a mix. shares: share of the ranks that each load has, by its name. scale:
    numbers of nodes and ranks of the launch. Raise ConfigError if the shares are not whole numbers of nodes or ranks.
    """
    for name in shares:
        if _NAME.fullmatch(name) is None:
            raise ConfigError(
                f"mix {mix}: {name!r} cannot be the name of a load; use letters, digits, '.', '-' and '_'"
            )
    if len(shares) < 2:
        raise ConfigError(f"mix {mix}: a mix needs at least two loads; give another one, with its share of the ranks")
    if sum(shares.values()) > 1 + _ROUNDING:
        raise ConfigError(f"mix {mix}: the shares add up to {sum(shares.values()):.3g}; use shares of at most 1 in all")
    of_nodes, of_ranks = (_whole(shares, count) for count in scale)
    if keys.place != "ranks" and of_nodes is not None:
        return dict(_side_by_side(mix, of_nodes, scale, keys))
    if keys.place == "nodes" or of_ranks is None:
        raise ConfigError(_unfit(mix, shares, scale, keys))
    return dict(_side_by_side(mix, of_ranks, scale, keys, on_every_node=True))


def _whole(shares: Mapping[str, float], count: int) -> dict[str, int] | None:
    """Return the shares of `count` nodes or ranks as whole numbers; None if one of them is not a whole number."""
    parts = {name: round(share * count) for name, share in shares.items()}
    fits = all(part and abs(part - shares[name] * count) <= _ROUNDING * count for name, part in parts.items())
    return parts if fits and sum(parts.values()) <= count else None


def _unfit(mix: str, shares: Mapping[str, float], scale: LaunchScale, keys: MixKeys) -> str:
    parts = ", ".join(f"{name} {share:g}" for name, share in shares.items())
    unit, option = ("nodes", "--nodes") if keys.place == "nodes" else ("ranks on each node", "--ppn")
    count = scale.nodes if keys.place == "nodes" else scale.ranks_per_node
    fitting = next((number for number in range(count, 8 * count + 64) if _whole(shares, number)), None)
    remedy = f"use {option} {fitting}, or " if fitting is not None else ""
    return f"mix {mix}: the shares {parts} are no whole numbers of {count} {unit}; {remedy}change the shares"


def _side_by_side(
    mix: str, parts: Mapping[str, int], scale: LaunchScale, keys: MixKeys, on_every_node: bool = False
) -> Iterator[tuple[str, Load]]:
    """Yield the place of each load. parts: number of nodes, or of ranks on each node, that each load has."""
    first = 0
    for name, part in parts.items():
        yield (
            name,
            Load(
                mix=mix,
                name=name,
                first_node=0 if on_every_node else first,
                nodes=scale.nodes if on_every_node else part,
                first_rank=first if on_every_node else 0,
                ranks_per_node=part if on_every_node else scale.ranks_per_node,
                job_nodes=scale.nodes,
                job_ranks_per_node=scale.ranks_per_node,
                until=keys.until,
                time_s=keys.time,
            ),
        )
        first += part


def alone(company: str) -> str | None:
    """Return Load.company of the same load without other loads. Return None if the load runs alone, or the run is no
    load of a mix.
    """
    whole = company.partition(MARK)[0]
    name, _, label = whole.rpartition(_OF)[0].partition(_AS)
    launch = whole.rpartition(_OF)[-1]
    return None if label in ("", ALONE) else f"{name}{_AS}{ALONE}{_OF}{launch}"


def companies(name: str, names: Sequence[str], pairs: bool) -> list[tuple[str, ...]]:
    """Return the sets of other loads with which a load is measured: none, each single one if pairs are measured, and
    all. names: names of all loads of the mix.
    """
    others = tuple(other for other in names if other != name)
    singles = [(other,) for other in others] if pairs and len(others) > 1 else []
    return [(), *singles, others]
