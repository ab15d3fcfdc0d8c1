"""Decompression of files that are compressed as a whole: a file is one gzip stream (RFC 1952) or one zlib stream
(RFC 1950). As in TensorFlow, a gzip file may have several members, one after the other.
"""

import zlib
from collections.abc import Callable

# Values of zlib's parameter wbits, by the value of dataset.compression.
_WINDOWS = {"gzip": 16 + zlib.MAX_WBITS, "zlib": zlib.MAX_WBITS}
# Largest number of bytes that are decompressed at a time, as in TensorFlow (ZlibCompressionOptions.output_buffer_size).
PIECE = 256 << 10
# First bytes of compressed files, and their compression. A zlib stream has a window of 32 KiB.
MAGICS = {b"\x1f\x8b": "gzip", **dict.fromkeys((b"\x78\x01", b"\x78\x5e", b"\x78\x9c", b"\x78\xda"), "zlib")}


class Damaged(Exception):
    """A compressed stream is truncated or corrupted. The message names the bytes of the file."""


class Inflate:
    """Decompressor of a file, which is read from its beginning. It keeps one piece of compressed bytes. compression:
    gzip or zlib. fetch: function that returns the next bytes of the file; no bytes at its end.
    """

    def __init__(self, compression: str, fetch: Callable[[], bytes | memoryview]) -> None:
        self._window = _WINDOWS[compression]
        self._fetch = fetch
        self._stream = zlib.decompressobj(self._window)
        self._packed: bytes | memoryview = b""
        self._may_hold_more = False
        self.fetched = 0
        self.members = 1

    def piece(self) -> bytes:
        """Return the next decompressed bytes, at most 256 KiB; no bytes at the end of the file. Raise Damaged if the
        file is truncated or corrupted.
        """
        piece = b""
        while not piece:
            if self._stream.eof and not self._begin_member():
                return b""
            if not self._packed and not self._may_hold_more and not self._more():
                raise Damaged(f"the file ends at byte {self.fetched}, before the end of its compressed stream")
            piece = self._decompressed()
        return piece

    def _decompressed(self) -> bytes:
        begin = self.fetched - len(self._packed)
        try:
            piece = self._stream.decompress(self._packed, PIECE)
        except zlib.error as fault:
            raise Damaged(f"between byte {begin} and byte {self.fetched}: {_words(fault)}") from fault
        self._packed = self._stream.unconsumed_tail
        self._may_hold_more = len(piece) == PIECE
        return piece

    def _begin_member(self) -> bool:
        """Begin the next member of a gzip file. Return False at the end of the file."""
        self._packed, self._may_hold_more = self._stream.unused_data, False
        if not self._packed and not self._more():
            return False
        if self._window == zlib.MAX_WBITS:
            raise Damaged(f"bytes follow at byte {self.fetched - len(self._packed)}, where its zlib stream ends")
        self._stream = zlib.decompressobj(self._window)
        self.members += 1
        return True

    def _more(self) -> bool:
        """Fetch more compressed bytes. Return False at the end of the file."""
        self._packed = self._fetch()
        self.fetched += len(self._packed)
        return len(self._packed) > 0


def _words(fault: zlib.error) -> str:
    """Return zlib's message without the number of the error."""
    return str(fault).rpartition(": ")[2]
