//! Logins of bridges: `moongate login --url` for `moongate stdio --url`.

use serde_json::json;

use super::browser::browse;
use super::command::{RunningCommand, home_of};
use super::world::World;
use crate::fronts::pipe::StdioProcess;
use crate::harness::holds;

/// Everything listens on loopback here.
const ALLOWED: (&str, &str) = ("MOONGATE_EGRESS__ALLOW", r#"["127.0.0.1", "localhost"]"#);

#[tokio::test]
async fn a_running_bridge_uses_the_login_of_its_url() {
    let world = World::start().await;
    let url = world.server.url.as_str();
    let state = home_of(&world.setup).join(".local/state");
    let state = state.to_str().unwrap();
    let variables = [ALLOWED, ("XDG_STATE_HOME", state)];
    let mut pipe = StdioProcess::launch(&["--url", url, "--wait", "1s"], &variables);
    pipe.initialize("2025-11-25", json!({})).await;
    let advice = || pipe.log().contains("moongate login --url");
    holds("it says what to do", advice).await;

    let args = ["login", "--url", url, "--no-browser"];
    let command = RunningCommand::start_bare(&world.setup, &args, &[ALLOWED]);
    let address = command.address(&world.issuer).await;
    let page = browse(&address).await;
    assert_eq!(page.reply.status, 200, "{}: {:?}", page.url, page.reply);
    let end = command.ended().await;
    assert_eq!(end.code, Some(0), "{}", end.printed);
    assert!(end.printed.contains("ready, 2 tools"), "{}", end.printed);

    let mut id = 1;
    loop {
        id += 1;
        let call = json!({"name": "echo", "arguments": {}});
        pipe.ask(id, "tools/call", call).await;
        if pipe.answer(id).await["result"]["content"][0]["text"] == "{}" {
            break;
        }
        assert!(id < 200, "{}", pipe.log());
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    let token = world.last_token();
    assert!(!token.is_empty() && !pipe.log().contains(&token));
}

#[tokio::test]
async fn a_login_for_a_url_takes_neither_names_nor_a_config() {
    let world = World::start().await;
    let url = world.server.url.as_str();
    let config = world.setup.file();
    let config = config.to_str().unwrap();
    for more in [&["linear"][..], &["--config", config]] {
        let args = [&["login", "--url", url][..], more].concat();
        let end = RunningCommand::start_bare(&world.setup, &args, &[]);
        let end = end.ended().await;
        assert_eq!(end.code, Some(2), "{more:?}: {}", end.printed);
    }
}
