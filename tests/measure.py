#!/usr/bin/env python3
"""Prints figures of the tree's code, tests, prose and commits, each next to its aim.

    python3 tests/measure.py [--json] [--top N] [RANGE]

`--top 10` adds the largest offenders of each figure. RANGE selects commits; by default the last 200 count.
The table reports and never fails. Rust is read as tokens: a literal, a word or an operator is one token each.

Production code is `src` and `crates/*/src`, apart from `crates/testing` and everything behind `#[cfg(test)]`.
"Members as strings" are JSON member names that the page, API, commands and doctor write or read as text.
"""

import argparse
import json
import re
import statistics
from collections import Counter, defaultdict, namedtuple
from itertools import takewhile

from measure_cycles import ModuleTree, cycles
from measure_rust import ROOT, closing, git, load

OPERATORS_HALF = {
    "crates/admin/": "admin", "crates/api/": "api", "crates/page/": "page", "src/cli/doctor/": "doctor",
    "src/app/doctor/": "doctor", "src/cli/": "cli",
}
WRITERS = {"with", "set", "insert", "entry"}
READERS = {"get", "get_mut", "get_string", "get_object", "get_array", "remove", "contains_key", "pointer"}
# Maps with the same methods that do not hold JSON: URL parameters, headers, variables.
OTHER_MAPS = {"query", "ViewQuery", "keep", "headers", "env", "env_of_entry"}
MEMBER = re.compile(r'"/?[$_]*[a-z][\w$./]*"')
CONNECTIVES = re.compile(r"\b(because|so|but|unless|if|since|while|although|therefore)\b", re.I)
Row = namedtuple("Row", "figure now aim worst", defaults=("", ()))


def largest(counts):
    """Offenders as (name, count), the largest first."""
    return sorted(((name, n) for name, n in counts.items() if n), key=lambda item: (-item[1], item[0]))


def quantile(values, part):
    """Value below which this part of the values lies."""
    return sorted(values)[int(len(values) * part)] if values else 0


def receiver(words, at):
    """Words of the chain of calls that ends before the dot at `at`."""
    found = set()
    while at > 0:
        at -= 1
        if words[at] in (")", "]"):
            depth = 1
            while depth:
                at -= 1
                depth += (words[at] in (")", "]", "}")) - (words[at] in ("(", "[", "{"))
        elif re.match(r"\w", words[at]):
            found.add(words[at])
        elif words[at] not in (".", "::", "?"):
            break
    return found


def reading_helpers(words):
    """Names of functions and closures that read a member by the name that callers pass."""
    found = set()
    for at, word in enumerate(words[:-3]):
        if word == "fn" and words[at + 2] in ("(", "<"):
            start = words.index("(", at)
            body = words.index("{", closing(words, start)) if "{" in words[start:] else start
            names = {words[n - 1] for n in range(start, body) if words[n:n + 3] == [":", "&", "str"]}
            body = words[body:closing(words, body)]
        elif word == "let" and words[at + 2:at + 4] == ["=", "|"]:
            end = words.index("|", at + 4)
            names = {name for name in words[at + 4:end] if re.match(r"[a-z]", name)}
            body = words[end:end + len(list(takewhile(lambda word: word != ";", words[end:])))]
        else:
            continue
        reads = ((body[n - 1] == "[" and body[n + 1:n + 2] == ["]"] and re.match(r"[\w)\]]", body[n - 2]))
                 or (body[n - 1] == "(" and body[n - 2] in READERS and body[n + 1:n + 2] == [")"]
                     and not receiver(body, n - 3) & OTHER_MAPS)
                 for n, name in enumerate(body) if n > 1 and name in names)
        if any(reads):
            found.add(words[at + 1])
    return found


def members(file, helpers):
    """Number of members that a file writes as strings, and of those that it reads as strings."""
    written = read = 0
    words = [token.text for token in file.code]
    for at, token in enumerate(file.code):
        if token.kind != "string" or at < 3:
            continue
        if token.text.startswith("r"):
            written += len(re.findall(r'[{,]\s*"[$\w]+"\s*:', token.text))
        before, after = words[at - 1], words[at + 1]
        method = words[at - 3] == "." and words[at - 2]
        if after == ":":
            written += 1
        elif not MEMBER.fullmatch(token.text) or ("/" in token.text and method != "pointer"):
            continue
        elif before == "[" and after == "]" and (words[at - 2] in (")", "]") or re.match(r"\w", words[at - 2])):
            is_array = words[at - 2] in ("in", "return", "else", "match")
            is_assigned = words[at + 2] == "="
            written, read = written + (is_assigned and not is_array), read + (not is_assigned and not is_array)
        elif before == "(" and method in WRITERS | READERS and not receiver(words, at - 3) & OTHER_MAPS:
            written, read = written + (method in WRITERS), read + (method in READERS)
        elif after in (")", ",") and is_helper_call(words, at, helpers):
            read += 1
    return written, read


def is_helper_call(words, at, helpers):
    """True if the string at `at` is the first string argument of a reading helper."""
    depth, start = 0, at
    while at > 1 and words[at] not in (";", "{", "}") and (at == start or words[at][0] != '"'):
        depth += (words[at] in (")", "]")) - (words[at] in ("(", "["))
        if depth < 0:
            return words[at] == "(" and words[at - 1] in helpers and words[at - 2] not in (".", "fn", "::")
        at -= 1
    return False


def member_rows(files):
    """Rows of the JSON members that the operators' half writes and reads as strings."""
    counts, parts = [Counter(), Counter()], [Counter(), Counter()]
    groups = defaultdict(set)
    half = [(file, part) for file in files
            if (part := next((part for start, part in OPERATORS_HALF.items() if file.path.startswith(start)), None))]
    for file, _ in half:
        groups[file.root] |= reading_helpers([token.text for token in file.code])
    for file, part in half:
        for n, count in enumerate(members(file, groups[file.root])):
            counts[n][file.path] += count
            parts[n][part] += count
    rows = []
    for n, way in enumerate(("written", "read")):
        shares = ", ".join(f"{part} {count}" for part, count in largest(parts[n]))
        rows.append(Row(f"members {way} as strings, operators' half", f"{parts[n].total()} ({shares})", "0",
                        largest(counts[n])))
    return rows


def cycle_rows(files):
    """Rows of the largest cycle in each crate, in `src/cli`, and in the rest of `src`."""
    lines = {file.path: file.text.count("\n") for file in files}
    roots = defaultdict(list)
    for file in files:
        roots[file.root].append(file)
    trees = {root: ModuleTree(own) for root, own in roots.items()}
    parts = {root: (root, lambda path: not path.startswith("src/cli/")) for root in trees}
    parts["src/cli"] = ("src", lambda path: path.startswith("src/cli/"))
    rows = []
    for by_roots, words in ((False, "re-exports followed"), (True, "each root that re-exports is in it")):
        found = {name: cycles(trees[root].edges(by_roots), part) for name, (root, part) in parts.items()}
        sizes = {name: len(groups[0]) for name, groups in found.items() if groups}
        total = {name: sum(lines[path] for path in found[name][0]) for name in sizes}
        now = ", ".join(f"{name.removeprefix('crates/')} {n}/{total[name]}" for name, n in largest(sizes) if n > 3)
        worst = [(f"{name}: " + " ".join(sorted(found[name][0])), n) for name, n in largest(sizes)]
        rows.append(Row(f"files/lines of the largest cycle, {words}", now or "none above 3", "3", worst))
    return rows


def key_rows(files):
    """Rows of the files that name each server key, as a word of code or in a string such as `servers.x.KEY`."""
    schema = json.loads((ROOT / "crates/config/src/schema.json").read_text())
    keys = set(schema["$defs"]["Server"]["properties"])
    named = {key: [] for key in keys}
    for file in files:
        words = {token.text for token in file.code if token.kind == "word"}
        for token in file.code:
            if token.kind == "string" and re.fullmatch(r'"[\w.{}]+"', token.text):
                words |= set(token.text.strip('"').split("."))
        for key in keys & words:
            named[key].append(file.path)
    rows = []
    for words, chosen in (("two words", {key for key in keys if "_" in key}),
                          ("one word (code uses most for other things, too)", {key for key in keys if "_" not in key})):
        counts = largest({key: len(named[key]) for key in chosen})
        numbers = [n for _, n in counts]
        rows.append(Row(f"files that name a server key of {words}",
                        f"median {statistics.median(numbers):g}, worst {numbers[0]}", "3", counts))
    return rows


def is_tuple(words, at):
    """True if a tuple starts at `at`: parentheses with a comma that separates values."""
    if words[at:at + 1] != ["("]:
        return False
    end, at = closing(words, at), at + 1
    while at < end - 1 and words[at] != ",":
        at = closing(words, at) if words[at] in ("(", "[", "{") else at + 1
    return at < end - 1


def width_rows(files):
    """Number of code lines, and rows of characters. Indentation and comments are not code."""
    lines = characters = all_lines = 0
    wide = Counter()
    for file in files:
        bare = list(file.text)
        for start, end in file.comments:
            bare[start:end] = [c if c == "\n" else " " for c in file.text[start:end]]
        bare = "".join(bare).split("\n")
        lines += len(file.code_lines)
        characters += sum(len(bare[n - 1].strip()) for n in file.code_lines)
        tests = file.test_lines - file.code_lines
        shown = [line for n, line in enumerate(file.text.split("\n"), 1) if line.strip() and n not in tests]
        all_lines += len(shown)
        wide[file.path] += sum(len(line) > 100 for line in shown)
    return lines, [
        Row("characters of code in crates and src", f"{characters} in {lines} lines"),
        Row("characters of code a line", f"{characters / lines:.1f}", "28"),
        Row("lines over 100 columns", f"{100 * wide.total() / all_lines:.1f} %", "0", largest(wide)),
    ]


def idiom_rows(files, lines):
    """Rows of tuple lets and named closures in 1,000 lines of code."""
    tuples, closures = Counter(), Counter()
    for file in files:
        words = [token.text for token in file.code]
        for at, word in enumerate(words):
            if word != "let":
                continue
            if words[at + 1] == "(":
                end = closing(words, at + 1)
                is_both = words[end] == "=" and is_tuple(words, end + 1)
                tuples[file.path] += is_both and words[closing(words, end + 1)] == ";"
            value = words[at + 2 + (words[at + 1] == "mut"):][:4]
            closures[file.path] += re.match(r"= (async )?(move )?\|", " ".join(value)) is not None
    named = (("`let (a, b) = (x, y)`", tuples, "0.7"), ("named closures", closures, "2"))
    return [Row(f"{name} a kloc", f"{1000 * found.total() / lines:.1f} ({found.total()})", aim, largest(found))
            for name, found, aim in named]


def function_lengths(words):
    """Names and lengths in tokens of the functions with a body, signature included."""
    for at, word in enumerate(words[:-2]):
        if word == "fn" and re.match(r"[^\W\d]", words[at + 1]):
            end = at
            while words[end] not in ("{", ";"):
                end = closing(words, end) if words[end] in ("(", "[") else end + 1
            if words[end] == "{":
                yield words[at + 1], closing(words, end) - at


def function_rows(files, production):
    """Rows of function lengths, for production code and for all code."""
    rows = []
    for words, found in (("production", [(file, file.code) for file in production]),
                         ("tests included", [(file, file.tokens) for file in files])):
        lengths = [(f"{file.path} {name}", n) for file, tokens in found
                   for name, n in function_lengths([token.text for token in tokens])]
        numbers = [n for _, n in lengths]
        rows.append(Row(f"tokens a function, {words}", f"median {quantile(numbers, .5)}, p99 {quantile(numbers, .99)}",
                        "60, 700", sorted(lengths, key=lambda item: -item[1])))
    return rows


def assert_rows(files):
    """Row of asserts whose first two arguments are tuples, tests included."""
    tuples, asserts = Counter(), 0
    for file in files:
        words = file.words
        for at, word in enumerate(words[:-3]):
            if word in ("assert", "assert_eq", "assert_ne") and words[at + 1] == "!":
                asserts += 1
                if word != "assert" and is_tuple(words, at + 3):
                    end = closing(words, at + 3)
                    tuples[file.path] += words[end] == "," and is_tuple(words, end + 1)
    return [Row("asserts of tuples", f"{tuples.total()} of {asserts}", "20", largest(tuples))]


def paragraphs(text):
    """Paragraphs and list items of Markdown, without headings, tables and code blocks."""
    text = re.sub(r"^ *(```|~~~).*?^ *\1[^\n]*$", "", text, flags=re.M | re.S)
    text = re.sub(r"^ *(#|\||<).*$", "", text, flags=re.M)
    text = re.sub(r"^ *([-*]|\d+\.) ", "\n", text, flags=re.M)
    return [" ".join(part.split()) for part in re.split(r"\n\s*\n", text) if part.strip()]


def prose_row(name, paths, aim):
    """Row of some documents. A code span counts as one word."""
    sentences, connectives, spans = [], 0, 0
    for part in (part for path in paths for part in paragraphs(path.read_text())):
        spans += len(re.findall(r"`[^`]+`", part))
        part = re.sub(r"`[^`]+`", "Code", re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", part))
        connectives += len(CONNECTIVES.findall(part))
        sentences += [len(re.findall(r"[^\W_][\w'’.-]*", sentence)) for sentence in re.split(r"(?<=[.!?])\s+", part)]
    words = sum(sentences) or 1
    now = (f"{statistics.median([n for n in sentences if n] or [0]):g}; {100 * connectives / words:.1f}; "
           f"{100 * spans / words:.1f}")
    return Row(f"{name}: median words a sentence; connectives; code spans in 100 words", now, aim)


def word_rows(files):
    """Rows of two phrases. "anew" counts in strings and documents, too."""
    lines, is_no, anew = 0, Counter(), Counter()
    for file in files:
        text = " ".join(file.text[start:end].lstrip("/!") for start, end in file.comments)
        lines += sum(file.text.count("\n", start, end) + 1 for start, end in file.comments)
        is_no[file.path] = len(re.findall(r"\bis\s+no\b(?!\s+(?:longer|more)\b)", text))
        strings = (token.text for token in file.tokens if token.kind == "string")
        anew[file.path] = len(re.findall(r"\banew\b", " ".join((text, *strings)), re.I))
    for path in git("ls-files", "*.md").split():
        if path != "STYLE.md" and (ROOT / path).exists():
            anew[path] = len(re.findall(r"\banew\b", (ROOT / path).read_text(), re.I))
    return [Row('"is no X" in 1,000 lines of comments', f"{1000 * is_no.total() / lines:.1f}", "2.5", largest(is_no)),
            Row('"anew" in comments, strings and documents', str(anew.total()), "0", largest(anew))]


def commit_rows(commits):
    """Rows of bodies, subjects and file counts of commits. Merges and trailers do not count."""
    chosen = [commits] if commits else ["-n", "200"]
    text = git("log", *chosen, "--no-merges", "--format=%x00%h %s%x01%b%x01", "--name-only")
    found = [commit.split("\x01") for commit in text.split("\0")[1:]]
    if not found:
        return []
    trailer = re.compile(r"^[A-Z][\w-]+-by: .*$", re.M)
    bodies = [len(trailer.sub("", body).split()) for _, body, _ in found]
    files = {subject: len(names.split("\n\n")[-1].split("\n")) - 1 for subject, _, names in found}
    joined = [(subject, 1) for subject, _, _ in found if re.search(r"\band\b", subject)]
    return [Row("words of a commit's body, median", f"{statistics.median(bodies):g} of {len(found)} commits", "20"),
            Row('commits with "and" in the subject', f"{100 * len(joined) / len(found):.0f} %", "10 %", joined),
            Row("files of a commit, median", f"{statistics.median(files.values()):g}", "6", largest(files))]


def measure(commits):
    """All rows of the table."""
    files = load()
    production = [file for file in files if file.in_source and not file.is_test]
    lines, widths = width_rows(production)
    guides = sorted((ROOT / "docs/guides").glob("*.md"))
    return [
        *member_rows(production), *cycle_rows(production), *key_rows(production), *widths,
        *idiom_rows(production, lines), *function_rows(files, production),
        prose_row("ARCHITECTURE", [ROOT / "ARCHITECTURE.md"], "12-16; 1.3; 6"),
        prose_row("README", [ROOT / "README.md"], "12-16; 1.3; 6"), prose_row("guides", guides, "12-16; 1.3; 6"),
        *word_rows(files), *assert_rows(files), *commit_rows(commits),
    ]


def main():
    """Prints the table, as text or as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("range", nargs="?", help="range of commits, such as v0.1.0..HEAD")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--top", type=int, default=0, metavar="N", help="add the N largest offenders of each figure")
    options = parser.parse_args()
    rows = [row._replace(worst=list(row.worst)[:options.top]) for row in measure(options.range)]
    if options.json:
        print(json.dumps([row._asdict() for row in rows], indent=1, ensure_ascii=False))
        return
    print("| figure | now | aim |\n|---|---|---|")
    for row in rows:
        print(f"| {row.figure} | {row.now} | {row.aim} |")
    for row in (row for row in rows if row.worst):
        print(f"\n{row.figure}:", *(f"{n:6} {name}" for name, n in row.worst), sep="\n")


if __name__ == "__main__":
    main()
