"""Cache of compiled templates in the user's cache directory. Compiling takes a tenth of the time of a dry run."""

from contextlib import suppress

import jinja2
from jinja2.bccache import Bucket

from dlio_hpc import __version__
from dlio_hpc.files import user_folders


class TemplateCache(jinja2.FileSystemBytecodeCache):
    """Cache that never fails: a file that cannot be read or written is ignored."""

    def load_bytecode(self, bucket: Bucket) -> None:
        try:
            super().load_bytecode(bucket)
        except Exception:  # noqa: BLE001 - whatever a damaged file causes
            bucket.reset()

    def dump_bytecode(self, bucket: Bucket) -> None:
        with suppress(OSError):
            super().dump_bytecode(bucket)


def of_user() -> TemplateCache | None:
    """Return the cache of the user, or None if the user has no directory that only they can write to."""
    folder = user_folders.private_cache()
    return None if folder is None else TemplateCache(str(folder), f"{__version__}-%s.cache")
