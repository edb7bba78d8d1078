//! Command that starts this program again, for the entries that we write into clients' files.
//!
//! Owns how a client starts Moongate later, however it was started now. Does not write entries
//! (`entry`). Invariant: no command leads into a cache that may be emptied.

use std::ffi::OsStr;
use std::path::Path;

/// Name of the package in the registries of npm and PyPI.
const PACKAGE: &str = "moongate";

/// Variables by which the launcher of the npm package describes how it was started.
#[derive(Clone, Debug, Default)]
pub struct LauncherVariables {
    /// `MOONGATE_LAUNCHER`: `npx` if it ran from a cache, `npm` if it is installed.
    pub launcher: Option<String>,
    /// `MOONGATE_LAUNCHER_PATH`: path of the installed command, which an update keeps.
    pub path: Option<String>,
}

/// Command and first arguments that start this program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StartCommand {
    /// Program to start: a path, or a name that the client looks up.
    pub command: String,
    /// Arguments in front of Moongate's own.
    pub args: Vec<String>,
}

impl LauncherVariables {
    /// Reads the variables of this process.
    pub fn of_process() -> Self {
        LauncherVariables {
            launcher: read_variable("MOONGATE_LAUNCHER"),
            path: read_variable("MOONGATE_LAUNCHER_PATH"),
        }
    }
}

/// Reads a variable of this process. An empty one counts as not set.
fn read_variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

impl StartCommand {
    /// Starts a program by its path or name.
    pub fn program(command: impl Into<String>) -> Self {
        StartCommand {
            command: command.into(),
            args: Vec::new(),
        }
    }

    fn run_by(command: &str, args: &[&str]) -> Self {
        StartCommand {
            command: command.to_owned(),
            args: args.iter().map(|arg| (*arg).to_owned()).collect(),
        }
    }

    /// Finds the command for a program at a path. `version` is the one that packages are pinned to.
    pub fn find(program: &Path, variables: &LauncherVariables, version: &str) -> Self {
        let pinned = format!("{PACKAGE}@{version}");
        match PackageCache::of(program) {
            Some(PackageCache::Uv) => StartCommand::run_by("uvx", &[&pinned]),
            Some(PackageCache::Pipx) => StartCommand::run_by(
                "pipx",
                &["run", "--spec", &format!("{PACKAGE}=={version}"), PACKAGE],
            ),
            Some(PackageCache::Bun) => StartCommand::run_by("bunx", &[&pinned]),
            Some(PackageCache::Pnpm) => StartCommand::run_by("pnpm", &["dlx", &pinned]),
            Some(PackageCache::Npm) => StartCommand::run_by("npx", &["-y", &pinned]),
            None if variables.launcher.as_deref() == Some("npx") => {
                StartCommand::run_by("npx", &["-y", &pinned])
            }
            None => {
                let is_usable =
                    |path: &&String| Path::new(path).is_absolute() && Path::new(path).exists();
                let installed = variables
                    .path
                    .as_ref()
                    .filter(|_| variables.launcher.as_deref() == Some("npm"));
                let installed = installed.filter(is_usable).cloned();
                StartCommand::program(installed.unwrap_or_else(|| program.display().to_string()))
            }
        }
    }

    /// True if an entry with this command and these arguments starts `moongate stdio`, directly or
    /// from a package.
    pub fn is_bridge(command: &str, args: &[&str]) -> bool {
        let name = command.rsplit(['/', '\\']).next().unwrap_or(command);
        if name.trim_end_matches(".exe") == PACKAGE {
            return args.first() == Some(&"stdio");
        }
        args.windows(2)
            .any(|pair| is_package(pair[0]) && pair[1] == "stdio")
    }
}

/// True for the package with any version, or without one.
fn is_package(word: &str) -> bool {
    let rest = word.strip_prefix(PACKAGE);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('@') || rest.starts_with("=="))
}

/// Cache of a package runner, which may be emptied at any time.
enum PackageCache {
    Npm,
    Pnpm,
    Bun,
    Uv,
    Pipx,
}

impl PackageCache {
    /// Finds the cache that a program is in, by the folders that each runner uses.
    fn of(program: &Path) -> Option<Self> {
        let folders: Vec<&str> = program.iter().filter_map(OsStr::to_str).collect();
        folders
            .iter()
            .enumerate()
            .find_map(|(at, folder)| match *folder {
                "_npx" => Some(PackageCache::Npm),
                "dlx" => Some(PackageCache::Pnpm),
                "pipx" if at > 0 && folders[at - 1] == ".cache" => Some(PackageCache::Pipx),
                name if name.starts_with("dlx-") => Some(PackageCache::Pnpm),
                name if name.starts_with("bunx-") => Some(PackageCache::Bun),
                name if is_uv_bucket(name) => Some(PackageCache::Uv),
                _ => None,
            })
    }
}

/// True for a folder of uv's cache, which has the version of its layout as a number.
fn is_uv_bucket(folder: &str) -> bool {
    ["archive-v", "environments-v"].iter().any(|start| {
        let version = folder.strip_prefix(start);
        version.is_some_and(|version| {
            !version.is_empty() && version.bytes().all(|byte| byte.is_ascii_digit())
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(start: &StartCommand) -> String {
        [std::slice::from_ref(&start.command), &start.args]
            .concat()
            .join(" ")
    }

    #[test]
    fn a_program_in_a_cache_is_started_by_its_runner() {
        let none = LauncherVariables::default();
        for (path, expected) in [
            (
                "/home/a/.npm/_npx/5f/node_modules/@moongate/linux-x64/bin/moongate",
                "npx -y moongate@1.2.3",
            ),
            (
                "/home/a/.cache/pnpm/dlx/ab/node_modules/@moongate/linux-x64/bin/moongate",
                "pnpm dlx moongate@1.2.3",
            ),
            (
                "/home/a/.cache/pnpm/dlx-31/node_modules/.pnpm/x/bin/moongate",
                "pnpm dlx moongate@1.2.3",
            ),
            (
                "/tmp/bunx-0-moongate@latest/node_modules/@moongate/linux-x64/bin/moongate",
                "bunx moongate@1.2.3",
            ),
            (
                "/home/a/.cache/uv/archive-v0/xyz/bin/moongate",
                "uvx moongate@1.2.3",
            ),
            (
                "/mnt/cache/environments-v2/moongate-1/bin/moongate",
                "uvx moongate@1.2.3",
            ),
            (
                "/home/a/.cache/pipx/1b2c/bin/moongate",
                "pipx run --spec moongate==1.2.3 moongate",
            ),
        ] {
            assert_eq!(
                words(&StartCommand::find(Path::new(path), &none, "1.2.3")),
                expected,
                "{path}"
            );
        }
    }

    #[test]
    fn an_installed_program_is_started_by_its_path() {
        let none = LauncherVariables::default();
        for path in [
            "/usr/local/bin/moongate",
            "/home/a/.local/share/uv/tools/moongate/bin/moongate",
            "/home/a/.local/share/pipx/venvs/moongate/bin/moongate",
            "/home/a/.cargo/bin/moongate",
            "/opt/homebrew/Cellar/moongate/1.2.3/bin/moongate",
            "/home/npx/uvx/moongate",
            "/opt/archive-videos/moongate",
            "/opt/archive-v/moongate",
            "/opt/environments-v2-old/moongate",
        ] {
            assert_eq!(
                StartCommand::find(Path::new(path), &none, "1.2.3"),
                StartCommand::program(path)
            );
        }
    }

    const INSTALLED_BY_NPM: &str =
        "/usr/lib/node_modules/moongate/node_modules/@moongate/linux-x64/bin/moongate";

    fn find_launched(launcher: &str, path: &str) -> String {
        let variables = LauncherVariables {
            launcher: Some(launcher.to_owned()),
            path: Some(path.to_owned()),
        };
        let program = Path::new(INSTALLED_BY_NPM);
        words(&StartCommand::find(program, &variables, "1.2.3"))
    }

    #[test]
    fn the_npm_launcher_names_a_command_that_an_update_keeps() {
        assert_eq!(find_launched("npx", ""), "npx -y moongate@1.2.3");
        // Any file will do that exists on every system of the tests.
        let installed = std::env::current_exe()
            .map(|path| path.display().to_string())
            .unwrap_or_default();
        assert_eq!(find_launched("npm", &installed), installed);
        let own = INSTALLED_BY_NPM;
        assert_eq!(find_launched("npm", "/nonexistent/moongate"), own);
        assert_eq!(find_launched("npm", "moongate"), own);
        assert_eq!(find_launched("other", &installed), own);
    }

    #[test]
    fn bridges_are_known_however_they_are_started() {
        for (command, args) in [
            ("/usr/bin/moongate", &["stdio", "--url", "u"][..]),
            (r"C:\bin\moongate.exe", &["stdio"]),
            ("npx", &["-y", "moongate@1.2.3", "stdio", "--url", "u"]),
            ("uvx", &["moongate@1.2.3", "stdio"]),
            ("uvx", &["moongate", "stdio"]),
            (
                "pipx",
                &["run", "--spec", "moongate==1.2.3", "moongate", "stdio"],
            ),
        ] {
            assert!(StartCommand::is_bridge(command, args), "{command} {args:?}");
        }
        for (command, args) in [
            ("moongate", &["mock", "--demo"][..]),
            ("moongate", &[]),
            ("npx", &["-y", "moongate-other", "stdio"]),
            ("npx", &["-y", "moongate@1.2.3", "mock"]),
            ("node", &["stdio"]),
        ] {
            assert!(
                !StartCommand::is_bridge(command, args),
                "{command} {args:?}"
            );
        }
    }
}
