//! `moongate tools`, `call`, `resources`, `read`, `prompts`, `get`: an MCP client on the command
//! line. Owns the verbs' flags and actions.
//!
//! Does not know revisions or transports: it opens a server as the gateway does (`upstream`).
//! Invariant: results go to stdout, everything else to stderr. All that was started for the verb
//! has ended before the verb does.

mod arguments;
mod elicitation;
mod explain_missing;
mod render_content;
mod verb_client;
mod describe_tool;
mod form;
mod output;
mod probe;
mod system_prompt;
mod progress;
mod switched_off;
pub(in crate::cli) mod table;
mod target;

use std::process::ExitCode;
use std::sync::Arc;

use arguments::CallArguments;
use clap::{Args, Subcommand, ValueEnum};
use describe_tool::{DescribedTool, describe, find_tool};
use output::{VerbFailure, print, print_message};
use target::TargetArgs;
use verb_client::VerbClient;

use crate::cli::process::{report_error, runtime};
use moongate_config::nearest;
use moongate_jsonrpc::json::{ByteString, JsonObject};
use moongate_model::{Call, ItemKind, ItemTexts, Outcome};

pub(super) use probe::{ProbeOutcome, probe_command, probe_settings, probe_url, probe_with};
pub(super) use target::remote;

/// The verbs of the client.
#[derive(Clone, Debug, Subcommand)]
pub enum ClientVerb {
    /// List the tools of a gateway or server
    #[command(after_help = target::HELP)]
    Tools(ListArgs),
    /// Call a tool
    ///
    /// The tool's result goes to stdout; progress, log messages and questions go to stderr. If the
    /// server asks the user something, the question appears on the terminal. Without a terminal,
    /// the server is told that nobody can answer.
    #[command(after_help = target::HELP)]
    Call(CallArgs),
    /// List the resources and resource templates of a gateway or server
    #[command(after_help = target::HELP)]
    Resources(ListArgs),
    /// Read a resource
    #[command(after_help = target::HELP)]
    Read(ReadArgs),
    /// List the prompts of a gateway or server
    #[command(after_help = target::HELP)]
    Prompts(ListArgs),
    /// Get a prompt with its arguments filled in
    #[command(after_help = target::HELP)]
    Get(CallArgs),
}

/// Flags of the verbs that list.
#[derive(Clone, Debug, Args)]
pub struct ListArgs {
    /// How to show the list
    #[arg(long, value_enum, default_value_t)]
    pub format: ListFormat,
    #[command(flatten)]
    target: TargetArgs,
}

/// Flags of the verbs that take arguments.
#[derive(Clone, Debug, Args)]
pub struct CallArgs {
    /// The name, as the list shows it
    pub name: String,
    /// One JSON object, or KEY=VALUE pairs, or `-` to read a JSON object from stdin
    ///
    /// The VALUE of a pair is a string, unless the tool's input schema says otherwise; KEY:=JSON
    /// gives any JSON value.
    #[arg(value_name = "JSON | KEY=VALUE | -")]
    pub arguments: Vec<String>,
    /// How to show the result
    #[arg(long, value_enum, default_value_t)]
    pub format: ResultFormat,
    #[command(flatten)]
    target: TargetArgs,
}

/// Flags of `read`.
#[derive(Clone, Debug, Args)]
pub struct ReadArgs {
    /// The resource's URI, as the list shows it
    pub uri: String,
    /// How to show the contents
    #[arg(long, value_enum, default_value_t)]
    pub format: ResultFormat,
    #[command(flatten)]
    target: TargetArgs,
}

/// How to show a list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum ListFormat {
    /// Columns, one line per item; long descriptions are cut
    #[default]
    Table,
    /// The items exactly as the server sent them, all pages in one object
    Json,
    /// A Markdown section for a system prompt: what the caller can see, and what is switched off
    Prompt,
}

/// How to show a result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum ResultFormat {
    /// Text unchanged; one line for anything else
    #[default]
    Text,
    /// The result exactly as the server sent it
    Json,
}

/// Runs a verb. Returns exit code 1 for a failure, 2 for bad usage or an unusable config.
pub fn run(verb: ClientVerb) -> ExitCode {
    let runtime = match runtime() {
        Ok(runtime) => runtime,
        Err(e) => return report_error(&e),
    };
    let end = match verb {
        ClientVerb::Tools(args) => runtime.block_on(list(&args, &[ItemKind::Tools])),
        ClientVerb::Resources(args) => {
            runtime.block_on(list(&args, &[ItemKind::Resources, ItemKind::Templates]))
        }
        ClientVerb::Prompts(args) => runtime.block_on(list(&args, &[ItemKind::Prompts])),
        // Before the runtime is entered: reading stdin blocks for as long as its writer likes.
        ClientVerb::Call(args) => CallArguments::read(&args.arguments)
            .and_then(|given| runtime.block_on(call(&args, given))),
        ClientVerb::Get(args) => CallArguments::read(&args.arguments)
            .and_then(|given| runtime.block_on(get(&args, given))),
        ClientVerb::Read(args) => runtime.block_on(read(&args)),
    };
    // A blocking read of the terminal cannot be cancelled, and nothing else is left to wait for.
    runtime.shutdown_background();
    match end {
        Ok(code) => code,
        Err(failure) => failure.report(),
    }
}

async fn list(args: &ListArgs, kinds: &[ItemKind]) -> Result<ExitCode, VerbFailure> {
    verb_client::with_client(&args.target, async |client: &VerbClient| {
        show_lists(client, args, kinds).await
    })
    .await
}

async fn show_lists(
    client: &VerbClient,
    args: &ListArgs,
    kinds: &[ItemKind],
) -> Result<ExitCode, VerbFailure> {
    let mut lists = Vec::new();
    for kind in kinds.iter().copied() {
        lists.push((kind, client.list(kind).await?));
    }
    if args.format != ListFormat::Json && lists.iter().all(|(_, items)| items.is_empty()) {
        let away = match client.target.own_admin() {
            Some((admin, only)) => explain_missing::explain_empty(&admin, only.as_deref()).await,
            None => None,
        };
        let away = away.map(|away| format!("; {away}")).unwrap_or_default();
        print_message(&format!(
            "{} has no {}{away}",
            client.target.name(),
            kinds[0].member()
        ));
    }
    print(&match args.format {
        ListFormat::Table => table::lists(&lists).into(),
        ListFormat::Prompt => {
            let mut text = system_prompt::lists(&lists, client.instructions().as_deref());
            // Only tools can be switched off one by one from the page or the command line.
            if let (Some((ItemKind::Tools, tools)), Some((admin, only))) =
                (lists.first(), client.target.own_admin())
            {
                text += &system_prompt::switched_off(
                    &switched_off::find(&admin, only.as_deref(), tools).await,
                );
            }
            text.into()
        }
        ListFormat::Json => output::json_lists(&lists),
    })?;
    Ok(ExitCode::SUCCESS)
}

async fn call(args: &CallArgs, given: CallArguments) -> Result<ExitCode, VerbFailure> {
    verb_client::with_client(&args.target, async |client: &VerbClient| {
        call_tool(client, args, given).await
    })
    .await
}

async fn call_tool(
    client: &VerbClient,
    args: &CallArgs,
    given: CallArguments,
) -> Result<ExitCode, VerbFailure> {
    // The definition gives the pairs' types, and some revisions send arguments as headers. A
    // server may have unlisted tools, or fail to list them, but a call with explicit JSON can
    // be sent anyway.
    let listed = client.list(ItemKind::Tools).await;
    let tools = match (listed, &given) {
        // Pairs need the tool's schema, so a failed list ends the call.
        (Err(failure), CallArguments::Pairs(_)) => return Err(failure),
        (listed, _) => listed.unwrap_or_default(),
    };
    let (definition, unknown) = match find_tool(&tools, &args.name) {
        Some(definition) => (Some(definition.clone()), None),
        None => match describe(client, &tools, &args.name).await {
            Some(DescribedTool::Definition(definition)) => (Some(definition), None),
            Some(DescribedTool::Unknown(text)) => (None, Some(text)),
            None => (None, None),
        },
    };
    let input = definition
        .as_ref()
        .and_then(|tool| tool.read_members::<ItemTexts>().input_schema);
    let arguments = given.typed(input.as_ref())?.unwrap_or_else(JsonObject::new);
    let call = Call {
        definition: definition.clone(),
        ..Call::for_tool(&args.name, arguments.to_raw())
    };
    let outcome = match client.finish_call(call).await {
        Ok(outcome) => outcome,
        Err(failure) if definition.is_some() => return Err(failure),
        Err(failure) => {
            let hint = unknown.unwrap_or_else(|| unlisted(&args.name, &tools));
            return Err(missing_tool(client, &args.name, failure, hint).await);
        }
    };
    // A tool's own failure is a successful call with `isError`, so the result is shown first.
    show(&outcome, args.format, render_content::tool_result)?;
    let is_error = outcome.is_tool_error();
    if is_error {
        print_message(&format!(
            "error: the tool {} reports that it failed",
            args.name
        ));
    }
    // A gateway remembers it. This process knows nothing of the next one.
    if client.target.is_direct() && moongate_protocol::cannot_ask(&Ok(outcome)) {
        print_message(&format!(
            "  call it with --protocol {}: it can ask there",
            moongate_protocol::NEWEST_LEGACY
        ));
    }
    Ok(if is_error {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    })
}

/// Returns the failure of a call to a tool that is not listed, with the reason if the gateway knows
/// it.
async fn missing_tool(
    client: &VerbClient,
    name: &str,
    failure: VerbFailure,
    hint: String,
) -> VerbFailure {
    // The server may list no such tool because it is disconnected. The admin listener knows.
    let away = match client.target.admin() {
        Some(admin) => explain_missing::explain(name, &admin).await,
        None => None,
    };
    match away {
        Some(away) => {
            VerbFailure::Failed(away).with_hint("`moongate status` shows more".to_owned())
        }
        None => failure.with_hint(hint),
    }
}

async fn get(args: &CallArgs, given: CallArguments) -> Result<ExitCode, VerbFailure> {
    verb_client::with_client(&args.target, async |client: &VerbClient| {
        // All arguments of a prompt are strings.
        let arguments = given.typed(None)?.map(|arguments| arguments.to_raw());
        let outcome = client
            .finish_call(Call::for_prompt(&args.name, arguments))
            .await?;
        show(&outcome, args.format, render_content::prompt_result)?;
        Ok(ExitCode::SUCCESS)
    })
    .await
}

async fn read(args: &ReadArgs) -> Result<ExitCode, VerbFailure> {
    verb_client::with_client(&args.target, async |client: &VerbClient| {
        let outcome = client.finish_call(Call::for_resource(&args.uri)).await?;
        show(&outcome, args.format, render_content::read_result)?;
        Ok(ExitCode::SUCCESS)
    })
    .await
}

fn show(
    outcome: &Outcome,
    format: ResultFormat,
    text: fn(&JsonObject) -> String,
) -> Result<(), VerbFailure> {
    match format {
        ResultFormat::Json => print(&[&outcome.result.bytes()[..], b"\n"].concat()),
        ResultFormat::Text => print(output::fit_for_stdout(&text(&outcome.result)).as_bytes()),
    }
}

/// Returns a hint for a failed call of a tool that is not listed.
fn unlisted(name: &str, tools: &[Arc<JsonObject>]) -> String {
    // The name may lack the gateway's prefix, or be mistyped.
    let names: Vec<ByteString> = tools
        .iter()
        .filter_map(|tool| ItemKind::Tools.key_of(tool))
        .collect();
    let names: Vec<&str> = names.iter().map(ByteString::as_str).collect();
    match names
        .iter()
        .copied()
        .find(|other| other.ends_with(name))
        .or_else(|| nearest(name, &names))
    {
        Some(other) => format!("no tool {name:?} is listed; did you mean {other:?}?"),
        None => format!("no tool {name:?} is listed; `moongate tools` shows those that are"),
    }
}
