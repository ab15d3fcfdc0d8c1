"""The requests of an inference workload: when they arrive, and how many tokens they have. They follow from the keys,
the trace and the number of a user alone, so that they are the same on any number of ranks and whatever the storage
does.
"""

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from dlio_hpc.config.inference_keys import InferenceKeys, Lengths, RequestTrace
from dlio_hpc.dataset import request_trace
from dlio_hpc.dataset.rank_shares import share

if TYPE_CHECKING:
    from numpy.random import Generator


class KVRequest(NamedTuple):
    """A request. arrival: time after the start of the epoch at which it arrives; negative if it precedes the epoch.
    user: number of the user. conversation: number of the conversation of the user, from 0 on. turn: number of the
    request in its conversation, from 0 on. history: tokens that precede the prompt, with those of the system prompt.
    prompt, answer: tokens of the prompt and of the answer. prefixes: numbers that stand for the beginnings of the
    history, if a trace states which prompts have the same beginning. All tokens of the prompt of the trace are then
    tokens of the history.
    """

    arrival: float
    user: int
    conversation: int
    turn: int
    history: int
    prompt: int
    answer: int
    prefixes: tuple[int, ...] = ()

    @property
    def context(self) -> int:
        """Tokens of the history and the prompt, which are known before the answer begins."""
        return self.history + self.prompt

    @property
    def tokens(self) -> int:
        """Tokens of the history, the prompt and the answer."""
        return self.context + self.answer


def of_rank(keys: InferenceKeys, ranks: int, rank: int) -> list[KVRequest]:
    """Return the requests of the users of a rank in the order in which they arrive. Those that precede the epoch come
    first, turn by turn.
    """
    requests = [request for user in range(*share(keys.users, ranks, rank)) for request in of_user(keys, user)]
    return sorted(requests, key=lambda one: (one.arrival, one.turn, one.user))


def of_user(keys: InferenceKeys, user: int) -> Iterator[KVRequest]:
    """Yield the requests of a user in their order. Requests that precede the epoch have an arrival of -1."""
    if keys.trace is not None and keys.trace.has_arrivals:
        yield from _replayed(keys, keys.trace, user)
        return
    assert keys.interval is not None
    import numpy as np

    random = np.random.default_rng((keys.seed, user))
    earlier = int(random.integers(keys.turns)) if keys.warm else 0
    arrival, turn, conversation, history = 0.0, 0, 0, keys.system_prompt
    for number in range(_most(keys)):
        is_earlier = number < earlier
        if not is_earlier:
            arrival += float(random.exponential(keys.interval))
            if arrival >= keys.time:
                return
        prompt, answer = _tokens(keys, random)
        yield KVRequest(-1.0 if is_earlier else arrival, user, conversation, turn, history, prompt, answer)
        if not is_earlier:
            arrival += prompt * keys.prefill + answer * keys.decode
        turn, history = turn + 1, history + prompt + answer
        if turn == keys.turns:
            turn, conversation, history = 0, conversation + 1, keys.system_prompt


def _replayed(keys: InferenceKeys, trace: RequestTrace, user: int) -> Iterator[KVRequest]:
    """Yield the requests of a trace with times that go to a user."""
    traced = request_trace.requests(trace)
    assert traced.arrivals is not None
    history = keys.system_prompt
    for number, place in enumerate(range(user, len(traced.prompts), keys.users)):
        arrival = float(traced.arrivals[place]) / trace.speed
        if arrival >= keys.time:
            return
        conversation, turn = divmod(number, keys.turns)
        history = history if turn else keys.system_prompt
        prompt, answer = int(traced.prompts[place]), int(traced.answers[place])
        if traced.prefixes is None:
            yield KVRequest(arrival, user, conversation, turn, history, prompt, answer)
        else:
            yield KVRequest(arrival, user, conversation, turn, prompt, 0, answer, traced.prefixes[place])
        history += prompt + answer


def _most(keys: InferenceKeys) -> int:
    """Return a number of requests that a user never reaches: 20 standard deviations above the mean."""
    assert keys.interval is not None
    mean = keys.time / keys.interval
    return keys.turns + math.ceil(mean + 20 * math.sqrt(mean) + 20)


def _tokens(keys: InferenceKeys, random: "Generator") -> tuple[int, int]:
    """Return the tokens of a prompt and of its answer."""
    if keys.trace is not None:
        traced = request_trace.requests(keys.trace)
        place = int(random.integers(len(traced.prompts)))
        return int(traced.prompts[place]), int(traced.answers[place])
    assert keys.prompt is not None
    assert keys.answer is not None
    return _drawn(keys.prompt, random), _drawn(keys.answer, random)


def _drawn(lengths: Lengths, random: "Generator") -> int:
    """Return a number of tokens."""
    if lengths.mean is None:
        return int(random.integers(lengths.min, lengths.max + 1))
    if not lengths.stdev:
        return lengths.mean
    spread = math.log1p((lengths.stdev / lengths.mean) ** 2)
    value = random.lognormal(math.log(lengths.mean) - spread / 2, math.sqrt(spread))
    return int(min(max(round(float(value)), lengths.min), lengths.max))


def most_bytes(keys: InferenceKeys, ranks: int) -> int:
    """Return an upper limit of the bytes that all ranks together store in an epoch: all full blocks of all
    conversations, or the capacity of the ranks if it is smaller.
    """
    whole = keys.system_prompt // keys.block_tokens
    blocks = whole * ranks
    for user in range(keys.most_users):
        longest: dict[int, int] = {}
        for request in of_user(keys, user):
            longest[request.conversation] = request.tokens
        blocks += sum(tokens // keys.block_tokens - whole for tokens in longest.values())
        if keys.capacity is not None and blocks * keys.block_bytes >= keys.capacity * ranks:
            return int(keys.capacity) * ranks
    return blocks * keys.block_bytes
