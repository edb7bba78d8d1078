//! Settings of clients that have no meaning for a gateway.
//!
//! Owns their names, and one warning a kind for all of a file's. Does not check values. Invariant:
//! a restriction of a server is never ignored (`tools`), and a key in no list is an error
//! (`check`).

use std::collections::BTreeMap;

use super::super::collector::ProblemCollector;
use super::super::problem::ProblemKind;
use super::super::tree::{ConfigNode, ConfigPath, SourceSpan};

/// Keys of an entry that only its client needs.
const CLIENT_KEYS: [&str; 50] = [
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

/// Keys of an entry that name a file with variables, which the server then lacks.
const ENV_FILES: [&str; 2] = ["envFile", "env_file"];

/// Settings of a file that have no meaning here.
#[derive(Default)]
pub(super) struct IgnoredSettings {
    settings: Vec<(SourceSpan, String)>,
    /// Servers, and parts of them, that work in the client only.
    lost: Vec<(SourceSpan, String)>,
}

impl IgnoredSettings {
    /// Removes the client's own keys from an entry.
    pub(super) fn take_from(
        &mut self,
        path: &ConfigPath,
        table: &mut BTreeMap<String, ConfigNode>,
        foreign: bool,
    ) {
        for key in ENV_FILES {
            if let Some(node) = table.remove(key) {
                self.add_lost(node.key, path.key(key).to_string());
            }
        }
        // In our own format `sandbox` is a restriction. It is refused, since this version cannot
        // enforce it.
        for key in CLIENT_KEYS
            .into_iter()
            .filter(|key| foreign || *key != "sandbox")
        {
            if let Some(node) = table.remove(key) {
                self.add(node.key, path.key(key).to_string());
            }
        }
        // `moongate connect` writes `oauth = false` for clients that would otherwise start a login.
        if table
            .get("oauth")
            .is_some_and(|node| node.value == super::super::tree::ConfigValue::Bool(false))
        {
            table.remove("oauth");
        }
    }

    /// Adds a setting.
    pub(super) fn add(&mut self, span: SourceSpan, what: String) {
        self.settings.push((span, what));
    }

    /// Adds what only the client can use.
    pub(super) fn add_lost(&mut self, span: SourceSpan, what: String) {
        self.lost.push((span, what));
    }

    /// Reports all of them, in one warning a kind.
    pub(super) fn report(self, title: &str, faults: &mut ProblemCollector) {
        let env_file = self.lost.iter().any(|(_, what)| {
            ENV_FILES
                .iter()
                .any(|key| what.ends_with(&format!(".{key}")))
        });
        if let Some((span, named, is_one)) = list(self.lost) {
            let work = if is_one { "works" } else { "work" };
            let fix = match env_file {
                true => "put the file's variables into `env`",
                false if is_one => "keep it in the client",
                false => "keep them in the client",
            };
            faults.warn(
                ProblemKind::UnknownKey,
                span,
                format!("{named} only {work} in {title}"),
                fix,
            );
        }
        if let Some((span, named, is_one)) = list(self.settings) {
            let (are, it) = if is_one {
                ("is a setting of", "has")
            } else {
                ("are settings of", "have")
            };
            let fix = if is_one {
                "remove it to silence this"
            } else {
                "remove them to silence this"
            };
            let message = format!("{named} {are} {title} and {it} no effect here");
            faults.warn(ProblemKind::ClientSetting, span, message, fix);
        }
    }
}

/// Returns the first span, the names in a line, and true for one name. `None` if there are none.
fn list(mut found: Vec<(SourceSpan, String)>) -> Option<(SourceSpan, String, bool)> {
    found.sort_by_key(|(span, _)| span.start);
    let span = found.first()?.0;
    let named: Vec<String> = found
        .iter()
        .take(NAMED_MAX)
        .map(|(_, what)| format!("`{what}`"))
        .collect();
    let more = match found.len().saturating_sub(NAMED_MAX) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    Some((
        span,
        format!("{}{more}", named.join(", ")),
        found.len() == 1,
    ))
}

#[cfg(test)]
mod tests {
    use super::super::entry::ALIASES;
    use super::super::harmless::LOGINS;
    use super::super::tools::{ALLOWED, DENIED};
    use super::*;
    use crate::schema::ConfigSchema;

    #[test]
    fn no_key_of_a_client_is_one_of_ours() {
        let schema = ConfigSchema::read();
        let server = schema.root().key("servers").and_then(|rule| rule.key("a"));
        let keys = server.unwrap().keys().unwrap();
        assert!(keys.contains(&"url"), "these are the keys of a server");
        let aliases = ALIASES.map(|(alias, _)| alias);
        // Only entries of clients' files lose these, so that our own `auth` stays.
        let mut logins = LOGINS.to_vec();
        logins.retain(|name| *name != "auth");
        let lists: [(&str, &[&str]); 6] = [
            ("CLIENT_KEYS", &CLIENT_KEYS),
            ("ENV_FILES", &ENV_FILES),
            ("ALIASES", &aliases),
            ("LOGINS", &logins),
            ("DENIED", &DENIED),
            ("ALLOWED", &ALLOWED),
        ];
        for (list, names) in lists {
            let mut lost = names.to_vec();
            lost.retain(|name| keys.contains(name));
            assert!(
                lost.is_empty(),
                "{list} takes these keys out of each entry, so no server could have them: {lost:?}"
            );
        }
    }
}
