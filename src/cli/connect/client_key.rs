//! Key of one client's entry, where none is given.
//!
//! Owns the choice: the key that the entry has, or a variable that the client reads. Does not make
//! keys (`new_key`). Invariant: an entry never loses its key to a gateway that needs one.

use anyhow::{anyhow, bail};

use super::args::{ConnectArgs, DEFAULT_VARIABLE};
use super::change::ClientFile;
use super::endpoint::is_of_config;
use crate::app::configured_servers::self_addresses;
use crate::cli::process::load_options;
use moongate_clients::import::SelfAddresses;
use moongate_clients::{ClientProfile, ConnectKey, ConnectRequest, client_entry};
use moongate_config::Plan;
use url::Url;

/// Demand of the gateway for keys, as far as the config here shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KeyDemand {
    /// The config has keys, so each client needs one.
    Needed,
    /// People log in at the gateway in their browser. Keys open it, too.
    Login,
    /// The config has none.
    NotNeeded,
    /// The gateway is another one, or its config cannot be read.
    Unknown,
}

impl KeyDemand {
    /// Reads the config.
    pub(super) fn of(args: &ConnectArgs, url: &str) -> Self {
        let options = load_options(&args.config);
        // A gateway that runs with another config may still have keys.
        if options.paths.is_empty()
            || !(is_of_config(args) || self_addresses(&options).has_url(url))
        {
            return KeyDemand::Unknown;
        }
        match moongate_config::load(&options) {
            Ok(loaded) if loaded.plan.auth.is_open() => KeyDemand::NotNeeded,
            Ok(loaded) if logs_people_in(&loaded.plan, url) => KeyDemand::Login,
            Ok(_) => KeyDemand::Needed,
            Err(_) => KeyDemand::Unknown,
        }
    }
}

impl KeyDemand {
    /// Returns true if a client without a key would be refused.
    pub(super) fn needs_key(self, profile: &ClientProfile, request: &ConnectRequest) -> bool {
        match self {
            KeyDemand::Needed => true,
            // Our bridge sends only keys.
            KeyDemand::Login => request.is_bridged(profile),
            KeyDemand::NotNeeded | KeyDemand::Unknown => false,
        }
    }
}

/// Returns the request with the key that this client's entry gets.
pub(super) fn request_of_client(
    args: &ConnectArgs,
    demand: KeyDemand,
    profile: &ClientProfile,
    request: &ConnectRequest,
    file: &ClientFile,
    own: &SelfAddresses,
) -> anyhow::Result<ConnectRequest> {
    if request.key.is_some() || demand == KeyDemand::NotNeeded {
        return Ok(request.clone());
    }
    let kept = file.own_key(profile, &request.name, own);
    let key = match kept.map_err(|error| anyhow!("{error}; {}", advice(profile)))? {
        Some(key) => key,
        None if !demand.needs_key(profile, request) => return Ok(request.clone()),
        None if args.key_inline => bail!(
            "the gateway needs a key, but {DEFAULT_VARIABLE} is not set here; {}",
            advice(profile)
        ),
        None => ConnectKey::Variable {
            name: DEFAULT_VARIABLE.to_owned(),
            value: None,
        },
    };
    let keyed = ConnectRequest {
        key: Some(key),
        ..request.clone()
    };
    if client_entry(profile, &keyed).is_err() {
        bail!(
            "the gateway needs a key, but this client cannot read one from a variable; {}",
            advice(profile)
        );
    }
    Ok(keyed)
}

/// Returns true if a client at this URL finds the login of people. Discovery answers only under
/// the public URL.
fn logs_people_in(plan: &Plan, url: &str) -> bool {
    let public = plan.auth.broker.as_ref().map(|broker| &broker.public_url);
    let asked = Url::parse(url).ok();
    public
        .zip(asked)
        .is_some_and(|(public, asked)| public.origin() == asked.origin())
}

fn advice(profile: &ClientProfile) -> String {
    format!(
        "`moongate connect {} --write --key NAME` makes one",
        profile.id
    )
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::collections::BTreeMap;
    use std::path::PathBuf;

    use moongate_config::LoadOptions;

    use super::*;

    const GATEWAY: &str = "[gateway]\npublic_url = 'https://mcp.example.com'\n";
    const LOGIN: &str = "[auth.oauth]\nissuer = 'https://login.example.com'\n\
                         client_id = 'moongate'\n\
                         [[auth.roles]]\nname = 'staff'\nmatch = { anyone = true }\n";

    fn plan(text: &str) -> Plan {
        let file = PathBuf::from("moongate.toml");
        let options = LoadOptions {
            texts: BTreeMap::from([(file.clone(), text.to_owned())]),
            ..LoadOptions::of_files(vec![file], BTreeMap::new())
        };
        moongate_config::load(&options).unwrap().plan
    }

    #[test]
    fn people_log_in_under_the_public_url_alone() {
        let with_login = plan(&format!("{GATEWAY}{LOGIN}"));
        assert!(logs_people_in(&with_login, "https://mcp.example.com/mcp/a"));
        for url in [
            "http://127.0.0.1:8080/mcp",
            "http://mcp.example.com/mcp",
            "https://mcp.example.com:8443/mcp",
            "unix:/run/moongate.sock",
        ] {
            assert!(!logs_people_in(&with_login, url), "{url}");
        }
        assert!(!logs_people_in(
            &plan(GATEWAY),
            "https://mcp.example.com/mcp"
        ));
    }
}
