//! Popular servers, which are previewed and added by name.

use serde_json::{Value, json};

use super::{add, preview};
use crate::harness::{EditedGateway, Setup};

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
    assert_eq!(deepwiki["added"], true);
    assert_eq!(files["added"], false);
    assert_eq!(find("mdn")["added"], false);
    for member in ["title", "purpose", "url", "key", "probed", "stale"] {
        assert!(deepwiki.get(member).is_some(), "{member}: {deepwiki}");
    }
    assert!(files["command"].is_string() && files["url"].is_null());
    let looked = preview(&edited, json!({ "popular": "mdn" })).await;
    assert_eq!(looked["servers"][0]["name"], "mdn");
    assert_eq!(looked["servers"][0]["state"], "new");
    assert_eq!(
        preview(&edited, json!({ "popular": "deepwiki" })).await["servers"][0]["state"],
        "same"
    );
    let looked = preview(&edited, json!({ "popular": "files", "args": ["/data"] })).await;
    assert_eq!(looked["servers"][0]["needs_command"], true, "{looked}");
    assert_eq!(looked["diff"], Value::Null, "{looked}");
    assert!(
        looked["servers"][0]["target"]
            .as_str()
            .unwrap()
            .ends_with(" /data"),
        "{looked}"
    );
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
}

#[tokio::test]
async fn popular_servers_are_refused_with_the_reason() {
    let edited = EditedGateway::start(Setup::new()).await;
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
        assert_eq!(reply.status, 400, "{body}");
        assert_eq!(reply.json()["error"], error, "{body}");
    }
    let refused = add(
        &edited,
        json!({ "from": { "popular": "files", "args": ["/data"] } }),
    )
    .await;
    assert_eq!(refused.status, 403);
    assert_eq!(refused.json()["error"], "commands_not_allowed");
}
