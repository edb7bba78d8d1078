#!/usr/bin/env python3
"""What deploy/packages/pack.py must refuse.

    python3 tests/packages/refusals_test.py
"""

import struct
import subprocess
import unittest

from pack_case import (
    GNU, MAC, MUSL, VERSION, WINDOWS, PackCase, compiled, mac_program, windows_program,
)


class Refusals(PackCase):
    """Input that must not become a package."""

    def test_no_targets(self):
        self.assert_refused("no targets")

    def test_no_folder(self):
        self.input.rmdir()
        self.assert_refused("is not a folder")

    def test_unknown_target(self):
        (self.input / "sparc-sun-solaris").mkdir()
        self.assert_refused("sparc-sun-solaris: unknown target; .*x86_64-unknown-linux-gnu")

    def test_missing_binary(self):
        (self.input / GNU).mkdir()
        self.assert_refused(f"{GNU}/moongate is missing")

    def test_not_a_program(self):
        self.put(GNU, b"#!/bin/sh\n")
        self.assert_refused("not a 64-bit program")

    def test_truncated_program(self):
        self.put(GNU, self.gnu.read_bytes()[:100])
        self.assert_refused("unreadable header")

    def test_wrong_architecture(self):
        other = {62: 183, 183: 62}
        data = bytearray(self.gnu.read_bytes())
        data[18:20] = struct.pack("<H", other[struct.unpack_from("<H", data, 18)[0]])
        self.put(GNU, bytes(data))
        self.assert_refused(f"is for linux \\w+; {GNU} needs linux")

    def test_wrong_architecture_of_windows(self):
        self.put(WINDOWS, windows_program(machine=0xAA64))
        self.assert_refused("is for win32 arm64; .* needs win32 x64")

    def test_wrong_architecture_of_macos(self):
        self.put(MAC, mac_program(machine=0x0100_0007))
        self.assert_refused("is for darwin x64; .* needs darwin arm64")

    def test_wrong_system(self):
        self.put(GNU, windows_program())
        self.assert_refused("is for win32 x64")

    def test_musl_that_is_dynamic(self):
        self.put(MUSL, self.gnu)
        self.assert_refused("linked dynamically")

    def test_gnu_that_is_static(self):
        self.put(GNU, self.musl)
        self.assert_refused("doesn't use glibc")

    def test_library_that_few_systems_have(self):
        library = self.work / "libextra.so"
        subprocess.run(["cc", "-shared", "-x", "c", "/dev/null", "-o", library], check=True)
        flags = ["-Wl,--no-as-needed", f"-L{self.work}", "-lextra"]
        self.put(GNU, compiled(self.work / "extra", *flags))
        self.assert_refused("needs libextra.so")

    def test_newer_glibc_than_the_ceiling(self):
        self.put(GNU, self.gnu)
        reason = r"moongate needs a glibc newer than 2\.2: \w+@GLIBC_2\.\d+"
        self.assert_refused(reason, "--manylinux", "2_2")

    def test_other_version(self):
        self.put(GNU, compiled(self.work / "old", version="9.9.9"))
        self.assert_refused(f"has the version moongate 9.9.9; Cargo.toml says {VERSION}")

    def test_two_versions(self):
        self.put(GNU, self.gnu)
        self.put(MUSL, compiled(self.work / "old", "-static", version="9.9.9"))
        self.assert_refused(f"{MUSL}/moongate has the version moongate 9.9.9")

    def test_other_version_of_a_foreign_program(self):
        self.put(GNU, self.gnu)
        self.put(WINDOWS, windows_program().replace(VERSION.encode(), b"9.9.9"))
        self.assert_refused(f"doesn't contain the version {VERSION}")

    def test_allocator_that_is_missing(self):
        self.put(GNU, compiled(self.work / "bare", text=""))
        self.assert_refused(f"has the allocator system; {GNU} needs jemalloc")

    def test_allocator_that_the_program_names(self):
        # Its texts are still there; what runs counts.
        self.put(GNU, compiled(self.work / "said", said="mimalloc 2.1"))
        self.assert_refused("has the allocator mimalloc 2.1; .* needs jemalloc")

    def test_allocator_of_a_foreign_program(self):
        self.put(GNU, self.gnu)
        self.put(MAC, mac_program(text=b"mimalloc: "))
        self.assert_refused(f"has the allocator mimalloc; {MAC} needs jemalloc")

    def test_two_programs_for_one_package(self):
        self.put(WINDOWS, windows_program())
        self.put("x86_64-pc-windows-msvc", windows_program())
        self.assert_refused("would be the same package")

    def test_nothing_that_prints_completions(self):
        self.put(WINDOWS, windows_program())
        self.assert_refused("no binary runs on this machine")

    def test_folder_with_older_packages(self):
        self.put(GNU, self.gnu)
        self.packed()
        code, error = self.pack()
        self.assertEqual(code, 1)
        self.assertIn("is not empty", error)


if __name__ == "__main__":
    unittest.main()
