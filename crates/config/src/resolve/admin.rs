//! Keys of operators.
//!
//! Owns their meaning, and the warning about a listener that other machines can reach. Does not
//! check requests (`access`). Invariant: no key opens both the endpoints and the admin listener.

use super::resolver::PlanResolver;
use crate::file::ConfigFile;
use crate::keys;
use crate::plan::lets_everybody_command;
use crate::problem::ProblemKind;
use crate::tree::ConfigPath;
use moongate_access::auth::{AdminAccess, AdminKey, AdminRole, KeySettings, MetricsAccess};
use moongate_listener::{ListenAddress, SocketSettings};

impl PlanResolver<'_> {
    /// Resolves the keys of operators. `clients` are the keys of clients, `listener` is the admin
    /// listener.
    pub(super) fn admin_access(
        &mut self,
        file: &ConfigFile,
        clients: &[KeySettings],
        listener: Option<&ListenAddress>,
        sockets: &SocketSettings,
    ) -> AdminAccess {
        let keys = self.admin_keys(file, clients);
        // Keys with mistakes count, since they have their own errors.
        if lets_everybody_command(
            file.admin.edits,
            !file.admin.keys.is_empty(),
            listener,
            sockets,
        ) {
            self.refuse_commands_of_everybody();
        }
        let metrics = match file.admin.metrics {
            Some(keys::MetricsReaders::Key) => MetricsAccess::Key,
            Some(keys::MetricsReaders::Open) | None => MetricsAccess::Open,
        };
        if metrics == MetricsAccess::Key && file.admin.keys.is_empty() {
            let path = ConfigPath::of(&["admin", "metrics"]);
            let message = "`admin.metrics` asks for a key, but there are no `[[admin.keys]]`, so \
                           nobody could read the metrics";
            self.error(
                ProblemKind::Conflict,
                &path,
                message,
                "add a key; `moongate key new NAME --admin` prints an entry",
            );
        }
        if let Some(address) = listener.filter(|address| address.is_open()) {
            self.warn_of_open_admin(address, !keys.is_empty(), metrics);
        }
        AdminAccess { keys, metrics }
    }

    fn refuse_commands_of_everybody(&mut self) {
        let path = ConfigPath::of(&["admin", "allow_commands"]);
        let message = format!(
            "`{path}` is true but there are no `[[admin.keys]]`, so every user of this machine \
             could run programs as the gateway's user"
        );
        let fix = "`moongate key new NAME --admin --write` adds a key; or set `gateway.admin` to a \
                   Unix socket \
                   (\"unix:/PATH\") and keep `gateway.socket_mode = \"0600\"`";
        self.error(ProblemKind::Conflict, &path, message, fix);
    }

    fn warn_of_open_admin(
        &mut self,
        address: &ListenAddress,
        has_keys: bool,
        metrics: MetricsAccess,
    ) {
        let path = ConfigPath::of(&["gateway", "admin"]);
        let (message, fix) = if has_keys {
            let message = format!(
                "{address} can be reached from other machines, and keys are sent to it in plain \
                 text"
            );
            (
                message,
                "listen on 127.0.0.1, or make sure that you control the network in between",
            )
        } else {
            let message = format!(
                "{address} can be reached from other machines, but there are no `admin.keys`, so \
                 it answers only probes and /metrics"
            );
            (
                message,
                "add `[[admin.keys]]` (`moongate key new NAME --admin` prints an entry), or listen \
                 on 127.0.0.1",
            )
        };
        // A warning, not an error: metrics scrapers often run on other machines.
        let open = if metrics == MetricsAccess::Open {
            "; anyone who can reach it can read the metrics"
        } else {
            ""
        };
        self.warn(&path, message + open, fix);
    }

    fn admin_keys(&mut self, file: &ConfigFile, clients: &[KeySettings]) -> Vec<AdminKey> {
        let mut keys: Vec<AdminKey> = Vec::new();
        for (i, key) in file.admin.keys.iter().enumerate() {
            let path = ConfigPath::of(&["admin", "keys"]).item(i);
            let hash = self.key_hash(key.hash.as_deref(), key.key.as_deref(), &path);
            let (Some(name), Some(hash)) = (key.name.clone(), hash) else {
                continue;
            };
            if keys.iter().any(|other| other.name == name) {
                let message = format!("two admin keys are called {name:?}");
                self.error(
                    ProblemKind::Conflict,
                    &path.key("name"),
                    message,
                    "give each key its own name",
                );
            }
            let admin = keys
                .iter()
                .find(|other| other.hash.matches(&hash))
                .map(|other| &other.name);
            // A client's key travels to many machines. It must not open the admin listener.
            let client = clients
                .iter()
                .find(|other| other.hash.matches(&hash))
                .map(|other| &other.name);
            if let Some(twin) = admin.or(client) {
                let message = format!("{twin:?} already uses this key");
                let fix = "make a key for each; `moongate key new NAME --admin` prints one";
                self.error(ProblemKind::Conflict, &path, message, fix);
            }
            // The weaker role is the default.
            let role = match key.role {
                Some(keys::AdminRole::Operate) => AdminRole::Operate,
                Some(keys::AdminRole::View) | None => AdminRole::View,
            };
            keys.push(AdminKey { name, hash, role });
        }
        keys
    }
}
