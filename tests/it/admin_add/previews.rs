//! Previews of new servers: what would be written, and what of it is added afterwards.

use serde_json::{Value, json};

use super::{add, preview};
use crate::harness::{EditedGateway, Setup, legacy, only, serve};

/// Text of five servers: two with a secret, one that the config has, one whose name is taken, and
/// the gateway itself.
fn pasted_servers(known: &str, own: &str) -> String {
    json!({ "mcpServers": {
        "github": { "url": "https://gh.example/mcp",
            "headers": { "Authorization": "Bearer s3cr3t-1" } },
        "again": { "url": known },
        "known": { "url": "https://other.example/mcp" },
        "self": { "url": own },
        "files": { "command": "npx", "args": ["-y", "x@1.0", "--token", "s3cr3t-2"] },
    } })
    .to_string()
}

#[tokio::test]
async fn a_preview_shows_what_would_be_written_and_no_secret() {
    let server = serve(only(legacy(), &["echo"])).await;
    let edited = EditedGateway::start(Setup::new().http("known", &server.url)).await;
    let before = edited.text();
    let text = pasted_servers(&server.url, &edited.gateway.mcp());
    let shown = preview(&edited, json!({ "text": text })).await;
    assert!(!shown.to_string().contains("s3cr3t"), "{shown}");
    let row = |name: &str| {
        let rows = shown["servers"].as_array().unwrap();
        rows.iter()
            .find(|row| row["name"] == name)
            .unwrap_or_else(|| panic!("{name}: {shown}"))
            .clone()
    };
    assert_eq!(row("github")["state"], "new");
    assert_eq!(row("again")["state"], "same");
    assert_eq!(row("again")["same_as"], "known");
    assert_eq!(row("self")["state"], "own");
    assert_eq!(row("known-2")["state"], "renamed");
    assert_eq!(row("known-2")["was"], "known");
    assert_eq!(row("files")["needs_command"], true);
    assert_eq!(row("github")["needs_command"], false);
    let secrets = json!([{ "path": "headers.Authorization", "suggest": "GITHUB_TOKEN" }]);
    assert_eq!(row("github")["secrets"], secrets);
    assert_eq!(row("github")["target"], "https://gh.example/mcp");
    assert_eq!(row("files")["target"], "npx -y x@1.0 --token ***");
    assert!(
        row("github")["toml"]
            .as_str()
            .unwrap()
            .starts_with("[servers.github]\nurl = "),
        "{shown}"
    );
    let diff = shown["diff"].as_str().unwrap();
    assert!(
        diff.contains("+ [servers.github]") && !diff.contains("files"),
        "{diff}"
    );
    assert!(
        shown["file"].as_str().unwrap().ends_with("moongate.toml")
            && shown["problems"] == json!([]),
        "{shown}"
    );
    assert_eq!(edited.text(), before, "nothing is written");
}

#[tokio::test]
async fn text_that_cannot_be_read_is_a_problem_of_the_preview() {
    let edited = EditedGateway::start(Setup::new()).await;
    // Incomplete text isn't an error, and says where it is wrong.
    let broken = preview(&edited, json!({ "text": "[servers.a\nurl = 1" })).await;
    assert_eq!(broken["servers"], json!([]), "{broken}");
    assert_eq!(broken["problems"][0]["line"], 1, "{broken}");
    let nothing = preview(&edited, json!({ "text": "hello" })).await;
    assert!(
        nothing["problems"][0]["message"].is_string()
            && nothing["problems"][0].get("file").is_none(),
        "{nothing}"
    );
}

#[tokio::test]
async fn a_server_that_cannot_work_here_hides_no_other_one() {
    let one_bad = json!({ "mcpServers": {
        "x": { "url": "https://x.example/mcp", "headers": { "X": "${MOONGATE_NO_SUCH_VARIABLE}" } },
        "y": { "url": "https://y.example/mcp" },
    } });
    let owner = EditedGateway::with_key(Setup::new().with("admin", "allow_commands = true")).await;
    let shown = preview(&owner, json!({ "text": one_bad.to_string() })).await;
    assert_eq!(shown["problems"][0]["server"], "x", "{shown}");
    assert_eq!(shown["problems"].as_array().unwrap().len(), 1, "{shown}");
    assert!(
        shown["problems"][0]["message"]
            .as_str()
            .unwrap()
            .contains("MOONGATE_NO_SUCH_VARIABLE")
    );
    assert!(
        shown["diff"].as_str().unwrap().contains("servers.y"),
        "{shown}"
    );
}

#[tokio::test]
async fn the_source_of_a_preview_adds_what_was_chosen() {
    let server = serve(only(legacy(), &["echo"])).await;
    let edited = EditedGateway::start(Setup::new().http("known", &server.url)).await;
    let text = pasted_servers(&server.url, &edited.gateway.mcp());
    let body = json!({ "from": { "text": text }, "only": ["github", "known-2"],
        "names": { "known-2": "second" } });
    let added = add(&edited, body).await;
    assert_eq!(added.status, 201, "{}", added.text_body());
    assert!(!added.text_body().contains("s3cr3t"));
    assert!(
        edited.text().contains("Bearer s3cr3t-1") && edited.text().contains("[servers.second]"),
        "{}",
        edited.text()
    );
    for (body, status) in [
        (json!({ "from": { "text": text }, "only": ["again"] }), 409),
        (json!({ "from": { "text": text }, "only": ["none"] }), 400),
        (json!({ "from": { "url": server.url } }), 409),
        (json!({ "from": { "text": "hello" } }), 422),
    ] {
        let reply = add(&edited, body.clone()).await;
        assert_eq!(reply.status, status, "{body}: {}", reply.text_body());
    }
}

#[tokio::test]
async fn a_server_with_a_key_that_the_config_lacks_differs() {
    let server = serve(only(legacy(), &["echo"])).await;
    let edited = EditedGateway::start(Setup::new().http("docs", &server.url)).await;
    let before = edited.text();
    let source = json!({ "url": server.url, "headers": { "Authorization": "Bearer s3cr3t" } });
    let mut looked = source.clone();
    looked["probe"] = json!(true);
    let shown = preview(&edited, looked).await;
    let row = &shown["servers"][0];
    assert_eq!(row["state"], "differs");
    assert_eq!(row["same_as"], "docs");
    assert_eq!(shown["diff"], Value::Null);
    assert_eq!(
        row["lacks"],
        json!([{ "path": "headers.Authorization", "value": "***" }])
    );
    assert_eq!(
        row["lines"],
        "[servers.docs.headers]\nAuthorization = \"Bearer ${DOCS_TOKEN}\"\n"
    );
    assert_eq!(row["probe"]["tools"], 1, "{shown}");
    assert!(!shown.to_string().contains("s3cr3t"), "{shown}");
    let unasked = add(&edited, json!({ "from": source })).await;
    assert_eq!(unasked.status, 409, "nothing is doubled by itself");
    assert_eq!(
        unasked.json()["error"],
        "not_new",
        "nothing is doubled by itself"
    );
    assert!(
        unasked.text_body().contains("only"),
        "{}",
        unasked.text_body()
    );
    let name = row["name"].as_str().unwrap().to_owned();
    let chosen = json!({ "only": [name], "names": { &name: "docs-with-key" } });
    let mut wanted = source.clone();
    wanted
        .as_object_mut()
        .unwrap()
        .extend(chosen.as_object().cloned().unwrap());
    assert!(
        preview(&edited, wanted).await["diff"]
            .as_str()
            .unwrap()
            .contains("servers.docs-with-key")
    );
    let added = add(
        &edited,
        json!({ "from": source, "only": chosen["only"], "names": chosen["names"] }),
    )
    .await;
    assert_eq!(added.status, 201, "{}", added.text_body());
    assert!(
        edited.text().starts_with(&before) && edited.text().contains("[servers.docs-with-key]"),
        "{}",
        edited.text()
    );
    let again = preview(&edited, source).await;
    assert_eq!(
        again["servers"][0]["same_as"], "docs-with-key",
        "it is there now"
    );
}

#[tokio::test]
async fn a_preview_reads_one_source_of_a_bounded_size() {
    let edited = EditedGateway::start(Setup::new()).await;
    for body in [
        json!({}),
        json!({ "url": "http://a.example", "text": "x" }),
        json!({ "text": "x", "headers": {} }),
    ] {
        let reply = edited.send("POST", "/servers/preview", &[], &body).await;
        assert_eq!(reply.status, 400, "{body}");
        assert_eq!(reply.json()["error"], "bad_body", "{body}");
    }
    let long = json!({ "text": "x".repeat(300 * 1024) });
    assert_eq!(
        edited
            .send("POST", "/servers/preview", &[], &long)
            .await
            .status,
        413
    );
}
