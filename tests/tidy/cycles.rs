//! Cycles of files: which files of a crate use each other, in a circle.
//!
//! Follows `crate::`, `super::` and `self::` paths, in imports and elsewhere. Leaves the roots of crates and layers out
//! (`lib.rs`, `src/cli/mod.rs`): they gather what others have. Leaves re-exports of a module's own parts out, too.

use std::collections::{BTreeMap, BTreeSet};

use super::source::SourceFile;

type Module = Vec<String>;

/// The groups of files that all reach each other, the largest first.
pub(crate) fn cycles(sources: &[SourceFile]) -> Vec<Vec<String>> {
    let sources: Vec<&SourceFile> = sources.iter().filter(|source| !source.is_test).collect();
    let modules: BTreeSet<&Module> = sources.iter().map(|source| &source.module).collect();
    let below_roots = sources.iter().filter(|source| source.module.len() > 1);
    let edges: BTreeMap<&Module, BTreeSet<&Module>> =
        below_roots.map(|source| (&source.module, uses(source, &modules))).collect();
    let reach: BTreeMap<&Module, BTreeSet<&Module>> =
        edges.keys().map(|module| (*module, reached(module, &edges))).collect();
    let mut found: BTreeSet<Vec<String>> = BTreeSet::new();
    for (module, reached) in &reach {
        let both = reached.iter().filter(|other| reach.get(*other).is_some_and(|back| back.contains(module)));
        let cycle: Vec<String> = both.map(|module| module.join("::")).collect();
        if cycle.len() > 1 {
            found.insert(cycle);
        }
    }
    let mut found: Vec<Vec<String>> = found.into_iter().collect();
    found.sort_by_key(|cycle| std::cmp::Reverse(cycle.len()));
    found
}

fn reached<'a>(from: &'a Module, edges: &BTreeMap<&'a Module, BTreeSet<&'a Module>>) -> BTreeSet<&'a Module> {
    let (mut seen, mut next) = (BTreeSet::new(), vec![from]);
    while let Some(module) = next.pop() {
        let new = edges.get(module).into_iter().flatten().filter(|used| seen.insert(**used));
        next.extend(new.copied().collect::<Vec<_>>());
    }
    seen
}

/// The files that a file uses.
fn uses<'a>(source: &SourceFile, modules: &BTreeSet<&'a Module>) -> BTreeSet<&'a Module> {
    let mut used = BTreeSet::new();
    let mut add = |path: &str, is_reexport: bool| {
        let Some(full) = absolute(path, source) else { return };
        let file = (2..=full.len()).rev().find_map(|n| modules.get(&full[..n].to_vec()));
        let own_part = |file: &Module| is_reexport && file.starts_with(&source.module);
        used.extend(file.copied().filter(|file| **file != source.module && !own_part(file)));
    };
    let mut lines = source.bare.lines();
    while let Some(line) = lines.next() {
        let Some((visibility, tree)) = import(line) else {
            paths(line).for_each(|path| add(path, false));
            continue;
        };
        let mut tree = tree.to_owned();
        while !tree.contains(';') {
            tree.push_str(lines.next().unwrap_or(";"));
        }
        flatten("", tree.split(';').next().unwrap_or_default(), &mut |path| add(path, !visibility.is_empty()));
    }
    used
}

/// `pub(crate) use a::b` as `pub(crate)` and `a::b`.
fn import(line: &str) -> Option<(&str, &str)> {
    let (visibility, tree) = line.trim_start().split_once("use ")?;
    let visibility = visibility.trim_end();
    (visibility.is_empty() || visibility == "pub" || visibility.starts_with("pub(")).then_some((visibility, tree))
}

/// Each path of `a::{b, c::{d, e as f}}`.
fn flatten(prefix: &str, tree: &str, each: &mut dyn FnMut(&str)) {
    let (mut depth, mut start) = (0_usize, 0);
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
    for part in parts.into_iter().map(str::trim).filter(|part| !part.is_empty()) {
        match part.split_once('{') {
            Some((head, inner)) => {
                let inner = inner.rsplit_once('}').map_or(inner, |(inner, _)| inner);
                flatten(&format!("{prefix}{}", head.trim()), inner, each);
            }
            None => each(&format!("{prefix}{}", part.split(' ').next().unwrap_or_default())),
        }
    }
}

/// The paths in a line of code that begin at a place of the tree.
fn paths(line: &str) -> impl Iterator<Item = &str> {
    let is_part = |c: char| c.is_alphanumeric() || matches!(c, '_' | ':' | '$');
    line.split(move |c| !is_part(c))
        .filter(|path| ["crate::", "super::", "self::"].iter().any(|start| path.starts_with(start)))
}

/// A path from the top of the tree; nothing for those that begin elsewhere.
fn absolute(path: &str, source: &SourceFile) -> Option<Module> {
    let mut parts = path.split("::").peekable();
    let mut full = match parts.next()? {
        "crate" => source.root.clone(),
        "self" => source.module.clone(),
        "super" => source.module[..source.module.len().checked_sub(1)?].to_vec(),
        _ => return None,
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
    flatten("", "crate::{a, b::{self, c as d}}", &mut |path| found.push(path.to_owned()));
    assert_eq!(found, ["crate::a", "crate::b::self", "crate::b::c"]);
    assert_eq!(import("    pub(super) use x::y;"), Some(("pub(super)", "x::y;")));
    assert_eq!(paths("let x: super::A = crate::b::C(xcrate::d);").collect::<Vec<_>>(), ["super::A", "crate::b::C"]);
}
