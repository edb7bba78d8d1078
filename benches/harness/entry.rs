//! How a bench on this harness begins: as one of its own roles, or with its command line.

use super::{begin, roles};
use anyhow::Result;
use clap::Parser;

/// Runs a role if one is named, else `work` with the arguments, on this thread.
pub(crate) fn run<A: Parser>(name: &str, work: impl AsyncFnOnce(A) -> Result<()>) -> Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match words.as_slice() {
        [first, role, rest @ ..] if first == "--role" => return roles::run(role, rest),
        words if !begin::is_asked(words) => {
            eprintln!("run this with: cargo bench --bench {name}");
            return Ok(());
        }
        _ => {}
    }
    let args = A::parse();
    // On the main thread only: the kernel ties some of the children to the thread that started
    // them.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(begin::unless_stopped(work(args)))
}
