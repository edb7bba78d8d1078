//! `moongate completions` and the hidden `moongate __complete`: words for TAB in a shell.
//!
//! Owns the scripts, and the words that can follow. Does not parse flags (`clap`). Invariant: a
//! word comes within a quarter of a second, and without a gateway there is silence.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Arg, Command};
use moongate_api::{GatewayStatus, ServerItem, ServerItems};
use serde::de::DeserializeOwned;
use tokio::time::{Instant, timeout_at};

use crate::cli::admin_client::{AdminClient, GatewayArgs};
use crate::cli::flag_words::flag_with_value;
use crate::cli::process::config_of_environment;
use moongate_config::{Plan, has_name_characters};

/// Time limit of all answers of a running gateway together.
const ANSWER_TIMEOUT: Duration = Duration::from_millis(200);

/// Script for bash. Files are offered where nothing else fits.
// Errors go nowhere: a message would land in the middle of the line that is typed.
const BASH: &str = r#"_moongate() {
  local IFS=$'\n'
  COMPREPLY=($(moongate __complete "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null))
}
complete -o default -F _moongate moongate
"#;
/// Script for zsh.
// Packages install it as a file of `$fpath`. Zsh runs that at the first TAB as the function itself,
// so it has to complete then.
const ZSH: &str = r#"#compdef moongate
_moongate() {
  local -a found
  found=("${(@f)$(moongate __complete "${(@)words[2,CURRENT]}" 2>/dev/null)}")
  if [[ -n "$found" ]]; then compadd -- $found; else _files; fi
}
if [[ "$funcstack[1]" = _moongate ]]; then _moongate; else compdef _moongate moongate; fi
"#;
/// Script for fish.
// Without `-f`, fish would offer files next to the names of servers.
const FISH: &str = r#"function __moongate_complete
  set -l found (moongate __complete (commandline -opc)[2..] (commandline -ct) 2>/dev/null)
  if test -n "$found"
    printf '%s\n' $found
  else
    __fish_complete_path (commandline -ct)
  end
end
complete -c moongate -f -a '(__moongate_complete)'
"#;
/// Script for PowerShell.
const POWERSHELL: &str = r#"Register-ArgumentCompleter -Native -CommandName moongate -ScriptBlock {
  param($word, $line, $at)
  $words = @($line.CommandElements | Select-Object -Skip 1 | ForEach-Object { $_.ToString() })
  if ($word -eq '') { $words += '' }
  moongate __complete @words 2>$null | ForEach-Object {
    [System.Management.Automation.CompletionResult]::new($_, $_, 'ParameterValue', $_)
  }
}
"#;

/// Flags of `completions`.
#[derive(Clone, Debug, clap::Args)]
pub struct CompletionsArgs {
    /// The shell
    #[arg(value_enum)]
    shell: CompletionShell,
}

/// Shell that gets completions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum CompletionShell {
    /// `source <(moongate completions bash)` in ~/.bashrc
    Bash,
    /// `source <(moongate completions zsh)` in ~/.zshrc
    Zsh,
    /// `moongate completions fish | source` in ~/.config/fish/config.fish
    Fish,
    /// `moongate completions powershell | Out-String | Invoke-Expression` in $PROFILE
    Powershell,
}

/// Words of a command line so far. The last one is being typed.
#[derive(Clone, Debug, clap::Args)]
pub struct CompleteArgs {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    words: Vec<String>,
}

/// Names that only a gateway or a config knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NameSource {
    Servers,
    /// Tools of the server that the word before names.
    ToolsOfServer,
    /// Tools by their exposed names.
    Tools,
    Clients,
    /// Popular servers.
    PopularServers,
    /// Names of keys.
    Principals,
    /// Views and servers.
    Endpoints,
}

/// Prints the script of a shell.
pub fn print_script(args: &CompletionsArgs) -> anyhow::Result<ExitCode> {
    let script = match args.shell {
        CompletionShell::Bash => BASH,
        CompletionShell::Zsh => ZSH,
        CompletionShell::Fish => FISH,
        CompletionShell::Powershell => POWERSHELL,
    };
    std::io::stdout().write_all(script.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

/// Prints the words that can come last on a command line of this program, a line each.
pub async fn complete(args: CompleteArgs, program: Command) -> anyhow::Result<ExitCode> {
    let typed = args.words.last().cloned().unwrap_or_default();
    let CompletionPosition {
        mut words,
        source,
        positionals,
    } = find_position(program, &args.words);
    if let Some(source) = source {
        words.extend(names(source, &args.words, &positionals).await);
    }
    words.retain(|word| word.starts_with(&typed));
    words.sort();
    words.dedup();
    let text: String = words.into_iter().map(|word| word + "\n").collect();
    std::io::stdout().write_all(text.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

/// Position in a command line.
#[derive(Default)]
struct CompletionPosition {
    /// Words that the command line itself knows.
    words: Vec<String>,
    /// Source of further words.
    source: Option<NameSource>,
    /// Words of the command before this position, without its flags.
    positionals: Vec<String>,
}

/// Finds out what can be in the position of the last word.
fn find_position(mut program: Command, words: &[String]) -> CompletionPosition {
    let Some((typed, before)) = words.split_last() else {
        return CompletionPosition::default();
    };
    // Passes global flags down to the commands, where they would be missing otherwise.
    program.build();
    let mut command = &program;
    let mut positionals = Vec::new();
    let mut flag = None;
    for word in before {
        // After `add`, what follows are the words of another program.
        if word == "--" {
            return CompletionPosition::default();
        }
        // The value of a flag may look like a command.
        if flag.take().is_some() {
            continue;
        }
        match command.find_subcommand(word) {
            Some(below) => (command, positionals) = (below, Vec::new()),
            None if word.starts_with('-') => flag = flag_with_value(command, word),
            None => positionals.push(word.clone()),
        }
    }
    let position = positionals.len();
    let name = command.get_name();
    if let Some(flag) = flag {
        let source = source_of(name, flag.get_id().as_str(), 0);
        return CompletionPosition {
            words: values(flag),
            source,
            positionals,
        };
    }
    if typed.starts_with('-') {
        let flags = command
            .get_arguments()
            .filter(|arg| !arg.is_hide_set())
            .filter_map(Arg::get_long);
        return CompletionPosition {
            words: flags.map(|long| format!("--{long}")).collect(),
            source: None,
            positionals,
        };
    }
    let below = command
        .get_subcommands()
        .filter(|below| !below.is_hide_set() && position == 0);
    let below: Vec<String> = below.map(|below| below.get_name().to_owned()).collect();
    let positional = command
        .get_positionals()
        .nth(position)
        .map(values)
        .unwrap_or_default();
    CompletionPosition {
        words: [below, positional].concat(),
        source: source_of(name, "", position),
        positionals,
    }
}

fn values(arg: &Arg) -> Vec<String> {
    arg.get_possible_values()
        .iter()
        .map(|value| value.get_name().to_owned())
        .collect()
}

/// Returns where the names of an argument come from: of a flag, or of the positional at a position.
fn source_of(command: &str, flag: &str, position: usize) -> Option<NameSource> {
    match (command, flag, position) {
        (_, "server", _) | ("serve" | "stdio", "only", _) => Some(NameSource::Servers),
        (_, "endpoint", _) => Some(NameSource::Endpoints),
        ("restart" | "remove" | "enable" | "disable" | "doctor", "", 0)
        | ("login" | "logout", "", _) => Some(NameSource::Servers),
        ("enable" | "disable", "", _) => Some(NameSource::ToolsOfServer),
        ("explain", "", 0) => Some(NameSource::Principals),
        ("explain", "", 1) | ("call", "", 0) => Some(NameSource::Tools),
        ("connect", "", _) | ("import", "", 0) => Some(NameSource::Clients),
        ("add", "", 0) => Some(NameSource::PopularServers),
        _ => None,
    }
}

/// Returns names of a source. Nothing if nobody knows them in time.
async fn names(source: NameSource, words: &[String], positionals: &[String]) -> Vec<String> {
    let gateway = gateway_of(words);
    // One deadline for all requests: limits of each would add up while the shell waits.
    let until = Instant::now() + ANSWER_TIMEOUT;
    match source {
        NameSource::Clients => moongate_clients::clients()
            .map(|client| client.id.to_owned())
            .collect(),
        NameSource::PopularServers => moongate_config::popular_servers()
            .iter()
            .map(|server| server.name.clone())
            .collect(),
        NameSource::Principals => {
            let plan = load_plan(&gateway);
            let keys = plan.map(|plan| plan.auth.keys).unwrap_or_default();
            let names: Vec<String> = keys.into_iter().map(|key| key.name).collect();
            if names.is_empty() {
                vec!["anybody".to_owned()]
            } else {
                names
            }
        }
        NameSource::Endpoints => {
            let views = load_plan(&gateway)
                .map(|plan| plan.views)
                .unwrap_or_default()
                .into_iter()
                .map(|view| view.name);
            views.chain(server_names(&gateway, until).await).collect()
        }
        NameSource::Servers => server_names(&gateway, until).await,
        NameSource::ToolsOfServer => {
            tools(
                &gateway,
                &positionals[..1.min(positionals.len())],
                |tool| Some(tool.name),
                until,
            )
            .await
        }
        NameSource::Tools => {
            tools(
                &gateway,
                &server_names(&gateway, until).await,
                |tool| tool.exposed,
                until,
            )
            .await
        }
    }
}

fn load_plan(gateway: &GatewayArgs) -> Option<Plan> {
    let loaded = moongate_config::load(&gateway.load_options()).ok()?;
    Some(loaded.plan)
}

/// Returns the gateway that the flags among the words name.
fn gateway_of(words: &[String]) -> GatewayArgs {
    // By hand, since `clap` refuses a line that is not finished.
    let config = word_after(words, "--config").or_else(|| word_after(words, "-c"));
    let config = config.map(PathBuf::from).or_else(config_of_environment);
    GatewayArgs::of(word_after(words, "--admin"), config.into_iter().collect())
}

fn word_after(words: &[String], flag: &str) -> Option<String> {
    words
        .windows(2)
        .find(|pair| pair[0] == flag)
        .map(|pair| pair[1].clone())
}

async fn server_names(gateway: &GatewayArgs, until: Instant) -> Vec<String> {
    let Ok(client) = gateway.client() else {
        return Vec::new();
    };
    let status: GatewayStatus = ask(&client, "/api/v1/status", until)
        .await
        .unwrap_or_default();
    status
        .servers
        .into_iter()
        .map(|server| server.identity.name)
        .collect()
}

/// Returns the tools of these servers, by one of their names.
async fn tools(
    gateway: &GatewayArgs,
    servers: &[String],
    name: fn(ServerItem) -> Option<String>,
    until: Instant,
) -> Vec<String> {
    let Ok(client) = gateway.client() else {
        return Vec::new();
    };
    let mut found = Vec::new();
    for server in
        // A name may come from the line, and becomes part of a path here.
        servers.iter().filter(|name| has_name_characters(name))
    {
        let items: Option<ServerItems> =
            ask(&client, &format!("/api/v1/servers/{server}/items"), until).await;
        found.extend(
            items
                .into_iter()
                .flat_map(|items| items.tools)
                .filter_map(name),
        );
    }
    found
}

/// Requests an object until a point in time. `None`: there was no answer.
async fn ask<T: DeserializeOwned>(client: &AdminClient, path: &str, until: Instant) -> Option<T> {
    let answer = timeout_at(until, client.send_request("GET", path, ANSWER_TIMEOUT)).await;
    answer.ok()?.ok()?.read().ok()
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::cli::CommandLine;

    fn words(line: &str) -> (Vec<String>, Option<NameSource>) {
        let position = find_position(
            CommandLine::command(),
            &line.split(' ').map(str::to_owned).collect::<Vec<_>>(),
        );
        (position.words, position.source)
    }

    #[test]
    fn words_come_from_the_command_line_s_own_declaration() {
        let all = words("").0;
        assert!(
            all.contains(&"restart".to_owned()) && !all.contains(&"__complete".to_owned()),
            "{all:?}"
        );
        assert!(words("status --f").0.contains(&"--format".to_owned()));
        assert_eq!(words("status --format ").0, ["table", "json"]);
        assert_eq!(
            words("completions ").0,
            ["bash", "zsh", "fish", "powershell"]
        );
        assert!(words("key ").0.contains(&"new".to_owned()));
        for (line, source) in [
            ("restart ", Some(NameSource::Servers)),
            ("restart --config a.toml ", Some(NameSource::Servers)),
            ("login ", Some(NameSource::Servers)),
            ("login --yes linear ", Some(NameSource::Servers)),
            ("logout linear ", Some(NameSource::Servers)),
            ("disable github ", Some(NameSource::ToolsOfServer)),
            ("explain ", Some(NameSource::Principals)),
            ("explain ci ", Some(NameSource::Tools)),
            ("explain --endpoint ", Some(NameSource::Endpoints)),
            ("tools --server ", Some(NameSource::Servers)),
            ("connect ", Some(NameSource::Clients)),
            ("add ", Some(NameSource::PopularServers)),
            ("tools -- ", None),
            ("restart a ", None),
        ] {
            assert_eq!(words(line).1, source, "{line}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn all_requests_together_keep_to_one_deadline() {
        // It takes connections and never answers.
        let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let gateway = GatewayArgs::of(Some(silent.local_addr().unwrap().to_string()), Vec::new());
        let until = Instant::now() + ANSWER_TIMEOUT;
        let servers = ["a", "b", "c"].map(str::to_owned);
        assert!(
            tools(&gateway, &servers, |tool| Some(tool.name), until)
                .await
                .is_empty()
        );
        assert!(server_names(&gateway, until).await.is_empty());
        // The clock stands still but for timers, so this is the deadline and no measured time.
        assert!(
            Instant::now() <= until + Duration::from_millis(1),
            "each request had a limit of its own"
        );
    }
}
