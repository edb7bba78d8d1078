//! New servers through the admin API: what a preview shows, what is written, and what is never
//! started or connected to.

use serde_json::{Value, json};

use crate::harness::{EditedGateway, HttpReply, Setup, legacy, modern, only, serve, until};

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
    assert_eq!(
        (wrong.status, &wrong.json()["error"]),
        (412, &json!("changed"))
    );
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
    assert_eq!(
        (&answer["summary"], &answer["undo"]),
        (&json!("added a, added b"), &json!(true))
    );
    assert_eq!(answer["reload"]["changes"]["added"], json!(["a", "b"]));
    assert_eq!(answer["servers"].as_array().unwrap().len(), 2);
    edited.ready("a").await;
    edited.ready("b").await;
    let taken = add(
        &edited,
        json!({ "servers": { "c": { "url": server.url }, "a": { "url": server.url } } }),
    )
    .await;
    assert_eq!(
        (taken.status, &taken.json()["error"]),
        (409, &json!("already_there")),
        "all or nothing"
    );
    assert!(!edited.text().contains("servers.c"));
    let undone = edited.send("POST", "/config/undo", &[], &json!({})).await;
    assert_eq!(
        (undone.status, edited.text()),
        (200, before),
        "{}",
        undone.text_body()
    );
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
    assert_eq!(
        (&free["servers"][0]["state"], &free["problems"]),
        (&json!("new"), &json!([])),
        "{free}"
    );
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
        // Before anything else: the other server is no name.
        let reply = add(
            &edited,
            json!({ "servers": { "a b": { "url": url }, "p": settings } }),
        )
        .await;
        let error = reply.json();
        assert_eq!(
            (reply.status, &error["error"]),
            (403, &json!("commands_not_allowed")),
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
    assert_eq!(
        (many.status, &many.json()["error"]),
        (400, &json!("too_many_servers"))
    );
    let pasted = add(
        &edited,
        json!({ "from": { "text": "npx -y @scope/server@1.0 /data" } }),
    )
    .await;
    assert_eq!(
        (pasted.status, &pasted.json()["error"]),
        (403, &json!("commands_not_allowed"))
    );
    assert_eq!(edited.text(), before);
    for set in [
        json!({ "url": url }),
        json!({ "headers": { "X": "y" } }),
        json!({ "command": "sh" }),
        json!({ "proxy": url }),
    ] {
        let reply = edited
            .send("PATCH", "/servers/none", &[], &json!({ "set": set }))
            .await;
        assert_eq!(
            (reply.status, &reply.json()["error"]),
            (403, &json!("commands_not_allowed")),
            "{set}"
        );
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
    assert_eq!(
        (
            &looked["servers"][0]["needs_command"],
            &looked["servers"][0]["probe"]["tools"]
        ),
        (&json!(true), &json!(1)),
        "{looked}"
    );
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
        assert_eq!(
            (reply.status, &reply.json()["error"]),
            (422, &json!("problems")),
            "{wrong}"
        );
    }
}

#[tokio::test]
async fn a_preview_shows_what_would_be_written_and_no_secret() {
    let server = serve(only(legacy(), &["echo"])).await;
    let edited = EditedGateway::start(Setup::new().http("known", &server.url)).await;
    let before = edited.text();
    let own = edited.gateway.mcp();
    let text = json!({ "mcpServers": {
        "github": { "url": "https://gh.example/mcp",
            "headers": { "Authorization": "Bearer s3cr3t-1" } },
        "again": { "url": server.url },
        "known": { "url": "https://other.example/mcp" },
        "self": { "url": own },
        "files": { "command": "npx", "args": ["-y", "x@1.0", "--token", "s3cr3t-2"] },
    } })
    .to_string();
    let shown = preview(&edited, json!({ "text": text })).await;
    assert!(!shown.to_string().contains("s3cr3t"), "{shown}");
    let row = |name: &str| {
        let rows = shown["servers"].as_array().unwrap();
        rows.iter()
            .find(|row| row["name"] == name)
            .unwrap_or_else(|| panic!("{name}: {shown}"))
            .clone()
    };
    assert_eq!(
        (&row("github")["state"], &row("again")["state"]),
        (&json!("new"), &json!("same"))
    );
    assert_eq!(
        (&row("again")["same_as"], &row("self")["state"]),
        (&json!("known"), &json!("own"))
    );
    assert_eq!(
        (&row("known-2")["state"], &row("known-2")["was"]),
        (&json!("renamed"), &json!("known"))
    );
    assert_eq!(
        (
            &row("files")["needs_command"],
            &row("github")["needs_command"]
        ),
        (&json!(true), &json!(false))
    );
    let secrets = json!([{ "path": "headers.Authorization", "suggest": "GITHUB_TOKEN" }]);
    assert_eq!(
        (&row("github")["secrets"], &row("github")["target"]),
        (&secrets, &json!("https://gh.example/mcp"))
    );
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
    // Typing is no error, and says where it is wrong.
    let broken = preview(&edited, json!({ "text": "[servers.a\nurl = 1" })).await;
    assert_eq!(
        (&broken["servers"], &broken["problems"][0]["line"]),
        (&json!([]), &json!(1)),
        "{broken}"
    );
    let nothing = preview(&edited, json!({ "text": "hello" })).await;
    assert!(
        nothing["problems"][0]["message"].is_string()
            && nothing["problems"][0].get("file").is_none(),
        "{nothing}"
    );
    // One that cannot work here is named, and hides nothing of the others.
    let one_bad = json!({ "mcpServers": {
        "x": { "url": "https://x.example/mcp", "headers": { "X": "${MOONGATE_NO_SUCH_VARIABLE}" } },
        "y": { "url": "https://y.example/mcp" },
    } });
    let owner = EditedGateway::with_key(Setup::new().with("admin", "allow_commands = true")).await;
    let shown = preview(&owner, json!({ "text": one_bad.to_string() })).await;
    assert_eq!(
        (
            &shown["problems"][0]["server"],
            shown["problems"].as_array().unwrap().len()
        ),
        (&json!("x"), 1),
        "{shown}"
    );
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
    // The same source adds what was chosen, under other names.
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
    assert_eq!(
        (&row["state"], &row["same_as"], &shown["diff"]),
        (&json!("differs"), &json!("docs"), &Value::Null)
    );
    assert_eq!(
        row["lacks"],
        json!([{ "path": "headers.Authorization", "value": "***" }])
    );
    assert_eq!(
        row["lines"],
        "[servers.docs.headers]\nAuthorization = \"Bearer ${DOCS_TOKEN}\"\n"
    );
    assert_eq!(
        (&row["probe"]["tools"], shown.to_string().contains("s3cr3t")),
        (&json!(1), false),
        "{shown}"
    );
    let unasked = add(&edited, json!({ "from": source })).await;
    assert_eq!(
        (unasked.status, &unasked.json()["error"]),
        (409, &json!("not_new")),
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
async fn a_probe_tells_how_a_server_answers() {
    for script in [legacy(), modern()] {
        let server = serve(only(script, &["echo", "fail"])).await;
        let edited = EditedGateway::start(Setup::new()).await;
        let before = edited.text();
        let looked = preview(&edited, json!({ "url": server.url, "probe": true })).await;
        let probe = &looked["servers"][0]["probe"];
        assert_eq!(
            (&probe["transport"], &probe["tools"], &probe["fault"]),
            (&json!("http"), &json!(2), &Value::Null),
            "{looked}"
        );
        assert_eq!(
            (&probe["tool_names"], &probe["needs_login"]),
            (&json!(["echo", "fail"]), &json!(false))
        );
        assert!(
            probe["tokens"].as_u64() > Some(5) && probe["revision"].is_string(),
            "{probe}"
        );
        assert!(probe["server_info"]["name"].is_string(), "{probe}");
        assert_eq!(edited.text(), before);
        let metrics = edited.gateway.admin("/metrics").await.text_body();
        let name = looked["servers"][0]["name"].as_str().unwrap();
        assert!(
            !metrics.contains(&format!("server=\"{name}\"")),
            "a probe leaves no series"
        );
    }
}

#[tokio::test]
async fn a_probe_that_fails_says_why_and_no_metadata_service_is_asked_or_added() {
    let edited = EditedGateway::start(Setup::new()).await;
    let fault = async |body: Value| preview(&edited, body).await["servers"][0]["probe"].clone();
    let closed = fault(json!({ "url": "http://127.0.0.1:9/mcp", "probe": true })).await;
    assert!(
        closed["fault"]["message"]
            .as_str()
            .unwrap()
            .contains("cannot connect"),
        "{closed}"
    );
    assert!(closed["fault"]["hint"].is_string() && closed["tools"].is_null());
    for url in [
        "http://169.254.169.254/latest/meta-data/",
        "http://[fd00:ec2::254]/",
        "http://[::ffff:169.254.169.254]/",
        "http://metadata.google.internal/computeMetadata/v1/",
        "http://2852039166/",
    ] {
        let refused = fault(json!({ "url": url, "probe": true })).await;
        assert!(
            refused["fault"]["message"]
                .as_str()
                .unwrap()
                .contains("metadata service"),
            "{url}: {refused}"
        );
        let added = add(
            &edited,
            json!({ "servers": { "fine": { "url": "http://127.0.0.1:9/" },
                    "cloud": { "url": url } } }),
        )
        .await;
        assert_eq!(
            (added.status, &added.json()["error"]),
            (403, &json!("address_not_allowed")),
            "{url}"
        );
        assert!(
            added
                .text_body()
                .contains("cloud would be the metadata service"),
            "{}",
            added.text_body()
        );
    }
    assert!(!edited.text().contains("servers"), "all or nothing");
    // A program is not started for a look.
    let text = "npx -y @scope/server@1.0";
    let row = preview(&edited, json!({ "text": text, "probe": true })).await["servers"][0].clone();
    assert!(
        row["probe"].is_null() && row["needs_command"] == true,
        "{row}"
    );
    // A variable that is not set is a problem of the settings.
    let headers = json!({ "Authorization": "Bearer ${MOONGATE_NO_SUCH_VARIABLE}" });
    let unset =
        fault(json!({ "url": "http://127.0.0.1:9/mcp", "headers": headers, "probe": true })).await;
    assert!(
        unset["fault"]["message"]
            .as_str()
            .unwrap()
            .contains("MOONGATE_NO_SUCH_VARIABLE"),
        "{unset}"
    );
    for body in [
        json!({}),
        json!({ "url": "http://a.example", "text": "x" }),
        json!({ "text": "x", "headers": {} }),
    ] {
        let reply = edited.send("POST", "/servers/preview", &[], &body).await;
        assert_eq!(
            (reply.status, &reply.json()["error"]),
            (400, &json!("bad_body")),
            "{body}"
        );
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

#[tokio::test]
async fn secrets_of_the_environment_go_only_where_somebody_wrote_them() {
    let server = serve(only(legacy(), &["echo"])).await;
    let edited = EditedGateway::start(Setup::new()).await;
    // A `server.json` names a header, and the reading makes a reference of it.
    let text = json!({ "name": "x/evil", "remotes": [{
        "type": "streamable-http", "url": server.url,
        "headers": [{ "name": "PATH", "isRequired": true }],
    }] })
    .to_string();
    let looked = preview(&edited, json!({ "text": text, "probe": true })).await;
    assert_eq!(
        looked["servers"][0]["settings"]["headers"]["PATH"], "${PATH}",
        "{looked}"
    );
    assert_eq!(looked["servers"][0]["probe"]["tools"], 1, "{looked}");
    let is_sent = || {
        server
            .recorded_requests()
            .iter()
            .any(|request| format!("{request:?}").contains("/bin"))
    };
    assert!(!is_sent());
    let written = json!({ "url": server.url, "headers": { "X-Path": "${PATH}" }, "probe": true });
    let looked = preview(&edited, written.clone()).await;
    assert!(
        looked["servers"][0]["probe"]["fault"]["message"]
            .as_str()
            .unwrap()
            .contains("PATH"),
        "{looked}"
    );
    assert!(!is_sent(), "whoever writes it needs the permission");
    let owner = EditedGateway::with_key(Setup::new().with("admin", "allow_commands = true")).await;
    let looked = preview(&owner, written).await;
    assert_eq!(looked["servers"][0]["probe"]["tools"], 1, "{looked}");
    assert!(is_sent(), "it was written");
}

#[tokio::test]
async fn four_previews_connect_at_once() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/mcp", listener.local_addr().unwrap());
    let edited = EditedGateway::start(Setup::new()).await;
    let body = json!({ "url": url, "probe": true });
    let looks = async {
        let looks = (0..4).map(|_| edited.send("POST", "/servers/preview", &[], &body));
        futures_util::future::join_all(looks).await
    };
    let fifth = async {
        let mut held = Vec::new();
        // Nobody answers: each of the four waits for its server.
        for _ in 0..4 {
            held.push(listener.accept().await.unwrap());
        }
        let fifth = edited.send("POST", "/servers/preview", &[], &body).await;
        let without = edited
            .send("POST", "/servers/preview", &[], &json!({ "url": url }))
            .await
            .status;
        drop(held);
        // Refused from here on, so that the four end soon.
        drop(listener);
        (fifth.status, fifth.json()["error"].clone(), without)
    };
    let (_, fifth) = tokio::join!(looks, fifth);
    assert_eq!(fifth, (429, json!("too_many_probes"), 200));
}

#[tokio::test]
async fn popular_servers_are_listed_and_added_by_name() {
    let setup = Setup::new().http("wiki", "https://mcp.deepwiki.com/mcp/");
    let edited = EditedGateway::start(setup).await;
    let popular = edited.get("/popular").await["servers"]
        .as_array()
        .unwrap()
        .clone();
    let find = |name: &str| {
        popular
            .iter()
            .find(|server| server["name"] == name)
            .unwrap()
            .clone()
    };
    let deepwiki = find("deepwiki");
    let files = find("files");
    assert_eq!(
        (&deepwiki["added"], &files["added"], &find("mdn")["added"]),
        (&json!(true), &json!(false), &json!(false))
    );
    for member in ["title", "purpose", "url", "key", "probed", "stale"] {
        assert!(deepwiki.get(member).is_some(), "{member}: {deepwiki}");
    }
    assert!(files["command"].is_string() && files["url"].is_null());
    let looked = preview(&edited, json!({ "popular": "mdn" })).await;
    assert_eq!(
        (
            &looked["servers"][0]["name"],
            &looked["servers"][0]["state"]
        ),
        (&json!("mdn"), &json!("new"))
    );
    assert_eq!(
        preview(&edited, json!({ "popular": "deepwiki" })).await["servers"][0]["state"],
        "same"
    );
    let looked = preview(&edited, json!({ "popular": "files", "args": ["/data"] })).await;
    assert_eq!(
        (&looked["servers"][0]["needs_command"], &looked["diff"]),
        (&json!(true), &Value::Null),
        "{looked}"
    );
    assert!(
        looked["servers"][0]["target"]
            .as_str()
            .unwrap()
            .ends_with(" /data"),
        "{looked}"
    );
    for (body, error) in [
        (json!({ "popular": "none" }), "unknown_popular"),
        (json!({ "popular": "files" }), "bad_arguments"),
        (json!({ "popular": "mdn", "headers": {} }), "bad_body"),
        (
            json!({ "url": "https://a.example", "args": ["x"] }),
            "bad_body",
        ),
    ] {
        let reply = edited.send("POST", "/servers/preview", &[], &body).await;
        assert_eq!(
            (reply.status, &reply.json()["error"]),
            (400, &json!(error)),
            "{body}"
        );
    }
    let source = json!({ "popular": "mdn" });
    let added = add(
        &edited,
        json!({ "from": source, "names": { "mdn": "web" } }),
    )
    .await;
    assert_eq!(added.status, 201, "{}", added.text_body());
    assert!(
        edited
            .text()
            .contains("[servers.web]\nurl = \"https://mcp.mdn.mozilla.net"),
        "{}",
        edited.text()
    );
    let refused = add(
        &edited,
        json!({ "from": { "popular": "files", "args": ["/data"] } }),
    )
    .await;
    assert_eq!(
        (refused.status, &refused.json()["error"]),
        (403, &json!("commands_not_allowed"))
    );
}

#[tokio::test]
async fn a_server_whose_variable_is_not_set_is_added_and_fails_alone() {
    let server = serve(only(legacy(), &["echo"])).await;
    // A reference in a new server needs the permission.
    let setup = Setup::new()
        .http("a", &server.url)
        .with("admin", "allow_commands = true");
    let edited = EditedGateway::with_key(setup).await;
    edited.ready("a").await;
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
    assert_eq!(
        (reply.status, &reply.json()["reload"]["outcome"]),
        (201, &json!("applied")),
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
    // It is no obstacle: to a reload, to edits of others, to its own removal.
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
    assert_eq!(
        (undone.status, &undone.json()["reload"]["outcome"]),
        (200, &json!("applied")),
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
    assert_eq!(edited.text(), before);
    // What no variable can heal is refused, and with it the whole edit.
    let wrong = json!({ "url": "http://127.0.0.1:9/mcp", "timeout": "soon", "headers": headers });
    let reply = add(
        &edited,
        json!({ "servers": { "b": wrong, "c": { "url": server.url } } }),
    )
    .await;
    assert_eq!(
        (reply.status, &reply.json()["error"]),
        (422, &json!("problems")),
        "{}",
        reply.text_body()
    );
    assert!(
        reply.text_body().contains("timeout") && edited.text() == before,
        "{}",
        reply.text_body()
    );
    for wrong in ["Bearer ${TOKEN", "${input:token}", "${a-b}"] {
        let settings =
            json!({ "url": "http://127.0.0.1:9/mcp", "headers": { "Authorization": wrong } });
        let reply = add(&edited, json!({ "servers": { "b": settings } })).await;
        assert_eq!(
            (reply.status, &reply.json()["error"]),
            (422, &json!("problems")),
            "{}",
            reply.text_body()
        );
    }
    assert_eq!(edited.text(), before);
}
