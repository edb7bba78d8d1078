//! Servers of the config's files, as they are written, for those who compare others with them.
//!
//! Owns the reading. Does not resolve settings (`moongate_config::load`). Invariant: nothing is written.

use std::path::Path;

use anyhow::Context;

use moongate_clients::import::{KnownServer, OwnGateway};
use moongate_config::LoadOptions;
use moongate_server::ListenAddress;

/// Servers of the files, and what else an import asks for.
pub(crate) struct ConfiguredServers {
    /// Servers of all files.
    pub(crate) known: Vec<KnownServer>,
    /// Key of the servers in the file that gets new ones, such as `mcpServers`.
    pub(crate) wrapper: &'static str,
}

impl ConfiguredServers {
    /// Reads the files of a config. New servers go into `target`.
    pub(crate) fn read(options: &LoadOptions<'_>, target: &Path) -> anyhow::Result<Self> {
        let (mut known, mut wrapper) = (Vec::new(), "servers");
        for path in options.paths.iter().filter(|path| path.exists()) {
            let text = std::fs::read_to_string(path).with_context(|| format!("{} cannot be read", path.display()))?;
            let read =
                moongate_config::server_entries(path, &text).map_err(|problems| anyhow::anyhow!("{problems}"))?;
            // The servers are written under the key that the file already uses.
            if *path == *target {
                wrapper = read.wrapper.unwrap_or(wrapper);
            }
            known.extend(
                read.servers.into_iter().map(|entry| KnownServer { name: entry.name, settings: entry.settings }),
            );
        }
        Ok(ConfiguredServers { known, wrapper })
    }
}

/// Returns the addresses of the gateway that this config is for.
pub(crate) fn own_gateway(options: &LoadOptions<'_>) -> OwnGateway {
    let listen = moongate_config::gateway_addresses(options).map(|addresses| addresses.listen).unwrap_or_default();
    let tcp = listen.iter().filter_map(|address| match address {
        // `0.0.0.0` is no address to connect to: clients' entries have the loopback address instead.
        ListenAddress::Tcp(address) if address.ip().is_unspecified() => Some(format!("127.0.0.1:{}", address.port())),
        ListenAddress::Tcp(address) => Some(address.to_string()),
        _ => None,
    });
    OwnGateway { addresses: tcp.collect() }
}
