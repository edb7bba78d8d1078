//! Settings of clients that have no meaning for a gateway.
//!
//! Owns their names, and one warning for all of a file's. Does not check values. Invariant: a restriction of a server
//! is never ignored (`tools`), and a key in no list is an error (`check`).

use std::collections::BTreeMap;

use super::super::collector::ProblemCollector;
use super::super::problem::ProblemKind;
use super::super::tree::{ConfigNode, ConfigPath, SourceSpan};

/// Keys of an entry that only its client needs.
const CLIENT_KEYS: [&str; 52] = [
    "alwaysAllow",
    "autoApprove",
    "autoStart",
    "auto_start",
    "available",
    "bundled",
    "chatMenu",
    "createdAt",
    "customUserVars",
    "default_tools_approval_mode",
    "dev",
    "dxtPath",
    "envFile",
    "env_file",
    "extensionId",
    "fromGalleryId",
    "gallery",
    "homepage",
    "iconPath",
    "id",
    "initTimeout",
    "installSource",
    "isBuiltin",
    "label",
    "logoUrl",
    "longRunning",
    "marketplace",
    "metadata",
    "name",
    "note",
    "presetId",
    "priority",
    "provider",
    "providerUrl",
    "registryId",
    "registryUrl",
    "requestTimeout",
    "required",
    "roots",
    "sandbox",
    "sandboxEnabled",
    "searchKey",
    "serverInstructions",
    "source",
    "start_on_launch",
    "startup",
    "tags",
    "trust",
    "updatedAt",
    "uuid",
    "version",
    "watchPaths",
];

/// Limit of keys that the warning names. It counts the rest.
// Clients' files may have dozens, and the warning is one line.
const NAMED_MAX: usize = 12;

/// Settings of a file that have no meaning here.
#[derive(Default)]
pub(super) struct IgnoredSettings(Vec<(SourceSpan, String)>);

impl IgnoredSettings {
    /// Removes the client's own keys from an entry.
    pub(super) fn take_from(&mut self, path: &ConfigPath, table: &mut BTreeMap<String, ConfigNode>, foreign: bool) {
        // In our own format `sandbox` is a restriction. It is refused, since this version cannot enforce it.
        for key in CLIENT_KEYS.into_iter().filter(|key| foreign || *key != "sandbox") {
            if let Some(node) = table.remove(key) {
                self.add(node.key, path.key(key).to_string());
            }
        }
        // `moongate connect` writes `oauth = false` for clients that would otherwise start a login.
        if table.get("oauth").is_some_and(|node| node.value == super::super::tree::ConfigValue::Bool(false)) {
            table.remove("oauth");
        }
    }

    /// Adds a setting.
    pub(super) fn add(&mut self, place: SourceSpan, what: String) {
        self.0.push((place, what));
    }

    /// Reports all of them in one warning.
    pub(super) fn report(mut self, title: &str, faults: &mut ProblemCollector) {
        self.0.sort_by_key(|(place, _)| place.start);
        let Some((place, _)) = self.0.first() else { return };
        let named: Vec<String> = self.0.iter().take(NAMED_MAX).map(|(_, what)| format!("`{what}`")).collect();
        let more = match self.0.len().saturating_sub(NAMED_MAX) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let is_one = self.0.len() == 1;
        let (are, it) = if is_one { ("is a setting of", "means") } else { ("are settings of", "mean") };
        let message = format!("{}{more} {are} {title}, and {it} nothing here", named.join(", "));
        // This one changes how the server behaves, so it gets its own fix.
        let env_file = self.0.iter().any(|(_, what)| what.ends_with(".envFile") || what.ends_with(".env_file"));
        let fix = match env_file {
            true => "put the variables of the file into `env`; remove the others to silence this",
            false if is_one => "remove it to silence this",
            false => "remove them to silence this",
        };
        faults.warn(ProblemKind::UnknownKey, *place, message, fix);
    }
}
