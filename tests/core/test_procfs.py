"""The kernel counts the reads of each thread."""

import _thread
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

from dlio_hpc.core import procfs


def _counted(path: Path, size: int) -> tuple[int, int]:
    before = procfs.thread_io()
    with path.open("rb", buffering=0) as file:
        file.read(size)
    after = procfs.thread_io()
    assert before is not None
    assert after is not None
    came = after.since(before)
    return came.requested, came.calls


def test_each_thread_has_its_own_reads_counted(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(100_000))
    wrong: list[tuple[int, int]] = []

    def read(first: int) -> None:
        sizes = range(first, first + 300)
        wrong.extend((size, count) for size in sizes if (count := _counted(path, size)[0]) != size)

    before = len(os.listdir("/proc/self/fd"))
    threads = [threading.Thread(target=read, args=(1000 * number + 1,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert len(os.listdir("/proc/self/fd")) <= before, "a thread that has ended keeps nothing open"


def test_threads_that_python_does_not_know_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(1000))
    go_on, has_read, numbers = threading.Semaphore(0), threading.Semaphore(0), []

    def read() -> None:
        numbers.append(threading.get_native_id())
        has_read.release()
        for size in (10, 100):
            go_on.acquire()
            with path.open("rb", buffering=0) as file:
                file.read(size)
            has_read.release()
        go_on.acquire()  # the thread shall not end before its reads are counted

    threads = procfs.ForeignThreads()
    _thread.start_new_thread(read, ())  # the module threading does not know this thread
    has_read.acquire()
    number, counters = numbers[0], [threads.io()]
    opened = threads._opened[number].descriptor
    for _ in range(2):
        go_on.release()
        has_read.acquire()
        counters.append(threads.io())
    requested = [counter[number].requested for counter in counters]
    assert requested == [requested[0], requested[0] + 10, requested[0] + 110]
    assert threading.get_native_id() not in counters[0], "a thread of Python counts its own reads"
    assert threads._opened[number].descriptor == opened, "the file of a thread is opened once"
    go_on.release()
    _until_ended(number)
    assert number not in threads.io()
    assert number not in threads._opened, "nothing of a thread that has ended stays open"


def _until_ended(number: int) -> None:
    while os.path.exists(f"/proc/self/task/{number}"):
        time.sleep(0.001)


FORKED = """
import os
from dlio_hpc.core import procfs

def calls():
    before = procfs.thread_io()
    with open("/proc/self/comm", "rb", buffering=0) as file:
        file.read(3)
        file.read(4)
    return procfs.thread_io().since(before).calls

assert calls() == 2
child = os.fork()
if not child:
    os._exit(calls() != 2)
assert os.waitpid(child, 0)[1] == 0
"""


def test_a_forked_process_counts_for_itself() -> None:
    subprocess.run([sys.executable, "-c", FORKED], check=True)
