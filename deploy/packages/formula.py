"""The Homebrew formula, with the address and the sum of each archive that Homebrew can use.

Runs after `archives.py`. Invariant: it names no archive that this release doesn't have, and its
sums are those of the archives as they were written.
"""

from pathlib import Path

import archives
import checksums
from release import Binary, Release

NAME = "moongate.rb"

SYSTEMS = {"darwin": "on_macos", "linux": "on_linux"}
MACHINES = {"arm64": "on_arm", "x64": "on_intel"}


def pack(release: Release) -> list[Path]:
    """Writes the formula, if there is an archive for macOS or Linux."""
    blocks = [block for system in SYSTEMS if (block := system_block(release, system))]
    if not blocks:
        return []
    text = release.text(f"deploy/packages/{NAME}.in")
    values = {
        "REPOSITORY": release.repository,
        "VERSION": release.version,
        "LICENSE": release.license,
        "ARCHIVES": "\n".join(blocks),
        "MANUAL": '    man1.install "man/moongate.1"\n' if release.manual() else "",
    }
    for key, value in values.items():
        text = text.replace(f"@{key}@", value)
    path = release.out / NAME
    path.write_text(text, encoding="utf-8", newline="\n")
    return [path]


def system_block(release: Release, system: str) -> str:
    """The archives of a system, by processor. Empty if it has none."""
    found = {}
    for machine, block in MACHINES.items():
        if binary := best(release, system, machine):
            name = archives.file_name(release, binary)
            url, sum_ = release.download_url(name), checksums.sum_of(release.out / name)
            found[block] = f'      url "{url}"\n      sha256 "{sum_}"\n'
    if not found:
        return ""
    inner = "\n".join(f"    {block} do\n{lines}    end\n" for block, lines in found.items())
    return f"  {SYSTEMS[system]} do\n{inner}  end\n"


def best(release: Release, system: str, machine: str) -> Binary | None:
    """The binary for a machine: Homebrew on Linux has a glibc, so the static one comes last."""
    found = [
        binary
        for binary in release.binaries
        if (binary.target.system, binary.target.machine) == (system, machine)
    ]
    return min(found, key=lambda binary: binary.target.libc == "musl", default=None)
