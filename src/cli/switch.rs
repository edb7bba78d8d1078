//! `moongate remove`, `enable` and `disable`: servers and tools of the config. Owns their flags.
//!
//! Does not write the config (`config_edit.rs`). Invariant: disable and enable lead back to the same file.

use std::process::ExitCode;

use crate::cli::config_edit::EditArgs;
use moongate_config::edit::ConfigOperation;

/// Server to remove.
#[derive(Clone, Debug, clap::Args)]
pub struct RemoveArgs {
    /// The server, as the config names it
    server: String,
    #[command(flatten)]
    edit: EditArgs,
}

/// Server or tools to switch.
#[derive(Clone, Debug, clap::Args)]
pub struct SwitchArgs {
    /// The server, as the config names it
    server: String,
    /// Tools of it, by the server's own names; none: the whole server
    tools: Vec<String>,
    #[command(flatten)]
    edit: EditArgs,
}

/// Removes a server's entry.
pub async fn remove(args: RemoveArgs) -> anyhow::Result<ExitCode> {
    args.edit.apply(&ConfigOperation::RemoveServer(args.server), None).await
}

/// Switches a server or tools on.
pub async fn enable(args: SwitchArgs) -> anyhow::Result<ExitCode> {
    let (server, tools) = (args.server.clone(), args.tools.clone());
    let operation = match tools.is_empty() {
        true => ConfigOperation::EnableServer(server),
        false => ConfigOperation::EnableTools(server, tools),
    };
    args.edit.apply(&operation, Some(&args.server)).await
}

/// Switches a server or tools off.
pub async fn disable(args: SwitchArgs) -> anyhow::Result<ExitCode> {
    let (server, tools) = (args.server.clone(), args.tools.clone());
    let operation = match tools.is_empty() {
        true => ConfigOperation::DisableServer(server),
        false => ConfigOperation::DisableTools(server, tools),
    };
    args.edit.apply(&operation, Some(&args.server)).await
}
