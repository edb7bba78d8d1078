#!/usr/bin/env python3
"""What deploy/packages/pack.py makes of small programs. npm.sh and wheel.sh try the real one.

    python3 tests/packages/pack_test.py
"""

import base64
import csv
import hashlib
import io
import json
import tarfile
import unittest
import zipfile
from pathlib import Path

from pack_case import GNU, MAC, MUSL, ROOT, VERSION, WINDOWS, PackCase

import binaries
import readme
import wheels
from release import TARGETS, Binary, PackError, Release


class Packages(PackCase):
    """What comes out."""

    def test_same_bytes_twice(self):
        self.put_all()
        again = self.work / "again"
        self.assertEqual(self.pack(), (0, ""))
        # What a second machine has in another order, and newer.
        for path in sorted(self.input.rglob("moongate*"), reverse=True):
            path.touch()
        self.assertEqual(self.pack(out=again), (0, ""))
        files = {path.name: path.read_bytes() for path in self.out.iterdir()}
        self.assertEqual(files, {path.name: path.read_bytes() for path in again.iterdir()})
        self.assertGreaterEqual(len(files), 14)

    def test_sums(self):
        self.put_all()
        out = self.packed()
        lines = (out / "SHA256SUMS").read_text().splitlines()
        sums = dict(reversed(line.split("  ")) for line in lines)
        actual = {
            path.name: hashlib.sha256(path.read_bytes()).hexdigest()
            for path in out.iterdir()
            if path.name != "SHA256SUMS"
        }
        self.assertEqual(sums, actual)

    def test_same_program_in_every_package(self):
        self.put_all()
        out = self.packed()
        for triple, name in [(GNU, "linux"), (MUSL, "linux"), (WINDOWS, "win32"), (MAC, "darwin")]:
            target = TARGETS[triple]
            program = (self.input / triple / target.program).read_bytes()
            stem, wheel = f"moongate-{VERSION}-{triple}", self.wheel(triple)
            suffix = f"{name}-{target.machine}" + ("-musl" if target.libc == "musl" else "")
            packages = [
                (f"moongate-{suffix}-{VERSION}.tgz", f"package/bin/{target.program}"),
                (wheel, f"moongate-{VERSION}.data/scripts/{target.program}"),
                (next(out.glob(f"{stem}.*")).name, f"{stem}/{target.program}"),
            ]
            for package, path in packages:
                content, mode = self.read(out / package, path)
                self.assertEqual((content, mode), (program, 0o755), f"{path} in {package}")

    def wheel(self, triple: str) -> str:
        """The file name of a target's wheel."""
        binary = binaries.find(self.input, VERSION, None)
        [tag] = [wheels.tag(each) for each in binary if each.target.triple == triple]
        return f"moongate-{VERSION}-py3-none-{tag}.whl"

    def read(self, package: Path, path: str) -> tuple[bytes, int]:
        """A file of a package, with its permissions."""
        if package.suffix in (".zip", ".whl"):
            with zipfile.ZipFile(package) as archive:
                info = archive.getinfo(path)
                return archive.read(info), info.external_attr >> 16 & 0o777
        with tarfile.open(package) as archive:
            info = archive.getmember(path)
            return archive.extractfile(info).read(), info.mode

    def test_archive(self):
        self.put(GNU, self.gnu)
        stem = f"moongate-{VERSION}-{GNU}"
        with tarfile.open(self.packed() / f"{stem}.tar.gz") as archive:
            names = archive.getnames()
            self.assertTrue(all((each.uid, each.gid, each.uname) == (0, 0, "") for each in archive))
        expected = ["moongate", "LICENSE", "README.md", "CHANGELOG.md", "completions/_moongate"]
        expected += ["completions/moongate.bash", "completions/moongate.fish"]
        if (ROOT / "deploy/packages/moongate.1").exists():
            expected.append("man/moongate.1")
        self.assertEqual(sorted(names), sorted(f"{stem}/{name}" for name in expected))
        path = f"{stem}/completions/_moongate"
        script, mode = self.read(self.out / f"{stem}.tar.gz", path)
        self.assertEqual((script, mode), (b"# completions for zsh\n", 0o644))

    def test_npm_names_what_was_packed(self):
        self.put_all()
        out = self.packed("--repository", "https://example.com/team/moongate.git")
        manifests = {}
        for package in out.glob("*.tgz"):
            content, _ = self.read(package, "package/package.json")
            manifests[json.loads(content)["name"]] = json.loads(content)
        main = manifests.pop("moongate")
        self.assertEqual(main["optionalDependencies"], dict.fromkeys(sorted(manifests), VERSION))
        for manifest in [main, *manifests.values()]:
            self.assertNotIn("scripts", manifest)
            self.assertEqual(manifest["version"], VERSION)
            url = manifest["repository"]["url"]
            self.assertEqual(url, "git+https://example.com/team/moongate.git")
        machine = TARGETS[GNU].machine
        fields = ("os", "cpu", "libc")
        places = {name: [each.get(f) for f in fields] for name, each in manifests.items()}
        self.assertEqual(places, {
            f"@moongate/linux-{machine}": [["linux"], [machine], ["glibc"]],
            f"@moongate/linux-{machine}-musl": [["linux"], [machine], ["musl"]],
            "@moongate/win32-x64": [["win32"], ["x64"], None],
            "@moongate/darwin-arm64": [["darwin"], ["arm64"], None],
        })

    def test_npm_names_the_glibc_that_the_launcher_compares(self):
        self.put(GNU, self.gnu)
        name = f"moongate-linux-{TARGETS[GNU].machine}-{VERSION}.tgz"
        content, _ = self.read(self.packed() / name, "package/package.json")
        self.assertRegex(json.loads(content)["moongate"]["glibc"], r"^2\.\d+$")

    def test_record_of_the_wheel(self):
        self.put(GNU, self.gnu)
        with zipfile.ZipFile(self.packed() / self.wheel(GNU)) as wheel:
            info = f"moongate-{VERSION}.dist-info"
            rows = list(csv.reader(io.StringIO(wheel.read(f"{info}/RECORD").decode())))
            self.assertEqual(rows.pop(), [f"{info}/RECORD", "", ""])
            self.assertEqual({row[0] for row in rows}, set(wheel.namelist()) - {f"{info}/RECORD"})
            for name, digest, size in rows:
                content = wheel.read(name)
                sum_ = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=")
                self.assertEqual((digest, size), (f"sha256={sum_.decode()}", str(len(content))))

    def test_no_link_of_the_readme_is_relative(self):
        release = Release(VERSION, ROOT, self.out, [], 0, "https://example.com/r")
        text = readme.text(release)
        self.assertNotRegex(text, r'\]\((?!https?://|#)|(src|srcset|href)="(?!https?://)')
        self.assertIn(f"(https://example.com/r/blob/v{VERSION}/docs/guides/start.md)", text)
        picture = f'"https://example.com/r/raw/v{VERSION}/docs/pictures/servers-light.png"'
        self.assertIn(picture, text)


class Tags(unittest.TestCase):
    """Platform tags of wheels, and versions."""

    def tag(self, triple: str, **versions) -> str:
        """The tag of a binary with these versions in its headers."""
        return wheels.tag(Binary(TARGETS[triple], Path(), **versions))

    def test_tags_follow_from_the_binary(self):
        linux, arm = "x86_64-unknown-linux-gnu", "aarch64-unknown-linux-gnu"
        oldest = "manylinux_2_17_x86_64.manylinux2014_x86_64"
        self.assertEqual(self.tag(linux, glibc=(2, 9)), oldest)
        self.assertEqual(self.tag(linux, glibc=(2, 17)), oldest)
        self.assertEqual(self.tag(linux, glibc=(2, 28)), "manylinux_2_28_x86_64")
        self.assertEqual(self.tag(arm, glibc=(2, 34)), "manylinux_2_34_aarch64")
        musl = "aarch64-unknown-linux-musl"
        self.assertEqual(self.tag(musl), "musllinux_1_2_aarch64")
        intel, apple = "x86_64-apple-darwin", "aarch64-apple-darwin"
        self.assertEqual(self.tag(intel, macos=(10, 12)), "macosx_10_12_x86_64")
        self.assertEqual(self.tag(apple, macos=(11, 0)), "macosx_11_0_arm64")
        self.assertEqual(self.tag(apple, macos=(13, 3)), "macosx_14_0_arm64")
        self.assertEqual(self.tag(WINDOWS), "win_amd64")
        self.assertEqual(self.tag("aarch64-pc-windows-msvc"), "win_arm64")

    def test_versions_as_python_spells_them(self):
        spelled = {"1.2.3": "1.2.3", "1.2.3-rc.1": "1.2.3rc1", "1.2.3-beta.12": "1.2.3b12"}
        for version, expected in spelled.items():
            self.assertEqual(wheels.python_version(version), expected)
        with self.assertRaises(PackError):
            wheels.python_version("1.2.3-nightly")


if __name__ == "__main__":
    unittest.main()
