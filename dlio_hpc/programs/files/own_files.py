"""Files that a program wrote itself before it read them: copies of a dataset on a local disk, caches, and files that
were renamed after they were written. They are not a dataset, because a dataset exists before the program starts. They
are checkpoints only if they have names of models.
"""

import os
import re
from collections.abc import Mapping, Sequence

from dlio_hpc.programs.files.file_stats import FileStats

# Share of a file that a program must have written for its data to be the program's own, and share of the bytes written
# that it must have read again: libraries read back headers of the files that they write.
_MOSTLY = 0.5
# A file that was written more often than this is overwritten again and again, as a checkpoint is.
_ONCE = 1.5
# Bytes from which on two files of the same size are unlikely to have it by chance.
_NOTABLE = 4096
# Endings of temporary names, such as model.index.tempstate4356: not every libdarshan counts that files are renamed.
_TEMPORARY = re.compile(r"[._-](?:tmp|temp|part|partial|incomplete)", re.IGNORECASE)


def of(files: Sequence[FileStats]) -> dict[str, FileStats]:
    """Return the files that the program wrote before it read them, and the former paths of these files, as a dict by
    path. Bytes and times of writes to a former path are included.
    """
    by_path = {file.path: file for file in files}
    sources = {file.path: file.renamed_from for file in files if file.renamed_from}
    sources = {**_by_names(by_path), **sources}
    own: dict[str, FileStats] = {}
    for file in files:
        source = by_path.get(sources.get(file.path, ""))
        made = _as_written(file, source)
        if _is_own(made, is_renamed=made is not file):
            own[file.path] = made
            if source is not None and made is not file and not source.bytes_read:
                own[source.path] = source
    return own


def _by_names(files: Mapping[str, FileStats]) -> dict[str, str]:
    """Return the former path of files that were read but not written. A file has a former path if as many bytes were
    written under a temporary name. In addition, the file must have the temporary name without its suffix, or must be
    the only file of this size that was read later. Example: TensorFlow writes DIR/cache_0.data.tempstate4356 and reads
    DIR/cache.data.
    """
    sources = {}
    read = [file for file in files.values() if file.bytes_read and not file.bytes_written]
    for path, file in files.items():
        folder, name = os.path.split(path)
        for match in _TEMPORARY.finditer(name) if file.bytes_written and not file.bytes_read else ():
            target = files.get(os.path.join(folder, name[: match.start()])) or _later(read, file)
            if target is not None and not target.bytes_written and file.written_end >= target.size:
                sources[target.path] = path
    return sources


def _later(read: Sequence[FileStats], written: FileStats) -> FileStats | None:
    """Return the only file in the folder of a temporary file that has the same size and was read after the temporary
    file was written.
    """
    folder, end = os.path.dirname(written.path), written.written_s
    same = [
        file for file in read
        if file.size == written.written_end >= _NOTABLE and os.path.dirname(file.path) == folder
        and file.read_s is not None and end is not None and end[1] <= file.read_s[0]
    ]  # fmt: skip
    return same[0] if len(same) == 1 else None


def _as_written(file: FileStats, source: FileStats | None) -> FileStats:
    """Return a file with the writes to its former path. source: accesses to the former path."""
    if source is None or file.bytes_written or not source.bytes_written:
        return file
    return file._replace(bytes_written=source.bytes_written, written_s=source.written_s, written_end=source.written_end)


def _is_own(file: FileStats, is_renamed: bool) -> bool:
    if file.written_s is None or file.read_s is None or file.written_s[0] >= file.read_s[0]:
        return False
    # Several files may have been written under one name before they were renamed.
    once = file.written_end if is_renamed else file.bytes_written
    return _MOSTLY * file.size <= once <= _ONCE * file.size and file.bytes_read >= _MOSTLY * min(once, file.size)
