//! Changes of the config through the admin API: what they write, what they refuse, and who may make
//! them.

mod refusals;

use serde_json::{Value, json};

use crate::harness::{
    EditedGateway, Era, EventStream, HttpClient, McpClient, Setup, legacy, only, serve, until,
};

/// Checks the answer to the change that switches off `fail` of `a`.
fn assert_switched_off(answer: &Value) {
    assert!(
        answer["diff"]
            .as_str()
            .unwrap()
            .contains("+ tools = { deny = [\"fail\"] }"),
        "{answer}"
    );
    assert_eq!(answer["outcome"], "changed");
    assert_eq!(answer["undo"], true);
    assert_eq!(answer["reload"]["outcome"], "applied");
    assert_eq!(answer["summary"], "switched off fail of a");
}

/// Checks the rules of the tools of `a`: this line of the file denies `fail`.
async fn assert_rules_are_shown(edited: &EditedGateway, line: usize) {
    let items = edited.get("/servers/a/items").await;
    let rule = |name: &str| {
        items["tools"]
            .as_array()
            .unwrap()
            .iter()
            .find(|tool| tool["name"] == name)
            .unwrap()["rule"]
            .clone()
    };
    assert_eq!(rule("fail")["pattern"], "fail");
    assert_eq!(rule("fail")["exact"], true);
    assert_eq!(rule("fail")["list"], "deny");
    assert_eq!(rule("fail")["line"], line);
    assert_eq!(rule("echo"), Value::Null);
}

/// Sends a change with a tag of the past, which is refused with the new state.
async fn assert_old_tag_is_refused(edited: &EditedGateway, tagged: &str, etag: &Value) {
    let reply = edited
        .send(
            "PATCH",
            "/servers/a",
            &[("if-match", tagged)],
            &json!({ "enabled": false }),
        )
        .await;
    assert_eq!(reply.status, 412);
    assert_eq!(reply.json()["error"], "changed");
    assert_eq!(reply.json()["etag"], *etag);
    assert_eq!(reply.json()["servers"][0]["tools_on"], 1);
}

#[tokio::test]
async fn a_tool_is_switched_off_and_the_undo_restores_the_bytes() {
    let server = serve(only(legacy(), &["echo", "fail"])).await;
    let edited = EditedGateway::start(Setup::new().http("a", &server.url)).await;
    edited.ready("a").await;
    let before = edited.text();
    let source = edited.get("/servers/a").await["source"].clone();
    assert_eq!(source["editable"], true);
    assert_eq!(source["why_not"], Value::Null);
    let etag = source["etag"].as_str().unwrap().to_owned();
    let tagged = format!("\"{etag}\"");
    let body = json!({ "tools": { "off": ["fail"] } });
    let reply = edited
        .send("PATCH", "/servers/a", &[("if-match", &tagged)], &body)
        .await;
    assert_eq!(reply.status, 200, "{}", reply.text_body());
    let answer = reply.json();
    assert_switched_off(&answer);
    let line = answer["line"].as_u64().unwrap() as usize;
    assert!(
        edited
            .text()
            .lines()
            .nth(line - 1)
            .unwrap()
            .contains("fail")
    );
    let client = McpClient::open(&edited.gateway.mcp(), Era::Modern).await;
    assert_eq!(client.tools().await, ["a__echo"]);
    assert_rules_are_shown(&edited, line).await;
    assert_old_tag_is_refused(&edited, &tagged, &answer["etag"]).await;
    // Written as it is already: nothing to do.
    let reply = edited.patch("a", body).await;
    assert_eq!(reply.status, 200);
    assert_eq!(reply.json()["outcome"], "unchanged");
    let config = edited.get("/config").await;
    assert_eq!(config["undo"][0]["summary"], "switched off fail of a");
    assert_eq!(config["files"][0]["etag"], answer["etag"]);
    let undone = edited
        .send(
            "POST",
            "/config/undo",
            &[],
            &json!({ "etag": answer["etag"] }),
        )
        .await;
    assert_eq!(undone.status, 200, "{}", undone.text_body());
    assert_eq!(edited.text(), before, "{}", undone.text_body());
    assert_eq!(client.tools().await.len(), 2);
    let again = edited.send("POST", "/config/undo", &[], &json!({})).await;
    assert_eq!(again.status, 409);
    assert_eq!(again.json()["error"], "nothing_to_undo");
}

#[tokio::test]
async fn a_file_that_is_restored_by_hand_right_after_a_change_is_in_use() {
    let server = serve(only(legacy(), &["echo"])).await;
    let edited =
        EditedGateway::start(Setup::new().http("a", &server.url).http("b", &server.url)).await;
    edited.ready("b").await;
    let before = edited.text();
    let off = edited.patch("b", json!({ "enabled": false })).await;
    assert_eq!(off.status, 200, "{}", off.text_body());
    // Sooner than the watch looks: it finds the bytes of its last look.
    std::fs::write(edited.setup.path("moongate.toml"), before).unwrap();
    edited.ready("b").await;
}

#[tokio::test]
async fn servers_are_switched_named_and_removed() {
    let server = serve(only(legacy(), &["echo"])).await;
    let edited =
        EditedGateway::start(Setup::new().http("a", &server.url).http("b", &server.url)).await;
    edited.ready("b").await;
    let before = edited.text();
    let reply = edited
        .patch(
            "b",
            json!({ "set": { "title": "Cost: $HOME ${HOME}", "prefix": "bb", "timeout": "5s" } }),
        )
        .await;
    assert_eq!(reply.status, 200, "{}", reply.text_body());
    assert_eq!(
        reply.json()["servers"][0]["title"],
        "Cost: $HOME ${HOME}",
        "nothing is looked up"
    );
    let client = McpClient::open(&edited.gateway.mcp(), Era::Modern).await;
    until("the prefix", async || {
        client
            .tools()
            .await
            .contains(&"bb__echo".to_owned())
            .then_some(())
    })
    .await;
    let reply = edited
        .patch(
            "b",
            json!({ "set": { "title": null, "prefix": null, "timeout": null } }),
        )
        .await;
    assert_eq!(reply.status, 200);
    assert_eq!(edited.text(), before);
    let off = edited.patch("b", json!({ "enabled": false })).await.json();
    assert_eq!(off["servers"][0]["state"], "disabled");
    assert_eq!(off["servers"][0]["source"]["editable"], true);
    assert_eq!(
        edited.patch("b", json!({ "enabled": true })).await.status,
        200
    );
    assert_eq!(edited.text(), before);
    let removed = edited.send("DELETE", "/servers/b", &[], &Value::Null).await;
    assert_eq!(removed.status, 200);
    assert_eq!(removed.json()["reload"]["changes"]["removed"], json!(["b"]));
    assert!(!edited.text().contains("servers.b"));
    for _ in 0..5 {
        edited.send("POST", "/config/undo", &[], &json!({})).await;
    }
    assert_eq!(edited.text(), before);
    assert_no_edit_is_kept(&edited);
}

/// Checks the record of edits: it is empty, and its owner's alone.
fn assert_no_edit_is_kept(edited: &EditedGateway) {
    let state = edited.setup.path("state/edits.json");
    assert!(
        std::fs::read_to_string(&state).unwrap().len() < 100,
        "all were undone"
    );
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        assert_eq!(
            std::fs::metadata(&state).unwrap().permissions().mode() & 0o777,
            0o600
        );
    }
}

#[tokio::test]
async fn a_server_that_failed_at_the_start_is_no_obstacle_to_edits_of_others() {
    let server = serve(only(legacy(), &["echo"])).await;
    let table = format!(
        "url = {:?}\nheaders = {{ X = \"${{MOONGATE_NO_SUCH_VARIABLE}}\" }}",
        server.url
    );
    let edited = EditedGateway::start(
        Setup::new()
            .http("a", &server.url)
            .with("servers.b", &table),
    )
    .await;
    edited.ready("a").await;
    edited.state("b", "failed").await;
    let reply = edited.patch("a", json!({ "set": { "title": "A" } })).await;
    assert_eq!(reply.status, 200, "{}", reply.text_body());
    assert_eq!(
        reply.json()["reload"]["outcome"],
        "applied",
        "{}",
        reply.text_body()
    );
    assert_eq!(edited.gateway.status("a").await["title"], "A");
    assert_eq!(
        edited.gateway.status("b").await["state"],
        "failed",
        "as before"
    );
    let own = edited.patch("b", json!({ "set": { "title": "B" } })).await;
    assert_eq!(own.status, 422);
    assert_eq!(own.json()["error"], "problems");
    assert!(
        own.json()["problems"][0]["message"]
            .as_str()
            .unwrap()
            .contains("MOONGATE_NO_SUCH_VARIABLE")
    );
    // A reload by hand, and that of the watched file, read the same.
    let reload = edited.send("POST", "/reload", &[], &json!({})).await;
    assert_eq!(reload.status, 200, "{}", reload.text_body());
    assert_eq!(
        edited.patch("b", json!({ "enabled": false })).await.status,
        200
    );
    assert_eq!(edited.gateway.status("b").await["state"], "disabled");
    let on = edited.patch("b", json!({ "enabled": true })).await;
    assert_eq!(on.status, 422, "it did not run before");
    assert_eq!(on.json()["error"], "problems", "it did not run before");
    // A server that runs is never lost to an edit of another one.
    let broken = edited
        .text()
        .replace("[servers.a]", "[servers.a]\ntimeout = \"soon\"");
    std::fs::write(edited.setup.path("moongate.toml"), &broken).unwrap();
    let reply = edited
        .send("POST", "/keys", &[], &json!({ "name": "ci" }))
        .await;
    assert_eq!(reply.status, 422);
    assert_eq!(reply.json()["error"], "problems");
    assert_eq!(edited.text(), broken);
    assert_eq!(edited.gateway.status("a").await["state"], "ready");
}

#[tokio::test]
async fn the_config_is_shown_without_secrets_and_watchers_hear_of_its_changes() {
    let server = serve(only(legacy(), &["echo"])).await;
    let table = format!(
        "url = {:?}\nheaders = {{ Authorization = \"Bearer s3cr3t-value\" }}",
        server.url
    );
    let edited = EditedGateway::start(Setup::new().with("servers.a", &table)).await;
    edited.ready("a").await;
    let config = edited.gateway.admin("/api/v1/config").await;
    assert!(
        !config.text_body().contains("s3cr3t"),
        "{}",
        config.text_body()
    );
    let config = config.json();
    assert!(
        config["files"][0]["text_masked"]
            .as_str()
            .unwrap()
            .contains("[servers.a]"),
        "{config}"
    );
    let url = format!("{}/api/v1/events", edited.gateway.admin_url().await);
    let mut stream = EventStream::new(HttpClient::new().open("GET", &url, &[], "").await);
    while !stream.next().await.unwrap().contains("event: snapshot") {}
    let reply = edited.send("DELETE", "/servers/a", &[], &Value::Null).await;
    assert!(
        reply.status == 200 && !reply.text_body().contains("s3cr3t"),
        "{}",
        reply.text_body()
    );
    while !stream.next().await.unwrap().contains("event: config") {}
}

#[tokio::test]
async fn a_server_may_be_called_preview() {
    let server = serve(only(legacy(), &["echo"])).await;
    let edited = EditedGateway::start(Setup::new().http("preview", &server.url)).await;
    edited.ready("preview").await;
    assert_eq!(edited.get("/servers/preview").await["state"], "ready");
    let reply = edited
        .patch("preview", json!({ "set": { "title": "P" } }))
        .await;
    assert_eq!(reply.status, 200, "{}", reply.text_body());
    assert_eq!(
        reply.json()["servers"][0]["title"],
        "P",
        "{}",
        reply.text_body()
    );
    let looked = edited
        .send(
            "POST",
            "/servers/preview",
            &[],
            &json!({ "url": "http://a.example/mcp" }),
        )
        .await;
    assert_eq!(looked.status, 200, "still the preview");
    assert_eq!(
        looked.json()["servers"][0]["state"],
        "new",
        "still the preview"
    );
    assert_eq!(
        edited
            .send("POST", "/servers/other", &[], &json!({}))
            .await
            .status,
        405
    );
    assert_eq!(
        edited
            .send("DELETE", "/servers/preview", &[], &Value::Null)
            .await
            .status,
        200
    );
    assert_eq!(
        edited
            .send("GET", "/servers/preview", &[], &Value::Null)
            .await
            .status,
        404
    );
    assert!(!edited.text().contains("servers.preview"));
}

#[tokio::test]
async fn a_server_may_have_no_prefix() {
    let server = serve(only(legacy(), &["echo"])).await;
    let edited = EditedGateway::start(Setup::new().http("a", &server.url)).await;
    edited.ready("a").await;
    let before = edited.text();
    // The page cannot send an empty text, which removes a key there. Two quotes are what people
    // type.
    for none in ["", "\"\"", " \"\" "] {
        let reply = edited
            .patch("a", json!({ "set": { "prefix": none } }))
            .await;
        assert_eq!(reply.status, 200, "{}", reply.text_body());
        assert_eq!(
            reply.json()["servers"][0]["prefix"],
            "",
            "{}",
            reply.text_body()
        );
        assert!(edited.text().contains("prefix = \"\""), "{}", edited.text());
        let form = edited
            .gateway
            .admin("/servers/a?tab=settings")
            .await
            .text_body();
        assert!(
            form.contains("name=\"prefix\" value=\"&quot;&quot;\""),
            "an empty prefix is not an unset one: {form}"
        );
        let reply = edited
            .patch("a", json!({ "set": { "prefix": null } }))
            .await;
        assert_eq!(reply.status, 200);
        assert_eq!(edited.text(), before);
    }
}
