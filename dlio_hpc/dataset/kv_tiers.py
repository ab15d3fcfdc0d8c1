"""The blocks of a KV cache in memory and on storage: which blocks a request finds, and which it writes and removes.

The plan of a rank is made before its requests arrive. It follows from the order in which they arrive and not from the
time that they take, so that every storage system has to read and write the same blocks.
"""

import functools
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from dlio_hpc.base.errors import ConfigError
from dlio_hpc.config.inference_keys import InferenceKeys
from dlio_hpc.dataset import kv_requests
from dlio_hpc.dataset.kv_requests import KVRequest

# Name of a block: user, conversation and number of the block in its conversation. Blocks of the system prompt have user
# and conversation -1. Blocks of a prompt whose trace states common beginnings have user -2 and, instead of the
# conversation, the number of the beginning that they end.
BlockName = tuple[int, int, int]
_SHARED, _TRACED = -1, -2
# Largest number of blocks of the requests of a rank. A block of a request takes about 2 us.
_MOST_BLOCKS = 20_000_000


class BlockPlace(NamedTuple):
    """A block on storage. serial: its number in the order of writing, which is never used again. slot: its part of the
    pool. sequence: number of its conversation; 0: the system prompt. part: its number in the conversation.
    """

    serial: int
    slot: int
    sequence: int
    part: int


class BlockWrite(NamedTuple):
    """A block that a request writes. token: tokens of the answer that exist when the block is full; 0: the prompt fills
    it. removed: serials of blocks that are removed before.
    """

    serial: int
    token: int
    removed: tuple[int, ...]


class ServedRequest(NamedTuple):
    """What a rank does for a request. memory_tokens, storage_tokens, computed_tokens: tokens of the history and the
    prompt that are found in memory, found on storage, and computed. reads: serials of the blocks that are read. writes:
    blocks that are written, in their order. dropped: number of blocks that memory forgets.
    """

    request: KVRequest
    memory_tokens: int
    storage_tokens: int
    computed_tokens: int
    reads: tuple[int, ...]
    writes: tuple[BlockWrite, ...]
    dropped: int


class KVPlan(NamedTuple):
    """The work of a rank in an epoch. prepared: serials of the blocks that are written before the first request
    arrives. requests: in the order in which they arrive. places: place of each serial. reads: number of reads of each
    serial.
    """

    prepared: tuple[int, ...]
    requests: tuple[ServedRequest, ...]
    places: tuple[BlockPlace, ...]
    reads: tuple[int, ...]


class BlockBytes(NamedTuple):
    """Bytes of the blocks of all ranks in an epoch. prepared: those that are written before the first request arrives.
    read, written: those that requests read and write.
    """

    prepared: int
    read: int
    written: int


class Tier:
    """Blocks of a tier, the one that was used longest ago first. most: number of blocks that it can hold; None: no
    limit.
    """

    def __init__(self, most: int | None) -> None:
        self.most = most
        self.blocks: OrderedDict[BlockName, int] = OrderedDict()

    def use(self, name: BlockName) -> None:
        """Make a block that the tier holds the one that was used last."""
        self.blocks.move_to_end(name)

    def room(self) -> list[int]:
        """Remove blocks until there is room for another one. Return their serials."""
        removed = []
        while self.most is not None and self.blocks and len(self.blocks) >= self.most:
            removed.append(self.blocks.popitem(last=False)[1])
        return removed

    def add(self, name: BlockName, serial: int) -> int:
        """Add a block as the one that was used last, or use it if the tier holds it. Return the number of blocks that
        were removed. A tier without any room stays empty.
        """
        if name in self.blocks:
            self.use(name)
            return 0
        if self.most == 0:
            return 0
        removed = len(self.room())
        self.blocks[name] = serial
        return removed


class Tiers:
    """Memory and storage of a rank."""

    def __init__(self, keys: InferenceKeys) -> None:
        self._keys = keys
        self.memory = Tier(keys.memory // keys.block_bytes)
        self.storage = Tier(None if keys.capacity is None else keys.capacity // keys.block_bytes)
        self.places: list[BlockPlace] = []
        self._sequences: dict[tuple[int, int], int] = {(_SHARED, _SHARED): 0}
        self._beginnings: dict[tuple[int, int], int] = {}  # number of a beginning, by that before it and the next part
        self._free: list[int] = []
        self._used = 0

    def serve(self, request: KVRequest) -> ServedRequest:
        """Return what a request finds, writes and removes. The blocks that are found are the longest beginning of the
        history whose blocks are all in memory or on storage, because a block is of use only with all blocks before it.
        """
        size = self._keys.block_tokens
        names = self._names(request)
        hits, reads = self._hits(names[: request.history // size])
        dropped = self._use(hits, reads)
        writes = []
        for number in range(len(hits), len(names)):
            name = names[number]
            serial = self.storage.blocks.get(name)
            if serial is None:
                writes.append(self._write(name, max(0, (number + 1) * size - request.context)))
                serial = writes[-1].serial
            else:
                self.storage.use(name)
            dropped += self.memory.add(name, serial)
        served = len(reads) * size
        known = len(hits) * size
        return ServedRequest(
            request, known - served, served, request.context - known, tuple(reads.values()), tuple(writes), dropped
        )

    def _names(self, request: KVRequest) -> list[BlockName]:
        """Return the names of the full blocks that exist after the answer."""
        size = self._keys.block_tokens
        traced = self._traced(request) if request.prefixes else []
        shared = self._keys.system_prompt // size
        first = [(_SHARED, _SHARED, number) for number in range(min(shared, request.tokens // size))] or traced
        own = range(len(first), request.tokens // size)
        return [*first, *((request.user, request.conversation, number) for number in own)]

    def _traced(self, request: KVRequest) -> list[BlockName]:
        """Return the names of the full blocks of a prompt whose trace states common beginnings. Blocks are the same
        only if all blocks before them are.
        """
        assert self._keys.trace is not None
        assert self._keys.trace.scan is not None
        size, parts = self._keys.block_tokens, self._keys.trace.scan.prefix_tokens // self._keys.block_tokens
        names: list[BlockName] = []
        beginning = 0
        for number in request.prefixes:
            beginning = self._beginnings.setdefault((beginning, number), len(self._beginnings) + 1)
            names += [(_TRACED, beginning, part) for part in range(parts)]
        return names[: request.context // size]

    def _hits(self, names: Sequence[BlockName]) -> tuple[list[BlockName], dict[BlockName, int]]:
        """Return the names of the blocks that are found, and the serials of those that must be read from storage."""
        hits: list[BlockName] = []
        reads: dict[BlockName, int] = {}
        for name in names:
            if name not in self.memory.blocks:
                serial = self.storage.blocks.get(name)
                if serial is None:
                    break
                reads[name] = serial
            hits.append(name)
        return hits, reads

    def _use(self, hits: Iterable[BlockName], reads: dict[BlockName, int]) -> int:
        """Note that blocks were used in the tier that has them, the last ones first, so that a conversation loses its
        end before its beginning. Blocks that are read come into memory. Return the number of blocks that memory
        forgets.
        """
        dropped = 0
        for name in reversed(list(hits)):
            if name in reads:
                self.storage.use(name)
                dropped += self.memory.add(name, reads[name])
            elif name in self.memory.blocks:
                self.memory.use(name)
        return dropped

    def _write(self, name: BlockName, token: int) -> BlockWrite:
        """Write a block to storage. If storage is full, make room first."""
        removed = self.storage.room()
        self._free += [self.places[serial].slot for serial in removed]
        if not self._free:
            self._free.append(self._used)
            self._used += 1
        serial, (user, conversation, part) = len(self.places), name
        sequence = self._sequences.setdefault((user, conversation), len(self._sequences))
        self.places.append(BlockPlace(serial, self._free.pop(), sequence, part))
        self.storage.blocks[name] = serial
        return BlockWrite(serial, token, tuple(removed))


def plan(keys: InferenceKeys, requests: Sequence[KVRequest]) -> KVPlan:
    """Return the plan of a rank for its requests, which are in the order in which they arrive. Raise ConfigError if it
    would take too long.
    """
    require(keys, requests)
    tiers, made = Tiers(keys), []
    prepared: tuple[int, ...] | None = None
    for request in requests:
        if request.arrival >= 0 and prepared is None:
            prepared = _stored(tiers)
        served = tiers.serve(request)
        if request.arrival >= 0:
            made.append(served)
    if prepared is None:
        prepared = _stored(tiers)
    reads = [0] * len(tiers.places)
    for one in made:
        for serial in one.reads:
            reads[serial] += 1
    return KVPlan(prepared, tuple(made), tuple(tiers.places), tuple(reads))


def require(keys: InferenceKeys, requests: Sequence[KVRequest]) -> None:
    """Raise ConfigError if the plan of these requests would take too long."""
    blocks = sum(request.tokens // keys.block_tokens for request in requests)
    if blocks > _MOST_BLOCKS:
        raise ConfigError(
            f"inference: the {len(requests):,} requests of a rank, with those before the epoch, have {blocks:,} blocks "
            f"with their histories, and at most {_MOST_BLOCKS:,} can be planned; lower turns, users or time, raise "
            "block_tokens, or use more ranks"
        )


@functools.lru_cache(64)
def expected(keys: InferenceKeys, ranks: int) -> BlockBytes:
    """Return the bytes of an epoch if all requests are served: those of the first rank, times the number of ranks."""
    own = plan(keys, kv_requests.of_rank(keys, ranks, 0))
    counts = len(own.prepared), sum(own.reads), sum(len(one.writes) for one in own.requests)
    return BlockBytes(*(count * keys.block_bytes * ranks for count in counts))


def _stored(tiers: Tiers) -> tuple[int, ...]:
    """Return the serials of the blocks on storage, in ascending order."""
    return tuple(sorted(tiers.storage.blocks.values()))
