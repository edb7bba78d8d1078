//! Where the state is kept.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;

use super::super::file::{Gateway, StateKind};
use super::super::problem::Kind;
use super::super::tree::Path;
use super::Resolver;
use crate::store::StoreSettings;

impl Resolver<'_> {
    /// The file of the state. Gateways that listen on different ports are different ones: each has its own.
    pub(super) fn state(&mut self, gateway: &Gateway, listen: &[SocketAddr]) -> StoreSettings {
        let path = Path::of(&["gateway", "state_dir"]);
        let dir = match gateway.state_dir.as_deref().map(str::trim) {
            Some("") => {
                self.error(Kind::Value, &path, "`gateway.state_dir` is empty", "name a directory, or remove it");
                None
            }
            Some(dir) => Some(with_home(dir, self.env)),
            None => usual(self.env),
        };
        let port = listen.first().map_or(0, SocketAddr::port);
        let file = dir.map(|dir| dir.join(format!("state-{port}.redb")));
        match gateway.state {
            Some(StateKind::Memory) => StoreSettings::default(),
            Some(StateKind::Embedded) => {
                if file.is_none() {
                    let path = Path::of(&["gateway", "state"]);
                    let message = "`gateway.state` is \"embedded\", but there is no directory to keep it in";
                    self.error(Kind::Value, &path, message, "set `gateway.state_dir`");
                }
                StoreSettings { file, required: true, homeless: false }
            }
            // On a port that the system picks nobody finds it again.
            None if port == 0 && gateway.state_dir.is_none() => StoreSettings::default(),
            None => StoreSettings { homeless: file.is_none(), file, required: false },
        }
    }
}

fn with_home(dir: &str, env: &BTreeMap<String, String>) -> PathBuf {
    match (dir.strip_prefix("~/"), env.get("HOME")) {
        (Some(rest), Some(home)) => PathBuf::from(home).join(rest),
        _ => PathBuf::from(dir),
    }
}

/// The service manager's directory, or the user's.
fn usual(env: &BTreeMap<String, String>) -> Option<PathBuf> {
    let set = |name: &str| env.get(name).map(String::as_str).filter(|value| value.starts_with('/'));
    // systemd gives several with colons in between.
    let systemd = set("STATE_DIRECTORY").and_then(|dirs| dirs.split(':').next()).map(PathBuf::from);
    let xdg = || set("XDG_STATE_HOME").map(|dir| PathBuf::from(dir).join("moongate"));
    let home = || set("HOME").map(|home| PathBuf::from(home).join(".local/state/moongate"));
    systemd.or_else(xdg).or_else(home)
}
