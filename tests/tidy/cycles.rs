//! Cycles of files: which files of a crate use each other, in a circle.
//!
//! Follows `crate::`, `super::` and `self::` paths, and those that start with a child module, in
//! imports and elsewhere. Each leads to the file that has what it names, also through imports and
//! re-exports of other modules. Leaves out re-exports of a module's own parts: a root that only
//! gathers them uses nothing.

use std::collections::{BTreeMap, BTreeSet};

use super::source::SourceFile;

type Module = Vec<String>;
/// The paths of imported names, with what each stands for.
type Imports = BTreeMap<Vec<String>, Vec<String>>;

/// The groups of files that all reach each other, the largest first.
pub(crate) fn cycles(sources: &[SourceFile]) -> Vec<Vec<String>> {
    // Nothing can use a `main.rs`.
    let is_counted = |source: &&SourceFile| !source.is_test && source.path != "src/main.rs";
    let sources: Vec<&SourceFile> = sources.iter().filter(is_counted).collect();
    let modules: BTreeSet<&Module> = sources.iter().map(|source| &source.module).collect();
    let imports: Imports = sources
        .iter()
        .flat_map(|source| imported(source, &modules))
        .collect();
    let edges: BTreeMap<&Module, BTreeSet<&Module>> = sources
        .iter()
        .map(|source| (&source.module, uses(source, &modules, &imports)))
        .collect();
    let reach: BTreeMap<&Module, BTreeSet<&Module>> = edges
        .keys()
        .map(|module| (*module, reached(module, &edges)))
        .collect();
    let mut found: BTreeSet<Vec<String>> = BTreeSet::new();
    for (module, reached) in &reach {
        let both = reached
            .iter()
            .filter(|other| reach.get(*other).is_some_and(|back| back.contains(module)));
        let cycle: Vec<String> = both.map(|module| module.join("::")).collect();
        if cycle.len() > 1 {
            found.insert(cycle);
        }
    }
    let mut found: Vec<Vec<String>> = found.into_iter().collect();
    found.sort_by_key(|cycle| std::cmp::Reverse(cycle.len()));
    found
}

fn reached<'a>(
    from: &'a Module,
    edges: &BTreeMap<&'a Module, BTreeSet<&'a Module>>,
) -> BTreeSet<&'a Module> {
    let mut seen = BTreeSet::new();
    let mut next = vec![from];
    while let Some(module) = next.pop() {
        let new = edges
            .get(module)
            .into_iter()
            .flatten()
            .filter(|used| seen.insert(**used));
        next.extend(new.copied().collect::<Vec<_>>());
    }
    seen
}

/// The files that a file uses.
fn uses<'a>(
    source: &SourceFile,
    modules: &BTreeSet<&'a Module>,
    imports: &Imports,
) -> BTreeSet<&'a Module> {
    let mut used = BTreeSet::new();
    each_path(source, &mut |path, import| {
        let Some(full) = absolute(path, source, modules) else {
            return;
        };
        let is_reexport = import.is_some_and(|import| import.is_reexport);
        let own_part = |file: &Module| is_reexport && file.starts_with(&source.module);
        // Only the last step counts: it has what the path names, and the others pass it on.
        let Some(full) = followed(full, modules, imports).pop() else {
            return;
        };
        let file = (source.root.len()..=full.len())
            .rev()
            .find_map(|n| modules.get(&full[..n].to_vec()));
        used.extend(
            file.copied()
                .filter(|file| **file != source.module && !own_part(file)),
        );
    });
    used
}

/// The names that a file imports. Modules below it can use them, and with a re-export others, too.
fn imported(source: &SourceFile, modules: &BTreeSet<&Module>) -> Vec<(Module, Module)> {
    let mut found = Vec::new();
    each_path(source, &mut |path, import| {
        let Some(import) = import else { return };
        let full = absolute(path, source, modules);
        let name = [&source.module[..], &[import.name.to_owned()]].concat();
        // An item may have the name of its module: `pub use reload::reload`.
        let full = full.filter(|full| !full.starts_with(&name));
        found.extend(full.map(|full| {
            (
                name,
                full.strip_suffix(&["*".to_owned()])
                    .unwrap_or(&full)
                    .to_vec(),
            )
        }));
    });
    found
}

/// A path, and what it stands for, through each import on the way.
fn followed(path: Module, modules: &BTreeSet<&Module>, imports: &Imports) -> Vec<Module> {
    let step = |path: &[String], n: usize| {
        let (name, rest) = path.split_at(n);
        let named = imports
            .get(name)
            .map(|stands_for| [stands_for, rest].concat());
        let all_of = |name: &[String]| imports.get(&[&name[..n - 1], &["*".to_owned()]].concat());
        let glob = || all_of(name).filter(|_| !modules.contains(&name.to_vec()));
        named.or_else(|| glob().map(|stands_for| [stands_for, &path[n - 1..]].concat()))
    };
    let mut found = vec![path];
    while let Some(next) = found
        .last()
        .and_then(|path| (1..=path.len()).find_map(|n| step(path, n)))
    {
        assert!(found.len() < 10, "imports in a circle: {found:?}");
        found.push(next);
    }
    found
}

/// The import that a path stands in.
struct Import<'a> {
    is_reexport: bool,
    /// What the path is called there.
    name: &'a str,
}

/// Calls back for each path of a file.
fn each_path(source: &SourceFile, each: &mut dyn FnMut(&str, Option<Import<'_>>)) {
    let mut lines = source.bare.lines();
    while let Some(line) = lines.next() {
        let Some((visibility, tree)) = import(line) else {
            paths(without_scope(line)).for_each(|path| each(path, None));
            continue;
        };
        let mut tree = tree.to_owned();
        while !tree.contains(';') {
            tree.push_str(lines.next().unwrap_or(";"));
        }
        let is_reexport = !visibility.is_empty();
        flatten(
            "",
            tree.split(';').next().unwrap_or_default(),
            &mut |path| {
                let (path, alias) = path.split_once(" as ").unwrap_or((path, ""));
                let path = path.trim_end_matches("::self");
                let name = if alias.is_empty() {
                    path.rsplit("::").next().unwrap_or_default()
                } else {
                    alias
                };
                each(path, Some(Import { is_reexport, name }));
            },
        );
    }
}

/// `pub(crate) use a::b` as `pub(crate)` and `a::b`.
fn import(line: &str) -> Option<(&str, &str)> {
    let (visibility, tree) = line.trim_start().split_once("use ")?;
    let visibility = visibility.trim_end();
    // A name may end in the word, such as `pub(crate) enum EndCause {`.
    let is_scope = visibility.starts_with("pub(") && visibility.ends_with(')');
    (visibility.is_empty() || visibility == "pub" || is_scope).then_some((visibility, tree))
}

/// Each path of `a::{b, c::{d, e as f}}`.
fn flatten(prefix: &str, tree: &str, each: &mut dyn FnMut(&str)) {
    let mut depth = 0_usize;
    let mut start = 0;
    let mut parts = Vec::new();
    for (at, c) in tree.char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(&tree[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&tree[start..]);
    for part in parts
        .into_iter()
        .map(str::trim)
        .filter(|part| !part.is_empty())
    {
        match part.split_once('{') {
            Some((head, inner)) => {
                let inner = inner.rsplit_once('}').map_or(inner, |(inner, _)| inner);
                flatten(&format!("{prefix}{}", head.trim()), inner, each);
            }
            None => each(&format!("{prefix}{part}")),
        }
    }
}

/// A line without `pub(in path)`, which names a scope and uses nothing of it.
fn without_scope(line: &str) -> &str {
    line.trim_start()
        .strip_prefix("pub(in ")
        .and_then(|rest| rest.split_once(')'))
        .map_or(line, |(_, rest)| rest)
}

/// The paths in a line of code that begin with a module.
fn paths(line: &str) -> impl Iterator<Item = &str> {
    let is_part = |c: char| c.is_alphanumeric() || matches!(c, '_' | ':' | '$');
    line.split(move |c| !is_part(c)).filter(|path| {
        path.starts_with(char::is_lowercase) && path.contains("::") && !path.ends_with(':')
    })
}

/// A path from the top of the tree; nothing for those that begin elsewhere.
fn absolute(path: &str, source: &SourceFile, modules: &BTreeSet<&Module>) -> Option<Module> {
    let mut parts = path.split("::");
    let mut full = match parts.next()? {
        "crate" => source.root.clone(),
        "self" => source.module.clone(),
        "super" => source.module[..source.module.len().checked_sub(1)?].to_vec(),
        child => Some([&source.module[..], &[child.to_owned()]].concat())
            .filter(|full| modules.contains(full))?,
    };
    for part in parts {
        if part == "super" {
            full.pop()?;
        } else {
            full.push(part.to_owned());
        }
    }
    Some(full)
}

#[test]
fn paths_of_imports_are_found() {
    let mut found = Vec::new();
    flatten("", "crate::{a, b::{self, c as d}}", &mut |path| {
        found.push(path.to_owned())
    });
    assert_eq!(found, ["crate::a", "crate::b::self", "crate::b::c as d"]);
    assert_eq!(
        import("    pub(super) use x::y;"),
        Some(("pub(super)", "x::y;"))
    );
    let line = "let x: super::A = child::C(A::new().parse::<u8>());";
    assert_eq!(paths(line).collect::<Vec<_>>(), ["super::A", "child::C"]);
    assert_eq!(
        without_scope("    pub(in crate::a) fn b(c: d::E) {"),
        " fn b(c: d::E) {"
    );
}

#[test]
fn paths_are_followed_through_imports() {
    let module = |path: &str| path.split("::").map(str::to_owned).collect::<Module>();
    let imports = [("a::X", "a::b::Y"), ("a::b::*", "a::c")]
        .map(|(name, path)| (module(name), module(path)))
        .into();
    let files = ["a::b", "a::c"].map(module);
    let found = followed(module("a::X::new"), &files.iter().collect(), &imports);
    assert_eq!(
        found,
        ["a::X::new", "a::b::Y::new", "a::c::Y::new"].map(module)
    );
}
