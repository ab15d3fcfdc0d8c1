"""The dataset of a workload of dlio_benchmark: format, files, and the size of samples."""

import math
from collections.abc import Iterator

from dlio_hpc.config.dlio_benchmark import parquet
from dlio_hpc.config.dlio_benchmark.fact import Fact, Fate
from dlio_hpc.config.dlio_benchmark.formats import FORMATS, IMAGES, format_of, loader_of, natural_numbers, reads_nothing
from dlio_hpc.config.dlio_benchmark.keys import ELEMENT_BYTES, REVISION
from dlio_hpc.config.dlio_benchmark.source import SourceWorkload
from dlio_hpc.config.image_keys import LARGEST_SIDE
from dlio_hpc.config.reader_keys import LARGEST_REQUEST

_DIFFERENCES = {
    "indexed_binary": "samples at their offsets; the indexes of all files are one auxiliary file",
    "mmap_indexed_binary": "samples are copied from mapped files, which have one index; dlio_benchmark maps them, and "
    "does not touch the samples, so it reads none",
}
# Bytes of a file per pixel, for the random images that dlio_benchmark generates (measured with Pillow 13, 1000 x 1000).
_IMAGE_BYTES = {"jpeg": 0.5554, "png": 1.0024}
# Mean bytes of an 8-bit number from 0 to 254 in a CSV file: its digits, and a comma.
_TEXT_BYTES = 3.57


def dataset(source: SourceWorkload) -> Iterator[Fact]:
    """Yield the facts about the files."""
    kind, files = source["dataset.format"], source["dataset.num_files_train"]
    samples = source["dataset.num_samples_per_file"]
    if reads_nothing(source):
        yield Fact("dataset.format", "mapped", "its reader makes no requests", "dataset.format", "null")
    else:
        text = _DIFFERENCES.get(kind, "")
        yield Fact("dataset.format", "approximated" if text else "mapped", text, "dataset.format", FORMATS[kind])
    yield Fact("dataset.num_files_train", "mapped", "", "dataset.files", files)
    if files == 1:
        yield Fact("dataset.num_files_train", "mapped", "all ranks read the one file", "dataset.file_access", "shared")
    yield Fact("dataset.num_samples_per_file", "mapped", "", "dataset.samples_per_file", samples)
    if samples > 1 and kind != "parquet":
        yield from _several(source)
    if kind == "indexed_binary" and not reads_nothing(source):
        yield _index(source)
    yield from _layout(source)
    if format_of(source) == "hdf5":
        yield from _chunks(source)
    if kind == "parquet" and source["dataset.compression"] != "none":
        yield Fact("dataset.compression", "approximated", "files are not compressed")
    elif source["dataset.compression"] not in {"none", "gzip", "lzf"} or format_of(source) != "hdf5":
        yield Fact("dataset.compression", "ignored", f"dlio_benchmark {REVISION} writes plain files here")
    yield from _subfolders(source["dataset.num_subfolders_train"], 0 if reads_nothing(source) else files)
    if source["workflow.train"]:
        yield Fact("workflow.train", "mapped", "")
    else:
        text = "this workload only generates the dataset: submit it with --generate only"
        yield Fact("workflow.train", "approximated", text)
    yield Fact("workflow.generate_data", "ignored", "dlio-submit generates the dataset if it does not exist")


def _subfolders(folders: int, files: int) -> Iterator[Fact]:
    """Yield the fact about the subfolders of the dataset. folders: their number; 0 and 1: all files are in one folder.
    files: number of files that are generated.
    """
    if 1 < folders <= files:
        text = "files are spread evenly; consecutive files are in one subfolder"
        yield Fact("dataset.num_subfolders_train", "mapped", text, "dataset.subfolders", [folders])
    elif folders > 1:
        yield Fact("dataset.num_subfolders_train", "approximated", "all files are in one folder")


def _layout(source: SourceWorkload) -> Iterator[Fact]:
    """Yield the facts about the size of a sample, or about its columns."""
    is_parquet = format_of(source) == "parquet"
    if is_parquet and source["dataset.parquet.columns"]:
        yield from parquet.columns(source)
    else:
        yield from _sample(source)
    if is_parquet:
        yield from parquet.row_groups(source)


def _several(source: SourceWorkload) -> Iterator[Fact]:
    """Yield the facts that depend on whether a file has several samples."""
    key = "dataset.num_samples_per_file"
    yield Fact(
        key, "approximated",
        f"all files are read, as by release 2.0.1; dlio_benchmark {REVISION} itself reads only a number of files that "
        f"is a multiple of samples per file x batch x ranks",
    )  # fmt: skip
    if format_of(source) == "hdf5" and loader_of(source) != "tensorflow":
        yield Fact(key, "approximated", "a file stays open; dlio_benchmark opens it again for each sample")


def _index(source: SourceWorkload) -> Fact:
    """Return the auxiliary file that emulates the indexes of dlio_benchmark. Each file has two indexes, of offsets and
    of sizes, with 8 bytes for each sample. At the start of an epoch, each thread of a rank reads the indexes of all
    files of the rank. If all ranks share a single file, each rank reads the indexes of this file. If there are several
    files, rank 0 reads the indexes of all ranks, because the number of ranks is not known.
    """
    files, samples = source["dataset.num_files_train"], source["dataset.num_samples_per_file"]
    threads, entries = max(1, source["reader.read_threads"]), 8 * samples
    parts = math.ceil(entries / LARGEST_REQUEST)
    index = {"name": "indexes", "bytes": math.ceil(entries / parts), "count": 2 * files * threads * parts,
             "size": 2 * files * math.ceil(entries / parts) * parts, "when": "epoch",
             "by": "all" if files == 1 else "root"}  # fmt: skip
    text = "its two indexes" if files == 1 else "two indexes for each file, which rank 0 reads for all ranks"
    return Fact("dataset.format", "approximated", text, "dataset.auxiliary_files", [index])


def _sample(source: SourceWorkload) -> Iterator[Fact]:
    """Yield the size of a sample. Without record_dims, the generator of dlio_benchmark writes a square array. The side
    of the square is the square root of record_length_bytes, rounded down. The deviations of its two sides are
    independent.
    """
    kind, length = source["dataset.format"], source["dataset.record_length_bytes"]
    dims, element = source["dataset.record_dims"], source["dataset.record_element_type"]
    item, stdev = ELEMENT_BYTES[element], source["dataset.record_length_bytes_stdev"]
    if dims:
        shape, key = natural_numbers(source, "dataset.record_dims"), "dataset.record_dims"
        text = f"{' x '.join(map(str, shape))} values of {_bytes(item)}"
    else:
        shape, key = (max(1, math.isqrt(max(1, int(length)))),) * 2, "dataset.record_length_bytes"
        text = f"{shape[0]} x {shape[1]} values of {_bytes(item)} (a square, whose side dlio_benchmark rounds down)"
    size = math.prod(shape) * item
    if kind == "hdf5" and not stdev and _is_sample_type(element):
        plain = shape[1:] if shape[0] == 1 and len(shape) > 1 and dims else shape
        yield Fact(key, "mapped", text, "dataset.sample.shape", list(plain))
        yield Fact("dataset.record_element_type", "mapped", "", "dataset.sample.dtype", element)
    elif kind == "csv":
        values = -(-int(math.prod(shape) * _TEXT_BYTES) // 10)
        text = f"the text has as many bytes: {math.prod(shape)} values of {_TEXT_BYTES} bytes on average"
        yield Fact(key, "approximated", text, "dataset.sample.shape", [values])
    else:
        factor = _IMAGE_BYTES.get(kind, 1)
        fate: Fate = "approximated" if kind in IMAGES else "mapped"
        if kind == "tfrecord":
            size, text = _record_bytes(size), f"{text}, and the frame of tf.train.Example"
        if kind in IMAGES:
            text = f"{text}, compressed by {kind.upper()}"
        yield Fact(key, fate, text, "dataset.sample.bytes", int(size * factor))
        if kind in IMAGES:
            yield from _picture(key, shape)
    if stdev and kind != "csv":
        yield _stdev(source, shape[0], item * _IMAGE_BYTES.get(kind, 1))
    elif stdev:
        yield Fact("dataset.record_length_bytes_stdev", "approximated", "all samples have the mean size")


def _picture(key: str, shape: tuple[int, ...]) -> Iterator[Fact]:
    """Yield the fact about the width and height of an image, which dlio_benchmark generates in grey."""
    height, width = (*shape, 1)[:2]
    if max(height, width) <= LARGEST_SIDE and math.prod(shape) == height * width:
        picture = {"width": width, "height": height, "channels": 1}
        yield Fact(key, "mapped", "a grey image", "dataset.image", picture)


def _bytes(count: int) -> str:
    return "1 byte" if count == 1 else f"{count} bytes"


def _is_sample_type(element: str) -> bool:
    return element in {"uint8", "int16", "float16", "int32", "float32", "int64", "float64"}


def _stdev(source: SourceWorkload, side: int, item: float) -> Fact:
    """Return the standard deviation of the product of two sides. Each side is normally distributed with the mean
    `side`.
    """
    key = "dataset.record_length_bytes_stdev"
    spread = source[key] / 2 / math.sqrt(source["dataset.record_length_bytes"])
    stdev = max(1, round(math.sqrt(2 * side**2 * spread**2 + spread**4) * item))
    several = source["dataset.num_samples_per_file"] > 1
    text = "two sides vary independently, each with half the relative deviation"
    if several:
        text += "; in dlio_benchmark, all samples of a file have one size"
    return Fact(key, "approximated" if several else "mapped", text, "dataset.sample.stdev", stdev)


def _record_bytes(size: int) -> int:
    """Return the number of bytes of a tf.train.Example with two features: `image` has `size` bytes, and `size` is a
    number.
    """

    def field(length: int) -> int:
        return 1 + _varint_bytes(length) + length

    image = field(5) + field(field(field(size)))
    number = field(4) + field(field(field(_varint_bytes(size))))
    return field(field(image) + field(number))


def _varint_bytes(number: int) -> int:
    return max(1, -(-number.bit_length() // 7))


def _chunks(source: SourceWorkload) -> Iterator[Fact]:
    compression, chunk = source["dataset.compression"], source["dataset.hdf5.chunk_dims"]
    if compression in {"gzip", "lzf"}:
        yield Fact("dataset.compression", "mapped", "", "dataset.compression", compression)
    if compression == "gzip":
        yield Fact("dataset.compression_level", "mapped", "", "dataset.level", source["dataset.compression_level"])
    if chunk:
        shape = list(natural_numbers(source, "dataset.hdf5.chunk_dims"))
        if source["dataset.record_length_bytes_stdev"]:
            raise source.refused("dataset.hdf5.chunk_dims", "dlio-hpc supports no chunks of this shape if sizes vary")
        yield Fact("dataset.hdf5.chunk_dims", "mapped", "", "dataset.chunk.shape", shape)
        yield Fact("dataset.hdf5.max_shape", "ignored", "changes the header of the files only")
        return
    text = "h5py chooses the chunks; here a sample is a chunk"
    if source["dataset.hdf5.max_shape"]:
        size = math.prod(_sample_shape(source)) * ELEMENT_BYTES[source["dataset.record_element_type"]]
        yield Fact("dataset.hdf5.max_shape", "approximated", text, "dataset.chunk.bytes", size)
    elif compression in {"gzip", "lzf"}:
        yield Fact("dataset.hdf5.chunk_dims", "approximated", text)


def _sample_shape(source: SourceWorkload) -> tuple[int, ...]:
    if source["dataset.record_dims"]:
        return natural_numbers(source, "dataset.record_dims")
    return (math.isqrt(int(source["dataset.record_length_bytes"])),) * 2
