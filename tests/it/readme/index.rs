//! The documents are complete and say each thing in one place: the index for language models, and
//! the reference.

use std::collections::BTreeMap;

use super::{pages, read};

/// The links of a list: title and target of each item, and what follows it.
fn items(text: &str) -> Vec<(&str, &str, &str)> {
    let items = text
        .lines()
        .filter_map(|line| line.trim_start().strip_prefix("- ["));
    items
        .map(|item| {
            let (title, rest) = item.split_once("](").unwrap();
            let (target, rest) = rest.split_once(')').unwrap();
            (title, target, rest)
        })
        .collect()
}

#[test]
fn the_index_for_language_models_lists_every_page_once() {
    let summary = read("docs/SUMMARY.md");
    let index = read("docs/llms.txt");
    let listed = items(&index);
    let pages = |items: &[(&str, &str, &str)]| -> Vec<String> {
        items
            .iter()
            .map(|(title, target, _)| format!("{title}: {target}"))
            .collect()
    };
    assert_eq!(
        pages(&listed),
        pages(&items(&summary)),
        "titles, pages and their order are those of docs/SUMMARY.md"
    );
    let is_silent =
        |(_, _, about): &&(&str, &str, &str)| !about.starts_with(": ") || !about.ends_with('.');
    let silent: Vec<_> = listed.iter().filter(is_silent).collect();
    assert!(silent.is_empty(), "these lack a sentence: {silent:?}");
}

/// The names that a page of the reference explains: keys with their table, metrics, commands and
/// codes.
fn explained(page: &str, text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut heading = "";
    let mut table = "";
    for line in text.lines() {
        if let Some(name) = line.strip_prefix("## ") {
            heading = name;
            let is_command = page.ends_with("/commands.md") && !name.contains(' ');
            found
                .extend((is_command || name.starts_with("MG-")).then(|| format!("heading {name}")));
        } else if !line.starts_with('|') {
            table = "";
        } else if table.is_empty() {
            table = line;
        }
        let first = line
            .strip_prefix("| ")
            .and_then(|row| row.split(" | ").next())
            .unwrap_or_default();
        let names = first.split('`').skip(1).step_by(2);
        match table.split(" | ").next().unwrap_or_default() {
            "| metric" => found.extend(names.map(|name| format!("metric {name}"))),
            "| key" => found.extend(names.map(|name| format!("key {heading} {name}"))),
            _ => {}
        }
    }
    found
}

#[test]
fn each_name_is_explained_on_one_page_of_the_reference() {
    let mut places: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (page, text) in pages()
        .into_iter()
        .filter(|(page, _)| page.starts_with("docs/reference/"))
    {
        for name in explained(&page, &text) {
            places.entry(name).or_default().push(page.clone());
        }
    }
    let count = |kind: &str| places.keys().filter(|name| name.starts_with(kind)).count();
    let counts = [
        count("key "),
        count("metric "),
        count("heading MG-"),
        count("heading "),
    ];
    assert!(
        counts[0] > 120 && counts[1] > 50 && counts[2] > 20 && counts[3] > 45,
        "names were found: {counts:?}"
    );
    let twice: Vec<_> = places.iter().filter(|(_, pages)| pages.len() > 1).collect();
    assert!(twice.is_empty(), "explained more than once: {twice:#?}");
}

#[test]
fn every_picture_is_shown_in_a_document() {
    let shown: String = pages().into_iter().map(|(_, text)| text).collect();
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/pictures");
    let files = std::fs::read_dir(folder)
        .unwrap()
        .map(|file| file.unwrap().file_name().into_string().unwrap());
    let pictures: Vec<String> = files.filter(|name| name != "index.json").collect();
    let unused: Vec<_> = pictures
        .iter()
        .filter(|name| !shown.contains(&format!("pictures/{name}")))
        .collect();
    assert!(
        pictures.len() > 8 && unused.is_empty(),
        "of {pictures:?}, no document shows {unused:?}"
    );
}
