//! `moongate remove`, `enable` and `disable`: servers and tools of the config. Owns their flags.
//!
//! Does not write the config (`config_edit.rs`). Invariant: disable and enable lead back to the
//! same file.

use std::process::ExitCode;

use crate::cli::config_edit::EditArgs;
use crate::cli::process::{BAD_CONFIG, print_message};
use moongate_config::edit::ConfigOperation;
use moongate_config::nearest;

/// Server to remove.
#[derive(Clone, Debug, clap::Args)]
pub struct RemoveArgs {
    /// The server's name in the config
    server: String,
    #[command(flatten)]
    edit: EditArgs,
}

/// Server or tools to switch.
#[derive(Clone, Debug, clap::Args)]
pub struct SwitchArgs {
    /// The server's name in the config
    server: String,
    /// The server's tools, by its own names; omit to switch the whole server
    tools: Vec<String>,
    #[command(flatten)]
    edit: EditArgs,
}

/// Removes a server's entry.
pub async fn remove(args: RemoveArgs) -> anyhow::Result<ExitCode> {
    args.edit
        .apply(&ConfigOperation::RemoveServer(args.server), None)
        .await
}

/// Switches a server or tools on.
pub async fn enable(args: SwitchArgs) -> anyhow::Result<ExitCode> {
    let server = args.server.clone();
    let tools = args.tools.clone();
    let operation = match tools.is_empty() {
        true => ConfigOperation::EnableServer(server),
        false => ConfigOperation::EnableTools(server, tools),
    };
    args.edit.apply(&operation, Some(&args.server)).await
}

/// Switches a server or tools off.
pub async fn disable(args: SwitchArgs) -> anyhow::Result<ExitCode> {
    let server = args.server.clone();
    let tools = args.tools.clone();
    if let Err(message) = check_names(&args).await {
        print_message(&format!("error: nothing was changed: {message}"));
        return Ok(ExitCode::from(BAD_CONFIG));
    }
    let operation = match tools.is_empty() {
        true => ConfigOperation::DisableServer(server),
        false => ConfigOperation::DisableTools(server, tools),
    };
    args.edit.apply(&operation, Some(&args.server)).await
}

/// Refuses names of tools that the server does not have. They would look like tools that are off.
async fn check_names(args: &SwitchArgs) -> Result<(), String> {
    let SwitchArgs {
        server,
        tools,
        edit,
    } = args;
    if tools.is_empty() {
        return Ok(());
    }
    let Some(known) = edit.known_tools(server).await else {
        print_message(&format!(
            "no running gateway knows the tools of {server}: the names are written unchecked"
        ));
        return Ok(());
    };
    let Some(tool) = tools.iter().find(|tool| !known.contains(tool)) else {
        return Ok(());
    };
    let names: Vec<&str> = known.iter().map(String::as_str).collect();
    let advice = match nearest(tool, &names) {
        // Here it would be a name, not a pattern.
        _ if tool.contains(['*', '?', '[', '{']) => {
            format!("a pattern goes into the config: `servers.{server}.tools.deny = [{tool:?}]`")
        }
        Some(near) => format!("did you mean `{near}`?"),
        None => format!("`moongate tools --server {server}` lists its tools"),
    };
    Err(format!("server {server} has no tool {tool:?}; {advice}"))
}
