//! Location of the persisted state. Owns the name of its file and the usual directories. Does not
//! open it (`session::store`). Invariant: gateways with different ports or sockets have different
//! files.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use moongate_platform::Platform;

use super::resolver::PlanResolver;
use crate::choices::StateKind;
use crate::gateway_keys::Gateway;
use crate::problem::ProblemKind;
use crate::tree::ConfigPath;
use moongate_listener::ListenAddress;
use moongate_session::store::StoreSettings;

impl PlanResolver<'_> {
    /// Resolves the folder of the state.
    pub(super) fn state_folder(&mut self, gateway: &Gateway) -> Option<PathBuf> {
        match gateway.state_dir.as_deref().map(str::trim) {
            Some("") => {
                let path = ConfigPath::of(&["gateway", "state_dir"]);
                self.error(
                    ProblemKind::Value,
                    &path,
                    "`gateway.state_dir` is empty",
                    "name a directory, or remove it",
                );
                None
            }
            Some(dir) => Some(with_home(dir, self.env)),
            None => usual_folder(self.env, self.platform),
        }
    }

    /// Resolves the file of the state in its folder. Gateways with different listeners each have
    /// their own.
    pub(super) fn state(
        &mut self,
        gateway: &Gateway,
        listen: &[ListenAddress],
        folder: Option<&Path>,
    ) -> StoreSettings {
        let listener = listen.first().and_then(listener_name);
        let file = folder.map(|folder| {
            folder.join(format!("state-{}.redb", listener.as_deref().unwrap_or("0")))
        });
        match gateway.state {
            Some(StateKind::Memory) => StoreSettings::default(),
            Some(StateKind::Embedded) => {
                if file.is_none() {
                    let path = ConfigPath::of(&["gateway", "state"]);
                    let message =
                        "`gateway.state` is \"embedded\", but there is no directory to keep it in";
                    self.error(
                        ProblemKind::Value,
                        &path,
                        message,
                        "set `gateway.state_dir`",
                    );
                }
                StoreSettings {
                    file,
                    required: true,
                    has_no_directory: false,
                    is_temporary: listener.is_none(),
                }
            }
            // On a port that the system picks, no client comes back after a restart.
            None if listener.is_none() => StoreSettings::default(),
            None => StoreSettings {
                has_no_directory: file.is_none(),
                file,
                required: false,
                is_temporary: false,
            },
        }
    }
}

/// Returns the folder for logins. All gateways of a state folder share them, so it does not depend
/// on the listener.
pub(super) fn login_folder(gateway: &Gateway, folder: Option<PathBuf>) -> Option<PathBuf> {
    folder.filter(|_| gateway.state != Some(StateKind::Memory))
}

/// Names a listener as part of a file's name. `None` if clients cannot find it after a restart.
fn listener_name(address: &ListenAddress) -> Option<String> {
    match address {
        ListenAddress::Tcp(address) | ListenAddress::TcpLines(address) => Some(address.port())
            .filter(|port| *port != 0)
            .map(|port| port.to_string()),
        ListenAddress::Unix(path) => Some(name_part(&path.to_string_lossy())),
        ListenAddress::Inherited(name) => Some(name_part(name.as_deref().unwrap_or("systemd"))),
    }
}

/// Turns the end of a text into a part of a file's name.
fn name_part(text: &str) -> String {
    // The end of a path says more than its start, and names of files have at most 255 bytes.
    let length = text.chars().count();
    text.chars()
        .skip(length.saturating_sub(100))
        .map(|c| if c.is_ascii_alphanumeric() { c } else { '-' })
        .collect()
}

fn with_home(dir: &str, env: &BTreeMap<String, String>) -> PathBuf {
    match (dir.strip_prefix("~/"), env.get("HOME")) {
        // No shell expands the `~` of a config.
        (Some(rest), Some(home)) => PathBuf::from(home).join(rest),
        _ => PathBuf::from(dir),
    }
}

/// Returns the directory of the state where no config names one.
pub fn usual_state_folder(env: &BTreeMap<String, String>) -> Option<PathBuf> {
    usual_folder(env, Platform::CURRENT)
}

/// Directory of the service manager, or else the user's.
fn usual_folder(env: &BTreeMap<String, String>, platform: Platform) -> Option<PathBuf> {
    if platform.app_data_folders {
        return env
            .get("LOCALAPPDATA")
            .filter(|dir| !dir.is_empty())
            .map(|dir| PathBuf::from(dir).join("moongate"));
    }
    // systemd separates several directories by colons.
    let systemd = absolute_path(env, "STATE_DIRECTORY")
        .and_then(|dirs| dirs.split(':').next())
        .map(PathBuf::from);
    systemd
        .or_else(|| Some(Path::new(absolute_path(env, "XDG_STATE_HOME")?).join("moongate")))
        .or_else(|| Some(Path::new(absolute_path(env, "HOME")?).join(".local/state/moongate")))
}

/// Reads a path from a variable. XDG Base Directory Specification: a relative one is invalid and
/// ignored.
fn absolute_path<'a>(env: &'a BTreeMap<String, String>, name: &str) -> Option<&'a str> {
    env.get(name)
        .map(String::as_str)
        .filter(|value| value.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{LoadOptions, load};

    /// Folder for logins of a config.
    fn logins_of(text: &str) -> Option<PathBuf> {
        let path = PathBuf::from("a.toml");
        let options = LoadOptions {
            paths: vec![path.clone()],
            texts: [(path, text.to_owned())].into(),
            env: [("HOME".to_owned(), "/home/ada".to_owned())].into(),
            platform: Platform::LINUX,
            ..LoadOptions::default()
        };
        load(&options).unwrap().plan.login_folder
    }

    #[test]
    fn logins_are_in_the_state_folder_whatever_the_port_is() {
        let usual = Some(PathBuf::from("/home/ada/.local/state/moongate"));
        for port in [0, 8080] {
            let text = format!("[gateway]\nlisten = \"127.0.0.1:{port}\"\n");
            assert_eq!(logins_of(&text), usual, "{port}");
        }
        let named = "[gateway]\nlisten = \"127.0.0.1:0\"\nstate_dir = \"~/kept\"\n";
        assert_eq!(logins_of(named), Some("/home/ada/kept".into()));
        assert_eq!(logins_of("[gateway]\nstate = \"memory\"\n"), None);
    }

    #[test]
    fn the_usual_directory_is_that_of_the_system() {
        let env = [
            ("HOME", "/home/ada"),
            ("LOCALAPPDATA", "C:/Users/ada/AppData/Local"),
        ];
        let env = env.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let env = BTreeMap::from(env);
        assert_eq!(
            usual_folder(&env, Platform::LINUX),
            Some("/home/ada/.local/state/moongate".into())
        );
        assert_eq!(
            usual_folder(&env, Platform::WINDOWS),
            Some("C:/Users/ada/AppData/Local/moongate".into())
        );
        assert_eq!(usual_folder(&BTreeMap::new(), Platform::WINDOWS), None);
    }
}
