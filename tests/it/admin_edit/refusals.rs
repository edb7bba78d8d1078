//! Changes of the config that are refused: what the answers say, and that nothing is written.

use serde_json::{Value, json};

use crate::harness::{EditedGateway, HttpClient, JSON, Setup, legacy, only, serve};

#[tokio::test]
async fn what_cannot_be_changed_is_refused_and_says_why() {
    let (_server, edited) = EditedGateway::with_echo().await;
    let before = edited.text();
    for (body, status, error) in [
        (json!({}), 400, "bad_value"),
        (
            json!({ "set": { "url": "http://127.0.0.1:1/mcp" } }),
            403,
            "commands_not_allowed",
        ),
        (
            json!({ "set": { "command": "sh" } }),
            403,
            "commands_not_allowed",
        ),
        (json!({ "set": { "cmd": "sh" } }), 400, "bad_value"),
        (json!({ "set": { "title": 5 } }), 422, "problems"),
        (json!({ "set": { "timeout": "soon" } }), 422, "problems"),
        (json!({ "tools": { "off": ["ecco"] } }), 422, "unknown_tool"),
        (
            json!({ "tools": { "off": ["echo"], "on": ["echo"] } }),
            400,
            "bad_value",
        ),
        (json!({ "unknown": 1 }), 400, "bad_body"),
    ] {
        let reply = edited.patch("a", body.clone()).await;
        assert_eq!(reply.status, status, "{body}: {}", reply.text_body());
        assert_eq!(
            reply.json()["error"],
            error,
            "{body}: {}",
            reply.text_body()
        );
    }
    let problems = edited
        .patch("a", json!({ "set": { "timeout": "soon" } }))
        .await
        .json();
    assert!(
        problems["problems"][0]["message"]
            .as_str()
            .unwrap()
            .contains("timeout"),
        "{problems}"
    );
    assert!(
        problems["problems"][0]["line"].is_number() && problems["problems"][0]["hint"].is_string(),
        "{problems}"
    );
    let unknown = edited
        .patch("a", json!({ "tools": { "on": ["ecco"] } }))
        .await
        .json();
    assert_eq!(
        unknown["message"],
        "a has no tool \"ecco\"; did you mean \"echo\"?"
    );
    assert_eq!(
        edited
            .patch("none", json!({ "enabled": false }))
            .await
            .status,
        404
    );
    assert_eq!(edited.text(), before);
}

#[tokio::test]
async fn an_undo_is_refused_once_somebody_else_has_written() {
    let (_server, edited) = EditedGateway::with_echo().await;
    assert_eq!(
        edited.patch("a", json!({ "enabled": false })).await.status,
        200
    );
    let file = edited.setup.path("moongate.toml");
    let theirs = format!("{}# mine\n", edited.text());
    std::fs::write(&file, &theirs).unwrap();
    let reply = edited.send("POST", "/config/undo", &[], &json!({})).await;
    assert_eq!(reply.status, 412);
    assert_eq!(reply.json()["error"], "changed");
    assert_eq!(edited.text(), theirs);
}

#[tokio::test]
async fn a_config_that_is_gone_is_not_begun_anew() {
    let (_server, edited) = EditedGateway::with_echo().await;
    let path = edited.setup.path("moongate.toml");
    let before = edited.text();
    std::fs::remove_file(&path).unwrap();
    let server = json!({ "servers": { "b": { "url": "http://127.0.0.1:1/mcp" } } });
    for (method, route, body) in [
        ("POST", "/keys", json!({ "name": "ci" })),
        ("POST", "/servers", server),
        ("PATCH", "/servers/a", json!({ "enabled": false })),
    ] {
        let reply = edited.send(method, route, &[], &body).await;
        assert_eq!(reply.status, 409, "{}", reply.text_body());
        assert_eq!(reply.json()["error"], "no_file", "{}", reply.text_body());
        assert!(
            reply.text_body().contains("moongate.toml is gone") && !path.exists(),
            "{}",
            reply.text_body()
        );
    }
    assert_eq!(edited.gateway.status("a").await["state"], "ready");
    std::fs::write(&path, before).unwrap();
    assert_eq!(
        edited
            .patch("a", json!({ "set": { "title": "A" } }))
            .await
            .status,
        200
    );
}

#[tokio::test]
async fn a_config_that_is_kept_elsewhere_is_not_changed_here() {
    let server = serve(only(legacy(), &["echo"])).await;
    let edited = EditedGateway::start(
        Setup::new()
            .http("a", &server.url)
            .with("admin", "edit = false"),
    )
    .await;
    let before = edited.text();
    let reply = edited.patch("a", json!({ "enabled": false })).await;
    assert_eq!(reply.status, 403);
    assert_eq!(reply.json()["error"], "read_only");
    assert_eq!(reply.json()["setting"], "admin.edit");
    assert_eq!(
        edited
            .send("POST", "/config/undo", &[], &json!({}))
            .await
            .status,
        403
    );
    // What is not written can be pasted, all of it.
    let reply = edited
        .patch(
            "a",
            json!({ "tools": { "off": ["echo"] }, "set": { "title": "A" } }),
        )
        .await
        .json();
    let snippet = reply["snippet"].as_str().unwrap();
    assert!(
        snippet.contains("deny = [\"echo\"]") && snippet.contains("title = \"A\""),
        "{reply}"
    );
    // A hash without its key would be of no use.
    let key = edited
        .send("POST", "/keys", &[], &json!({ "name": "ci" }))
        .await;
    assert_eq!(key.status, 403);
    assert_eq!(key.json()["snippet"], Value::Null);
    assert!(!key.text_body().contains("sha256"));
    assert!(
        key.json()["message"]
            .as_str()
            .unwrap()
            .contains("moongate key new \"ci\""),
        "{}",
        key.text_body()
    );
    assert_eq!(edited.text(), before);
    let source = edited.get("/servers/a").await["source"].clone();
    assert_eq!(source["editable"], false);
    assert_eq!(source["why_not"], "admin.edit is false");
}

/// Ways of other pages to send a request that a browser does not ask about first.
const FOREIGN: [(&str, &[(&str, &str)]); 7] = [
    (
        "another origin",
        &[("origin", "https://evil.example"), JSON],
    ),
    ("another site", &[("sec-fetch-site", "cross-site"), JSON]),
    ("another port", &[("sec-fetch-site", "same-site"), JSON]),
    (
        "a form",
        &[
            ("content-type", "application/x-www-form-urlencoded"),
            ("origin", "null"),
        ],
    ),
    (
        "plain text",
        &[
            ("content-type", "text/plain;charset=UTF-8"),
            ("sec-fetch-mode", "no-cors"),
        ],
    ),
    ("a proxy", &[("x-forwarded-for", "203.0.113.9"), JSON]),
    ("a rebinding host", &[("host", "evil.example:9090"), JSON]),
];

#[tokio::test]
async fn other_pages_change_nothing() {
    let (_server, edited) = EditedGateway::with_echo().await;
    assert_eq!(
        edited
            .patch("a", json!({ "set": { "title": "x" } }))
            .await
            .status,
        200
    );
    let before = edited.text();
    let admin = format!("{}/api/v1", edited.gateway.admin_url().await);
    for (way, headers) in FOREIGN {
        for (method, path, body) in [
            ("PATCH", "/servers/a", json!({ "enabled": false })),
            ("DELETE", "/servers/a", json!({})),
            ("POST", "/config/undo", json!({})),
            ("POST", "/reload", json!({})),
            ("POST", "/servers/a/restart", json!({})),
            ("POST", "/servers/a/login", json!({})),
            ("POST", "/servers/a/logout", json!({})),
        ] {
            let reply = HttpClient::new()
                .send(method, &format!("{admin}{path}"), headers, body.to_string())
                .await;
            assert!(
                matches!(reply.status, 403 | 415),
                "{way}, {method} {path}: {}",
                reply.status
            );
        }
        // A page may ask beforehand, and is not told yes.
        let ask = [
            headers,
            &[
                ("access-control-request-method", "PATCH"),
                ("access-control-request-headers", "content-type"),
            ],
        ]
        .concat();
        let reply = HttpClient::new()
            .send("OPTIONS", &format!("{admin}/servers/a"), &ask, "")
            .await;
        let allowed = reply.headers.get("access-control-allow-origin");
        assert!(allowed.is_none(), "{way}: {allowed:?}");
        assert_eq!(edited.text(), before, "{way}");
    }
}
