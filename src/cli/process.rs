//! Process of one command: its runtime, its environment, the config that it means, its messages and
//! its exit codes.
//!
//! Owns what all commands do alike. Does not know any command. Invariant: messages for people go to
//! standard error.

use std::collections::BTreeMap;
use std::fmt;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use moongate_config::edit::ConfigEditError;
use moongate_config::{ConfigProblems, LoadOptions};
use moongate_protocol::SUPPORTED;

/// Creates a runtime with the default number of workers.
pub(super) fn runtime() -> anyhow::Result<tokio::runtime::Runtime> {
    Ok(tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?)
}

pub(super) fn block_on(work: impl Future<Output = anyhow::Result<ExitCode>>) -> ExitCode {
    match runtime().and_then(|runtime| runtime.block_on(work)) {
        Ok(code) => code,
        Err(e) => report_error(&e),
    }
}

/// Prints a message for people. A closed stderr has no reader, and isn't a reason to stop.
pub(super) fn print_message(message: &str) {
    let _ = writeln!(std::io::stderr().lock(), "{message}");
}

pub(super) fn report_error(error: &anyhow::Error) -> ExitCode {
    if let Some(problems) = error.downcast_ref::<ConfigProblems>() {
        return report_unusable(problems);
    }
    let is_bad_config = error
        .downcast_ref::<ConfigEditError>()
        .is_some_and(|error| error.code == "problems");
    print_message(&format!("error: {error:#}"));
    if is_bad_config || error.is::<UnusableConfig>() {
        ExitCode::from(BAD_CONFIG)
    } else {
        ExitCode::FAILURE
    }
}

/// Exit code for a config that cannot be used.
pub(super) const BAD_CONFIG: u8 = 2;

/// Error of a config that cannot be used, or that lacks what a command needs.
#[derive(Debug)]
pub(super) struct UnusableConfig(pub(super) String);

impl fmt::Display for UnusableConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for UnusableConfig {}

/// Returns this process's environment, as far as it is text.
pub(super) fn environment() -> BTreeMap<String, String> {
    std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .collect()
}

/// Variable that fills `--config`, also for commands that compare or connect elsewhere.
pub(super) const CONFIG_VARIABLE: &str = "MOONGATE_CONFIG";

/// Returns the config of this environment, which no flag names.
pub(super) fn config_of_environment() -> Option<PathBuf> {
    std::env::var_os(CONFIG_VARIABLE).map(PathBuf::from)
}

/// True if the command line itself has `--config`. The variable fills that flag, too, and says
/// nothing about what was asked for.
pub(super) fn is_config_flag_given(config: &[PathBuf]) -> bool {
    is_given_besides(config, config_of_environment().as_deref())
}

fn is_given_besides(config: &[PathBuf], variable: Option<&Path>) -> bool {
    match config {
        [] => false,
        [file] => variable != Some(file.as_path()),
        // The variable has one file.
        _ => true,
    }
}

/// Returns these files, or else the config that `serve` would find.
pub(super) fn config_paths(config: &[PathBuf], env: &BTreeMap<String, String>) -> Vec<PathBuf> {
    let mut paths = config.to_vec();
    if paths.is_empty() {
        paths.extend(moongate_config::search(Path::new("."), env));
    }
    paths
}

/// Returns the options to load these files, or else the config that `serve` would find.
pub(super) fn load_options(config: &[PathBuf]) -> LoadOptions<'static> {
    let env = environment();
    let paths = config_paths(config, &env);
    LoadOptions {
        revisions: &SUPPORTED,
        ..LoadOptions::of_files(paths, env)
    }
}

/// Prints the problems of a config that cannot be used, for commands that need one.
///
/// Returns the exit code for that.
pub(super) fn report_unusable(problems: &ConfigProblems) -> ExitCode {
    // A closed standard error leaves no way to report anything.
    let _ = write!(std::io::stderr(), "{problems}");
    ExitCode::from(BAD_CONFIG)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn files_of_a_flag_replace_the_search() {
        let folder = tempfile::tempdir().unwrap();
        let found = folder.path().join("moongate/moongate.toml");
        std::fs::create_dir(folder.path().join("moongate")).unwrap();
        std::fs::write(&found, "").unwrap();
        let home = folder.path().display().to_string();
        let env = ["XDG_CONFIG_HOME", "APPDATA"].map(|name| (name.to_owned(), home.clone()));
        let env = BTreeMap::from(env);
        assert_eq!(config_paths(&[], &env), [found]);
        let given = [PathBuf::from("a.toml"), PathBuf::from("b.toml")];
        assert_eq!(config_paths(&given, &env), given);
    }

    #[test]
    fn the_variable_does_not_count_as_the_flag() {
        let files = |names: &[&str]| names.iter().map(PathBuf::from).collect::<Vec<_>>();
        let variable = Some(Path::new("a"));
        for (config, variable, is_given) in [
            (&["a"][..], None, true),
            (&[], None, false),
            (&["a"], variable, false),
            (&["b"], variable, true),
            (&["a", "b"], variable, true),
        ] {
            let given = is_given_besides(&files(config), variable);
            assert_eq!(given, is_given, "{config:?} {variable:?}");
        }
    }
}
