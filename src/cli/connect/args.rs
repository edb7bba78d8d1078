//! Flags of `moongate connect`.
//!
//! Owns the clients and files that they mean. Does not know what `--endpoint` means (`endpoint`).
//! Invariant: an import uses the defaults of all flags.

use std::path::PathBuf;

use anyhow::{Context, bail};
use clap::Args;

use crate::cli::process::CONFIG_VARIABLE;
use moongate_clients::{ClientProfile, ConnectMethod, KEY_VARIABLE, UserDirectories};

/// Text below the help.
const HELP: &str = "\
Examples:
  moongate connect                           list all clients, and the config \
  files of those installed here
  moongate connect cursor                    show what Cursor needs
  moongate connect claude-code --write       write it, after showing the change
  moongate connect --all --write --yes       write it for all clients on this machine
  moongate connect cursor --undo             revert the last change
  moongate connect claude-desktop --bundle moongate.mcpb
                                             a file that Claude Desktop installs

The key comes from MOONGATE_KEY, or from the variable that --key-env names. If a client can read \
variables,
its file contains only the variable's name. If the config has keys but none is given, an existing \
entry keeps
its key, and a new one refers to MOONGATE_KEY.

Exit codes: 0 success, 1 failure, 2 bad usage or config.";

/// Variable with the key, unless a flag names another.
pub(super) const DEFAULT_VARIABLE: &str = KEY_VARIABLE;
/// Flags of `connect`.
#[derive(Clone, Debug, Args)]
#[command(after_help = HELP)]
pub struct ConnectArgs {
    /// The clients; without any, the command lists them
    #[arg(value_name = "CLIENT", conflicts_with = "all")]
    pub(super) clients: Vec<String>,
    /// All clients on this machine
    #[arg(long)]
    pub(super) all: bool,
    /// Write the entry to the client's file, after showing the change
    #[arg(long)]
    pub(super) write: bool,
    /// Remove the entry from the client's file
    #[arg(long, conflicts_with_all = ["write", "undo"])]
    pub(super) remove: bool,
    /// Revert the last change to the client's file; what others wrote since then stays
    #[arg(long, conflicts_with = "write")]
    pub(super) undo: bool,
    /// Do not ask before writing
    #[arg(long, short = 'y')]
    pub(super) yes: bool,
    /// Replace an entry with this name that points somewhere else
    #[arg(long)]
    pub(super) force: bool,
    /// The project's file in this directory instead of the user's
    #[arg(long)]
    pub(super) project: bool,
    /// The endpoint: a name or a path, such as coding or /mcp/coding, or a whole URL [default: /mcp
    /// of the config's gateway]
    #[arg(long, value_name = "NAME|PATH|URL")]
    pub(super) endpoint: Option<String>,
    /// The name of the entry
    #[arg(long, value_name = "NAME", default_value = "moongate")]
    pub(super) name: String,
    /// The variable with the key for the gateway
    #[arg(long, value_name = "VAR", default_value = DEFAULT_VARIABLE)]
    pub(super) key_env: String,
    /// Create a key with this name: the config gets its hash, and the client gets the key
    #[arg(
        long,
        value_name = "NAME",
        requires = "write",
        conflicts_with = "key_env"
    )]
    pub(super) key: Option<String>,
    /// Write the key itself, even if the client could read a variable
    #[arg(long)]
    pub(super) key_inline: bool,
    /// Let the client start `moongate stdio`, even if it could use HTTP
    #[arg(long)]
    pub(super) stdio: bool,
    /// Write a bundle that installs Moongate in Claude Desktop, instead of its file
    #[arg(long, value_name = "PATH",
        conflicts_with_all = ["all", "write", "remove", "undo", "project", "key"])]
    pub(super) bundle: Option<PathBuf>,
    /// The config with the gateway's address; repeat the flag to let later files override earlier
    /// ones
    #[arg(long, short, value_name = "PATH", env = CONFIG_VARIABLE)]
    pub(super) config: Vec<PathBuf>,
}

impl ConnectArgs {
    /// Flags of a client that uses the gateway of this config, with all defaults.
    pub(super) fn for_take_over(config: &[PathBuf]) -> Self {
        ConnectArgs {
            clients: Vec::new(),
            all: false,
            write: true,
            remove: false,
            undo: false,
            yes: false,
            force: false,
            project: false,
            endpoint: None,
            name: "moongate".to_owned(),
            key_env: DEFAULT_VARIABLE.to_owned(),
            key: None,
            key_inline: false,
            stdio: false,
            bundle: None,
            config: config.to_vec(),
        }
    }
}

/// Returns the message about a word that isn't a client.
pub(in crate::cli) fn unknown_client(word: &str) -> String {
    let hint = match moongate_clients::nearest_client(word) {
        Some(near) => format!("did you mean `{}`?", near.id),
        None => "`moongate connect` lists all known clients".to_owned(),
    };
    format!("there is no client {word:?}; {hint}")
}

/// Returns the file of a client that the flags mean.
pub(super) fn file_of(
    profile: &ClientProfile,
    args: &ConnectArgs,
    directories: &UserDirectories<'_>,
) -> anyhow::Result<PathBuf> {
    if profile.method != ConnectMethod::File {
        bail!(
            "it has no file that can be written; `moongate connect {}` shows what it needs",
            profile.id
        );
    }
    if args.project {
        let file = profile.project_file.context("it has no project file")?;
        return Ok(std::env::current_dir()?.join(file));
    }
    directories
        .file(profile)
        .context("the location of its file is unknown: HOME is not set")
}
