"""`install.sh`, which downloads an archive, checks its sum and puts the program on the PATH.

Fills in the version, the address and the archives of this release. Invariant: the script names an
archive only if the release has it.
"""

from pathlib import Path

from release import Binary, Release

NAME = "install.sh"


def pack(release: Release) -> list[Path]:
    """Writes the script, if there is an archive that it can install."""
    lines = [line for binary in release.binaries if (line := target_line(binary))]
    if not lines:
        return []
    text = release.text(f"deploy/packages/{NAME}")
    values = {
        "VERSION": release.version,
        "DOWNLOAD": release.download_url("").rstrip("/"),
        "REPOSITORY": release.repository,
        "TARGETS": "\n".join(sorted(lines)),
    }
    for key, value in values.items():
        text = text.replace(f"@{key}@", value)
    path = release.out / NAME
    path.write_text(text, encoding="utf-8", newline="\n")
    path.chmod(0o755)
    return [path]


def target_line(binary: Binary) -> str | None:
    """A target with the minor version of the glibc 2 that it needs. Windows has no sh."""
    if binary.target.system == "win32":
        return None
    return f"{binary.target.triple} {binary.glibc[1] if binary.glibc else 0}"
