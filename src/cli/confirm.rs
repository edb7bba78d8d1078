//! Confirmation by the user before something is written.
//!
//! Owns the question and the reading of its answer. Does not write. Invariant: without a terminal
//! nothing counts as a yes.

use std::io::{BufRead, IsTerminal, Write};

use anyhow::bail;

/// Returns true if there is a terminal to ask on.
pub(super) fn can_ask() -> bool {
    std::io::stdin().is_terminal()
}

/// Asks a question on the terminal. Fails if there is none.
pub(super) fn confirm(question: &str) -> anyhow::Result<bool> {
    if !can_ask() {
        bail!("cannot ask for confirmation here: pass --yes to write it");
    }
    let mut err = std::io::stderr().lock();
    write!(err, "{question} [y/N] ")?;
    err.flush()?;
    let mut answer = String::new();
    std::io::stdin().lock().read_line(&mut answer)?;
    Ok(matches!(
        answer.trim().to_ascii_lowercase().as_str(),
        "y" | "yes"
    ))
}
