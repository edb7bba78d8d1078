//! Facts about one MCP client.
//!
//! Owns the types of a row in the table of clients. Does not render anything. Invariant: a row is
//! data alone, so that documents, pages and commands say the same.

use moongate_platform::Platform;

/// Files of a user, each with a directory in front: `~`, or a name in braces (see
/// [`crate::UserDirectories`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UserFiles {
    /// Paths that are the same on every system. The first is the one of new versions.
    Same(&'static [&'static str]),
    /// Paths of each system.
    Each {
        /// Linux.
        linux: &'static [&'static str],
        /// macOS.
        macos: &'static [&'static str],
        /// Windows.
        windows: &'static [&'static str],
    },
}

impl UserFiles {
    /// Paths on one system.
    pub(crate) fn of(self, platform: Platform) -> &'static [&'static str] {
        match self {
            UserFiles::Same(paths) => paths,
            UserFiles::Each { windows, .. } if platform == Platform::WINDOWS => windows,
            UserFiles::Each { macos, .. } if platform == Platform::MACOS => macos,
            UserFiles::Each { linux, .. } => linux,
        }
    }
}

/// Location of the servers in a client's file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerWrapper {
    /// Table under this key, with an entry for each name.
    Map(&'static str),
    /// List under this key, whose items have a `name`.
    List(&'static str),
}

impl ServerWrapper {
    /// Key of the table or list.
    pub fn key(self) -> &'static str {
        match self {
            ServerWrapper::Map(key) | ServerWrapper::List(key) => key,
        }
    }
}

/// Way to give Moongate to a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectMethod {
    /// An entry in a file.
    File,
    /// A text that is pasted into the client's settings.
    Paste,
    /// A public HTTPS address, typed into a web page. Such a client sends no key.
    PublicUrl,
    /// None: the client is no longer developed. Its servers can be imported.
    Discontinued,
}

/// Form in which a client reads a key from a variable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VariableForm {
    /// None: the file has the key itself.
    None,
    /// A reference inside a value. `NAME` stands for the variable.
    Reference(&'static str),
    /// An entry of another shape, in which `{variable}` stands for the variable.
    Entry(&'static str),
    /// An input that the client asks its user for, by this id.
    Input(&'static str),
}

/// Setting that switches one server off in a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OffSwitch {
    /// `disabled = true`
    Disabled,
    /// `enabled = false`
    Enabled,
    /// None in the file.
    None,
}

/// Limits of a client, as far as they are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientLimits {
    /// Longest name of a tool, together with the name of its server.
    pub name_length: Option<usize>,
    /// Number of tools that the client takes, or works well with.
    pub tools: Option<usize>,
}

/// One MCP client.
///
/// Texts are templates. In entries and commands, `{url}`, `{name}`, `{bearer}`, `{key}`,
/// `{variable}` and `{program}` are replaced. A member with a key, or a `[group]` of a command, is
/// left out without a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientProfile {
    /// Name on the command line.
    pub id: &'static str,
    /// Name for people.
    pub title: &'static str,
    /// Way to connect it.
    pub method: ConnectMethod,
    /// Files of the user, newest first.
    pub user_files: UserFiles,
    /// File of a project, below its directory.
    pub project_file: Option<&'static str>,
    /// Folder below the home and below a project, where each file may have servers.
    pub folder: Option<&'static str>,
    /// Text that a new file starts with.
    pub file_head: &'static str,
    /// Location of the servers in these files.
    pub wrapper: ServerWrapper,
    /// Entry for HTTP, as JSON. `None` if the client starts programs only.
    pub http: Option<&'static str>,
    /// Entry for `moongate stdio`, as JSON.
    pub stdio: &'static str,
    /// Form of a key that a variable holds.
    pub variable: VariableForm,
    /// Setting that switches a server off.
    pub off_switch: OffSwitch,
    /// Command of the client's own command line.
    pub command: Option<&'static str>,
    /// Link that adds the server. `{name}`, `{url}`, `{entry}`, `{named}` and `{base64}` are
    /// percent-encoded.
    pub link: Option<&'static str>,
    /// Limits.
    pub limits: ClientLimits,
    /// Next step in the client, a sentence.
    pub next_step: &'static str,
    /// Fact that a user should know first, a sentence. Empty for none.
    pub note: &'static str,
    /// Day on which the row was checked.
    pub checked: &'static str,
}
