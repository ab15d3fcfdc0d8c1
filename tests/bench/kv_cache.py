"""Reads of blocks by the engine of inference workloads, and by plain threads that read the same blocks.

Run: python -m tests.bench.kv_cache DIR [BLOCKS]
"""

import os
import shutil
import statistics
import sys
import threading
from pathlib import Path

import numpy as np

from dlio_hpc.base import units
from dlio_hpc.config.inference_keys import InferenceKeys, Lengths
from dlio_hpc.core import buffers, kv_blocks, kv_summary
from dlio_hpc.core.clock import now
from dlio_hpc.core.kv_serving import KVServing
from dlio_hpc.dataset import kv_tiers
from dlio_hpc.dataset.kv_requests import KVRequest
from dlio_hpc.dataset.kv_tiers import BlockPlace

_ROUNDS, _USERS, _TOKENS = 5, 16, 16


def _keys(slots: int) -> InferenceKeys:
    return InferenceKeys(
        users=1, time=units.Seconds(600), interval=units.Seconds(1), prompt=Lengths(mean=1), answer=Lengths(mean=1),
        block_tokens=_TOKENS, slots=slots, turns=9,
    )  # fmt: skip


def _requests(blocks: int) -> list[KVRequest]:
    """Return requests that leave blocks of each user on storage, and a request of each user that reads them."""
    own = blocks // _USERS * _TOKENS
    before = [KVRequest(-1.0, user, 0, 0, 0, own, 1) for user in range(_USERS)]
    return [*before, *(KVRequest(0.0, user, 0, 1, own + 1, 1, 1) for user in range(_USERS))]


def _round(slots: int, blocks: int) -> tuple[float, float, float]:
    """Return the MB/s of the engine and of plain threads, and the seconds of a request that no part accounts for."""
    keys = _keys(slots)
    plan = kv_tiers.plan(keys, _requests(blocks))
    files = kv_blocks.opened("kv", keys)
    serving = KVServing(keys, plan, files, 0, lambda: False)
    serving.prepare()
    served = serving.serve()
    assert served is not None
    plain = _plain([plan.places[serial] for serial in plan.prepared], keys, slots)
    files.close()
    summary = kv_summary.of_ranks(served.record.columns[None, None], served.record.histograms[None, None], keys)
    assert summary is not None
    assert summary.blocks_read == len(plan.prepared)
    parts = [one.mean for one in (summary.ttft_s, summary.queue_s, summary.load_s, summary.prefill_s) if one]
    return summary.read_MBps or 0.0, plain, parts[0] - sum(parts[1:])


def _plain(places: list[BlockPlace], keys: InferenceKeys, threads: int) -> float:
    """Return the MB/s of threads that open, read and close the files of blocks."""

    def work(own: list[BlockPlace]) -> None:
        (views,) = buffers.allocate(1, keys.block_bytes).views
        for place in own:
            file = os.open(f"kv/b{place.serial}", os.O_RDONLY | os.O_DIRECT)
            os.preadv(file, views, 0)
            os.close(file)

    workers = [threading.Thread(target=work, args=(places[number::threads],)) for number in range(threads)]
    began = now()
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return len(places) * keys.block_bytes / (now() - began) / 1e6


def main(folder: str, blocks: int) -> None:
    """Print a row for each number of slots: medians over the rounds."""
    place = Path(folder) / "bench-kv-cache"
    place.mkdir()
    os.chdir(place)
    try:
        for slots in (1, 4, 8):
            rounds = np.array([_round(slots, blocks) for _ in range(_ROUNDS)])
            engine, plain, rest_s = (statistics.median(column) for column in rounds.T)
            ratio = statistics.median(rounds[:, 0] / rounds[:, 1])
            print(
                f"{slots} slots: {engine:.0f} MB/s, plain {plain:.0f} MB/s, ratio {ratio:.2f}, "
                f"{rest_s * 1e6:.0f} us of a request are in no part"
            )
    finally:
        os.chdir("/")
        shutil.rmtree(place)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 640)
