//! Address of the running gateway, for commands that connect to it. Owns the search: a flag, or
//! else the config that `serve` would find.
//!
//! Does not connect, and knows no flag of a command. Invariant: an error names the address that was
//! tried and its origin.

use std::net::SocketAddr;
use std::path::PathBuf;

use crate::cli::process;
use crate::cli::running_record::RunningRecord;
use moongate_config::{GatewayAddresses, LoadOptions};
use moongate_listener::{ListenAddress, UNIX};

/// Address to connect to, with its origin.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct LocatedGateway {
    /// Address, or `unix:PATH`.
    pub(super) address: String,
    /// Certificate of that listener. `None` means that it has no TLS.
    pub(super) certificate: Option<PathBuf>,
    /// Origin of the address, such as "gateway.listen of moongate.toml".
    pub(super) origin: String,
}

impl LocatedGateway {
    /// Returns the URL of an endpoint, such as `/mcp`.
    pub(super) fn url(&self, endpoint: &str) -> String {
        match (self.address.starts_with(UNIX), &self.certificate) {
            (true, _) if endpoint == "/mcp" => self.address.clone(),
            (true, _) => format!("{}:{endpoint}", self.address),
            (false, Some(_)) => format!("https://{}{endpoint}", self.address),
            (false, None) => format!("http://{}{endpoint}", self.address),
        }
    }

    /// Returns the advice for an address that did not answer.
    pub(super) fn advice(&self) -> String {
        format!(
            "{} is {}; is the gateway running? If not, start it with `moongate`",
            self.address, self.origin
        )
    }
}

/// Locates the endpoint of clients.
pub(super) fn endpoint(config: &[PathBuf]) -> Result<LocatedGateway, String> {
    let (addresses, origin) = addresses(config, "listen")?;
    // The first one that can be reached: messages in lines and inherited sockets cannot.
    let found = addresses
        .listen
        .iter()
        .find_map(|bound| Some((bound, local_address(bound)?)));
    let (bound, address) = found.ok_or_else(|| nowhere(&origin))?;
    // A Unix socket has no TLS, whatever the config says about TCP.
    let certificate = addresses
        .certificate
        .filter(|_| matches!(bound, ListenAddress::Tcp(_)));
    Ok(LocatedGateway {
        address,
        certificate,
        origin,
    })
}

/// Locates the admin listener.
pub(super) fn admin(config: &[PathBuf]) -> Result<LocatedGateway, String> {
    let (addresses, origin) = match addresses(config, "admin") {
        Ok(found) => found,
        // A config that somebody broke cuts nobody off from the gateway that runs with it.
        Err(problem) => return remembered(config).ok_or(problem),
    };
    let address = addresses
        .admin
        .as_ref()
        .and_then(local_address)
        .ok_or_else(|| nowhere(&origin))?;
    Ok(LocatedGateway {
        address,
        certificate: None,
        origin,
    })
}

/// Returns where the gateway was that last ran with a config.
fn remembered(config: &[PathBuf]) -> Option<LocatedGateway> {
    let address = RunningRecord::find(&process::load_options(config))?.admin?;
    let origin =
        "where the gateway of this config last ran, since the config cannot be read".to_owned();
    Some(LocatedGateway {
        address,
        certificate: None,
        origin,
    })
}

fn nowhere(origin: &str) -> String {
    format!("{origin} is not an address that can be connected to")
}

/// Returns the addresses in the config, and the origin of a setting in words.
fn addresses(config: &[PathBuf], setting: &str) -> Result<(GatewayAddresses, String), String> {
    let env = process::environment();
    let paths = process::config_paths(config, &env);
    let names: Vec<String> = paths
        .iter()
        .map(|path| path.display().to_string())
        .collect();
    let variable = format!("MOONGATE_GATEWAY__{}", setting.to_ascii_uppercase());
    let origin = match names.is_empty() {
        // The environment takes precedence over files, so it is the origin even if there are files.
        _ if env.contains_key(&variable) => format!("the variable {variable}"),
        true => format!("the default of gateway.{setting}, since there is no config"),
        false => format!("gateway.{setting} of {}", names.join(", ")),
    };
    let addresses = moongate_config::gateway_addresses(&LoadOptions::of_files(paths, env))
        .map_err(|problems| {
            format!(
                "the config does not say where the gateway is:\n{}",
                problems.to_string().trim_end()
            )
        })?;
    Ok((addresses, origin))
}

/// Returns an address to which a client on this machine can connect.
pub(super) fn local_address(address: &ListenAddress) -> Option<String> {
    match address {
        ListenAddress::Tcp(_) => address.local_addresses().first().map(SocketAddr::to_string),
        ListenAddress::Unix(path) => Some(format!("unix:{}", path.display())),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn at(text: &str) -> Result<(LocatedGateway, LocatedGateway), String> {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.toml");
        std::fs::write(&path, text).unwrap();
        let config = [path];
        Ok((endpoint(&config)?, admin(&config)?))
    }

    #[test]
    fn the_config_says_where_the_gateway_is() {
        let broken = "[servers.a]\ntypo = 1\ncommand = '${NOT_SET}'\n[[auth.keys]]\nname = \
                      'k'\nkey = '${NOT_SET}'\n";
        let text = format!(
            "[gateway]\nlisten = ['systemd', '0.0.0.0:81']\nadmin = 'unix:/run/a.sock'\n{broken}"
        );
        let (endpoint, admin) = at(&text).unwrap();
        assert_eq!(endpoint.address, "127.0.0.1:81");
        assert_eq!(admin.address, "unix:/run/a.sock");
        let advice = admin.advice();
        for word in [
            "unix:/run/a.sock is gateway.admin of",
            "a.toml",
            "`moongate`",
        ] {
            assert!(advice.contains(word), "{word}: {advice}");
        }
        let (endpoint, _) =
            at("[gateway]\nlisten = '[::]:82'\ntls = { cert = 'c.pem', key = 'k.pem' }\n").unwrap();
        assert_eq!(endpoint.address, "[::1]:82");
        assert_eq!(endpoint.certificate, Some(PathBuf::from("c.pem")));
        for unknown in [
            "[gateway]\nadmin = false\n",
            "[gateway]\nlisten = '127.0.0.1:0'\n",
            "[gateway]\nlisten = 5\n",
        ] {
            let error = at(unknown).unwrap_err();
            let names_flag = ["--url", "--admin", "--config"]
                .iter()
                .any(|flag| error.contains(flag));
            assert!(
                error.contains("gateway") && !names_flag,
                "{unknown}: {error}"
            );
        }
    }
}
