//! Words of a command line that are flags.
//!
//! Owns which declared flag a word means. Does not parse values (`clap`). Invariant: the
//! declaration of the command line is the only list of flags.

use clap::{Arg, Command};

/// Returns the flag that a word means, if the next word is its value.
pub(super) fn flag_with_value<'a>(command: &'a Command, word: &str) -> Option<&'a Arg> {
    command
        .get_arguments()
        .find(|arg| is_flag(arg, word))
        .filter(|arg| arg.get_action().takes_values())
}

/// True for `--long` or `-s` of this flag, without a value in the same word.
fn is_flag(arg: &Arg, word: &str) -> bool {
    match word.strip_prefix("--") {
        Some(long) => arg.get_long() == Some(long),
        None => arg
            .get_short()
            .is_some_and(|short| word.strip_prefix('-') == Some(&short.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use clap::ArgAction;

    use super::*;

    #[test]
    fn only_a_flag_without_its_value_takes_the_next_word() {
        let command = Command::new("a")
            .arg(Arg::new("config").long("config").short('c'))
            .arg(
                Arg::new("yes")
                    .long("yes")
                    .short('y')
                    .action(ArgAction::SetTrue),
            )
            .arg(Arg::new("file"));
        for (word, takes) in [
            ("--config", true),
            ("-c", true),
            ("--config=a", false),
            ("-ca", false),
            ("--yes", false),
            ("-y", false),
            ("--file", false),
            ("config", false),
            ("-", false),
        ] {
            assert_eq!(flag_with_value(&command, word).is_some(), takes, "{word}");
        }
    }
}
