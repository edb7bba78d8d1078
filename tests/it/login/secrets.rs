//! Canaries: no token, code, verifier or client secret is anywhere that people or other programs
//! read.

use std::path::Path;
use std::time::Duration;

use super::browser::browse;
use super::issuer::{ClientMethod, IssuerStep, RefreshRule};
use super::world::{World, call, ready};
use crate::harness::{Process, until};

/// Pages of the operator's listener.
const PAGES: [&str; 9] = [
    "/",
    "/servers/linear",
    "/servers/linear?tab=settings",
    "/metrics",
    "/api/v1/status",
    "/api/v1/servers",
    "/api/v1/config",
    "/api/v1/calls",
    "/api/v1/doctor",
];

/// Texts that others read, each with a name.
#[derive(Default)]
struct Sinks(Vec<(String, String)>);

impl Sinks {
    fn add(&mut self, name: &str, text: impl Into<String>) {
        self.0.push((name.to_owned(), text.into()));
    }

    /// Adds the arguments of all processes that can be seen.
    fn add_arguments(&mut self) {
        for entry in std::fs::read_dir("/proc").into_iter().flatten() {
            let file = entry.unwrap().path().join("cmdline");
            if let Ok(line) = std::fs::read(&file) {
                let name = file.display().to_string();
                self.add(&name, String::from_utf8_lossy(&line));
            }
        }
    }

    /// Adds the files below a folder.
    fn add_files(&mut self, folder: &Path) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                self.add_files(&path);
            } else if let Ok(bytes) = std::fs::read(&path) {
                let name = path.display().to_string();
                self.add(&name, String::from_utf8_lossy(&bytes));
            }
        }
    }

    async fn add_gateway(&mut self, gateway: &Process) {
        for page in PAGES {
            let reply = gateway.admin(page).await;
            self.add(page, String::from_utf8_lossy(&reply.body));
        }
        self.add("log", gateway.log());
    }

    fn assert_none_has(&self, secrets: &[String]) {
        for secret in secrets {
            let leaks = self.0.iter().filter(|(_, text)| text.contains(secret));
            let names: Vec<&str> = leaks.map(|(name, _)| name.as_str()).collect();
            assert!(names.is_empty(), "{secret} is in {names:?}");
        }
    }
}

#[tokio::test]
async fn no_secret_of_a_login_is_anywhere() {
    let world = World::start().await;
    let secret = world.issuer.add_client("by-hand", &world.redirect());
    let mut world = world.with(&format!(
        "auth = {{ client_id = \"by-hand\", client_secret = \"{secret}\" }}"
    ));
    world.setup = world
        .setup
        .with("telemetry", "log = \"trace\"\ncalls = \"all\"");
    world.setup.file();
    world.issuer.change(|rules| {
        rules.method = ClientMethod::Basic;
        rules.life = Duration::from_secs(2);
    });
    let mut sinks = Sinks::default();
    let gateway = world.gateway().await;
    let (command, address) = world.begin().await;
    sinks.add_arguments();
    let page = browse(&address).await;
    sinks.add("callback page", page.reply.text_body());
    sinks.add_arguments();
    let end = command.ended().await;
    assert_eq!(end.code, Some(0), "{}", end.printed);
    sinks.add("login", end.printed);
    let client = ready(&gateway).await;
    sinks.add("call", call(&client).await.text_body());
    sinks.add_gateway(&gateway).await;
    // A renewal that works, then one that fails, then one that ends the login.
    for rule in [
        RefreshRule::Renew,
        RefreshRule::Down,
        RefreshRule::Refuse("invalid_grant"),
    ] {
        world.issuer.change(|rules| rules.refresh = rule);
        let before = world.issuer.count(IssuerStep::Refresh);
        until("it was tried to renew", async || {
            call(&client).await;
            (world.issuer.count(IssuerStep::Refresh) > before).then_some(())
        })
        .await;
        sinks.add("call", call(&client).await.text_body());
        sinks.add_gateway(&gateway).await;
    }
    sinks.add_files(&world.setup.path("state"));
    let end = world.command(&["logout", "linear"]).ended().await;
    sinks.add("logout", end.printed);
    for args in [&["status"][..], &["doctor"], &["check", "--print"]] {
        let end = world.command(args).ended().await;
        sinks.add(args[0], end.printed);
    }
    sinks.add_gateway(&gateway).await;
    let secrets = world.issuer.secrets();
    // The client's secret, a code, a verifier, and two pairs of tokens at least.
    assert!(secrets.len() >= 7, "{}", secrets.len());
    sinks.assert_none_has(&secrets);
}
