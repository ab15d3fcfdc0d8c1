"""What a rank records of an epoch of an inference workload."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dlio_hpc.config.inference_keys import InferenceKeys
from dlio_hpc.core import distributions
from dlio_hpc.core.distributions import Floats
from dlio_hpc.core.kv_blocks import Span
from dlio_hpc.dataset.kv_tiers import KVPlan
from dlio_hpc.results import intervals

Integers = npt.NDArray[np.int64]

# Kinds of times. READ, WRITE: a block. TTFT: time to the first token of a request. QUEUE, LOAD, PREFILL: its parts: the
# wait before and between its reads, the system calls of its reads, and the emulated computation.
READ, WRITE, TTFT, QUEUE, LOAD, PREFILL = range(6)
KINDS = 6
# Columns of an epoch of a rank. BEGAN, ENDED: timestamps of the start and of the end of the last request. ARRIVED,
# SERVED, LATE: requests. *_TOKENS: tokens of histories and prompts of served requests that were found in memory, found
# on storage, and computed. READING_S, WRITING_S: seconds with at least one block being read, or written. DROPPED,
# REMOVED: blocks that memory forgot, and that were removed from storage. HALF_QUEUE, END_QUEUE: requests that had
# waited for a while and not begun at the half and at the end of `time`. PREPARED: blocks that were written before.
# USERS: users of the whole job. HELD_S: seconds for which requests held their slots. COMPUTED_S, OVERRUN_S: parts of
# them: emulated computation, and what writes and removals add to the time of the answer. SUMS: sum and maximum of the
# times of each kind.
(
    BEGAN, ENDED, ARRIVED, SERVED, LATE, MEMORY_TOKENS, STORAGE_TOKENS, COMPUTED_TOKENS, BLOCKS_READ, BLOCKS_WRITTEN,
    READING_S, WRITING_S, DROPPED, REMOVED, HALF_QUEUE, END_QUEUE, PREPARED, USERS, HELD_S, COMPUTED_S,
    OVERRUN_S, SUMS,
) = range(22)  # fmt: skip
COLUMNS = SUMS + 2 * KINDS
# Wait of the requests that a growing queue consists of, as a share of the time of an epoch. Even a queue that does not
# grow has some requests at any moment.
_WHILE = 0.05


class RequestTimes(NamedTuple):
    """Times of a served request. number: its number in the plan. began: timestamp at which a slot began it. queue_s,
    load_s, prefill_s, ttft_s: seconds of QUEUE, LOAD, PREFILL and TTFT. ended: timestamp of the end of its answer.
    """

    number: int
    began: float
    queue_s: float
    load_s: float
    prefill_s: float
    ttft_s: float
    ended: float


class InferenceRecord(NamedTuple):
    """Columns of an epoch of a rank, and the histogram of each kind of times, shape (kinds, bins)."""

    columns: Floats
    histograms: Integers


def of_epoch(
    keys: InferenceKeys, plan: KVPlan, began: float, requests: Sequence[RequestTimes], reads: Sequence[Span],
    writes: Sequence[Span],
) -> InferenceRecord:  # fmt: skip
    """Return the record of an epoch. began: timestamp of its start. requests: the served requests. reads, writes: start
    and end of each block that was read or written.
    """
    spans = {kind: np.array(times, float).reshape(-1, 2).T for kind, times in ((READ, reads), (WRITE, writes))}
    times = np.array([(one.ttft_s, one.queue_s, one.load_s, one.prefill_s) for one in requests]).reshape(-1, 4).T
    latencies = [spans[READ][1] - spans[READ][0], spans[WRITE][1] - spans[WRITE][0], *times]
    served = [plan.requests[one.number] for one in requests]
    columns = np.zeros(COLUMNS)
    columns[BEGAN], columns[ENDED] = began, max((one.ended for one in requests), default=began)
    columns[ARRIVED], columns[SERVED] = len(plan.requests), len(requests)
    columns[LATE] = (times[0] > keys.target).sum()
    columns[MEMORY_TOKENS] = sum(one.memory_tokens for one in served)
    columns[STORAGE_TOKENS] = sum(one.storage_tokens for one in served)
    columns[COMPUTED_TOKENS] = sum(one.computed_tokens for one in served)
    columns[BLOCKS_READ], columns[BLOCKS_WRITTEN] = len(reads), len(writes)
    columns[READING_S] = _busy(spans[READ])
    columns[WRITING_S] = _busy(spans[WRITE])
    columns[DROPPED] = sum(one.dropped for one in served)
    columns[REMOVED] = sum(len(write.removed) for one in served for write in one.writes)
    columns[HALF_QUEUE] = _queue(keys, plan, requests, began, keys.time / 2)
    columns[END_QUEUE] = _queue(keys, plan, requests, began, keys.time)
    columns[PREPARED], columns[USERS] = len(plan.prepared), keys.users
    columns[HELD_S] = sum(one.ended - one.began for one in requests)
    for one in requests:
        request = plan.requests[one.number].request
        decode_s = request.answer * keys.decode
        columns[COMPUTED_S] += one.prefill_s + decode_s
        columns[OVERRUN_S] += max(0.0, one.ended - (began + request.arrival + one.ttft_s) - decode_s)
    columns[SUMS:] = [value for own in latencies for value in (own.sum(), own.max(initial=0.0))]
    return InferenceRecord(columns, np.array([distributions.histogram(own) for own in latencies]))


def _busy(times: Floats) -> float:
    """Return the seconds that intervals cover. times: shape (2, n)."""
    return intervals.length(intervals.union(times)) if times.size else 0.0


def _queue(keys: InferenceKeys, plan: KVPlan, requests: Sequence[RequestTimes], began: float, at: float) -> int:
    """Return the number of requests that had waited for a while and not begun at the time `at` of the epoch."""
    starts, latest = {one.number: one.began - began for one in requests}, at - _WHILE * keys.time
    arrived = (number for number, one in enumerate(plan.requests) if one.request.arrival <= latest)
    return sum(starts.get(number, np.inf) > at for number in arrived)
