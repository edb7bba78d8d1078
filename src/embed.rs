//! Gateway inside another Rust program. Owns the short way from a config's text to a running
//! gateway. Does not read configs (`moongate_config`) or serve requests (`app`). Invariant: nothing
//! that belongs to the whole process changes, such as its signal handlers, its log or its
//! allocator.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, bail};

use crate::app::GatewayApp;
use moongate_config::LoadOptions;
use moongate_model::UpstreamState;
use moongate_protocol::SUPPORTED;

/// Name under which errors mention the config's text.
const CONFIG_NAME: &str = "moongate.toml";

/// Gateway that runs in this process, until [`EmbeddedGateway::stop`].
pub struct EmbeddedGateway(GatewayApp);

impl EmbeddedGateway {
    /// Starts a gateway from the text of a config, in TOML. References such as `${TOKEN}` are read
    /// from `variables`, and `MOONGATE_*` settings are, too.
    ///
    /// Returns when the listeners accept clients, and connects the servers afterwards. Must run
    /// inside a Tokio runtime. Fails with every problem of the config, or if an address can't be
    /// bound.
    pub async fn start(config: &str, variables: BTreeMap<String, String>) -> anyhow::Result<Self> {
        let file = PathBuf::from(CONFIG_NAME);
        let options = LoadOptions {
            paths: vec![file.clone()],
            texts: BTreeMap::from([(file, config.to_owned())]),
            env: variables,
            revisions: &SUPPORTED,
            ..LoadOptions::default()
        };
        let loaded = moongate_config::load(&options)?;
        Ok(EmbeddedGateway(GatewayApp::start(loaded.plan, None).await?))
    }

    /// Returns the URL of the endpoint over all servers, on the first listener that has an address.
    pub fn url(&self) -> anyhow::Result<String> {
        let address = self
            .0
            .addresses
            .first()
            .context("gateway.listen has no address, only sockets")?;
        let scheme = if self.0.is_secure() { "https" } else { "http" };
        Ok(format!("{scheme}://{address}/mcp"))
    }

    /// Waits until a server is ready. Fails with its reason if it isn't in time, or with the
    /// servers' names if the server is unknown.
    pub async fn wait_ready(&self, server: &str, limit: Duration) -> anyhow::Result<()> {
        let servers = self.0.gateway.servers();
        let Some(found) = servers
            .iter()
            .find(|found| found.settings.name.as_str() == server)
        else {
            let names: Vec<&str> = servers
                .iter()
                .map(|server| server.settings.name.as_str())
                .collect();
            bail!(
                "there is no server {server:?}; the config has {}",
                names.join(", ")
            );
        };
        let mut status = found.upstream.watch();
        let ready = status.wait_for(|status| status.state == UpstreamState::Ready);
        if tokio::time::timeout(limit, ready).await.is_err() {
            let reason = found.upstream.status().reason;
            bail!("server {server:?} isn't ready after {limit:?}: {reason}");
        }
        Ok(())
    }

    /// Stops the gateway in order: refuses new requests, lets calls finish within `gateway.drain`,
    /// and stops the servers.
    pub async fn stop(self) {
        self.0.stop().await;
    }
}
