"""The keys of a workload's `inference`: requests to language models, whose KV caches are kept on storage.

A transformer computes two vectors, the key and the value, for each token, each layer and each KV head. An engine keeps
them in blocks of some tokens, so that later requests that begin with the same tokens need not compute them again.
"""

import os
from collections.abc import Iterator
from typing import Annotated, Literal

from msgspec import Meta, Struct

from dlio_hpc.base import units
from dlio_hpc.base.serialization import refuse
from dlio_hpc.config.model_states import ITEM_BYTES, Precision
from dlio_hpc.config.reader_keys import BLOCK, LARGEST_REQUEST

# Largest number of tokens of a prompt, an answer or a system prompt.
MOST_TOKENS = 10**7
# Largest number of requests that the users of a job make before and in an epoch, as a mean. The plan of a rank keeps
# its requests in memory.
MOST_REQUESTS = 10**6
_MOST_SLOTS = 1024
# Least time from the first to the last request of a trace, as a share of the time of an epoch.
_LEAST_TRACED = 0.9

Tokens = Annotated[int, Meta(ge=0, le=MOST_TOKENS)]
CacheModelName = Literal["llama3_8b", "llama3_70b"]


class CacheModel(Struct, frozen=True, forbid_unknown_fields=True):
    """Architecture of a model, as far as it determines the size of a KV cache. A token has 2 x layers x kv_heads x
    head_dim numbers: a key and a value.
    """

    layers: units.Positive
    """Number of transformer layers. Example: 32"""
    kv_heads: units.Positive
    """Number of heads of keys and values. Example: 8"""
    head_dim: units.Positive
    """Numbers in the key, or the value, of a head. Example: 128"""
    precision: Precision = "bf16"
    """Number format of keys and values."""

    @property
    def token_bytes(self) -> int:
        """Bytes that the KV cache has for each token."""
        return 2 * self.layers * self.kv_heads * self.head_dim * ITEM_BYTES[self.precision]


# num_hidden_layers, num_key_value_heads and head_dim (hidden_size / num_attention_heads) of config.json of
# meta-llama/Llama-3.1-8B and meta-llama/Llama-3.1-70B on Hugging Face; torch_dtype is bfloat16.
CACHE_MODELS: dict[CacheModelName, CacheModel] = {
    "llama3_8b": CacheModel(32, 8, 128),
    "llama3_70b": CacheModel(80, 8, 128),
}


class Lengths(Struct, frozen=True, forbid_unknown_fields=True):
    """Numbers of tokens. With `mean`, they have a lognormal distribution with this mean and `stdev`; values below `min`
    or above `max` are replaced by these limits. Without `mean`, all numbers from `min` to `max` are equally likely.
    """

    mean: Tokens | None = None
    """Mean number of tokens before the limits apply; null: the numbers from min to max are equally likely. Example:
    500
    """
    stdev: Tokens = 0
    """Standard deviation of the number of tokens; 0: all numbers are `mean`. Example: 300"""
    min: Tokens = 1
    """Smallest number of tokens. Example: 16"""
    max: Tokens = MOST_TOKENS
    """Largest number of tokens. Example: 4096"""

    def __post_init__(self) -> None:
        refuse(
            (self.min < 1, "min: a prompt and an answer have at least one token; set min to 1 or more"),
            (self.max < self.min, f"max: found {self.max}, which is below min ({self.min}); raise max or lower min"),
            (
                self.mean is not None and not self.min <= self.mean <= self.max,
                f"mean: found {self.mean}, which is not between min ({self.min}) and max ({self.max})",
            ),
            (self.mean is None and self.stdev > 0, "stdev needs mean; set mean, or leave stdev out"),
            (
                self.mean is None and self.max == MOST_TOKENS,
                "set mean, or set max, such as {min: 512, max: 4096}",
            ),
        )

    @property
    def expected(self) -> float:
        """Mean number of tokens before the limits apply."""
        return float(self.mean) if self.mean is not None else (self.min + self.max) / 2


class TraceScan(Struct, frozen=True, forbid_unknown_fields=True):
    """Results of the scan of a trace. dlio-hpc writes them to plans; they cannot be set."""

    digest: str
    """Digest of the content of the file. Example: 03c25a44c247"""
    requests: units.Positive
    """Number of requests. Example: 8819"""
    prompt_mean: float
    """Mean number of tokens of a prompt. Example: 2047.8"""
    answer_mean: float
    """Mean number of tokens of an answer. Example: 211.1"""
    end: units.Seconds | None = None
    """Time from the first to the last request; null: the file has no times of arrival. Example: 1 h"""
    prefix_tokens: units.Natural = 0
    """Tokens for which each number of the column hash_ids stands; 0: the file has no such column. Example: 512"""


class RequestTrace(Struct, frozen=True, forbid_unknown_fields=True):
    """Requests that were recorded elsewhere: a CSV file or a file of JSON lines with the columns prompt and answer (the
    tokens of each request) and, if there are times, arrival (in seconds). The columns of the traces of Azure, BurstGPT,
    Qwen-Bailian and Mooncake are known, too.
    """

    file: str
    """Absolute path of the file, which all nodes can read. Example: /home/me/requests.csv"""
    speed: Annotated[float, Meta(gt=0, le=10**6)] = 1.0
    """Factor by which requests arrive faster than in the trace. Example: 2"""
    scan: TraceScan | None = None
    """Results of the scan. dlio-hpc sets this key; leave it null."""

    def __post_init__(self) -> None:
        if not os.path.isabs(self.file) or "\0" in self.file:
            raise ValueError(f"file: {self.file!r} is not an absolute path, such as /home/me/requests.csv")

    @property
    def has_arrivals(self) -> bool:
        """Whether the file was scanned and has times of arrival."""
        return self.scan is not None and self.scan.end is not None

    @property
    def has_prefixes(self) -> bool:
        """Whether the file was scanned and states which prompts have the same beginning."""
        return self.scan is not None and self.scan.prefix_tokens > 0


class UserSearch(Struct, frozen=True, forbid_unknown_fields=True):
    """Search for the largest number of users in time: 99 % of the requests are served with a first token within
    `target`, and no queue grows. Each epoch tries one number: first `users`, then twice as many until they
    are too many, or half as many until they are in time, and then numbers between. If the two limits differ by at most
    10 %, the epochs that are left try the largest number in time again. The figures of the summary are those of this
    number.
    """

    most: Annotated[int, Meta(ge=1, le=10**6)]
    """Largest number of users to try, for which the space must suffice. Example: 1024"""


class InferenceKeys(Struct, frozen=True, forbid_unknown_fields=True):
    """Requests to a language model whose KV cache is kept on storage. Each rank stands for one serving engine with
    users, a memory and a storage space of its own. Computation is a timed wait. An epoch serves the requests of `time`;
    train.epochs repeats the same requests, each time in a new folder.
    """

    users: Annotated[int, Meta(ge=1, le=10**6)]
    """Number of users of the whole job, which are divided evenly among the ranks. A user has one conversation at a
    time. Example: 64
    """
    time: units.Seconds
    """Time in which requests arrive in an epoch. A request that has waited longer than `target` after it is not served.
    Example: 60 s
    """
    prompt: Lengths | None = None
    """Tokens that a user adds in each request; needed without `trace`. Example: {mean: 500, stdev: 300, max: 4096}"""
    answer: Lengths | None = None
    """Tokens of each answer; needed without `trace`. Example: {mean: 200}"""
    interval: units.Seconds | None = None
    """Mean time from the end of an answer to the next request of the user; the times have an exponential distribution.
    The end is that of an answer whose blocks take no time to read and write. Requests therefore arrive at the same
    times on any storage, and the time that they wait is part of their time to the first token. It is
    needed without the times of a trace. Example: 30 s
    """
    trace: RequestTrace | None = None
    """Recorded requests. Their numbers of tokens replace `prompt` and `answer`. If the trace has times of arrival, they
    replace `interval`: the requests go to the users in turn, and those after `time` are left out. Without times, each
    request has the tokens of a random line. Example: {file: /home/me/requests.csv}
    """
    model: CacheModelName | CacheModel = "llama3_8b"
    """Model, which determines the bytes of a token: 131,072 for llama3_8b, 327,680 for llama3_70b. Example: llama3_70b
    """
    block_tokens: units.Positive = 256
    """Tokens of a block. Only full blocks are kept. vLLM has 16 by default, LMCache 256. Example: 16"""
    system_prompt: Tokens = 0
    """Tokens of a prompt that precedes each conversation, and whose blocks all users of a rank share. Example: 1000"""
    turns: units.Positive = 1
    """Requests of a conversation. A request begins with all prompts and answers before it. After the last turn, the
    user begins a new conversation. Example: 5
    """
    warm: bool = True
    """Begin in the middle of conversations: each user has made 0 to turns - 1 requests before the epoch. Their blocks
    are written before the first request arrives, and this time is not measured.
    """
    memory: units.Size = units.Size(0)
    """Size of each rank's memory for blocks, which is asked before storage. Blocks in memory are counted and not
    copied; the rank does not allocate this memory. Blocks are written to storage when they are computed, as in LMCache,
    and not when memory is full. Example: 4 GiB
    """
    capacity: units.Size | None = None
    """Storage space of each rank. If it is full, the block that was used longest ago is removed; null: no limit.
    Example: 100 GiB
    """
    file_layout: Literal["block", "sequence", "pool", "lmcache", "lmcache_fs"] = "block"
    """block: a file for each block; sequence: a file for each conversation, and one for the system prompt; pool: a file
    for each rank, which stays open and whose parts are used again. lmcache: a file for each block, with the name, the
    bytes and the system calls of LMCache's local disk backend; lmcache_fs: those of its file system adapter (L2 adapter
    fs). Files of blocks and sequences are opened and closed for each block that is read or written.
    """
    direct: bool = True
    """Read and write with O_DIRECT, which bypasses the page cache."""
    fsync: bool = False
    """Call fsync after each block that is written."""
    verify: bool = False
    """Compare each block that is read with what was written. The comparison is not part of the latency of a block, but
    of the time to the first token.
    """
    slots: Annotated[int, Meta(ge=1, le=_MOST_SLOTS)] = 8
    """Number of requests that a rank serves at the same time, each by a thread that has memory for one block. A request
    reads its blocks one after the other. Example: 16
    """
    prefill: units.Seconds = units.Seconds(0)
    """Time to compute a token of a prompt that is neither in memory nor on storage. Example: 100 us"""
    decode: units.Seconds = units.Seconds(0)
    """Time to compute a token of an answer. Example: 20 ms"""
    target: units.Seconds = units.Seconds(2)
    """Time to the first token above which a request is late. Example: 500 ms"""
    seed: units.Natural = 0
    """Seed of the random times and lengths."""
    search: UserSearch | None = None
    """Search for the largest number of users in time; it needs train.epochs, such as 8. null: all epochs have `users`.
    Example: {most: 1024}
    """

    def __post_init__(self) -> None:
        size = self.block_bytes
        refuse(
            (self.target <= 0, "target: set the time to the first token that users accept, such as 2 s"),
            (self.time <= 0, "time: requests need time to arrive; set it, such as 60 s"),
            *self._faults_of_trace(),
            (
                self.interval is not None and self.interval <= 0,
                "interval: set the mean time from an answer to the next request, such as 30 s",
            ),
            (
                bool(self.interval) and self._requests > MOST_REQUESTS,
                f"users x (time / interval + turns before the epoch) is about {self._requests:,.0f} requests, and at "
                f"most {MOST_REQUESTS:,} are possible; lower users, time or turns, or raise interval",
            ),
            (
                size > LARGEST_REQUEST,
                f"block_tokens: a block has {units.format_size(size)}, and at most "
                f"{units.format_size(LARGEST_REQUEST)} are possible; lower block_tokens",
            ),
            (
                self.direct and size % BLOCK > 0,
                f"direct=true needs blocks of a multiple of {BLOCK} bytes, and a block has {size:,}; change "
                "block_tokens, or set direct=false",
            ),
            (
                self.capacity is not None and self.capacity < size,
                f"capacity: found {units.format_size(self.capacity or 0)}, which is less than a block "
                f"({units.format_size(size)}); raise capacity, or lower block_tokens",
            ),
            (
                self.search is not None and self.users > self.search.most,
                f"search.most: found {0 if self.search is None else self.search.most}, which is less than users "
                f"({self.users}), the number of the first try; raise most, or lower users",
            ),
            (
                self.file_layout == "sequence" and self.capacity is not None,
                "file_layout=sequence cannot be combined with capacity, because the space of a block is freed only "
                "with its file; set capacity=null, or file_layout=block",
            ),
            (
                self.fewest_blocks_of_turns < 1,
                f"block_tokens: a conversation has about {self._longest:,.0f} tokens, which fill no block of "
                f"{self.block_tokens:,}; lower block_tokens",
            ),
        )

    def _faults_of_trace(self) -> Iterator[tuple[bool, str]]:
        """Yield what cannot be: whether a trace, or its scan, does not fit the other keys, and what to do."""
        trace = self.trace
        if trace is None:
            yield self.prompt is None, "prompt: set the tokens of a request, such as {mean: 500}, or set trace"
            yield self.answer is None, "answer: set the tokens of an answer, such as {mean: 200}, or set trace"
            yield self.interval is None, "interval: set the mean time from an answer to the next request, such as 30 s"
            return
        yield (
            self.prompt is not None or self.answer is not None,
            "trace: it has the tokens of prompts and answers; set prompt=null and answer=null",
        )
        if trace.scan is None:
            return
        end = None if trace.scan.end is None else trace.scan.end / trace.speed
        yield (
            end is None and self.interval is None,
            f"interval: {trace.file} has no times of arrival; set the mean time from an answer to the next request, "
            "such as 30 s",
        )
        yield end is not None and self.interval is not None, "trace: it has the times of requests; set interval=null"
        yield (
            end is not None and self.search is not None,
            "search: the times of a trace do not depend on users; set search=null, and vary trace.speed",
        )
        yield (
            end is not None and end < _LEAST_TRACED * self.time,
            f"time: the requests of the trace end after {units.format_seconds(end or 0.0)}; set time to at most that",
        )
        size = trace.scan.prefix_tokens
        yield (
            bool(size) and (self.turns > 1 or self.system_prompt > 0),
            "trace: it states which prompts begin with the same tokens; set turns=1 and system_prompt=0",
        )
        yield (
            bool(size) and self.file_layout == "sequence",
            "file_layout=sequence: prompts of the trace share beginnings; set file_layout=block or pool",
        )
        yield (
            bool(size) and size % self.block_tokens > 0,
            f"block_tokens: the trace states common beginnings in steps of {size} tokens; set block_tokens to a "
            "divisor of it",
        )

    @property
    def architecture(self) -> CacheModel:
        """The model, with named models replaced by their architecture."""
        return CACHE_MODELS[self.model] if isinstance(self.model, str) else self.model

    @property
    def token_bytes(self) -> int:
        """Bytes of a token."""
        return self.architecture.token_bytes

    @property
    def block_bytes(self) -> int:
        """Bytes of a block."""
        return self.token_bytes * self.block_tokens

    @property
    def most_users(self) -> int:
        """The largest number of users that an epoch may have."""
        return self.users if self.search is None else max(self.users, self.search.most)

    @property
    def busy_slots(self) -> float | None:
        """Mean number of slots of all ranks that hold a request while it is computed, if no storage delays it; None for
        the requests of a trace.
        """
        if self.prompt is None or self.answer is None or not self.interval:
            return None
        computing = self.prompt.expected * self.prefill + self.answer.expected * self.decode
        return self.users * computing / (self.interval + computing)

    @property
    def _requests(self) -> float:
        """Mean number of requests that all users make before and in an epoch, without a trace that has times."""
        return self.most_users * self.requests_of_a_user

    @property
    def requests_of_a_user(self) -> float:
        """Mean number of requests of a user before and in an epoch; 0 if a trace has their times."""
        if not self.interval:
            return 0.0
        return self.time / self.interval + ((self.turns - 1) / 2 if self.warm else 0.0)

    @property
    def _longest(self) -> float:
        """Mean number of tokens at the end of a conversation; as if a trace that is not scanned had blocks."""
        if self.prompt is not None and self.answer is not None:
            request = self.prompt.expected + self.answer.expected
        elif self.trace is not None and self.trace.scan is not None:
            request = self.trace.scan.prompt_mean + self.trace.scan.answer_mean
        else:
            request = float(self.block_tokens)
        return self.system_prompt + self.turns * request

    @property
    def fewest_blocks_of_turns(self) -> int:
        """Full blocks of a conversation of mean lengths at its end."""
        return int(self._longest // self.block_tokens)
