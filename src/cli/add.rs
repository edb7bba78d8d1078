//! `moongate add`: adds a server to the config. Owns the forms that a server can be given in.
//!
//! Does not write the config (`config_edit.rs`). Invariant: what is written is shown.

use std::process::ExitCode;

use serde_json::{Map, Value, json};

use crate::cli::config_edit::EditArgs;
use crate::cli::process::print_message;
use moongate_config::edit::ConfigOperation;

/// Server to add: a URL, or a command behind `--`.
#[derive(Clone, Debug, clap::Args)]
pub struct AddArgs {
    /// The server's name; it stands before the names of its tools
    name: String,
    /// The server's URL
    #[arg(value_name = "URL", conflicts_with = "command")]
    target: Option<String>,
    /// The server's URL, as other programs spell it
    #[arg(long, value_name = "URL", hide = true, conflicts_with_all = ["target", "command"])]
    url: Option<String>,
    /// A header for each request, `Name: value`; `${VARIABLE}` is read from the gateway's environment (repeatable)
    #[arg(long = "header", short = 'H', value_name = "HEADER")]
    headers: Vec<String>,
    /// A variable for the command, `NAME=value` (repeatable)
    #[arg(long = "env", short = 'e', value_name = "NAME=VALUE")]
    env: Vec<String>,
    /// How to speak to the URL: `http`, `sse` or `ws`; default: what the server answers to
    #[arg(long, short = 't', value_name = "TRANSPORT")]
    transport: Option<String>,
    /// Only tools that fit this pattern (repeatable)
    #[arg(long, value_name = "PATTERN")]
    only: Vec<String>,
    /// Add it switched off
    #[arg(long)]
    off: bool,
    /// Ignored: Moongate has one config
    #[arg(long, short = 's', value_name = "SCOPE", hide = true)]
    scope: Option<String>,
    #[command(flatten)]
    edit: EditArgs,
    /// The command and its arguments
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<String>,
}

/// Adds the server.
pub async fn run(args: AddArgs) -> anyhow::Result<ExitCode> {
    // Other programs' commands are pasted here as they are, so their flags must not be errors.
    if args.scope.is_some() {
        print_message("--scope is ignored: Moongate has one config");
    }
    let settings = match settings(&args) {
        Ok(settings) => settings,
        Err(message) => {
            print_message(&format!("error: {message}"));
            return Ok(ExitCode::from(2));
        }
    };
    let operation = ConfigOperation::AddServer { name: args.name.clone(), settings: Value::Object(settings) };
    args.edit.apply(&operation, Some(&args.name)).await
}

/// Returns the settings as the config has them.
fn settings(args: &AddArgs) -> Result<Map<String, Value>, String> {
    let mut settings = Map::new();
    match (args.target.as_ref().or(args.url.as_ref()), args.command.split_first()) {
        // A word without a scheme is more likely a command whose `--` was forgotten.
        (Some(url), _) if url.contains("://") => {
            settings.insert("url".to_owned(), json!(url));
            match args.transport.as_deref() {
                // Nothing to write: by default the gateway also finds a server that has only HTTP+SSE.
                None | Some("http" | "streamable-http") => {}
                Some(transport @ ("sse" | "ws")) => drop(settings.insert("transport".to_owned(), json!(transport))),
                Some(other) => return Err(format!("--transport {other:?}: it is http, sse or ws")),
            }
            insert_pairs(&mut settings, "headers", &args.headers, ':')?;
            if !args.env.is_empty() {
                return Err("--env is for commands; a header goes with --header".to_owned());
            }
        }
        (Some(word), _) => {
            return Err(format!(
                "{word:?} is no URL; a command goes behind `--`: moongate add {} -- {word} …",
                args.name
            ));
        }
        (None, Some((command, rest))) => {
            settings.insert("command".to_owned(), json!(command));
            if !rest.is_empty() {
                settings.insert("args".to_owned(), json!(rest));
            }
            insert_pairs(&mut settings, "env", &args.env, '=')?;
            if !args.headers.is_empty() {
                return Err("--header is for URLs; a variable goes with --env".to_owned());
            }
        }
        (None, None) => {
            let name = &args.name;
            return Err(format!(
                "give a URL (`moongate add {name} https://…`) or a command (`moongate add {name} -- npx -y …`)"
            ));
        }
    }
    if !args.only.is_empty() {
        settings.insert("tools".to_owned(), json!({ "allow": args.only }));
    }
    if args.off {
        settings.insert("enabled".to_owned(), json!(false));
    }
    Ok(settings)
}

fn insert_pairs(settings: &mut Map<String, Value>, key: &str, pairs: &[String], separator: char) -> Result<(), String> {
    let mut table = Map::new();
    for pair in pairs {
        // Split once: the value of a header or a variable may have the character, too.
        let Some((name, value)) = pair.split_once(separator).filter(|(name, _)| !name.trim().is_empty()) else {
            return Err(format!("{pair:?} has no name and value with `{separator}` between them"));
        };
        table.insert(name.trim().to_owned(), json!(value.trim()));
    }
    if !table.is_empty() {
        settings.insert(key.to_owned(), Value::Object(table));
    }
    Ok(())
}
