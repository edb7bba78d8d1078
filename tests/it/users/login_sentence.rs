//! A server that needs a login: every place that speaks of it says the same sentence.

use std::process::Stdio;

use moongate_mock::MockHandle;
use serde_json::json;
use tokio::process::Command;

use crate::harness::{Setup, legacy, serve, until};

const SENTENCE: &str = "linear needs a login: moongate login linear";

/// Server that asks for a token.
async fn locked_server() -> MockHandle {
    let mut script = legacy();
    script.http.bearer = Some("k".to_owned());
    serve(script).await
}

/// Runs a command and returns what it prints.
async fn run(args: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_moongate"))
        .args(args)
        .stdin(Stdio::null())
        .output();
    String::from_utf8(output.await.unwrap().stdout).unwrap()
}

#[tokio::test]
async fn the_status_and_the_page_name_the_command_that_logs_in() {
    let locked = locked_server().await;
    let gateway = Setup::new().http("linear", &locked.url).spawn().await;
    let status = until("it needs a login", || async {
        let status = gateway.status("linear").await;
        (status["state"] == "needs_login").then_some(status)
    })
    .await;
    assert_eq!(status["reason"], SENTENCE);
    assert_eq!(status["needs_login"], true);
    assert_eq!(
        status["hint"],
        json!({ "code": "MG-S02", "text": "run `moongate login linear`" })
    );
    let admin = gateway.admin_url().await;
    let shown = run(&["status", "--admin", admin.trim_start_matches("http://")]).await;
    assert!(shown.contains(SENTENCE), "{shown}");
    let page = gateway.admin("/").await.text_body();
    assert!(page.contains(SENTENCE), "{page}");
}

#[tokio::test]
async fn check_names_the_command_that_logs_in() {
    let locked = locked_server().await;
    let setup = Setup::new().http("linear", &locked.url);
    let config = setup.file();
    let shown = run(&["check", "--connect", "--config", config.to_str().unwrap()]).await;
    assert!(
        shown.contains(&format!("linear: needs_login; {SENTENCE}")),
        "{shown}"
    );
}
