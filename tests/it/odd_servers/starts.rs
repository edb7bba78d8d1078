//! Starts of programs: what is told of slow ones and of those that fail, and when a server is
//! called ready.

use std::os::unix::fs::PermissionsExt as _;

use moongate_model::{ItemKind, UpstreamState};
use tokio::process::Command;

use crate::fronts::pipe::PROGRAM;
use crate::harness::{self, Process, Setup, holds, legacy, only, until};

#[tokio::test]
async fn a_download_is_told_as_one_and_is_no_alarm() {
    let setup = Setup::new();
    let npx = setup.path("npx");
    std::fs::write(&npx, "#!/bin/sh\nsleep 600\n").unwrap();
    std::fs::set_permissions(&npx, std::fs::Permissions::from_mode(0o755)).unwrap();
    let slow = "start_timeout = \"20s\"";
    let gateway = setup
        .with(
            "servers.fetched",
            &format!("command = {npx:?}\nargs = [\"-y\", \"some-mcp\"]\n{slow}"),
        )
        .with(
            "servers.installed",
            &format!("command = \"sh\"\nargs = [\"-c\", \"sleep 600\"]\n{slow}"),
        )
        .spawn()
        .await;
    let reason = async |server: &str| {
        gateway.status(server).await["reason"]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    };
    until("the download is told", async || {
        let reason = reason("fetched").await;
        (reason.contains("npx may still be downloading it") && reason.contains("has not answered"))
            .then_some(())
    })
    .await;
    // The other one hangs for as long, and nothing excuses it.
    holds("the alarm is logged", || {
        gateway.log().contains("not ready: it has not answered")
    })
    .await;
    let log = gateway.log();
    let alarms: Vec<&str> = log
        .lines()
        .filter(|line| line.contains("not ready"))
        .collect();
    assert!(
        alarms
            .iter()
            .all(|line| line.contains("installed") && !line.contains("download")),
        "{alarms:?}"
    );
    assert!(!reason("installed").await.contains("download"));
}

#[tokio::test]
async fn variables_that_a_failing_program_does_not_get_are_told_once_by_name() {
    let setup = Setup::new()
        .with(
            "servers.a",
            "command = \"sh\"\nargs = [\"-c\", \"exit 1\"]\nenv = { DOCKER_HOST = \"tcp://d\" }",
        )
        .with("defaults", "backoff = { min = \"50ms\", max = \"50ms\" }")
        .stdio("fine", &only(legacy(), &["echo"]));
    let mut command = Command::new(PROGRAM);
    command
        .args(["serve", "--config"])
        .arg(setup.file())
        .env("DOCKER_HOST", "tcp://s3cr3t-host");
    command
        .env("SSH_AUTH_SOCK", "/run/s3cr3t-socket")
        .env("SHOP_TOKEN", "s3cr3t-token");
    let gateway = Process::run(command, tempfile::tempdir().unwrap(), None).await;
    until("it was started several times", async || {
        let text = gateway.admin("/metrics").await.text_body();
        let line = text
            .lines()
            .find(|line| line.starts_with("moongate_server_restarts_total{mcp_server=\"a\"}"))?;
        line.rsplit(' ')
            .next()?
            .parse::<f64>()
            .ok()
            .filter(|count| *count > 4.0)
    })
    .await;
    until("the other one is ready", async || {
        (gateway.status("fine").await["state"] == "ready").then_some(())
    })
    .await;
    let log = gateway.log();
    let told: Vec<&str> = log
        .lines()
        .filter(|line| line.contains("variables not passed"))
        .collect();
    assert!(
        matches!(told[..], [line] if line.contains("SSH_AUTH_SOCK") && line.contains("SHOP_TOKEN")),
        "{told:?}"
    );
    // What `env` sets is passed, whatever the gateway's own value is.
    assert!(
        !told[0].contains("DOCKER_HOST") && !log.contains("s3cr3t"),
        "{log}"
    );
}

#[tokio::test]
async fn a_server_is_ready_only_after_its_tools_are_in_the_catalogue() {
    let gateway = Setup::new()
        .stdio("a", &only(legacy(), &["echo"]))
        .start()
        .await;
    let server = gateway.app.gateway.servers().into_iter().next().unwrap();
    let mut status = server.watch();
    harness::within(
        "it is ready",
        status.wait_for(|status| status.state == UpstreamState::Ready),
    )
    .await
    .unwrap();
    assert_eq!(
        gateway.app.gateway.snapshot().iter(ItemKind::Tools).count(),
        1
    );
}
