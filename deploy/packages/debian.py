"""The package for Debian and Ubuntu: program, service, user, completions, man page.

Takes the texts from `debian/` and the unit from `deploy/systemd/`, with the few lines changed that
differ for a package. Invariant: `Depends` names what the binary's own headers ask for.
"""

import gzip
import hashlib
import time
from concurrent.futures import ThreadPoolExecutor
from email.utils import formatdate
from pathlib import Path
from urllib.parse import urlsplit

import debian_archive
import executables
from release import Binary, PackError, Release
from streams import Entry

SYSTEMD = "usr/lib/systemd/system"
CONFIG = "etc/moongate/moongate.toml"

# Unit lines that are for an installation by hand, and what a package has instead.
SERVICE_CHANGES = [
    (
        "# The gateway as a service of the machine. Installing it: see deploy/README.md.\n",
        "# The gateway as a service of the machine. Change it with `systemctl edit moongate`.\n",
    ),
    ("ExecStart=/usr/local/bin/moongate ", "ExecStart=/usr/bin/moongate "),
    (
        "# A user that exists only while the service runs. Its home",
        "# The package creates this user (sysusers.d/moongate.conf). Its home",
    ),
    ("DynamicUser=yes\n", "User=moongate\n"),
]
SOCKET_CHANGES = [
    (
        "The\n# config says `listen = \"systemd\"`. Installing it: see deploy/README.md.\n",
        "Write\n# `listen = \"systemd\"` into the config, "
        "then `systemctl enable --now moongate.socket`.\n",
    ),
]

COMPLETIONS = {
    "bash": "usr/share/bash-completion/completions/moongate",
    "zsh": "usr/share/zsh/vendor-completions/_moongate",
    "fish": "usr/share/fish/vendor_completions.d/moongate.fish",
}

# The package that has a library, by the start of the library's name.
LIBRARIES = {
    "libc.so.": "libc6",
    "libm.so.": "libc6",
    "libdl.so.": "libc6",
    "librt.so.": "libc6",
    "libpthread.so.": "libc6",
    "ld-linux-": "libc6",
    "libgcc_s.so.": "libgcc-s1",
}

# For systemd-sysusers. Either of the others has it, too, where systemd isn't installed.
SYSUSERS = "systemd | systemd-standalone-sysusers | systemd-sysusers"


def pack(release: Release) -> list[Path]:
    """Writes a package for each binary that Debian has an architecture for."""
    binaries = [binary for binary in release.binaries if binary.target.debian]
    # Compressing releases Python's lock, so each package gets a processor.
    with ThreadPoolExecutor() as pool:
        return list(pool.map(lambda binary: pack_one(release, binary), binaries))


def pack_one(release: Release, binary: Binary) -> Path:
    """Writes the package of one binary."""
    data = data_entries(release, binary)
    sums = [f"{hashlib.md5(entry.data).hexdigest()}  {entry.name}\n" for entry in data]
    control = [
        Entry("control", control_file(release, binary, data).encode()),
        Entry("conffiles", f"/{CONFIG}\n".encode()),
        Entry("md5sums", "".join(sums).encode()),
        *(
            Entry(name, template(release, name).encode(), is_program=True)
            for name in ["postinst", "prerm", "postrm"]
        ),
    ]
    # With the release's own version: GitHub turns the `~` of a Debian version into a dot.
    name = f"moongate_{release.version}_{binary.target.debian}.deb"
    return debian_archive.write(release.out / name, control, data, release.date)


def data_entries(release: Release, binary: Binary) -> list[Entry]:
    """The files that the package installs, in order of their names."""
    docs = "usr/share/doc/moongate"
    entries = [
        Entry("usr/bin/moongate", binary.read(), is_program=True),
        Entry(CONFIG, template(release, "moongate.toml").encode()),
        Entry("usr/lib/sysusers.d/moongate.conf", template(release, "sysusers.conf").encode()),
        unit(release, "moongate.service", SERVICE_CHANGES),
        unit(release, "moongate.socket", SOCKET_CHANGES),
        Entry(f"{docs}/copyright", template(release, "copyright").encode()),
        Entry(f"{docs}/changelog.gz", compress(template(release, "changelog").encode())),
    ]
    for shell, path in COMPLETIONS.items():
        entries.append(Entry(path, release.completions[shell]))
    if manual := release.manual():
        entries.append(Entry("usr/share/man/man1/moongate.1.gz", compress(manual)))
    return sorted(entries, key=lambda entry: entry.name)


def unit(release: Release, name: str, changes: list[tuple[str, str]]) -> Entry:
    """A unit of `deploy/systemd/` with its lines changed. Each of them must be there, once."""
    text = release.text(f"deploy/systemd/{name}")
    for old, new in changes:
        if text.count(old) != 1:
            raise PackError(f"deploy/systemd/{name} doesn't have this once, to change it: {old!r}")
        text = text.replace(old, new)
    if "/usr/local/bin/moongate" in text or "see deploy/" in text:
        raise PackError(f"deploy/systemd/{name} has one more line for installing by hand")
    return Entry(f"{SYSTEMD}/{name}", text.encode())


def control_file(release: Release, binary: Binary, data: list[Entry]) -> str:
    """The control file."""
    # Kibibytes: each file rounded up, and one for each folder (Debian Policy 5.6.20).
    size = sum(-(-len(entry.data) // 1024) for entry in data) + len(debian_archive.folders(data))
    return template(
        release,
        "control",
        ARCHITECTURE=binary.target.debian,
        DEPENDS=depends(binary),
        SIZE=str(size),
    )


def depends(binary: Binary) -> str:
    """The packages that the program needs to start, and those that installing needs."""
    headers = executables.read(binary.path)
    needs = {}
    for library in headers.libraries:
        package = next((LIBRARIES[start] for start in LIBRARIES if library.startswith(start)), None)
        if package is None:
            raise PackError(f"{binary.path} needs {library}; debian.py knows no package for it")
        needs[package] = newest(headers.versions, "GCC_" if package == "libgcc-s1" else "GLIBC_")
    found = [f"{package} (>= {version})" for package, version in sorted(needs.items())]
    return ", ".join([*found, SYSUSERS])


def newest(versions: dict[str, str], family: str) -> str:
    """The newest version of a family, such as 2.34 of GLIBC_2.17 and GLIBC_2.34."""
    numbers = [name.removeprefix(family).split(".") for name in versions if name.startswith(family)]
    found = [tuple(map(int, number)) for number in numbers if all(map(str.isdigit, number))]
    if not found:
        raise PackError(f"the binary needs a library of {family}x.y without a version")
    return ".".join(map(str, max(found)[:2]))


def template(release: Release, name: str, **more: str) -> str:
    """A file of `debian/` with its `@NAMES@` filled in."""
    text = release.text(f"deploy/packages/debian/{name}")
    values = {
        "VERSION": debian_version(release.version),
        "RELEASE": release.version,
        "REPOSITORY": release.repository,
        "MAINTAINER": maintainer(release.repository),
        "DATE": formatdate(release.date),
        "YEAR": str(time.gmtime(release.date).tm_year),
        **more,
    }
    for key, value in values.items():
        text = text.replace(f"@{key}@", value)
    return text


def debian_version(version: str) -> str:
    """The version in Debian's order, where `0.2.0~rc.1` comes before `0.2.0`."""
    return version.replace("-", "~", 1)


def maintainer(repository: str) -> str:
    """The repository's owner, with the address that GitHub gives each account."""
    owner = urlsplit(repository).path.strip("/").split("/")[0]
    return f"{owner} <{owner}@users.noreply.github.com>"


def compress(data: bytes) -> bytes:
    """What `gzip -9n` writes, which Debian asks for."""
    return gzip.compress(data, 9, mtime=0)
