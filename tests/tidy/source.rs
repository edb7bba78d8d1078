//! Source files as the checks see them: whole, without their tests, and without comments and
//! strings.
//!
//! Reads `src/` and `crates/*/src`. Does not judge. Invariant: every view has the lines of the
//! file, at their numbers.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// A file of the gateway, or of a crate below it.
pub(crate) struct SourceFile {
    /// Where it stands, from the root: `src/cli/mod.rs`.
    pub(crate) path: String,
    /// Its place among layers, wherever those are: `cli/mod.rs`, `mock/call.rs`.
    pub(crate) place: String,
    /// The path of its module by place: `["mock", "call"]`.
    pub(crate) module: Vec<String>,
    /// What `crate` stands for in it, by place.
    pub(crate) root: Vec<String>,
    /// As it was written.
    pub(crate) text: String,
    /// Without tests and comments.
    pub(crate) code: String,
    /// Without tests, comments, strings and characters.
    pub(crate) bare: String,
    /// Lines that are no part of a test.
    pub(crate) size: usize,
    /// Compiled for tests only.
    pub(crate) is_test: bool,
}

impl SourceFile {
    fn read(path: PathBuf) -> SourceFile {
        let text = std::fs::read_to_string(&path).unwrap();
        let path = path
            .strip_prefix(root())
            .unwrap()
            .to_string_lossy()
            .replace('\\', "/");
        // `src/cli/mod.rs` is `cli/mod.rs`, and `crates/mock/src/call.rs` is `mock/call.rs`.
        let (place, root) = match path.strip_prefix("crates/") {
            Some(rest) => (
                rest.replacen("/src/", "/", 1),
                vec![rest.split('/').next().unwrap().to_owned()],
            ),
            None => (path.trim_start_matches("src/").to_owned(), Vec::new()),
        };
        let mut module: Vec<String> = place
            .trim_end_matches(".rs")
            .split('/')
            .map(str::to_owned)
            .collect();
        if module
            .last()
            .is_some_and(|name| matches!(name.as_str(), "mod" | "lib" | "main"))
        {
            module.pop();
        }
        let bare = without_text(&text, true);
        let tests = test_lines(&bare);
        let size = text.lines().count() - tests.len();
        let code = without_lines(&without_text(&text, false), &tests);
        let bare = without_lines(&bare, &tests);
        // Its parent may say that, too; `sources` looks.
        let is_test = place.starts_with("testing/");
        SourceFile {
            path,
            place,
            module,
            root,
            text,
            code,
            bare,
            size,
            is_test,
        }
    }

    /// The modules in files of their own that are declared for tests only.
    fn test_modules(&self) -> impl Iterator<Item = Vec<String>> {
        let mut marked = false;
        self.text.lines().filter_map(move |line| {
            let was = marked;
            marked = line.trim() == "#[cfg(test)]" || was && line.starts_with("#[");
            let name = line
                .trim()
                .strip_suffix(';')?
                .rsplit_once("mod ")
                .filter(|_| was)?
                .1;
            Some([&self.module[..], &[name.to_owned()]].concat())
        })
    }
}

pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

pub(crate) fn files_below(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(dir).unwrap_or_else(|e| panic!("{}: {e}", dir.display())) {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files_below(&path, found);
        } else {
            found.push(path);
        }
    }
}

/// The folders of the crates below the gateway.
pub(crate) fn crates() -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(root().join("crates")) else {
        return Vec::new();
    };
    let mut crates: Vec<PathBuf> = entries
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.is_dir())
        .collect();
    crates.sort();
    crates
}

/// All of them.
pub(crate) fn sources() -> Vec<SourceFile> {
    let mut paths = Vec::new();
    files_below(&root().join("src"), &mut paths);
    crates()
        .iter()
        .for_each(|folder| files_below(&folder.join("src"), &mut paths));
    paths.retain(|path| path.extension().is_some_and(|e| e == "rs"));
    paths.sort();
    assert!(paths.len() > 50, "the sources were found");
    let mut sources: Vec<SourceFile> = paths.into_iter().map(SourceFile::read).collect();
    let tests: BTreeSet<Vec<String>> = sources.iter().flat_map(SourceFile::test_modules).collect();
    for source in &mut sources {
        source.is_test |= tests.iter().any(|module| source.module.starts_with(module));
    }
    sources
}

/// Blanks comments, and with `strings` also what stands in strings and characters.
fn without_text(text: &str, strings: bool) -> String {
    let bytes = text.as_bytes();
    let mut out = bytes.to_vec();
    let mut at = 0;
    while at < bytes.len() {
        let (end, blanks) = token(bytes, at, strings);
        if blanks {
            out[at..end]
                .iter_mut()
                .filter(|byte| **byte != b'\n')
                .for_each(|byte| *byte = b' ');
        }
        at = end;
    }
    String::from_utf8(out).unwrap()
}

/// Where the token at `at` ends, and whether it is blanked.
fn token(bytes: &[u8], at: usize, strings: bool) -> (usize, bool) {
    let rest = &bytes[at..];
    let find = |from: usize, what: &[u8]| {
        rest[from..]
            .windows(what.len())
            .position(|window| window == what)
            .map_or(rest.len(), |n| from + n)
    };
    let word_before = at > 0 && (bytes[at - 1].is_ascii_alphanumeric() || bytes[at - 1] == b'_');
    if rest.starts_with(b"//") {
        return (at + find(2, b"\n"), true);
    }
    if rest.starts_with(b"/*") {
        return (at + (find(2, b"*/") + 2).min(rest.len()), true);
    }
    let hashes = rest
        .iter()
        .skip(1)
        .take_while(|byte| **byte == b'#')
        .count();
    if rest[0] == b'r'
        && !word_before | matches!(bytes[at.max(1) - 1], b'b' | b'c')
        && rest.get(1 + hashes) == Some(&b'"')
    {
        let close = [&b"\""[..], &vec![b'#'; hashes]].concat();
        return (
            at + (find(2 + hashes, &close) + close.len()).min(rest.len()),
            strings,
        );
    }
    if rest[0] == b'"' {
        let mut end = 1;
        while end < rest.len() && rest[end] != b'"' {
            end += if rest[end] == b'\\' { 2 } else { 1 };
        }
        return (at + (end + 1).min(rest.len()), strings);
    }
    // A character, and no lifetime.
    if rest[0] == b'\'' {
        if rest.get(1) == Some(&b'\\') {
            return (at + find(3, b"'") + 1, strings);
        }
        let width = std::str::from_utf8(&rest[1..rest.len().min(5)])
            .map_or_else(|e| e.valid_up_to(), str::len);
        let first = std::str::from_utf8(&rest[1..=width])
            .ok()
            .and_then(|text| text.chars().next());
        if let Some(end) = first
            .map(|c| 1 + c.len_utf8())
            .filter(|end| rest.get(*end) == Some(&b'\''))
        {
            return (at + end + 1, strings);
        }
    }
    (at + 1, false)
}

/// The lines of items that are compiled for tests only; needs the text without strings.
fn test_lines(bare: &str) -> BTreeSet<usize> {
    let lines: Vec<&str> = bare.lines().collect();
    let mut found = BTreeSet::new();
    let mut n = 0;
    while n < lines.len() {
        if lines[n].trim() != "#[cfg(test)]" {
            n += 1;
            continue;
        }
        let mut depth = 0_usize;
        let mut opened = false;
        loop {
            found.insert(n);
            let line = lines[n].trim();
            let is_attribute = line.starts_with("#[");
            for c in line.chars().filter(|_| !is_attribute) {
                match c {
                    '{' | '(' | '[' => depth += 1,
                    '}' | ')' | ']' => depth -= 1,
                    _ => {}
                }
                opened |= c == '{';
            }
            n += 1;
            let over = depth == 0 && (opened || line.ends_with(';') || line.ends_with(','));
            if n == lines.len() || over && !is_attribute {
                break;
            }
        }
    }
    found
}

fn without_lines(text: &str, lines: &BTreeSet<usize>) -> String {
    let kept = text
        .lines()
        .enumerate()
        .map(|(n, line)| if lines.contains(&n) { "" } else { line });
    kept.collect::<Vec<_>>().join("\n")
}

#[test]
fn tests_strings_and_comments_are_told_from_code() {
    let text = r##"//! Head.
use a::b; // `crate::c`
const BRACE: (char, &str) = ('}', "crate::d }");
#[cfg(test)]
fn helper<'a>(x: &'a str) -> (u8, u8) {
    let _ = (r#"
}"#, "\"{", '"', x);
}
fn kept() {}
#[cfg(test)]
#[allow(dead_code)]
mod tests;
fn kept_too() {}
"##;
    let bare = without_text(text, true);
    let tests = test_lines(&bare);
    assert_eq!(
        tests.into_iter().collect::<Vec<_>>(),
        [3, 4, 5, 6, 7, 9, 10, 11]
    );
    assert!(
        !bare.contains("crate") && bare.contains("use a::b;") && bare.contains("fn kept() {}"),
        "{bare}"
    );
    let code = without_text(text, false);
    assert!(
        code.contains("crate::d }") && !code.contains("crate::c") && !code.contains("Head"),
        "{code}"
    );
    assert_eq!(bare.len(), text.len());
    assert_eq!(code.len(), text.len());
    assert_eq!(bare.lines().count(), text.lines().count());
}
