//! The `moongate` binary: the command line, and the reaper process that it starts next to itself.

use std::process::ExitCode;

#[cfg(all(feature = "jemalloc", any(target_os = "linux", target_os = "macos")))]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    // Before anything else: the reaper process must stay as small as possible.
    let mut args = std::env::args().skip(1);
    if let (Some("guard"), Some(run)) = (args.next().as_deref(), args.next()) {
        moongate_transport::reaper::run_reaper(&run);
        return ExitCode::SUCCESS;
    }
    moongate::allocator::report_heap_bytes();
    moongate::cli::run(moongate::cli::CommandLine::of_process())
}
