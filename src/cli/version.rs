//! `moongate --version`. Owns its flags and its text.
//!
//! Does not find out what the allocator is (`allocator.rs`). Invariant: the first line is `moongate
//! VERSION`, with or without `--verbose`.

use std::fmt::Write as _;
use std::io::Write as _;
use std::process::ExitCode;

use clap::Args;

use crate::allocator;

/// Flags of the version.
#[derive(Args, Debug, Default)]
pub(super) struct VersionArgs {
    /// Print the version; with --verbose also the system and the allocator
    #[arg(short = 'V', long)]
    version: bool,
    /// Print more about the version
    #[arg(long, requires = "version", hide = true)]
    verbose: bool,
}

impl VersionArgs {
    /// True if the version is to be printed, and nothing else is to be done.
    pub(super) fn is_asked(&self) -> bool {
        self.version
    }
}

/// Prints the version to standard output. Returns exit code 1 if that fails.
pub(super) fn print(args: &VersionArgs) -> ExitCode {
    let mut text = concat!("moongate ", env!("CARGO_PKG_VERSION"), "\n").to_owned();
    if args.verbose {
        let system = format!(
            "{}-{}{}",
            std::env::consts::ARCH,
            std::env::consts::OS,
            libc_suffix()
        );
        let build = if cfg!(debug_assertions) {
            "debug"
        } else {
            "optimized"
        };
        let _ = write!(
            text,
            "target: {system}\nbuild: {build}\nallocator: {}\n",
            allocator::name()
        );
    }
    match std::io::stdout().write_all(text.as_bytes()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

/// Returns the C library that the program was built for, as targets of Rust name it.
const fn libc_suffix() -> &'static str {
    if cfg!(target_env = "gnu") {
        "-gnu"
    } else if cfg!(target_env = "musl") {
        "-musl"
    } else if cfg!(target_env = "msvc") {
        "-msvc"
    } else {
        ""
    }
}
