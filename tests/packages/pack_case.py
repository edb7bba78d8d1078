"""Programs to pack, for the tests of deploy/packages/pack.py.

One C program that answers as `moongate` does is compiled for this machine. Other systems get the
start of a file, since pack.py reads no more of it. Needs a C compiler, as Rust does.
"""

import contextlib
import io
import os
import platform
import shutil
import struct
import subprocess
import sys
import tempfile
import tomllib
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "deploy/packages"))

import pack  # noqa: E402
from release import TARGETS  # noqa: E402

CARGO = tomllib.loads((ROOT / "Cargo.toml").read_text())
VERSION = CARGO["workspace"]["package"]["version"]
MACHINE = platform.machine()
GNU, MUSL = f"{MACHINE}-unknown-linux-gnu", f"{MACHINE}-unknown-linux-musl"
WINDOWS, MAC = "x86_64-pc-windows-gnu", "aarch64-apple-darwin"

PROGRAM = r"""
#include <stdio.h>
#include <string.h>
const char *text = TEXT;
int main(int count, char **words) {
    if (count > 1 && !strcmp(words[1], "--version")) {
        puts("moongate " VERSION);
        if (count > 2 && SAID[0]) puts("target: any\nallocator: " SAID);
    } else if (count > 2 && !strcmp(words[1], "completions"))
        printf("# completions for %s\n", words[2]);
    else
        return puts(text) < 0;
    return 0;
}
"""


def compiled(path: Path, *flags: str, text="<jemalloc>", version=VERSION, said="") -> Path:
    """Compiles the program. `text`: of its allocator; `said`: by --version --verbose."""
    path.parent.mkdir(parents=True, exist_ok=True)
    values = {"TEXT": text, "VERSION": version, "SAID": said}
    defines = [f'-D{name}="{value}"' for name, value in values.items()]
    command = [os.environ.get("CC", "cc"), "-x", "c", "-", *defines, *flags, "-o", str(path)]
    subprocess.run(command, input=PROGRAM, text=True, check=True)
    return path


def windows_program(machine=0x8664) -> bytes:
    """The start of a PE file."""
    head = b"MZ".ljust(0x3C, b"\0") + struct.pack("<I", 0x40)
    return head + struct.pack("<4sH", b"PE\0\0", machine) + VERSION.encode()


def mac_program(machine=0x0100_000C, oldest=(11, 0), text=b"<jemalloc>") -> bytes:
    """The start of a Mach-O file with LC_BUILD_VERSION."""
    version = oldest[0] << 16 | oldest[1] << 8
    head = struct.pack("<8I", 0xFEED_FACF, machine, 0, 2, 1, 24, 0, 0)
    return head + struct.pack("<6I", 0x32, 24, 1, version, 0, 0) + VERSION.encode() + text


class PackCase(unittest.TestCase):
    """A folder for each test, with programs to pack."""

    @classmethod
    def setUpClass(cls):
        cls.shared = Path(cls.enterClassContext(tempfile.TemporaryDirectory()))
        cls.gnu = compiled(cls.shared / "gnu")
        cls.musl = compiled(cls.shared / "musl", "-static")

    def setUp(self):
        self.work = Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.input, self.out = self.work / "in", self.work / "out"
        self.input.mkdir()

    def put(self, triple: str, content: bytes | Path) -> Path:
        """Gives pack.py a program for a target."""
        path = self.input / triple / TARGETS[triple].program
        path.parent.mkdir()
        if isinstance(content, Path):
            shutil.copy(content, path)
        else:
            path.write_bytes(content)
            path.chmod(0o755)
        return path

    def put_all(self):
        """A program for each system and libc."""
        self.put(GNU, self.gnu)
        self.put(MUSL, self.musl)
        self.put(WINDOWS, windows_program())
        self.put(MAC, mac_program())

    def pack(self, *options: str, out: Path | None = None) -> tuple[int, str]:
        """Runs pack.py, and returns its exit code with what it wrote to stderr."""
        errors = io.StringIO()
        with contextlib.redirect_stderr(errors), contextlib.redirect_stdout(io.StringIO()):
            code = pack.main([str(self.input), str(out or self.out), *options])
        return code, errors.getvalue()

    def packed(self, *options: str) -> Path:
        """Packs what must pass."""
        self.assertEqual(self.pack(*options), (0, ""))
        return self.out

    def assert_refused(self, reason: str, *options: str):
        """One line of error that matches, exit code 1, and nothing packed."""
        code, error = self.pack(*options)
        self.assertEqual(code, 1, error)
        self.assertRegex(error, rf"\Aerror: .*{reason}.*\n\Z")
        self.assertFalse(self.out.exists() and any(self.out.iterdir()))
