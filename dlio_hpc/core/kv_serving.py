"""A serving engine: it begins requests when they arrive, and serves several at the same time, each by a thread.

A request waits for a slot, reads the blocks that are on storage, waits as long as the computation of the other tokens
takes, and then has its first token. Blocks of the prompt are written after that, and blocks of the answer when they are
full. If writing takes longer than the answer, the slot is free when the last block is written.
"""

import errno
import os
import queue
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import NamedTuple

import numpy as np

from dlio_hpc.base.errors import ConfigError, DlioError, InfrastructureError, InvalidRun
from dlio_hpc.config.inference_keys import InferenceKeys
from dlio_hpc.core import buffers, content, kv_record
from dlio_hpc.core.clock import now
from dlio_hpc.core.content import Rows
from dlio_hpc.core.file_comparison import difference
from dlio_hpc.core.kv_blocks import BlockFiles, ShortBlock, Span
from dlio_hpc.core.kv_record import InferenceRecord, RequestTimes
from dlio_hpc.dataset.kv_tiers import BlockPlace, BlockWrite, KVPlan
from dlio_hpc.files import filesystem

# Longest time between two looks at the time limit of the job.
_LOOK_S = 0.5


class _Ended(Exception):
    """The epoch ends early, because another thread failed or the time limit of the job is near."""


class Served(NamedTuple):
    """Results of an epoch. reads: start and end of each block that was read."""

    record: InferenceRecord
    reads: list[Span]


class KVServing:
    """The requests of a rank in an epoch. position: number of the first block of the rank in the content stream. cuts:
    function that returns whether the time limit of the job is near.
    """

    def __init__(
        self, keys: InferenceKeys, plan: KVPlan, blocks: BlockFiles, position: int, cuts: Callable[[], bool]
    ) -> None:
        self._keys, self._plan, self._blocks, self._position, self._cuts = keys, plan, blocks, position, cuts
        self._needs = _needs(plan)
        self._previous = _previous(plan)
        self._ended = threading.Event()
        self._fault: BaseException | None = None
        self._work: queue.SimpleQueue[int | None] = queue.SimpleQueue()
        self._changed = threading.Condition()  # guards the fields below
        self._free = keys.slots
        self._waiting: list[int] = []
        self._next = 0
        self._is_begun = bytearray(len(plan.requests))
        self._is_done = bytearray(len(plan.requests))
        self._settled = threading.Condition()  # guards the states of blocks
        self._is_written = bytearray(len(plan.places))
        self._reads_left = list(plan.reads)
        self._began = 0.0
        self._reads: list[Span] = []
        self._writes: list[Span] = []
        self._times: list[RequestTimes] = []

    def prepare(self) -> None:
        """Write the blocks that exist before the first request arrives. They are not left in the page cache."""
        memory = threading.local()

        def write(place: BlockPlace) -> None:
            if self._ended.is_set():
                return
            if not hasattr(memory, "row"):
                memory.row = self._memory()
            self._filled(memory.row, place.serial)
            try:
                self._blocks.write(place, memory.row.data)
                if not self._keys.direct:
                    self._blocks.forget(place)
            except OSError as fault:
                self._ended.set()
                raise self._storage_fault("write", fault, place) from fault
            self._is_written[place.serial] = True

        places = [self._plan.places[serial] for serial in self._plan.prepared]
        with ThreadPoolExecutor(self._keys.slots, "kv-prepare") as pool:
            for _ in pool.map(write, places):
                if self._cuts():
                    self._ended.set()

    def serve(self) -> Served | None:
        """Serve the requests. Return None if the time limit of the job is near, so that they are not all served."""
        threads = [threading.Thread(target=self._slot, name=f"kv-slot-{number}") for number in range(self._keys.slots)]
        for thread in threads:
            thread.start()
        self._began = now()
        try:
            is_whole = self._dispatch()
        finally:
            self._ended.set()
            with self._settled:
                self._settled.notify_all()
            for _ in threads:
                self._work.put(None)
            for thread in threads:
                thread.join()
        if self._fault is not None:
            raise self._fault
        if not is_whole:
            return None
        record = kv_record.of_epoch(self._keys, self._plan, self._began, self._times, self._reads, self._writes)
        return Served(record, self._reads)

    def _dispatch(self) -> bool:
        """Give each request to a slot, as soon as it has arrived, the request before it in its conversation has ended,
        and a slot is free. Return False if the time limit of the job is near.
        """
        requests = self._plan.requests
        while not self._cuts():
            with self._changed:
                elapsed = now() - self._began
                while self._next < len(requests) and requests[self._next].request.arrival <= elapsed:
                    self._waiting.append(self._next)
                    self._next += 1
                self._expire(elapsed)
                while self._free and (number := self._ready()) is not None:
                    self._waiting.remove(number)
                    self._is_begun[number] = True
                    self._free -= 1
                    self._work.put(number)
                is_over = self._next == len(requests) and not self._waiting and self._free == self._keys.slots
                if self._fault is not None or is_over:
                    return True
                self._changed.wait(self._pause_s(elapsed))
        return False

    def _expire(self, elapsed: float) -> None:
        """Give up requests, after `time`, that have waited longer than users accept. elapsed: time of the epoch."""
        if elapsed >= self._keys.time:
            requests, oldest = self._plan.requests, elapsed - self._keys.target
            self._waiting = [number for number in self._waiting if requests[number].request.arrival >= oldest]

    def _ready(self) -> int | None:
        """Return the first request that may begin. A request that needs blocks of others begins after they have begun.
        Requests then wait for each other in the order of the plan, and never in a circle.
        """
        for number in self._waiting:
            before = self._previous[number]
            if (before is None or self._is_done[before]) and all(map(self._is_begun.__getitem__, self._needs[number])):
                return number
        return None

    def _pause_s(self, elapsed: float) -> float:
        """Return the seconds after which the dispatcher looks again. elapsed: time of the epoch."""
        pauses = [_LOOK_S]
        if self._next < len(self._plan.requests):
            pauses.append(self._plan.requests[self._next].request.arrival - elapsed)
        if elapsed < self._keys.time:
            pauses.append(self._keys.time - elapsed)
        return max(0.0, min(pauses))

    def _slot(self) -> None:
        """Serve requests until there are no more."""
        try:
            row = self._memory()
            while (number := self._work.get()) is not None:
                self._serve(number, row)
                with self._changed:
                    self._is_done[number] = True
                    self._free += 1
                    self._changed.notify()
        except _Ended:
            return
        except BaseException as fault:  # noqa: BLE001 - raised in the main thread
            with self._changed:
                self._fault = self._fault or fault
                self._changed.notify()
            self._ended.set()
            with self._settled:
                self._settled.notify_all()

    def _serve(self, number: int, row: Rows) -> None:
        """Serve a request. row: memory of a block."""
        planned = self._plan.requests[number]
        request, arrived, began = planned.request, self._began + planned.request.arrival, now()
        queue_s, load_s = began - arrived, 0.0
        for serial in planned.reads:
            queue_s += self._settle(partial(self._is_there, serial))
            load_s += self._read(serial, row)
        loaded = now()
        self._wait_until(loaded + planned.computed_tokens * self._keys.prefill)
        first = now()
        for write in planned.writes:
            self._wait_until(first + write.token * self._keys.decode)
            self._write(write, row)
        self._wait_until(first + request.answer * self._keys.decode)
        self._times.append(RequestTimes(number, began, queue_s, load_s, first - loaded, first - arrived, now()))

    def _read(self, serial: int, row: Rows) -> float:
        """Read a block, and return the seconds of its system calls."""
        place = self._plan.places[serial]
        try:
            span = self._blocks.read(place, row.data)
        except OSError as fault:
            raise self._storage_fault("read", fault, place) from fault
        self._reads.append(span)
        if self._keys.verify:
            self._verify(place, row)
        with self._settled:
            self._reads_left[serial] -= 1
            self._settled.notify_all()
        return span[1] - span[0]

    def _write(self, write: BlockWrite, row: Rows) -> None:
        """Remove blocks if storage is full, and write a block."""
        for serial in write.removed:
            self._settle(partial(self._is_unused, serial))
            self._remove(self._plan.places[serial])
        place = self._plan.places[write.serial]
        self._filled(row, write.serial)
        try:
            span = self._blocks.write(place, row.data)
        except OSError as fault:
            raise self._storage_fault("write", fault, place) from fault
        self._writes.append(span)
        with self._settled:
            self._is_written[write.serial] = True
            self._settled.notify_all()

    def _remove(self, place: BlockPlace) -> None:
        try:
            self._blocks.remove(place)
        except OSError as fault:
            raise self._storage_fault("remove", fault, place) from fault

    def _is_there(self, serial: int) -> bool:
        """Return whether a block is written."""
        return bool(self._is_written[serial])

    def _is_unused(self, serial: int) -> bool:
        """Return whether a block is written, and all requests that read it have done so."""
        return bool(self._is_written[serial]) and not self._reads_left[serial]

    def _settle(self, is_settled: Callable[[], bool]) -> float:
        """Wait until other requests have written or read a block. Return the seconds of the wait."""
        began = now()
        with self._settled:
            if is_settled():
                return 0.0
            self._settled.wait_for(lambda: is_settled() or self._ended.is_set())
        if self._ended.is_set():
            raise _Ended
        return now() - began

    def _wait_until(self, moment: float) -> None:
        """Wait until a timestamp, without using the CPU."""
        seconds = moment - now()
        if seconds > 0:
            self._ended.wait(seconds)
        if self._ended.is_set():
            raise _Ended

    def _memory(self) -> Rows:
        """Return memory for a block, aligned for O_DIRECT."""
        row: Rows = buffers.allocate(1, self._keys.block_bytes).rows[0]
        return row

    def _filled(self, row: Rows, serial: int) -> None:
        """Fill memory with the content of a block."""
        content.fill(row, (self._position + serial) * len(row))

    def _verify(self, place: BlockPlace, row: Rows) -> None:
        """Raise InvalidRun if a block that was read differs from what was written."""
        done = 0
        for piece in content.pieces((self._position + place.serial) * len(row), len(row)):
            expected = np.frombuffer(piece, np.uint8)
            at = difference(row[done : done + len(expected)], expected)
            if at is not None:
                raise InvalidRun(
                    f"{self._path(place)}: byte {done + at} of block {place.serial} is {row[done + at]:#04x} when it "
                    f"is read, but {expected[at]:#04x} was written"
                )
            done += len(expected)

    def _path(self, place: BlockPlace) -> str:
        """Return the full path of the file of a block, for messages."""
        return os.path.join(os.getcwd(), self._blocks.path(place))

    def _storage_fault(self, verb: str, fault: OSError, place: BlockPlace) -> DlioError:
        """Return the error of a block that cannot be read, written or removed. verb: what was tried."""
        path = self._path(place)
        if isinstance(fault, ShortBlock):
            return InvalidRun(f"{path}: {fault}")
        return fault_of(verb, path, fault, self._keys)


def fault_of(verb: str, path: str, fault: OSError, keys: InferenceKeys) -> DlioError:
    """Return the error of a file of blocks that cannot be used. A file system without O_DIRECT refuses to open it."""
    if fault.errno == errno.EINVAL and keys.direct:
        return ConfigError(
            f"cannot {verb} {path} with O_DIRECT ({fault.strerror}), which its file system may not have; set "
            "-S inference.direct=false, or choose another --data"
        )
    reason = fault.strerror or str(fault)
    with suppress(OSError):
        reason = filesystem.reason(fault, ".")
    return InfrastructureError(f"cannot {verb} {path}: {reason}")


def _previous(plan: KVPlan) -> list[int | None]:
    """Return for each request the number of the request before it in its conversation, if the epoch has it."""
    last: dict[tuple[int, int], int] = {}
    previous = []
    for number, one in enumerate(plan.requests):
        conversation = one.request.user, one.request.conversation
        previous.append(last.get(conversation))
        last[conversation] = number
    return previous


def _needs(plan: KVPlan) -> list[tuple[int, ...]]:
    """Return for each request the numbers of the requests that write the blocks which it reads, and that write or read
    the blocks which it removes. The requests come before it in the plan.
    """
    writer: dict[int, int] = {}
    readers: dict[int, set[int]] = {}
    needs = []
    for number, one in enumerate(plan.requests):
        needed = {writer[serial] for serial in one.reads if serial in writer}
        for serial in one.reads:
            readers.setdefault(serial, set()).add(number)
        for write in one.writes:
            for serial in write.removed:
                needed |= readers.pop(serial, set())
                needed |= {writer[serial]} if serial in writer else set()
            writer[write.serial] = number
        needs.append(tuple(needed - {number}))
    return needs
