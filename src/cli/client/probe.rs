//! Probe of an endpoint or server: `initialize` and `tools/list`, as a client does at its start.
//!
//! Owns the runtime that a probe gets, and the judgement of a failure. Does not connect
//! (`app/probe.rs`) or print. Invariant: the connection and the child that was started have ended.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use moongate_admin::ProbeAnswer;
use moongate_protocol::ConnectError;
use moongate_telemetry::{Metrics, logs};
use moongate_transport::LinkError;
use moongate_transport::credential_source::CredentialDirectory;
use moongate_transport::reaper::Reaper;
use moongate_upstream::{ConnectTarget, ServerSettings, UpstreamRuntime};

use super::target::{child_process, remote};
use crate::app::probe::{ProbeFailure, probe_server};

/// Time limit for the whole probe.
const PROBE_TIMEOUT: Duration = Duration::from_secs(20);

/// Outcome of a probe.
pub(in crate::cli) enum ProbeOutcome {
    /// Number of tools that the endpoint listed.
    Tools(usize),
    /// Nothing answers there.
    Unreachable(String),
    /// The key is refused.
    Refused,
    /// Something answers, and fails.
    Failed(String),
}

/// Probes a URL with a key.
pub(in crate::cli) async fn probe_url(url: &str, key: Option<&str>) -> ProbeOutcome {
    match remote(url, key) {
        Ok(settings) => probe(settings).await,
        Err(message) => ProbeOutcome::Failed(message),
    }
}

/// Probes a command with more variables.
pub(in crate::cli) async fn probe_command(
    command: &str,
    args: &[String],
    more: BTreeMap<String, String>,
) -> ProbeOutcome {
    let mut settings = child_process(command, args);
    if let ConnectTarget::Stdio { env, .. } = &mut settings.connect {
        env.extend(more);
    }
    probe(settings).await
}

async fn probe(settings: ServerSettings) -> ProbeOutcome {
    match probe_settings(&settings, PROBE_TIMEOUT).await {
        Ok(answer) => ProbeOutcome::Tools(answer.tools),
        Err(ProbeFailure::Connect(error)) => failure(error),
        Err(ProbeFailure::List(message)) => ProbeOutcome::Failed(message),
        Err(ProbeFailure::Late) => {
            ProbeOutcome::Failed(format!("no answer within {PROBE_TIMEOUT:?}"))
        }
    }
}

/// Probes a server with these settings, and no login.
pub(in crate::cli) async fn probe_settings(
    settings: &ServerSettings,
    limit: Duration,
) -> Result<ProbeAnswer, ProbeFailure> {
    probe_with(settings, limit, None).await
}

/// Probes a server with these settings and credentials.
pub(in crate::cli) async fn probe_with(
    settings: &ServerSettings,
    limit: Duration,
    credentials: Option<Arc<dyn CredentialDirectory>>,
) -> Result<ProbeAnswer, ProbeFailure> {
    // The outcome says it all.
    logs::start("off", false);
    // Only a child process needs the reaper, so a probe of a URL starts none.
    let program = std::env::current_exe().ok();
    let child = matches!(settings.connect, ConnectTarget::Stdio { .. });
    let reaper = program
        .filter(|_| child)
        .and_then(|program| Reaper::start(&program).ok());
    let shared = UpstreamRuntime::new(
        Arc::new(Metrics::new()),
        reaper.unwrap_or_else(Reaper::disabled),
    )
    .with_credentials(credentials);
    probe_server(settings, &shared, limit).await
}

fn failure(error: ConnectError) -> ProbeOutcome {
    match &error {
        ConnectError::Link(LinkError::Unreachable(_)) => {
            ProbeOutcome::Unreachable(error.to_string())
        }
        // A wrong key gets 401, one that may not gets 403. Another key is the way out of both.
        ConnectError::Link(LinkError::Status {
            status: 401 | 403, ..
        }) => ProbeOutcome::Refused,
        _ => ProbeOutcome::Failed(error.to_string()),
    }
}
