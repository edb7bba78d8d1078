"""The outer form of a .deb: an ar archive with two tarballs (deb(5)).

Knows nothing about Moongate. Invariant: the same entries give the same bytes, without dpkg-deb.
"""

import io
import lzma
import tarfile
from pathlib import Path, PurePosixPath

from streams import Entry

# A third of the time of level 2 and a sixth of level 6, for 2 % and 17 % more bytes.
LEVEL = 1


def write(path: Path, control: list[Entry], data: list[Entry], date: int) -> Path:
    """Writes a package with its control files and its data files."""
    members = [
        ("debian-binary", b"2.0\n"),
        ("control.tar.xz", tar_xz(control, date)),
        ("data.tar.xz", tar_xz(data, date)),
    ]
    with path.open("wb") as file:
        file.write(b"!<arch>\n")
        for name, content in members:
            # name, time, owner, group, mode, size
            header = f"{name:<16}{date:<12}{0:<6}{0:<6}{0o100644:<8o}{len(content):<10}`\n"
            file.write(header.encode())
            # Members begin at even offsets.
            file.write(content + b"\n" * (len(content) % 2))
    return path


def tar_xz(entries: list[Entry], date: int) -> bytes:
    """A tarball with the entries in order of their names, and their folders before them."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for folder in folders(entries):
            header = tarfile.TarInfo(f"./{folder}" if folder != "." else ".")
            header.type, header.mode, header.mtime = tarfile.DIRTYPE, 0o755, date
            header.uname = header.gname = "root"
            archive.addfile(header)
        for entry in sorted(entries, key=lambda entry: entry.name):
            header = tarfile.TarInfo(f"./{entry.name}")
            header.size, header.mode, header.mtime = len(entry.data), entry.mode, date
            header.uname = header.gname = "root"
            archive.addfile(header, io.BytesIO(entry.data))
    return lzma.compress(buffer.getbuffer(), preset=LEVEL)


def folders(entries: list[Entry]) -> list[str]:
    """Every folder above the entries, outer ones first, starting with the root."""
    found = {str(parent) for entry in entries for parent in PurePosixPath(entry.name).parents}
    return sorted(found, key=lambda folder: (folder != ".", folder))
