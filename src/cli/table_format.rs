//! Flag `--format` of commands that print a table or JSON.
//!
//! Owns its two values. Does not print. Invariant: the table is for people, and only the JSON is
//! for programs.

/// How a result is printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum TableFormat {
    /// For people
    #[default]
    Table,
    /// For programs
    Json,
}
