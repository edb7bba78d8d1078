#!/usr/bin/env python3
"""Packs one kind of package around a test binary, without the checks of pack.py.

    make_release.py [--version X.Y.Z] [--targets A,B] [--program FILE] BINARY OUT KIND...

Calls the modules in deploy/packages as pack.py does, so a test can have a second version, other
targets around the same bytes, or a small program instead of the binary, which then only prints the
completions. Prints the path of each file. Invariant: the source tree isn't touched.
"""

import argparse
import platform
import subprocess
import sys
import tomllib
from importlib import import_module
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# In front of tests/packages, which has a formula.py, too.
sys.path.insert(0, str(ROOT / "deploy/packages"))

import executables  # noqa: E402
from release import TARGETS, Binary, Release  # noqa: E402

# A day in 2026, so that packages made on different days are the same.
DATE = 1_780_000_000

# Until the manual is generated, its place in the packages is tried with this.
MANUAL = b'.TH MOONGATE 1\n.SH NAME\nmoongate \\- a gateway for MCP servers\n'


class TestRelease(Release):
    """A release that has a man page in any case."""

    def manual(self) -> bytes:
        return super().manual() or MANUAL


def release_of(
    binary: Path,
    out: Path,
    triples: list[str],
    version: str | None = None,
    program: Path | None = None,
) -> TestRelease:
    """A release in which all targets have the same program."""
    glibc = executables.read(binary).glibc()
    out.mkdir(parents=True, exist_ok=True)
    return TestRelease(
        version=version or tree_version(),
        root=ROOT,
        out=out,
        binaries=[
            Binary(target, program or binary, glibc if target.libc == "gnu" else None)
            for target in map(TARGETS.get, triples)
        ],
        date=DATE,
        completions={shell: completions(binary, shell) for shell in ["bash", "zsh", "fish"]},
    )


def completions(binary: Path, shell: str) -> bytes:
    """What the binary prints for a shell."""
    command = [str(binary.resolve()), "completions", shell]
    return subprocess.run(command, check=True, capture_output=True).stdout


def tree_version() -> str:
    """The version of the source tree."""
    cargo = tomllib.loads((ROOT / "Cargo.toml").read_text(encoding="utf-8"))
    return cargo["workspace"]["package"]["version"]


def main() -> None:
    """Packs as the command line says."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--version")
    parser.add_argument("--targets", default=f"{platform.machine()}-unknown-linux-gnu")
    parser.add_argument("--program", type=Path)
    parser.add_argument("binary", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("kinds", nargs="+")
    options = parser.parse_args()
    release = release_of(
        options.binary, options.out, options.targets.split(","), options.version, options.program
    )
    for kind in options.kinds:
        for path in import_module(kind).pack(release):
            print(path)


if __name__ == "__main__":
    main()
