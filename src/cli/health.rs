//! `moongate health`: is a running gateway ready?

use std::process::ExitCode;

use crate::cli::admin::GatewayArgs;
use crate::cli::print_message;

/// Flags of `health`.
#[derive(Clone, Debug, clap::Args)]
pub struct HealthArgs {
    #[command(flatten)]
    gateway: GatewayArgs,
}

/// Asks `/readyz`. Exit code 0: ready; 1: not.
pub async fn run(args: HealthArgs) -> anyhow::Result<ExitCode> {
    let admin = args.gateway.client()?;
    let (status, _) = admin.get("/readyz").await?;
    if status != 200 {
        print_message("not ready");
    }
    Ok(if status == 200 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
