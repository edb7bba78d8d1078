//! The page's HTML, as a browser asks for it: what it shows of endpoints, tools and costs, and its
//! headers. No script runs here.

use serde_json::json;

use crate::harness::{Era, HttpClient, HttpReply, Setup, legacy, only, serve};

/// A page as a browser asks for it.
async fn ask_for_page(admin: &str, path: &str) -> HttpReply {
    HttpClient::new()
        .send(
            "GET",
            &format!("http://{admin}{path}"),
            &[("accept", "text/html,*/*;q=0.8")],
            "",
        )
        .await
}

#[tokio::test]
async fn tools_and_costs_are_those_of_the_chosen_endpoint() {
    let server = serve(only(legacy(), &["echo", "fail"])).await;
    let gateway = Setup::new()
        .http("a", &server.url)
        .with(
            "servers.b",
            &format!("url = {:?}\ntools = {{ deny = [\"fail\"] }}", server.url),
        )
        .with(
            "views.small",
            "servers = [\"a\", \"b\"]\ntools = [\"a__echo\"]",
        )
        .start()
        .await;
    gateway.ready(&["a", "b"]).await;
    let admin = gateway.app.admin.unwrap().to_string();
    let rows = async |path: &str| {
        let html = ask_for_page(&admin, path).await.text_body();
        let ids = html
            .split("id=\"row-")
            .skip(1)
            .map(|rest| rest.split('"').next().unwrap().to_owned());
        (ids.collect::<Vec<_>>(), html)
    };
    assert_eq!(
        rows("/tools").await.0,
        ["a-echo", "a-fail", "b-echo", "b-fail"]
    );
    assert_eq!(
        rows("/tools?endpoint=small").await.0,
        ["a-echo"],
        "a view has exposed tools only"
    );
    let (of_b, html) = rows("/tools?endpoint=b&open=b%2Fecho").await;
    assert_eq!(of_b, ["b-echo", "b-fail"]);
    assert!(
        html.contains("/mcp/b</code>") && html.contains("<dd><code>echo</code>"),
        "names are the server's: {html}"
    );
    let (found, html) = rows("/tools?q=fail").await;
    assert_eq!(found, ["a-fail", "b-fail"], "what is off stands apart");
    assert!(
        html.find("row-a-fail") < html.find("Not listed for clients"),
        "{html}"
    );
    assert!(
        rows("/tools?endpoint=gone")
            .await
            .1
            .contains("There is no endpoint")
    );
    let context = ask_for_page(&admin, "/context?endpoint=small")
        .await
        .text_body();
    assert!(
        context.contains("/mcp/small</code> lists 1 tool"),
        "{context}"
    );
    let connect = ask_for_page(&admin, "/connect?client=cursor&endpoint=small")
        .await
        .text_body();
    assert!(
        connect.contains("/mcp/small") && connect.contains("Waiting for Cursor"),
        "{connect}"
    );
}

#[tokio::test]
async fn the_command_for_a_client_makes_its_key_where_one_is_needed() {
    for (key, command) in [
        (None, "--write"),
        (Some("cursor"), "--write --key cursor-2"),
    ] {
        let mut setup = Setup::new().stdio("a", &legacy());
        if let Some(name) = key {
            setup = setup.with(
                "auth.keys.1",
                &format!("name = {name:?}\nkey = \"mg_a_key_that_is_long_enough_0123456789\""),
            );
        }
        let gateway = setup.start().await;
        let admin = gateway.app.admin.unwrap().to_string();
        let connect = ask_for_page(&admin, "/connect?client=cursor")
            .await
            .text_body();
        assert!(
            connect.contains(&format!("moongate connect cursor {command}<")),
            "{connect}"
        );
    }
}

#[tokio::test]
async fn the_context_shows_what_search_mode_would_cost() {
    for script in [only(legacy(), &["echo"]), legacy()] {
        let server = serve(script).await;
        let setup = Setup::new()
            .http("a", &server.url)
            .with("views.found", "discovery = \"search\"");
        let gateway = setup.start().await;
        gateway.ready(&["a"]).await;
        let admin = gateway.app.admin.unwrap().to_string();
        let page = async |path: &str| ask_for_page(&admin, path).await.text_body();
        let cost = |html: &str, what: &str| {
            let rest = html.split(&format!("<dt>{what}</dt><dd><b>")).nth(1)?;
            Some(rest.split("</b>").next()?.to_owned())
        };
        let found = cost(
            &page("/context?endpoint=found").await,
            "Now, in search mode",
        );
        assert!(found.is_some());
        assert_eq!(cost(&page("/context").await, "Search mode"), found);
        assert_eq!(
            cost(&page("/context?endpoint=a").await, "Search mode"),
            None,
            "it has whole lists always"
        );
    }
}

#[tokio::test]
async fn the_page_shows_what_a_model_would_see() {
    let server = serve(only(legacy(), &["echo", "fail"])).await;
    let gateway = Setup::new()
        .http("a", &server.url)
        .with("gateway", "discovery = \"search\"")
        .start()
        .await;
    gateway.ready(&["a"]).await;
    let admin = gateway.app.admin.unwrap().to_string();
    let client = gateway.client(Era::Modern).await;
    for words in ["echo", "qqqq"] {
        let answer = client
            .call("search_tools", json!({ "query": words }))
            .await
            .result();
        let text = answer["content"][0]["text"].as_str().unwrap().to_owned();
        let html = ask_for_page(&admin, &format!("/tools?q={words}&model=1"))
            .await
            .text_body();
        let shown = text
            .replace('&', "&amp;")
            .replace('<', "&lt;")
            .replace('>', "&gt;")
            .replace('"', "&quot;");
        assert!(html.contains(&shown), "{shown}\n{html}");
    }
    let context = ask_for_page(&admin, "/context").await.text_body();
    assert!(
        context.contains("in search mode") && !context.contains("<dt>Now</dt>"),
        "{context}"
    );
}

#[tokio::test]
async fn a_rule_that_matches_nothing_is_told_on_the_card() {
    let server = serve(only(legacy(), &["echo", "fail"])).await;
    let entry = format!(
        "url = {:?}\ntools = {{ deny = [\"*fail*\", \"nonexist\"] }}",
        server.url
    );
    let gateway = Setup::new()
        .http("other", &server.url)
        .with("servers.a", &entry)
        .start()
        .await;
    gateway.ready(&["a", "other"]).await;
    let admin = gateway.app.admin.unwrap().to_string();
    let closed = ask_for_page(&admin, "/").await.text_body();
    assert_eq!(
        closed.matches("1 rule matches nothing").count(),
        1,
        "only at its server: {closed}"
    );
    assert!(!closed.contains("nonexist"), "{closed}");
    let open = ask_for_page(&admin, "/servers/a?tab=log").await.text_body();
    assert!(
        open.contains("servers.a.tools.deny: no tool matches &quot;nonexist&quot;"),
        "in each tab: {open}"
    );
    assert!(
        open.contains("protects nothing") && !open.contains("*fail*"),
        "{open}"
    );
}

#[tokio::test]
async fn an_empty_gateway_leads_to_the_first_server() {
    let gateway = Setup::new().start().await;
    let admin = gateway.app.admin.unwrap().to_string();
    let html = ask_for_page(&admin, "/").await.text_body();
    assert!(
        html.contains("Nothing is connected yet") && html.contains("/add?tab=popular"),
        "{html}"
    );
}

#[tokio::test]
async fn the_page_has_strict_headers_and_needs_a_key_where_the_api_does() {
    let mut gateway = Setup::new().start().await;
    let admin = gateway.app.admin.unwrap().to_string();
    for path in [
        "/",
        "/tools",
        "/calls",
        "/sessions",
        "/people",
        "/context",
        "/connect",
        "/parts/servers",
        "/assets/app.css",
        "/assets/js/live.js",
    ] {
        let reply = ask_for_page(&admin, path).await;
        assert_eq!(reply.status, 200, "{path}");
        let policy = reply.header("content-security-policy");
        assert!(
            policy.starts_with("default-src 'none'; script-src 'self'; ")
                && !policy.contains("unsafe"),
            "{policy}"
        );
        assert_eq!(reply.header("x-content-type-options"), "nosniff");
        assert_eq!(reply.header("referrer-policy"), "no-referrer");
        let caching = if path.starts_with("/assets") {
            "no-cache"
        } else {
            "no-store"
        };
        assert_eq!(reply.header("cache-control"), caching, "{path}");
    }
    let missing = ask_for_page(&admin, "/servers/none").await;
    assert_eq!(missing.status, 404);
    assert!(
        missing.text_body().contains("There is no server “none”"),
        "{}",
        missing.text_body()
    );
    let other_page = [("sec-fetch-site", "cross-site")];
    let refused = HttpClient::new()
        .send("GET", &format!("http://{admin}/"), &other_page, "")
        .await;
    assert_eq!(refused.status, 403);
    let key = "name = \"me\"\nkey = \"admin-key-number-1-0123456789\"";
    gateway
        .change(|setup| setup.with("admin.keys.1", key))
        .await;
    let signed_out = ask_for_page(&admin, "/").await;
    assert_eq!(signed_out.status, 401);
    assert!(
        signed_out.text_body().contains("moongate status")
            && !signed_out.text_body().contains("Servers")
    );
    assert!(!signed_out.header("content-security-policy").is_empty());
    assert_eq!(
        ask_for_page(&admin, "/assets/app.css").await.status,
        200,
        "the style has no secret"
    );
    let api = ask_for_page(&admin, "/api/v1/status").await;
    assert_eq!(api.status, 401);
    assert_eq!(api.header("content-type"), "application/json");
    assert_eq!(ask_for_page(&admin, "/parts/servers").await.status, 401);
    let bearer = [("authorization", "Bearer admin-key-number-1-0123456789")];
    let page = HttpClient::new()
        .send("GET", &format!("http://{admin}/"), &bearer, "")
        .await;
    assert_eq!(page.status, 200);
}
