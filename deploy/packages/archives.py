"""Archives for people who download: a tar.gz a target, a zip for Windows.

Each has one folder with the program, its licence, texts, completions and man page.
Invariant: an archive is named `moongate-VERSION-TRIPLE`, which install.sh and binstall rely on.
"""

from pathlib import Path

from release import Binary, Release
from streams import Entry, write_tar_gz, write_zip

TEXTS = ["LICENSE", "README.md", "CHANGELOG.md"]

# Under these names the shells find them.
COMPLETION_FILES = {"bash": "moongate.bash", "zsh": "_moongate", "fish": "moongate.fish"}


def name_of(release: Release, binary: Binary) -> str:
    """The archive's name without its ending, which is also the folder inside."""
    return f"moongate-{release.version}-{binary.target.triple}"


def file_name(release: Release, binary: Binary) -> str:
    """The archive's file name."""
    ending = ".zip" if binary.target.system == "win32" else ".tar.gz"
    return name_of(release, binary) + ending


def pack(release: Release) -> list[Path]:
    """Writes an archive for each binary."""
    shared = shared_entries(release)
    return [pack_one(release, binary, shared) for binary in release.binaries]


def pack_one(release: Release, binary: Binary, shared: list[Entry]) -> Path:
    """Writes the archive of one binary."""
    folder = name_of(release, binary)
    program = Entry(binary.target.program, binary.read(), is_program=True)
    entries = [
        Entry(f"{folder}/{entry.name}", entry.data, entry.is_program)
        for entry in [program, *shared]
    ]
    path = release.out / file_name(release, binary)
    write = write_zip if binary.target.system == "win32" else write_tar_gz
    return write(path, entries, release.date)


def shared_entries(release: Release) -> list[Entry]:
    """What every archive has next to the program."""
    entries = [Entry(name, release.text(name).encode()) for name in TEXTS]
    for shell, name in COMPLETION_FILES.items():
        entries.append(Entry(f"completions/{name}", release.completions[shell]))
    if manual := release.manual():
        entries.append(Entry("man/moongate.1", manual))
    return entries
