"""Facts about each file format, one row per format. Rules, advice and plans are derived from them."""

from typing import Literal, NamedTuple

FormatName = Literal["tfrecord", "hdf5", "npz", "npy", "jpeg", "png", "raw", "csv", "parquet", "tar", "zarr", "null"]
Compression = Literal["none", "gzip", "zlib", "lzf", "zstd", "blosc"]


class FormatFacts(NamedTuple):
    """Facts about a format. title: name in a sentence. library: library that reads the format in framework mode with
    the native loader; empty if dlio-hpc makes the requests itself. loads_whole: whether the library loads the whole
    file to read one sample. chooses_requests: whether the library chooses the size of its requests. caches_open:
    whether a reader keeps data of a file that stays open. stays_open: whether a file stays open in framework mode
    between samples. holds_arrays: whether a file can hold several arrays. holds_bytes: whether samples are bytes
    without a shape. holds_image: whether a file is an encoded image. maps: whether the library can map files into
    memory. least: smallest size of a sample in bytes. compressions: compressions that the format supports. streams:
    whether the native loader reads files front to back in framework mode. splits_samples: whether a sample may need
    several requests, although the dataset has no arrays. size_step: number of bytes of which random sizes of samples
    differ from the mean by a multiple. varies_arrays: whether samples of several arrays may have random sizes.
    timed_call: what reports call a timed read in framework mode; empty for a request to the operating system.
    packs_files: whether a file is compressed as a whole, so that none of its samples can be read alone. has_chunks:
    whether the array in a file can be divided into chunks. is_store: whether a file is a folder with an array, whose
    chunks are files. package: name
    in plan/packages.py of the package that framework mode needs in addition to the dependencies of dlio-hpc.
    suffixes: ends of the names of the files that a container has, if it has several; see dataset/stored_parts.py.
    """

    title: str
    library: str = ""
    loads_whole: bool = False
    chooses_requests: bool = False
    caches_open: bool = False
    stays_open: bool = False
    holds_arrays: bool = False
    holds_bytes: bool = False
    holds_image: bool = False
    maps: bool = False
    least: int = 1
    compressions: tuple[Compression, ...] = ("none",)
    packs_files: bool = False
    streams: bool = False
    splits_samples: bool = False
    size_step: int = 1
    varies_arrays: bool = False
    timed_call: str = ""
    has_chunks: bool = False
    is_store: bool = False
    package: str = ""
    suffixes: tuple[str, ...] = ()


_IMAGE = FormatFacts(
    "", "Pillow", loads_whole=True, chooses_requests=True, holds_bytes=True, holds_image=True, package="pillow",
    least=1024,  # headers, and a picture of a few pixels
)  # fmt: skip

FORMATS: dict[FormatName, FormatFacts] = {
    "tfrecord": FormatFacts(
        "TFRecord", stays_open=True, streams=True, compressions=("none", "gzip", "zlib"), packs_files=True
    ),
    "hdf5": FormatFacts(
        "HDF5",
        "h5py",
        caches_open=True,
        stays_open=True,
        holds_arrays=True,
        has_chunks=True,
        compressions=("none", "gzip", "lzf"),
        timed_call="one read by h5py",
    ),
    "npz": FormatFacts(
        "NumPy", "NumPy", loads_whole=True, holds_arrays=True, compressions=("none", "gzip"), packs_files=True
    ),
    "npy": FormatFacts(
        "NumPy array", "NumPy", loads_whole=True, chooses_requests=True, maps=True, timed_call="one numpy.load"
    ),
    "jpeg": _IMAGE._replace(title="JPEG"),
    "png": _IMAGE._replace(title="PNG"),
    "raw": FormatFacts("plain bytes", "Python", loads_whole=True, holds_bytes=True),
    "csv": FormatFacts("CSV", "pandas", loads_whole=True, chooses_requests=True, package="pandas"),
    "parquet": FormatFacts(
        "Parquet",
        "pyarrow",
        chooses_requests=True,
        caches_open=True,
        stays_open=True,
        splits_samples=True,
        package="pyarrow",
    ),
    "tar": FormatFacts(
        "webdataset shards",
        stays_open=True,
        holds_arrays=True,
        streams=True,
        splits_samples=True,
        size_step=512,
        varies_arrays=True,
        timed_call="one sample by tarfile",
    ),
    "zarr": FormatFacts(
        "Zarr",
        "zarr-python",
        chooses_requests=True,
        stays_open=True,
        has_chunks=True,
        is_store=True,
        compressions=("none", "gzip", "zlib", "zstd", "blosc"),
        package="zarr",
    ),
    "null": FormatFacts("no data"),
}
