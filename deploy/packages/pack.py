#!/usr/bin/env python3
"""Packs binaries that are already built: archives, npm packages, wheels, .deb, formula, sums.

Reads the command line and calls the modules in order. Never builds, and needs no network.
Invariant: the same input gives the same bytes, and a bad binary ends the run before any package.
"""

import argparse
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import archives
import binaries
import checksums
import debian
import formula
import installer
import npm
import wheels
from release import DEFAULT_REPOSITORY, PackError, Release

# In this order: the formula has sums of the archives, and SHA256SUMS is last.
KINDS = [archives, npm, wheels, debian, formula, installer, checksums]

# The oldest time that a zip file can hold: 1980-01-01.
OLDEST_DATE = 315_532_800


def main(arguments: list[str]) -> int:
    """Packs as the arguments say. Returns the exit code."""
    options = parse(arguments)
    try:
        release = describe(options)
        for kind in KINDS:
            for path in kind.pack(release):
                print(f"{path.stat().st_size / 1e6:8.2f} MB  {path.name}")
    except (PackError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


def parse(arguments: list[str]) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description="Pack built binaries for every package manager.")
    parser.add_argument(
        "binaries", type=Path, help="folder with TARGET/moongate (or moongate.exe) for each target"
    )
    parser.add_argument("out", type=Path, help="empty or new folder that packages are written to")
    parser.add_argument(
        "--repository",
        metavar="URL",
        default=DEFAULT_REPOSITORY,
        help="where the release is published (default: %(default)s)",
    )
    parser.add_argument(
        "--manylinux",
        metavar="X_Y",
        type=glibc_version,
        help="refuse a binary that needs a newer glibc, for example 2_17",
    )
    return parser.parse_args(arguments)


def glibc_version(text: str) -> tuple[int, int]:
    """Reads `2_17` or `2.17`."""
    major, minor = text.replace(".", "_").split("_")
    return int(major), int(minor)


def describe(options: argparse.Namespace) -> Release:
    """The release that the options and the source tree make."""
    root = Path(__file__).resolve().parents[2]
    cargo = tomllib.loads((root / "Cargo.toml").read_text(encoding="utf-8"))
    version = cargo["workspace"]["package"]["version"]
    found = binaries.find(options.binaries, version, options.manylinux)
    options.out.mkdir(parents=True, exist_ok=True)
    # An older package left there would end up in the upload, without a line in SHA256SUMS.
    if any(options.out.iterdir()):
        raise PackError(f"{options.out} is not empty; name a new folder")
    return Release(
        version=version,
        root=root,
        out=options.out,
        binaries=found,
        date=release_date(root),
        repository=options.repository.removesuffix("/").removesuffix(".git"),
        completions=binaries.completions(found),
    )


def release_date(root: Path) -> int:
    """SOURCE_DATE_EPOCH, else the time of the commit: never the clock, so bytes can be compared."""
    if date := os.environ.get("SOURCE_DATE_EPOCH"):
        return max(int(date), OLDEST_DATE)
    commit = ["git", "-C", str(root), "log", "-1", "--format=%ct"]
    try:
        said = subprocess.run(commit, capture_output=True, text=True, check=True).stdout
        return max(int(said), OLDEST_DATE)
    except (OSError, subprocess.CalledProcessError, ValueError):
        return OLDEST_DATE


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
