"""Traces of requests to language models: files with the times at which requests arrived and their numbers of tokens.
Each line of a file is a request, as CSV below a line with the names of the columns, or as a JSON object.
"""

import csv
import functools
import hashlib
import io
import math
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from dlio_hpc.base.errors import ConfigError
from dlio_hpc.base.units import Seconds, listed
from dlio_hpc.config.inference_keys import MOST_TOKENS, RequestTrace, TraceScan

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

# Largest size of a file in bytes, and largest number of its requests. A rank keeps them in memory.
_MOST_BYTES, _MOST_REQUESTS = 256 << 20, 1_000_000
_HASHES = "hash_ids"
_DATE = re.compile(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(\.\d+)?", re.ASCII)

Line = Mapping[str, Any]


class _Form(NamedTuple):
    """Names of the columns of a kind of trace. prompt, answer: numbers of tokens. arrival: time of arrival, as a number
    of `unit` seconds, or as a date if `unit` is 0. mark: a column that other kinds lack. prefix: tokens for which each
    number of the column hash_ids stands; 0: the trace has no such column.
    """

    prompt: str
    answer: str
    arrival: str
    unit: float
    mark: str = ""
    prefix: int = 0


# Sources, 2026-11: Azure/AzurePublicDataset (AzureLLMInferenceTrace_*.csv of 2023 and 2024), HPMLL/BurstGPT,
# alibaba-edu/qwen-bailian-usagetraces-anon (*_blksz_16.jsonl), kvcache-ai/Mooncake (FAST25-release/traces) on GitHub.
_FORMS = (
    _Form("prompt", "answer", "arrival", 1.0),  # ours
    _Form("ContextTokens", "GeneratedTokens", "TIMESTAMP", 0.0),  # Azure
    _Form("Request tokens", "Response tokens", "Timestamp", 1.0),  # BurstGPT
    _Form("input_length", "output_length", "timestamp", 1.0, "chat_id", 16),  # Qwen-Bailian
    _Form("input_length", "output_length", "timestamp", 1e-3, "", 512),  # Mooncake
)


class TracedRequests(NamedTuple):
    """Requests of a trace, in the order in which they arrive. prompts, answers: numbers of tokens. arrivals: seconds
    after the first request; None if the trace has no times. prefixes: numbers that stand for the beginnings of each
    prompt; the first of them stands for the first `prefix_tokens` tokens, and so on; None if the trace has none.
    """

    prompts: "npt.NDArray[np.int64]"
    answers: "npt.NDArray[np.int64]"
    arrivals: "npt.NDArray[np.float64] | None" = None
    prefixes: tuple[tuple[int, ...], ...] | None = None
    prefix_tokens: int = 0


def described(trace: RequestTrace) -> RequestTrace:
    """Read the file of a trace, and return the trace with the results. Raise ConfigError if the file is no trace."""
    content = _content(trace.file)
    requests = _parsed(trace.file, content)
    scan = TraceScan(
        digest=_digest(content),
        requests=len(requests.prompts),
        prompt_mean=float(requests.prompts.mean()),
        answer_mean=float(requests.answers.mean()),
        end=None if requests.arrivals is None else Seconds(requests.arrivals[-1]),
        prefix_tokens=requests.prefix_tokens,
    )
    return msgspec.structs.replace(trace, scan=scan)


@functools.lru_cache(4)
def requests(trace: RequestTrace) -> TracedRequests:
    """Return the requests of a trace. Raise ConfigError if the file has changed since it was scanned."""
    content = _content(trace.file)
    if trace.scan is None or _digest(content) != trace.scan.digest:
        raise ConfigError(
            f"inference.trace: {trace.file} has changed since the submission; restore it, or submit the workload again"
        )
    return _parsed(trace.file, content)


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:12]


def _content(path: str) -> bytes:
    if os.path.exists(path) and not os.path.isfile(path):
        raise ConfigError(f"inference.trace: {path} is no file; give a CSV file or a file of JSON lines")
    try:
        with open(path, "rb") as file:
            content = file.read(_MOST_BYTES + 1)
    except OSError as fault:
        raise ConfigError(f"inference.trace: cannot read {path}: {fault.strerror}") from fault
    if len(content) > _MOST_BYTES:
        raise ConfigError(f"inference.trace: {path} has more than {_MOST_BYTES >> 20} MiB; keep fewer of its lines")
    return content


def _parsed(path: str, content: bytes) -> TracedRequests:
    """Return the requests of a file, sorted by their arrival."""
    import numpy as np

    lines = list(_lines(path, content))
    if not lines:
        raise ConfigError(f"inference.trace: {path} has no requests")
    columns = set[str]().union(*(line for _, line in lines))
    form = next((one for one in _FORMS if columns >= {one.prompt, one.answer, *([one.mark] if one.mark else [])}), None)
    if form is None:
        raise ConfigError(
            f"inference.trace: {path} has the columns {listed(sorted(columns))}; the columns prompt and answer state "
            "the tokens of each request, and arrival states when it arrives, in seconds"
        )
    prompts = np.array([_tokens(path, number, form.prompt, line) for number, line in lines], np.int64)
    answers = np.array([_tokens(path, number, form.answer, line) for number, line in lines], np.int64)
    arrivals, order = None, np.arange(len(lines))
    if form.arrival in columns:
        arrivals = np.array([_arrival(path, number, form, line) for number, line in lines])
        order = np.argsort(arrivals, kind="stable")
        arrivals = arrivals[order] - arrivals.min()
    prefixes = None
    if form.prefix and _HASHES in columns:
        hashes = [_prefix(path, number, form, line) for number, line in lines]
        prefixes = tuple(hashes[place] for place in order)
    return TracedRequests(prompts[order], answers[order], arrivals, prefixes, form.prefix if prefixes else 0)


def _lines(path: str, content: bytes) -> Iterator[tuple[int, Line]]:
    """Yield the number and the values of each line of a file."""
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as fault:
        raise ConfigError(f"inference.trace: {path} is no text file: {fault.reason} at byte {fault.start}") from fault
    parsed = _of_json(path, text) if text.lstrip().startswith("{") else _of_csv(path, text)
    for count, (number, line) in enumerate(parsed):
        if count == _MOST_REQUESTS:
            raise ConfigError(f"inference.trace: {path} has more than {_MOST_REQUESTS:,} requests; keep fewer lines")
        yield number, line


def _of_json(path: str, text: str) -> Iterable[tuple[int, Line]]:
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        try:
            yield number, msgspec.json.decode(line, type=dict[str, Any])
        except (msgspec.DecodeError, RecursionError) as fault:
            raise ConfigError(f"inference.trace: {path}, line {number}: no JSON object: {fault}") from fault


def _of_csv(path: str, text: str) -> Iterable[tuple[int, Line]]:
    reader = csv.DictReader(io.StringIO(text), strict=True, skipinitialspace=True)
    try:
        for line in reader:
            if None in line:
                raise ConfigError(
                    f"inference.trace: {path}, line {reader.line_num}: the line has more values than there are columns"
                )
            yield reader.line_num, line
    except csv.Error as fault:
        raise ConfigError(f"inference.trace: {path}, line {reader.line_num}: no CSV: {fault}") from fault


def _tokens(path: str, number: int, column: str, line: Line) -> int:
    """Return a number of tokens. number: number of the line in the file."""
    value = _number(line.get(column))
    if not 0 <= value <= MOST_TOKENS or not value.is_integer():
        raise _wrong(path, number, column, line, f"a number of tokens from 0 to {MOST_TOKENS:,}")
    return int(value)


def _arrival(path: str, number: int, form: _Form, line: Line) -> float:
    """Return the time at which a request arrived, in seconds from any origin."""
    value = line.get(form.arrival)
    seconds = _number(value) * form.unit if form.unit else _date(value)
    if not math.isfinite(seconds):
        expected = "a time as a number" if form.unit else "a date such as 2024-05-10 00:00:00.009930"
        raise _wrong(path, number, form.arrival, line, expected)
    return seconds


def _prefix(path: str, number: int, form: _Form, line: Line) -> tuple[int, ...]:
    """Return the numbers that stand for the beginnings of a prompt: one for each `form.prefix` tokens."""
    hashes = line.get(_HASHES)
    wanted = -(-_tokens(path, number, form.prompt, line) // form.prefix)
    if (
        not isinstance(hashes, list)
        or len(hashes) != wanted
        or not all(isinstance(one, int) and abs(one) < 2**63 for one in hashes)
    ):
        raise _wrong(path, number, _HASHES, line, f"{wanted} integers, one for each {form.prefix} tokens of the prompt")
    return tuple(hashes)


def _number(value: object) -> float:
    """Return a number; NaN if the value is none."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return math.nan
    try:
        return float(value)
    except (ValueError, OverflowError):
        return math.nan


def _date(value: object) -> float:
    """Return the seconds of a date from 1970 on; NaN if the value is no date. Dates have no time zone, or UTC."""
    import numpy as np

    text = str(value).removesuffix("+00:00").removesuffix("Z")
    if not _DATE.fullmatch(text):
        return math.nan
    try:
        return float(np.datetime64(text, "us").astype(np.int64)) / 1e6
    except ValueError:
        return math.nan


def _wrong(path: str, number: int, column: str, line: Line, expected: str) -> ConfigError:
    given = repr(line.get(column))
    short = given if len(given) <= 40 else f"{given[:37]}..."
    return ConfigError(f"inference.trace: {path}, line {number}: {column} is {short}; expected {expected}")
