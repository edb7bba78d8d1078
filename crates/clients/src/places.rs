//! Files of clients on one machine.
//!
//! Owns the directories that the table names in short. Does not read the files. Invariant: nothing
//! is read from the process itself.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use moongate_platform::Platform;

use crate::profile::ClientProfile;

/// Directories of a user, which the paths of the table start with.
#[derive(Clone, Debug)]
pub struct UserDirectories<'a> {
    /// Environment of the user.
    pub env: &'a BTreeMap<String, String>,
    /// System of the user.
    pub platform: Platform,
}

impl UserDirectories<'_> {
    /// Returns the user's files of a client, newest first. Leaves out those whose directory is
    /// unknown.
    pub fn files(&self, profile: &ClientProfile) -> Vec<PathBuf> {
        profile
            .user_files
            .of(self.platform)
            .iter()
            .filter_map(|path| self.path(path))
            .collect()
    }

    /// Returns the file of a client to read and write: the first that exists, else the first.
    pub fn file(&self, profile: &ClientProfile) -> Option<PathBuf> {
        let files = self.files(profile);
        files
            .iter()
            .find(|path| path.is_file())
            .or(files.first())
            .cloned()
    }

    /// Returns the folders whose files each may have servers: below the home, and below a project.
    pub fn folders(&self, profile: &ClientProfile, project: &Path) -> Vec<PathBuf> {
        let roots = self.home().into_iter().chain([project.to_owned()]);
        profile
            .folder
            .map(|folder| roots.map(|root| root.join(folder)).collect())
            .unwrap_or_default()
    }

    /// True if the client seems to be installed: it has a file, or a directory for one.
    pub fn has_client(&self, profile: &ClientProfile) -> bool {
        let home = self.home();
        self.files(profile).iter().any(|path| {
            // A file right in the home says nothing by its directory.
            let directory = path
                .parent()
                .filter(|parent| Some(*parent) != home.as_deref());
            path.is_file() || directory.is_some_and(Path::is_dir)
        })
    }

    fn path(&self, path: &str) -> Option<PathBuf> {
        let (start, rest) = path.split_once('/')?;
        let directory = match start {
            "~" => self.home(),
            "{xdg}" => self.xdg(),
            "{config}" if self.platform.app_data_folders => self.variable("APPDATA"),
            "{config}" => self.xdg(),
            "{support}" => Some(self.home()?.join("Library/Application Support")),
            variable => self.variable(variable.strip_prefix('{')?.strip_suffix('}')?),
        };
        Some(directory?.join(rest))
    }

    fn home(&self) -> Option<PathBuf> {
        let own = if self.platform.app_data_folders {
            "USERPROFILE"
        } else {
            "HOME"
        };
        self.variable(own).or_else(|| self.variable("HOME"))
    }

    fn xdg(&self) -> Option<PathBuf> {
        self.variable("XDG_CONFIG_HOME")
            .or_else(|| Some(self.home()?.join(".config")))
    }

    fn variable(&self, name: &str) -> Option<PathBuf> {
        // An empty variable is as good as none (XDG Base Directory Specification: "either not set
        // or empty").
        self.env
            .get(name)
            .filter(|value| !value.is_empty())
            .map(PathBuf::from)
    }
}

/// Returns the usual file of a client as people write it, such as `~/.cursor/mcp.json`. Reads no
/// variable.
pub fn shown_file(profile: &ClientProfile, platform: Platform) -> Option<String> {
    let mut paths = profile.user_files.of(platform).iter();
    paths.find_map(|path| shown_path(path, platform))
}

fn shown_path(path: &str, platform: Platform) -> Option<String> {
    let (start, rest) = path.split_once('/')?;
    let directory = match start {
        "~" => "~",
        "{config}" if platform.app_data_folders => "%APPDATA%",
        "{config}" | "{xdg}" => "~/.config",
        "{support}" => "~/Library/Application Support",
        // A line that counts only if its variable is set.
        _ => return None,
    };
    Some(format!("{directory}/{rest}"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::table::{client, clients};

    fn first(id: &str, platform: Platform, env: &[(&str, &str)]) -> String {
        let env = env
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect();
        let directories = UserDirectories {
            env: &env,
            platform,
        };
        directories
            .files(client(id).unwrap())
            .first()
            .map_or(String::new(), |path| path.display().to_string())
    }

    #[test]
    fn each_system_has_its_paths() {
        let unix = [("HOME", "/home/ada")];
        let windows = [("USERPROFILE", "C:/ada"), ("APPDATA", "C:/ada/roaming")];
        for (id, platform, env, path) in [
            (
                "cursor",
                Platform::LINUX,
                &unix[..],
                "/home/ada/.cursor/mcp.json",
            ),
            (
                "cursor",
                Platform::WINDOWS,
                &windows,
                "C:/ada/.cursor/mcp.json",
            ),
            (
                "vscode",
                Platform::LINUX,
                &unix,
                "/home/ada/.config/Code/User/mcp.json",
            ),
            (
                "vscode",
                Platform::MACOS,
                &unix,
                "/home/ada/Library/Application Support/Code/User/mcp.json",
            ),
            (
                "vscode",
                Platform::WINDOWS,
                &windows,
                "C:/ada/roaming/Code/User/mcp.json",
            ),
            (
                "opencode",
                Platform::WINDOWS,
                &windows,
                "C:/ada/.config/opencode/opencode.jsonc",
            ),
            (
                "codex",
                Platform::LINUX,
                &[("HOME", "/h"), ("CODEX_HOME", "/x")],
                "/x/config.toml",
            ),
            (
                "codex",
                Platform::LINUX,
                &[("HOME", "/h"), ("CODEX_HOME", "")],
                "/h/.codex/config.toml",
            ),
            (
                "goose",
                Platform::LINUX,
                &[("HOME", "/h"), ("XDG_CONFIG_HOME", "/x")],
                "/x/goose/config.yaml",
            ),
            ("jetbrains", Platform::LINUX, &unix, ""),
            ("cursor", Platform::LINUX, &[], ""),
        ] {
            assert_eq!(first(id, platform, env), path, "{id}");
        }
    }

    #[test]
    fn every_path_of_the_table_begins_with_a_known_directory() {
        let names = [
            "HOME",
            "USERPROFILE",
            "APPDATA",
            "CLAUDE_CONFIG_DIR",
            "CODEX_HOME",
            "COPILOT_HOME",
            "VIBE_HOME",
        ];
        let env: BTreeMap<String, String> = names
            .into_iter()
            .map(|name| (name.to_owned(), "/x".to_owned()))
            .collect();
        for platform in [Platform::LINUX, Platform::MACOS, Platform::WINDOWS] {
            let directories = UserDirectories {
                env: &env,
                platform,
            };
            for profile in clients() {
                let declared = profile.user_files.of(platform);
                assert_eq!(
                    shown_file(profile, platform).is_some(),
                    !declared.is_empty(),
                    "{}",
                    profile.id
                );
                assert_eq!(
                    directories.files(profile).len(),
                    declared.len(),
                    "{}",
                    profile.id
                );
            }
        }
    }
}
