//! `moongate health`: readiness of a running gateway. Owns the exit code.
//!
//! Does not judge readiness: `/readyz` does. Invariant: exit code 0 means that the gateway is
//! ready.

use std::process::ExitCode;

use crate::cli::admin_client::GatewayArgs;
use crate::cli::process::print_message;

/// Flags of `health`.
#[derive(Clone, Debug, clap::Args)]
pub struct HealthArgs {
    #[command(flatten)]
    gateway: GatewayArgs,
}

/// Requests `/readyz`. Returns exit code 0 if the gateway is ready, 1 if not.
pub async fn run(args: HealthArgs) -> anyhow::Result<ExitCode> {
    // A container's HEALTHCHECK must not exit with 2, so each error is a 1.
    let admin = args
        .gateway
        .client()
        .map_err(|error| anyhow::anyhow!("{error:#}"))?;
    let (status, _) = admin.get("/readyz").await?;
    if status != 200 {
        print_message("not ready");
    }
    Ok(if status == 200 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}
