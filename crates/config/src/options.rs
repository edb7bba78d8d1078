//! Options for reading a config.
//!
//! Owns what a caller decides: the sources, and the cost of a problem. Does not read anything.
//! Invariant: nothing is read from the process itself.

use std::collections::BTreeMap;
use std::path::PathBuf;

use moongate_platform::Platform;

/// Sources of a config, and options for reading it.
#[derive(Clone, Debug, Default)]
pub struct LoadOptions<'a> {
    /// Config files, weakest first. Empty for none, see [`search`].
    pub paths: Vec<PathBuf>,
    /// Texts to read instead of these files' own: a config before it is written.
    pub texts: BTreeMap<PathBuf, String>,
    /// Environment, for `MOONGATE_*` settings and for references in values.
    pub env: BTreeMap<String, String>,
    /// Addresses of `--listen`, which replace `gateway.listen` unless empty.
    pub listen: Vec<String>,
    /// Servers of `--only`. All servers if empty.
    pub only: Vec<String>,
    /// Protocol revisions that a server can be made to speak, as `protocol` names them.
    pub revisions: &'a [&'a str],
    /// Cost of a problem in one server's entry.
    pub tolerance: ErrorTolerance,
    /// Servers whose problems cost only them, whatever the tolerance: the gateway runs without them
    /// already, or an edit adds them.
    pub failing: Vec<String>,
    /// Abilities of the system that the config is for.
    pub platform: Platform,
}

/// Cost of a problem in one server's entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ErrorTolerance {
    /// Whole config: a reload with a problem changes nothing, and `check` refuses it.
    #[default]
    None,
    /// Only that server: a gateway starts with the others.
    PerServer,
}

impl LoadOptions<'_> {
    /// Creates options with only the files and the environment.
    pub fn of_files(paths: Vec<PathBuf>, env: BTreeMap<String, String>) -> Self {
        LoadOptions {
            paths,
            env,
            tolerance: ErrorTolerance::PerServer,
            ..LoadOptions::default()
        }
    }
}
