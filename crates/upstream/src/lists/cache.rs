//! Lists of one server, cached across restarts of the gateway. Owns the server's row in the store.
//! Does not decide when a server is listed (`supervisor/connected.rs`). Invariant: a row is used
//! only for a server with the settings (see [`settings_digest`]) that it was listed with.

use parking_lot::{Mutex, MutexGuard};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use aws_lc_rs::digest::{Context, SHA256};
use base64::Engine;
use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::gateway_caller::gateway_caller;
use crate::lists::eras::EraLists;
use crate::lists::fetch::{ItemList, ServerLists};
use crate::lists::other_rows::{self, OtherRows};
use crate::server_context::ServerContext;
use crate::settings::{ConnectTarget, ServerSettings};
use moongate_model::{ItemKind, McpServer, ServerDescription};
use moongate_oauth::ServerAuth;
use moongate_protocol::{Era, LegacyGreeting, SeenRequests};
use moongate_session::store::{StateStore, StoreTable, unix_now};

/// Age after which a confirmed row is written again, so that it does not look old. In seconds.
const REWRITE_AFTER_SECONDS: u64 = 3600;
/// Limit of one row, in bytes.
const ROW_MAX: usize = 16 * 1024 * 1024;

/// State of the cached row and of its confirmation.
#[derive(Default)]
pub(crate) struct ListCache {
    /// True if the lists are those of a previous process.
    unconfirmed: AtomicBool,
    /// True if all lists were fetched, now or by a previous process.
    listed: AtomicBool,
    /// Time of the last write, in seconds since 1970.
    written: AtomicU64,
    /// Lists of the last write.
    lists: ArcSwapOption<EraLists>,
    /// Eras of the last write.
    eras: Mutex<Option<KnownEras>>,
    /// Requests of the server that the last write named.
    seen_requests: Mutex<SeenRequests>,
    /// Number of tools that the last write named as ones of the legacy era.
    legacy_tools: AtomicUsize,
    /// Tools that the last write named as asking their clients.
    asking_tools: Mutex<AskingToolNames>,
    /// True if a row says that the server was slow at its last start.
    pub(crate) was_slow: AtomicBool,
    /// True if no row is written any more.
    is_closed: AtomicBool,
}

impl ListCache {
    fn eras(&self) -> MutexGuard<'_, Option<KnownEras>> {
        self.eras.lock()
    }
}

/// Era of a server, whether it speaks the other one, and its form of the handshake.
type KnownEras = (Era, Option<bool>, Option<LegacyGreeting>);

/// Names of tools, by the capability that a client needs to answer them.
pub(crate) type AskingToolNames = BTreeMap<String, Vec<String>>;

/// Row in the store. Its members are the file format.
#[derive(Serialize, Deserialize)]
struct CachedRow {
    settings: String,
    saved: u64,
    modern: bool,
    /// True if the server speaks the other era, too.
    #[serde(default)]
    other: Option<bool>,
    /// Form of the legacy handshake that the server took.
    #[serde(default)]
    greeting: Option<LegacyGreeting>,
    pipe: bool,
    /// True if the server ever sent an input request on a pipe.
    #[serde(default)]
    asks: bool,
    /// True if the server ever asked for roots.
    #[serde(default)]
    asks_roots: bool,
    /// True if the server ever sent a request of an extension on a pipe.
    #[serde(default)]
    asks_extensions: bool,
    /// Tools that can ask only in the legacy era.
    #[serde(default)]
    legacy_tools: Vec<String>,
    /// Tools that asked their clients, by what they asked for.
    #[serde(default)]
    asking_tools: AskingToolNames,
    face: ServerDescription,
    lists: [ItemList; 4],
    /// Lists of the face in the other era, if they differ.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    other_lists: Option<OtherRows>,
}

/// Server as a previous process knew it.
pub(crate) struct RestoredServer {
    pub(crate) era: Era,
    pub(crate) is_multiplexed: bool,
    pub(crate) description: ServerDescription,
    /// True if the server speaks the other era, too. `None`: not tried.
    pub(crate) speaks_other_era: Option<bool>,
    /// Form of the legacy handshake that the server took.
    pub(crate) greeting: Option<LegacyGreeting>,
    /// Requests that the server was seen to send.
    pub(crate) seen_requests: SeenRequests,
    /// Tools that can ask only in the legacy era.
    pub(crate) legacy_tools: Vec<String>,
    /// Tools that asked their clients, by what they asked for.
    pub(crate) asking_tools: AskingToolNames,
    pub(crate) lists: ServerLists,
    /// Lists of the face in the other era, if they differ.
    pub(crate) other_lists: Option<ServerLists>,
}

impl RestoredServer {
    /// Reads a row. `None` if it is of no use: it is broken, too old, or of a server with other
    /// settings.
    pub(crate) fn parse(row: &Bytes, longest: Duration, settings: &ServerSettings) -> Option<Self> {
        let row = serde_json::from_slice::<CachedRow>(row).ok()?;
        // Saturating: a clock that was set back makes a row look new, never broken.
        let old = unix_now().saturating_sub(row.saved) >= longest.as_secs();
        // With other settings, the server may offer other items.
        if old || row.settings != settings_digest(settings) {
            return None;
        }
        let era = if row.modern { Era::Modern } else { Era::Legacy };
        let lists = ServerLists::from(row.lists.map(|list| {
            Arc::new(ItemList {
                era: Some(era),
                ..list
            })
        }));
        Some(RestoredServer {
            era,
            is_multiplexed: row.pipe,
            description: row.face,
            speaks_other_era: row.other,
            greeting: row.greeting,
            seen_requests: SeenRequests {
                input: row.asks,
                roots: row.asks_roots,
                extensions: row.asks_extensions,
            },
            legacy_tools: row.legacy_tools,
            asking_tools: row.asking_tools,
            other_lists: row
                .other_lists
                .and_then(|rows| other_rows::restore(rows, era.other(), &lists)),
            lists,
        })
    }
}

/// Connected server whose lists are cached.
pub(crate) struct ListedServer<'a> {
    pub(crate) server: &'a dyn McpServer,
    pub(crate) era: Era,
    pub(crate) is_multiplexed: bool,
    /// True if the server speaks the other era, too. `None`: not tried.
    pub(crate) speaks_other_era: Option<bool>,
    /// Form of the legacy handshake that the server took.
    pub(crate) greeting: Option<LegacyGreeting>,
    /// Requests that the server was seen to send.
    pub(crate) seen_requests: SeenRequests,
    /// Tools that can ask only in the legacy era.
    pub(crate) legacy_tools: Vec<String>,
    /// Tools that asked their clients, by what they asked for.
    pub(crate) asking_tools: AskingToolNames,
}

impl ListCache {
    /// Returns true if the lists are those of a previous process, and the server has not confirmed
    /// them yet.
    pub(crate) fn is_unconfirmed(&self) -> bool {
        self.unconfirmed.load(Ordering::Relaxed)
    }

    /// Returns true if all lists were fetched in full, now or before.
    pub(crate) fn is_listed(&self) -> bool {
        self.listed.load(Ordering::Relaxed)
    }

    /// Records the requests of the server that the restored row named.
    pub(crate) fn restore_seen_requests(&self, requests: SeenRequests) {
        *self.seen_requests.lock() = requests;
    }

    /// Records that the lists are those of a previous process.
    pub(crate) fn mark_restored(&self) {
        self.unconfirmed.store(true, Ordering::Relaxed);
        self.listed.store(true, Ordering::Relaxed);
    }

    /// Records that the server itself has shown its lists.
    pub(crate) fn confirm(&self) {
        self.unconfirmed.store(false, Ordering::Relaxed);
        self.listed.store(true, Ordering::Relaxed);
    }

    /// Persists that the server was slow at this start.
    pub(crate) fn record_slow_start(&self, server: &ServerContext) {
        let store = &server.common.store;
        if store.is_persistent() && !self.is_closed.load(Ordering::Acquire) {
            let digest = settings_digest(&server.settings);
            store.put(
                StoreTable::SlowStarts,
                Bytes::copy_from_slice(server.settings.name.as_bytes()),
                digest,
            );
            self.was_slow.store(true, Ordering::Relaxed);
        }
    }

    /// Removes the row of a slow start, if there is one.
    pub(crate) fn forget_slow_start(&self, server: &ServerContext) {
        if self.was_slow.swap(false, Ordering::Relaxed) {
            let name = Bytes::copy_from_slice(server.settings.name.as_bytes());
            server.common.store.remove(StoreTable::SlowStarts, name);
        }
    }

    /// Copies the confirmation of another server together with its lists.
    pub(crate) fn copy_confirmation_from(&self, other: &ListCache) {
        self.unconfirmed
            .store(other.is_unconfirmed(), Ordering::Relaxed);
        self.listed.store(other.is_listed(), Ordering::Relaxed);
    }

    /// Stops persisting for good. A server that was replaced or removed from the config leaves no
    /// row.
    pub(crate) fn stop_persisting(&self) {
        self.is_closed.store(true, Ordering::Release);
    }

    /// Persists the lists for the next process, if they or the facts stored with them changed.
    pub(crate) fn persist(
        &self,
        store: &StateStore,
        settings: &ServerSettings,
        items: Arc<EraLists>,
        listed: &ListedServer<'_>,
    ) {
        let now = unix_now();
        let eras = Some((listed.era, listed.speaks_other_era, listed.greeting));
        let same = self
            .lists
            .load()
            .as_ref()
            .is_some_and(|lists| lists.holds_same(&items))
            && *self.eras() == eras
            && *self.seen_requests.lock() == listed.seen_requests
            && self.legacy_tools.load(Ordering::Relaxed) == listed.legacy_tools.len()
            && *self.asking_tools.lock() == listed.asking_tools;
        let leaves = store.is_persistent() && !self.is_closed.load(Ordering::Acquire);
        if !leaves
            || (same
                && now.saturating_sub(self.written.load(Ordering::Relaxed)) < REWRITE_AFTER_SECONDS)
        {
            return;
        }
        let row = CachedRow {
            settings: settings_digest(settings),
            saved: now,
            modern: listed.era == Era::Modern,
            other: listed.speaks_other_era,
            greeting: listed.greeting,
            pipe: listed.is_multiplexed,
            asks: listed.seen_requests.input,
            asks_roots: listed.seen_requests.roots,
            asks_extensions: listed.seen_requests.extensions,
            legacy_tools: listed.legacy_tools.clone(),
            asking_tools: listed.asking_tools.clone(),
            face: listed.server.describe(&gateway_caller()),
            lists: ItemKind::ALL.map(|kind| (**items.shared().get(kind)).clone()),
            other_lists: items
                .persisted_other()
                .map(|other| other_rows::store(other, items.shared())),
        };
        let server = &settings.name;
        match serde_json::to_vec(&row) {
            // The store queues its rows in memory. One server must not fill that queue.
            Ok(json) if json.len() <= ROW_MAX => {
                store.put(
                    StoreTable::Catalog,
                    Bytes::copy_from_slice(server.as_bytes()),
                    json,
                );
                self.lists.store(Some(items));
                *self.eras() = eras;
                *self.seen_requests.lock() = listed.seen_requests;
                self.legacy_tools
                    .store(listed.legacy_tools.len(), Ordering::Relaxed);
                *self.asking_tools.lock() = row.asking_tools;
                self.written.store(now, Ordering::Relaxed);
            }
            Ok(_) => {
                tracing::warn!(server, "lists not persisted: larger than {ROW_MAX} bytes")
            }
            Err(e) => tracing::warn!(server, "lists not persisted: {e}"),
        }
    }
}

/// Returns a digest of the settings that decide which server it is and what it offers. Credentials
/// count, since a server may show each of them different items.
pub(crate) fn settings_digest(settings: &ServerSettings) -> String {
    let mut digest = PartsDigest(Context::new(&SHA256));
    match &settings.connect {
        ConnectTarget::Stdio {
            command,
            args,
            env,
            cwd,
        } => {
            digest.add(b"stdio");
            digest.add(command.as_bytes());
            // The count keeps apart the arguments and the variables that follow.
            digest.add(&(args.len() as u64).to_be_bytes());
            args.iter().for_each(|arg| digest.add(arg.as_bytes()));
            env.iter().for_each(|(name, value)| {
                [name, value]
                    .into_iter()
                    .for_each(|part| digest.add(part.as_bytes()))
            });
            digest.add(
                cwd.as_ref()
                    .map_or(&b""[..], |cwd| cwd.as_os_str().as_encoded_bytes()),
            );
        }
        // A misconfigured server is never listed.
        ConnectTarget::Misconfigured { .. } => digest.add(b"misconfigured"),
        ConnectTarget::Socket(address) => {
            digest.add(b"socket");
            digest.add(format!("{address:?}").as_bytes());
        }
        ConnectTarget::Http {
            url,
            transport,
            headers,
            auth,
            ..
        } => {
            digest.add(b"http");
            digest.add(url.as_str().as_bytes());
            digest.add(format!("{transport:?}").as_bytes());
            headers.iter().for_each(|(name, value)| {
                [name.as_ref(), value.as_bytes()]
                    .into_iter()
                    .for_each(|part| digest.add(part))
            });
            digest.add_account(auth);
        }
    }
    digest.add(settings.protocol.as_deref().unwrap_or_default().as_bytes());
    base64::engine::general_purpose::STANDARD_NO_PAD.encode(digest.0.finish())
}

/// Digest of several parts.
struct PartsDigest(Context);

impl PartsDigest {
    /// Adds a part after its length, which keeps apart parts that would otherwise join to the same
    /// bytes.
    fn add(&mut self, part: &[u8]) {
        self.0.update(&(part.len() as u64).to_be_bytes());
        self.0.update(part);
    }

    /// Adds the settings of `auth` that decide whose items a server shows. The default adds
    /// nothing, so rows of versions without the key stay valid.
    fn add_account(&mut self, auth: &ServerAuth) {
        match auth {
            ServerAuth::OAuth(settings) => {
                let client = settings.client_id.as_deref();
                let issuer = settings.issuer.as_ref().map(url::Url::as_str);
                let scopes = settings.scopes.iter().flatten().map(String::as_str);
                for part in client.into_iter().chain(issuer).chain(scopes) {
                    self.add(part.as_bytes());
                }
            }
            ServerAuth::ClientCredentials(settings) => {
                let scopes = settings.scopes.iter().flatten().map(String::as_str);
                let client = ["client_credentials", settings.client_id.as_str()];
                let issuer = [settings.issuer.as_str()];
                for part in client.into_iter().chain(issuer).chain(scopes) {
                    self.add(part.as_bytes());
                }
            }
            ServerAuth::Command(settings) => {
                self.add(b"command");
                self.add(settings.command.as_bytes());
                settings
                    .args
                    .iter()
                    .for_each(|arg| self.add(arg.as_bytes()));
                for (name, value) in &settings.env {
                    self.add(name.as_bytes());
                    self.add(value.expose().as_bytes());
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::testing::settings_http;
    use crate::{NoSink, Upstream, UpstreamRuntime};
    use moongate_model::{ServerStart, UpstreamState};
    use moongate_oauth::{
        ClientCredentialsSettings, ClientProof, CommandSettings, OAuthSettings, SecretText,
    };
    use moongate_telemetry::Metrics;
    use moongate_transport::reaper::Reaper;

    const DAY: Duration = Duration::from_secs(86_400);

    fn digest_with(auth: ServerAuth) -> String {
        let mut settings = settings_http();
        if let ConnectTarget::Http { auth: own, .. } = &mut settings.connect {
            *own = auth;
        }
        settings_digest(&settings)
    }

    #[test]
    fn another_account_has_other_lists() {
        let client = |id: &str| {
            ServerAuth::OAuth(OAuthSettings {
                client_id: Some(id.to_owned()),
                ..OAuthSettings::default()
            })
        };
        let command = |account: &str, minutes: u64| {
            ServerAuth::Command(CommandSettings {
                command: "gh".to_owned(),
                args: Vec::new(),
                env: vec![("ACCOUNT".to_owned(), SecretText::new(account))],
                ttl: Duration::from_secs(60 * minutes),
            })
        };
        let machine = |id: &str| {
            ServerAuth::ClientCredentials(ClientCredentialsSettings {
                client_id: id.to_owned(),
                proof: ClientProof::Secret(SecretText::new("hush")),
                issuer: "https://auth.example.com".parse().unwrap(),
                scopes: None,
                sends_resource: true,
            })
        };
        let accounts = [
            ServerAuth::default(),
            client("a"),
            client("b"),
            command("a", 1),
            command("b", 1),
            machine("a"),
            machine("b"),
        ];
        let digests = BTreeSet::from(accounts.map(digest_with));
        assert_eq!(digests.len(), 7);
        assert!(digests.contains(&digest_with(command("a", 5))));
    }

    fn settings(args: &[&str]) -> ServerSettings {
        let args = args.iter().map(|arg| (*arg).to_owned()).collect();
        ServerSettings::new(
            "a",
            ConnectTarget::Stdio {
                command: "no-such-server".to_owned(),
                args,
                env: Vec::new(),
                cwd: None,
            },
        )
    }

    fn upstream(settings: ServerSettings) -> Arc<Upstream> {
        Upstream::new(
            settings,
            Arc::new(UpstreamRuntime::new(
                Arc::new(Metrics::new()),
                Reaper::disabled(),
            )),
            Arc::new(NoSink),
        )
    }

    fn row(settings: &ServerSettings, saved: u64) -> Bytes {
        let row = serde_json::json!({
            "settings": settings_digest(settings), "saved": saved, "modern": false, "pipe": true,
            // Row of an earlier release: members that came later are absent.
            "face": {"info": {"name": "s"}, "instructions": "Ask.", "features": {"tools": true}},
            "lists": [{"items": [{"name": "t", "inputSchema": {"x": 1.0}}], "cache": null},
                {"items": [], "cache": null}, {"items": [], "cache": null},
                {"items": [], "cache": null}],
        });
        row.to_string().into()
    }

    #[tokio::test]
    async fn lists_come_back_for_the_same_settings_only() {
        let same = upstream(settings(&["a", "b"]));
        assert!(same.restore(&row(&settings(&["a", "b"]), unix_now()), DAY));
        assert_eq!(same.lists().get(ItemKind::Tools).items.len(), 1);
        assert_eq!(
            same.description().unwrap().instructions.as_deref(),
            Some("Ask.")
        );
        assert!(same.is_unconfirmed());
        assert_eq!(
            same.list_ttl(ItemKind::Tools),
            Some(0),
            "nobody may keep them"
        );
        assert_eq!(same.server.metrics().catalog.stale.get("a"), 1);
        for other in [
            // The parts of the settings are kept apart: "ab" is not "a", "b".
            settings(&["ab"]),
            settings(&["a", "c"]),
            ServerSettings {
                protocol: Some("x".into()),
                ..settings(&["a", "b"])
            },
        ] {
            assert!(!upstream(other).restore(&row(&settings(&["a", "b"]), unix_now()), DAY));
        }
    }

    #[tokio::test]
    async fn restored_lists_have_the_era_of_their_face() {
        let own = settings(&[]);
        let mut row: serde_json::Value = serde_json::from_slice(&row(&own, unix_now())).unwrap();
        let modern = serde_json::json!({"name": "t", "outputSchema": {"type": "array"}});
        let none = serde_json::json!({"shared": [], "own": [], "cache": null, "cut": []});
        let tools =
            serde_json::json!({"shared": [null], "own": [modern], "cache": null, "cut": []});
        row["other_lists"] = serde_json::json!([tools, none, none, none]);
        let restored = upstream(own);
        assert!(restored.restore(&row.to_string().into(), DAY));
        let lists = restored.era_lists();
        // Without it, the output of a tool that is called in the legacy era keeps its envelope.
        assert_eq!(lists.other().get(ItemKind::Tools).era, Some(Era::Modern));
        assert_eq!(lists.shared().get(ItemKind::Tools).era, Some(Era::Legacy));
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_is_started_on_use_is_not_started_to_learn_what_is_known() {
        let mut lazy = settings(&[]);
        lazy.options.start = ServerStart::Lazy;
        let known = upstream(lazy.clone());
        let unknown = upstream(lazy.clone());
        assert!(known.restore(&row(&lazy, unix_now()), DAY));
        let mut asleep = known.watch();
        let mut started = unknown.watch();
        let running = [
            tokio::spawn(known.clone().run()),
            tokio::spawn(unknown.clone().run()),
        ];
        // The command does not exist.
        started
            .wait_for(|status| status.state == UpstreamState::Failed)
            .await
            .unwrap();
        let status = asleep
            .wait_for(|status| status.state != UpstreamState::Starting)
            .await
            .unwrap()
            .clone();
        assert!(
            status.state == UpstreamState::Stopped && status.reason.contains("not started yet"),
            "{status:?}"
        );
        assert_eq!(known.lists().get(ItemKind::Tools).items.len(), 1);
        for (upstream, running) in [known, unknown].into_iter().zip(running) {
            upstream.stop().await;
            running.await.unwrap();
        }
    }

    #[tokio::test]
    async fn old_and_broken_rows_are_of_no_use() {
        let own = settings(&[]);
        assert!(!upstream(own.clone()).restore(&row(&own, unix_now() - DAY.as_secs()), DAY));
        assert!(!upstream(own).restore(&Bytes::from_static(b"{}"), DAY));
    }
}
