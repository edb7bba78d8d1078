"""What a release consists of: its version, its binaries, and the targets that Moongate knows.

Describes only. `binaries.py` checks what it finds, and one module a kind writes the packages.
Invariant: every package of a release is made from the same `Release`.
"""

import functools
import tomllib
from dataclasses import dataclass, field
from pathlib import Path

# The publisher isn't known yet. This is the only place that names one; `--repository` overrides it.
DEFAULT_REPOSITORY = "https://github.com/OWNER/moongate"


class PackError(Exception):
    """A reason not to pack, which the user reads after `error: `."""


@functools.cache
def contents(path: Path) -> bytes:
    """The bytes of a binary, read once."""
    return path.read_bytes()


@dataclass(frozen=True)
class Target:
    """A kind of machine, in the words of Rust (`triple`), Node.js and Debian."""

    triple: str
    system: str  # process.platform of Node.js: linux, darwin, win32
    machine: str  # process.arch of Node.js: x64, arm64
    libc: str | None = None  # gnu or musl, on Linux alone
    debian: str | None = None  # amd64 or arm64, for the binary that the .deb has

    @property
    def program(self) -> str:
        """The binary's file name."""
        return "moongate.exe" if self.system == "win32" else "moongate"


# Debian has glibc, so the static musl binaries don't go into a .deb.
TARGETS = {
    target.triple: target
    for target in [
        Target("x86_64-unknown-linux-gnu", "linux", "x64", "gnu", "amd64"),
        Target("aarch64-unknown-linux-gnu", "linux", "arm64", "gnu", "arm64"),
        Target("x86_64-unknown-linux-musl", "linux", "x64", "musl"),
        Target("aarch64-unknown-linux-musl", "linux", "arm64", "musl"),
        Target("x86_64-apple-darwin", "darwin", "x64"),
        Target("aarch64-apple-darwin", "darwin", "arm64"),
        Target("x86_64-pc-windows-gnu", "win32", "x64"),
        Target("x86_64-pc-windows-msvc", "win32", "x64"),
        Target("aarch64-pc-windows-msvc", "win32", "arm64"),
    ]
}


@dataclass(frozen=True)
class Binary:
    """A checked binary."""

    target: Target
    path: Path
    # The newest GLIBC_x.y that its symbols need; None where it doesn't use glibc.
    glibc: tuple[int, int] | None = None
    # The oldest macOS that it says it runs on.
    macos: tuple[int, int] | None = None

    def read(self) -> bytes:
        """The bytes that go into every package of this target."""
        return contents(self.path)


@dataclass(frozen=True)
class Release:
    """Everything that the modules pack."""

    version: str
    root: Path  # the source tree
    out: Path  # the folder that packages are written to
    binaries: list[Binary]
    date: int  # seconds since 1970, the time of every packed file
    repository: str = DEFAULT_REPOSITORY
    # Printed by one of the binaries, by shell: bash, zsh, fish.
    completions: dict[str, bytes] = field(default_factory=dict)

    def text(self, path: str) -> str:
        """The text of a file in the source tree."""
        return (self.root / path).read_text(encoding="utf-8")

    @property
    def package(self) -> dict:
        """The table `[package]` of Cargo.toml, with the description and the keywords."""
        return tomllib.loads(self.text("Cargo.toml"))["package"]

    @property
    def license(self) -> str:
        """The license as an SPDX expression."""
        return tomllib.loads(self.text("Cargo.toml"))["workspace"]["package"]["license"]

    def manual(self) -> bytes | None:
        """The man page, which a test generates from the commands."""
        path = self.root / "deploy/packages/moongate.1"
        return path.read_bytes() if path.exists() else None

    def download_url(self, name: str) -> str:
        """Where users get a file of this release."""
        return f"{self.repository}/releases/download/v{self.version}/{name}"
