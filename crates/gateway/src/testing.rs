//! Catalogues and gateways for tests, with servers that list items without a connection.
//!
//! Owns no state. Does not test anything itself. Invariant: none of its servers is ever connected.

use std::sync::Arc;
use std::time::Duration;

use crate::catalog::Snapshot;
use crate::names::NameRules;
use crate::running_server::RunningServer;
use crate::{DisabledServer, Gateway, GatewaySettings, SchemaStyle, ViewRules};
use moongate_access::auth::{AuthMethods, AuthSettings, KeySettings};
use moongate_jsonrpc::json::JsonObject;
use moongate_model::ItemKind;
use moongate_telemetry::{CallLog, MeterFactory, Metrics};
use moongate_transport::reaper::Reaper;
use moongate_upstream::{
    ConnectTarget, ItemList, NoSink, ServerLists, ServerSettings, Upstream, UpstreamRuntime,
};

/// Creates a server that lists these items of a kind.
pub(crate) fn running_server(
    name: &str,
    kind: ItemKind,
    items: impl Iterator<Item = JsonObject>,
) -> Arc<RunningServer> {
    let connect = ConnectTarget::Stdio {
        command: "none".to_owned(),
        args: Vec::new(),
        env: Vec::new(),
        cwd: None,
    };
    let shared = Arc::new(UpstreamRuntime::new(
        Arc::new(Metrics::new()),
        Reaper::disabled(),
    ));
    let upstream = Upstream::new(ServerSettings::new(name, connect), shared, Arc::new(NoSink));
    let mut lists = ServerLists::default();
    lists.set(
        kind,
        ItemList {
            items: items.map(Arc::new).collect(),
            ..ItemList::default()
        },
    );
    upstream.serve_lists(lists);
    Arc::new(RunningServer {
        settings: upstream.settings.clone(),
        upstream,
    })
}

/// Creates a gateway with the server `a` and without keys.
pub(crate) fn gateway() -> Arc<Gateway> {
    let connect = ConnectTarget::Stdio {
        command: "none".to_owned(),
        args: Vec::new(),
        env: Vec::new(),
        cwd: None,
    };
    gateway_of(
        vec![ServerSettings::new("a", connect)],
        Vec::new(),
        Vec::new(),
    )
    .0
}

/// Creates a gateway with these servers, views and keys. The server `off`, with the prefix `away`,
/// is disabled.
pub(crate) fn gateway_of(
    servers: Vec<ServerSettings>,
    views: Vec<ViewRules>,
    keys: Vec<KeySettings>,
) -> (Arc<Gateway>, Arc<AuthMethods>) {
    let (auth, access) = AuthMethods::new(&AuthSettings {
        keys,
        ..AuthSettings::default()
    });
    let off = DisabledServer {
        name: "off".to_owned(),
        title: None,
        icon: None,
        prefix: "away".to_owned(),
        target: None,
    };
    let settings = GatewaySettings {
        names: NameRules {
            separator: "__".to_owned(),
            max_length: 64,
        },
        servers,
        disabled: vec![off],
        views,
        access,
        drain: Duration::ZERO,
        call_log: CallLog::default(),
        recent_calls: 0,
        uri_max: 8192,
        schema: SchemaStyle::AsIs,
        search: None,
    };
    let shared = Arc::new(UpstreamRuntime::new(
        Arc::new(Metrics::new()),
        Reaper::disabled(),
    ));
    (
        Gateway::new(settings, auth.principals().clone(), shared),
        auth,
    )
}

/// Builds the catalogue of these servers.
pub(crate) fn snapshot(members: &[Arc<RunningServer>], rules: &NameRules) -> Snapshot {
    Snapshot::build(members, rules, &MeterFactory::new(Arc::new(Metrics::new())))
}
