//! The admin page in a browser: `tests/page/page.mjs` drives Chromium at a gateway with mock
//! servers.
//!
//! `tests/page/setup.sh` installs the browser's drivers. This starts the gateway, and does what the
//! script orders.

mod changes;
mod many_tools;

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, UNIX_EPOCH};

use moongate_mock::{MockHandle, MockScript};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::Command;

use moongate_testing::HttpEndpoint;
use moongate_testing::messages::initialize;

use crate::harness::{
    Era, HttpClient, McpClient, Process, Setup, lasting_port, legacy, modern, only, serve, until,
};

const DESCRIPTION: &str = "</p><script>fetch('http://attacker.example')</script><img \
                           src=\"http://attacker.example/x.png\"> \
                           \u{202e}desrever\u{202c} zero\u{200b}width \u{7}bell **bold** \
                           [link](http://attacker.example)";

/// Key of the operator who signs in.
const OPERATOR: &str = "operator-key-0123456789";

fn tool(name: &str, description: &str, annotations: Value) -> Value {
    let properties = json!({
        "text": { "type": "string", "description": "What to ask for." },
        "days": { "type": "integer", "description": "Days ahead, 1 to 14." },
    });
    json!({
        "name": name, "description": description, "annotations": annotations,
        "inputSchema": { "type": "object", "properties": properties, "required": ["text"] },
    })
}

/// A server that offers these tools, the first of which echoes.
fn server(script: MockScript, tools: Vec<Value>) -> MockScript {
    let first = tools[0]["name"].as_str().unwrap().to_owned();
    let behave = [
        (first, "echo".to_owned()),
        ("watch_storm".to_owned(), "sleep".to_owned()),
    ];
    MockScript {
        tools,
        behave: behave.into(),
        ..only(script, &[])
    }
}

struct PageScene {
    setup: Setup,
    gateway: Option<Process>,
    notes: Option<MockHandle>,
    _others: Vec<MockHandle>,
    admin: String,
    /// Clients whose sessions stay open.
    clients: Vec<McpClient>,
}

impl PageScene {
    async fn start() -> Self {
        let weather = vec![
            tool(
                "forecast",
                "Weather of the next days at a place.",
                json!({ "readOnlyHint": true, "openWorldHint": true }),
            ),
            tool(
                "watch_storm",
                "Waits until a storm is near.\nAnswers late.",
                json!({ "readOnlyHint": true }),
            ),
            tool(
                "report_sighting",
                "Adds what you saw to the map.",
                json!({ "readOnlyHint": false }),
            ),
            tool(
                "delete_report",
                "Removes a report for good.",
                json!({ "destructiveHint": true }),
            ),
        ];
        let weather = serve(server(legacy(), weather)).await;
        let notes = (1..=12)
            .map(|n| {
                tool(
                    &format!("note_{n}"),
                    "Reads and writes a note.",
                    Value::Null,
                )
            })
            .collect();
        let notes = serve(server(modern(), notes)).await;
        let long = "long_".repeat(30);
        let hostile = vec![
            tool("innocent", DESCRIPTION, Value::Null),
            tool(&long, DESCRIPTION, Value::Null),
        ];
        let hostile = serve(MockScript {
            name: DESCRIPTION.to_owned(),
            ..server(legacy(), hostile)
        })
        .await;
        let admin = format!("127.0.0.1:{}", lasting_port());
        let url = |mock: &MockHandle| format!("url = {:?}", mock.url);
        let setup = Setup::new()
            .lasting()
            .with("gateway", &format!("admin = {admin:?}"))
            .with(
                "servers.weather",
                &format!(
                    "{}\ntitle = \"Weather\"\ntools = \
                     {{ deny = [\"delete_*\", \"delete_raport\"] }}",
                    url(&weather)
                ),
            )
            .with(
                "views.reading",
                "servers = [\"weather\", \"notes\"]\ntools = \
                                    [\"*forecast\", \"*note_1\"]",
            )
            .with("servers.notes", &url(&notes))
            .with("servers.zoo", &url(&hostile))
            .with(
                "servers.files",
                "command = \"sh\"\nargs = [\"-c\", \"echo no such folder >&2; \
                                    exit 3\"]",
            )
            .with("servers.tickets", "url = \"http://127.0.0.1:9/mcp\"")
            .with("servers.archive", "url = \"${ARCHIVE_URL}\"")
            .with(
                "servers.old",
                "url = \"http://127.0.0.1:9/mcp\"\nenabled = false",
            );
        let mut scene = PageScene {
            setup,
            gateway: None,
            notes: Some(notes),
            _others: vec![weather, hostile],
            admin,
            clients: Vec::new(),
        };
        scene.start_gateway().await;
        scene
    }

    async fn start_gateway(&mut self) {
        let gateway = self.setup.program().await;
        until("the servers are ready", async || {
            let ready = gateway.status("weather").await["state"] == "ready";
            (ready && gateway.status("zoo").await["state"] == "ready").then_some(())
        })
        .await;
        self.gateway = Some(gateway);
    }

    fn endpoint(&self) -> String {
        self.gateway.as_ref().unwrap().mcp()
    }

    /// Does what the script orders. Returns the line that answers it.
    async fn obey(&mut self, order: &str) -> String {
        match order {
            "call" => {
                let client = McpClient::open(&self.endpoint(), Era::Modern).await;
                let at = UNIX_EPOCH.elapsed().unwrap().as_millis();
                client
                    .call("weather__forecast", json!({ "text": "rain" }))
                    .await
                    .result();
                return at.to_string();
            }
            "failing-call" => {
                let client = McpClient::open(&self.endpoint(), Era::Legacy).await;
                client
                    .call("weather__forecats", json!({ "text": "rain" }))
                    .await
                    .error();
            }
            "slow-call" => {
                let client = McpClient::open(&self.endpoint(), Era::Modern).await;
                tokio::spawn(async move {
                    client
                        .call("weather__watch_storm", json!({ "ms": 60_000 }))
                        .await
                        .status
                });
            }
            "session" => {
                for _ in 0..2 {
                    let client = McpClient::open(&self.endpoint(), Era::Legacy).await;
                    client
                        .call("weather__forecast", json!({ "text": "sun" }))
                        .await
                        .result();
                    self.clients.push(client);
                }
            }
            "cursor" => {
                let hello = initialize(1, "2025-06-18", "cursor-vscode", &json!({}));
                HttpEndpoint::open_session(&self.endpoint(), &hello).await;
            }
            "kill-server" => drop(self.notes.take()),
            "stop-gateway" => {
                self.clients.clear();
                let mut gateway = self.gateway.take().unwrap();
                gateway.signal(rustix::process::Signal::KILL);
                gateway.ended().await;
            }
            "start-gateway" => self.start_gateway().await,
            "ask-for-keys" => {
                drop(self.gateway.take());
                let setup = std::mem::replace(&mut self.setup, Setup::new());
                self.setup = setup.with(
                    "admin.keys.1",
                    &format!("name = \"me\"\nkey = {OPERATOR:?}\nrole = \"operate\""),
                );
                self.gateway = Some(self.setup.program().await);
                return OPERATOR.to_owned();
            }
            "ticket" => {
                let url = format!("http://{}/api/v1/tickets", self.admin);
                let bearer = format!("Bearer {OPERATOR}");
                let reply = HttpClient::new()
                    .send("POST", &url, &[("authorization", &bearer)], "")
                    .await;
                return reply.json()["path"].as_str().unwrap().to_owned();
            }
            other => panic!("the script orders {other:?}"),
        }
        "done".to_owned()
    }
}

fn target() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR"))
        .parent()
        .unwrap()
        .to_owned()
}

/// Folder of the browser's drivers.
pub(crate) fn page_home() -> PathBuf {
    let home = target().join("page");
    assert!(
        home.join("npm/.stamp").is_file(),
        "the browser's drivers are missing: run tests/page/setup.sh"
    );
    home
}

/// Runs a script of `tests/page` at an admin listener, and does what it orders.
pub(crate) async fn run_script(
    name: &str,
    admin: &str,
    pictures: &Path,
    obey: impl AsyncFn(&str) -> String,
) {
    let mut script = Command::new("node")
        .arg(
            Path::new(env!("CARGO_MANIFEST_DIR"))
                .join("tests/page")
                .join(name),
        )
        .env("PAGE_HOME", page_home())
        .env("PAGE_BASE", format!("http://{admin}"))
        .env("PAGE_PICTURES", pictures)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut input = script.stdin.take().unwrap();
    let output = script.stdout.take().unwrap();
    let mut lines = BufReader::new(output).lines();
    let mut said = Vec::new();
    let run = async {
        while let Some(line) = lines.next_line().await.unwrap() {
            if let Some(order) = line.strip_prefix("do: ") {
                let answer = obey(order).await;
                input
                    .write_all(format!("{answer}\n").as_bytes())
                    .await
                    .unwrap();
            }
            said.push(line);
        }
    };
    let ended = tokio::time::timeout(Duration::from_secs(500), run).await;
    assert!(
        ended.is_ok(),
        "the script did not end:\n{}",
        said.join("\n")
    );
    let status = script.wait().await.unwrap();
    let failed: Vec<&str> = said
        .iter()
        .filter_map(|line| line.strip_prefix("FAILED: "))
        .collect();
    assert!(
        status.success(),
        "{status}\n{}\nall:\n{}",
        failed.join("\n"),
        said.join("\n")
    );
}

#[tokio::test]
async fn the_page_works_in_a_browser() {
    let scene = PageScene::start().await;
    let admin = scene.admin.clone();
    let scene = tokio::sync::Mutex::new(scene);
    let pictures = page_home().join("pictures");
    run_script("page.mjs", &admin, &pictures, async |order| {
        scene.lock().await.obey(order).await
    })
    .await;
}

/// Types are comments in the scripts, so that browsers run what is in the tree, without a build.
#[tokio::test]
async fn the_scripts_of_the_page_pass_strict_type_checks() {
    let compiler = page_home().join("npm/node_modules/typescript/bin/tsc");
    let project = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/page");
    let checked = Command::new("node")
        .arg(compiler)
        .arg("-p")
        .arg(project)
        .output()
        .await
        .unwrap();
    assert!(
        checked.status.success(),
        "{}",
        String::from_utf8_lossy(&checked.stdout)
    );
}

/// A page as a browser asks for it.
async fn ask_for_page(admin: &str, path: &str) -> crate::harness::HttpReply {
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
        html.find("row-a-fail") < html.find("Not listed to clients"),
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
            "As now, in search mode",
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
        context.contains("in search mode") && !context.contains("<dt>As now</dt>"),
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
        assert_eq!(
            (
                reply.header("x-content-type-options"),
                reply.header("referrer-policy")
            ),
            ("nosniff", "no-referrer")
        );
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
    assert_eq!(
        (api.status, api.header("content-type")),
        (401, "application/json")
    );
    assert_eq!(ask_for_page(&admin, "/parts/servers").await.status, 401);
    let bearer = [("authorization", "Bearer admin-key-number-1-0123456789")];
    let page = HttpClient::new()
        .send("GET", &format!("http://{admin}/"), &bearer, "")
        .await;
    assert_eq!(page.status, 200);
}
