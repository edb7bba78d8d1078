"""Uses between the files of a Rust crate, and the cycles among them. Used by `measure.py`.

Follows `crate::`, `super::` and `self::` paths, and those that start with a child module, in imports and elsewhere.
Macros and methods are not followed. Invariant: every edge joins two files of one crate.
"""

import re
from collections import defaultdict


def use_paths(words, at, prefix, found):
    """Collects each path of a `use` tree with its local name. Returns the index after the tree."""
    path = list(prefix)
    while words[at] not in (",", "}", ";"):
        if words[at] == "{":
            at += 1
            while words[at] != "}":
                at = use_paths(words, at, path, found)
                at += words[at] == ","
            return at + 1
        if words[at] == "as":
            found.append((path, words[at + 1]))
            return at + 2
        if words[at] != "::":
            path.append(words[at])
        at += 1
    path = path[:-1] if path[-1] == "self" else path
    found.append((path, path[-1] if path else ""))
    return at


def paths_of(file):
    """Paths in a file, as (kind, path, name): `use`, `pub` for re-exports, `path` elsewhere."""
    words, found, at = [token.text for token in file.code if token.kind != "string"], [], 0
    while at < len(words):
        before = words[at - 1] if at else ";"
        if words[at] == "use" and before in (";", "{", "}", "]", "pub", ")") and words[at + 1] != "<":
            tree = []
            at = use_paths(words, at + 1, [], tree)
            found += [("pub" if before in ("pub", ")") else "use", path, name) for path, name in tree]
        # `pub(in a::b)` names a scope, and uses nothing of it.
        elif re.match(r"[a-z]", words[at]) and words[at + 1:at + 2] == ["::"] and before != "::":
            path, is_scope = [words[at]], words[max(at - 3, 0):at] == ["pub", "(", "in"]
            while words[at + 1:at + 2] == ["::"] and re.match(r"\w", words[at + 2]):
                path, at = [*path, words[at + 2]], at + 2
            if not is_scope:
                found.append(("path", path, path[-1]))
        at += 1
    return found


class ModuleTree:
    """Modules of one crate, and the file that defines what a path names."""

    def __init__(self, files):
        self.files = {file.module: file for file in files if file.path != "src/main.rs"}
        self.paths = {file.path: paths_of(file) for file in files}
        self.names = defaultdict(list)
        for file in self.files.values():
            for kind, path, name in self.paths[file.path]:
                full = self.absolute(file, path)
                if kind != "path" and full is not None:
                    self.names[(*file.module, name)].append(full)

    def absolute(self, file, path):
        """Path from the root of the crate; `None` for paths into other crates."""
        starts = {"crate": (), "self": file.module, "super": file.module[:-1]}
        if path[:1] and path[0] not in starts and (*file.module, path[0]) not in self.files:
            return None
        full = starts.get(path[0], (*file.module, path[0])) if path else ()
        for part in path[1:]:
            full = full[:-1] if part == "super" else full if part == "self" else (*full, part)
        return full

    def followed(self, full, depth=0):
        """Files that define what a path names, with re-exports followed."""
        for n in range(1, len(full) + 1):
            if full[:n] in self.files and n < len(full) or depth > 8:
                continue
            found = set()
            for stands_for in self.names.get(full[:n], ()):
                if stands_for[:n] != full[:n]:
                    found |= self.followed((*stands_for, *full[n:]), depth + 1)
            if full[:n] not in self.files:
                item = re.compile(rf"\b(?:fn|struct|enum|trait|type|const|static|mod) {re.escape(full[n - 1])}\b")
                globs = (self.files.get(module) for module in self.names.get((*full[:n - 1], "*"), ()))
                found |= {file.path for file in globs if file and item.search(file.text)}
            if found:
                return found
        return {self.nearest(full)}

    def nearest(self, full):
        """File of the longest part of a path that is a module."""
        while full and full not in self.files:
            full = full[:-1]
        return self.files[full].path if full in self.files else None

    def edges(self, by_roots):
        """Files that each file uses.

        By roots, an edge leads to the `lib.rs` or `mod.rs` that re-exports a name, which has an edge to the definition.
        Otherwise it leads to the definition itself, and a module's re-export of its own children is not an edge.
        """
        edges = {file.path: set() for file in self.files.values()}
        for file in self.files.values():
            for kind, path, _ in self.paths[file.path]:
                full = self.absolute(file, path)
                if full is None or not by_roots and kind == "pub" and full[:len(file.module)] == file.module:
                    continue
                edges[file.path] |= {self.nearest(full)} if by_roots else self.followed(full)
        return edges


def cycles(edges, part):
    """Groups of files that all reach each other within one part of the tree, largest first."""
    reach = {}
    for start in (path for path in edges if part(path)):
        seen, todo = set(), [start]
        while todo:
            new = {path for path in edges.get(todo.pop(), ()) if path and part(path)} - seen
            seen, todo = seen | new, todo + list(new)
        reach[start] = seen
    groups = {frozenset(other for other in seen if path in reach[other]) for path, seen in reach.items()}
    return sorted((group for group in groups if len(group) > 1), key=len, reverse=True)
