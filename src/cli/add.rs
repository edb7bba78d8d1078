//! `moongate add`: adds servers to the config. Owns the forms that a server can be given in.
//!
//! Does not connect (`add_probe.rs`) and does not write the config (`config_edit.rs`). Invariant:
//! what is written is shown.

use std::process::ExitCode;

use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::cli::add_probe::{self, ProbeVerdict};
use crate::cli::config_edit::{EditArgs, EditOutcome};
use crate::cli::import::{import_table, new_servers};
use crate::cli::import_sources::{SourceError, read_sources};
use crate::cli::local_config::LocalConfig;
use crate::cli::process::{BAD_CONFIG, environment, print_message};
use moongate_clients::UserDirectories;
use moongate_clients::import::{ImportState, written_settings};
use moongate_config::edit::ConfigOperation;
use moongate_config::{
    PopularServer, has_name_characters, nearest, popular_server, popular_servers,
};
use moongate_platform::Platform;

/// Text below the help.
const HELP: &str = "\
Examples:
  moongate add team https://mcp.example.com/mcp -H 'Authorization: Bearer ${TEAM_TOKEN}'
  moongate add notes -- npx -y some-mcp-server@1.2.3
  moongate add deepwiki                a popular server, by its name; `moongate popular` lists them
  moongate add files ~/notes           one that needs a folder
  pbpaste | moongate add -             any client's config, a server.json, a URL, `claude mcp add \
  ...` or `npx ...`

The command connects to the server before it writes. If only different settings could fix a \
problem, the command fails.

Exit codes: 0 success, 1 failure, 2 bad usage or config.";

/// Server to add: a URL, a command behind `--`, the name of a popular server, or a pasted text.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = HELP)]
pub struct AddArgs {
    /// The server's name, which becomes the prefix of its tools; `-` reads servers from stdin
    #[arg(value_name = "NAME|POPULAR|-")]
    name: String,
    /// The server's URL, or the arguments of a popular server
    #[arg(value_name = "URL|ARGUMENT", conflicts_with = "command")]
    targets: Vec<String>,
    /// The server's URL, as other programs spell it
    #[arg(long, value_name = "URL", hide = true, conflicts_with_all = ["targets", "command"])]
    url: Option<String>,
    /// Another name for a popular server
    #[arg(long = "name", value_name = "NAME")]
    rename: Option<String>,
    /// A header for each request, `Name: value`; `${VARIABLE}` is read from the gateway's
    /// environment (repeatable)
    #[arg(long = "header", short = 'H', value_name = "HEADER")]
    headers: Vec<String>,
    /// A variable for the command, `NAME=value` (repeatable)
    #[arg(long = "env", short = 'e', value_name = "NAME=VALUE")]
    env: Vec<String>,
    /// Transport for the URL: `http`, `sse` or `ws`; default: whichever one works
    #[arg(long, short = 't', value_name = "TRANSPORT")]
    transport: Option<String>,
    /// Offer only tools that match this pattern (repeatable)
    #[arg(long, value_name = "PATTERN")]
    only: Vec<String>,
    /// Add the server disabled
    #[arg(long)]
    off: bool,
    /// Skip the connection test
    #[arg(long)]
    no_probe: bool,
    /// The variable with the token for the URL, as Codex spells it
    #[arg(long, value_name = "VAR", hide = true)]
    bearer_token_env_var: Option<String>,
    /// Ignored: Moongate has one config
    #[arg(long, short = 's', value_name = "SCOPE", hide = true)]
    scope: Option<String>,
    #[command(flatten)]
    edit: EditArgs,
    /// The command and its arguments
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<String>,
}

/// Form in which a server is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AddForm {
    /// Text on stdin.
    Pasted,
    /// URL, also that of a popular server.
    Url,
    /// Command, also that of a popular server.
    Command,
}

/// Flag that some forms cannot use.
struct FlagRule {
    flag: &'static str,
    is_given: fn(&AddArgs) -> bool,
    /// Forms that use the flag.
    forms: &'static [AddForm],
}

/// Flags that describe a server. One that its form cannot use is an error, never ignored.
const FLAG_RULES: [FlagRule; 7] = [
    FlagRule {
        flag: "--url",
        is_given: |args| args.url.is_some(),
        forms: &[AddForm::Url],
    },
    FlagRule {
        flag: "--name",
        is_given: |args| args.rename.is_some(),
        forms: &[AddForm::Url, AddForm::Command],
    },
    FlagRule {
        flag: "--header",
        is_given: |args| !args.headers.is_empty(),
        forms: &[AddForm::Url],
    },
    FlagRule {
        flag: "--bearer-token-env-var",
        is_given: |args| args.bearer_token_env_var.is_some(),
        forms: &[AddForm::Url],
    },
    FlagRule {
        flag: "--env",
        is_given: |args| !args.env.is_empty(),
        forms: &[AddForm::Command],
    },
    FlagRule {
        flag: "--transport",
        is_given: |args| args.transport.is_some(),
        forms: &[AddForm::Url, AddForm::Command],
    },
    FlagRule {
        flag: "--only",
        is_given: |args| !args.only.is_empty(),
        forms: &[AddForm::Url, AddForm::Command],
    },
];

impl AddForm {
    /// Fails with the first flag that this form cannot use.
    fn reject_foreign_flags(self, args: &AddArgs) -> Result<(), String> {
        let foreign = FLAG_RULES
            .iter()
            .find(|rule| (rule.is_given)(args) && !rule.forms.contains(&self));
        foreign.map_or(Ok(()), |rule| Err(self.refusal_of(rule.flag)))
    }

    fn refusal_of(self, word: &str) -> String {
        match self {
            AddForm::Pasted => format!(
                "{word} cannot be used with `-`: everything comes from stdin, except for --off, \
                 --no-probe and the config's flags"
            ),
            AddForm::Url => format!("{word} is for commands, not for a URL, which takes --header"),
            AddForm::Command => {
                format!("{word} is for URLs, not for a command, which takes --env")
            }
        }
    }
}

/// Server with the name that it gets.
struct NewServer {
    name: String,
    settings: Map<String, Value>,
}

/// Servers to add.
struct NewServers {
    servers: Vec<NewServer>,
    /// Exit code if all of them can be added.
    code: ExitCode,
}

/// Adds the servers.
pub async fn run(args: AddArgs) -> anyhow::Result<ExitCode> {
    // Other programs' commands are pasted here as they are, so their flags must not be errors.
    if args.scope.is_some() {
        print_message("--scope is ignored: Moongate has one config");
    }
    let found = match args.name.as_str() {
        "-" => pasted(&args),
        _ => server_from_args(&args)
            .map(|server| NewServers {
                servers: vec![server],
                code: ExitCode::SUCCESS,
            })
            .map_err(SourceError::Usage),
    };
    match found {
        Ok(found) if found.servers.is_empty() => Ok(found.code),
        Ok(found) => add(&args, found).await,
        Err(SourceError::Failed(error)) => Err(error),
        Err(SourceError::Usage(message)) => {
            print_message(&format!("error: {message}"));
            Ok(ExitCode::from(2))
        }
    }
}

/// Probes the servers, and adds those that nothing speaks against, as one edit.
async fn add(args: &AddArgs, found: NewServers) -> anyhow::Result<ExitCode> {
    let mut operations: Vec<ConfigOperation> = found
        .servers
        .into_iter()
        .map(|NewServer { name, settings }| ConfigOperation::AddServer { name, settings })
        .collect();
    let mut prepared = match args.edit.prepare(&operations) {
        Ok(prepared) => prepared,
        Err(error) => return Ok(refused(&error)),
    };
    let mut code = found.code;
    let mut is_announced = false;
    // A dry run is for reading the change, and must not start the commands of a text that was
    // pasted.
    if !args.no_probe && !args.edit.is_dry_run() {
        let names: Vec<&str> = operations
            .iter()
            .filter_map(ConfigOperation::server)
            .collect();
        let verdicts = add_probe::probe_all(&prepared, &names).await;
        is_announced = verdicts.contains(&ProbeVerdict::AddUnready);
        if verdicts.contains(&ProbeVerdict::Refuse) {
            print_message("`--no-probe` adds it without this check");
            code = ExitCode::FAILURE;
            let mut kept = verdicts
                .iter()
                .map(|verdict| *verdict != ProbeVerdict::Refuse);
            operations.retain(|_| kept.next().unwrap_or_default());
            if operations.is_empty() {
                return Ok(code);
            }
            // The others of a pasted text are fine, and are still one edit.
            prepared = match args.edit.prepare(&operations) {
                Ok(prepared) => prepared,
                Err(error) => return Ok(refused(&error)),
            };
        }
    }
    let names: Vec<&str> = operations
        .iter()
        .filter_map(ConfigOperation::server)
        .collect();
    Ok(match args.edit.finish(prepared, &names).await? {
        EditOutcome::Fine => code,
        // The user has already read that the server is added anyway, and it is.
        EditOutcome::Unready if is_announced => code,
        outcome => outcome.exit_code(),
    })
}

fn refused(error: &dyn std::fmt::Display) -> ExitCode {
    print_message(&format!("error: {error}"));
    ExitCode::from(BAD_CONFIG)
}

/// Reads the servers of a pasted text, and shows what becomes of each.
fn pasted(args: &AddArgs) -> Result<NewServers, SourceError> {
    AddForm::Pasted
        .reject_foreign_flags(args)
        .map_err(SourceError::Usage)?;
    if let Some(word) = args.targets.first().or(args.command.first()) {
        return Err(SourceError::Usage(
            AddForm::Pasted.refusal_of(&format!("{word:?}")),
        ));
    }
    let env = environment();
    let directories = UserDirectories {
        env: &env,
        platform: Platform::CURRENT,
    };
    let found = read_sources(Some("-"), &directories)?;
    let config = LocalConfig::read(args.edit.load_options()).map_err(SourceError::Failed)?;
    let found = found.into_iter().map(|found| (found.origin, found.server));
    let rows = config.plan_import(found);
    print_message(import_table(&rows).trim_end());
    let unusable = rows
        .iter()
        .filter(|row| row.state == ImportState::Broken)
        .count();
    if unusable > 0 {
        print_message(&format!(
            "{unusable} of these servers cannot be used and were not added: correct them"
        ));
    }
    let new = new_servers(&rows).into_iter().map(|server| {
        let mut settings = written_settings(&server.settings);
        let given = GivenSettings {
            enabled: args.off.then_some(false),
            ..GivenSettings::default()
        };
        settings.extend(given.into_settings());
        NewServer {
            name: server.name.clone(),
            settings,
        }
    });
    let servers: Vec<NewServer> = new.collect();
    if servers.is_empty() {
        print_message("nothing new to add");
    }
    let code = if unusable > 0 {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    };
    Ok(NewServers { servers, code })
}

/// Settings that the words and flags give, in the order that they are written in.
#[derive(Default, Serialize)]
struct GivenSettings<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    url: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    command: Option<&'a str>,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    args: &'a [String],
    #[serde(skip_serializing_if = "Option::is_none")]
    transport: Option<&'a str>,
    #[serde(skip_serializing_if = "Map::is_empty")]
    headers: Map<String, Value>,
    #[serde(skip_serializing_if = "Map::is_empty")]
    env: Map<String, Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tools: Option<AllowedTools<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    enabled: Option<bool>,
}

/// Table `tools` of a server.
#[derive(Serialize)]
struct AllowedTools<'a> {
    allow: &'a [String],
}

impl GivenSettings<'_> {
    fn into_settings(self) -> Map<String, Value> {
        match json!(self) {
            Value::Object(settings) => settings,
            _ => Map::new(),
        }
    }
}

/// Returns the server that the words and flags describe.
fn server_from_args(args: &AddArgs) -> Result<NewServer, String> {
    let popular = popular_server(&args.name).filter(|_| is_popular(args));
    if args.rename.is_some() && popular.is_none() {
        return Err(
            "--name is for popular servers: for other servers, the first word is the name"
                .to_owned(),
        );
    }
    let (mut settings, target) = match popular {
        Some(popular) => {
            let arguments = popular_arguments(popular, &args.targets)?;
            (popular.settings(&arguments)?, GivenSettings::default())
        }
        None => (Map::new(), target(args)?),
    };
    let has_url = target.url.is_some() || popular.is_some_and(|popular| popular.url.is_some());
    let form = match has_url {
        true => AddForm::Url,
        false => AddForm::Command,
    };
    form.reject_foreign_flags(args)?;
    let transport = written_transport(form, args)?;
    let bearer = args
        .bearer_token_env_var
        .iter()
        .map(|name| format!("Authorization: Bearer ${{{name}}}"));
    let headers: Vec<String> = args.headers.iter().cloned().chain(bearer).collect();
    // A popular server may have a header already.
    let known = settings.get("headers").and_then(Value::as_object);
    let given = GivenSettings {
        transport,
        headers: with_pairs(known.cloned().unwrap_or_default(), &headers, ':')?,
        env: with_pairs(Map::new(), &args.env, '=')?,
        tools: (!args.only.is_empty()).then_some(AllowedTools { allow: &args.only }),
        enabled: args.off.then_some(false),
        ..target
    };
    settings.extend(given.into_settings());
    if let Some(key) = popular
        .and_then(|popular| popular.key.as_ref())
        .filter(|_| args.headers.is_empty())
    {
        let kind = if key.required {
            "it needs"
        } else {
            "it also takes"
        };
        print_message(&format!(
            "{kind} a key: `--header '{}: {}'`, with {} set",
            key.header, key.value, key.variable
        ));
    }
    let name = args.rename.as_ref().unwrap_or(&args.name).clone();
    Ok(NewServer { name, settings })
}

/// Returns the transport to write: none if it is the one that is found anyway.
fn written_transport(form: AddForm, args: &AddArgs) -> Result<Option<&str>, String> {
    match (form, args.transport.as_deref()) {
        // By default the gateway also finds a server that has only HTTP+SSE. Claude Code names the
        // transport of commands.
        (_, None)
        | (AddForm::Url, Some("http" | "streamable-http"))
        | (AddForm::Command, Some("stdio")) => Ok(None),
        (AddForm::Url, transport @ Some("sse" | "ws")) => Ok(transport),
        (AddForm::Url, Some(other)) => Err(format!("--transport {other:?}: use http, sse or ws")),
        (_, Some(_)) => Err(form.refusal_of("--transport")),
    }
}

/// True if the name alone says which server is meant. A URL or a command may have the name of a
/// popular one.
fn is_popular(args: &AddArgs) -> bool {
    args.command.is_empty()
        && args.url.is_none()
        && !args.targets.iter().any(|word| word.contains("://"))
}

/// Returns the arguments of a popular server.
fn popular_arguments(popular: &PopularServer, words: &[String]) -> Result<Vec<String>, String> {
    words
        .iter()
        .enumerate()
        .map(|(at, word)| popular_argument(popular, at, word))
        .collect()
}

/// Returns one argument of a popular server. A folder becomes absolute: the gateway may start
/// elsewhere.
fn popular_argument(popular: &PopularServer, at: usize, word: &str) -> Result<String, String> {
    let argument = popular.arguments.get(at).or(popular.arguments.last());
    // A reference is the gateway's to resolve.
    if word.is_empty() || word.contains("${") || !argument.is_some_and(|argument| argument.folder) {
        return Ok(word.to_owned());
    }
    let path = std::path::absolute(word).map_err(|error| format!("{word:?}: {error}"))?;
    match path.is_dir() {
        true => Ok(path.display().to_string()),
        false => Err(format!("there is no folder {}", path.display())),
    }
}

/// Returns the command that adds a URL which is given without a name, or before it.
fn command_with_name(args: &AddArgs) -> Option<String> {
    let url = &args.name;
    if !url.contains("://") || args.url.is_some() || !args.command.is_empty() {
        return None;
    }
    let given = args
        .targets
        .first()
        .filter(|word| has_name_characters(word));
    let name = given.map_or("NAME", String::as_str);
    Some(format!("moongate add {name} {url}"))
}

/// Returns the settings of a URL or a command.
fn target(args: &AddArgs) -> Result<GivenSettings<'_>, String> {
    let name = &args.name;
    if let Some(command) = command_with_name(args) {
        return Err(format!("a name comes before the URL: `{command}`"));
    }
    match (
        args.targets.first().or(args.url.as_ref()),
        args.command.split_first(),
    ) {
        // A word without a scheme is more likely a command whose `--` was forgotten.
        (Some(url), _) if url.contains("://") => {
            if let Some(more) = args.targets.get(1) {
                return Err(format!("unexpected {more:?}: a server has one URL"));
            }
            Ok(GivenSettings {
                url: Some(url),
                ..GivenSettings::default()
            })
        }
        (Some(word), _) => Err(format!(
            "{word:?} is not a URL; a command goes after `--`: moongate add {name} -- {word} …{}",
            suggest(name)
        )),
        (None, Some((command, rest))) => Ok(GivenSettings {
            command: Some(command),
            args: rest,
            ..GivenSettings::default()
        }),
        (None, None) => Err(format!(
            "give a URL (`moongate add {name} https://…`) or a command (`moongate add {name} -- \
             npx -y …`){}",
            suggest(name)
        )),
    }
}

/// Names the popular server that a word may mean.
fn suggest(word: &str) -> String {
    let names: Vec<&str> = popular_servers()
        .iter()
        .map(|server| server.name.as_str())
        .collect();
    let near = nearest(word, &names);
    match popular_servers()
        .iter()
        .find(|server| near == Some(&server.name))
    {
        Some(server) => format!("; or is it `moongate add {}`?", server.usage()),
        None => String::new(),
    }
}

/// Adds names with their values to a table.
fn with_pairs(
    mut table: Map<String, Value>,
    pairs: &[String],
    separator: char,
) -> Result<Map<String, Value>, String> {
    let mut given: Vec<&str> = Vec::new();
    for pair in pairs {
        // Split once: the value of a header or a variable may have the character, too.
        let Some((name, value)) = pair
            .split_once(separator)
            .filter(|(name, _)| !name.trim().is_empty())
        else {
            return Err(format!(
                "{pair:?} is not a name and a value with `{separator}` between them"
            ));
        };
        let name = name.trim();
        // Names of headers have no case.
        let is_same = |other: &&str| match separator {
            ':' => other.eq_ignore_ascii_case(name),
            _ => *other == name,
        };
        if given.iter().any(is_same) {
            return Err(format!("{name:?} is given twice"));
        }
        given.push(name);
        table.insert(name.to_owned(), json!(value.trim()));
    }
    Ok(table)
}
