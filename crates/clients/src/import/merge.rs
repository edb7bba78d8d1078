//! Comparison of servers to import with those that are there.
//!
//! Owns what makes two servers the same: the URL, or the command with its arguments. Does not write anything.
//! Invariant: no server of the config is replaced, whatever it is called.

use moongate_config::ServerEntry;
use serde_json::{Map, Value};
use url::Url;

/// Server of our config.
#[derive(Clone, Debug)]
pub struct KnownServer {
    /// Name in the config.
    pub name: String,
    /// Settings as they are written.
    pub settings: Map<String, Value>,
}

/// Addresses of this gateway, which no server may lead back to.
#[derive(Clone, Debug, Default)]
pub struct OwnGateway {
    /// Hosts and ports that it listens on, such as `127.0.0.1:8080`.
    pub addresses: Vec<String>,
}

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
    pub server: ServerEntry,
    /// Relation to the config.
    pub state: ImportState,
}

/// Compares servers with the config and with each other, in their order.
pub fn plan_import(
    found: impl IntoIterator<Item = (String, ServerEntry)>,
    known: &[KnownServer],
    own: &OwnGateway,
) -> Vec<ImportRow> {
    let mut taken: Vec<KnownServer> = known.to_vec();
    let mut rows = Vec::new();
    for (origin, mut server) in found {
        // Rows of this import count, too: two clients often have the same server.
        let same =
            taken.iter().find(|other| is_same(&other.settings, &server.settings)).map(|other| other.name.clone());
        let state = match same {
            _ if own.is_meant(&server.settings) => ImportState::Own,
            _ if server.is_broken => ImportState::Broken,
            Some(name) => ImportState::Same { name },
            None => {
                let is_taken = |name: &str| taken.iter().any(|other| other.name == name);
                let from = server.name.clone();
                server.name = moongate_config::unused_server_name(&from, is_taken);
                taken.push(KnownServer { name: server.name.clone(), settings: server.settings.clone() });
                if server.name == from { ImportState::New } else { ImportState::Renamed { from } }
            }
        };
        rows.push(ImportRow { origin, server, state });
    }
    rows
}

/// True if two entries lead to one server.
fn is_same(one: &Map<String, Value>, other: &Map<String, Value>) -> bool {
    let text = |entry: &Map<String, Value>, key: &str| entry.get(key).and_then(Value::as_str).map(str::to_owned);
    if let (Some(one), Some(other)) = (text(one, "url"), text(other, "url")) {
        return normal_url(&one) == normal_url(&other);
    }
    let no_args = Value::Array(Vec::new());
    let program = |entry: &Map<String, Value>| {
        let args = entry.get("args").unwrap_or(&no_args).clone();
        text(entry, "command").map(|command| (command, args))
    };
    let socket = |entry: &Map<String, Value>| text(entry, "unix").or_else(|| text(entry, "tcp"));
    match (program(one), program(other)) {
        // Other variables mean another account or database.
        (Some(program_one), Some(program_other)) => {
            // So does another folder, for a program that gets relative paths.
            let is_same = |key: &str| one.get(key) == other.get(key);
            program_one == program_other && is_same("env") && is_same("cwd")
        }
        _ => socket(one).is_some() && socket(one) == socket(other),
    }
}

fn normal_url(url: &str) -> String {
    // References are not replaced here, and such a URL compares as text.
    let parsed = Url::parse(url).map(|url| url.to_string());
    parsed.unwrap_or_else(|_| url.to_owned()).trim_end_matches('/').to_owned()
}

impl ImportState {
    /// True if the server is to be added.
    pub fn is_new(&self) -> bool {
        matches!(self, ImportState::New | ImportState::Renamed { .. })
    }
}

impl OwnGateway {
    /// Names the gateway by one of its endpoints.
    pub fn of_url(url: &str) -> Self {
        let address = Url::parse(url).ok().and_then(|url| address_of(&url));
        OwnGateway { addresses: address.into_iter().collect() }
    }

    /// True if an entry leads to this gateway, or starts our bridge or a gateway of its own.
    pub fn is_meant(&self, settings: &Map<String, Value>) -> bool {
        let text = |key: &str| settings.get(key).and_then(Value::as_str);
        if text("url").is_some_and(|url| self.has_url(url)) {
            return true;
        }
        let program = text("command").map(|command| command.rsplit(['/', '\\']).next().unwrap_or(command));
        // A `moongate` with another command is no bridge of ours, such as `moongate mock`.
        let first = settings.get("args").and_then(Value::as_array).and_then(|args| args.first()?.as_str());
        program.is_some_and(|program| program.trim_end_matches(".exe") == "moongate") && first == Some("stdio")
    }

    /// True if a URL is one of this gateway's endpoints.
    pub fn has_url(&self, url: &str) -> bool {
        let Ok(url) = Url::parse(url) else { return false };
        let path = url.path();
        let is_endpoint = ["/mcp", "/sse"].iter().any(|start| path == *start || path.starts_with(&format!("{start}/")));
        is_endpoint && address_of(&url).is_some_and(|address| self.addresses.contains(&address))
    }
}

/// Host and port of a URL.
fn address_of(url: &Url) -> Option<String> {
    let host = match url.host_str()? {
        // Names under `localhost` resolve to loopback addresses (RFC 6761, section 6.3).
        host if host == "localhost" || host.ends_with(".localhost") => "127.0.0.1",
        host => host,
    };
    Some(format!("{host}:{}", url.port_or_known_default()?))
}
