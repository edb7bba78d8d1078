//! Facts that the admin API computes: the cost of tools, and what is wrong.

use serde_json::{Value, json};

use crate::harness::{EditedGateway, Era, McpClient, Setup, legacy, only, serve, until};

#[tokio::test]
async fn the_context_has_the_cost_of_each_listed_tool() {
    let server = serve(only(legacy(), &["echo", "fail", "add"])).await;
    let table = format!("url = {:?}\ntools.deny = [\"add\"]", server.url);
    let setup = Setup::new()
        .with("servers.a", &table)
        .http("b", &server.url);
    let edited =
        EditedGateway::start(setup.with("views.small", "servers = [\"a\"]\ntools = [\"a__echo\"]"))
            .await;
    edited.ready("a").await;
    edited.ready("b").await;
    let client = McpClient::open(&edited.gateway.mcp(), Era::Modern).await;
    client
        .call("a__echo", json!({ "text": "x" }))
        .await
        .result();
    // The end of a call is noted a moment after its answer.
    let context = until("the call is counted", async || {
        let context = edited.get("/context").await;
        (context["tokens_called"] != 0).then_some(context)
    })
    .await;
    assert_eq!(context["endpoint"], "/mcp");
    assert_eq!(context["tools"], 5);
    let servers = context["servers"].as_array().unwrap();
    assert_eq!(servers[0]["name"], "b", "the most expensive first");
    assert_eq!(servers[1]["name"], "a", "the most expensive first");
    let sum: u64 = servers
        .iter()
        .map(|server| server["tokens"].as_u64().unwrap())
        .sum();
    assert_eq!(context["tokens"], sum);
    let tools = servers[1]["tools"].as_array().unwrap();
    let echo = tools.iter().find(|tool| tool["name"] == "echo").unwrap();
    assert_eq!(echo["exposed"], "a__echo");
    assert_eq!(echo["calls"], 1);
    assert_eq!(echo["errors"], 0);
    assert_eq!(context["tokens_called"], echo["tokens"]);
    assert_eq!(servers[1]["calls"], 1);
    for endpoint in ["small", "/mcp/small"] {
        let small = edited.get(&format!("/context?endpoint={endpoint}")).await;
        assert_eq!(small["tools"], 1, "{small}");
        assert_eq!(small["tokens"], echo["tokens"], "{small}");
    }
    assert_eq!(
        edited
            .send("GET", "/context?endpoint=none", &[], &Value::Null)
            .await
            .status,
        404
    );
}

#[tokio::test]
async fn the_doctor_of_a_running_gateway_finds_what_the_command_finds() {
    let server = serve(only(legacy(), &["echo"])).await;
    let secret = format!(
        "url = {:?}\nheaders = {{ Authorization = \"Bearer s3cr3t-value-0123456789\" }}",
        server.url
    );
    let setup = Setup::new()
        .with("servers.a", &secret)
        .with("servers.b", "command = \"no-such-program-here\"");
    let edited = EditedGateway::start(setup).await;
    edited.ready("a").await;
    let reply = edited.gateway.admin("/api/v1/doctor").await;
    assert!(
        reply.status == 200 && !reply.text_body().contains("s3cr3t"),
        "{}",
        reply.text_body()
    );
    let findings = reply.json()["findings"].as_array().unwrap().clone();
    let find = |code: &str| {
        findings
            .iter()
            .find(|finding| finding["code"] == code)
            .unwrap_or(&Value::Null)
            .clone()
    };
    let missing = find("MG-E01");
    assert_eq!(missing["server"], "b", "{findings:?}");
    assert_eq!(missing["severity"], "broken", "{findings:?}");
    assert!(
        missing["fix"].is_string() && missing["why"].is_string(),
        "{missing}"
    );
    assert_eq!(find("MG-C05")["server"], "a");
    assert_eq!(findings[0]["severity"], "broken", "the worst first");
    assert!(find("MG-S04").is_null(), "one finding is enough");
    // It reads the files as they are now.
    let broken = format!("{}[servers.c]\nurl = \"ftp://x\"\n", edited.text());
    std::fs::write(edited.setup.path("moongate.toml"), broken).unwrap();
    let findings = edited.get("/doctor").await["findings"]
        .as_array()
        .unwrap()
        .clone();
    assert!(
        findings
            .iter()
            .any(|finding| finding["code"] == "MG-C13" && finding["server"] == "c"),
        "{findings:?}"
    );
}

#[tokio::test]
async fn a_tool_that_is_off_is_shown_with_the_name_that_it_would_have() {
    let server = serve(only(legacy(), &["echo", "fail"])).await;
    let rules = "tools = { deny = [\"fail\"], rename = { fail = \"break\" } }";
    let setup = Setup::new()
        .with("servers.a", &format!("url = {:?}\n{rules}", server.url))
        .with("names", "separator = \"-\"");
    let edited = EditedGateway::start(setup).await;
    edited.ready("a").await;
    assert_eq!(edited.gateway.status("a").await["name_prefix"], "a-");
    let items = edited.get("/servers/a/items").await;
    let tool = |name: &str| {
        items["tools"]
            .as_array()
            .unwrap()
            .iter()
            .find(|tool| tool["name"] == name)
            .unwrap()
            .clone()
    };
    let on = tool("echo");
    let off = tool("fail");
    assert_eq!(on["state"], "on");
    assert_eq!(on["exposed"], "a-echo");
    assert_eq!(on["expected"], Value::Null);
    assert_eq!(off["state"], "off");
    assert_eq!(off["exposed"], Value::Null);
    assert_eq!(off["expected"], "a-break");
    let page = edited.gateway.admin("/servers/a").await.text_body();
    assert!(
        page.contains("<span class=\"tag\">a-</span>") && page.contains("tool=a-break"),
        "{page}"
    );
}

#[tokio::test]
async fn a_server_that_does_not_work_has_a_hint_with_the_code_of_the_doctor() {
    let server = serve(only(legacy(), &["echo"])).await;
    let setup = Setup::new()
        .http("a", &server.url)
        .with("servers.b", "command = \"no-such-program-here\"")
        .with("servers.c", "url = \"http://127.0.0.1:9/mcp\"")
        .with(
            "servers.d",
            "url = \"http://127.0.0.1:9/${MOONGATE_NO_SUCH_VARIABLE}\"",
        );
    let edited = EditedGateway::start(setup).await;
    edited.ready("a").await;
    for (name, state, code, text) in [
        (
            "b",
            "failed",
            "MG-E01",
            "install it, or set `servers.b.command` to its full path",
        ),
        (
            "c",
            "backing_off",
            "MG-S01",
            "start that server, or correct `servers.c`: its URL or address",
        ),
    ] {
        let hint = edited.state(name, state).await["hint"].clone();
        assert_eq!(hint["code"], code);
        assert_eq!(hint["text"], text);
        assert!(
            edited.get("/doctor").await.to_string().contains(code),
            "{code}"
        );
    }
    let page = edited.gateway.admin("/servers/b").await.text_body();
    assert!(
        page.contains(
            "To fix it: install it, or set <code>servers.b.command</code> to its full path"
        ),
        "{page}"
    );
    assert_eq!(edited.gateway.status("a").await["hint"], Value::Null);
    let misconfigured = edited.state("d", "failed").await;
    assert_eq!(
        misconfigured["hint"],
        Value::Null,
        "its reason says what to do: {misconfigured}"
    );
}

#[tokio::test]
async fn a_server_that_is_off_has_what_the_config_says_of_it() {
    let off = "url = \"https://api.example.com/mcp?key=s3cr3t\"\ntitle = \"Cost: $$5\"\nprefix \
               = \"o\"\nenabled = false\n\
               icon = \"https://a.example/i.png\"\nheaders = \
               { X = \"${MOONGATE_NO_SUCH_VARIABLE}\" }";
    let program = "command = \"npx\"\nargs = \
                   [\"-y\", \"files@1.0.0\", \"--key\", \"s3cr3t\"]\nenabled = false";
    let wrong = "url = \"no url\"\nicon = \"javascript:alert(1)\"\nenabled = false";
    let setup = Setup::new()
        .with("servers.off", off)
        .with("servers.program", program);
    let edited = EditedGateway::start(setup.with("servers.wrong", wrong)).await;
    let known = async |server: &str| {
        let server = edited.get(&format!("/servers/{server}")).await;
        let members = ["state", "title", "icon", "prefix", "transport", "target"];
        Value::from(members.map(|member| server[member].clone()).to_vec())
    };
    let url = "https://api.example.com/mcp";
    assert_eq!(
        known("off").await,
        json!([
            "disabled",
            "Cost: $5",
            "https://a.example/i.png",
            "o",
            "http",
            url
        ])
    );
    assert_eq!(
        known("program").await,
        json!([
            "disabled",
            null,
            null,
            "program",
            "stdio",
            "npx files@1.0.0"
        ])
    );
    assert_eq!(
        known("wrong").await,
        json!(["disabled", null, null, "wrong", null, null]),
        "nothing that is wrong"
    );
    assert!(
        !edited
            .gateway
            .admin("/api/v1/status")
            .await
            .text_body()
            .contains("s3cr3t")
    );
    let page = edited.gateway.admin("/").await.text_body();
    assert!(
        page.contains("Cost: $5") && page.contains(url) && !page.contains("s3cr3t"),
        "{page}"
    );
    // An edit shows at once, although no server changes.
    let reply = edited
        .patch("off", json!({ "set": { "title": "Renamed" } }))
        .await;
    assert_eq!(reply.status, 200, "{}", reply.text_body());
    assert_eq!(
        reply.json()["servers"][0]["title"],
        "Renamed",
        "{}",
        reply.text_body()
    );
    assert_eq!(reply.json()["reload"]["changes"]["changed"], json!(["off"]));
}

#[tokio::test]
async fn the_context_names_what_an_endpoint_in_search_mode_lists() {
    let server = serve(only(legacy(), &["echo", "fail"])).await;
    let setup = Setup::new()
        .http("a", &server.url)
        .with("gateway", "discovery = \"search\"\nalways = [\"a__echo\"]");
    let edited = EditedGateway::start(setup.with("views.plain", "tools = [\"*\"]")).await;
    edited.ready("a").await;
    let client = McpClient::open(&edited.gateway.mcp(), Era::Modern).await;
    let listed = client.tools().await.len();
    let context = edited.get("/context").await;
    assert_eq!(context["discovery"], "search", "{context}");
    assert_eq!(context["tools"], 2, "{context}");
    assert_eq!(
        context["tools_listed"],
        json!(listed),
        "what clients get: {context}"
    );
    assert!(context["tokens_listed"].as_u64() > Some(300), "{context}");
    let plain = edited.get("/context?endpoint=plain").await;
    assert_eq!(plain["discovery"], "full", "{plain}");
    assert_eq!(plain["tools_listed"], 2, "{plain}");
    assert_eq!(plain["tokens_listed"], plain["tokens"]);
}

#[tokio::test]
async fn the_newest_session_stands_first() {
    let server = serve(only(legacy(), &["echo"])).await;
    let edited = EditedGateway::start(Setup::new().http("a", &server.url)).await;
    edited.ready("a").await;
    let ids = async || {
        let listed = edited.get("/sessions").await["sessions"]
            .as_array()
            .unwrap()
            .clone();
        listed
            .iter()
            .map(|session| session["id"].as_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    let mut opened: Vec<String> = Vec::new();
    for _ in 0..6 {
        McpClient::open(&edited.gateway.mcp(), Era::Legacy).await;
        let listed = ids().await;
        opened.insert(
            0,
            listed
                .iter()
                .find(|id| !opened.contains(id))
                .unwrap()
                .clone(),
        );
        assert_eq!(listed, opened);
        // Two sessions of one millisecond have the order of their ids, which are random.
        tokio::time::sleep(std::time::Duration::from_millis(2)).await;
    }
    let session = edited.get("/sessions").await["sessions"][0].clone();
    assert!(
        session["since"]
            .as_str()
            .unwrap()
            .parse::<jiff::Timestamp>()
            .is_ok(),
        "{session}"
    );
    assert!(session["since_seconds"].is_u64(), "{session}");
    assert_eq!(session["streams"], 0, "{session}");
    let client = McpClient::open(&edited.gateway.mcp(), Era::Legacy).await;
    let stream = client.listen().await;
    assert_eq!(edited.get("/sessions").await["sessions"][0]["streams"], 1);
    let page = edited.gateway.admin("/sessions").await.text_body();
    assert!(
        page.contains("<th scope=\"col\" class=\"n\">Streams</th>"),
        "{page}"
    );
    drop(stream);
    until("the stream is closed", async || {
        (edited.get("/sessions").await["sessions"][0]["streams"] == 0).then_some(())
    })
    .await;
}

#[tokio::test]
async fn stateless_clients_are_listed_by_their_recent_calls() {
    let server = serve(only(legacy(), &["echo"])).await;
    let edited = EditedGateway::start(Setup::new().http("a", &server.url)).await;
    edited.ready("a").await;
    McpClient::open(&edited.gateway.mcp(), Era::Legacy)
        .await
        .call("a__echo", json!({ "text": "x" }))
        .await
        .result();
    let client = McpClient::open(&edited.gateway.mcp(), Era::Modern).await;
    for _ in 0..3 {
        client
            .call("a__echo", json!({ "text": "x" }))
            .await
            .result();
    }
    McpClient::open(&format!("{}/a", edited.gateway.mcp()), Era::Modern)
        .await
        .call("echo", json!({ "text": "x" }))
        .await
        .result();
    let clients = until("the ends of the calls are noted", async || {
        let clients = edited.get("/sessions").await["stateless"]
            .as_array()
            .unwrap()
            .clone();
        clients
            .iter()
            .all(|client| client["calls"] == 0)
            .then_some(clients)
    })
    .await;
    let facts = |n: usize| {
        ["endpoint", "recent_calls", "principal"].map(|member| clients[n][member].clone())
    };
    assert_eq!(
        facts(0),
        [json!("/mcp/a"), json!(1), json!("anybody")],
        "the last one to call first: {clients:?}"
    );
    assert_eq!(facts(1), [json!("/mcp"), json!(3), json!("anybody")]);
    assert_eq!(
        clients.len(),
        2,
        "a client with a session is none of them: {clients:?}"
    );
    assert!(
        clients[0]["client"]["name"].is_string() && clients[0]["idle_seconds"].is_u64(),
        "{clients:?}"
    );
    let page = edited.gateway.admin("/sessions").await.text_body();
    assert!(page.contains("Without a session"), "{page}");
}

#[tokio::test]
async fn the_cost_of_listed_tools_is_part_of_that_of_all() {
    let server = serve(only(legacy(), &["echo", "fail"])).await;
    // Lists name tools with their prefix, so that the server's own definitions cost less.
    let prefix = |letter: &str| format!("prefix = {:?}", letter.repeat(20));
    let setup = Setup::new()
        .http("a", &server.url)
        .http("b", &server.url)
        .with("servers.a", &prefix("p"));
    let setup = setup.with(
        "servers.b",
        &format!("{}\ntools.deny = [\"fail\"]", prefix("q")),
    );
    let gateway = setup.start().await;
    gateway.ready(&["a", "b"]).await;
    for (name, on) in [("a", 2), ("b", 1)] {
        let status = gateway.status(name).await;
        let tokens = status["tokens"].as_u64().unwrap();
        let all = status["tokens_all"].as_u64().unwrap();
        assert_eq!(status["tools_on"], on);
        assert!(
            if on == 2 { tokens == all } else { tokens < all },
            "{status}"
        );
        let series = format!("moongate_catalog_tokens{{mcp_server={name:?}}}");
        assert_eq!(gateway.metric(&series).await, Some(tokens as f64));
    }
}
