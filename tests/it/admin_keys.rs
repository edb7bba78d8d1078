//! Keys of clients and operators through the admin API: what is shown, what is written, and who is
//! locked out.

use serde_json::{Value, json};

use crate::harness::{
    EditedGateway, Era, EventStream, HttpClient, HttpReply, JSON, McpClient, Setup, legacy, only,
    serve, until,
};

async fn with_key(
    edited: &EditedGateway,
    key: &str,
    method: &str,
    path: &str,
    body: &Value,
) -> HttpReply {
    edited
        .send(
            method,
            path,
            &[("authorization", &format!("Bearer {key}"))],
            body,
        )
        .await
}

async fn initialize(edited: &EditedGateway, key: Option<&str>) -> u16 {
    let key = key.map(|key| format!("Bearer {key}"));
    let headers: Vec<(&str, &str)> = key
        .iter()
        .map(|key| ("authorization", key.as_str()))
        .chain([JSON])
        .collect();
    let body = moongate_testing::messages::initialize(1, "2025-11-25", "test", &json!({}));
    HttpClient::new()
        .send("POST", &edited.gateway.mcp(), &headers, body)
        .await
        .status
}

/// Checks the list of keys, in which the new key is the first.
async fn assert_new_key_is_listed(edited: &EditedGateway) {
    let listed = edited.get("/keys").await["clients"][0].clone();
    assert_eq!(listed["name"], "lap$top");
    assert_eq!(listed["views"], json!(["a"]));
    assert_eq!(listed["tools"], json!(["a__*"]));
    assert_eq!(listed["rate"], "100/min");
    assert_eq!(listed["expires"], "2999-12-31T00:00:00Z");
    assert_eq!(listed["last_used"], Value::Null);
    assert_eq!(listed["expired"], false);
    assert_eq!(listed["editable"], true);
    let prefix = listed["hash_prefix"].as_str().unwrap();
    assert!(
        prefix.len() == 8 && edited.text().contains(&format!("sha256:{prefix}")),
        "{prefix}"
    );
    let line = listed["line"].as_u64().unwrap() as usize;
    assert!(
        edited
            .text()
            .lines()
            .nth(line - 1)
            .unwrap()
            .contains("lap$$top"),
        "{line}: {}",
        edited.text()
    );
}

/// Makes a second key, `ci`, whose name is then taken.
async fn add_second_key(edited: &EditedGateway) {
    let second = edited
        .send("POST", "/keys", &[], &json!({ "name": "ci" }))
        .await
        .json();
    assert_eq!(second["first_key"], false);
    assert_eq!(second["outcome"], "changed");
    let twin = edited
        .send("POST", "/keys", &[], &json!({ "name": "ci" }))
        .await;
    assert_eq!(twin.status, 409);
    assert_eq!(twin.json()["error"], "already_there");
}

#[tokio::test]
async fn a_key_is_shown_once_and_the_first_one_closes_the_endpoint() {
    let (_server, edited) = EditedGateway::with_echo().await;
    let before = edited.text();
    assert_eq!(
        edited.get("/keys").await,
        json!({ "clients": [], "operators": [] })
    );
    assert_ne!(initialize(&edited, None).await, 401);
    let body = json!({ "name": "lap$top", "tools": ["a__*"], "views": ["a"], "rate": "100/min",
        "expires": "2999-12-31" });
    let made = edited.send("POST", "/keys", &[], &body).await;
    assert_eq!(made.status, 201, "{}", made.text_body());
    assert_eq!(
        made.header("cache-control"),
        "no-store",
        "{}",
        made.text_body()
    );
    let made = made.json();
    let key = made["key"].as_str().unwrap().to_owned();
    assert_eq!(made["first_key"], true);
    assert_eq!(made["name"], "lap$top");
    assert_eq!(made["undo"], true);
    assert_eq!(made["reload"]["outcome"], "applied");
    assert_eq!(made["outcome"], "changed");
    assert!(
        key.starts_with("mg_")
            && !edited.text().contains(&key)
            && !made["diff"].as_str().unwrap().contains(&key)
    );
    assert_eq!(initialize(&edited, None).await, 401);
    assert_eq!(initialize(&edited, Some("mg_wrong")).await, 401);
    assert_new_key_is_listed(&edited).await;
    let client = McpClient::with_key(&edited.gateway.mcp(), Era::Modern, Some(&key)).await;
    client
        .call("a__echo", json!({ "text": "x" }))
        .await
        .result();
    assert!(edited.get("/keys").await["clients"][0]["last_used"].is_string());
    add_second_key(&edited).await;
    let removed = edited.send("DELETE", "/keys/ci", &[], &Value::Null).await;
    assert_eq!(removed.status, 200, "{}", removed.text_body());
    assert_eq!(removed.json()["last_key"], false, "{}", removed.text_body());
    let removed = edited
        .send("DELETE", "/keys/lap$top", &[], &Value::Null)
        .await;
    assert_eq!(removed.status, 200, "{}", removed.text_body());
    assert_eq!(removed.json()["last_key"], true, "{}", removed.text_body());
    assert_ne!(initialize(&edited, None).await, 401);
    assert_eq!(edited.text(), before, "nothing is left of them");
}

#[tokio::test]
async fn what_no_key_can_be_is_refused() {
    let edited = EditedGateway::start(Setup::new()).await;
    let before = edited.text();
    for (body, status, error) in [
        (json!({ "name": "" }), 400, "bad_name"),
        (json!({ "name": "a\u{7}b" }), 400, "bad_name"),
        (json!({ "name": "a", "role": "operate" }), 400, "bad_value"),
        (
            json!({ "name": "a", "list": "operators", "role": "operate", "tools": ["*"] }),
            400,
            "bad_value",
        ),
        (json!({ "name": "a", "list": "others" }), 400, "bad_body"),
        (json!({ "name": "a", "key": "mine" }), 400, "bad_body"),
        (json!({ "name": "a", "views": ["none"] }), 422, "problems"),
        (json!({ "name": "a", "rate": "often" }), 422, "problems"),
        (json!({ "name": "a", "expires": "soon" }), 422, "problems"),
        (
            json!({ "name": "a", "expires": "2020-01-01" }),
            400,
            "bad_value",
        ),
        (
            json!({ "name": "a", "list": "operators", "role": "root" }),
            422,
            "problems",
        ),
        (
            json!({ "name": "a", "list": "operators" }),
            409,
            "last_operator",
        ),
        (
            json!({ "name": "a", "list": "operators", "role": "view" }),
            409,
            "last_operator",
        ),
    ] {
        let reply = edited.send("POST", "/keys", &[], &body).await;
        assert_eq!(reply.status, status, "{body}: {}", reply.text_body());
        assert_eq!(
            reply.json()["error"],
            error,
            "{body}: {}",
            reply.text_body()
        );
    }
    for (path, status) in [
        ("/keys/none", 404),
        ("/keys/none?list=operators", 404),
        ("/keys/none?list=x", 400),
    ] {
        assert_eq!(
            edited.send("DELETE", path, &[], &Value::Null).await.status,
            status,
            "{path}"
        );
    }
    assert_eq!(edited.text(), before);
}

/// Makes a key that may only view; it is refused to make another one with it.
async fn assert_viewers_make_no_keys(edited: &EditedGateway, ada: &str, body: &Value) {
    let viewer = json!({ "name": "eve", "list": "operators" });
    let viewer = with_key(edited, ada, "POST", "/keys", &viewer).await.json()["key"].clone();
    let refused = with_key(edited, viewer.as_str().unwrap(), "POST", "/keys", body).await;
    assert_eq!(refused.status, 403);
    assert_eq!(refused.json()["error"], "role_not_allowed");
}

/// Signs in as Ada, and removes her own key with that session, which ends.
async fn remove_own_key_in_a_session(edited: &EditedGateway, ada: &str) {
    let signin = edited
        .send("POST", "/signin", &[], &json!({ "key": ada }))
        .await;
    let cookie = signin
        .header("set-cookie")
        .split(';')
        .next()
        .unwrap()
        .to_owned();
    let own = [
        ("cookie", cookie.as_str()),
        ("sec-fetch-site", "same-origin"),
    ];
    let url = format!("{}/api/v1/events", edited.gateway.admin_url().await);
    let mut stream = EventStream::new(HttpClient::new().open("GET", &url, &own, "").await);
    assert!(stream.next().await.is_some());
    let removed = edited
        .send("DELETE", "/keys/ada?list=operators", &own, &Value::Null)
        .await;
    assert_eq!(removed.status, 200, "{}", removed.text_body());
    assert_eq!(
        edited.send("GET", "/me", &own, &Value::Null).await.status,
        401
    );
    while stream.next().await.is_some() {}
}

#[tokio::test]
async fn operators_cannot_lock_themselves_out_and_sessions_end_with_their_key() {
    let edited = EditedGateway::start(Setup::new()).await;
    let operator = |name: &str| json!({ "name": name, "list": "operators", "role": "operate" });
    let first = edited
        .send("POST", "/keys", &[], &operator("ada"))
        .await
        .json();
    assert_eq!(first["first_key"], true);
    let ada = first["key"].as_str().unwrap();
    assert_eq!(
        edited.send("GET", "/keys", &[], &Value::Null).await.status,
        401,
        "from now on a key is needed"
    );
    let listed = with_key(&edited, ada, "GET", "/keys", &Value::Null)
        .await
        .json()["operators"][0]
        .clone();
    assert_eq!(listed["name"], "ada");
    assert_eq!(listed["role"], "operate");
    assert!(
        listed["last_used"].is_string() && listed["line"].is_number(),
        "{listed}"
    );
    let last = with_key(
        &edited,
        ada,
        "DELETE",
        "/keys/ada?list=operators",
        &Value::Null,
    )
    .await;
    assert_eq!(last.status, 409, "{}", last.text_body());
    assert_eq!(last.json()["setting"], "admin.keys", "{}", last.text_body());
    assert_eq!(last.json()["error"], "last_operator");
    assert_viewers_make_no_keys(&edited, ada, &operator("eve2")).await;
    let bob = with_key(&edited, ada, "POST", "/keys", &operator("bob"))
        .await
        .json()["key"]
        .clone();
    remove_own_key_in_a_session(&edited, ada).await;
    assert_eq!(
        with_key(&edited, ada, "GET", "/me", &Value::Null)
            .await
            .status,
        401
    );
    assert_eq!(
        with_key(&edited, bob.as_str().unwrap(), "GET", "/me", &Value::Null)
            .await
            .status,
        200
    );
}

#[tokio::test]
async fn a_gateway_for_other_machines_keeps_its_last_key() {
    let key = "name = \"ci\"\nkey = \"client-key-number-1-0123456789\"";
    let setup = Setup::new()
        .lasting()
        .with("gateway", "listen = \"0.0.0.0:0\"")
        .with("auth.keys.1", key);
    let edited = EditedGateway::with(setup).await;
    let before = edited.text();
    let refused = edited.send("DELETE", "/keys/ci", &[], &Value::Null).await;
    assert_eq!(refused.status, 422);
    assert_eq!(refused.json()["error"], "problems");
    assert_eq!(edited.text(), before);
}

#[tokio::test]
async fn what_an_expired_key_has_open_ends() {
    let server = serve(only(legacy(), &["sleep"])).await;
    let expires = jiff::Timestamp::now() + std::time::Duration::from_secs(4);
    let key = "client-key-number-1-0123456789";
    let entry = format!("name = \"ci\"\nkey = {key:?}\nexpires = \"{expires}\"");
    let edited = EditedGateway::start(
        Setup::new()
            .http("a", &server.url)
            .with("auth.keys.1", &entry),
    )
    .await;
    edited.ready("a").await;
    let client = McpClient::with_key(&edited.gateway.mcp(), Era::Legacy, Some(key)).await;
    let headers = client.headers();
    let headers: Vec<(&str, &str)> = headers
        .iter()
        .map(|(name, value)| (*name, value.as_str()))
        .collect();
    let get = [&headers[..], &[("accept", "text/event-stream")]].concat();
    let mut stream = EventStream::new(
        HttpClient::new()
            .open("GET", &edited.gateway.mcp(), &get, "")
            .await,
    );
    let call = client.call("a__sleep", json!({ "ms": 600_000 }));
    let (reply, ()) = tokio::join!(call, async { while stream.next().await.is_some() {} });
    assert!(
        !reply.text_body().contains("slept"),
        "{}",
        reply.text_body()
    );
    let sessions = || async {
        edited.get("/sessions").await["sessions"]
            .as_array()
            .unwrap()
            .len()
    };
    until("no session is left", async || {
        (sessions().await == 0).then_some(())
    })
    .await;
    assert_eq!(initialize(&edited, Some(key)).await, 401);
    assert_eq!(
        edited.get("/keys").await["clients"][0]["expired"],
        true,
        "the key itself stays in the config"
    );
}
