"""Record of the sample files of an unfinished dataset that are on storage. A job that continues the generation does not
write them again.

Each rank records its files as the name of an empty file in the dataset's folder, .written-FIRST-END for the files from
FIRST to END - 1. While the rank writes, it replaces this file.
"""

import bisect
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import NamedTuple

from dlio_hpc.dataset.rank_shares import share
from dlio_hpc.files import safe_folders

_NAME = re.compile(r"\.written-(\d{1,16})-(\d{1,16})")


class Span(NamedTuple):
    """Consecutive sample files. first: number of the first file. end: number after the last file."""

    first: int
    end: int


def is_record(name: str) -> bool:
    """Return whether `name` is the name of a record."""
    return _NAME.fullmatch(name) is not None


def record(folder: int, written: Span, before: Span | None) -> None:
    """Record that these files are on storage. folder: descriptor of the dataset's folder. before: span that this
    rank recorded last, with the same first file; None if it has not recorded any.
    """
    if written.end <= written.first:
        return
    os.close(safe_folders.created(folder, _name(written)))
    if before is not None and before != written:
        with suppress(FileNotFoundError):  # another job may generate the same dataset, where locks are not shared
            os.unlink(_name(before), dir_fd=folder)


def _name(span: Span) -> str:
    return f".written-{span.first}-{span.end}"


def recorded(folder: int) -> list[Span]:
    """Return the files that are on storage according to the records, as spans that do not touch, in order."""
    matches = filter(None, map(_NAME.fullmatch, os.listdir(folder)))
    joined: list[Span] = []
    for span in sorted(Span(*map(int, match.groups())) for match in matches):
        if joined and span.first <= joined[-1].end:
            joined[-1] = Span(joined[-1].first, max(joined[-1].end, span.end))
        elif span.first < span.end:
            joined.append(span)
    return joined


def missing(files: int, written: Iterable[Span]) -> list[Span]:
    """Return the files that are not on storage, in order. files: number of files of the dataset. written: result of
    recorded().
    """
    spans, first = [], 0
    for span in written:
        spans.append(Span(first, min(span.first, files)))
        first = span.end
    spans.append(Span(first, files))
    return [span for span in spans if span.first < span.end]


def of_rank(spans: Iterable[Span], ranks: int, rank: int) -> Iterator[Span]:
    """Yield the files that a rank writes. They are consecutive among the files in `spans`."""
    spans = list(spans)
    first, end = share(sum(span.end - span.first for span in spans), ranks, rank)
    offset = 0
    for span in spans:
        part = Span(span.first + max(0, first - offset), min(span.end, span.first + end - offset))
        if part.first < part.end:
            yield part
        offset += span.end - span.first


def without(spans: Iterable[Span], lost: Sequence[int]) -> list[Span]:
    """Return the spans without some files. lost: numbers of these files, in order."""
    rest = []
    for span in spans:
        first = span.first
        for number in lost[bisect.bisect_left(lost, span.first) : bisect.bisect_left(lost, span.end)]:
            rest.append(Span(first, number))
            first = number + 1
        rest.append(Span(first, span.end))
    return [span for span in rest if span.first < span.end]


def replace(folder: int, spans: Iterable[Span]) -> None:
    """Replace all records by records of these spans."""
    clear(folder)
    for span in spans:
        record(folder, span, None)


def clear(folder: int) -> None:
    """Remove all records."""
    for name in filter(is_record, os.listdir(folder)):
        with suppress(FileNotFoundError):
            os.unlink(name, dir_fd=folder)
