//! `moongate open`: the page of a running gateway in a browser. Owns the choice of its address.
//!
//! Does not log in: the page asks for a key where one is needed. Invariant: no key is part of the address.

use std::io::Write;
use std::process::ExitCode;

use crate::cli::admin::GatewayArgs;
use crate::cli::process::print_message;

/// Flags of `open`.
#[derive(Clone, Debug, clap::Args)]
pub struct OpenArgs {
    /// Print the address, and open nothing
    #[arg(long)]
    print: bool,
    #[command(flatten)]
    gateway: GatewayArgs,
}

/// Opens the page. Returns exit code 1 if no gateway is running.
pub async fn run(args: OpenArgs) -> anyhow::Result<ExitCode> {
    let client = args.gateway.client()?;
    let Some(url) = client.page_url() else {
        print_message("error: no browser opens a Unix socket; set gateway.admin = \"127.0.0.1:9090\" for the page");
        return Ok(ExitCode::FAILURE);
    };
    // Asked first: an error of the browser would not tell what to do.
    client.get("/livez").await?;
    // Printed in any case: over SSH the browser of this machine is no help.
    writeln!(std::io::stdout(), "{url}")?;
    if !args.print
        && let Err(error) = moongate_platform::browser::open(&url)
    {
        print_message(&format!("no browser was opened ({error}): open the address yourself"));
    }
    Ok(ExitCode::SUCCESS)
}
