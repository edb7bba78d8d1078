//! `moongate open`: the page of a running gateway in a browser. Owns the choice of its address.
//!
//! Does not sign in: where a key is needed, a ticket in the address lets the page do it once.
//! Invariant: no key is part of the address, and no ticket of what a browser sends.

use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;

use moongate_api::{ApiError, SignInTicket};

use crate::cli::admin_client::{AdminClient, GatewayArgs};
use crate::cli::process::print_message;

/// Time limit of the gateway's answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(3);

/// Flags of `open`.
#[derive(Clone, Debug, clap::Args)]
pub struct OpenArgs {
    /// Print the address without opening it
    #[arg(long)]
    print: bool,
    #[command(flatten)]
    gateway: GatewayArgs,
}

/// Opens the page. Returns exit code 1 if no gateway is running.
pub async fn run(args: OpenArgs) -> anyhow::Result<ExitCode> {
    let client = args.gateway.client()?;
    let Some(page) = client.page_url() else {
        print_message(
            "error: a browser cannot open a Unix socket; set gateway.admin = \"127.0.0.1:9090\" \
             for the page",
        );
        return Ok(ExitCode::FAILURE);
    };
    let url = match ticket_path(&client).await? {
        Some(path) => format!("{}{path}", page.trim_end_matches('/')),
        None => page,
    };
    // Printed in any case: over SSH, the browser of this machine does not help.
    writeln!(std::io::stdout(), "{url}")?;
    if !args.print
        && let Err(error) = moongate_platform::browser::open(&url).await
    {
        print_message(&format!(
            "no browser was opened ({error}): open the address yourself"
        ));
    }
    Ok(ExitCode::SUCCESS)
}

/// Requests a ticket. Returns the path of the page that it signs in at, or `None` without one.
async fn ticket_path(client: &AdminClient) -> anyhow::Result<Option<String>> {
    let answer = client
        .send_request("POST", "/api/v1/tickets", ANSWER_TIMEOUT)
        .await?;
    if answer.status == 200 {
        return Ok(Some(answer.read::<SignInTicket>()?.path));
    }
    let ApiError { error, message } = answer.read()?;
    // A gateway without keys needs no ticket.
    if error != "no_keys" {
        let why = if message.is_empty() {
            "the gateway sent no ticket"
        } else {
            &message
        };
        print_message(&format!("the page is not signed in: {why}"));
    }
    Ok(None)
}
