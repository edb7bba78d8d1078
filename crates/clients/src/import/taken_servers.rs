//! Entries that a server to import may already have.
//!
//! Owns the search among them, by what entries for one server have in common. Does not judge
//! whether two entries are one (`same_server`). Invariant: a text of thousands of servers does not
//! compare all pairs of them.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use moongate_config::ParsedServer;
use serde_json::{Map, Value};

use super::remote_bridge::has_credential_header;
use super::same_server::{EntryMark, EntryMarks, MissingSetting, missing_settings};

/// Limit of entries with one mark that a server is compared with. So many have one address and
/// differ in their headers, and any further one counts as new.
const COMPARED_MAX: usize = 100;

/// Server of our config.
#[derive(Clone, Debug)]
pub struct KnownServer {
    /// Name in the config.
    pub name: String,
    /// Settings as they are written.
    pub settings: Map<String, Value>,
}

/// Entries that names and addresses are taken by: those of the config, then those of the import.
pub(super) struct TakenServers<'a> {
    servers: Vec<KnownServer>,
    /// Number of the config's, which are the first.
    known: usize,
    by_mark: HashMap<EntryMark, Vec<usize>>,
    variables: &'a BTreeMap<String, String>,
}

impl<'a> TakenServers<'a> {
    /// Starts with the entries of the config.
    pub(super) fn of_config(
        known: &[KnownServer],
        variables: &'a BTreeMap<String, String>,
    ) -> Self {
        let mut taken = TakenServers {
            servers: Vec::new(),
            known: known.len(),
            by_mark: HashMap::new(),
            variables,
        };
        known.iter().for_each(|server| taken.add(server.clone()));
        taken
    }

    /// Adds an entry.
    pub(super) fn add(&mut self, server: KnownServer) {
        for mark in EntryMarks::of(&server.settings, self.variables).own {
            self.by_mark
                .entry(mark)
                .or_default()
                .push(self.servers.len());
        }
        self.servers.push(server);
    }

    /// Finds the entry for a server, and what it lacks of the server's settings.
    pub(super) fn nearest(
        &self,
        server: &ParsedServer,
    ) -> Option<(&KnownServer, Vec<MissingSetting>)> {
        let settings = &server.settings;
        // Rows of this import count, too: two clients often have the same server.
        let mut near = None;
        for at in self.candidates(settings) {
            let other = &self.servers[at];
            // A key may be of another account than a login.
            if server.needs_login && has_credential_header(&other.settings) {
                continue;
            }
            match missing_settings(&other.settings, settings, self.variables) {
                Some(lacks) if lacks.is_empty() => return Some((other, lacks)),
                // Of two new programs, the one with more variables may have another account. Both
                // are imported.
                Some(lacks)
                    if at < self.known
                        || lacks.iter().all(|setting| setting.table == "headers") =>
                {
                    near = near.or(Some((other, lacks)));
                }
                _ => {}
            }
        }
        near
    }

    /// Returns the entries that may be for the same server, in their order.
    fn candidates(&self, settings: &Map<String, Value>) -> BTreeSet<usize> {
        let sought = EntryMarks::of(settings, self.variables).sought;
        let found = sought.iter().filter_map(|mark| self.by_mark.get(mark));
        found
            .flat_map(|entries| entries.iter().take(COMPARED_MAX).copied())
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn entries() -> Vec<Map<String, Value>> {
        let mut found = Vec::new();
        for url in [
            "https://A.example/mcp/",
            "https://a.example/mcp",
            "${A}/mcp",
            "${B}/mcp",
            "https://b.example",
        ] {
            found.push(json!({ "url": url }));
            found.push(json!({ "url": url, "headers": { "X": "1" }, "command": "npx" }));
            found.push(json!({ "command": "npx", "args": ["-y", "mcp-remote@1", url] }));
        }
        for package in [
            "p", "p@1", "p@latest", "p@${V}", "p@${B}", "@s/p", "@s/p@2", "${B}", "$$p", "p==1",
        ] {
            for (flag, value) in [
                ("--key", "k"),
                ("--key", "${K}"),
                ("--key", "a${B}"),
                ("--key", "ab"),
            ] {
                for command in ["npx", "run"] {
                    found.push(json!({ "command": command, "args": [package, flag, value] }));
                    found.push(json!({ "command": command, "args": [flag, value, package],
                        "env": { "E": "1" } }));
                }
            }
        }
        for socket in [
            json!({ "unix": "/x" }),
            json!({ "tcp": "h:1" }),
            json!({ "tcp": "h:1", "title": "t" }),
        ] {
            found.push(socket);
        }
        found.iter().filter_map(Value::as_object).cloned().collect()
    }

    #[test]
    fn entries_for_one_server_share_a_mark() {
        let variables = [("A", "https://a.example"), ("V", "1"), ("K", "k")];
        let variables = variables
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .into();
        let mut same = 0;
        for there in entries() {
            for found in entries()
                .iter()
                .filter(|found| missing_settings(&there, found, &variables).is_some())
            {
                let own = EntryMarks::of(&there, &variables).own;
                let sought = EntryMarks::of(found, &variables).sought;
                assert!(
                    sought.iter().any(|mark| own.contains(mark)),
                    "{there:?} {found:?}"
                );
                same += 1;
            }
        }
        assert!(same > 2 * entries().len(), "{same}");
    }
}
