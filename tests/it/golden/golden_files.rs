//! Files of the golden cases, and what in them differs.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

pub(super) fn directory(revision: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/golden")
        .join(revision)
}

/// Compares with the files, or writes them.
pub(super) fn compare(revision: &str, played: &BTreeMap<String, String>) -> Vec<String> {
    let directory = directory(revision);
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        let _ = std::fs::remove_dir_all(&directory);
        std::fs::create_dir_all(&directory).unwrap();
        for (name, text) in played {
            std::fs::write(directory.join(format!("{name}.txt")), text).unwrap();
        }
    }
    let mut wrong = Vec::new();
    for (name, text) in played {
        let path = directory.join(format!("{name}.txt"));
        match std::fs::read_to_string(&path) {
            Ok(golden) if golden == *text => {}
            Ok(golden) => wrong.push(format!(
                "{}:\n{}",
                path.display(),
                difference(&golden, text)
            )),
            Err(e) => wrong.push(format!(
                "{}: {e}; UPDATE_GOLDEN=1 writes it",
                path.display()
            )),
        }
    }
    let files = std::fs::read_dir(&directory)
        .map(Iterator::count)
        .unwrap_or_default();
    if files != played.len() {
        wrong.push(format!(
            "{} has {files} files for {} cases",
            directory.display(),
            played.len()
        ));
    }
    wrong
}

/// The first lines that differ.
fn difference(golden: &str, text: &str) -> String {
    let (golden, text): (Vec<&str>, Vec<&str>) = (golden.lines().collect(), text.lines().collect());
    let at = golden
        .iter()
        .zip(&text)
        .position(|(a, b)| a != b)
        .unwrap_or(golden.len().min(text.len()));
    let line = |lines: &[&str]| {
        lines
            .get(at)
            .map_or("(the end)".to_owned(), |line| (*line).to_owned())
    };
    format!(
        "line {}:\n  golden: {}\n  now:    {}",
        at + 1,
        line(&golden),
        line(&text)
    )
}
