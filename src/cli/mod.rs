//! Command line: a file or folder for each command, and files that several of them share. Owns the
//! list of commands and how one is chosen.
//!
//! Does not own what a command does. Invariant: data goes to stdout, everything for people to
//! stderr. Exit code 0 is success, 1 failure, 2 bad usage or config.

pub mod admin_client;
mod aligned_table;
pub mod check;
pub mod client;
pub mod add;
mod add_probe;
mod bridge_target;
mod config_edit;
mod check_plan;
mod check_servers;
mod confirm;
pub mod complete;
pub mod connect;
pub mod doctor;
pub mod explain;
pub mod health;
pub mod key;
mod command_first;
mod flag_words;
pub mod import;
mod import_env_file;
mod import_readiness;
mod import_sources;
mod later_commands;
mod local_config;
mod locate;
pub mod login;
pub mod logins;
pub mod logout;
#[cfg(test)]
mod manual;
pub mod mock;
mod notes;
pub mod open;
pub mod popular;
mod process;
pub mod restart;
mod running_record;
pub mod schema;
pub mod search;
pub mod serve;
mod server_choice;
mod signals;
pub mod status;
pub mod stdio;
pub mod switch;
pub mod table_format;
pub mod undo;
mod text_diff;
mod text_input;
mod version;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};

use crate::cli::process::{block_on, print_message, report_error, runtime};
use moongate_protocol::SUPPORTED;

/// Text below the help of the whole program.
const HELP: &str = "\
First steps:
  moongate                            serve your config, or a demo server if there is none
  moongate import                     import the servers of the MCP clients on this machine
  moongate connect claude-code        let a client use the gateway; --write changes its file
  moongate tools                      list the tools of a running gateway
  moongate call demo__echo text=hi    call one of its tools
  moongate add NAME URL               add a server; a command goes after --
  moongate check --print              show the config with all defaults

The config is --config, or else the first of ./moongate.{toml,yaml,json}, ~/.config/moongate/ and \
/etc/moongate/;
MOONGATE_* variables override its settings (MOONGATE_GATEWAY__LISTEN is gateway.listen).

Exit codes: 0 success, 1 failure, 2 bad usage or config.";

/// One endpoint for all your MCP servers.
#[derive(Debug, Parser)]
#[command(name = "moongate", about, after_help = HELP, args_conflicts_with_subcommands = true)]
pub struct CommandLine {
    #[command(flatten)]
    version: version::VersionArgs,
    #[command(subcommand)]
    command: Option<CliCommand>,
    #[command(flatten)]
    serve: serve::ServeArgs,
}

#[derive(Debug, Subcommand)]
enum CliCommand {
    /// Run the gateway (the default command)
    Serve(serve::ServeArgs),
    /// Serve one client on stdin and stdout, as a gateway or as a bridge to a running one
    Stdio(stdio::StdioArgs),
    /// Validate the config
    Check(check::CheckArgs),
    /// Print the JSON Schema of the config
    Schema(schema::SchemaArgs),
    /// Add a server to the config
    Add(add::AddArgs),
    /// List servers that can be added by name
    Popular(popular::PopularArgs),
    /// Remove a server from the config
    Remove(switch::RemoveArgs),
    /// Switch a server or some of its tools on
    Enable(switch::SwitchArgs),
    /// Switch a server or some of its tools off
    Disable(switch::SwitchArgs),
    /// Undo the last edit of the config
    Undo(undo::UndoArgs),
    /// Let MCP clients on this machine use the gateway
    Connect(connect::ConnectArgs),
    /// Import the servers of other MCP clients
    Import(import::ImportArgs),
    /// Create keys for clients and operators
    Key(key::KeyArgs),
    /// Log in to servers of the config, with the browser
    Login(login::LoginArgs),
    /// Log out of servers of the config
    Logout(logout::LogoutArgs),
    /// List the people who logged in at a running gateway, or revoke their logins
    Logins(logins::LoginsArgs),
    /// Find problems, and show how to fix them
    Doctor(doctor::DoctorArgs),
    /// Show whether a key may call a tool, and which line of the config decides
    Explain(explain::ExplainArgs),
    /// Open the page of a running gateway in a browser
    Open(open::OpenArgs),
    /// Print a shell completion script
    Completions(complete::CompletionsArgs),
    #[command(name = "__complete", hide = true)]
    Complete(complete::CompleteArgs),
    /// Reload the config of a running gateway
    Reload(restart::ReloadArgs),
    /// Restart a server of a running gateway; the old one serves until the new one is ready
    Restart(restart::RestartArgs),
    /// Show the state of each server of a running gateway, and the reason
    Status(status::StatusArgs),
    /// Find tools of a running gateway by what they do
    Search(search::SearchArgs),
    /// Exit 0 if a running gateway is ready (for a container's HEALTHCHECK)
    Health(health::HealthArgs),
    #[command(flatten)]
    Client(client::ClientVerb),
    /// Run a scriptable MCP server
    Mock(mock::MockArgs),
}

impl CommandLine {
    /// Parses the command line of this process. Exits if it is wrong.
    ///
    /// Tries `serve` alone first. The parser of all other commands would stay in the memory of the
    /// one process that runs for months. That parser reports the error where `serve` does not fit.
    pub fn of_process() -> Self {
        if let Some(serve) = serve_alone(std::env::args_os()) {
            return CommandLine {
                version: version::VersionArgs::default(),
                command: None,
                serve,
            };
        }
        let args =
            command_first::command_first(std::env::args_os().collect(), &CommandLine::command());
        // Commands that are planned get their own message: clap would only call them unknown.
        if let Some(message) = args.get(1).and_then(|word| later_commands::refusal(word)) {
            print_message(&message);
            std::process::exit(2);
        }
        CommandLine::parse_from(args)
    }
}

/// `serve` with its flags, and nothing else.
#[derive(Debug, Parser)]
#[command(disable_help_flag = true)]
struct ServeOnly {
    #[command(flatten)]
    serve: serve::ServeArgs,
}

fn serve_alone(args: impl Iterator<Item = OsString>) -> Option<serve::ServeArgs> {
    let mut args: Vec<OsString> = args.collect();
    // The word may also be the value of a flag.
    parse_serve(&args).or_else(|| {
        let at = args.iter().position(|word| word == "serve")?;
        args.remove(at);
        parse_serve(&args)
    })
}

fn parse_serve(args: &[OsString]) -> Option<serve::ServeArgs> {
    ServeOnly::try_parse_from(args)
        .ok()
        .map(|alone| alone.serve)
}

/// Runs the command that was given.
pub fn run(cli: CommandLine) -> ExitCode {
    if cli.version.is_asked() {
        return version::print(&cli.version);
    }
    match cli.command.unwrap_or(CliCommand::Serve(cli.serve)) {
        CliCommand::Serve(args) => serve::run(&args),
        CliCommand::Stdio(args) => stdio::run(&args),
        CliCommand::Check(args) => check::run(&args, &SUPPORTED),
        CliCommand::Schema(args) => schema::run(&args),
        CliCommand::Add(args) => block_on(add::run(args)),
        CliCommand::Popular(args) => block_on(async { popular::run(&args) }),
        CliCommand::Remove(args) => block_on(switch::remove(args)),
        CliCommand::Enable(args) => block_on(switch::enable(args)),
        CliCommand::Disable(args) => block_on(switch::disable(args)),
        CliCommand::Undo(args) => block_on(undo::run(args)),
        CliCommand::Connect(args) => block_on(connect::run(args)),
        CliCommand::Import(args) => block_on(import::run(args)),
        CliCommand::Key(args) => key::run(args),
        CliCommand::Login(args) => login::run(&args),
        CliCommand::Logout(args) => block_on(logout::run(args)),
        CliCommand::Logins(args) => block_on(logins::run(args)),
        CliCommand::Doctor(args) => block_on(doctor::run(args)),
        CliCommand::Explain(args) => block_on(explain::run(args)),
        CliCommand::Open(args) => block_on(open::run(args)),
        CliCommand::Completions(args) => block_on(async { complete::print_script(&args) }),
        CliCommand::Complete(args) => block_on(complete::complete(args, CommandLine::command())),
        CliCommand::Reload(args) => block_on(restart::reload(args)),
        CliCommand::Restart(args) => block_on(restart::restart(args)),
        CliCommand::Status(args) => block_on(status::run(args)),
        CliCommand::Search(args) => block_on(search::run(args)),
        CliCommand::Health(args) => block_on(health::run(args)),
        CliCommand::Client(verb) => client::run(verb),
        CliCommand::Mock(args) => mock(args),
    }
}

fn mock(args: mock::MockArgs) -> ExitCode {
    let runtime = match runtime() {
        Ok(runtime) => runtime,
        Err(e) => return report_error(&e),
    };
    let end = runtime.block_on(mock::run(args));
    // A blocking read of stdin cannot be cancelled: dropping the runtime would wait for the next
    // line.
    runtime.shutdown_background();
    match end {
        Ok(code) => std::process::exit(code),
        Err(e) => report_error(&e),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn alone(line: &str) -> Option<serve::ServeArgs> {
        serve_alone(line.split(' ').map(OsString::from))
    }

    #[test]
    fn serve_is_read_alone_as_with_all_the_others() {
        for line in [
            "moongate -c a.toml",
            "moongate serve --config a.toml --listen 127.0.0.1:0 --only one --only two",
            "moongate --config a.toml serve",
            "moongate --only serve serve --listen 127.0.0.1:0",
        ] {
            let all = CommandLine::try_parse_from(arranged(line)).unwrap();
            let (CommandLine {
                command: Some(CliCommand::Serve(all)),
                ..
            }
            | CommandLine {
                command: None,
                serve: all,
                ..
            }) = all
            else {
                panic!("{line} is serve");
            };
            assert_eq!(
                format!("{:?}", alone(line).unwrap()),
                format!("{all:?}"),
                "{line}"
            );
        }
        let others = [
            "moongate check",
            "moongate -h",
            "moongate --version",
            "moongate help serve",
            "moongate serve --help",
        ];
        let wrong = [
            "moongate serve serve",
            "moongate serve --confg x",
            "moongate -c a.toml check",
            "moongate --listen",
        ];
        for line in others.into_iter().chain(wrong) {
            assert!(alone(line).is_none(), "{line}");
        }
    }

    fn arranged(line: &str) -> Vec<OsString> {
        command_first::command_first(
            line.split(' ').map(OsString::from).collect(),
            &CommandLine::command(),
        )
    }

    #[test]
    fn flags_may_stand_before_the_command() {
        for (line, same) in [
            (
                "moongate --config a.toml check",
                "moongate check --config a.toml",
            ),
            (
                "moongate -c a.toml --print check",
                "moongate check -c a.toml --print",
            ),
            (
                "moongate --admin unix:/x status --format json",
                "moongate status --admin unix:/x --format json",
            ),
            (
                "moongate --url=http://a/ tools",
                "moongate tools --url=http://a/",
            ),
            (
                "moongate --key k -v call tools a=1",
                "moongate call --key k -v tools a=1",
            ),
            (
                "moongate --config check serve",
                "moongate serve --config check",
            ),
            ("moongate check a.toml", "moongate check a.toml"),
            ("moongate --help check", "moongate check --help"),
        ] {
            assert_eq!(
                arranged(line),
                same.split(' ').map(OsString::from).collect::<Vec<_>>(),
                "{line}"
            );
        }
        for line in [
            "moongate -c a.toml",
            "moongate --listen",
            "moongate -- check",
            "moongate nothing --config a",
        ] {
            assert_eq!(
                arranged(line),
                line.split(' ').map(OsString::from).collect::<Vec<_>>(),
                "{line}"
            );
        }
        let cli = CommandLine::try_parse_from(arranged("moongate check a.toml")).unwrap();
        let Some(CliCommand::Check(check)) = cli.command else {
            panic!("{line:?}", line = cli)
        };
        assert_eq!(check.new, [std::path::PathBuf::from("a.toml")]);
    }

    #[test]
    fn examples_stand_below_each_other() {
        let mut program = CommandLine::command();
        for name in ["add", "import", "connect"] {
            let help = program
                .find_subcommand_mut(name)
                .unwrap()
                .render_help()
                .to_string();
            assert!(
                help.contains(&format!("\nExamples:\n  moongate {name} ")),
                "{help}"
            );
        }
        let help = program.render_help().to_string();
        assert!(
            help.contains("\n  moongate import ") && help.contains("\n  moongate connect "),
            "{help}"
        );
    }

    #[test]
    fn commands_of_later_versions_say_so() {
        for name in later_commands::NAMES {
            let message = later_commands::refusal(&OsString::from(name)).unwrap();
            assert!(
                message.contains("is not available in this version"),
                "{message}"
            );
            assert!(
                CommandLine::command().find_subcommand(name).is_none(),
                "{name} is there"
            );
        }
        assert_eq!(later_commands::refusal(&OsString::from("check")), None);
    }
}
