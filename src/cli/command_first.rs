//! The order of a command line.
//!
//! Moves flags that stand before the command behind it. Does not read flags. Invariant: a line that begins with its
//! command is left as it is.

use std::ffi::OsString;

use clap::{Arg, Command};

/// A line with its command first.
pub(super) fn command_first(mut args: Vec<OsString>, cli: &Command) -> Vec<OsString> {
    if let Some(at) = command_at(&args, cli) {
        let command = args.remove(at);
        args.insert(1, command);
    }
    args
}

/// Where the command is, if flags stand before it.
fn command_at(args: &[OsString], cli: &Command) -> Option<usize> {
    let mut at = 1;
    loop {
        let word = args.get(at)?.to_str()?;
        if word == "--" {
            return None;
        }
        if !word.starts_with('-') || word == "-" {
            let known = cli.find_subcommand(word).is_some() || super::later_commands::NAMES.contains(&word);
            return known.then_some(at);
        }
        at += if takes_value(cli, word) { 2 } else { 1 };
    }
}

/// Whether the word after a flag is its value.
fn takes_value(cli: &Command, flag: &str) -> bool {
    let names = |arg: &&Arg| match flag.strip_prefix("--") {
        Some(long) => arg.get_long() == Some(long),
        None => flag.chars().count() == 2 && arg.get_short() == flag.chars().nth(1),
    };
    let commands = std::iter::once(cli).chain(cli.get_subcommands());
    let mut found = commands.flat_map(Command::get_arguments).filter(names);
    found.any(|arg| arg.get_action().takes_values())
}
