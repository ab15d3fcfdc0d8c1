"""The loads of a mix that run at the same time in one launch: division of the ranks, common start and common end."""

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from msgspec import structs

from dlio_hpc.base.errors import InfrastructureError
from dlio_hpc.core import clock
from dlio_hpc.core.distributions import SAMPLES, STARTED, SYNCED, Floats
from dlio_hpc.plan.mix import Load
from dlio_hpc.plan.plan import Plan, Run
from dlio_hpc.results.run_result import MixSummary

if TYPE_CHECKING:
    from mpi4py.MPI import Intracomm, Request

_TAG, _CUT_TAG = 11, 12
# Largest numbers of steps and of epochs that a load records if it starts again until other loads end. Memory is used
# only for the steps that are made.
_MOST_STEPS, _MOST_EPOCHS = 1 << 20, 1 << 16
# Part of its length by which an epoch may end after the other loads: clocks of nodes and polls differ.
_LATE = 0.02
# Smallest number of steps whose rate is computed if no epoch is whole.
_FEWEST_STEPS = 20


class Seat(NamedTuple):
    """The part of a rank in a launch. run: run that the rank takes part in; None if no load has the rank. comm: the
    ranks of this run. plan: the plan, with the numbers of nodes and ranks of this run. neighbours: the other loads of
    the launch; None if the run has all ranks.
    """

    run: Run | None
    comm: "Intracomm"
    plan: Plan
    neighbours: "Neighbours | None"


def seat(world: "Intracomm", plan: Plan, run: Run) -> Seat:
    """Return the part of this rank in the launch of a run. All ranks must call this."""
    if run.load is None:
        return Seat(run, world, plan, None)
    require_ranks(world, plan)
    from mpi4py import MPI

    runs = plan.launched_with(run)
    place = next((place for place, one in enumerate(runs) if one.load is not None and one.load.has(world.rank)), None)
    comm = _split(world, MPI.UNDEFINED if place is None else place)
    leads = place is not None and comm.rank == 0
    leaders = _split(world, 0 if leads else MPI.UNDEFINED)
    if place is None:
        return Seat(None, comm, plan, None)
    mine, load = runs[place], runs[place].load
    assert load is not None
    of_load = structs.replace(plan, nodes=load.nodes, ranks_per_node=load.ranks_per_node)
    return Seat(mine, comm, of_load, Neighbours(leaders if leads else None, comm, load))


def _split(world: "Intracomm", color: int) -> "Intracomm":
    return world.Split(color, world.rank)  # type: ignore[return-value]


def require_ranks(comm: "Intracomm", plan: Plan) -> None:
    """Raise InfrastructureError if MPI started another number of ranks than planned."""
    if comm.size != plan.ranks:
        raise InfrastructureError(
            f"the plan is for {plan.ranks} ranks, but MPI started {comm.size}; the launcher and the MPI library of "
            "mpi4py do not match, or the launcher was given a different number of ranks"
        )


class Neighbours:
    """The loads of a launch, as one of them sees the others. The first rank of each load, its leader, exchanges
    messages with the leaders of the other loads. leaders: communicator of the leaders; None on other ranks. comm: the
    ranks of this load.
    """

    def __init__(self, leaders: "Intracomm | None", comm: "Intracomm", load: Load) -> None:
        self.load, self._leaders, self._comm = load, leaders, comm
        self._sent: list[Request] = []
        self._awaited: list[Request] = []
        self._has_ended = self._is_cut = False
        self._ends: list[float] = []
        self._planned = 1
        self._began = 0.0

    def epochs(self, run: Run) -> int:
        """Return the largest number of epochs of the run. It is more than planned if the load starts again."""
        planned = self._planned = run.workload.train.epochs
        if self.load.until == "first":
            return planned
        return max(planned, min(_MOST_EPOCHS, _MOST_STEPS // run.steps_per_epoch))

    def begin(self) -> None:
        """Wait until all loads are ready for their first step. The ranks of the load wait for their leader."""
        if self._leaders is not None:
            clock.assemble(self._leaders)
            clock.barrier(self._leaders)
            self._awaited = [self._leaders.Irecv(bytearray(1), source=rank, tag=_TAG) for rank in self._others()]
        self._began = clock.now()

    def end(self) -> None:
        """Tell the other loads that this load has made its planned epochs, or has stopped. Later calls do nothing."""
        if self._leaders is not None and not self._has_ended:
            self._sent += [self._leaders.Isend(bytearray(1), dest=rank, tag=_TAG) for rank in self._others()]
        self._has_ended = True

    def _others(self) -> list[int]:
        """Return the ranks of the other leaders, on a leader."""
        assert self._leaders is not None
        return [rank for rank in range(self._leaders.size) if rank != self._leaders.rank]

    def end_all(self) -> bool:
        """Return on the leader whether all loads must end after the current step; False on other ranks."""
        if self._leaders is None:
            return False
        if self.load.time_s is not None:
            return clock.now() - self._began >= self.load.time_s
        self._awaited = [request for request in self._awaited if not request.Test()]
        if self.load.until == "first":
            return len(self._awaited) < self._leaders.size - 1
        return self._has_ended and not self._awaited

    def cuts(self) -> bool:
        """Return on any rank, during a long step, whether all loads must end. The leader tells the other ranks. The
        rank must leave its step incomplete, and call cut() after the next barrier.
        """
        if self._leaders is None:
            return self._is_cut or bool(self._comm.Iprobe(source=0, tag=_CUT_TAG))
        if not self._is_cut and self.end_all():
            self._is_cut = True
            self._sent += [self._comm.Isend(bytearray(1), rank, _CUT_TAG) for rank in range(1, self._comm.size)]
        return self._is_cut

    def cut(self) -> None:
        """Receive the message of the leader that the step is cut. All ranks must call this after the barrier of the
        step.
        """
        if self._leaders is None and not self._is_cut:
            clock.wait(self._comm.Irecv(bytearray(1), 0, _CUT_TAG))
            self._is_cut = True

    def mark(self, epoch: int) -> None:
        """Note the end of an epoch, after its last checkpoint. Later calls for the epoch do nothing."""
        if len(self._ends) == epoch:
            self._ends.append(clock.now() - self._began)

    def summary(self, steps: Floats, per_epoch: int, reads_samples: bool) -> MixSummary:
        """Return the facts about the mix, on the leader. steps: steps of all ranks on the leader's clock, shape (ranks,
        steps, columns). per_epoch: steps of an epoch. All leaders must call this.
        """
        leaders = self._leaders
        assert leaders is not None
        self.end()
        for request in (*self._sent, *self._awaited):
            clock.wait(request)
        starts = steps[..., STARTED].min(axis=0) - self._began
        began, ended = float(starts[0]), self._ends[-1]
        clock.assemble(leaders)
        begins, all_ends = zip(*leaders.allgather((began, ended)), strict=True)
        begin, first_end = max(begins), min(all_ends)
        end = max(begin, first_end)
        samples = steps[..., SAMPLES].sum(axis=0)
        step_ends = steps[..., SYNCED].max(axis=0) - self._began
        counted = len(self._ends) if self.load.until == "time" else self._planned
        common = EpochTimes(starts, step_ends, samples, np.array(self._ends[:counted]), per_epoch)
        return MixSummary(
            load=self.load.name,
            others=self.load.others,
            began_s=began,
            ended_s=ended,
            common_s=(begin, end),
            overlap=(end - begin) / (ended - began),
            samples_per_s=rate(common, end) if reads_samples else None,
        )

    def wait(self) -> None:
        """Wait until all loads have written their results: an error of one load ends all ranks."""
        if self._leaders is not None:
            clock.assemble(self._leaders)


class EpochTimes(NamedTuple):
    """Times of a load, in seconds after the launch began. starts, ends, samples: start, end and samples of each step,
    shape (steps,). epoch_ends: end of each epoch, after its last checkpoint, shape (epochs,). per_epoch: steps of an
    epoch.
    """

    starts: Floats
    ends: Floats
    samples: Floats
    epoch_ends: Floats
    per_epoch: int


def rate(times: EpochTimes, end: float) -> float | None:
    """Return the samples per second of the whole epochs that end before a time, without the time between epochs. The
    rate then has the same share of first steps, in which nothing was read ahead, however often the load starts again.
    Without a whole epoch, return the rate of the steps that end before this time, or None if these are fewer than
    _FEWEST_STEPS. The epoch with which the last load ends may end later, by up to _LATE of its length.
    """
    whole = min(len(times.starts) // times.per_epoch, len(times.epoch_ends))
    begins = times.starts[: whole * times.per_epoch : times.per_epoch]
    lengths = times.epoch_ends[:whole] - begins
    whole = int((times.epoch_ends[:whole] - _LATE * lengths <= end).sum())
    if whole:
        seconds = float(lengths[:whole].sum())
        return float(times.samples[: whole * times.per_epoch].sum()) / seconds
    done = int(np.searchsorted(times.ends, end, side="right"))
    if done < _FEWEST_STEPS:
        return None
    return float(times.samples[:done].sum()) / float(times.ends[done - 1] - times.starts[0])
