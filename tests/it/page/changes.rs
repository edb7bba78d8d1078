//! Changes that a person makes on the page: servers, tools, settings, keys. Scripts of `tests/page`
//! drive the browser.

use moongate_mock::MockHandle;
use serde_json::json;

use super::{page_home, run_script, server, tool};
use crate::harness::{Era, McpClient, Process, Setup, legacy, modern, only, serve, until};

/// Gateway as a process, with a client that stays connected.
struct ChangedGateway {
    gateway: Process,
    setup: Setup,
    client: McpClient,
    /// Config as it was at the start.
    text: String,
    /// Address of a server that is there.
    notes_url: String,
    /// Server that can be added, and killed.
    extra: Option<MockHandle>,
    second: MockHandle,
    _others: Vec<MockHandle>,
}

impl ChangedGateway {
    async fn start() -> Self {
        let named = |names: &[&str]| {
            names
                .iter()
                .map(|name| tool(name, "Does it.", json!({})))
                .collect()
        };
        let weather = serve(server(
            legacy(),
            named(&[
                "forecast",
                "watch_storm",
                "report_sighting",
                "delete_report",
            ]),
        ))
        .await;
        let notes = serve(server(modern(), named(&["note_1", "note_2"]))).await;
        let lines = format!(
            "url = {:?}\ntools = {{ deny = [\"delete_*\"] }}\nheaders = \
             {{ Authorization = \"Bearer hush-hush\" }}",
            weather.url
        );
        let setup = Setup::new()
            .lasting()
            .with("servers.weather", &lines)
            .http("notes", &notes.url);
        let gateway = setup.program().await;
        until("the servers are ready", async || {
            let ready =
                async |name: &str| gateway.status(name).await["tools_on"].as_u64() > Some(0);
            (ready("weather").await && ready("notes").await).then_some(())
        })
        .await;
        let text = std::fs::read_to_string(setup.path("moongate.toml")).unwrap();
        let client = McpClient::open(&gateway.mcp(), Era::Legacy).await;
        let extra = Some(serve(only(legacy(), &["echo", "fail"])).await);
        let second = serve(only(legacy(), &["echo", "fail"])).await;
        let notes_url = notes.url.clone();
        ChangedGateway {
            gateway,
            setup,
            client,
            text,
            notes_url,
            extra,
            second,
            _others: vec![weather, notes],
        }
    }

    fn write(&self, text: &str) {
        std::fs::write(self.setup.path("moongate.toml"), text).unwrap();
    }

    async fn lists(&self, tool: &str, wanted: bool) -> String {
        until(&format!("{tool} is listed: {wanted}"), async || {
            (self.client.tools().await.iter().any(|name| name == tool) == wanted).then_some(())
        })
        .await;
        "yes".to_owned()
    }

    /// Does what the script orders. Returns the line that answers it.
    async fn obey(&mut self, order: &str) -> String {
        let (verb, what) = order.split_once(' ').unwrap_or((order, ""));
        match verb {
            "config" => {
                let text = std::fs::read_to_string(self.setup.path("moongate.toml")).unwrap();
                return serde_json::to_string(&text).unwrap();
            }
            "client-has" => return self.lists(what, true).await,
            "client-lacks" => return self.lists(what, false).await,
            "tools-with" => {
                let client =
                    McpClient::with_key(&self.gateway.mcp(), Era::Modern, Some(what)).await;
                return client.tools().await.join(",");
            }
            "notes-url" => return self.notes_url.clone(),
            "extra-url" => return self.extra.as_ref().unwrap().url.clone(),
            "second-url" => return self.second.url.clone(),
            "kill-extra" => drop(self.extra.take()),
            "deny-forecast" => self.write(
                &self
                    .text
                    .replace("\"delete_*\"", "\"delete_*\", \"forecast\""),
            ),
            "break-config" => self.write(&format!("{}\n[servers.weather\n", self.text)),
            "move-listener" => {
                self.write(
                    &self
                        .text
                        .replace("[gateway]\n", "[gateway]\nsocket_mode = \"0660\"\n"),
                );
            }
            "restore" => self.write(&self.text),
            other => panic!("the script orders {other:?}"),
        }
        "done".to_owned()
    }
}

impl Drop for ChangedGateway {
    fn drop(&mut self) {
        // What the gateway did tells more than what the script waited for in vain.
        if std::thread::panicking() {
            eprintln!("the gateway's log:\n{}", self.gateway.log());
        }
    }
}

async fn run(script: &str) {
    let scene = ChangedGateway::start().await;
    let admin = scene
        .gateway
        .admin_url()
        .await
        .trim_start_matches("http://")
        .to_owned();
    let scene = tokio::sync::Mutex::new(scene);
    let pictures = page_home().join("pictures");
    run_script(script, &admin, &pictures, async |order| {
        scene.lock().await.obey(order).await
    })
    .await;
}

#[tokio::test]
async fn servers_tools_and_settings_are_changed_in_a_browser() {
    run("changes.mjs").await;
}

#[tokio::test]
async fn servers_are_added_in_a_browser() {
    run("add.mjs").await;
}

#[tokio::test]
async fn the_views_of_changes_are_readable_in_every_look() {
    run("looks.mjs").await;
}

#[tokio::test]
async fn keys_are_made_and_revoked_in_a_browser() {
    run("keys.mjs").await;
}
