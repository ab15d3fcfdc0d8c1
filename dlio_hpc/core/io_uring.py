"""Reads through Linux io_uring(7): many requests are in flight at the same time, and one system call starts and awaits
them.

The kernel and this module share two rings in memory. The submission ring holds requests, the completion ring their
results. Both rings are NumPy arrays here, so that no Python object is created per request. Darshan does not see these
reads.
"""

import ctypes
import errno
import functools
import mmap
import os
import time
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dlio_hpc.base.errors import ConfigError, InfrastructureError
from dlio_hpc.core import darshan_fd_gate
from dlio_hpc.core.clock import now

Numbers = npt.NDArray[np.int64]
Seconds = npt.NDArray[np.float64]
# A request or a result as bytes: NumPy copies these faster than structs.
Entries = npt.NDArray[np.void]

# Numbers of the system calls, which are the same on all processors, and constants of linux/io_uring.h.
_SETUP, _ENTER = 425, 426
_WAIT = 1
# The waiting thread's mask of signals is not changed: a null pointer and its size.
_NO_SIGNALS = (None, 0)
_OP_READ = 22
_REQUESTS_AT = 0x10000000
# The kernel delivers results only while the thread waits for them (IORING_SETUP_SINGLE_ISSUER and DEFER_TASKRUN, Linux
# 6.1). An older kernel knows no such flags, and refuses them with EINVAL.
_FLAGS = (1 << 12 | 1 << 13, 0)
# IORING_FEAT_SINGLE_MMAP: both rings are in one mapping. IORING_FEAT_RW_CUR_POS came with IORING_OP_READ in Linux 5.6.
_FEATURES = 1 << 0 | 1 << 3
# Counters of the rings have 32 bits and wrap around.
_COUNTER = 0xFFFFFFFF
_BUSY_PAUSE_S = 1e-3

# Positions of the parts of a ring in memory, in bytes (struct io_sqring_offsets and io_cqring_offsets).
_PARTS = np.dtype({
    "names": ["head", "tail", "array"], "formats": ["u4"] * 3, "offsets": [0, 4, 24], "itemsize": 40
})  # fmt: skip
_RESULT_PARTS = np.dtype({
    "names": ["head", "tail", "array"], "formats": ["u4"] * 3, "offsets": [0, 4, 20], "itemsize": 40
})  # fmt: skip
# struct io_uring_params. entries, results: sizes of the two rings.
_PARAMETERS = np.dtype({
    "names": ["entries", "results", "flags", "features", "submission", "completion"],
    "formats": ["u4", "u4", "u4", "u4", _PARTS, _RESULT_PARTS],
    "offsets": [0, 4, 8, 20, 40, 80],
    "itemsize": 120,
})  # fmt: skip
# struct io_uring_sqe of a read. number: number of the request, which its result repeats.
_REQUEST = np.dtype({
    "names": ["operation", "descriptor", "offset", "address", "length", "number"],
    "formats": ["u1", "i4", "i8", "i8", "u4", "i8"],
    "offsets": [0, 4, 8, 16, 24, 32],
    "itemsize": 64,
})  # fmt: skip
# struct io_uring_cqe. count: number of bytes, or a negative error number.
_RESULT = np.dtype([("number", "i8"), ("count", "i4"), ("flags", "u4")])
_REQUEST_BYTES, _RESULT_BYTES = np.dtype("V64"), np.dtype("V16")

_REFUSALS = {
    errno.ENOSYS: "the kernel is older than Linux 5.6, or a container's seccomp profile hides io_uring",
    errno.EPERM: "kernel.io_uring_disabled is set, or a container's seccomp profile forbids io_uring",
    errno.ENOMEM: "the limit of locked memory, ulimit -l, is too low",
    errno.EINVAL: "a ring holds 1 to 32768 requests",
}


class Completions(NamedTuple):
    """Times and results of requests, in the order of the requests. starts: seconds of clock.now() before the system
    call that submitted the request. ends: seconds of clock.now() when the result was taken from the ring. counts:
    bytes, or a negative error number.
    """

    starts: Seconds
    ends: Seconds
    counts: Numbers


class Ring:
    """An io_uring with at most `depth` requests in flight. Only the thread that creates it may use it.

    The constructor raises ConfigError if the kernel refuses to create the ring.
    """

    def __init__(self, depth: int) -> None:
        self._depth = depth
        self._call = _system_call()
        self._descriptor, parameters = _created(depth)
        try:
            self._map(parameters)
        except OSError as fault:
            os.close(self._descriptor)
            raise _refused(fault.errno or 0) from fault

    def _map(self, parameters: np.void) -> None:
        """Map the rings into memory, and keep views of them. All state of the rings is in this memory."""
        submission, completion = parameters["submission"], parameters["completion"]
        entries, results = int(parameters["entries"]), int(parameters["results"])
        size = max(submission["array"] + entries * 4, completion["array"] + results * _RESULT.itemsize)
        rings = mmap.mmap(self._descriptor, int(size))
        self._counters = memoryview(rings).cast("I")
        self._started, self._queued = int(submission["head"]) // 4, int(submission["tail"]) // 4
        self._taken, self._finished = int(completion["head"]) // 4, int(completion["tail"]) // 4
        # The submission ring refers to requests by their index. Here both have the same order.
        np.frombuffer(rings, np.uint32, entries, int(submission["array"]))[:] = np.arange(entries)
        self._results = np.frombuffer(rings, _RESULT, results, int(completion["array"])).view(_RESULT_BYTES)
        requests = mmap.mmap(self._descriptor, entries * _REQUEST.itemsize, offset=_REQUESTS_AT)
        self._requests = np.frombuffer(requests, _REQUEST_BYTES)
        self._batch = _Batch(entries)

    def read(self, descriptors: Numbers, addresses: Numbers, lengths: Numbers, offsets: Numbers) -> Completions:
        """Make requests and wait for all of them. Each argument is an array with a value per request: the descriptor of
        the file, the address of the memory to read into, the length in bytes (below 4 GiB), and the offset in the file.
        A request that reads fewer bytes than its length is not repeated.

        The memory must exist until the method returns. If an exception interrupts the method, it waits for the requests
        in flight before it raises the exception, because they write to the memory. Raise InfrastructureError if the
        kernel fails to process the rings.
        """
        total = len(offsets)
        if self._batch.size < total:
            self._batch = _Batch(total)
        batch = self._batch
        batch.descriptors[:total] = descriptors
        batch.addresses[:total] = addresses
        batch.lengths[:total] = lengths
        batch.offsets[:total] = offsets
        try:
            return self._run(batch, total)
        except BaseException:
            self._wait_for_all()
            raise

    def _run(self, batch: "_Batch", total: int) -> Completions:
        """Send the first `total` requests of `batch`, and return their times and results."""
        starts, ends, counts = np.empty(total), np.empty(total), np.empty(total, np.int64)
        sent = done = 0
        while done < total:
            until = min(total, done + self._depth)
            if sent < until:
                self._queue(batch.requests[sent:until])
                starts[sent:until] = now()
            sent += self._enter(until - sent, sent - done)
            count = self._take(batch.results[done:total])
            batch.ends[done : done + count] = now()
            done += count
        numbers = batch.numbers[:total]
        ends[numbers], counts[numbers] = batch.ends[:total], batch.counts[:total]
        return Completions(starts, ends, counts)

    def _queue(self, requests: Entries) -> None:
        """Put requests into the submission ring. If the ring still holds requests that the kernel has not started, the
        new requests replace them.
        """
        count, started = len(requests), self._counters[self._started]
        first = started % len(self._requests)
        straight = min(count, len(self._requests) - first)
        self._requests[first : first + straight] = requests[:straight]
        if straight < count:
            self._requests[: count - straight] = requests[straight:]
        self._counters[self._queued] = (started + count) & _COUNTER

    def _enter(self, count: int, in_flight: int) -> int:
        """Start `count` queued requests, and wait until a request has finished. Return the number of requests that were
        started. If the kernel lacks the memory to start a request, only wait.
        """
        started = self._call(_ENTER, self._descriptor, count, 1, _WAIT, *_NO_SIGNALS)
        if started >= 0:
            return started
        code = ctypes.get_errno()
        if code == errno.EINTR:
            return 0
        if code not in {errno.EAGAIN, errno.EBUSY}:
            raise InfrastructureError(f"io_uring fails: {os.strerror(code)}")
        if in_flight and count:
            return self._enter(0, in_flight)
        time.sleep(_BUSY_PAUSE_S)
        return 0

    def _take(self, target: Entries) -> int:
        """Move all results in the completion ring to the front of `target`, and return their number."""
        taken, finished = self._counters[self._taken], self._counters[self._finished]
        count, first = (finished - taken) & _COUNTER, taken % len(self._results)
        straight = min(count, len(self._results) - first)
        target[:straight] = self._results[first : first + straight]
        if straight < count:
            target[straight:count] = self._results[: count - straight]
        self._counters[self._taken] = finished
        return count

    def _wait_for_all(self) -> None:
        """Wait until no request is in flight, and discard all results."""
        counters = self._counters
        while counters[self._started] != counters[self._finished]:
            counters[self._taken] = counters[self._finished]
            self._enter(0, 1)
        counters[self._taken] = counters[self._finished]

    def close(self) -> None:
        """Release the ring. The ring cannot be used after this call."""
        with darshan_fd_gate.closing():
            del self._counters, self._results, self._requests
            os.close(self._descriptor)


class _Batch:
    """Memory for `size` numbered requests and for their results. Results are in the order of completion. requests,
    results: bytes of the kernel's structs. The other arrays are views of fields of these structs.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        requests, results = np.zeros(size, _REQUEST), np.zeros(size, _RESULT)
        requests["operation"], requests["number"] = _OP_READ, np.arange(size)
        self.descriptors, self.offsets = requests["descriptor"], requests["offset"]
        self.addresses, self.lengths = requests["address"], requests["length"]
        self.numbers, self.counts = results["number"], results["count"]
        self.requests, self.results = requests.view(_REQUEST_BYTES), results.view(_RESULT_BYTES)
        self.ends = np.empty(size)


def _created(depth: int) -> tuple[int, np.void]:
    """Create an io_uring. Return its descriptor and the parameters that the kernel chose."""
    parameters = np.zeros(1, _PARAMETERS)
    for flags in _FLAGS:
        parameters["flags"] = flags
        descriptor = _system_call()(_SETUP, depth, ctypes.c_void_p(parameters.ctypes.data))
        if descriptor >= 0 or ctypes.get_errno() != errno.EINVAL:
            break
    if descriptor < 0:
        raise _refused(ctypes.get_errno())
    if parameters["features"][0] & _FEATURES != _FEATURES:
        os.close(descriptor)
        raise _refused(errno.ENOSYS)
    return descriptor, parameters[0]


def _refused(code: int) -> ConfigError:
    reason = f": {_REFUSALS[code]}" if code in _REFUSALS else ""
    return ConfigError(
        f"reader.engine=io_uring is not possible here: the kernel refuses it ({os.strerror(code)}{reason}); set "
        "reader.engine=preadv"
    )


@functools.cache
def _system_call() -> Callable[..., int]:
    """Return syscall(2) of the C library. It returns -1 for an error, and ctypes.get_errno() then returns the error."""
    function: Callable[..., int] = ctypes.CDLL(None, use_errno=True).syscall
    return function
