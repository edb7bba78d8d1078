//! Views and keys of a config.
//!
//! Owns their meaning, and checks that the names in them exist. Does not check credentials
//! (`access`). Invariant: a view's path leads to that view alone.

use super::resolver::{PlanResolver, unknown_name_fix};
use crate::choices::{DiscoveryMode, Schemas};
use crate::file::ConfigFile;
use crate::gateway_keys::{Gateway, SearchSettings};
use crate::keys::Key;
use crate::plan::{DiscoverySettings, ViewSettings};
use crate::problem::ProblemKind;
use crate::server_names::is_name_character;
use crate::tree::ConfigPath;
use moongate_access::auth::{KeyHash, KeySettings};
use moongate_access::policy::{GlobList, RoleAccess};

/// Names that a view cannot have: the gateway serves these paths itself.
const RESERVED: [&str; 1] = ["sse"];

/// Length in bytes below which a key can be guessed.
// Moongate may not have made the key, so a short one is a warning, not an error.
const SHORT: usize = 16;

/// Gives a key what a role may use.
fn with_role(key: KeySettings, role: &RoleAccess) -> KeySettings {
    let views = role.endpoints.as_ref().map(|names| {
        let mut names: Vec<String> = names.iter().cloned().collect();
        // A set has no order, and two plans of one config must be equal.
        names.sort_unstable();
        names
    });
    KeySettings {
        role: Some(role.name.clone()),
        views,
        tools: role.tools.first().cloned().unwrap_or_default(),
        rate: role.rate,
        ..key
    }
}

impl PlanResolver<'_> {
    pub(super) fn views(&mut self, file: &ConfigFile) -> Vec<ViewSettings> {
        let mut views = Vec::new();
        for (name, view) in &file.views {
            let path = ConfigPath::of(&["views", name]);
            self.view_name(name, &path);
            let servers = path.key("servers");
            for (i, server) in view.servers.iter().flatten().enumerate() {
                // Names are checked against all servers: a disabled one may come back without a
                // change of the view.
                let names = self.server_names();
                if !names.contains(&server.as_str()) {
                    let path = servers.item(i);
                    let message =
                        format!("`{path}`: there is no server {}", self.quoted_value(&path));
                    self.error(
                        ProblemKind::Conflict,
                        &path,
                        message,
                        unknown_name_fix(server, &names, "servers"),
                    );
                }
            }
            let tools = self.patterns(&path.key("tools"), view.tools.as_ref());
            views.push(ViewSettings {
                name: name.clone(),
                servers: view.servers.clone(),
                tools: tools.unwrap_or_else(GlobList::all),
                schema: view.schema.map(Schemas::style),
                discovery: self.discovery(
                    &path,
                    view.discovery.unwrap_or_default(),
                    view.always.as_ref(),
                    &view.search,
                ),
            });
        }
        views
    }

    /// Resolves tool discovery at `/mcp`.
    pub(super) fn gateway_discovery(&mut self, gateway: &Gateway) -> DiscoverySettings {
        let path = ConfigPath::of(&["gateway"]);
        self.discovery(
            &path,
            gateway.discovery,
            Some(&gateway.always),
            &gateway.search,
        )
    }

    fn discovery(
        &mut self,
        path: &ConfigPath,
        mode: DiscoveryMode,
        always: Option<&Vec<String>>,
        search: &SearchSettings,
    ) -> DiscoverySettings {
        let always = self
            .patterns(&path.key("always"), always)
            .unwrap_or_default();
        let options = [
            ("always", !always.patterns().is_empty()),
            ("search", *search != SearchSettings::default()),
        ];
        for (key, _) in options
            .into_iter()
            .filter(|(_, is_set)| *is_set && mode != DiscoveryMode::Search)
        {
            let message =
                format!("`{path}.{key}` has no effect without `{path}.discovery = \"search\"`");
            self.warn(&path.key(key), message, "add that line, or remove this one");
        }
        DiscoverySettings {
            mode,
            always,
            search: search.clone(),
        }
    }

    fn view_name(&mut self, name: &str, path: &ConfigPath) {
        let starts = name.starts_with(|c: char| c.is_ascii_alphanumeric());
        if !starts || name.len() > 64 || !name.chars().all(is_name_character) {
            let message = format!("{name:?} is not a valid view name");
            let fix =
                "use at most 64 letters, digits, `-` and `_`, and start with a letter or digit";
            self.error_at_key(ProblemKind::Value, path, message, fix);
        } else if RESERVED.contains(&name) {
            let message =
                format!("a view cannot be called `{name}`: the gateway itself uses that path");
            self.error_at_key(
                ProblemKind::Conflict,
                path,
                message,
                "give the view another name",
            );
        } else if self.server_names().contains(&name) {
            let message = format!(
                "the view `{name}` has the same name as a server, and both would be at /mcp/{name}"
            );
            self.error_at_key(
                ProblemKind::Conflict,
                path,
                message,
                "give one of them another name",
            );
        }
    }

    /// Resolves the keys of clients. `roles` are those that they may share.
    pub(super) fn keys(&mut self, file: &ConfigFile, roles: &[RoleAccess]) -> Vec<KeySettings> {
        let mut keys: Vec<KeySettings> = Vec::new();
        for (i, key) in file.auth.keys.iter().enumerate() {
            let path = ConfigPath::of(&["auth", "keys"]).item(i);
            let Some(settings) = self.key(key, roles, &path) else {
                continue;
            };
            // Logs and limits distinguish keys by name.
            if let Some(twin) = keys.iter().find(|other| other.name == settings.name) {
                let message = format!("two keys are called {:?}", twin.name);
                self.error(
                    ProblemKind::Conflict,
                    &path.key("name"),
                    message,
                    "give each key its own name",
                );
            }
            if let Some(twin) = keys.iter().find(|other| other.hash.matches(&settings.hash)) {
                let message = format!("{:?} already uses this key", twin.name);
                self.error(
                    ProblemKind::Conflict,
                    &path,
                    message,
                    "make a key for each; `moongate key new NAME` prints one",
                );
            }
            keys.push(settings);
        }
        keys
    }

    fn key(&mut self, key: &Key, roles: &[RoleAccess], path: &ConfigPath) -> Option<KeySettings> {
        let hash = self.key_hash(key.hash.as_deref(), key.key.as_deref(), path);
        let tools = self
            .patterns(&path.key("tools"), key.tools.as_ref())
            .unwrap_or_else(GlobList::all);
        let rate = key.rate.map(|rate| rate.0);
        let expires = key
            .expires
            .as_ref()
            .map(|text| self.expires(&path.key("expires"), text));
        self.check_endpoint_names(&path.key("views"), key.views.as_ref());
        let expires = match expires {
            // A mistake in the date has been reported. The key must not become one that never
            // expires.
            Some(expires) => Some(expires?),
            None => None,
        };
        let own = KeySettings {
            name: key.name.clone()?,
            hash: hash?,
            role: None,
            views: key.views.clone(),
            tools,
            rate,
            expires,
        };
        Some(match self.role_of_key(key, roles, path) {
            Some(role) => with_role(own, role),
            None => own,
        })
    }

    /// Finds the role of a key. Next to the key's own limits, it would be a guess which of them
    /// count.
    fn role_of_key<'r>(
        &mut self,
        key: &Key,
        roles: &'r [RoleAccess],
        path: &ConfigPath,
    ) -> Option<&'r RoleAccess> {
        let name = key.role.as_deref()?;
        for own in ["views", "tools", "rate"] {
            let own = path.key(own);
            if self.is_written(&own) {
                let message = format!("`{path}` has both `role` and its own `{own}`");
                let fix = "remove one of the two; a role may be for this key alone";
                self.error_at_key(ProblemKind::Conflict, &own, message, fix);
            }
        }
        let found = roles.iter().find(|role| role.name == name);
        if found.is_none() {
            let names: Vec<&str> = roles.iter().map(|role| role.name.as_str()).collect();
            let path = path.key("role");
            let message = format!("`{path}`: there is no role {}", self.quoted_value(&path));
            let fix = unknown_name_fix(name, &names, "roles");
            self.error(ProblemKind::Conflict, &path, message, fix);
        }
        found
    }

    /// Checks the names of views and servers that a key or a role opens.
    pub(super) fn check_endpoint_names(&mut self, path: &ConfigPath, names: Option<&Vec<String>>) {
        for (i, name) in names.into_iter().flatten().enumerate() {
            // Both name endpoints: a server is at `/mcp/NAME`, as a view is.
            let known: Vec<&str> = self
                .names_in("views")
                .into_iter()
                .chain(self.server_names())
                .collect();
            if !known.contains(&name.as_str()) {
                let path = path.item(i);
                let message = format!(
                    "`{path}`: there is no view or server {}",
                    self.quoted_value(&path)
                );
                self.error(
                    ProblemKind::Conflict,
                    &path,
                    message,
                    unknown_name_fix(name, &known, "views and servers"),
                );
            }
        }
    }

    pub(super) fn key_hash(
        &mut self,
        hash: Option<&str>,
        key: Option<&str>,
        path: &ConfigPath,
    ) -> Option<KeyHash> {
        match (
            self.is_written(&path.key("hash")),
            self.is_written(&path.key("key")),
        ) {
            // Refused, because nobody could know which of the two opens the gateway.
            (true, true) => {
                let message = format!("`{path}` has both `hash` and `key`");
                self.error_at_key(
                    ProblemKind::Conflict,
                    &path.key("key"),
                    message,
                    "keep `hash`",
                );
            }
            (false, false) => {
                let message = format!("`{path}` has neither `hash` nor `key`");
                self.error(
                    ProblemKind::Missing,
                    path,
                    message,
                    "add the `hash` that `moongate key new NAME` prints",
                );
            }
            _ => {}
        }
        if let Some(text) = hash {
            let path = path.key("hash");
            let hash = KeyHash::parse(text.trim());
            if hash.is_none() {
                let message = format!("`{path}` is not the hash of a key");
                let fix =
                    "write \"sha256:\" and 64 hex digits, as `moongate key new NAME` prints them";
                self.error(ProblemKind::Value, &path, message, fix);
            }
            return hash;
        }
        let text = key?;
        let path = path.key("key");
        if text.is_empty() {
            // The hash of an empty text would let in a client that sends an empty key.
            let message = format!("`{path}` is empty, so clients that send no key would get in");
            self.error(
                ProblemKind::Value,
                &path,
                message,
                "set it; `moongate key new NAME` prints a new key",
            );
        } else if text.len() < SHORT {
            let fix = "use a long random key; `moongate key new NAME` prints one";
            self.warn(
                &path,
                format!("`{path}` is short enough to be guessed"),
                fix,
            );
        }
        // A header's value is read without the white space around it, so such a key would never
        // match.
        if text.trim() != text {
            let message = format!("`{path}` starts or ends with white space");
            self.error(
                ProblemKind::Value,
                &path,
                message,
                "remove it: clients cannot send it",
            );
        }
        Some(KeyHash::of(text))
    }

    fn expires(&mut self, path: &ConfigPath, text: &str) -> Option<jiff::Timestamp> {
        let text = text.trim();
        let timestamp = text.parse::<jiff::Timestamp>().ok().or_else(|| {
            // Only a whole date: a time without an offset would be ambiguous.
            let date = text.len() == 10;
            let date = date
                .then(|| text.parse::<jiff::civil::Date>().ok())
                .flatten()?;
            date.to_zoned(jiff::tz::TimeZone::UTC)
                .ok()
                .map(|zoned| zoned.timestamp())
        });
        match timestamp {
            None => {
                let message = format!("`{path}`: {} is not a date", self.quoted_value(path));
                let fix = "write a date such as \"2030-12-31\", or a timestamp such \
                           as \"2030-12-31T18:00:00Z\"";
                self.error(ProblemKind::Value, path, message, fix);
            }
            Some(timestamp) if timestamp <= jiff::Timestamp::now() => {
                self.warn(
                    path,
                    format!("`{path}` has passed, so the key is refused"),
                    "remove the key, or make a new one",
                );
            }
            Some(_) => {}
        }
        timestamp
    }
}
