"""Facts about each file format, one row per format. Rules, advice and plans are derived from them."""

from typing import Literal, NamedTuple

FormatName = Literal[
    "tfrecord", "hdf5", "npz", "npy", "jpeg", "png", "raw", "csv", "parquet", "tar", "indexed", "zarr", "null"
]  # fmt: skip
Compression = Literal["none", "gzip", "zlib", "lzf", "zstd", "blosc"]
# Keys of dataset.existing that tell how samples are stored.
ExistingKey = Literal["array", "sample_bytes", "rows"]


class FormatFacts(NamedTuple):
    """Facts about a format.

    Contents. title: name in a sentence. holds_data: whether there are files. holds_arrays: whether a file can hold
    several arrays. holds_bytes: whether samples are bytes without a shape. holds_image: whether a file is an encoded
    image. has_quality: whether the encoding loses details, so that images have a quality. holds_text: whether a file is
    text, so that its size follows from the number of values. holds_records: whether samples are TFRecord's records,
    with checksums. holds_columns: whether the values of a sample are in columns and row groups. holds_chunks: whether
    an array can be stored in chunks. holds_members: whether the arrays of a sample are members of an archive, whose
    sizes may vary. holds_tokens: whether a file holds tokens of documents, which an index beside it describes.
    is_store: whether a file is a folder with an array, whose chunks are files. packs_files: whether a file is
    compressed as a whole, so that none of its samples can be read alone.

    Sizes. least, most: smallest and largest size of a sample, or of its largest array, in bytes. size_step: number of
    bytes of which random sizes of samples differ from the mean by a multiple. fits_blocks: whether the samples of a
    generated file begin at a block of the file. compressions: compressions that the format supports.

    Reading. library: library that reads the format in framework mode with the native loader; empty if dlio-hpc makes
    the requests itself. package: name in plan/packages.py of the package that framework mode needs in addition to the
    dependencies of dlio-hpc. loads_whole: whether the library loads the whole file to read one sample.
    chooses_requests: whether the library chooses the size of its requests. caches_open: whether a reader keeps data of
    a file that stays open. stays_open: whether a file stays open in framework mode between samples. reopens: whether
    framework mode can open a file again for each sample. reads_together: whether the library reads collectively.
    maps: whether the library can map files into memory. streams: whether the native loader reads files front to back in
    framework mode. splits_samples: whether a sample may need several requests, although the dataset has no arrays.
    timed_call: what reports call a timed read in framework mode; empty for a request to the operating system.
    existing_keys: keys of dataset.existing that tell how samples are stored in existing files; None if existing files
    of the format cannot be read.

    Files. suffixes: ends of the names of the files that a container has, if it has several; see
    dataset/stored_parts.py.
    """

    title: str
    library: str = ""
    holds_data: bool = True
    holds_arrays: bool = False
    holds_bytes: bool = False
    holds_image: bool = False
    has_quality: bool = False
    holds_text: bool = False
    holds_records: bool = False
    holds_columns: bool = False
    holds_chunks: bool = False
    holds_members: bool = False
    holds_tokens: bool = False
    packs_files: bool = False
    least: int = 1
    most: int = 2**63 - 1
    size_step: int = 1
    fits_blocks: bool = False
    compressions: tuple[Compression, ...] = ("none",)
    package: str = ""
    loads_whole: bool = False
    chooses_requests: bool = False
    caches_open: bool = False
    stays_open: bool = False
    reopens: bool = False
    reads_together: bool = False
    maps: bool = False
    streams: bool = False
    splits_samples: bool = False
    timed_call: str = ""
    is_store: bool = False
    existing_keys: tuple[ExistingKey, ...] | None = None
    suffixes: tuple[str, ...] = ()

    @property
    def chunks_in_file(self) -> bool:
        """Whether an array can be stored in chunks that are parts of a file, and not files of their own."""
        return self.holds_chunks and not self.is_store


_IMAGE = FormatFacts(
    "",
    "Pillow",
    holds_bytes=True,
    holds_image=True,
    least=1024,  # headers, and a picture of a few pixels
    package="pillow",
    loads_whole=True,
    chooses_requests=True,
    existing_keys=(),
)

FORMATS: dict[FormatName, FormatFacts] = {
    "tfrecord": FormatFacts(
        "TFRecord",
        holds_records=True,
        packs_files=True,
        compressions=("none", "gzip", "zlib"),
        stays_open=True,
        reopens=True,
        streams=True,
        existing_keys=(),
    ),
    "hdf5": FormatFacts(
        "HDF5",
        "h5py",
        holds_arrays=True,
        holds_chunks=True,
        compressions=("none", "gzip", "lzf"),
        caches_open=True,
        stays_open=True,
        reopens=True,
        reads_together=True,
        timed_call="one read by h5py",
        existing_keys=("array",),
    ),
    "npz": FormatFacts(
        "NumPy",
        "NumPy",
        holds_arrays=True,
        packs_files=True,
        fits_blocks=True,
        compressions=("none", "gzip"),
        loads_whole=True,
        existing_keys=("array",),
    ),
    "npy": FormatFacts(
        "NumPy array",
        "NumPy",
        loads_whole=True,
        chooses_requests=True,
        maps=True,
        timed_call="one numpy.load",
        existing_keys=("rows",),
    ),
    "jpeg": _IMAGE._replace(title="JPEG", has_quality=True),
    "png": _IMAGE._replace(title="PNG"),
    "raw": FormatFacts(
        "plain bytes",
        "Python",
        holds_bytes=True,
        fits_blocks=True,
        loads_whole=True,
        existing_keys=("sample_bytes",),
    ),
    "csv": FormatFacts("CSV", "pandas", holds_text=True, package="pandas", loads_whole=True, chooses_requests=True),
    "parquet": FormatFacts(
        "Parquet",
        "pyarrow",
        holds_columns=True,
        package="pyarrow",
        chooses_requests=True,
        caches_open=True,
        stays_open=True,
        splits_samples=True,
        existing_keys=(),
    ),
    "tar": FormatFacts(
        "webdataset shards",
        holds_arrays=True,
        holds_members=True,
        most=2**33 - 1,  # the header (POSIX ustar) has eleven octal digits for the size of a member
        size_step=512,
        stays_open=True,
        streams=True,
        splits_samples=True,
        timed_call="one sample by tarfile",
        existing_keys=(),
    ),
    "indexed": FormatFacts(
        "Megatron's IndexedDataset",
        holds_tokens=True,
        chooses_requests=True,
        stays_open=True,
        maps=True,
        splits_samples=True,
        existing_keys=("sample_bytes",),
        suffixes=(".bin", ".idx"),
    ),
    "zarr": FormatFacts(
        "Zarr",
        "zarr-python",
        holds_chunks=True,
        is_store=True,
        compressions=("none", "gzip", "zlib", "zstd", "blosc"),
        package="zarr",
        chooses_requests=True,
        stays_open=True,
        existing_keys=("array",),
    ),
    "null": FormatFacts("no data", holds_data=False),
}
