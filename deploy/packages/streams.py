"""Archives whose bytes depend on their contents alone: tar.gz and zip.

A program is compressed once for all its packages: both formats hold deflate blocks, which can be
put together from pieces. Knows nothing about packages. Invariant: owner, time and order come from
the caller or are fixed, so the same entries give the same bytes on every machine.
"""

import functools
import struct
import tarfile
import time
import zlib
from dataclasses import dataclass
from pathlib import Path

# Half the time of level 6, for 1 % more bytes.
LEVEL = 5

# From this size on, what was compressed is kept for the next package: that is the programs alone.
KEPT_SIZE = 1 << 20

# An empty last block with fixed codes (RFC 1951, 3.2.6).
LAST_BLOCK = b"\x03\x00"


@dataclass(frozen=True)
class Entry:
    """A file in an archive."""

    name: str
    data: bytes
    is_program: bool = False

    @property
    def mode(self) -> int:
        """The permissions: only programs can be executed."""
        return 0o755 if self.is_program else 0o644


def deflate(data: bytes) -> bytes:
    """Deflate blocks that end at a whole byte and refer to nothing before, without the last one."""
    return deflate_once(data) if len(data) >= KEPT_SIZE else deflate_again(data)


def deflate_again(data: bytes) -> bytes:
    """Compresses the data."""
    stream = zlib.compressobj(LEVEL, zlib.DEFLATED, -zlib.MAX_WBITS)
    return stream.compress(data) + stream.flush(zlib.Z_FULL_FLUSH)


deflate_once = functools.cache(deflate_again)


def write_tar_gz(path: Path, entries: list[Entry], date: int) -> Path:
    """Writes a tar.gz in the order of the entries."""
    pieces: list[bytes] = []
    for entry in entries:
        header = tarfile.TarInfo(entry.name)
        header.size, header.mode, header.mtime = len(entry.data), entry.mode, date
        padding = bytes(-len(entry.data) % tarfile.BLOCKSIZE)
        pieces += [header.tobuf(tarfile.USTAR_FORMAT), entry.data, padding]
    pieces.append(bytes(2 * tarfile.BLOCKSIZE))
    checksum = functools.reduce(lambda sum_, piece: zlib.crc32(piece, sum_), pieces, 0)
    size = sum(map(len, pieces)) % 2**32
    with path.open("wb") as file:
        # No name and no time; written on an unknown system (RFC 1952, 2.3.1).
        file.write(b"\x1f\x8b\x08" + bytes(6) + b"\xff")
        file.writelines(deflate(piece) for piece in pieces)
        file.write(LAST_BLOCK + struct.pack("<II", checksum, size))
    return path


def write_zip(path: Path, entries: list[Entry], date: int) -> Path:
    """Writes a zip in the order of the entries (APPNOTE.TXT 4.3; no entry has 4 GiB)."""
    year, month, day, hour, minute, second = time.gmtime(date)[:6]
    moment = (
        hour << 11 | minute << 5 | second // 2,
        (year - 1980) << 9 | month << 5 | day,
    )
    directory = b""
    with path.open("wb") as file:
        for entry in entries:
            name, offset = entry.name.encode(), file.tell()
            data = deflate(entry.data) + LAST_BLOCK
            sizes = zlib.crc32(entry.data), len(data), len(entry.data), len(name), 0
            # Version 2.0 for deflate, no flags, method 8.
            common = struct.pack("<5H3I2H", 20, 0, 8, *moment, *sizes)
            # "Made by" Unix, so unpackers take the permissions from the external attributes.
            attributes = (0, 0, 0, (0o100000 | entry.mode) << 16, offset)
            directory += struct.pack("<4sH", b"PK\1\2", 3 << 8 | 20) + common
            directory += struct.pack("<3H2I", *attributes) + name
            file.write(b"PK\3\4" + common + name + data)
        end = (0, 0, len(entries), len(entries), len(directory), file.tell(), 0)
        file.write(directory + struct.pack("<4s4H2IH", b"PK\5\6", *end))
    return path
