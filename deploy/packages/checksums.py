"""SHA256SUMS: the sum of every file of a release, in the format of `sha256sum --check`.

Runs after all other modules. Invariant: it lists every file in the folder but itself.
"""

import hashlib
from pathlib import Path

from release import Release

NAME = "SHA256SUMS"


def pack(release: Release) -> list[Path]:
    """Writes the sums of all files that were packed before."""
    files = sorted(path for path in release.out.iterdir() if path.name != NAME)
    lines = [f"{sum_of(path)}  {path.name}\n" for path in files]
    sums = release.out / NAME
    sums.write_text("".join(lines), encoding="utf-8", newline="\n")
    return [sums]


def sum_of(path: Path) -> str:
    """A file's SHA-256, in hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
