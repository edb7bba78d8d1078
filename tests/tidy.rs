//! The tree checks itself: who may use whom, how large things may be, and where words of the wire
//! may stand.

#![allow(clippy::unwrap_used)] // a test that cannot go on has failed

#[path = "tidy/cycles.rs"]
mod cycles;
#[path = "tidy/server_keys.rs"]
mod server_keys;
#[path = "tidy/source.rs"]
mod source;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use moongate_protocol::SUPPORTED;

use source::{SourceFile, crates, files_below, root, sources};

fn module(path: &str) -> &str {
    path.split('/')
        .next()
        .unwrap_or(path)
        .trim_end_matches(".rs")
}

fn assert_none(problems: &[String]) {
    assert!(problems.is_empty(), "\n{}", problems.join("\n"));
}

/// Lines of code, without comments.
fn lines(source: &SourceFile) -> impl Iterator<Item = (usize, &str)> {
    source
        .code
        .lines()
        .enumerate()
        .map(|(n, line)| (n + 1, line.trim()))
}

/// Where modules stand in reading order: the folder of a `lib.rs`, and the place of its modules.
const ORDERED: [(&str, &str); 2] = [("src", ""), ("crates/upstream/src", "upstream/")];

#[test]
fn modules_use_only_those_above_them() {
    let problems: Vec<String> = ORDERED
        .into_iter()
        .flat_map(|(folder, place)| uses_from_below(folder, place))
        .collect();
    assert_none(&problems);
}

/// The uses of modules that stand below their user in the `lib.rs` of this folder.
fn uses_from_below(folder: &str, place: &str) -> Vec<String> {
    let lib = std::fs::read_to_string(root().join(folder).join("lib.rs")).unwrap();
    let order: BTreeMap<String, usize> = lib
        .lines()
        .filter_map(|line| {
            line.strip_prefix("pub ")
                .unwrap_or(line)
                .strip_prefix("mod ")?
                .strip_suffix(';')
        })
        .enumerate()
        .map(|(n, name)| (name.to_owned(), n))
        .collect();
    assert!(order.len() > 1, "the modules of {folder} were found");
    let mut problems = Vec::new();
    let below = format!("{folder}/");
    for source in sources()
        .iter()
        .filter(|source| !source.is_test && source.path.starts_with(&below))
    {
        let Some(own) = order.get(module(source.place.strip_prefix(place).unwrap_or_default()))
        else {
            continue;
        };
        for (n, line) in source.bare.lines().enumerate() {
            for part in line.split("crate::").skip(1) {
                let used: String = part
                    .chars()
                    .take_while(|c| c.is_alphanumeric() || *c == '_')
                    .collect();
                if order.get(&used).is_some_and(|other| other > own) {
                    problems.push(format!(
                        "{}:{} uses {used}, which stands below it in lib.rs",
                        source.path,
                        n + 1
                    ));
                }
            }
        }
    }
    problems
}

/// Each crate depends only on crates that stand above it in the workspace's list of dependencies.
#[test]
fn crates_use_only_those_above_them() {
    let dependencies = |manifest: &Path, table: &str| -> Vec<String> {
        let text = std::fs::read_to_string(manifest).unwrap();
        let lines = text
            .lines()
            .skip_while(|line| *line != table)
            .skip(1)
            .take_while(|line| !line.starts_with('['));
        let names = lines.filter_map(|line| line.split(['.', ' ', '=']).next());
        names
            .filter_map(|name| name.strip_prefix("moongate-"))
            .map(str::to_owned)
            .collect()
    };
    let order = dependencies(&root().join("Cargo.toml"), "[workspace.dependencies]");
    let place = |name: &str| order.iter().position(|other| other == name);
    let mut problems = Vec::new();
    for folder in crates() {
        let name = folder.file_name().unwrap().to_string_lossy().into_owned();
        let Some(own) = place(&name) else {
            problems.push(format!("crates/{name} is not in [workspace.dependencies]"));
            continue;
        };
        for used in dependencies(&folder.join("Cargo.toml"), "[dependencies]") {
            if place(&used).is_none_or(|other| other >= own) {
                problems.push(format!(
                    "crates/{name} uses {used}, which stands below it in [workspace.dependencies]"
                ));
            }
        }
    }
    assert!(order.len() > 5, "the crates were found");
    assert_none(&problems);
}

/// Larger cycles that are still there: where their files stand, and how many each has. Only ever
/// shorter.
const CYCLES: [(&str, &[usize]); 0] = [];

#[test]
fn few_files_use_each_other_in_a_circle() {
    let mut found: BTreeMap<String, Vec<Vec<String>>> = BTreeMap::new();
    for cycle in cycles::cycles(&sources())
        .into_iter()
        .filter(|cycle| cycle.len() > size_max(cycle))
    {
        let first: Vec<&str> = cycle[0].split("::").collect();
        let shared = |n: &usize| {
            cycle
                .iter()
                .all(|file| file.split("::").take(*n).eq(first[..*n].iter().copied()))
        };
        let place = (1..=first.len())
            .rev()
            .find(shared)
            .map(|n| first[..n].join("::"))
            .unwrap_or_default();
        found.entry(place).or_default().push(cycle);
    }
    let allowed: BTreeMap<&str, &[usize]> = CYCLES.into_iter().collect();
    let mut problems = Vec::new();
    for (place, cycles) in &found {
        let allowed = allowed.get(&**place).copied().unwrap_or_default();
        let sizes: Vec<usize> = cycles.iter().map(Vec::len).collect();
        if sizes != allowed {
            problems.push(format!(
                "{place} has cycles of {sizes:?} files; CYCLES in tests/tidy.rs allows {allowed:?}:"
            ));
            problems.extend(
                cycles
                    .iter()
                    .map(|cycle| format!("    {}", cycle.join(" "))),
            );
        }
    }
    let gone = CYCLES
        .iter()
        .filter(|(place, _)| !found.contains_key(*place));
    problems.extend(gone.map(|(place, _)| {
        format!("{place} has no cycle any more: take it out of CYCLES in tests/tidy.rs")
    }));
    assert_none(&problems);
}

/// Two files may use each other, and a module's root may join them: it knows its parts.
fn size_max(cycle: &[String]) -> usize {
    let is_root = |file: &String| {
        cycle
            .iter()
            .any(|other| other.starts_with(&format!("{file}::")))
    };
    if cycle.iter().any(is_root) { 3 } else { 2 }
}

/// Words of JSON that has no type. A misspelt member of it is an empty view, which no compiler
/// sees.
const UNTYPED: [&str; 4] = ["serde_json::Value", "serde_json::{", "RawValue", "json!("];

#[test]
fn views_read_types_and_no_json() {
    let views: Vec<SourceFile> = sources()
        .into_iter()
        .filter(|source| source.place.starts_with("page/"))
        .collect();
    assert!(views.len() > 20, "the views were found");
    let problems = views
        .iter()
        .filter(|source| !source.is_test)
        .flat_map(|source| {
            let untyped =
                lines(source).filter(|(_, line)| UNTYPED.iter().any(|word| line.contains(word)));
            untyped
                .map(|(n, line)| format!("{}:{n}: {line}", source.path))
                .collect::<Vec<_>>()
        });
    assert_none(&problems.collect::<Vec<_>>());
}

/// Files that are still longer than any may be.
const TOO_LONG: [&str; 0] = [];

#[test]
fn files_are_small_and_say_what_they_are_for() {
    let mut problems = Vec::new();
    let mut sizes = Vec::new();
    for source in sources() {
        sizes.push(source.size);
        match (source.size > 600, TOO_LONG.contains(&&*source.place)) {
            (true, false) => {
                problems.push(format!(
                    "{} has {} lines beside its tests; the cap is 600",
                    source.path, source.size
                ));
            }
            (false, true) => problems.push(format!(
                "{} is short enough: take it out of TOO_LONG",
                source.path
            )),
            _ => {}
        }
        if !source.text.starts_with("//!") && source.path != "src/lib.rs" {
            problems.push(format!("{} does not open with //!", source.path));
        }
    }
    sizes.sort_unstable();
    assert!(
        sizes[sizes.len() / 2] <= 200,
        "the median file has {} lines",
        sizes[sizes.len() / 2]
    );
    assert_none(&problems);
}

/// Lints count functions' lines, forbid `unsafe`, and want documents: for each crate.
#[test]
fn every_crate_has_the_lints_of_the_workspace() {
    let lacking = crates().into_iter().filter(|folder| {
        let manifest = std::fs::read_to_string(folder.join("Cargo.toml")).unwrap();
        !manifest.contains("[lints]\nworkspace = true")
    });
    assert_none(
        &lacking
            .map(|folder| format!("{}: Cargo.toml lacks [lints] workspace", folder.display()))
            .collect::<Vec<_>>(),
    );
}

/// Openings of a doc comment that put off what it is about.
const POOR_OPENINGS: [&str; 6] = ["What", "Whether", "It", "The same", "Who", "Whoever"];

#[test]
fn doc_comments_open_with_a_noun_or_a_verb() {
    let mut all = 0;
    let mut poor = Vec::new();
    for source in sources() {
        let mut before = "";
        for (n, line) in source.text.lines().map(str::trim).enumerate() {
            let mark = ["///", "//!"]
                .into_iter()
                .find(|mark| line.starts_with(mark));
            if let Some(text) = mark
                .filter(|mark| !before.starts_with(mark))
                .map(|mark| line[mark.len()..].trim_start())
            {
                all += 1;
                let opens = |word: &&str| {
                    text.strip_prefix(word)
                        .is_some_and(|rest| !rest.starts_with(char::is_alphanumeric))
                };
                if POOR_OPENINGS.iter().any(opens) {
                    poor.push(format!("{}:{}: {text}", source.path, n + 1));
                }
            }
            before = line;
        }
    }
    assert!(all > 1000, "the doc comments were found: {all}");
    assert!(
        poor.len() * 100 <= all * 5,
        "{} of {all} doc comments open poorly:\n{}",
        poor.len(),
        poor.join("\n")
    );
}

#[test]
fn most_names_of_types_have_two_words() {
    let mut all = 0;
    let mut short = Vec::new();
    for source in sources() {
        for line in source.bare.lines().map(str::trim_start) {
            let line = line
                .strip_prefix("pub")
                .map_or(line, |rest| match rest.strip_prefix('(') {
                    Some(rest) => rest.split_once(") ").map_or("", |(_, rest)| rest),
                    None => rest.trim_start(),
                });
            let rest = ["struct ", "enum ", "trait ", "union ", "type "]
                .iter()
                .find_map(|kind| line.strip_prefix(kind));
            let Some(rest) = rest.filter(|rest| rest.starts_with(char::is_uppercase)) else {
                continue;
            };
            let name: String = rest.chars().take_while(|c| c.is_alphanumeric()).collect();
            all += 1;
            if name.chars().filter(|c| c.is_uppercase()).count() < 2 {
                short.push(format!("{}: {name}", source.path));
            }
        }
    }
    assert!(all > 300, "the types were found: {all}");
    assert!(
        short.len() * 100 <= all * 35,
        "{} of {all} types have one word:\n{}",
        short.len(),
        short.join("\n")
    );
}

/// A word and the places (files or folders below `src/`, or crates) where it may stand; beside
/// these, the date of each revision.
const PLACES: [(&str, &[&str]); 17] = [
    ("\"mcp-", &["protocol/", "mock/", "app/doctor/config.rs"]),
    ("\"Mcp-", &["protocol/", "mock/"]),
    ("io.modelcontextprotocol/", &["protocol/", "mock/"]),
    ("-32002", &["protocol/", "mock/"]),
    ("-3202", &["protocol/", "mock/"]),
    ("-32042", &["protocol/", "mock/"]),
    // Admission comes only from the listener's limits.
    ("AdmissionPolicy for", &["listener/listener_limits.rs"]),
    ("axum::", &["listener/", "admin/", "broker/", "app/logins/"]),
    (
        "process::Command",
        &[
            "platform/browser.rs",
            "platform/child_process/",
            "transport/stdio_link.rs",
            "transport/reaper.rs",
            "mock/",
        ],
    ),
    ("std::os::", &["platform/"]),
    ("rustix::", &["platform/"]),
    ("cfg(unix)", &["platform/", "mock/", "cli/mock.rs"]),
    ("prometheus::", &["telemetry/"]),
    ("figment::", &["config/"]),
    (
        "schemars::",
        &[
            "config/",
            "api/",
            "units/",
            "model/server_choices.rs",
            "upstream/options.rs",
            "upstream/supervision_options.rs",
            "admin/route_types.rs",
        ],
    ),
    ("todo!(", &[]),
    ("FIXME", &[]),
];

#[test]
fn words_stand_where_they_belong() {
    let mut problems = Vec::new();
    let mut seen = BTreeMap::new();
    for source in sources().iter().filter(|source| !source.is_test) {
        let dates = SUPPORTED.map(|date| (date, &["protocol/", "mock/"][..]));
        for (word, places) in PLACES.into_iter().chain(dates) {
            for (n, _) in lines(source).filter(|(_, line)| line.contains(word)) {
                *seen.entry(word).or_insert(0) += 1;
                let allowed = places.iter().any(|place| source.place.starts_with(place));
                if !allowed {
                    problems.push(format!(
                        "{}:{n} has {word:?}, which belongs in {places:?}",
                        source.path
                    ));
                }
            }
        }
    }
    assert!(seen.len() > 8, "the words were looked for: {seen:?}");
    assert_none(&problems);
}

/// Policy comes before a call: the only way to a server is the function that takes a `Permitted`
/// call.
#[test]
fn one_function_of_the_gateway_reaches_the_servers() {
    // Sessions of clients, which stand below the servers, have a `begin_call` of their own.
    let below = ["upstream/", "protocol/", "session/"];
    let mut callers = Vec::new();
    for source in sources()
        .iter()
        .filter(|source| !below.iter().any(|place| source.place.starts_with(place)))
    {
        callers.extend(
            source
                .bare
                .matches("begin_call")
                .map(|_| source.place.clone()),
        );
    }
    assert_eq!(callers, ["gateway/start_call.rs"]);
}

/// The anchors of a page's headings.
fn anchors(page: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(page).unwrap();
    let headings = text
        .lines()
        .filter(|line| line.starts_with('#'))
        .map(|line| line.trim_start_matches('#').trim());
    let kept = |c: &char| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_');
    headings
        .map(|heading| {
            heading
                .to_lowercase()
                .chars()
                .filter(kept)
                .collect::<String>()
                .replace(' ', "-")
        })
        .collect()
}

/// The targets of a page's links.
fn links(text: &str) -> impl Iterator<Item = &str> {
    text.split("](")
        .skip(1)
        .filter_map(|rest| rest.split(')').next())
}

/// The book's table of contents has every page below `docs/` once, and nothing else.
#[test]
fn the_summary_lists_every_page_once() {
    let docs = root().join("docs");
    let mut files = Vec::new();
    files_below(&docs, &mut files);
    let pages = files.iter().map(|path| {
        path.strip_prefix(&docs)
            .unwrap()
            .to_string_lossy()
            .into_owned()
    });
    let mut pages: Vec<String> = pages
        .filter(|page| page.ends_with(".md") && page != "SUMMARY.md")
        .collect();
    let summary = std::fs::read_to_string(docs.join("SUMMARY.md")).unwrap();
    let mut listed: Vec<&str> = links(&summary).collect();
    pages.sort();
    listed.sort_unstable();
    assert!(pages.len() > 20, "the pages were found");
    assert_eq!(listed, pages);
}

#[test]
fn links_in_the_documents_lead_somewhere() {
    let mut problems = Vec::new();
    let mut checked = 0;
    let mut documents = Vec::new();
    files_below(&root().join("docs"), &mut documents);
    // The others are pictures, and what they were taken of.
    documents.retain(|path| {
        path.extension()
            .is_some_and(|kind| kind == "md" || kind == "txt")
    });
    let others = [
        "README.md",
        "ARCHITECTURE.md",
        "CONTRIBUTING.md",
        "CHANGELOG.md",
        "benches/README.md",
    ];
    documents.extend(
        others
            .into_iter()
            .chain([
                "SECURITY.md",
                "deploy/README.md",
                "config/README.md",
                "examples/README.md",
            ])
            .map(|name| root().join(name)),
    );
    for path in documents {
        let document = path.strip_prefix(root()).unwrap().display();
        let Ok(text) = std::fs::read_to_string(&path) else {
            problems.push(format!("{document} is missing"));
            continue;
        };
        for link in links(&text) {
            let (target, anchor) = link.split_once('#').unwrap_or((link, ""));
            if target.contains("://") {
                continue;
            }
            checked += 1;
            let to = if target.is_empty() {
                path.clone()
            } else {
                path.parent().unwrap().join(target)
            };
            if !to.exists()
                || !anchor.is_empty() && !anchors(&to).iter().any(|known| known == anchor)
            {
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
        (name != "README.md" && !documents.contains(&name))
            .then(|| format!("config/…/{name} is named in no document"))
    };
    assert!(files.len() > 3, "the examples were found");
    assert_none(&files.iter().filter_map(unnamed).collect::<Vec<_>>());
}
