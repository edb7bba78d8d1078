//! Configs for a company's login in the README and the guide: each starts a gateway, and Claude
//! Code, Cursor and claude.ai log in to it.
//!
//! Owns the substitutes for addresses in the text. Does not check prose. Invariant: apart from
//! the provider, addresses and secrets, the config is verbatim.

use std::path::Path;

use moongate_mock::MockHandle;

use super::browser::PersonBrowser;
use super::client::LoginClient;
use super::documents::DocumentHost;
use super::provider::{GATEWAY_ID, Provider};
use super::shapes::{CURSOR, ClientShape, ShapeIdentity};
use super::world::people;
use crate::harness::{Process, lasting_port, legacy, only, serve, until};

/// Claude Code, where no client documents are taken.
const CLAUDE_CODE: ClientShape = ClientShape {
    name: "Claude Code",
    seen: "2026-09, its registration",
    identity: ShapeIdentity::Registration(
        r#"{
            "client_name": "Claude Code (moongate)",
            "redirect_uris": ["http://localhost:53123/callback"],
            "grant_types": ["authorization_code", "refresh_token"],
            "response_types": ["code"],
            "token_endpoint_auth_method": "none"
        }"#,
    ),
    redirect: "http://localhost:53123/callback",
    scope: None,
    more: &[],
};

/// claude.ai, where no client documents are taken.
const CLAUDE_AI: ClientShape = ClientShape {
    name: "claude.ai",
    seen: "2026-09, its registration",
    identity: ShapeIdentity::Registration(
        r#"{
            "client_name": "Claude",
            "redirect_uris": ["https://claude.ai/api/mcp/auth_callback"],
            "grant_types": ["authorization_code", "refresh_token"],
            "response_types": ["code"],
            "token_endpoint_auth_method": "client_secret_post"
        }"#,
    ),
    redirect: "https://claude.ai/api/mcp/auth_callback",
    scope: Some("mcp"),
    more: &[],
};

fn read(page: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    std::fs::read_to_string(root.join(page)).unwrap()
}

/// Returns the configs of a page whose `[auth.oauth]` begins with this key.
fn configs(page: &str, first_key: &str) -> Vec<String> {
    let beginning = format!("[auth.oauth]\n{first_key} = ");
    let text = read(page);
    let blocks = text.split("```toml\n").skip(1);
    let configs = blocks.map(|block| block.split("```").next().unwrap().to_owned());
    configs
        .filter(|config| config.contains(&beginning))
        .collect()
}

/// Gateway with a config of the text.
struct TextGateway {
    gateway: Process,
    provider: Provider,
    server: MockHandle,
    origin: String,
}

impl TextGateway {
    async fn start(config: &str) -> TextGateway {
        let provider = Provider::start().await;
        let server = serve(only(legacy(), &["echo", "second"])).await;
        let port = lasting_port();
        let origin = format!("http://127.0.0.1:{port}");
        provider.set_redirect(format!("{origin}/oauth/provider"));
        let dir = tempfile::tempdir().unwrap();
        let state = dir.path().join("state");
        let mut text = String::new();
        for line in config.lines() {
            let key = line.split(" = ").next().unwrap_or_default();
            let here = match key {
                "[gateway]" => format!(
                    "{line}\nlisten = \"127.0.0.1:{port}\"\nadmin = \"127.0.0.1:0\"\n\
                     state_dir = {state:?}"
                ),
                // The address of a provider that has a name follows from its tenant.
                "listen" | "tenant" => continue,
                "public_url" => format!("public_url = {origin:?}"),
                "issuer" | "provider" => format!("issuer = {:?}", provider.origin()),
                "client_id" => format!("client_id = {GATEWAY_ID:?}"),
                "client_secret" => format!("client_secret = {:?}", provider.client_secret()),
                _ => line.to_owned(),
            };
            text += &here;
            text.push('\n');
        }
        text += &format!("\n[servers.files]\nurl = {:?}\n", server.url);
        let path = dir.path().join("moongate.toml");
        std::fs::write(&path, text).unwrap();
        let gateway = Process::of(&path, dir).await;
        until("the server has its tools", async || {
            let status = gateway.status("files").await;
            (status["tools_on"].as_u64() == Some(2)).then_some(())
        })
        .await;
        TextGateway {
            gateway,
            provider,
            server,
            origin,
        }
    }

    /// Logs in with a client, and calls a tool.
    async fn log_in(&self, shape: &ClientShape, host: &DocumentHost) {
        let endpoint = format!("{}/mcp", self.origin);
        let mut client = LoginClient::discover(&endpoint, shape).await;
        client.identify(shape, host).await;
        let mut browser = PersonBrowser::new(&self.origin, self.provider.origin());
        let answer = browser.log_in(&client.address()).await;
        let tokens = client.exchange(&client.code_of(&answer), host).await;
        client.call(&tokens.access).await;
        assert!(self.server.last_request("tools/call").is_some());
    }
}

/// Logs in with each client, at a gateway for each config.
async fn log_in_with(configs: Vec<String>) {
    assert!(!configs.is_empty(), "the page has a config");
    let host = DocumentHost::start().await;
    for config in configs {
        let gateway = TextGateway::start(&config).await;
        for shape in [&CLAUDE_CODE, &CURSOR, &CLAUDE_AI] {
            gateway.log_in(shape, &host).await;
        }
        assert_eq!(people(&gateway.gateway).await.len(), 3, "{config}");
    }
}

/// Only a provider that is named by its URL can be on loopback, and the groups of the others have
/// ids of their own. `moongate check` reads those configs (`readme::blocks`).
#[tokio::test]
async fn the_configs_of_the_guide_log_people_in() {
    log_in_with(configs("docs/guides/company-login.md", "issuer")).await;
}

/// Everybody at the provider has its role, so another one can take the place of Entra.
#[tokio::test]
async fn the_config_of_the_readme_logs_people_in_and_has_ten_lines() {
    let configs = configs("README.md", "provider");
    for config in &configs {
        let lines = config.lines().filter(|line| !line.is_empty());
        assert_eq!(lines.count(), 10, "{config}");
    }
    log_in_with(configs).await;
    assert!(read("README.md").contains("docs/guides/company-login.md"));
}
