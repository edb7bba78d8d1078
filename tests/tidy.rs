//! The tree checks itself: who may use whom, how large things may be, and where words of the wire may stand.

#![allow(clippy::unwrap_used)] // a test that cannot go on has failed

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use moongate::revision::SUPPORTED;

/// A source file, as the checks see it.
struct SourceFile {
    path: String,
    /// Without the unit tests at its end.
    code: String,
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn files_below(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(dir).unwrap_or_else(|e| panic!("{}: {e}", dir.display())) {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files_below(&path, found);
        } else {
            found.push(path);
        }
    }
}

fn sources() -> Vec<SourceFile> {
    let mut paths = Vec::new();
    files_below(&root().join("src"), &mut paths);
    files_below(&root().join("crates"), &mut paths);
    paths.retain(|path| path.extension().is_some_and(|e| e == "rs"));
    // What unit tests share.
    paths.retain(|path| path.file_name().is_some_and(|name| name != "testing.rs"));
    paths.sort();
    assert!(paths.len() > 50, "the sources were found");
    let read = |path: PathBuf| {
        let text = std::fs::read_to_string(&path).unwrap();
        let code = text.split("#[cfg(test)]").next().unwrap_or_default().to_owned();
        let place = path.strip_prefix(root()).unwrap().to_string_lossy().replace('\\', "/");
        // `src/cli/mod.rs` is `cli/mod.rs`, and `crates/mock/src/call.rs` is `mock/call.rs`.
        let place = place.trim_start_matches("src/").trim_start_matches("crates/").replacen("/src/", "/", 1);
        SourceFile { path: place, code }
    };
    paths.into_iter().map(read).collect()
}

fn module(path: &str) -> &str {
    path.split('/').next().unwrap_or(path).trim_end_matches(".rs")
}

fn assert_none(problems: &[String]) {
    assert!(problems.is_empty(), "\n{}", problems.join("\n"));
}

/// Lines of code, without comments.
fn lines(source: &SourceFile) -> impl Iterator<Item = (usize, &str)> {
    let numbered = source.code.lines().enumerate().map(|(n, line)| (n + 1, line.trim()));
    numbered.filter(|(_, line)| !line.starts_with("//"))
}

#[test]
fn modules_use_only_those_above_them() {
    let lib = std::fs::read_to_string(root().join("src/lib.rs")).unwrap();
    let order: BTreeMap<String, usize> = lib
        .lines()
        .filter_map(|line| line.strip_prefix("pub mod ")?.strip_suffix(';'))
        .enumerate()
        .map(|(n, name)| (name.to_owned(), n))
        .collect();
    assert!(order.len() > 5, "the modules were found");
    let mut problems = Vec::new();
    for source in sources() {
        let Some(own) = order.get(module(&source.path)) else { continue };
        for (n, line) in lines(&source) {
            for part in line.split("crate::").skip(1) {
                let used: String = part.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
                if order.get(&used).is_some_and(|other| other > own) {
                    problems.push(format!("{}:{n} uses {used}, which stands below it in lib.rs", source.path));
                }
            }
        }
    }
    assert_none(&problems);
}

#[test]
fn files_are_small_and_say_what_they_are_for() {
    let mut problems = Vec::new();
    let mut sizes = Vec::new();
    for source in sources() {
        let size = source.code.lines().count();
        sizes.push(size);
        if size > 600 {
            problems.push(format!("{} has {size} lines; the cap is 600", source.path));
        }
        if !source.code.starts_with("//!") && source.path != "lib.rs" {
            problems.push(format!("{} does not open with //!", source.path));
        }
    }
    sizes.sort_unstable();
    assert!(sizes[sizes.len() / 2] <= 200, "the median file has {} lines", sizes[sizes.len() / 2]);
    assert_none(&problems);
}

/// A word and the places (files or folders below `src/`, or crates) where it may stand; beside these, the date of each revision.
const PLACES: [(&str, &[&str]); 13] = [
    ("\"mcp-", &["protocol/", "mock/"]),
    ("\"Mcp-", &["protocol/", "mock/"]),
    ("io.modelcontextprotocol/", &["protocol/", "mock/"]),
    ("-32002", &["protocol/", "mock/"]),
    ("-3202", &["protocol/", "mock/"]),
    ("-32042", &["protocol/", "mock/"]),
    ("axum::", &["front/", "admin/"]),
    ("process::Command", &["transport/stdio.rs", "transport/reaper.rs", "mock/"]),
    ("prometheus::", &["telemetry/"]),
    ("figment::", &["config/"]),
    ("schemars::", &["config/"]),
    ("todo!(", &[]),
    ("FIXME", &[]),
];

#[test]
fn words_stand_where_they_belong() {
    let mut problems = Vec::new();
    let mut seen = BTreeMap::new();
    for source in sources() {
        let dates = SUPPORTED.map(|date| (date, &["protocol/", "mock/"][..]));
        for (word, places) in PLACES.into_iter().chain(dates) {
            for (n, _) in lines(&source).filter(|(_, line)| line.contains(word)) {
                *seen.entry(word).or_insert(0) += 1;
                let allowed = places.iter().any(|place| source.path.starts_with(place));
                if !allowed {
                    problems.push(format!("{}:{n} has {word:?}, which belongs in {places:?}", source.path));
                }
            }
        }
    }
    assert!(seen.len() > 8, "the words were looked for: {seen:?}");
    assert_none(&problems);
}

/// The anchors of a page's headings.
fn anchors(page: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(page).unwrap();
    let headings = text.lines().filter(|line| line.starts_with('#')).map(|line| line.trim_start_matches('#').trim());
    let kept = |c: &char| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_');
    headings.map(|heading| heading.to_lowercase().chars().filter(kept).collect::<String>().replace(' ', "-")).collect()
}

#[test]
fn links_in_the_documents_lead_somewhere() {
    let mut problems = Vec::new();
    let mut checked = 0;
    let mut documents = Vec::new();
    files_below(&root().join("docs"), &mut documents);
    let others = ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md", "benches/README.md"];
    documents.extend(
        others
            .into_iter()
            .chain(["SECURITY.md", "deploy/README.md", "config/README.md", "examples/README.md"])
            .map(|name| root().join(name)),
    );
    for path in documents {
        let document = path.strip_prefix(root()).unwrap().display();
        let Ok(text) = std::fs::read_to_string(&path) else {
            problems.push(format!("{document} is missing"));
            continue;
        };
        for link in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let (target, anchor) = link.split_once('#').unwrap_or((link, ""));
            if target.contains("://") {
                continue;
            }
            checked += 1;
            let to = if target.is_empty() { path.clone() } else { path.parent().unwrap().join(target) };
            if !to.exists() || !anchor.is_empty() && !anchors(&to).iter().any(|known| known == anchor) {
                problems.push(format!("{document} links to {link}, which does not exist"));
            }
        }
    }
    assert!(checked > 100, "links were found: {checked}");
    assert_none(&problems);
}

#[test]
fn every_example_config_is_named_in_a_document() {
    let mut files = Vec::new();
    files_below(&root().join("config"), &mut files);
    let documents: String = ["README.md", "deploy/README.md", "config/README.md"]
        .iter()
        .filter_map(|document| std::fs::read_to_string(root().join(document)).ok())
        .collect();
    let unnamed = |path: &PathBuf| {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        (name != "README.md" && !documents.contains(&name)).then(|| format!("config/…/{name} is named in no document"))
    };
    assert!(files.len() > 3, "the examples were found");
    assert_none(&files.iter().filter_map(unnamed).collect::<Vec<_>>());
}
