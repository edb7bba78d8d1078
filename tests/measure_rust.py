"""Rust source files as tokens, with comments and tests set apart. Used by `measure.py`.

Knows Rust's tokens but not its grammar. Invariant: tokens, comments and spaces together are the whole file.
"""

import re
import subprocess
from collections import namedtuple
from functools import cached_property
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TOKEN = re.compile(
    r"""(?P<space>\s+)|(?P<comment>//[^\n]*)|(?P<block>/\*)
    |(?P<string>(?:br|cr|r)(?P<hash>\#*)".*?"(?P=hash)|[bc]?"(?:\\.|[^"\\])*")
    |(?P<char>b?'(?:\\(?:u\{[^}]*\}|x..|.)|[^'\\\n])')|(?P<lifetime>'[^\W\d]\w*)
    |(?P<word>(?:r\#)?[^\W\d]\w*)|(?P<number>\d\w*(?:\.\d\w*)?)
    |(?P<operator><<=|>>=|\.\.\.|\.\.=|::|->|=>|==|!=|<=|>=|&&|\|\||[-+*/%^&|]=|<<|>>|\.\.|.)""",
    re.X | re.S,
)
Token = namedtuple("Token", "kind text line")


class SourceFile:
    """One Rust file: its tokens, its comments, and which tokens belong to tests."""

    def __init__(self, path):
        self.path, self.is_test = path, path.startswith("crates/testing/")
        self.text = (ROOT / path).read_text()
        self.tokens, self.comments = tokenize(self.text)
        self.words = [token.text for token in self.tokens]
        self.tests = test_tokens(self.words)
        found = re.match(r"(?:crates/(\w+)/)?src/(.*)\.rs$", path)
        self.in_source = found is not None
        self.root = f"crates/{found[1]}" if found and found[1] else "src"
        parts = found[2].split("/") if found else []
        self.module = tuple(parts[:-1] if parts and parts[-1] in ("mod", "lib", "main") else parts)

    @cached_property
    def code(self):
        """Tokens outside of tests."""
        return [token for at, token in enumerate(self.tokens) if at not in self.tests]

    @cached_property
    def code_lines(self):
        """Numbers of the lines with code outside of tests. Blank lines of a long string do not count."""
        found = {token.line + n for token in self.code for n in range(token.text.count("\n") + 1)}
        lines = self.text.split("\n")
        return {n for n in found if lines[n - 1].strip()}

    @cached_property
    def test_lines(self):
        """Numbers of the lines of tests, up to the token that follows each."""
        ends = [*self.tokens[1:], *self.tokens[-1:]]
        return {n for at in self.tests for n in range(self.tokens[at].line, ends[at].line + 1)}

    def test_files(self):
        """Paths, without `.rs`, of the modules that are declared for tests only."""
        folder, name = self.path.rsplit("/", 1)
        base = folder if name in ("mod.rs", "lib.rs", "main.rs") else self.path[:-3]
        names = (self.words[at + 1] for at in self.tests if self.words[at] == "mod" and self.words[at + 2] == ";")
        return [f"{base}/{name}" for name in names]


def tokenize(text):
    """Splits Rust into tokens and comments. A comment is its start and end in the text."""
    tokens, comments, at, line = [], [], 0, 1
    while at < len(text):
        match = TOKEN.match(text, at)
        kind, end = match.lastgroup, match.end()
        if kind == "block":
            depth = 1
            for mark in re.compile(r"/\*|\*/").finditer(text, end):
                depth, end = depth + (1 if mark[0] == "/*" else -1), mark.end()
                if depth == 0:
                    break
        if kind in ("block", "comment"):
            comments.append((at, end))
        elif kind != "space":
            tokens.append(Token("string" if kind == "hash" else kind, text[at:end], line))
        line, at = line + text.count("\n", at, end), end
    return tokens, comments


def closing(words, at):
    """Index just after the bracket that closes the one at `at`."""
    depth = 0
    while True:
        depth += (words[at] in ("(", "[", "{")) - (words[at] in (")", "]", "}"))
        at += 1
        if depth == 0:
            return at


def test_tokens(words):
    """Indices of the tokens of items that are compiled for tests only."""
    found, at = set(), 0
    while at < len(words):
        if words[at:at + 3] != ["#", "[", "cfg"]:
            at += 1
            continue
        start, at = at, closing(words, at + 1)
        if "test" not in words[start:at] or "not" in words[start:at]:
            continue
        while words[at] == "#":
            at = closing(words, at + 1)
        while at < len(words) and words[at] not in (")", "]", "}"):
            opened = words[at]
            at = closing(words, at) if opened in ("(", "[", "{") else at + 1
            if opened in (";", ",") or opened == "{" and words[at:at + 1] not in ([";"], ["::"]):
                break
        found.update(range(start, at))
    return found


def load():
    """Reads all Rust files that git tracks, and marks those that are compiled for tests only."""
    paths = git("ls-files", "*.rs").split()
    files = [SourceFile(path) for path in paths if (ROOT / path).exists()]
    tests = {path for file in files for path in file.test_files()}
    for file in files:
        file.is_test |= any(file.path == f"{path}.rs" or file.path.startswith(f"{path}/") for path in tests)
    return files


def git(*arguments):
    """Output of a git command. Empty outside of a repository."""
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False).stdout
