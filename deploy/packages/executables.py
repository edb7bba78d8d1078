"""What a binary says about itself in its headers: system, machine, libc, macOS version.

Reads ELF, PE and Mach-O, 64 bits and little-endian, which is all that Moongate is built for.
Invariant: a file that is cut short or of another kind raises `PackError`, never another error.
"""

import struct
from dataclasses import dataclass, field
from pathlib import Path

from release import PackError, contents

ELF_MACHINES = {62: "x64", 183: "arm64"}
PE_MACHINES = {0x8664: "x64", 0xAA64: "arm64"}
MACHO_MACHINES = {0x0100_0007: "x64", 0x0100_000C: "arm64"}

PT_DYNAMIC, PT_INTERP = 2, 3
SHT_DYNAMIC, SHT_DYNSYM, SHT_VERNEED, SHT_VERSYM = 6, 11, 0x6FFF_FFFE, 0x6FFF_FFFF
DT_NEEDED = 1
LC_VERSION_MIN_MACOSX, LC_BUILD_VERSION = 0x24, 0x32


@dataclass(frozen=True)
class Executable:
    """The facts that decide what a binary runs on."""

    system: str
    machine: str
    # Linux: it names a dynamic loader. A static binary does not.
    is_dynamic: bool = False
    # Linux: names of the shared libraries it is linked to.
    libraries: list[str] = field(default_factory=list)
    # Linux: versions such as GLIBC_2.17, each with a symbol that needs it.
    versions: dict[str, str] = field(default_factory=dict)
    macos: tuple[int, int] | None = None

    def glibc(self) -> tuple[int, int] | None:
        """The newest glibc that a symbol needs."""
        found = [version for name in self.versions if (version := glibc_version(name))]
        return max(found, default=None)

    def newer_than(self, glibc: tuple[int, int]) -> list[str]:
        """The symbols that need a newer glibc, as `name@GLIBC_2.34`, newest first."""
        needs = [(glibc_version(name), symbol, name) for name, symbol in self.versions.items()]
        newer = sorted((need for need in needs if need[0] and need[0] > glibc), reverse=True)
        return [f"{symbol}@{name}" for _, symbol, name in newer]


def glibc_version(name: str) -> tuple[int, int] | None:
    """Reads `GLIBC_2.3.4` as (2, 3). Other names, such as GCC_3.0, have none."""
    if not name.startswith("GLIBC_2."):
        return None
    return 2, int(name.split(".")[1])


def read(path: Path) -> Executable:
    """Reads the headers of a binary."""
    data = contents(path)
    try:
        if data.startswith(b"\x7fELF\x02\x01"):
            return ElfFile(data).describe()
        if data.startswith(b"MZ"):
            return read_pe(data)
        if data.startswith(b"\xcf\xfa\xed\xfe"):
            return read_macho(data)
    except (struct.error, IndexError, KeyError, ValueError) as error:
        raise PackError(f"{path}: unreadable header: {error!r}") from error
    raise PackError(f"{path}: not a 64-bit program for Linux, Windows or macOS")


def read_pe(data: bytes) -> Executable:
    """Windows: the machine stands behind the offset that the DOS header names."""
    (offset,) = struct.unpack_from("<I", data, 0x3C)
    signature, machine = struct.unpack_from("<4sH", data, offset)
    if signature != b"PE\0\0":
        raise ValueError("no PE signature")
    return Executable("win32", PE_MACHINES.get(machine, f"machine {machine:#x}"))


def read_macho(data: bytes) -> Executable:
    """macOS: the machine, and the deployment target from the load commands."""
    _, machine, _, _, commands = struct.unpack_from("<5I", data)
    macos, offset = None, 32
    for _ in range(commands):
        command, size = struct.unpack_from("<2I", data, offset)
        if command in (LC_VERSION_MIN_MACOSX, LC_BUILD_VERSION):
            at = offset + (12 if command == LC_BUILD_VERSION else 8)
            (packed,) = struct.unpack_from("<I", data, at)
            macos = packed >> 16, packed >> 8 & 0xFF
        offset += size
    name = MACHO_MACHINES.get(machine, f"machine {machine:#x}")
    return Executable("darwin", name, macos=macos)


@dataclass(frozen=True)
class ElfSection:
    """A section's place in the file, with the section its names are in (`link`)."""

    kind: int
    offset: int
    size: int
    link: int
    count: int


class ElfFile:
    """An ELF file whose sections are still listed, as they are after `strip`."""

    def __init__(self, data: bytes):
        self.data = data
        (self.machine,) = struct.unpack_from("<H", data, 18)
        programs, sections = struct.unpack_from("<QQ", data, 32)
        sizes = struct.unpack_from("<HHHH", data, 54)
        program_size, program_count, section_size, section_count = sizes
        at = [programs + program_size * index for index in range(program_count)]
        self.segments = [struct.unpack_from("<I", data, offset)[0] for offset in at]
        at = [sections + section_size * index for index in range(section_count)]
        self.sections = [self.section(offset) for offset in at]

    def section(self, at: int) -> ElfSection:
        """Reads a section header."""
        kind = struct.unpack_from("<I", self.data, at + 4)[0]
        offset, size, link, count = struct.unpack_from("<QQII", self.data, at + 24)
        return ElfSection(kind, offset, size, link, count)

    def describe(self) -> Executable:
        """What the file says."""
        if PT_DYNAMIC in self.segments and not self.find(SHT_DYNAMIC):
            raise ValueError("the section headers were stripped, so its needs can't be read")
        return Executable(
            "linux",
            ELF_MACHINES.get(self.machine, f"machine {self.machine}"),
            is_dynamic=PT_INTERP in self.segments,
            libraries=self.libraries(),
            versions=self.versions(),
        )

    def find(self, kind: int) -> ElfSection | None:
        """The first section of a kind."""
        return next((section for section in self.sections if section.kind == kind), None)

    def name(self, strings: int, offset: int) -> str:
        """A name in the string table that is section number `strings`."""
        start = self.sections[strings].offset + offset
        return self.data[start : self.data.index(b"\0", start)].decode()

    def libraries(self) -> list[str]:
        """The entries DT_NEEDED."""
        if not (section := self.find(SHT_DYNAMIC)):
            return []
        table = self.data[section.offset : section.offset + section.size]
        entries = struct.iter_unpack("<QQ", table)
        return [self.name(section.link, value) for tag, value in entries if tag == DT_NEEDED]

    def versions(self) -> dict[str, str]:
        """Needed versions of symbols, each with the first symbol that needs it."""
        if not (needs := self.find(SHT_VERNEED)):
            return {}
        names, at = {}, needs.offset
        for _ in range(needs.count):
            _, count, _, first, following = struct.unpack_from("<HHIII", self.data, at)
            entry = at + first
            for _ in range(count):
                layout = struct.unpack_from("<IHHII", self.data, entry)
                _, _, number, name, step = layout
                names[number] = self.name(needs.link, name)
                entry += step
            at += following
        users = self.users()
        return {name: users.get(number, "(no symbol)") for number, name in names.items()}

    def users(self) -> dict[int, str]:
        """The first dynamic symbol of each version number."""
        table, symbols = self.find(SHT_VERSYM), self.find(SHT_DYNSYM)
        if not table or not symbols:
            return {}
        users: dict[int, str] = {}
        numbers = struct.unpack_from(f"<{table.size // 2}H", self.data, table.offset)
        for index, number in enumerate(numbers):
            if number not in users:
                (name,) = struct.unpack_from("<I", self.data, symbols.offset + 24 * index)
                users[number] = self.name(symbols.link, name)
        return users
