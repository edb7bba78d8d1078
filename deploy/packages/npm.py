"""npm packages: `moongate` with the launcher, and a package with the binary for each platform.

npm installs the one optional dependency whose `os`, `cpu` and `libc` fit. No package has an
install script. Invariant: `moongate` depends on exactly the packages that were written with it.
"""

import json
from pathlib import Path

import readme
from release import Binary, Release, Target
from streams import Entry, write_tar_gz

# The names of npm's field `libc`.
LIBC_NAMES = {"gnu": "glibc", "musl": "musl"}


def pack(release: Release) -> list[Path]:
    """Writes the packages, the platforms' first, which is the order to publish them in."""
    platforms = [pack_platform(release, binary) for binary in release.binaries]
    return [*platforms, pack_launcher(release)]


def suffix(target: Target) -> str:
    """A platform in the names of its packages: `linux-x64`, `linux-x64-musl`, `win32-x64`."""
    musl = "-musl" if target.libc == "musl" else ""
    return f"{target.system}-{target.machine}{musl}"


def shared_fields(release: Release) -> dict:
    """What the package.json of every package says."""
    return {
        "version": release.version,
        "homepage": release.repository,
        "bugs": f"{release.repository}/issues",
        # Registries compare it with the provenance of what is published.
        "repository": {"type": "git", "url": f"git+{release.repository}.git"},
        "license": release.license,
        "type": "commonjs",
    }


def pack_platform(release: Release, binary: Binary) -> Path:
    """Writes the package with one binary."""
    target, name = binary.target, suffix(binary.target)
    manifest = {
        "name": f"@moongate/{name}",
        "description": f"The program of moongate for {name}",
        **shared_fields(release),
        "os": [target.system],
        "cpu": [target.machine],
        **({"libc": [LIBC_NAMES[target.libc]]} if target.libc else {}),
        "files": ["bin"],
        # Yarn would keep it in a zip file, where it can't be run.
        "preferUnplugged": True,
    }
    if binary.glibc:
        # The launcher compares it with the glibc in use.
        manifest["moongate"] = {"glibc": ".".join(map(str, binary.glibc))}
    note = f"# @moongate/{name}\n\nThe program of [moongate]({release.repository}) for {name}.\n"
    entries = [
        manifest_entry(manifest),
        Entry("package/LICENSE", release.text("LICENSE").encode()),
        Entry("package/README.md", note.encode()),
        Entry(f"package/bin/{target.program}", binary.read(), is_program=True),
    ]
    path = release.out / f"moongate-{name}-{release.version}.tgz"
    return write_tar_gz(path, entries, release.date)


def pack_launcher(release: Release) -> Path:
    """Writes the package that users name."""
    names = sorted(f"@moongate/{suffix(binary.target)}" for binary in release.binaries)
    manifest = {
        "name": "moongate",
        "description": release.package["description"],
        "keywords": release.package["keywords"],
        **shared_fields(release),
        "bin": {"moongate": "bin/moongate.js"},
        "files": ["bin"],
        "engines": {"node": ">=18"},
        "optionalDependencies": dict.fromkeys(names, release.version),
    }
    launcher = release.text("deploy/packages/launcher/moongate.js").encode()
    entries = [
        manifest_entry(manifest),
        Entry("package/LICENSE", release.text("LICENSE").encode()),
        Entry("package/README.md", readme.text(release).encode()),
        Entry("package/bin/moongate.js", launcher, is_program=True),
    ]
    path = release.out / f"moongate-{release.version}.tgz"
    return write_tar_gz(path, entries, release.date)


def manifest_entry(manifest: dict) -> Entry:
    """package.json, in the form that npm writes."""
    text = json.dumps(manifest, indent=2, ensure_ascii=False) + "\n"
    return Entry("package/package.json", text.encode())
