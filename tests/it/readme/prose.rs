//! The README is short, and all pages for users and contributors are easy to read.

use super::{pages, pages_in, read};

/// The pages for users, and those for contributors.
fn all_pages() -> Vec<(String, String)> {
    let mut all = pages();
    let users = all.len();
    // Not among `pages`: commands there need a checkout, so no test runs them.
    all.extend(pages_in("docs/contributing"));
    assert!(
        all.len() > users + 10,
        "the pages for contributors were found"
    );
    all
}

/// Sentences of a page: without blocks, tables, headings and the marks of lists.
fn sentences(text: &str) -> Vec<String> {
    let mut paragraphs = vec![String::new()];
    let mut code = false;
    for line in text.lines().map(str::trim) {
        if line.starts_with("```") {
            code = !code;
        }
        let item = line.split_once(' ').is_some_and(|(mark, _)| {
            mark == "-" || mark.trim_end_matches('.').parse::<u8>().is_ok()
        });
        if code
            || line.is_empty()
            || item
            || ["```", "|", "#"].iter().any(|mark| line.starts_with(mark))
        {
            paragraphs.push(String::new());
        }
        if !code && !["```", "|", "#"].iter().any(|mark| line.starts_with(mark)) {
            let text = if item {
                line.split_once(' ').unwrap_or_default().1
            } else {
                line
            };
            *paragraphs.last_mut().unwrap() += &format!("{text} ");
        }
    }
    let ends = |text: String| -> Vec<String> {
        text.replace(".** ", ". ").split_inclusive([' ']).fold(
            vec![String::new()],
            |mut sentences, word| {
                let sentence = sentences.last_mut().unwrap();
                sentence.push_str(word);
                if word.trim_end().ends_with(['.', '?', '!']) {
                    sentences.push(String::new());
                }
                sentences
            },
        )
    };
    paragraphs
        .into_iter()
        .flat_map(ends)
        .filter(|sentence| !sentence.trim().is_empty())
        .collect()
}

/// A sentence without the addresses of its links.
fn shown(sentence: &str) -> String {
    let mut parts = sentence.split("](");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, part| {
        text + part.split_once(')').map_or(part, |(_, rest)| rest)
    })
}

#[test]
fn the_readme_is_short() {
    assert!(read("README.md").lines().count() <= 140);
}

#[test]
fn sentences_are_short() {
    let mut counted = Vec::new();
    let mut long = Vec::new();
    let others = [
        "CHANGELOG.md",
        "SECURITY.md",
        "config/README.md",
        "deploy/README.md",
    ];
    for (path, text) in all_pages()
        .into_iter()
        .chain(others.map(|path| (path.to_owned(), read(path))))
    {
        for sentence in sentences(&text) {
            let words = shown(&sentence).split_whitespace().count();
            counted.push(words);
            if words > 25 {
                long.push(format!("{path}: {words} words: {sentence}"));
            }
        }
    }
    counted.sort_unstable();
    assert!(
        counted.len() > 200,
        "sentences were found: {}",
        counted.len()
    );
    assert!(
        counted[counted.len() / 2] <= 16,
        "half of the sentences have more than 16 words"
    );
    assert!(long.is_empty(), "more than 25 words:\n{}", long.join("\n"));
}

/// Rows of tables and code blocks cannot be broken.
#[test]
fn lines_are_short() {
    let others = [
        "ARCHITECTURE.md",
        "CHANGELOG.md",
        "CONTRIBUTING.md",
        "STYLE.md",
        "deploy/README.md",
        "docs/llms.txt",
    ];
    let mut long = Vec::new();
    for (path, text) in all_pages()
        .into_iter()
        .chain(others.map(|path| (path.to_owned(), read(path))))
    {
        let mut is_code = false;
        for (n, line) in text.lines().enumerate() {
            is_code ^= line.trim_start().starts_with("```");
            if !is_code && !line.starts_with('|') && line.chars().count() > 120 {
                long.push(format!("{path}:{}", n + 1));
            }
        }
    }
    assert!(long.is_empty(), "more than 120 characters: {long:?}");
}
