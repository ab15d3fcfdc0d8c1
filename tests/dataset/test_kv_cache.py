"""Requests of inference workloads, and the blocks that they find, write and remove."""

import collections
import statistics
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlio_hpc.base import units
from dlio_hpc.base.errors import ConfigError
from dlio_hpc.config.inference_keys import CACHE_MODELS, CacheModel, InferenceKeys, Lengths
from dlio_hpc.dataset import kv_requests, kv_search, kv_tiers
from dlio_hpc.dataset.kv_requests import KVRequest
from dlio_hpc.dataset.kv_search import UserCount
from dlio_hpc.dataset.kv_tiers import KVPlan

# num_hidden_layers, num_key_value_heads and hidden_size / num_attention_heads of config.json of meta-llama/Llama-3.1-8B
# and meta-llama/Llama-3.1-70B on Hugging Face, and bytes of a token in their torch_dtype, bfloat16.
_PUBLISHED = {"llama3_8b": (32, 8, 128, 131_072), "llama3_70b": (80, 8, 128, 327_680)}
_TINY = CacheModel(1, 1, 2, "fp8")  # 4 bytes a token


def _keys(**given: Any) -> InferenceKeys:
    usual: dict[str, Any] = {
        "users": 4, "time": units.Seconds(10), "interval": units.Seconds(1), "prompt": Lengths(mean=10, stdev=5),
        "answer": Lengths(min=1, max=9), "model": _TINY, "block_tokens": 4, "direct": False, "turns": 3,
    }  # fmt: skip
    return InferenceKeys(**(usual | given))


@pytest.mark.parametrize("name", CACHE_MODELS)
def test_bytes_of_a_token_are_those_of_the_published_models(name: Any) -> None:
    layers, heads, size, token = _PUBLISHED[name]
    assert CACHE_MODELS[name] == CacheModel(layers, heads, size)
    assert _keys(model=name).token_bytes == token
    assert _keys(model=name, block_tokens=16).block_bytes == 16 * token


@pytest.mark.parametrize(("precision", "token"), [("fp32", 16), ("bf16", 8), ("fp16", 8), ("fp8", 4)])
def test_bytes_of_a_token_follow_the_precision(precision: Any, token: int) -> None:
    assert CacheModel(1, 1, 2, precision).token_bytes == token


@pytest.mark.parametrize("ranks", [1, 3, 5])
def test_requests_do_not_depend_on_the_number_of_ranks(ranks: int) -> None:
    keys = _keys()
    parts = [request for rank in range(ranks) for request in kv_requests.of_rank(keys, ranks, rank)]
    assert sorted(parts) == sorted(kv_requests.of_rank(keys, 1, 0))


def test_requests_arrive_at_the_asked_rate_with_the_asked_lengths() -> None:
    keys = _keys(users=400, prompt=Lengths(mean=500, stdev=300, max=10_000), answer=Lengths(min=10, max=20), warm=False)
    requests = kv_requests.of_rank(keys, 1, 0)
    assert len(requests) == pytest.approx(400 * 10, rel=0.05)
    assert [one.arrival for one in requests] == sorted(one.arrival for one in requests)
    assert all(0 < one.arrival < 10 and 10 <= one.answer <= 20 for one in requests)
    assert statistics.mean(one.prompt for one in requests) == pytest.approx(500, rel=0.05)
    assert statistics.stdev(one.prompt for one in requests) == pytest.approx(300, rel=0.1)
    assert statistics.mean(one.answer for one in requests) == pytest.approx(15, rel=0.02)


def test_a_user_waits_for_the_computation_of_an_answer() -> None:
    """The mean time between two requests is the interval and the computation of the prompt and the answer."""
    keys = _keys(
        users=300, time=units.Seconds(100), prompt=Lengths(mean=100), answer=Lengths(mean=50),
        prefill=units.Seconds(0.01), decode=units.Seconds(0.04),
    )  # fmt: skip
    assert len([one for one in kv_requests.of_rank(keys, 1, 0) if one.arrival >= 0]) == pytest.approx(
        300 * 100 / (1 + 1 + 2), rel=0.05
    )


@pytest.mark.parametrize("is_warm", [True, False])
def test_a_request_has_the_turns_before_it_as_history(is_warm: bool) -> None:
    keys = _keys(system_prompt=7, warm=is_warm)
    earlier = 0
    for user in range(keys.users):
        last: KVRequest | None = None
        for request in kv_requests.of_user(keys, user):
            is_first = last is None or request.conversation > last.conversation
            assert request.history == (7 if is_first or last is None else last.tokens)
            assert request.turn == (0 if is_first or last is None else last.turn + 1)
            assert request.turn < keys.turns
            earlier += request.arrival < 0
            last = request
    assert bool(earlier) == is_warm


_REQUESTS = st.lists(
    st.tuples(st.integers(0, 3), st.booleans(), st.integers(1, 30), st.integers(1, 12)), min_size=1, max_size=30
)


def _drawn(keys: InferenceKeys, drawn: list[tuple[int, bool, int, int]]) -> list[KVRequest]:
    """Return requests of some users. drawn: user, whether a new conversation begins, prompt and answer."""
    history = collections.defaultdict(lambda: keys.system_prompt)
    conversation: collections.Counter[int] = collections.Counter()
    made = []
    for number, (user, is_new, prompt, answer) in enumerate(drawn):
        if is_new:
            conversation[user] += 1
            history[user] = keys.system_prompt
        made.append(KVRequest(float(number), user, conversation[user], 0, history[user], prompt, answer))
        history[user] += prompt + answer
    return made


class _Simple:
    """The same tiers as lists of names, the block that was used longest ago first."""

    def __init__(self, memory: int, storage: int | None) -> None:
        self.limits = {"memory": memory, "storage": 10**9 if storage is None else storage}
        self.lists: dict[str, list[Any]] = {"memory": [], "storage": []}

    def use(self, tier: str, name: Any) -> list[Any]:
        blocks = self.lists[tier]
        if name in blocks:
            blocks.remove(name)
        blocks.append(name)
        over = len(blocks) - self.limits[tier]
        removed, self.lists[tier] = blocks[: max(0, over)], blocks[max(0, over) :]
        return removed


@given(
    drawn=_REQUESTS, memory=st.integers(0, 6), storage=st.none() | st.integers(1, 12), system=st.integers(0, 9),
)  # fmt: skip
@settings(max_examples=300, deadline=None)
def test_tiers_behave_as_plain_lists(
    drawn: list[tuple[int, bool, int, int]], memory: int, storage: int | None, system: int
) -> None:
    keys = _keys(
        system_prompt=system, memory=units.Size(memory * 16),
        capacity=None if storage is None else units.Size(storage * 16),
    )  # fmt: skip
    tiers, simple = kv_tiers.Tiers(keys), _Simple(memory, storage)
    serials: dict[int, Any] = {}
    for request in _drawn(keys, drawn):
        served = tiers.serve(request)
        names = [
            (-1, -1, number) if (number + 1) * 4 <= system else (request.user, request.conversation, number)
            for number in range(request.tokens // 4)
        ]
        hits = []
        for name in names[: request.history // 4]:
            tier = next((tier for tier in ("memory", "storage") if name in simple.lists[tier]), None)
            if tier is None:
                break
            hits.append((name, tier))
        assert served.memory_tokens == 4 * sum(tier == "memory" for _, tier in hits)
        assert [serials[serial] for serial in served.reads] == [name for name, tier in hits if tier == "storage"]
        assert served.memory_tokens + served.storage_tokens + served.computed_tokens == request.context
        dropped = 0
        for name, tier in reversed(hits):
            if tier == "storage":
                simple.use("storage", name)
                dropped += len(set(simple.use("memory", name)) - {name})
            elif name in simple.lists["memory"]:
                simple.use("memory", name)
        writes = list(served.writes)
        for name in names[len(hits) :]:
            if name in simple.lists["storage"]:
                simple.use("storage", name)
            else:
                write = writes.pop(0)
                assert [serials[serial] for serial in write.removed] == simple.use("storage", name)
                assert write.token == max(0, (names.index(name) + 1) * 4 - request.context) <= request.answer
                serials[write.serial] = name
            dropped += len(set(simple.use("memory", name)) - {name})
        assert not writes
        assert served.dropped == dropped
        assert list(tiers.memory.blocks) == simple.lists["memory"]
        assert list(tiers.storage.blocks) == simple.lists["storage"]


@given(drawn=_REQUESTS, storage=st.none() | st.integers(1, 12))
@settings(max_examples=100, deadline=None)
def test_no_two_blocks_have_the_same_part_of_the_pool(
    drawn: list[tuple[int, bool, int, int]], storage: int | None
) -> None:
    keys = _keys(capacity=None if storage is None else units.Size(storage * 16))
    plan = kv_tiers.plan(keys, _drawn(keys, drawn))
    assert plan.reads == tuple(
        sum(one.reads.count(serial) for one in plan.requests) for serial in range(len(plan.places))
    )
    held: dict[int, int] = {}
    for one in plan.requests:
        assert all(held[plan.places[serial].slot] == serial for serial in one.reads)
        for write in one.writes:
            for serial in write.removed:
                assert held.pop(plan.places[serial].slot) == serial
            place = plan.places[write.serial]
            assert place.serial == write.serial
            assert place.slot not in held
            held[place.slot] = write.serial
        assert storage is None or len(held) <= storage
    parts = [(place.sequence, place.part) for place in plan.places]
    assert storage is not None or len(set(parts)) == len(parts)
    assert storage is None or max((place.slot for place in plan.places), default=0) < storage


def test_blocks_of_earlier_turns_are_prepared_and_then_read() -> None:
    plan = kv_tiers.plan(_keys(), kv_requests.of_rank(_keys(), 1, 0))
    prepared = set(plan.prepared)
    written = {write.serial for one in plan.requests for write in one.writes}
    assert prepared
    assert not prepared & written
    assert any(prepared & set(one.reads) for one in plan.requests)
    assert all(one.request.arrival >= 0 for one in plan.requests)
    cold: KVPlan = kv_tiers.plan(_keys(warm=False), kv_requests.of_rank(_keys(warm=False), 1, 0))
    assert not cold.prepared


@given(first=st.integers(1, 500), most=st.integers(500, 2000), limit=st.integers(0, 2500))
def test_a_search_comes_within_a_tenth_of_the_limit(first: int, most: int, limit: int) -> None:
    tries: list[UserCount] = []
    for _ in range(24):
        users = kv_search.following(first, most, tries)
        assert 1 <= users <= most
        tries.append(UserCount(users, users <= limit))
    low, high = kv_search.limits(tries)
    assert low <= limit
    if high is None:
        assert low == most
    else:
        assert limit < high
        assert high - low <= max(1, 0.1 * high)
        assert kv_search.following(first, most, tries) == max(1, low)


def test_a_number_that_fails_once_is_too_large() -> None:
    tries = [UserCount(4, True), UserCount(8, True), UserCount(16, False), UserCount(8, False)]
    assert kv_search.limits(tries) == (4, 8)
    assert kv_search.following(4, 99, tries) == 6


@pytest.mark.parametrize("capacity", [None, 800])
def test_the_space_that_is_asked_for_suffices(capacity: int | None) -> None:
    keys = _keys(system_prompt=9, capacity=None if capacity is None else units.Size(capacity))
    for ranks in (1, 3):
        plans = [kv_tiers.plan(keys, kv_requests.of_rank(keys, ranks, rank)) for rank in range(ranks)]
        needed = sum(len({place.slot for place in plan.places}) for plan in plans) * keys.block_bytes
        assert needed <= kv_requests.most_bytes(keys, ranks) <= (capacity or 10**9) * ranks


def test_a_plan_that_would_take_minutes_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    keys = _keys()
    requests = kv_requests.of_rank(keys, 1, 0)
    blocks = sum(one.tokens // keys.block_tokens for one in requests)
    monkeypatch.setattr(kv_tiers, "_MOST_BLOCKS", blocks)
    assert kv_tiers.plan(keys, requests).requests
    monkeypatch.setattr(kv_tiers, "_MOST_BLOCKS", blocks - 1)
    with pytest.raises(ConfigError, match=f"have {blocks:,} blocks with their histories"):
        kv_tiers.plan(keys, requests)


@pytest.mark.parametrize("given", [{"users": 10**6, "turns": 5}, {"users": 10, "turns": 10**6}])
def test_requests_before_the_epoch_count(given: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="requests, and at most 1,000,000 are possible"):
        _keys(**given, interval=units.Seconds(1000))
    assert _keys(**given, interval=units.Seconds(1000), warm=False).users == given["users"]


@pytest.mark.parametrize(
    ("given", "busy"),
    [
        ({}, 0.0),
        ({"decode": units.Seconds(0.1)}, 4 * 0.5 / 1.5),
        ({"prefill": units.Seconds(0.1), "users": 12}, 12 * 1.0 / 2.0),
        ({"prefill": units.Seconds(0.1), "decode": units.Seconds(0.2), "interval": units.Seconds(2)}, 4 * 2.0 / 4.0),
    ],
)
def test_computation_keeps_slots_busy(given: dict[str, Any], busy: float) -> None:
    """Prompts have 10 tokens and answers 5, as means."""
    assert _keys(**given).busy_slots == pytest.approx(busy)
