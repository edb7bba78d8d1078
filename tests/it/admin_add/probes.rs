//! Probes of new servers: what a preview learns from a server, and whom it never asks.

use moongate_mock::{FaultAction, FaultRule};
use serde_json::{Value, json};

use super::{add, preview};
use crate::harness::{EditedGateway, Setup, legacy, modern, only, serve};

#[tokio::test]
async fn a_probe_tells_how_a_server_answers() {
    for script in [legacy(), modern()] {
        let server = serve(only(script, &["echo", "fail"])).await;
        let edited = EditedGateway::start(Setup::new()).await;
        let before = edited.text();
        let looked = preview(&edited, json!({ "url": server.url, "probe": true })).await;
        let probe = &looked["servers"][0]["probe"];
        assert_eq!(probe["transport"], "http", "{looked}");
        assert_eq!(probe["tools"], 2, "{looked}");
        assert_eq!(probe["fault"], Value::Null, "{looked}");
        assert_eq!(probe["tool_names"], json!(["echo", "fail"]));
        assert_eq!(probe["needs_login"], false);
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
async fn a_probe_tells_a_login_from_refused_credentials() {
    for (status, headers, needs_login) in [
        (401, json!({}), true),
        (401, json!({ "Authorization": "Bearer wrong" }), false),
        (403, json!({}), false),
    ] {
        let refusal = FaultAction::Status {
            status,
            headers: [("www-authenticate".to_owned(), "Bearer".to_owned())].into(),
            body: String::new(),
            content_type: None,
        };
        let locked = serve(legacy().with_fault(FaultRule::on("*", refusal))).await;
        let edited = EditedGateway::start(Setup::new()).await;
        let body = json!({ "url": locked.url, "headers": headers, "probe": true });
        let server = preview(&edited, body).await["servers"][0].clone();
        let probe = &server["probe"];
        assert_eq!(probe["needs_login"], needs_login, "{server}");
        let name = server["name"].as_str().unwrap();
        let expected = match needs_login {
            true => format!("{name} needs a login: moongate login {name}"),
            false => format!("it answers with HTTP status {status}"),
        };
        assert_eq!(probe["fault"]["message"], expected, "{server}");
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
        assert_eq!(added.status, 403, "{url}");
        assert_eq!(added.json()["error"], "address_not_allowed", "{url}");
        assert!(
            added
                .text_body()
                .contains("cloud would be a cloud metadata service"),
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
