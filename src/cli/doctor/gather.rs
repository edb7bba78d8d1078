//! Facts for `moongate doctor`.
//!
//! Owns where they come from: the running gateway, or servers that are connected once. Does not
//! judge (`app/doctor/`). Invariant: a running gateway is not changed, and what was started here
//! has ended.

use std::time::Duration;

use moongate_api::{ConfigView, FindingList, GatewayStatus, PlanReport, ServerStatus};
use moongate_config::LoadedConfig;
use moongate_oauth::{LoginProblem, LoginProblemKind};
use serde::de::DeserializeOwned;

use crate::app::doctor::{
    DoctorFinding, ExaminedGateway, LoginTrouble, RunningGateway, statuses_of,
};
use crate::app::logins::logins_of;
use crate::cli::admin_client::GatewayArgs;
use crate::cli::check_servers::start_without_listeners;

/// Time limit of each answer of a running gateway.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// Time that servers have to connect once.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(15);

/// Gathers the facts. Without a running gateway, each server is connected once.
pub(super) async fn gather(args: &GatewayArgs) -> anyhow::Result<ExaminedGateway> {
    let options = args.load_options();
    let loaded = moongate_config::load(&options);
    let (answer, status) = ask::<GatewayStatus>(args, "/api/v1/status").await;
    let (_, plan) = ask::<PlanReport>(args, "/api/v1/plan").await;
    let (_, doctor) = ask::<FindingList>(args, "/api/v1/doctor").await;
    let (_, config) = ask::<ConfigView>(args, "/api/v1/config").await;
    // An older gateway may not say, and one without a config has an empty list.
    let running_files = config.map(|config| config.state.files);
    let of_gateway = doctor.map(|found| {
        found
            .findings
            .into_iter()
            .filter_map(DoctorFinding::of_row)
            .collect()
    });
    let status = status.unwrap_or_default();
    let connected = match (&answer, &loaded) {
        (RunningGateway::Running, _) => ConnectedServers {
            states: status.servers,
            ..ConnectedServers::default()
        },
        (RunningGateway::None(_), Ok(loaded)) => connect_once(loaded).await?,
        // Not started a second time: two copies of a program may fight over a port or a file.
        (RunningGateway::Refused(_), _) | (_, Err(_)) => ConnectedServers::default(),
    };
    let changes = match plan {
        Some(PlanReport::Fine { changes, .. }) => changes,
        Some(PlanReport::Refused { .. }) | None => Default::default(),
    };
    Ok(ExaminedGateway {
        unmatched_filters: status.unmatched_filters,
        of_gateway,
        running_files,
        login_problems: connected.login_problems,
        ..ExaminedGateway::new(options, loaded, answer, changes, connected.states)
    })
}

/// Asks a running gateway. Returns what answers there, and its answer.
async fn ask<T: DeserializeOwned>(args: &GatewayArgs, path: &str) -> (RunningGateway, Option<T>) {
    let client = match args.client() {
        Ok(client) => client,
        Err(error) => return (RunningGateway::None(format!("{error:#}")), None),
    };
    let response = match client.send_request("GET", path, ANSWER_TIMEOUT).await {
        Ok(response) => response,
        Err(error) => return (RunningGateway::None(format!("{error:#}")), None),
    };
    if response.is_refusal() {
        return (RunningGateway::Refused(response.error().message), None);
    }
    match (response.status, response.read::<T>()) {
        (200, Ok(body)) => (RunningGateway::Running, Some(body)),
        (_, Ok(_)) | (_, Err(_)) => (
            RunningGateway::None("another program answers there".to_owned()),
            None,
        ),
    }
}

/// Servers after an attempt to connect.
#[derive(Default)]
struct ConnectedServers {
    states: Vec<ServerStatus>,
    login_problems: Vec<LoginTrouble>,
}

/// Connects each server once, and returns how they are.
async fn connect_once(loaded: &LoadedConfig) -> anyhow::Result<ConnectedServers> {
    let app = match start_without_listeners(loaded.plan.clone()).await {
        Ok(app) => app,
        Err(error) => return without_logins(loaded, error),
    };
    // A server that hangs shows it by its state.
    let _ = tokio::time::timeout(CONNECT_TIMEOUT, app.gateway.until_settled()).await;
    // Before the stop, which changes the state of every server.
    let states = statuses_of(&app.gateway);
    let reloader = app.reloader.clone();
    let reading = tokio::task::spawn_blocking(move || reloader.login_problems());
    let login_problems = reading.await.unwrap_or_default();
    app.stop().await;
    Ok(ConnectedServers {
        states,
        login_problems,
    })
}

/// Finds out whether a gateway does not start because of its logins. All else stays an error.
fn without_logins(loaded: &LoadedConfig, error: anyhow::Error) -> anyhow::Result<ConnectedServers> {
    let Err(unusable) = logins_of(&loaded.plan) else {
        return Err(error);
    };
    let problem = LoginProblem {
        kind: LoginProblemKind::Folder,
        cause: format!("{unusable:#}"),
    };
    Ok(ConnectedServers {
        login_problems: vec![LoginTrouble {
            server: None,
            problem,
        }],
        ..ConnectedServers::default()
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    /// Asks a listener that gives every request this answer.
    async fn ask_for(status: &'static str, body: &'static str) -> RunningGateway {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let answering = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut request = [0; 1024];
            let _ = stream.read(&mut request).await.unwrap();
            let answer = format!("HTTP/1.0 {status}\r\n\r\n{body}");
            stream.write_all(answer.as_bytes()).await.unwrap();
        });
        let args = GatewayArgs::of(Some(address), Vec::new());
        let (answer, _) = ask::<GatewayStatus>(&args, "/api/v1/status").await;
        answering.await.unwrap();
        answer
    }

    #[tokio::test]
    async fn a_gateway_that_refuses_is_running() {
        let body = r#"{"error":"refused","message":"too many wrong keys"}"#;
        for status in ["401 Unauthorized", "403 Forbidden", "429 Too Many Requests"] {
            let answer = ask_for(status, body).await;
            assert!(
                matches!(&answer, RunningGateway::Refused(why) if why == "too many wrong keys"),
                "{status}"
            );
        }
        let other = ask_for("404 Not Found", "nothing").await;
        assert!(matches!(other, RunningGateway::None(_)));
    }
}
