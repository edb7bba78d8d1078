"""The binaries of a release: finds them by target and refuses those that must not be packed.

Owns what a binary has to be: its headers fit the target, its version is the tree's, its allocator
is the expected one. Does not write packages. Invariant: what `find` returns was checked.
"""

import platform
import shutil
import subprocess
from pathlib import Path

import executables
from executables import Executable
from release import TARGETS, Binary, PackError, Target, contents

# What `moongate --version --verbose` says about the allocator begins with this. Windows has no
# jemalloc (Cargo.toml).
EXPECTED_ALLOCATOR = {
    triple: "system" if target.system == "win32" else "jemalloc"
    for triple, target in TARGETS.items()
}

# Texts that an allocator has in its own code, for binaries that this machine can't run.
ALLOCATOR_TEXTS = {"jemalloc": b"<jemalloc>", "mimalloc": b"mimalloc: "}

# The libraries that every Linux with glibc has (PEP 600 lists more, which Moongate doesn't use).
GLIBC_LIBRARIES = (
    "libc.so.", "libm.so.", "libdl.so.", "librt.so.", "libpthread.so.", "libgcc_s.so.", "ld-linux-",
)

# Node.js has its own names for what `platform` says.
MACHINES = {"x86_64": "x64", "AMD64": "x64", "aarch64": "arm64", "arm64": "arm64", "ARM64": "arm64"}

SHELLS = ["bash", "zsh", "fish"]


def find(folder: Path, version: str, ceiling: tuple[int, int] | None) -> list[Binary]:
    """Every binary in `folder/TARGET/`, checked. `ceiling`: the newest glibc that one may need."""
    if not folder.is_dir():
        raise PackError(f"{folder} is not a folder with TARGET/moongate in it")
    names = sorted(path.name for path in folder.iterdir() if path.is_dir())
    if not names:
        raise PackError(f"no targets in {folder}: it has no folder such as {next(iter(TARGETS))}")
    found: dict[tuple, Binary] = {}
    for name in names:
        if name not in TARGETS:
            known = ", ".join(TARGETS)
            raise PackError(f"{folder / name}: unknown target; Moongate has {known}")
        target = TARGETS[name]
        kind = (target.system, target.machine, target.libc)
        if kind in found:
            other = found[kind].target.triple
            raise PackError(f"{name} and {other} would be the same package; give one of them")
        found[kind] = check(target, folder / name / target.program, version, ceiling)
    return list(found.values())


def check(target: Target, path: Path, version: str, ceiling: tuple[int, int] | None) -> Binary:
    """A binary that fits its target, or the reason why it doesn't."""
    if not path.is_file():
        raise PackError(f"{path} is missing")
    headers = executables.read(path)
    check_headers(target, path, headers)
    glibc = headers.glibc()
    if ceiling and glibc and glibc > ceiling:
        needs = ", ".join(headers.newer_than(ceiling)[:3])
        raise PackError(f"{path} needs a glibc newer than {ceiling[0]}.{ceiling[1]}: {needs}")
    check_version(target, path, version)
    check_allocator(target, path)
    return Binary(target, path, glibc, headers.macos)


def check_headers(target: Target, path: Path, headers: Executable) -> None:
    """The headers must say what the target's name says."""
    if (headers.system, headers.machine) != (target.system, target.machine):
        got, expected = f"{headers.system} {headers.machine}", f"{target.system} {target.machine}"
        raise PackError(f"{path} is for {got}; {target.triple} needs {expected}")
    if target.libc == "musl" and headers.is_dynamic:
        raise PackError(f"{path} is linked dynamically; {target.triple} needs a static binary")
    if target.libc == "gnu":
        if headers.glibc() is None:
            raise PackError(f"{path} doesn't use glibc, which {target.triple} needs")
        for library in headers.libraries:
            if not library.startswith(GLIBC_LIBRARIES):
                raise PackError(f"{path} needs {library}, which not every Linux has")
    if target.system == "darwin" and headers.macos is None:
        raise PackError(f"{path} doesn't say which macOS it needs")


def check_version(target: Target, path: Path, version: str) -> None:
    """All binaries must have the version that the packages are named after."""
    if runner(target) is None:
        if version.encode() not in contents(path):
            raise PackError(f"{path} doesn't contain the version {version} of Cargo.toml")
        return
    said = run(target, path, "--version").decode().split()
    if said[-1:] != [version]:
        raise PackError(f"{path} has the version {' '.join(said)}; Cargo.toml says {version}")


def check_allocator(target: Target, path: Path) -> None:
    """The allocator is the expected one: by what the binary says, else by its texts.

    jemalloc can come out of a cross build as an empty archive, without an error.
    """
    expected = EXPECTED_ALLOCATOR[target.triple]
    found = said_allocator(target, path)
    if found is None:
        known = [name for name, text in ALLOCATOR_TEXTS.items() if text in contents(path)]
        found = "+".join(known) or "system"
    # Its version may follow the name.
    if found.split()[:1] != [expected]:
        raise PackError(f"{path} has the allocator {found}; {target.triple} needs {expected}")


def said_allocator(target: Target, path: Path) -> str | None:
    """What the binary says. None: it can't be run here, or is from before it could say that."""
    if runner(target) is None:
        return None
    for line in run(target, path, "--version", "--verbose", may_fail=True).decode().splitlines():
        if line.startswith("allocator: "):
            return line.removeprefix("allocator: ").strip()
    return None


def completions(binaries: list[Binary]) -> dict[str, bytes]:
    """Completions by shell, from the first binary that runs here; all print the same."""
    for binary in binaries:
        if runner(binary.target) is not None:
            return {
                shell: run(binary.target, binary.path, "completions", shell) for shell in SHELLS
            }
    raise PackError("no binary runs on this machine, and one has to print the shell completions")


def runner(target: Target) -> list[str] | None:
    """What to put before a program of the target to run it here. None: it can't be run."""
    machine = MACHINES.get(platform.machine())
    if target.system != {"Windows": "win32"}.get(platform.system(), platform.system().lower()):
        return None
    if target.machine == machine:
        return None if target.libc == "gnu" and platform.libc_ver()[0] != "glibc" else []
    emulator = shutil.which("qemu-aarch64-static")
    if target.system == "linux" and target.machine == "arm64" and emulator:
        # A dynamic binary also needs the libraries of its system.
        if target.libc == "musl":
            return [emulator]
        if Path("/usr/aarch64-linux-gnu/lib").is_dir():
            return [emulator, "-L", "/usr/aarch64-linux-gnu"]
    return None


def run(target: Target, path: Path, *arguments: str, may_fail: bool = False) -> bytes:
    """What the program prints."""
    command = [*runner(target), str(path.resolve()), *arguments]
    try:
        done = subprocess.run(command, capture_output=True, timeout=60, stdin=subprocess.DEVNULL)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise PackError(f"{path} can't be run: {error}") from error
    if done.returncode and not may_fail:
        said = done.stderr.decode(errors="replace").strip()
        raise PackError(f"`{path} {' '.join(arguments)}` fails: {said or done.returncode}")
    return done.stdout
