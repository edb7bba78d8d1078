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

/// Demand of the gateway for keys, as far as the config here shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KeyDemand {
    /// The config has keys, so each client needs one.
    Needed,
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
            Ok(_) => KeyDemand::Needed,
            Err(_) => KeyDemand::Unknown,
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
        None if demand == KeyDemand::Unknown => return Ok(request.clone()),
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

fn advice(profile: &ClientProfile) -> String {
    format!(
        "`moongate connect {} --write --key NAME` makes one",
        profile.id
    )
}
