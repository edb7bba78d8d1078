#!/usr/bin/env python3
"""Tries the Homebrew formula and the table for cargo-binstall, without both.

    formula.py BINARY WORK

The formula is read by Ruby as Homebrew would read it on each system (formula.rb), and its addresses
and sums are compared with the archives. The templates for cargo-binstall must give the name of each
archive and the place of the program in it. Needs ruby: tests/packages/setup_debian.sh.
"""

import hashlib
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

HERE = Path(__file__).resolve().parent

from make_release import ROOT, release_of  # noqa: E402

import archives  # noqa: E402
import formula  # noqa: E402
from release import TARGETS, Binary, Release  # noqa: E402

MACHINES = ["arm64", "x64"]

# The endings that cargo-binstall tries for a `pkg-fmt`.
ENDINGS = {"tgz": [".tgz", ".tar.gz"], "zip": [".zip"]}

failures = 0


def check(what: str, is_right: bool, detail: object = "") -> None:
    """Prints the result of a check."""
    global failures
    failures += not is_right
    print(f"ok    {what}" if is_right else f"FAIL  {what}: {detail}")


def ruby(*arguments: object) -> str:
    """What a Ruby program prints."""
    done = subprocess.run(["ruby", *map(str, arguments)], capture_output=True, text=True)
    if done.returncode:
        check(f"ruby {arguments[0]}", False, done.stderr)
    return done.stdout


def read(release: Release, system: str, machine: str) -> dict[str, list[str]]:
    """The lines of formula.rb for one kind of machine, by their first word."""
    found: dict[str, list[str]] = {}
    for line in ruby(HERE / "formula.rb", release.out / formula.NAME, system, machine).splitlines():
        word, _, rest = line.partition(" ")
        found.setdefault(word, []).append(rest)
    return found


def try_machine(release: Release, system: str, machine: str, triple: str) -> None:
    """The formula has this target's archive for a machine, and everything it installs is in it."""
    found = read(release, system, machine)
    path = release.out / f"moongate-{release.version}-{triple}.tar.gz"
    sum_ = hashlib.sha256(path.read_bytes()).hexdigest()
    url = f"{release.repository}/releases/download/v{release.version}/{path.name}"
    said = found.get("archive")
    check(f"formula: {system} {machine}", said == [f"{system} {machine} {url} {sum_}"], said)
    with tarfile.open(path) as archive:
        names = {name.split("/", 1)[1] for name in archive.getnames()}
    files = found.get("file", [])
    missing = [file for file in files if file not in names]
    check(f"formula: {len(files)} files of {triple}", len(files) == 5 and not missing, files)
    check("formula: its service", found.get("service") == ["prefix/moongate serve"], found)


def try_formula(release: Release) -> None:
    """The formula of a release with every target."""
    archives.pack(release)
    first = formula.pack(release)[0].read_bytes()
    check("formula: again the same bytes", formula.pack(release)[0].read_bytes() == first)
    path = release.out / formula.NAME
    check("formula: ruby -c", ruby("-c", path).strip() == "Syntax OK")
    for machine, processor in zip(MACHINES, ["aarch64", "x86_64"]):
        try_machine(release, "darwin", machine, f"{processor}-apple-darwin")
        try_machine(release, "linux", machine, f"{processor}-unknown-linux-gnu")
    urls = re.findall(r'url "(.*)"', path.read_text())
    check("formula: four archives", len(urls) == 4, urls)


def try_partial_releases(release: Release, work: Path) -> None:
    """A release with fewer targets has no address of an archive that doesn't exist."""
    for triples in [["x86_64-unknown-linux-musl"], ["aarch64-apple-darwin"]]:
        part = Release(**{**vars(release), "out": work / triples[0], "binaries": [
            binary for binary in release.binaries if binary.target.triple in triples
        ]})
        part.out.mkdir()
        archives.pack(part)
        text = formula.pack(part)[0].read_text()
        names = re.findall(r"moongate-[^/]*\.tar\.gz", text)
        expected = [f"moongate-{part.version}-{triples[0]}.tar.gz"]
        check(f"formula: only {triples[0]}", names == expected, names)
    windows = [binary for binary in release.binaries if binary.target.system == "win32"]
    empty = Release(**{**vars(release), "binaries": windows})
    check("formula: none for Windows alone", formula.pack(empty) == [])


def expand(template: str, values: dict[str, str]) -> str:
    """Fills in a template of cargo-binstall. An unknown name is an error."""
    return re.sub(r"\{ ([a-z-]+) \}", lambda match: values[match[1]], template)


def try_binstall(release: Release, binary: Binary) -> None:
    """Templates and archive agree for a target."""
    table = release.package["metadata"]["binstall"]
    target = binary.target
    options = {**table, **table["overrides"].get(target.triple, {})}
    values = {
        "name": release.package["name"],
        "bin": release.package["name"],
        "version": release.version,
        "target": target.triple,
        "repo": release.repository,
        "binary-ext": ".exe" if target.system == "win32" else "",
    }
    path = release.out / archives.file_name(release, binary)
    urls = [
        expand(options["pkg-url"], {**values, "archive-suffix": ending})
        for ending in ENDINGS[options["pkg-fmt"]]
    ]
    program = expand(options["bin-dir"], values)
    if path.suffix == ".zip":
        names = zipfile.ZipFile(path).namelist()
    else:
        names = tarfile.open(path).getnames()
    url = release.download_url(path.name)
    check(f"binstall: the archive of {target.triple}", url in urls, urls)
    check(f"binstall: the program of {target.triple}", program in names, names)


def main() -> None:
    """Runs all checks."""
    binary, work = Path(sys.argv[1]), Path(sys.argv[2]) / "formula"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    # The program doesn't matter here, and a small one is packed at once.
    program = work / "moongate"
    program.write_bytes(b"#!/bin/sh\necho moongate\n")
    release = release_of(binary, work / "all", list(TARGETS), program=program)
    try_formula(release)
    try_partial_releases(release, work)
    for each in release.binaries:
        try_binstall(release, each)
    cargo = tomllib.loads((ROOT / "Cargo.toml").read_text(encoding="utf-8"))
    windows = {triple for triple, target in TARGETS.items() if target.system == "win32"}
    named = set(cargo["package"]["metadata"]["binstall"]["overrides"])
    check("binstall: overrides are the Windows targets", named == windows, named)
    sys.exit(failures > 0)


if __name__ == "__main__":
    main()
