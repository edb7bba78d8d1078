"""Wheels: the binary as a script, as maturin packs one with `bindings = "bin"`.

Takes the metadata from pyproject.toml, which builds from source use as well.
Invariant: a wheel's tag promises no system that the binary's own headers rule out.
"""

import base64
import hashlib
import tomllib
from pathlib import Path

import readme
from release import Binary, PackError, Release
from streams import Entry, write_zip

MACHINES = {
    ("linux", "x64"): "x86_64",
    ("linux", "arm64"): "aarch64",
    ("darwin", "x64"): "x86_64",
    ("darwin", "arm64"): "arm64",
    ("win32", "x64"): "amd64",
    ("win32", "arm64"): "arm64",
}

# The oldest that Rust builds for. manylinux2014 is the older name of glibc 2.17.
OLDEST_GLIBC = (2, 17)
OLDEST_MACOS = {"x64": (10, 12), "arm64": (11, 0)}

PRERELEASES = {"alpha": "a", "beta": "b", "rc": "rc"}


def pack(release: Release) -> list[Path]:
    """Writes a wheel for each binary."""
    return [pack_one(release, binary) for binary in release.binaries]


def tag(binary: Binary) -> str:
    """The platform tag. Several tags in one are joined by dots."""
    target = binary.target
    machine = MACHINES[target.system, target.machine]
    if target.system == "win32":
        return f"win_{machine}"
    if target.system == "darwin":
        major, minor = max(binary.macos, OLDEST_MACOS[target.machine])
        # From macOS 11 on, pip knows only major versions: what needs 13.3 is for 14.
        if major > 10:
            major, minor = major + (minor > 0), 0
        return f"macosx_{major}_{minor}_{machine}"
    if target.libc == "musl":
        # Static, so it runs on older ones, too; 1.2 is the oldest that pip's users still have.
        return f"musllinux_1_2_{machine}"
    major, minor = max(binary.glibc, OLDEST_GLIBC)
    older_name = f".manylinux2014_{machine}" if (major, minor) == OLDEST_GLIBC else ""
    return f"manylinux_{major}_{minor}_{machine}{older_name}"


def pack_one(release: Release, binary: Binary) -> Path:
    """Writes the wheel of one binary."""
    name = f"moongate-{python_version(release.version)}"
    info, platform = f"{name}.dist-info", tag(binary)
    program = binary.target.program
    entries = [
        Entry(f"{name}.data/scripts/{program}", binary.read(), is_program=True),
        Entry(f"{info}/METADATA", metadata(release)),
        Entry(f"{info}/WHEEL", wheel_file(platform)),
        Entry(f"{info}/licenses/LICENSE", release.text("LICENSE").encode()),
    ]
    entries.append(Entry(f"{info}/RECORD", record(entries, f"{info}/RECORD")))
    path = release.out / f"{name}-py3-none-{platform}.whl"
    return write_zip(path, entries, release.date)


def metadata(release: Release) -> bytes:
    """METADATA of the core metadata specification, version 2.4."""
    project = tomllib.loads(release.text("pyproject.toml"))["project"]
    changelog = f"{release.repository}/blob/v{release.version}/CHANGELOG.md"
    fields = [
        ("Metadata-Version", "2.4"),
        ("Name", project["name"]),
        ("Version", python_version(release.version)),
        ("Summary", release.package["description"]),
        ("Keywords", ",".join(release.package["keywords"])),
        ("License-Expression", project["license"]),
        ("License-File", "LICENSE"),
        *(("Classifier", classifier) for classifier in project["classifiers"]),
        ("Requires-Python", project["requires-python"]),
        ("Project-URL", f"Repository, {release.repository}"),
        ("Project-URL", f"Changelog, {changelog}"),
        ("Description-Content-Type", "text/markdown; charset=UTF-8; variant=GFM"),
    ]
    head = "".join(f"{name}: {value}\n" for name, value in fields)
    return f"{head}\n{readme.text(release)}".encode()


def python_version(version: str) -> str:
    """The version as Python spells it: `0.2.0-rc.1` is `0.2.0rc1` there (PEP 440)."""
    number, _, stage = version.partition("-")
    if not stage:
        return number
    name, _, count = stage.partition(".")
    if name not in PRERELEASES or not count.isdigit():
        raise PackError(f"{version} can't be a version on PyPI; use -alpha.N, -beta.N or -rc.N")
    return f"{number}{PRERELEASES[name]}{count}"


def wheel_file(platform: str) -> bytes:
    """WHEEL: a line for each of the tags that the file name joins."""
    tags = "".join(f"Tag: py3-none-{each}\n" for each in platform.split("."))
    generator = "Generator: moongate (pack.py)\n"
    return f"Wheel-Version: 1.0\n{generator}Root-Is-Purelib: false\n{tags}".encode()


def record(entries: list[Entry], own_name: str) -> bytes:
    """RECORD: sum and size of each file. Its own line has neither."""
    lines = []
    for entry in entries:
        digest = base64.urlsafe_b64encode(hashlib.sha256(entry.data).digest()).rstrip(b"=")
        lines.append(f"{entry.name},sha256={digest.decode()},{len(entry.data)}\n")
    return "".join([*lines, f"{own_name},,\n"]).encode()
