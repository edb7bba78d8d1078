//! Config files as far as others are compared with them: their servers as written, the variables
//! that their references use, and the gateway's own addresses.
//!
//! Owns the reading. Does not resolve settings (`moongate_config::load`). Invariant: nothing is
//! written.

use std::collections::BTreeMap;

use moongate_clients::import::{KnownServer, SelfAddresses};
use moongate_config::LoadOptions;
use moongate_edit::ConfigFile;
use moongate_listener::ListenAddress;

/// Reads the servers of all files of a config.
pub(crate) fn known_servers(options: &LoadOptions<'_>) -> anyhow::Result<Vec<KnownServer>> {
    let mut known = Vec::new();
    for path in options.paths.iter().filter(|path| path.exists()) {
        let file = ConfigFile::read(path)?;
        let read =
            moongate_config::parse_servers(path, file.text()).map_err(anyhow::Error::from)?;
        known.extend(read.servers.into_iter().map(|entry| KnownServer {
            name: entry.name,
            settings: entry.settings,
        }));
    }
    Ok(known)
}

/// Returns the variables that references of the config stand for: those of its env file, and those
/// of the process.
pub(crate) fn reference_variables(options: &LoadOptions<'_>) -> BTreeMap<String, String> {
    let file = moongate_config::env_file_in_config(options).ok().flatten();
    let mut variables = file
        .map(|path| moongate_config::env_file_variables(&path))
        .unwrap_or_default();
    variables.extend(options.env.clone());
    variables
}

/// Returns the addresses of the gateway that this config is for.
pub(crate) fn self_addresses(options: &LoadOptions<'_>) -> SelfAddresses {
    let Ok(gateway) = moongate_config::gateway_addresses(options) else {
        return SelfAddresses::default();
    };
    let mut addresses = Vec::new();
    for address in &gateway.listen {
        match address {
            // Nobody connects to `0.0.0.0`: clients' entries have a loopback address instead.
            ListenAddress::Tcp(_) => {
                let local = address.local_addresses();
                addresses.extend(local.iter().map(ToString::to_string));
            }
            ListenAddress::Unix(_) => addresses.push(address.to_string()),
            ListenAddress::TcpLines(_) | ListenAddress::Inherited(_) => {}
        }
    }
    let public = gateway.public_url.map(|url| {
        let endpoint = format!("{}/mcp", url.as_str().trim_end_matches('/'));
        SelfAddresses::of_url(&endpoint).addresses
    });
    addresses.extend(public.into_iter().flatten());
    SelfAddresses { addresses }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn own(gateway: &str) -> SelfAddresses {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("moongate.toml");
        std::fs::write(&path, format!("[gateway]\n{gateway}\n")).unwrap();
        self_addresses(&LoadOptions::of_files(vec![path], BTreeMap::new()))
    }

    #[test]
    fn every_address_of_a_listener_leads_here() {
        for (listen, urls) in [
            (
                "127.0.0.1:81",
                &["http://127.0.0.1:81/mcp", "http://localhost:81/mcp"][..],
            ),
            (
                "[::1]:81",
                &["http://[::1]:81/mcp", "http://localhost:81/mcp"],
            ),
            (
                "0.0.0.0:81",
                &[
                    "http://127.0.0.1:81/mcp",
                    "http://[::1]:81/mcp",
                    "http://0.0.0.0:81/mcp",
                ],
            ),
            (
                "[::]:81",
                &[
                    "http://127.0.0.1:81/mcp",
                    "http://[::1]:81/mcp",
                    "http://gate.localhost:81/mcp",
                ],
            ),
        ] {
            let own = own(&format!("listen = '{listen}'"));
            for url in urls {
                assert!(own.has_url(url), "{listen}: {url}");
            }
            assert!(!own.has_url("http://localhost:82/mcp"), "{listen}");
        }
        assert!(!own("listen = '[::1]:81'").has_url("http://127.0.0.1:81/mcp"));
    }

    #[test]
    fn the_public_address_leads_here_too() {
        let own = own("listen = 'unix:/run/m.sock'\npublic_url = 'https://gate.example/tools/'");
        assert!(
            own.has_url("https://gate.example/tools/mcp/coding"),
            "{own:?}"
        );
        assert!(own.has_url("unix:/run/m.sock"), "{own:?}");
        assert!(!own.has_url("https://gate.example/mcp"), "{own:?}");
    }
}
