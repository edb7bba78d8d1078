//! Facts that the checks of `moongate doctor` read.
//!
//! Owns how they are gathered: from the files, the running gateway, or servers that are connected once. Does not judge.
//! Invariant: a running gateway is not changed, and what was started here has ended.

use std::path::Path;
use std::time::Duration;

use moongate_clients::import::OwnGateway;
use moongate_config::{ConfigProblems, GatewayAddresses, LoadOptions, LoadedConfig};
use moongate_gateway::Gateway;
use moongate_model::ItemKind;
use moongate_telemetry::logs;
use moongate_upstream::{ConnectTarget, ServerSettings};
use serde::Deserialize;
use serde_json::Value;

use crate::app::configured_servers::own_gateway;
use crate::cli::admin::GatewayArgs;
use crate::cli::check_servers::start_without_listeners;

/// Time limit of each answer of a running gateway.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// Time that servers have to connect once.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(15);

/// Gateway with its config and its machine, as they were found.
pub(super) struct ExaminedGateway {
    pub(super) options: LoadOptions<'static>,
    pub(super) loaded: Result<LoadedConfig, ConfigProblems>,
    pub(super) addresses: Option<GatewayAddresses>,
    pub(super) own: OwnGateway,
    pub(super) answer: RunningGateway,
    /// Status of the running gateway.
    pub(super) running: Option<Value>,
    /// Changes that a reload of the running gateway would make.
    pub(super) changes: Value,
    pub(super) states: Vec<ServerFacts>,
    /// True in a container.
    pub(super) is_container: bool,
}

/// Answer of the admin listener.
pub(super) enum RunningGateway {
    Status(Value),
    /// Something answers, and shows nothing.
    Refused(String),
    /// Nobody answers, for this reason.
    None(String),
}

/// State of one server.
#[derive(Clone, Debug, Default, Deserialize)]
pub(super) struct ServerFacts {
    pub(super) name: String,
    pub(super) state: String,
    #[serde(default)]
    pub(super) reason: String,
    #[serde(default)]
    pub(super) stderr: Vec<String>,
    #[serde(default)]
    pub(super) left_out: Vec<String>,
    #[serde(default)]
    pub(super) tokens: u64,
}

impl ExaminedGateway {
    /// Gathers the facts. Without a running gateway, each server is connected once.
    pub(super) async fn gather(args: &GatewayArgs) -> anyhow::Result<Self> {
        let options = args.load_options();
        let loaded = moongate_config::load(&options);
        let answer = ask(args, "/api/v1/status").await;
        let changes = match ask(args, "/api/v1/plan").await {
            RunningGateway::Status(plan) => plan["changes"].clone(),
            RunningGateway::Refused(_) | RunningGateway::None(_) => Value::Null,
        };
        let running = match &answer {
            RunningGateway::Status(status) => Some(status.clone()),
            RunningGateway::Refused(_) | RunningGateway::None(_) => None,
        };
        let states = match (&running, &loaded) {
            // Not started a second time: two copies of a program may fight over a port or a file.
            (Some(status), _) => serde_json::from_value(status["servers"].clone()).unwrap_or_default(),
            (None, Ok(loaded)) => connect_once(loaded).await?,
            (None, Err(_)) => Vec::new(),
        };
        let files = ["/.dockerenv", "/run/.containerenv"];
        // Podman and systemd-nspawn set the variable.
        let is_container = options.env.contains_key("container") || files.iter().any(|path| Path::new(path).exists());
        Ok(ExaminedGateway {
            addresses: moongate_config::gateway_addresses(&options).ok(),
            own: own_gateway(&options),
            options,
            loaded,
            answer,
            running,
            changes,
            states,
            is_container,
        })
    }

    /// Returns the enabled servers.
    pub(super) fn servers(&self) -> impl Iterator<Item = &ServerSettings> {
        self.loaded.iter().flat_map(|loaded| &loaded.plan.servers)
    }

    /// Returns true if a server is known to work.
    pub(super) fn is_ready(&self, name: &str) -> bool {
        self.states.iter().any(|server| server.name == name && server.state == "ready")
    }

    /// Returns the servers that are programs, each with its command and arguments.
    pub(super) fn programs(&self) -> impl Iterator<Item = (&str, &str, &[String])> {
        self.servers().filter_map(|server| match &server.connect {
            ConnectTarget::Stdio { command, args, .. } => {
                Some((server.name.as_str(), command.as_str(), args.as_slice()))
            }
            _ => None,
        })
    }
}

async fn ask(args: &GatewayArgs, path: &str) -> RunningGateway {
    let client = match args.client() {
        Ok(client) => client,
        Err(error) => return RunningGateway::None(format!("{error:#}")),
    };
    let response = match client.send_request("GET", path, ANSWER_TIMEOUT).await {
        Ok(response) => response,
        Err(error) => return RunningGateway::None(format!("{error:#}")),
    };
    match (response.status, response.json()) {
        (200, Ok(body)) => RunningGateway::Status(body),
        (401 | 403, Ok(body)) => RunningGateway::Refused(body["message"].as_str().unwrap_or_default().to_owned()),
        (_, Ok(_)) | (_, Err(_)) => RunningGateway::None("what answers there is no Moongate".to_owned()),
    }
}

/// Connects each server once, and returns how they are.
async fn connect_once(loaded: &LoadedConfig) -> anyhow::Result<Vec<ServerFacts>> {
    let app = start_without_listeners(loaded.plan.clone()).await?;
    // A server that hangs is told by its state.
    let _ = tokio::time::timeout(CONNECT_TIMEOUT, app.gateway.until_settled()).await;
    // Before the stop, which changes the state of every server.
    let facts = facts_of(&app.gateway);
    app.stop().await;
    Ok(facts)
}

fn facts_of(gateway: &Gateway) -> Vec<ServerFacts> {
    let snapshot = gateway.snapshot();
    let describe = |server: &std::sync::Arc<moongate_gateway::ServerEntry>| {
        let (name, status) = (&server.settings.name, server.status());
        let left_out = snapshot.excluded.iter().filter(|left_out| left_out.server == *name);
        let tools = snapshot.iter(ItemKind::Tools).filter(|tool| tool.upstream.settings.name == *name && !tool.hidden);
        let bytes: usize = tools.map(|tool| tool.listed.bytes().len()).sum();
        ServerFacts {
            name: name.clone(),
            state: status.state.name().to_owned(),
            reason: logs::redact(&status.reason),
            stderr: server.stderr().iter().map(|line| logs::redact(line)).collect(),
            left_out: left_out.map(|left_out| format!("{}: {}", left_out.item, left_out.reason)).collect(),
            // 4.25 bytes a token, as in the metrics.
            tokens: (bytes * 4 / 17) as u64,
        }
    };
    gateway.servers().iter().map(describe).collect()
}
