//! New servers through the admin API: what a preview shows, what is written, and what is never
//! started or connected to.

mod popular_servers;
mod previews;
mod probes;

use serde_json::{Value, json};

use crate::harness::{EditedGateway, HttpReply, Setup, legacy, only, serve, until};

async fn preview(edited: &EditedGateway, body: Value) -> Value {
    let reply = edited.send("POST", "/servers/preview", &[], &body).await;
    assert_eq!(reply.status, 200, "{body}: {}", reply.text_body());
    reply.json()
}

async fn add(edited: &EditedGateway, body: Value) -> HttpReply {
    edited.send("POST", "/servers", &[], &body).await
}

#[tokio::test]
async fn servers_are_added_as_one_edit_and_undone_as_one() {
    let server = serve(only(legacy(), &["echo"])).await;
    let edited = EditedGateway::start(Setup::new()).await;
    let before = edited.text();
    let etag = edited.get("/config").await["files"][0]["etag"]
        .as_str()
        .unwrap()
        .to_owned();
    let body = json!({
        "servers": { "a": { "url": server.url }, "b": { "url": server.url, "title": "Other" } } });
    let wrong = edited
        .send("POST", "/servers", &[("if-match", "\"00\"")], &body)
        .await;
    assert_eq!(wrong.status, 412);
    assert_eq!(wrong.json()["error"], "changed");
    let added = edited
        .send(
            "POST",
            "/servers",
            &[("if-match", &format!("\"{etag}\""))],
            &body,
        )
        .await;
    assert_eq!(added.status, 201, "{}", added.text_body());
    let answer = added.json();
    assert_eq!(answer["summary"], "added a, added b");
    assert_eq!(answer["undo"], true);
    assert_eq!(answer["reload"]["changes"]["added"], json!(["a", "b"]));
    assert_eq!(answer["servers"].as_array().unwrap().len(), 2);
    edited.ready("a").await;
    edited.ready("b").await;
    let taken = add(
        &edited,
        json!({ "servers": { "c": { "url": server.url }, "a": { "url": server.url } } }),
    )
    .await;
    assert_eq!(taken.status, 409, "all or nothing");
    assert_eq!(taken.json()["error"], "already_there", "all or nothing");
    assert!(!edited.text().contains("servers.c"));
    let undone = edited.send("POST", "/config/undo", &[], &json!({})).await;
    assert_eq!(undone.status, 200, "{}", undone.text_body());
    assert_eq!(edited.text(), before, "{}", undone.text_body());
}

#[tokio::test]
async fn the_tools_of_a_new_server_are_on_from_the_first_look() {
    let server = serve(only(legacy(), &["echo", "fail"])).await;
    let edited = EditedGateway::start(Setup::new()).await;
    for n in 0..20 {
        let name = format!("s{n}");
        let added = add(
            &edited,
            json!({ "servers": { &name: { "url": server.url } } }),
        )
        .await;
        assert_eq!(added.status, 201, "{}", added.text_body());
        // Its list is known a moment before the catalogue has its tools.
        let tools = until("its list is known", async || {
            let items = edited.get(&format!("/servers/{name}/items")).await;
            let tools = items["tools"].as_array().unwrap().clone();
            (!tools.is_empty()).then_some(tools)
        })
        .await;
        let states: Vec<&Value> = tools.iter().map(|tool| &tool["state"]).collect();
        assert_eq!(states, ["on", "on"], "{name}");
    }
}

#[tokio::test]
async fn a_name_is_taken_by_what_the_file_has_now() {
    let server = serve(only(legacy(), &["echo"])).await;
    let edited =
        EditedGateway::start(Setup::new().with("gateway", "reload = { watch = false }")).await;
    let without = edited.text();
    let added = add(
        &edited,
        json!({ "servers": { "server": { "url": server.url } } }),
    )
    .await;
    assert_eq!(added.status, 201, "{}", added.text_body());
    let other = json!({
        "text": json!({ "servers": { "b": { "url": "https://b.example/mcp" } } }).to_string(),
        "names": { "b": "server" } });
    let taken = preview(&edited, other.clone()).await;
    assert_eq!(taken["servers"][0]["state"], "problem", "{taken}");
    assert!(
        taken["problems"][0]["message"]
            .as_str()
            .unwrap()
            .contains("server"),
        "the reason is given: {taken}"
    );
    std::fs::write(edited.setup.path("moongate.toml"), without).unwrap();
    let free = preview(&edited, other).await;
    assert_eq!(free["servers"][0]["state"], "new", "{free}");
    assert_eq!(free["problems"], json!([]), "{free}");
}

#[tokio::test]
async fn programs_and_files_need_the_permission() {
    let edited = EditedGateway::start(Setup::new()).await;
    let before = edited.text();
    let url = "https://a.example/mcp";
    for settings in [
        json!({ "command": "sh" }),
        json!({ "command": ["sh"], "enabled": false }),
        json!({ "url": url, "args": ["x"] }),
        json!({ "url": url, "headers": { "X": "${file:/etc/hostname}" } }),
        json!({ "url": url, "ca": "/etc/hostname" }),
        json!({ "unix": "/run/docker.sock" }),
    ] {
        // Before anything else: the other server isn't a name.
        let reply = add(
            &edited,
            json!({ "servers": { "a b": { "url": url }, "p": settings } }),
        )
        .await;
        let error = reply.json();
        assert_eq!(reply.status, 403, "{settings}: {error}");
        assert_eq!(
            error["error"], "commands_not_allowed",
            "{settings}: {error}"
        );
        assert_eq!(error["setting"], "admin.allow_commands");
    }
    for (settings, error) in [
        (json!({ "cmd": "sh" }), "bad_value"),
        (json!({ "url": "ftp://x" }), "problems"),
    ] {
        let reply = add(&edited, json!({ "servers": { "p": settings } })).await;
        assert_eq!(reply.json()["error"], error, "{}", reply.text_body());
    }
    for body in [
        json!({}),
        json!({ "servers": {}, "from": { "url": url } }),
        json!({ "from": {} }),
    ] {
        assert_eq!(add(&edited, body.clone()).await.status, 400, "{body}");
    }
    let many: serde_json::Map<String, Value> = (0..201)
        .map(|n| (format!("s{n}"), json!({ "url": url })))
        .collect();
    let many = add(&edited, json!({ "servers": many })).await;
    assert_eq!(many.status, 400);
    assert_eq!(many.json()["error"], "too_many_servers");
    let pasted = add(
        &edited,
        json!({ "from": { "text": "npx -y @scope/server@1.0 /data" } }),
    )
    .await;
    assert_eq!(pasted.status, 403);
    assert_eq!(pasted.json()["error"], "commands_not_allowed");
    assert_eq!(edited.text(), before);
}

#[tokio::test]
async fn targets_are_changed_only_with_the_permission() {
    let edited = EditedGateway::start(Setup::new()).await;
    let url = "https://a.example/mcp";
    for set in [
        json!({ "url": url }),
        json!({ "headers": { "X": "y" } }),
        json!({ "command": "sh" }),
        json!({ "proxy": url }),
    ] {
        let reply = edited
            .send("PATCH", "/servers/none", &[], &json!({ "set": set }))
            .await;
        assert_eq!(reply.status, 403, "{set}");
        assert_eq!(reply.json()["error"], "commands_not_allowed", "{set}");
    }
}

#[tokio::test]
async fn with_the_permission_programs_are_added_and_targets_changed() {
    let server = serve(only(legacy(), &["echo"])).await;
    let setup = Setup::new()
        .http("a", "http://127.0.0.1:9/mcp")
        .with("admin", "allow_commands = true");
    let script = setup.path("p.json");
    std::fs::write(
        &script,
        serde_json::to_string(&only(legacy(), &["echo"])).unwrap(),
    )
    .unwrap();
    let edited = EditedGateway::with_key(setup).await;
    let program = env!("CARGO_BIN_EXE_moongate");
    let settings =
        json!({ "command": program, "args": ["mock", script.to_str().unwrap(), "--stdio"] });
    let looked = preview(
        &edited,
        json!({ "text": json!({ "mcpServers": { "p": settings } }).to_string(), "probe": true }),
    )
    .await;
    assert_eq!(looked["servers"][0]["needs_command"], true, "{looked}");
    assert_eq!(looked["servers"][0]["probe"]["tools"], 1, "{looked}");
    assert_eq!(
        add(&edited, json!({ "servers": { "p": settings } }))
            .await
            .status,
        201
    );
    edited.ready("p").await;
    let set = json!({
        "set": { "url": server.url, "headers": { "X": "${HOME}" }, "max_concurrency": 5 } });
    let reply = edited.send("PATCH", "/servers/a", &[], &set).await;
    assert_eq!(reply.status, 200, "{}", reply.text_body());
    edited.ready("a").await;
    assert!(
        edited.text().contains("X = \"${HOME}\""),
        "{}",
        edited.text()
    );
}

#[tokio::test]
async fn settings_take_numbers_lists_and_tables() {
    let server = serve(only(legacy(), &["echo"])).await;
    // `forward_headers` needs the permission.
    let setup = Setup::new()
        .http("a", &server.url)
        .with("admin", "allow_commands = true");
    let edited = EditedGateway::with_key(setup).await;
    edited.ready("a").await;
    let before = edited.text();
    let set = json!({
        "max_concurrency": 5, "queue": 0, "max_message": "1MiB", "retry": { "attempts": 1 },
        "start": "lazy",
        "forward_headers": { "X-Tenant": "X-Tenant" }, "description": "costs $5 ${HOME}",
    });
    let reply = edited
        .send("PATCH", "/servers/a", &[], &json!({ "set": set }))
        .await;
    assert_eq!(reply.status, 200, "{}", reply.text_body());
    assert!(
        edited.text().contains("max_concurrency = 5") && edited.text().contains("$$5 $${HOME}"),
        "{}",
        edited.text()
    );
    let nothing = set
        .as_object()
        .unwrap()
        .keys()
        .map(|key| (key.clone(), Value::Null))
        .collect::<serde_json::Map<_, _>>();
    assert_eq!(
        edited
            .send("PATCH", "/servers/a", &[], &json!({ "set": nothing }))
            .await
            .status,
        200
    );
    assert_eq!(edited.text(), before);
    for wrong in [
        json!({ "queue": "many" }),
        json!({ "max_concurrency": 0 }),
        json!({ "retry": 5 }),
    ] {
        let reply = edited
            .send("PATCH", "/servers/a", &[], &json!({ "set": wrong }))
            .await;
        assert_eq!(reply.status, 422, "{wrong}");
        assert_eq!(reply.json()["error"], "problems", "{wrong}");
    }
}

/// Gateway with the server `a`, for an operator who may add references.
async fn owned_gateway(url: &str) -> EditedGateway {
    // A reference in a new server needs the permission.
    let setup = Setup::new()
        .http("a", url)
        .with("admin", "allow_commands = true");
    let edited = EditedGateway::with_key(setup).await;
    edited.ready("a").await;
    edited
}

/// Reloads, edits another server, removes the failed server `b`, and undoes each step.
async fn work_around_a_failed_server(edited: &EditedGateway) {
    // It is not an obstacle to a reload, to edits of others, or to its own removal.
    assert_eq!(
        edited.send("POST", "/reload", &[], &json!({})).await.json()["outcome"],
        "unchanged"
    );
    assert_eq!(
        edited
            .patch("a", json!({ "set": { "title": "A" } }))
            .await
            .status,
        200
    );
    assert_eq!(
        edited
            .send("POST", "/config/undo", &[], &json!({}))
            .await
            .status,
        200
    );
    // Nor to an undo that brings it back.
    assert_eq!(
        edited
            .send("DELETE", "/servers/b", &[], &json!({}))
            .await
            .status,
        200
    );
    let undone = edited.send("POST", "/config/undo", &[], &json!({})).await;
    assert_eq!(undone.status, 200, "{}", undone.text_body());
    assert_eq!(
        undone.json()["reload"]["outcome"],
        "applied",
        "{}",
        undone.text_body()
    );
    edited.state("b", "failed").await;
    assert_eq!(
        edited
            .send("POST", "/config/undo", &[], &json!({}))
            .await
            .status,
        200
    );
}

#[tokio::test]
async fn a_server_whose_variable_is_not_set_is_added_and_fails_alone() {
    let server = serve(only(legacy(), &["echo"])).await;
    let edited = owned_gateway(&server.url).await;
    let before = edited.text();
    let headers = json!({ "Authorization": "Bearer ${MOONGATE_NO_SUCH_VARIABLE}" });
    let source = json!({ "url": "http://127.0.0.1:9/mcp", "headers": headers });
    let looked = preview(&edited, source).await;
    assert!(
        looked["diff"]
            .as_str()
            .unwrap()
            .contains("MOONGATE_NO_SUCH_VARIABLE"),
        "{looked}"
    );
    let problem = looked["problems"][0]["message"].as_str().unwrap();
    assert!(
        problem.contains("MOONGATE_NO_SUCH_VARIABLE is not set"),
        "{looked}"
    );
    let settings = json!({ "url": "http://127.0.0.1:9/mcp", "headers": headers });
    let reply = add(
        &edited,
        json!({ "servers": { "b": settings, "c": { "url": server.url } } }),
    )
    .await;
    assert_eq!(reply.status, 201, "{}", reply.text_body());
    assert_eq!(
        reply.json()["reload"]["outcome"],
        "applied",
        "{}",
        reply.text_body()
    );
    assert_eq!(
        reply.json()["problems"][0]["server"],
        "b",
        "{}",
        reply.text_body()
    );
    let failed = edited.state("b", "failed").await;
    assert!(
        failed["reason"]
            .as_str()
            .unwrap()
            .contains("MOONGATE_NO_SUCH_VARIABLE is not set"),
        "{failed}"
    );
    edited.ready("c").await;
    assert_eq!(edited.gateway.status("a").await["state"], "ready");
    work_around_a_failed_server(&edited).await;
    assert_eq!(edited.text(), before);
}

#[tokio::test]
async fn what_no_variable_can_heal_is_refused_with_the_whole_edit() {
    let server = serve(only(legacy(), &["echo"])).await;
    let edited = owned_gateway(&server.url).await;
    let before = edited.text();
    let headers = json!({ "Authorization": "Bearer ${MOONGATE_NO_SUCH_VARIABLE}" });
    let wrong = json!({ "url": "http://127.0.0.1:9/mcp", "timeout": "soon", "headers": headers });
    let reply = add(
        &edited,
        json!({ "servers": { "b": wrong, "c": { "url": server.url } } }),
    )
    .await;
    assert_eq!(reply.status, 422, "{}", reply.text_body());
    assert_eq!(reply.json()["error"], "problems", "{}", reply.text_body());
    assert!(
        reply.text_body().contains("timeout") && edited.text() == before,
        "{}",
        reply.text_body()
    );
    for wrong in ["Bearer ${TOKEN", "${input:token}", "${a-b}"] {
        let settings =
            json!({ "url": "http://127.0.0.1:9/mcp", "headers": { "Authorization": wrong } });
        let reply = add(&edited, json!({ "servers": { "b": settings } })).await;
        assert_eq!(reply.status, 422, "{}", reply.text_body());
        assert_eq!(reply.json()["error"], "problems", "{}", reply.text_body());
    }
    assert_eq!(edited.text(), before);
}
