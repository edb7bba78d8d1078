//! Comparison of servers to import with those that are there.
//!
//! Owns the choice among entries for one server. Does not judge whether two entries are one
//! (`same_server`), and does not write anything. Invariant: no server of the config is replaced,
//! whatever it is called.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use moongate_config::{ParsedServer, UnusedNames};
use serde_json::{Map, Value};

use super::remote_bridge::RemoteBridge;
use super::same_server::{MissingSetting, fixed_transport, has_unset};
use super::self_addresses::SelfAddresses;
use super::taken_servers::{KnownServer, TakenServers};

/// Relation of a server to the config.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ImportState {
    /// It is new.
    New,
    /// It is new, and its name is taken: it gets another one.
    Renamed {
        /// Name in the text.
        from: String,
    },
    /// The config has it, perhaps under another name.
    Same {
        /// Name in the config.
        name: String,
    },
    /// The config has it without some of its settings, such as a key. It is added only if somebody
    /// asks for it.
    Differs {
        /// Name in the config.
        name: String,
        /// Settings that the entry in the config lacks.
        lacks: Vec<MissingSetting>,
    },
    /// It leads back to this gateway.
    Own,
    /// It cannot be used.
    Broken,
}

/// Server to import, and what becomes of it.
#[derive(Clone, Debug)]
pub struct ImportRow {
    /// Place that it comes from, for people.
    pub origin: String,
    /// Server, with the name that it gets.
    pub server: ParsedServer,
    /// Relation to the config.
    pub state: ImportState,
    /// True if it is to be added. One that differs waits until somebody chooses it.
    pub is_added: bool,
}

/// Compares servers with the config and with each other. Returns a row for each, in their order.
///
/// `variables` are those that references stand for.
pub fn plan_import(
    found: impl IntoIterator<Item = (String, ParsedServer)>,
    known: &[KnownServer],
    own: &SelfAddresses,
    variables: &BTreeMap<String, String>,
) -> Vec<ImportRow> {
    let mut taken = TakenServers::of_config(known, variables);
    // Names of servers that may be added later are taken, too.
    let mut unused = UnusedNames::new(known.iter().map(|server| server.name.clone()));
    let mut found: Vec<(usize, (String, ParsedServer))> = found.into_iter().enumerate().collect();
    // Of entries for one server, the first that is looked at is the one that gets imported.
    found.sort_by_key(|(_, (_, server))| rank(server, variables));
    let mut rows: Vec<(usize, ImportRow)> = Vec::new();
    for (at, (origin, mut server)) in found {
        let near = taken.nearest(&server);
        let state = match near {
            _ if own.leads_here(&server.settings) => ImportState::Own,
            _ if server.is_broken => ImportState::Broken,
            Some((same, lacks)) if lacks.is_empty() => {
                let notes = differences(same, &server);
                server.notes.extend(notes);
                ImportState::Same {
                    name: same.name.clone(),
                }
            }
            other => {
                let from = server.name.clone();
                server.name = unused.take(&from);
                if server.needs_login {
                    let note = format!("next step: `moongate login {}`", server.name);
                    server.notes.push(note);
                }
                match other.map(|(near, lacks)| (near.name.clone(), lacks)) {
                    Some((name, lacks)) => ImportState::Differs { name, lacks },
                    None => {
                        taken.add(KnownServer {
                            name: server.name.clone(),
                            settings: server.settings.clone(),
                        });
                        if server.name == from {
                            ImportState::New
                        } else {
                            ImportState::Renamed { from }
                        }
                    }
                }
            }
        };
        let is_added = state.is_new();
        rows.push((
            at,
            ImportRow {
                origin,
                server,
                state,
                is_added,
            },
        ));
    }
    rows.sort_by_key(|(at, _)| *at);
    rows.into_iter().map(|(_, row)| row).collect()
}

/// Says how an entry of the config differs from another one for its server.
fn differences(known: &KnownServer, found: &ParsedServer) -> Vec<String> {
    let name = &known.name;
    let mut notes = Vec::new();
    if is_off(&known.settings) && !is_off(&found.settings) {
        notes.push(format!("`{name}` is switched off, but this one is on"));
    }
    if let (Some(fixed), None) = (
        fixed_transport(&known.settings),
        fixed_transport(&found.settings),
    ) {
        notes.push(format!(
            "`{name}` connects only by `{fixed}`, but this one does not"
        ));
    }
    let had_login = found.needs_login || RemoteBridge::of(&found.settings).is_some();
    if had_login && known.settings.contains_key("url") {
        notes.push(format!(
            "if `{name}` needs a login, run `moongate login {name}`"
        ));
    }
    notes
}

/// Rank of an entry among those for one server. The lowest comes first.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct EntryRank {
    is_off: bool,
    /// Without its key, a server may refuse the gateway.
    headers: Reverse<usize>,
    /// So may it without a login, and only the entry of a bridge shows that it needs one.
    is_plain_url: bool,
    has_unset: bool,
    /// A server without this transport fails, and an open entry tries both.
    has_fixed_transport: bool,
}

/// Ranks an entry among those for one server: the one that most likely works comes first.
fn rank(server: &ParsedServer, variables: &BTreeMap<String, String>) -> EntryRank {
    let settings = &server.settings;
    EntryRank {
        is_off: is_off(settings),
        headers: Reverse(
            settings
                .get("headers")
                .and_then(Value::as_object)
                .map_or(0, Map::len),
        ),
        is_plain_url: settings.contains_key("url") && !server.needs_login,
        has_unset: has_unset(settings, variables),
        has_fixed_transport: fixed_transport(settings).is_some(),
    }
}

/// True if an entry is switched off.
pub fn is_off(settings: &Map<String, Value>) -> bool {
    settings.get("enabled") == Some(&Value::Bool(false))
}

impl ImportRow {
    /// Lets a server be added that differs from the config's.
    pub fn choose(&mut self) {
        self.is_added |= matches!(self.state, ImportState::Differs { .. });
    }
}

impl ImportState {
    /// True if the config has nothing of the server.
    pub fn is_new(&self) -> bool {
        matches!(self, ImportState::New | ImportState::Renamed { .. })
    }
}
