//! Order of a command line. Owns the move of flags from before the command to behind it.
//!
//! Does not parse flags. Invariant: a line that starts with its command stays unchanged.

use std::ffi::OsString;

use clap::Command;

use super::flag_words::flag_with_value;

/// Returns the line with its command first.
pub(super) fn command_first(mut args: Vec<OsString>, cli: &Command) -> Vec<OsString> {
    if let Some(at) = command_at(&args, cli) {
        let command = args.remove(at);
        args.insert(1, command);
    }
    args
}

/// Returns the index of the command, if flags precede it.
fn command_at(args: &[OsString], cli: &Command) -> Option<usize> {
    let mut at = 1;
    loop {
        let word = args.get(at)?.to_str()?;
        // Flags behind `--` belong to another program.
        if word == "--" {
            return None;
        }
        if !word.starts_with('-') || word == "-" {
            let known =
                cli.find_subcommand(word).is_some() || super::later_commands::NAMES.contains(&word);
            return known.then_some(at);
        }
        at += if takes_value(cli, word) { 2 } else { 1 };
    }
}

/// True if the word after a flag is its value.
fn takes_value(cli: &Command, flag: &str) -> bool {
    // All commands are searched: a flag before the command may belong to any of them.
    let mut commands = std::iter::once(cli).chain(cli.get_subcommands());
    commands.any(|command| flag_with_value(command, flag).is_some())
}
