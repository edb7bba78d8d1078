//! Programs that write in other ways than MCP has, and what people are told of them.

use moongate_mock::{FaultAction, FaultRule};
use serde_json::json;

use crate::harness::{self, ERAS, Era, Setup, only, until};

/// Settings of a server that is a shell script.
fn shell(script: &str, more: &str) -> String {
    format!("command = \"sh\"\nargs = [\"-c\", {script:?}]\n{more}")
}

#[tokio::test]
async fn a_wrong_framing_and_a_wrong_encoding_are_named() {
    let lsp = r#"printf 'Content-Length: 2\r\n\r\n{}'; sleep 600"#;
    let utf16 = r#"printf '{\0"\0i\0d\0"\0:\0001\0}\0\n\0'; sleep 600"#;
    let gateway = Setup::new()
        .with("servers.lsp", &shell(lsp, "start_timeout = \"1s\""))
        .with("servers.utf16", &shell(utf16, "start_timeout = \"1s\""))
        .start()
        .await;
    for (server, word) in [("lsp", "Language Server Protocol"), ("utf16", "UTF-16")] {
        let status = gateway.state(server, "backing_off").await;
        assert!(status["reason"].as_str().unwrap().contains(word), "{status}");
    }
}

#[tokio::test]
async fn a_server_that_is_starting_says_what_it_waits_for() {
    let gateway = Setup::new().with("servers.slow", &shell("sleep 600", "")).start().await;
    let status = gateway.state("slow", "starting").await;
    assert!(!status["reason"].as_str().unwrap().is_empty(), "{status}");
}

#[tokio::test]
async fn ids_of_another_json_type_end_their_call() {
    for id in ["\"{id}\"", "{id}.0"] {
        let text = format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{"content":[{{"type":"text","text":"mine"}}]}}}}"#);
        let script =
            only(harness::legacy(), &["odd"]).with_fault(FaultRule::on("tools/call:odd", FaultAction::Body { text }));
        let web = harness::serve(script.clone()).await;
        let gateway = Setup::new().stdio("a", &script).http("b", &web.url).start().await;
        gateway.ready(&["a", "b"]).await;
        for era in ERAS {
            let client = gateway.client(era).await;
            for server in ["a", "b"] {
                assert_eq!(client.call(&format!("{server}__odd"), json!({})).await.text(), "mine", "{server} {id}");
            }
        }
    }
}

#[tokio::test]
async fn an_answer_that_is_none_fails_its_call_at_once() {
    let texts = [r#"{"id":{id},"result":{"content":[]}}"#, r#"{"jsonrpc":"2.0","id":{id}}"#];
    for text in texts {
        let act = FaultAction::Body { text: text.to_owned() };
        let script = only(harness::legacy(), &["odd"]).with_fault(FaultRule::on("tools/call:odd", act));
        let web = harness::serve(script.clone()).await;
        let gateway = Setup::new().stdio("a", &script).http("b", &web.url).start().await;
        gateway.ready(&["a", "b"]).await;
        let client = gateway.client(Era::Modern).await;
        for server in ["a", "b"] {
            let failure = client.call(&format!("{server}__odd"), json!({})).await.failure();
            assert!(failure.contains("the answer is"), "{server}: {failure}");
        }
    }
}

#[tokio::test]
async fn a_list_that_is_announced_all_the_time_is_fetched_ever_more_rarely() {
    let told = r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#;
    let act = FaultAction::Flood { text: told.to_owned(), count: 1 };
    let script = only(harness::legacy(), &["echo"]).with_fault(FaultRule::on("tools/list", act));
    let gateway = Setup::new().stdio("a", &script).start().await;
    gateway.ready(&["a"]).await;
    let lists = || gateway.record("a").lines().filter(|line| line.contains("\"tools/list\"")).count();
    // At ten a second, thirty would have come by now.
    tokio::time::sleep(std::time::Duration::from_secs(3)).await;
    assert!((2..=8).contains(&lists()), "{}", lists());
}

#[tokio::test]
async fn since_is_since_when_a_server_is_broken() {
    let gateway = Setup::new()
        .with("servers.a", &shell("exit 1", ""))
        .with("defaults", "backoff = { min = \"50ms\", max = \"100ms\" }")
        .start()
        .await;
    until("it was tried for two seconds", || async {
        let since = gateway.status("a").await["since_seconds"].as_u64();
        since.is_some_and(|seconds| seconds >= 2).then_some(())
    })
    .await;
}
