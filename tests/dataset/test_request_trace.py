"""Traces of requests: files that are read, files that are refused, and the requests that follow from them."""

import json
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from dlio_hpc.base import units
from dlio_hpc.base.errors import ConfigError
from dlio_hpc.config import site
from dlio_hpc.config.inference_keys import CacheModel, InferenceKeys, Lengths, RequestTrace, UserSearch
from dlio_hpc.config.workload import Draft, Workload
from dlio_hpc.dataset import kv_requests, kv_tiers, request_trace
from dlio_hpc.plan import notes, planned
from dlio_hpc.plan.options import Options
from dlio_hpc.verdict import settings_digest
from tests.support import planning

# Three requests at 3, 7.5 and 4 s: their arrivals after the first one, sorted, prompts and answers.
_ARRIVALS, _PROMPTS, _ANSWERS = [0.0, 1.0, 4.5], [100, 90, 7], [20, 5, 1]


def _json(lines: list[dict[str, Any]]) -> str:
    return "\n".join(map(json.dumps, lines)) + "\n"


# Columns and units as their publishers describe them.
_FORMS = {
    "own": "arrival,prompt,answer\n3,100,20\n7.5,7,1\n4,90,5\n",
    "own with a mark and blanks": "\ufeffprompt, answer, arrival\n100, 20, 3\n7, 1, 7.5\n90, 5, 4\n",
    "Azure 2023": (
        "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03.9799600,100,20\n"
        "2023-11-16 18:17:08.4799600,7,1\n2023-11-16 18:17:04.9799600,90,5\n"
    ),
    "Azure 2024": (
        "TIMESTAMP,ContextTokens,GeneratedTokens\n2024-05-10 23:59:59.500000+00:00,100,20\n"
        "2024-05-11 00:00:04+00:00,7,1\n2024-05-11 00:00:00.500000+00:00,90,5\n"
    ),
    "BurstGPT": (
        "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
        "5,ChatGPT,100,20,120,Conversation log\n9.5,GPT-4,7,1,8,API log\n6,ChatGPT,90,5,95,Conversation log\n"
    ),
    "Mooncake": _json([
        {"timestamp": 27482, "input_length": 100, "output_length": 20},
        {"timestamp": 31982, "input_length": 7, "output_length": 1},
        {"timestamp": 28482, "input_length": 90, "output_length": 5},
    ]),
    "Qwen-Bailian": _json([
        {"chat_id": 1, "timestamp": 61.25, "input_length": 100, "output_length": 20, "hash_ids": [1, 2, 3, 4, 5, 6, 7]},
        {"chat_id": 2, "timestamp": 65.75, "input_length": 7, "output_length": 1, "hash_ids": [8]},
        {"chat_id": 3, "timestamp": 62.25, "input_length": 90, "output_length": 5, "hash_ids": [1, 2, 3, 4, 5, 9]},
    ]),
    "lines with odd separators": (
        '{"prompt": 100, "answer": 20, "arrival": 0, "note": "a\u2028b"}\n\n'
        '{"prompt": 7, "answer": 1, "arrival": 4.5}\r\n'
        '{"prompt": 90, "answer": 5, "arrival": 1}'
    ),
}  # fmt: skip


def _scanned(path: Path, content: str, **given: Any) -> RequestTrace:
    path.write_text(content, encoding="utf-8")
    return request_trace.described(RequestTrace(str(path), **given))


def _keys(trace: RequestTrace | None, **given: Any) -> InferenceKeys:
    usual: dict[str, Any] = {
        "users": 2, "time": units.Seconds(4.6), "model": CacheModel(1, 1, 2, "fp8"), "block_tokens": 4,
        "direct": False, "trace": trace,
    }  # fmt: skip
    return InferenceKeys(**(usual | given))


@pytest.mark.parametrize("form", _FORMS)
def test_published_traces_are_read(tmp_path: Path, form: str) -> None:
    trace = _scanned(tmp_path / "trace", _FORMS[form])
    requests = request_trace.requests(trace)
    assert requests.arrivals is not None
    assert requests.arrivals.tolist() == pytest.approx(_ARRIVALS, abs=1e-5)
    assert (requests.prompts.tolist(), requests.answers.tolist()) == (_PROMPTS, _ANSWERS)
    assert trace.scan is not None
    assert trace.scan.requests == 3
    assert trace.scan.end == pytest.approx(4.5, abs=1e-5)
    assert trace.scan.prompt_mean == pytest.approx(197 / 3)
    assert trace.scan.answer_mean == pytest.approx(26 / 3)


@pytest.mark.parametrize("speed", [1.0, 3.0])
@pytest.mark.parametrize("ranks", [1, 2])
def test_requests_arrive_as_in_the_trace(tmp_path: Path, ranks: int, speed: float) -> None:
    """Requests go to the users in turn, and those after the time of an epoch are left out."""
    trace = _scanned(tmp_path / "t.csv", _FORMS["own"], speed=speed)
    keys = _keys(trace, turns=2, system_prompt=3, time=units.Seconds(4.4 / speed), warm=True)
    made = sorted(one for rank in range(ranks) for one in kv_requests.of_rank(keys, ranks, rank))
    assert [(one.user, one.conversation, one.turn, one.history, one.prompt, one.answer) for one in made] == [
        (0, 0, 0, 3, 100, 20), (1, 0, 0, 3, 90, 5),
    ]  # fmt: skip
    assert [one.arrival for one in made] == pytest.approx([0.0, 1.0 / speed])
    whole = kv_requests.of_rank(structs.replace(keys, time=units.Seconds(4.6 / speed)), 1, 0)
    assert (whole[-1].user, whole[-1].turn, whole[-1].history) == (0, 1, 123)
    third = kv_requests.of_rank(structs.replace(keys, time=units.Seconds(4.6 / speed), turns=1), 1, 0)[-1]
    assert (third.user, third.conversation, third.history) == (0, 1, 3)


def test_a_trace_without_times_gives_the_lengths(tmp_path: Path) -> None:
    trace = _scanned(tmp_path / "t.csv", "prompt,answer\n100,20\n90,5\n7,1\n")
    assert trace.scan is not None
    assert trace.scan.end is None
    keys = _keys(trace, users=300, interval=units.Seconds(1), time=units.Seconds(20), warm=False)
    made = kv_requests.of_rank(keys, 1, 0)
    assert {(one.prompt, one.answer) for one in made} == {(100, 20), (90, 5), (7, 1)}
    assert len(made) == pytest.approx(300 * 20, rel=0.05)
    assert sum(one.prompt == 7 for one in made) == pytest.approx(len(made) / 3, rel=0.1)


def test_prompts_share_the_blocks_of_a_common_beginning(tmp_path: Path) -> None:
    """The third request repeats the first 512 tokens of the first; the fourth one has the same numbers in another
    order, and so no common beginning.
    """
    lines = [
        {"timestamp": 0, "input_length": 1024, "output_length": 8, "hash_ids": [1, 2]},
        {"timestamp": 1000, "input_length": 100, "output_length": 9, "hash_ids": [9]},
        {"timestamp": 2000, "input_length": 700, "output_length": 300, "hash_ids": [1, 3]},
        {"timestamp": 3000, "input_length": 1024, "output_length": 1, "hash_ids": [2, 1]},
        {"timestamp": 4000, "input_length": 1024, "output_length": 1, "hash_ids": [1, 2]},
    ]
    trace = _scanned(tmp_path / "mooncake.jsonl", _json(lines))
    assert trace.scan is not None
    assert trace.scan.prefix_tokens == 512
    keys = _keys(trace, block_tokens=256, time=units.Seconds(4.1), users=3)
    plan = kv_tiers.plan(keys, kv_requests.of_rank(keys, 1, 0))
    assert [len(one.reads) for one in plan.requests] == [0, 0, 2, 0, 4]
    assert [one.storage_tokens for one in plan.requests] == [0, 0, 512, 0, 1024]
    assert [one.computed_tokens for one in plan.requests] == [1024, 100, 188, 1024, 0]
    assert [len(one.writes) for one in plan.requests] == [4, 0, 1, 4, 0]
    assert plan.requests[2].writes[0].token == 68, "a block of 188 tokens of the prompt and 68 of the answer"
    assert len({name for one in plan.requests for name in one.reads}) == 4
    assert plan.requests[4].reads == tuple(write.serial for write in plan.requests[0].writes)


_REFUSED = {
    "no file": (None, "cannot read .*: No such file or directory"),
    "no columns": ("a,b\n1,2\n", "has the columns a, b; the columns prompt and answer state"),
    "empty": ("", "has no requests"),
    "only names": ("prompt,answer\n", "has no requests"),
    "no number": ("arrival,prompt,answer\n0,1,2\n1,x,2\n", "line 3: prompt is 'x'; expected a number of tokens"),
    "negative": ("prompt,answer\n5,-1\n", "line 2: answer is '-1'; expected a number of tokens from 0"),
    "half a token": ("prompt,answer\n5,1.5\n", "line 2: answer is '1.5'"),
    "a short line": ("prompt,answer\n5\n", "line 2: answer is None"),
    "huge": ("prompt,answer\n1e300,1\n", "line 2: prompt is '1e300'"),
    "not finite": ("arrival,prompt,answer\nnan,5,1\n", "line 2: arrival is 'nan'; expected a time as a number"),
    "no date": ("TIMESTAMP,ContextTokens,GeneratedTokens\nyesterday,5,1\n", "line 2: TIMESTAMP is .*expected a date"),
    "now": ("TIMESTAMP,ContextTokens,GeneratedTokens\nnow,5,1\n", "line 2: TIMESTAMP is 'now'; expected a date"),
    "an offset": (
        "TIMESTAMP,ContextTokens,GeneratedTokens\n2024-05-10 00:00:00+02:00,5,1\n", "expected a date such as 2024",
    ),
    "deep": ('{"prompt": ' + "[" * 100_000, "line 1: no JSON object"),
    "a comment": ("# my trace\nprompt,answer\n1,2\n", "line 2: the line has more values"),
    "no JSON": ('{"input_length": 1, "output_length": 1}\n{]\n', "line 2: no JSON object"),
    "too few hashes": (
        '{"timestamp": 0, "input_length": 600, "output_length": 1, "hash_ids": [1]}',
        "line 1: hash_ids is .1.; expected 2",
    ),
    "too many values": ("prompt,answer,arrival\n5,6,4,9\n", "line 2: the line has more values than there are columns"),
    "too many values of unknown columns": ("a,b\n1,2,3\n", "line 2: the line has more values"),
    "times on some lines": (
        '{"prompt": 1, "answer": 2}\n{"prompt": 1, "answer": 2, "arrival": 5}\n',
        "line 1: arrival is None; expected a time",
    ),
    "no text": (b"prompt,answer\n\xff\xfe,1\n", "is no text file"),
}  # fmt: skip


@pytest.mark.parametrize("name", _REFUSED)
def test_what_is_no_trace_is_refused(tmp_path: Path, name: str) -> None:
    content, message = _REFUSED[name]
    path = tmp_path / "t.csv"
    if content is not None:
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(ConfigError, match=message):
        request_trace.described(RequestTrace(str(path)))


def test_a_folder_is_no_trace(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is no file"):
        request_trace.described(RequestTrace(str(tmp_path)))
    with pytest.raises(ValueError, match="not an absolute path"):
        RequestTrace("t.csv")


def test_a_changed_trace_is_noticed(tmp_path: Path) -> None:
    trace = _scanned(tmp_path / "t.csv", _FORMS["own"])
    (tmp_path / "t.csv").write_text(_FORMS["own"].replace("100", "101"))
    with pytest.raises(ConfigError, match="has changed since the submission"):
        request_trace.requests(trace)


@pytest.mark.parametrize(
    ("content", "given", "message"),
    [
        ("own", {"interval": units.Seconds(1)}, "set interval=null"),
        ("own", {"prompt": Lengths(mean=5)}, "set prompt=null"),
        ("own", {"search": UserSearch(8)}, "vary trace.speed"),
        ("own", {"time": units.Seconds(6)}, "end after 4.5 s"),
        ("fast", {"time": units.Seconds(3)}, "end after 2.25 s"),
        ("prompt,answer\n8,8\n", {}, "has no times of arrival"),
        ("prompt,answer\n1,1\n", {"interval": units.Seconds(1)}, "fill no block"),
        ("hashes", {"turns": 2}, "turns=1"),
        ("hashes", {"system_prompt": 5}, "system_prompt=0"),
        ("hashes", {"file_layout": "sequence"}, "file_layout=block"),
        ("hashes", {"block_tokens": 3}, "divisor"),
    ],
)
def test_keys_that_do_not_fit_a_trace_are_refused(
    tmp_path: Path, content: str, given: dict[str, Any], message: str
) -> None:
    hashes = '{"timestamp": 4600, "input_length": 9, "output_length": 9, "hash_ids": [1]}\n'
    hashes += hashes.replace("4600", "0")
    texts = {**_FORMS, "hashes": hashes, "fast": _FORMS["own"]}
    trace = _scanned(tmp_path / "t", texts.get(content, content), speed=2.0 if content == "fast" else 1.0)
    with pytest.raises(ValueError, match=message):
        _keys(trace, **given)


@pytest.mark.parametrize("lacked", ["prompt", "answer", "interval"])
def test_without_a_trace_lengths_and_interval_are_needed(lacked: str) -> None:
    given = {"prompt": Lengths(mean=5), "answer": Lengths(mean=5), "interval": units.Seconds(1)}
    del given[lacked]
    with pytest.raises(ValueError, match=f"{lacked}: set"):
        _keys(None, **given)


def _planned(path: Path, content: str) -> Workload:
    """Return the workload of the plan of a job with a trace."""
    path.write_text(content)
    inference = {
        "users": 2, "time": "4.6 s", "trace": {"file": str(path)}, "block_tokens": 16,
        "model": {"layers": 8, "kv_heads": 8, "head_dim": 128},
    }  # fmt: skip
    asked = Draft({"name": "t", "inference": inference}, "test").with_settings({})
    return planning.make(asked, site.load("local"), planning.Request(path.parent)).runs[0].workload


def test_the_digest_of_settings_depends_on_the_content_of_a_trace_and_not_on_its_place(tmp_path: Path) -> None:
    first, moved = (_planned(tmp_path / name, _FORMS["own"]) for name in ("a.csv", "b.csv"))
    other = _planned(tmp_path / "c.csv", _FORMS["own"].replace("100", "101"))
    assert settings_digest.of(first) == settings_digest.of(moved) != settings_digest.of(other)


def test_a_note_says_that_nothing_is_read_unless_prompts_share_beginnings(tmp_path: Path) -> None:
    hashes = "".join(
        json.dumps({"timestamp": at, "input_length": 512, "output_length": 9, "hash_ids": [1]}) + "\n"
        for at in (0, 5000)
    )
    for content, is_noted in ((hashes, False), (_FORMS["own"], True)):
        (tmp_path / "t").write_text(content)
        options = Options(
            workload="kv_cache_llama3_8b", site="local", runs=tmp_path / "runs", data=tmp_path,
            overrides=(
                f"inference.trace.file={tmp_path / 't'}", "inference.interval=null", "inference.prompt=null",
                "inference.answer=null", "inference.time=4500ms", "inference.turns=1", "inference.system_prompt=0",
            ),
        )  # fmt: skip
        noted = "\n".join(notes.of_plan(planned.draft(options).jobs[0]))
        assert ("nothing is read from storage" in noted) == is_noted
