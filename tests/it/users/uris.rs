//! URIs that clients send and servers link to: how long they may be, and which paths patterns see.

use moongate_mock::MockScript;
use serde_json::{Value, json};

use crate::harness::{
    ERAS, Era, EventStream, Gateway, McpClient, Setup, legacy, modern, only, serve, until,
};

/// Waits until so many templates of a server are in the catalogue.
async fn in_catalog(gateway: &Gateway, server: &str, templates: f64) {
    let series =
        format!("moongate_catalog_items{{kind=\"resourceTemplates\",mcp_server=\"{server}\"}}");
    let count = || async {
        gateway
            .metric(&series)
            .await
            .filter(|count| *count >= templates)
    };
    until("the templates are in the catalogue", count).await;
}

const RESOURCES_OF_B: &str = "moongate_catalog_items{kind=\"resources\",mcp_server=\"b\"}";

/// A server with these templates, and one tool with this result.
fn server(script: MockScript, templates: &[&str], result: Value) -> MockScript {
    let template = |uri: &&str| json!({"uriTemplate": uri, "name": uri});
    let contents = templates
        .iter()
        .map(|uri| ((*uri).to_owned(), json!("read")))
        .collect();
    let answers = [("links".to_owned(), result)].into();
    MockScript {
        templates: templates.iter().map(template).collect(),
        contents,
        answers,
        ..only(script, &["links"])
    }
}

/// Checks that neither a read nor a completion takes a URI of this length.
async fn assert_too_long(client: &McpClient, length: usize) {
    let long = "a".repeat(length);
    let error = client
        .request("resources/read", json!({"uri": long}))
        .await
        .error();
    assert_eq!(error["code"], -32602);
    assert!(
        error["message"].as_str().unwrap().contains("limits.uri"),
        "{error}"
    );
    let reference = json!({"type": "ref/resource", "uri": long});
    let argument = json!({"name": "a", "value": ""});
    let completed = client
        .request(
            "completion/complete",
            json!({"ref": reference, "argument": argument}),
        )
        .await;
    assert!(
        completed.error()["message"]
            .as_str()
            .unwrap()
            .contains("limits.uri"),
        "{completed:?}"
    );
}

#[tokio::test]
async fn a_long_uri_reaches_only_the_server_that_lists_it() {
    let many: Vec<String> = (0..9000).map(|n| format!("{{+a}}aab{n}{{+b}}")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    let a = serve(server(legacy(), &many, json!({}))).await;
    let listed = format!("x:{}", "y".repeat(9000));
    let b = MockScript {
        resources: vec![json!({"uri": listed, "name": "long"})],
        contents: [(listed.clone(), json!("b's"))].into(),
        ..only(modern(), &[])
    };
    let b = serve(b).await;
    let gateway = Setup::new()
        .http("a", &a.url)
        .http("b", &b.url)
        .start()
        .await;
    gateway.ready(&["a", "b"]).await;
    in_catalog(&gateway, "a", 16.0).await;
    let resources = || async {
        gateway
            .metric(RESOURCES_OF_B)
            .await
            .filter(|count| *count > 0.0)
    };
    until("the resource is in the catalogue", resources).await;
    let left_out = gateway.status("a").await["left_out"]
        .as_array()
        .unwrap()
        .len();
    assert_eq!(
        left_out,
        9000 - 16,
        "templates that begin with an expression"
    );
    for era in ERAS {
        let client = gateway.client(era).await;
        let read = client
            .request("resources/read", json!({"uri": listed}))
            .await
            .result();
        assert_eq!(read["contents"][0]["text"], "b's");
        // The head of a request has a limit of its own, and this revision has the URI there, too.
        for length in if era == Era::Legacy {
            vec![9000, 100_000, 3_000_000]
        } else {
            vec![9000]
        } {
            assert_too_long(&client, length).await;
        }
    }
    assert_eq!(a.counters().of("resources/read"), 0);
    // An endpoint of one server looks nothing up.
    let client = McpClient::open(&gateway.url("/mcp/a"), Era::Legacy).await;
    let read = client
        .request(
            "resources/read",
            json!({"uri": format!("{}aab7y", "x".repeat(9000))}),
        )
        .await
        .result();
    assert_eq!(read["contents"][0]["text"], "read");
}

#[tokio::test]
async fn long_links_in_results_pass_as_they_are() {
    let long = format!("x:{}", "y".repeat(9000));
    let data = format!("data:text/plain,{}", "z".repeat(100_000));
    let link = |uri: &str| json!({"type": "resource_link", "uri": uri, "name": "link"});
    let result = json!({"content": [link("x:short"), link(&long), link(&data)]});
    let a = serve(server(legacy(), &[], result)).await;
    let b = serve(server(legacy(), &["x:{+rest}", "data:{+rest}"], json!({}))).await;
    let gateway = Setup::new()
        .http("a", &a.url)
        .http("b", &b.url)
        .start()
        .await;
    gateway.ready(&["a", "b"]).await;
    in_catalog(&gateway, "b", 2.0).await;
    for era in ERAS {
        let client = gateway.client(era).await;
        let result = client.call("a__links", json!({})).await.result();
        let uris: Vec<&Value> = result["content"]
            .as_array()
            .unwrap()
            .iter()
            .map(|block| &block["uri"])
            .collect();
        assert_eq!(uris, ["moongate:a:x:short", &long, &data], "{era:?}");
    }
}

/// Checks that a client can neither read, complete nor subscribe to a URI.
async fn assert_refused(client: &McpClient, uri: &str) {
    client
        .request("resources/read", json!({"uri": uri}))
        .await
        .error();
    let reference = json!({"type": "ref/resource", "uri": uri});
    let argument = json!({"name": "path", "value": ""});
    client
        .request(
            "completion/complete",
            json!({"ref": reference, "argument": argument}),
        )
        .await
        .error();
    match client.era() {
        Era::Legacy => drop(
            client
                .request("resources/subscribe", json!({"uri": uri}))
                .await
                .error(),
        ),
        Era::Modern => {
            let params = json!({"notifications": {"resourceSubscriptions": [uri]}});
            let mut stream =
                EventStream::new(client.start("l", "subscriptions/listen", params).await);
            let agreed = stream.message().await.unwrap();
            assert_eq!(agreed["params"]["notifications"], json!({}), "{agreed}");
        }
    }
}

#[tokio::test]
async fn a_uri_that_patterns_would_read_differently_is_refused() {
    let mut ruled = server(legacy(), &["file:///{+path}"], json!({}));
    ruled
        .resources
        .push(json!({"uri": "file:///data/../listed", "name": "listed"}));
    let a = serve(ruled).await;
    let b = serve(server(legacy(), &["mem:///{+path}"], json!({}))).await;
    let gateway = Setup::new()
        .http("a", &a.url)
        .with(
            "servers.a",
            "resources = { allow = [\"file:///data/*\", \"file:///?+path?\"] }",
        )
        .http("b", &b.url)
        .start()
        .await;
    gateway.ready(&["a", "b"]).await;
    in_catalog(&gateway, "a", 1.0).await;
    in_catalog(&gateway, "b", 1.0).await;
    assert!(
        gateway.status("a").await["left_out"]
            .to_string()
            .contains("data/../listed")
    );
    let other_paths = [
        "file:///data/../etc/passwd",
        "file:///data/%2e%2E/etc/passwd",
        "file:///data/..%2fetc/passwd",
        "file:///data/..%5Cetc",
        "file:///data/..\\etc",
        "file:///data/./../etc",
        "file:///data/x%2Fy",
        "file:///data/../listed",
    ];
    for endpoint in ["/mcp", "/mcp/a"] {
        for era in ERAS {
            let client = McpClient::open(&gateway.url(endpoint), era).await;
            for uri in other_paths {
                for uri in [uri.to_owned(), format!("moongate:a:{uri}")] {
                    assert_refused(&client, &uri).await;
                }
            }
            client
                .request("resources/read", json!({"uri": "file:///data/a.b/..c"}))
                .await;
        }
    }
    assert_eq!(
        a.counters().of("resources/read"),
        4,
        "nothing else reached it"
    );
    assert_eq!(a.counters().of("resources/subscribe"), 0);
    assert_eq!(a.counters().of("completion/complete"), 0);
    for era in ERAS {
        let client = gateway.client(era).await;
        client
            .request("resources/read", json!({"uri": "mem:///a/../b%2f%2e"}))
            .await;
    }
    assert_eq!(
        b.counters().of("resources/read"),
        2,
        "no pattern decides there"
    );
}

#[tokio::test]
async fn a_template_with_a_longer_prefix_is_found_first() {
    let a = serve(server(legacy(), &["{+any}", "x:{+rest}"], json!({}))).await;
    let b = serve(server(legacy(), &["x:own/{+rest}"], json!({}))).await;
    let gateway = Setup::new()
        .http("a", &a.url)
        .http("b", &b.url)
        .start()
        .await;
    gateway.ready(&["a", "b"]).await;
    in_catalog(&gateway, "a", 2.0).await;
    in_catalog(&gateway, "b", 1.0).await;
    let client = gateway.client(Era::Modern).await;
    for uri in ["x:own/1", "x:1", "y:1"] {
        client
            .request("resources/read", json!({"uri": uri}))
            .await
            .result();
    }
    assert_eq!(a.counters().of("resources/read"), 2);
    assert_eq!(b.counters().of("resources/read"), 1);
}
