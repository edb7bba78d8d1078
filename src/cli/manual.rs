//! Manual page, derived from the commands. Owns its layout, and the test that the file is up to
//! date.
//!
//! Does not describe any command: the words are those of `--help`. Invariant: each command that
//! `--help` lists has a section.

#![allow(clippy::unwrap_used)] // a test that cannot go on has failed

use std::path::Path;

use clap::{Command, CommandFactory};
use clap_mangen::Man;

use super::CommandLine;

/// File of the page. Packages contain it.
const PAGE: &str = "deploy/packages/moongate.1";

/// Renders one page for all commands, so that `man moongate` finds every word.
fn page() -> String {
    let mut program = CommandLine::command();
    program.build();
    let mut page = Vec::new();
    // The version in the page's head would change the file in each release.
    let man = Man::new(program.clone())
        .source("Moongate")
        .manual("User Commands")
        .date("");
    man.render_title(&mut page).unwrap();
    man.render_name_section(&mut page).unwrap();
    man.render_synopsis_section(&mut page).unwrap();
    man.render_description_section(&mut page).unwrap();
    man.render_options_section(&mut page).unwrap();
    let mut page = String::from_utf8(page).unwrap();
    for command in program
        .get_subcommands()
        .filter(|command| !command.is_hide_set() && command.get_name() != "help")
    {
        page += &section(command);
    }
    page += &extra(&program);
    page
}

/// Renders the section of one command, with smaller headings below its own.
fn section(command: &Command) -> String {
    let name = command.get_name().to_owned();
    let man = Man::new(command.clone());
    let mut parts = Vec::new();
    man.render_synopsis_section(&mut parts).unwrap();
    man.render_description_section(&mut parts).unwrap();
    if command
        .get_arguments()
        .any(|argument| !argument.is_hide_set())
    {
        man.render_options_section(&mut parts).unwrap();
    }
    let parts = String::from_utf8(parts).unwrap();
    // Requests in front of the first heading set characters for the whole page, which has them
    // already.
    let parts = parts
        .lines()
        .filter(|line| !line.starts_with(".ie ") && !line.starts_with(".el "));
    let mut out = format!(".SH \"COMMAND {}\"\n", name.to_uppercase());
    for line in parts {
        out += &line.replacen(".SH ", ".SS ", 1);
        out.push('\n');
    }
    out
}

/// Renders the text below the help of the whole program, as it is laid out there.
fn extra(program: &Command) -> String {
    let text = program
        .get_after_help()
        .map(ToString::to_string)
        .unwrap_or_default();
    let lines: String = text
        .lines()
        .map(|line| format!("{}\n", line.replace('\\', "\\e").replace('-', "\\-")))
        .collect();
    format!(".SH NOTES\n.nf\n{lines}.fi\n")
}

#[test]
fn the_manual_page_is_what_is_derived() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(PAGE);
    let page = page();
    if std::env::var_os("UPDATE_EXPECTED").is_some() {
        return std::fs::write(&path, page).unwrap();
    }
    let how = "commands have changed: UPDATE_EXPECTED=1 cargo test --lib manual";
    assert!(
        std::fs::read_to_string(&path).unwrap_or_default() == page,
        "{PAGE}: {how}"
    );
}
