//! The table of faults in `tests/README.md`: made of the rows and of what the tests did, and
//! compared with the file.
//!
//! `UPDATE_EXPECTED=1` writes the file. A row without a test says why; a test that a row names must
//! exist.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs::File;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};

use super::fault_row::FaultRow;
use super::rows::rows;

/// The program under test.
pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_moongate");

const FAULTS: [&str; 2] = ["<!-- faults -->\n", "<!-- end of faults -->"];
const RUNS: [&str; 2] = ["<!-- runs -->\n", "<!-- end of runs -->"];
const RUNS_HEAD: &str = "| F | test | ways | counted in |\n|---|---|---|---|\n";

fn path() -> PathBuf {
    root().join("tests/README.md")
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn updating() -> bool {
    std::env::var_os("UPDATE_EXPECTED").is_some()
}

/// A test of a row came to its end: its line in the table says what it did.
pub(crate) fn passed(row: &str, test: &str, ways: &BTreeSet<String>, counts: &[(&str, &[&str])]) {
    let entry = rows()
        .find(|one| one.id == row)
        .unwrap_or_else(|| panic!("no row {row}"));
    assert!(
        entry.tests.contains(&test),
        "{row} does not name {test} in tests/it/faults/rows.rs"
    );
    let counted: Vec<String> = counts
        .iter()
        .map(|(name, labels)| metric(name, labels))
        .collect();
    let line = format!(
        "| {row} | `{test}` | {} | {} |",
        spelled(ways),
        counted.join(", ")
    );
    let _one_at_a_time = lock();
    let page = read();
    let runs = section(&page, RUNS);
    if runs.lines().any(|known| known == line) {
        return;
    }
    assert!(
        updating(),
        "tests/README.md lacks this line; UPDATE_EXPECTED=1 writes it:\n{line}"
    );
    let of_test = format!("| `{test}` |");
    let kept = runs
        .lines()
        .skip(2)
        .filter(|known| !known.contains(&of_test))
        .map(str::to_owned);
    let mut lines: Vec<String> = kept.chain([line]).collect();
    lines.sort_by_key(|line| (number(line), line.clone()));
    write(&page, RUNS, &format!("{RUNS_HEAD}{}\n", lines.join("\n")));
}

fn metric(name: &str, labels: &[&str]) -> String {
    if labels.is_empty() {
        format!("`{name}`")
    } else {
        format!("`{name}{{{}}}`", labels.join(","))
    }
}

/// `shared child: all; HTTP: old/new`.
fn spelled(ways: &BTreeSet<String>) -> String {
    let mut by: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for way in ways {
        let (how, eras) = way.rsplit_once(' ').unwrap();
        by.entry(how).or_default().push(eras);
    }
    let each = by.iter().map(|(how, eras)| match eras.len() {
        4 => format!("{how}: all"),
        _ => format!("{how}: {}", eras.join(" ")),
    });
    each.collect::<Vec<_>>().join("; ")
}

fn number(line: &str) -> u32 {
    let digits = line
        .split('|')
        .nth(1)
        .unwrap_or_default()
        .trim()
        .trim_start_matches('F');
    digits.parse().unwrap_or_default()
}

impl FaultRow {
    fn result(&self) -> String {
        let universal = if self.tests.iter().any(|test| is_rig_test(test)) {
            " (U1–U7)"
        } else {
            ""
        };
        match (self.tests.is_empty(), self.lacks) {
            (true, why) => format!("missing: {why}"),
            (false, "") => format!("holds{universal}"),
            (false, what) => format!("holds{universal}; lacks: {what}"),
        }
    }
}

/// Those whose name begins with the number of their row run in a rig.
fn is_rig_test(test: &str) -> bool {
    test.strip_prefix('f')
        .is_some_and(|rest| rest.as_bytes().first().is_some_and(u8::is_ascii_digit))
}

fn faults() -> String {
    let mut table =
        "| F | fault | what the gateway does | tests | result |\n|---|---|---|---|---|\n"
            .to_owned();
    for row in rows() {
        let tests: Vec<String> = row.tests.iter().map(|test| format!("`{test}`")).collect();
        writeln!(
            table,
            "| {} | {} | {} | {} | {} |",
            row.id,
            row.fault,
            row.does,
            tests.join(" "),
            row.result()
        )
        .unwrap();
    }
    table
}

#[test]
fn the_table_of_faults_is_true() {
    let table = faults();
    let _one_at_a_time = lock();
    let page = read();
    if section(&page, FAULTS) == table {
        return;
    }
    assert!(
        updating(),
        "the table in tests/README.md is not that of tests/it/faults/rows.rs; UPDATE_EXPECTED=1 \
         writes it"
    );
    write(&page, FAULTS, &table);
}

#[test]
fn every_fault_has_a_test_or_says_why_not() {
    let tests = tests_of_the_tree();
    assert!(tests.len() > 300, "the tests were found");
    let ids: Vec<String> = rows().map(|row| row.id.to_owned()).collect();
    let all: Vec<String> = (1..=64).map(|n| format!("F{n}")).collect();
    assert_eq!(ids, all, "each fault has its row");
    for row in rows() {
        for test in row.tests {
            assert!(
                tests.contains(*test),
                "{} names {test}, which does not exist",
                row.id
            );
            if is_rig_test(test) {
                let own = format!("f{:02}_", row.id[1..].parse::<u32>().unwrap());
                assert!(
                    test.starts_with(&own),
                    "{} names {test}, which is another row's",
                    row.id
                );
            }
        }
        assert!(
            !row.tests.is_empty() || !row.lacks.is_empty(),
            "{} has no test and no reason",
            row.id
        );
    }
    let named: BTreeSet<&str> = rows().flat_map(|row| row.tests).copied().collect();
    for test in tests.iter().filter(|test| is_rig_test(test)) {
        assert!(named.contains(&**test), "no row names {test}");
    }
    for line in section(&read(), RUNS).lines().skip(2) {
        let test = line.split('`').nth(1).unwrap_or_default();
        assert!(
            named.contains(test),
            "the table of runs has {test}, which no row names"
        );
    }
}

#[test]
fn every_threat_and_report_names_tests_that_exist() {
    let tests = tests_of_the_tree();
    let page = read();
    let (_, tables) = page.split_once("## Threats").unwrap();
    let rows = tables.lines().filter(|line| line.starts_with("| "));
    let cells = rows.filter_map(|row| row.trim_end_matches([' ', '|']).rsplit(" | ").next());
    let mut count = 0;
    for cell in cells.filter(|cell| cell.contains('`')) {
        for test in cell.split('`').skip(1).step_by(2) {
            count += 1;
            assert!(
                tests.contains(test),
                "tests/README.md names {test}, which does not exist"
            );
        }
    }
    assert!(count > 100, "{count} tests were found");
}

/// The names of all tests below `tests/`, `src/` and `crates/`.
fn tests_of_the_tree() -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    let mut folders = vec![
        root().join("tests"),
        root().join("src"),
        root().join("crates"),
    ];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = std::fs::read_to_string(&path).unwrap();
                let mut marked = false;
                for line in text.lines().map(str::trim) {
                    let name = line
                        .split("fn ")
                        .nth(1)
                        .and_then(|rest| rest.split('(').next());
                    match name {
                        Some(name) if std::mem::take(&mut marked) => {
                            names.insert(name.to_owned());
                        }
                        _ => {
                            marked |=
                                line.starts_with("#[test]") || line.starts_with("#[tokio::test")
                        }
                    }
                }
            }
        }
    }
    names
}

// === the file ===

fn read() -> String {
    std::fs::read_to_string(path()).expect("tests/README.md")
}

fn section<'a>(page: &'a str, [begin, end]: [&str; 2]) -> &'a str {
    let from = page.find(begin).expect("the README has the mark") + begin.len();
    let length = page[from..]
        .find(end)
        .expect("the README has the other mark");
    &page[from..from + length]
}

fn write(page: &str, marks: [&str; 2], new: &str) {
    let [begin, end] = marks;
    let page = page.replace(
        &format!("{begin}{}{end}", section(page, marks)),
        &format!("{begin}{new}{end}"),
    );
    std::fs::write(path(), page).expect("the README is written");
}

/// One test at a time reads and writes, whichever process it is in.
fn lock() -> File {
    let file = File::create(Path::new(env!("CARGO_TARGET_TMPDIR")).join("faults.lock"))
        .expect("a lock file");
    flock(&file, FlockOperation::LockExclusive).expect("the lock");
    file
}
