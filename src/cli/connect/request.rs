//! Request to connect clients, as the flags describe it.
//!
//! Owns the key that is given, and the address. Does not read clients' files, and does not choose a
//! key for one of them (`client_key`). Invariant: words that mean nothing are errors before
//! anything is written.

use std::collections::BTreeMap;

use super::args::{ConnectArgs, DEFAULT_VARIABLE};
use super::endpoint::{check_endpoint, endpoint_url};
use moongate_clients::{ConnectKey, ConnectRequest, ConnectRoute, LauncherVariables, StartCommand};

/// Builds the request of the flags.
pub(super) fn request(
    args: &ConnectArgs,
    env: &BTreeMap<String, String>,
) -> Result<ConnectRequest, String> {
    check_name(&args.name)?;
    check_endpoint(args)?;
    let url = endpoint_url(args)?;
    let value = env
        .get(&args.key_env)
        .map(|key| key.trim().to_owned())
        .filter(|key| !key.is_empty());
    let key = match value {
        None if args.key_env != DEFAULT_VARIABLE => {
            return Err(format!("the variable {} is not set", args.key_env));
        }
        None => None,
        // Such a key would break the header that carries it, and a client's message about that
        // helps nobody.
        Some(key) if !key.bytes().all(|byte| byte.is_ascii_graphic()) => {
            return Err(format!(
                "the key in {} has characters that a key cannot contain",
                args.key_env
            ));
        }
        Some(key) if args.key_inline => Some(ConnectKey::Value(key)),
        Some(key) => Some(ConnectKey::Variable {
            name: args.key_env.clone(),
            value: Some(key),
        }),
    };
    let program = std::env::current_exe()
        .map_err(|error| format!("the path of this program is unknown: {error}"))?;
    let route = if args.stdio {
        ConnectRoute::Bridge
    } else {
        ConnectRoute::Best
    };
    let start = StartCommand::find(
        &program,
        &LauncherVariables::of_process(),
        env!("CARGO_PKG_VERSION"),
    );
    Ok(ConnectRequest {
        name: args.name.clone(),
        url,
        key,
        route,
        start,
    })
}

/// Checks the name of an entry by the rule for server names. Clients split `mcp__NAME__TOOL` at the
/// underscores, and such a name needs no quotes in files or commands.
fn check_name(name: &str) -> Result<(), String> {
    if moongate_config::legal_server_name(name).as_deref() == Some(name) {
        return Ok(());
    }
    Err(format!(
        "--name {name:?}: use at most 64 letters, digits, `-` and `_`, start with a letter or a \
         digit, and do not put two underscores in a row"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_no_client_could_use_is_refused() {
        let longest = "a".repeat(64);
        for name in ["moongate", "my-gate", "my_gate", "2", longest.as_str()] {
            assert_eq!(check_name(name), Ok(()), "{name}");
        }
        let too_long = "a".repeat(65);
        for name in [
            "",
            "a b",
            "a.b",
            "_x",
            "-x",
            "my__gate",
            "m\u{f6}n",
            too_long.as_str(),
        ] {
            let refused = check_name(name);
            assert!(
                refused
                    .as_ref()
                    .is_err_and(|error| error.starts_with("--name")),
                "{refused:?}"
            );
        }
    }
}
