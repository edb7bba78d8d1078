//! However a gateway came to its config: it is the same as one that started with it.

use serde_json::{Value, json};

use crate::harness::{Era, Gateway, McpClient, Setup, legacy, modern, only, serve, until};

const KEYS: [&str; 2] = ["key-number-1-0123456789", "key-number-2-0123456789"];

/// A small generator, so that every run tries the same configs.
struct ConfigRng(u64);

impl ConfigRng {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }

    fn pick<'a>(&mut self, choices: &[&'a str]) -> &'a str {
        choices[usize::try_from(self.roll(choices.len() as u64)).unwrap()]
    }
}

/// Some config over these servers.
fn some(mut setup: Setup, rng: &mut ConfigRng, urls: &[(&str, String)]) -> Setup {
    for table in [
        "servers.a",
        "servers.b",
        "servers.c",
        "views.v",
        "auth.keys.1",
        "auth.keys.2",
        "names",
    ] {
        setup = setup.without(table);
    }
    let mut names = Vec::new();
    for (name, url) in urls {
        if rng.roll(4) == 0 {
            continue;
        }
        names.push(*name);
        setup = setup.http(name, url);
        let rules = rng.pick(&[
            "",
            "prefix = \"p\"",
            "prefix = \"\"",
            "tools = { deny = [\"x\"] }",
            "tools = { rename = { x = \"y\" } }",
            "timeout = \"9s\"",
            "headers = { X-Other = \"1\" }",
        ]);
        setup = setup.with(&format!("servers.{name}"), rules);
    }
    setup = setup.with(
        "names",
        rng.pick(&["", "separator = \"--\"", "max_length = 24"]),
    );
    if let Some(name) = names.first() {
        let tools = rng.pick(&["", "tools = [\"*x*\"]"]);
        setup = setup.with("views.v", &format!("servers = [{name:?}]\n{tools}"));
    }
    for (n, key) in KEYS.iter().enumerate() {
        // The first is always there.
        if n == 0 || rng.roll(2) == 0 {
            let tools = rng.pick(&["", "tools = [\"*\", \"!*x\"]", "tools = [\"a__*\"]"]);
            setup = setup.with(
                &format!("auth.keys.{}", n + 1),
                &format!("name = \"k{n}\"\nkey = {key:?}\n{tools}"),
            );
        }
    }
    setup
}

/// What every key gets at every endpoint.
async fn everything(gateway: &Gateway) -> Value {
    let mut all = json!({});
    for endpoint in ["/mcp", "/mcp/v", "/mcp/a", "/mcp/b", "/mcp/c"] {
        for key in KEYS {
            let client = McpClient::with_key(&gateway.url(endpoint), Era::Modern, Some(key)).await;
            for method in ["tools/list", "prompts/list", "resources/list"] {
                let reply = client.request_as(1, method, json!({})).await;
                let mut seen = json!({"status": reply.status});
                for list in ["tools", "prompts", "resources"] {
                    if reply.status == 200 && reply.answer()["result"][list].is_array() {
                        seen[list] = reply.answer()["result"][list].clone();
                    }
                }
                all[format!("{method} at {endpoint} with {key}")] = seen;
            }
        }
    }
    all
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reloaded_gateway_equals_one_started_with_the_same_config() {
    let mocks = [
        (
            "a",
            serve(only(legacy(), &["x", "long-name-of-a-tool-that-is-cut"])).await,
        ),
        ("b", serve(modern()).await),
        ("c", serve(only(modern(), &["x", "y"])).await),
    ];
    let urls = mocks
        .iter()
        .map(|(name, mock)| (*name, mock.url.clone()))
        .collect::<Vec<_>>();
    let mut rng = ConfigRng(42);
    let mut gateway = some(Setup::new(), &mut rng, &urls).start().await;
    for round in 0..12 {
        let seed = rng.0;
        gateway
            .change(|setup| some(setup, &mut ConfigRng(seed), &urls))
            .await;
        let fresh = some(Setup::new(), &mut rng, &urls).start().await;
        let names: Vec<String> = fresh
            .app
            .gateway
            .servers()
            .iter()
            .map(|s| s.settings.name.clone())
            .collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        for gateway in [&fresh, &gateway] {
            for name in &names {
                gateway.state(name, "ready").await;
            }
        }
        let mut last = (Value::Null, Value::Null);
        // A server that is replaced, or new, is listed a moment after it is ready.
        let what = format!("round {round}, seed {seed}");
        let same = until(&what, || async {
            let both = (everything(&fresh).await, everything(&gateway).await);
            (both.0 == both.1).then_some(())
        });
        let same = tokio::time::timeout(std::time::Duration::from_secs(15), same).await;
        if same.is_err() {
            last = (everything(&fresh).await, everything(&gateway).await);
        }
        assert_eq!(last.0, last.1, "round {round}, seed {seed}");
        fresh.app.stop().await;
    }
    gateway.app.stop().await;
}
