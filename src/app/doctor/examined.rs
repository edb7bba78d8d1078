//! Facts that the checks of `moongate doctor` read.
//!
//! Owns their form, those about this machine, and the status of servers that this process runs.
//! Does not ask a running gateway (`cli/doctor/gather.rs`) or judge. Invariant: nothing is changed.

use std::path::Path;

use moongate_api::{
    ConfigDifference, ConfigFile, ServerCondition, ServerCounters, ServerFindings, ServerIdentity,
    ServerStatus,
};
use moongate_clients::import::SelfAddresses;
use moongate_config::{ConfigProblems, GatewayAddresses, LoadOptions, LoadedConfig};
use moongate_gateway::{FindingTopic, Gateway, RunningServer, Snapshot};
use moongate_model::ItemKind;
use moongate_oauth::LoginProblem;
use moongate_telemetry::logs;
use moongate_upstream::{ConnectTarget, ServerSettings};

use super::finding::DoctorFinding;
use crate::app::configured_servers::self_addresses;

/// Gateway with its config and its machine, as they were found.
pub(crate) struct ExaminedGateway {
    pub(crate) options: LoadOptions<'static>,
    pub(crate) loaded: Result<LoadedConfig, ConfigProblems>,
    pub(crate) addresses: Option<GatewayAddresses>,
    pub(crate) own: SelfAddresses,
    pub(crate) answer: RunningGateway,
    /// Changes that a reload of the running gateway would make.
    pub(crate) changes: ConfigDifference,
    pub(crate) states: Vec<ServerStatus>,
    /// Rules of views and keys that match nothing.
    pub(crate) unmatched_filters: Vec<String>,
    /// Files that the running gateway has its config from. `None` if it has not said.
    pub(crate) running_files: Option<Vec<ConfigFile>>,
    /// Findings of the running gateway about itself. `None` if it has not said.
    pub(crate) of_gateway: Option<Vec<DoctorFinding>>,
    /// Problems of logins that this process has. Those of a running gateway are among its findings.
    pub(crate) login_problems: Vec<LoginTrouble>,
    /// Problems of the company's login that this process has. Those of a running gateway are among
    /// its findings.
    pub(crate) people_findings: Vec<String>,
    /// True in a container.
    pub(crate) is_container: bool,
}

/// Problem of a login, with its server.
pub(crate) struct LoginTrouble {
    /// Server. `None`: it concerns all.
    pub(crate) server: Option<String>,
    pub(crate) problem: LoginProblem,
}

/// Answer of the admin listener.
pub(crate) enum RunningGateway {
    /// A gateway runs, and shows its status.
    Running,
    /// Something answers, and shows nothing.
    Refused(String),
    /// Nobody answers, for this reason.
    None(String),
}

impl ExaminedGateway {
    /// Gathers the facts about a config, and about this machine. `answer` is that of a running
    /// gateway.
    pub(crate) fn new(
        options: LoadOptions<'static>,
        loaded: Result<LoadedConfig, ConfigProblems>,
        answer: RunningGateway,
        changes: ConfigDifference,
        states: Vec<ServerStatus>,
    ) -> Self {
        let files = ["/.dockerenv", "/run/.containerenv"];
        // Podman and systemd-nspawn set the variable.
        let is_container = options.env.contains_key("container")
            || files.iter().any(|path| Path::new(path).exists());
        ExaminedGateway {
            addresses: moongate_config::gateway_addresses(&options).ok(),
            own: self_addresses(&options),
            options,
            loaded,
            answer,
            changes,
            states,
            unmatched_filters: Vec::new(),
            running_files: None,
            of_gateway: None,
            login_problems: Vec::new(),
            people_findings: Vec::new(),
            is_container,
        }
    }

    /// Returns true if a gateway of this config runs.
    pub(super) fn is_running(&self) -> bool {
        matches!(self.answer, RunningGateway::Running)
    }

    /// Returns the enabled servers.
    pub(crate) fn servers(&self) -> impl Iterator<Item = &ServerSettings> {
        self.loaded.iter().flat_map(|loaded| &loaded.plan.servers)
    }

    /// Returns the state of a server, if it is known.
    pub(super) fn state(&self, name: &str) -> Option<&ServerStatus> {
        self.states.iter().find(|server| server.name() == name)
    }

    /// Returns the names of all servers, also of those that are off.
    pub(crate) fn server_names(&self) -> Vec<&str> {
        let plan = self.loaded.iter().map(|loaded| &loaded.plan);
        let disabled =
            plan.flat_map(|plan| plan.disabled.iter().map(|server| server.name.as_str()));
        let running = self.states.iter().map(ServerStatus::name);
        let mut names: Vec<&str> = self
            .servers()
            .map(|server| server.name.as_str())
            .chain(disabled)
            .chain(running)
            .collect();
        names.sort_unstable();
        names.dedup();
        names
    }

    /// Returns the servers that are programs, each with its command and arguments.
    pub(crate) fn programs(&self) -> impl Iterator<Item = (&str, &str, &[String])> {
        self.servers().filter_map(|server| match &server.connect {
            ConnectTarget::Stdio { command, args, .. } => {
                Some((server.name.as_str(), command.as_str(), args.as_slice()))
            }
            _ => None,
        })
    }
}

/// Returns the status of a gateway's servers, as far as it is judged.
pub(crate) fn statuses_of(gateway: &Gateway) -> Vec<ServerStatus> {
    let snapshot = gateway.snapshot();
    gateway
        .servers()
        .iter()
        .map(|server| status_of(&snapshot, server))
        .collect()
}

fn status_of(snapshot: &Snapshot, server: &RunningServer) -> ServerStatus {
    let name = &server.settings.name;
    let status = server.status();
    let left_out = snapshot
        .excluded
        .iter()
        .filter(|left_out| left_out.server == *name);
    let tools = snapshot
        .iter(ItemKind::Tools)
        .filter(|tool| tool.upstream.settings.name == *name && !tool.hidden);
    let sizes: Vec<usize> = tools.map(|tool| tool.form.listed.bytes().len()).collect();
    ServerStatus {
        identity: ServerIdentity {
            name: name.clone(),
            transport: Some(server.transport().to_owned()),
            ..ServerIdentity::default()
        },
        condition: ServerCondition {
            state: status.state,
            reason: logs::redact(&status.reason),
            needs_login: status.needs_login,
            stderr: server
                .stderr()
                .iter()
                .map(|line| logs::redact(line))
                .collect(),
            ..ServerCondition::default()
        },
        counters: ServerCounters {
            tokens: moongate_gateway::estimate_tokens(sizes.iter().sum()),
            tools_on: sizes.len() as u64,
            ..ServerCounters::default()
        },
        findings: ServerFindings {
            left_out: left_out
                .map(|left_out| format!("{}: {}", left_out.item, left_out.reason))
                .collect(),
            names: findings_about(snapshot, name, FindingTopic::Name),
            mended: findings_about(snapshot, name, FindingTopic::Mended),
            unmatched_filters: findings_about(snapshot, name, FindingTopic::Filter),
            ..ServerFindings::default()
        },
        ..ServerStatus::default()
    }
}

fn findings_about(snapshot: &Snapshot, server: &str, topic: FindingTopic) -> Vec<String> {
    let found = snapshot.findings_about(Some(server), topic);
    found.into_iter().map(str::to_owned).collect()
}
