//! `moongate tools`, `call`, `resources`, `read`, `prompts`, `get`: an MCP client on the command line.
//!
//! Owns the verbs' flags and what each of them does. Does not know a revision or a transport: it opens a server as the
//! gateway does (`upstream`). Invariant: results go to stdout, everything else to stderr, and whatever was started for
//! the verb has ended before the verb has.

mod arguments;
mod ask;
mod away;
mod blocks;
mod connect;
mod form;
mod output;
mod prompt;
mod running;
mod schema;
mod table;
mod target;

use std::process::ExitCode;
use std::sync::Arc;

use clap::{Args, Subcommand, ValueEnum};

use crate::cli::{fail, runtime};
use crate::json::{Object, Raw, Text};
use crate::model::{Call, Kind, Method, Outcome};

use arguments::Given;
use connect::Client;
use output::{Failure, print, say};
use target::TargetArgs;

pub(super) use target::remote;

/// The verbs of the client.
#[derive(Clone, Debug, Subcommand)]
pub enum Verb {
    /// List the tools of a gateway or server
    #[command(after_help = target::HELP)]
    Tools(ListArgs),
    /// Call a tool
    ///
    /// What the tool returns goes to stdout; progress, log messages and questions go to stderr. If the server asks
    /// the user something, it is asked on the terminal; without a terminal the server is told that nobody can answer.
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
    /// Get a prompt, filled in
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
    /// The VALUE of a pair is a string, unless the tool's input schema says otherwise; KEY:=JSON gives any JSON value.
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
    /// Columns, one line an item; long descriptions are cut
    #[default]
    Table,
    /// The items as the server spelled them, all pages in one object
    Json,
    /// A section for a system prompt, in Markdown, of what the caller can see: what is denied or hidden is not in it
    Prompt,
}

/// How to show a result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum ResultFormat {
    /// Text as it is; one line about anything else
    #[default]
    Text,
    /// The result as the server spelled it
    Json,
}

/// Runs a verb. Exit code 1: it failed; 2: bad usage, or a config that cannot be used.
pub fn run(verb: Verb) -> ExitCode {
    let runtime = match runtime() {
        Ok(runtime) => runtime,
        Err(e) => return fail(&e),
    };
    let end = match verb {
        Verb::Tools(args) => runtime.block_on(list(&args, &[Kind::Tools])),
        Verb::Resources(args) => runtime.block_on(list(&args, &[Kind::Resources, Kind::Templates])),
        Verb::Prompts(args) => runtime.block_on(list(&args, &[Kind::Prompts])),
        // Before the runtime is entered: stdin may be read for as long as its writer likes.
        Verb::Call(args) => Given::read(&args.arguments).and_then(|given| runtime.block_on(call(&args, given))),
        Verb::Get(args) => Given::read(&args.arguments).and_then(|given| runtime.block_on(get(&args, given))),
        Verb::Read(args) => runtime.block_on(read(&args)),
    };
    // A read of the terminal cannot be taken back, and nothing else is left to wait for.
    runtime.shutdown_background();
    match end {
        Ok(code) => code,
        Err(failure) => failure.report(),
    }
}

async fn list(args: &ListArgs, kinds: &[Kind]) -> Result<ExitCode, Failure> {
    let shown = async |client: &Client| {
        let mut lists = Vec::new();
        for kind in kinds.iter().copied() {
            lists.push((kind, client.list(kind).await?));
        }
        if args.format != ListFormat::Json && lists.iter().all(|(_, items)| items.is_empty()) {
            say(&format!("{} has no {}", client.target.name(), kinds[0].member()));
        }
        print(&match args.format {
            ListFormat::Table => table::lists(&lists).into(),
            ListFormat::Prompt => prompt::lists(&lists, client.instructions().as_deref()).into(),
            ListFormat::Json => output::json_lists(&lists),
        })?;
        Ok(ExitCode::SUCCESS)
    };
    connect::with(&args.target, shown).await
}

async fn call(args: &CallArgs, given: Given) -> Result<ExitCode, Failure> {
    let called = async |client: &Client| {
        // The definition is needed for the pairs' types, and by revisions that send some arguments as headers. Servers
        // may have tools that they do not list, or fail to list them: what was spelled out can be sent all the same.
        let listed = client.list(Kind::Tools).await;
        let tools = match (listed, &given) {
            (Err(failure), Given::Pairs(_)) => return Err(failure),
            (listed, _) => listed.unwrap_or_default(),
        };
        let definition = tools.iter().find(|tool| tool.text("name").as_deref() == Some(&args.name)).cloned();
        let input = definition.as_ref().and_then(|tool| tool.object("inputSchema"));
        let arguments = given.typed(input.as_ref())?.unwrap_or_else(Object::new);
        let params = Object::new().with("name", Raw::string(&args.name)).with("arguments", arguments.raw());
        let call = Call { definition: definition.clone(), ..Call::new(Method::CallTool, params) };
        let outcome = match client.finish(call).await {
            Ok(outcome) => outcome,
            Err(failure) if definition.is_some() => return Err(failure),
            Err(failure) => {
                let away = match client.target.admin() {
                    Some(admin) => away::explain(&args.name, &admin).await,
                    None => None,
                };
                return Err(match away {
                    Some(away) => Failure::Failed(away).with_hint("`moongate status` says more".to_owned()),
                    None => failure.with_hint(unlisted(&args.name, &tools)),
                });
            }
        };
        show(&outcome, args.format, blocks::tool_result)?;
        let is_error = outcome.result.get("isError").is_some_and(|raw| &raw.bytes()[..] == b"true");
        if is_error {
            say(&format!("error: the tool {} says that it failed", args.name));
        }
        Ok(if is_error { ExitCode::FAILURE } else { ExitCode::SUCCESS })
    };
    connect::with(&args.target, called).await
}

async fn get(args: &CallArgs, given: Given) -> Result<ExitCode, Failure> {
    let got = async |client: &Client| {
        let mut params = Object::new().with("name", Raw::string(&args.name));
        // The arguments of a prompt are strings, all of them.
        if let Some(arguments) = given.typed(None)? {
            params.set(Text::literal("arguments"), arguments.raw());
        }
        let outcome = client.finish(Call::new(Method::GetPrompt, params)).await?;
        show(&outcome, args.format, blocks::prompt_result)?;
        Ok(ExitCode::SUCCESS)
    };
    connect::with(&args.target, got).await
}

async fn read(args: &ReadArgs) -> Result<ExitCode, Failure> {
    let got = async |client: &Client| {
        let params = Object::new().with("uri", Raw::string(&args.uri));
        let outcome = client.finish(Call::new(Method::ReadResource, params)).await?;
        show(&outcome, args.format, blocks::read_result)?;
        Ok(ExitCode::SUCCESS)
    };
    connect::with(&args.target, got).await
}

fn show(outcome: &Outcome, format: ResultFormat, text: fn(&Object) -> String) -> Result<(), Failure> {
    match format {
        ResultFormat::Json => print(&[&outcome.result.bytes()[..], b"\n"].concat()),
        ResultFormat::Text => print(output::fit_for_stdout(&text(&outcome.result)).as_bytes()),
    }
}

/// What may help somebody whose call of a tool that is not listed failed.
fn unlisted(name: &str, tools: &[Arc<Object>]) -> String {
    // Without the prefix that the gateway gives it, or mistyped.
    let distance = |other: &str| match other.ends_with(name) {
        true => 0,
        false => strsim::damerau_levenshtein(name, other),
    };
    let names = tools.iter().filter_map(|tool| tool.text("name"));
    match names.min_by_key(|other| distance(other)).filter(|other| distance(other) <= 2) {
        Some(other) => format!("no tool {name:?} is listed; did you mean {other:?}?"),
        None => format!("no tool {name:?} is listed; `moongate tools` shows those that are"),
    }
}
