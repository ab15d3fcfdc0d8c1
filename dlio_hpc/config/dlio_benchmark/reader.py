"""Conversion of the reading of a workload of dlio_benchmark: loader, requests, threads, and order."""

import math
from collections.abc import Iterator

from dlio_hpc.config.dlio_benchmark.fact import Fact, Fate
from dlio_hpc.config.dlio_benchmark.formats import (
    LOADERS,
    format_of,
    loader_of,
    natural_numbers,
    reads_nothing,
)
from dlio_hpc.config.dlio_benchmark.keys import ELEMENT_BYTES, REVISION
from dlio_hpc.config.dlio_benchmark.source import SourceWorkload


def reader(source: SourceWorkload) -> Iterator[Fact]:
    """Yield the facts about loader, requests and threads."""
    kind, loader = source["dataset.format"], loader_of(source)
    threads, ahead = source["reader.read_threads"], source["reader.prefetch_size"]
    given = bool(source["reader.data_loader"])
    text = "" if given else "the loader of the framework"
    if loader == "dali":
        text = "threads of dlio-hpc make the requests of the Python readers under DALI"
    fate: Fate = "approximated" if loader == "dali" else "mapped"
    yield Fact("reader.data_loader" if given else "framework", fate, text, "reader.loader", LOADERS[loader])
    yield Fact("framework", "mapped", "see reader.loader")
    yield from _mode(source)
    yield from _resized(source)
    yield Fact("reader.batch_size", "mapped", "", "reader.batch_size", source["reader.batch_size"])
    text = "" if threads else "with 0, the rank itself reads"
    yield Fact("reader.read_threads", "mapped", text, "reader.read_threads", max(1, threads))
    yield _prefetch(loader, threads, ahead)
    if format_of(source) == "tfrecord":
        yield Fact("reader.computation_threads", "mapped", "calls that parse batches", "reader.preprocess_threads",
                   max(1, source["reader.computation_threads"]))  # fmt: skip
    yield Fact("reader.batch_size", "mapped", "incomplete batches are dropped", "reader.drop_last", True)
    if loader == "pytorch" and source["reader.multiprocessing_context"] != "fork":
        is_spawn = source["reader.multiprocessing_context"] == "spawn"
        yield Fact(
            "reader.multiprocessing_context", "mapped" if is_spawn else "approximated", "",
            "reader.multiprocessing_context", "spawn",
        )  # fmt: skip
    if source["reader.read_type"] == "memory" and kind != "tfrecord" and not reads_nothing(source):
        yield Fact("reader.read_type", "approximated", "read before the first step, not when first needed",
                   "reader.load", "memory")  # fmt: skip


def _mode(source: SourceWorkload) -> Iterator[Fact]:
    """Yield the facts about the reader's mode and about the size of its requests."""
    kind, size = source["dataset.format"], source["reader.transfer_size"]
    if format_of(source) == "null":
        return
    if source["reader.odirect"]:
        yield Fact("reader.odirect", "mapped", "", "reader.direct", True)
        return
    if kind == "indexed_binary":
        return
    if kind == "mmap_indexed_binary":
        yield Fact("dataset.format", "mapped", "files are mapped into memory", "reader.mode", "framework")
        yield Fact("dataset.format", "mapped", "files are mapped into memory", "reader.mapped", True)
        return
    yield Fact("dataset.format", "mapped", "the library of the format reads", "reader.mode", "framework")
    if kind == "tfrecord" and size is not None:
        yield Fact("reader.transfer_size", "mapped", "", "reader.transfer_size", size)
    elif kind != "tfrecord":
        yield Fact("reader.transfer_size", "ignored", "dlio_benchmark uses it for tfrecord only")


def _resized(source: SourceWorkload) -> Iterator[Fact]:
    """Yield the facts about the size of a sample in a batch. The side of dlio_benchmark's square array is rounded down.
    The keys of the transformed record take precedence.
    """
    length, dims = source["dataset.record_length_bytes_resize"], source["reader.transformed_record_dims"]
    element = source["reader.transformed_record_element_type"]
    if dims:
        shape = natural_numbers(source, "reader.transformed_record_dims")
        if element not in ELEMENT_BYTES:
            raise source.refused("reader.transformed_record_element_type", f"use one of: {', '.join(ELEMENT_BYTES)}")
        size = math.prod(shape) * ELEMENT_BYTES[element]
        yield Fact("reader.transformed_record_dims", "mapped", "samples in a batch", "reader.resize", size)
        yield Fact("reader.transformed_record_element_type", "mapped", "see transformed_record_dims")
        if length > 0:
            yield Fact("dataset.record_length_bytes_resize", "ignored", "see reader.transformed_record_dims")
    elif length >= 1:
        side = math.isqrt(int(length))
        text = f"samples in a batch, {side} x {side} bytes"
        yield Fact("dataset.record_length_bytes_resize", "mapped", text, "reader.resize", side**2)


def _prefetch(loader: str, threads: int, ahead: int) -> Fact:
    """Return the number of batches that are read ahead. Each worker of PyTorch reads at least one batch ahead. If the
    key is 0, each worker reads two batches ahead.
    """
    key = "reader.prefetch_size"
    if loader != "pytorch":
        least = max(ahead, threads) if ahead and loader != "tensorflow" else ahead
        return Fact(key, "mapped", "", "reader.prefetch", least)
    if not threads:
        return Fact(key, "mapped", "nothing is read ahead without workers", "reader.prefetch", 0)
    each_worker = math.ceil(ahead / threads) or 2
    return Fact(key, "mapped", f"{each_worker} for each of {threads} workers", "reader.prefetch", each_worker * threads)


def order(source: SourceWorkload) -> Iterator[Fact]:
    """Yield the facts about the order of reading that the keys request. This revision of dlio_benchmark shuffles lists
    that most of its loaders do not use: only tf.data reads files in random order, unless they are TFRecord files.
    """
    keys = {"reader.file_shuffle": "reader.shuffle.files", "reader.sample_shuffle": "reader.shuffle.samples"}
    asked = [key for key in keys if _shuffles(source, key)]
    is_tfrecord, is_tensorflow = format_of(source) == "tfrecord", loader_of(source) == "tensorflow"
    for key, target in keys.items():
        text = (
            f"as the key says; dlio_benchmark {REVISION} itself reads in the order of files, as with -S {target}=false"
        )
        if key not in asked:
            yield Fact(key, "mapped", "by default, nothing is shuffled")
        elif key == "reader.sample_shuffle" and is_tfrecord:
            yield Fact(key, "ignored", "shuffles in memory; a file is read from its beginning")
        elif key == "reader.file_shuffle" and is_tensorflow and not is_tfrecord:
            yield Fact(key, "mapped", "", target, True)
        else:
            yield Fact(key, "approximated", text, target, True)
    if asked and not (is_tfrecord and asked == ["reader.sample_shuffle"]):
        yield Fact("train.seed", "mapped", "", "reader.shuffle.seed", source["train.seed"])
        yield Fact("train.seed_change_epoch", "mapped", "", "reader.shuffle.reseed", source["train.seed_change_epoch"])
    else:
        yield from (Fact(key, "ignored", "no reads are shuffled") for key in ("train.seed", "train.seed_change_epoch"))


def _shuffles(source: SourceWorkload, key: str) -> bool:
    value = source[key]
    if value not in {"off", "seed", "random"}:
        raise source.refused(key, "use one of: off, seed, random")
    return bool(value != "off")
