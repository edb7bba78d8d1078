//! Check of a client's entry, by doing what the client would do.
//!
//! Owns the connection that the entry describes. Does not read the client's format
//! (`moongate-config`). Invariant: nothing of the check outlives it.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, bail};
use serde::Deserialize;
use serde_json::Value;
use tokio::time::Instant;

use super::change::ClientFile;
use crate::cli::client::{ProbeOutcome, probe_command, probe_url};
use crate::cli::process::{environment, print_message};
use moongate_clients::{ClientProfile, ConnectKey, ConnectRequest, KEY_VARIABLE};

/// Time in which a running gateway reads a changed config.
const RELOAD_WAIT: Duration = Duration::from_secs(10);
const RETRY_PAUSE: Duration = Duration::from_millis(250);

/// Waits until the running gateway knows the key of a request, or refuses at least those who have
/// none.
pub(super) async fn wait_for_key(request: &ConnectRequest) {
    let key = match &request.key {
        Some(
            ConnectKey::Value(key)
            | ConnectKey::Variable {
                value: Some(key), ..
            },
        ) => key,
        _ => return,
    };
    let until = Instant::now() + RELOAD_WAIT;
    while Instant::now() < until {
        // A gateway without keys lets in everybody, so a good answer alone says nothing about the
        // key.
        match (
            probe_url(&request.url, None).await,
            probe_url(&request.url, Some(key)).await,
        ) {
            (ProbeOutcome::Refused, ProbeOutcome::Refused) | (ProbeOutcome::Tools(_), _) => {
                tokio::time::sleep(RETRY_PAUSE).await;
            }
            _ => return,
        }
    }
    print_message("the gateway does not know the new key yet; does it run with this config?");
}

/// Connects as the entry says, and reports how that went. A gateway that does not run isn't the
/// entry's fault.
pub(super) async fn check(
    profile: &ClientProfile,
    file: &ClientFile,
    request: &ConnectRequest,
) -> anyhow::Result<()> {
    let title = profile.title;
    if let Some(name) = unset_variable(request) {
        print_message(&format!(
            "{title}, not checked, since {name} is not set here"
        ));
        return Ok(());
    }
    let outcome = connect_as(file, request).await?;
    match outcome {
        ProbeOutcome::Tools(count) => {
            print_message(&format!(
                "{title}, checked: the gateway answers with {count} tools"
            ));
            if let Some(most) = profile.limits.tools.filter(|most| count > *most) {
                print_message(&format!(
                    "{title} accepts at most {most} tools: connect it to a view with fewer, or \
                     disable some"
                ));
            }
        }
        ProbeOutcome::Unreachable(why) => {
            let why = moongate_transport::connect_hints::without_container_hint(&why);
            print_message(&format!(
                "{title}, not checked, since no gateway answers there yet ({why})"
            ));
            print_message(
                "start it with `moongate`, then run this command again to check the entry",
            );
        }
        ProbeOutcome::Refused => {
            bail!(
                "the entry is written, but the gateway refuses the key: it is missing or wrong \
                 (MOONGATE_KEY, --key-env)"
            );
        }
        ProbeOutcome::Failed(why) => bail!("the entry is written, but it does not work: {why}"),
    }
    Ok(())
}

/// Returns the variable with the key, if its value is not known here.
fn unset_variable(request: &ConnectRequest) -> Option<&str> {
    match &request.key {
        Some(ConnectKey::Variable { name, value: None }) if !environment().contains_key(name) => {
            Some(name)
        }
        _ => None,
    }
}

/// Entry that was written, in the words of our config.
#[derive(Default, Deserialize)]
#[serde(default)]
struct WrittenEntry {
    url: Option<String>,
    command: Option<String>,
    args: Vec<String>,
    env: BTreeMap<String, String>,
    headers: BTreeMap<String, String>,
}

/// Connects as the entry says.
async fn connect_as(file: &ClientFile, request: &ConnectRequest) -> anyhow::Result<ProbeOutcome> {
    let entries = moongate_config::parse_servers(file.path(), file.text())
        .map_err(|e| anyhow::anyhow!("{e}"))?;
    let entry = entries
        .servers
        .into_iter()
        .find(|entry| entry.source_name == request.name);
    let entry =
        entry.with_context(|| format!("the entry `{}` cannot be read back", request.name))?;
    let settings: WrittenEntry = serde_json::from_value(Value::Object(entry.settings))
        .with_context(|| format!("the entry `{}` cannot be read back", request.name))?;
    let env = client_environment(request);
    Ok(match (settings.url, settings.command) {
        (Some(url), _) => {
            let key = bearer(settings.headers, &env);
            probe_url(&resolved(&url, &env), key.as_deref()).await
        }
        (None, Some(command)) => {
            let env_of_entry = resolved_table(settings.env, &env);
            let key = env_of_entry
                .get(KEY_VARIABLE)
                .or_else(|| env.get(KEY_VARIABLE));
            // A bridge starts without its gateway and answers with nothing, so the gateway is asked
            // first.
            match probe_url(&request.url, key.map(String::as_str)).await {
                ProbeOutcome::Tools(_) => {}
                fault => return Ok(fault),
            }
            let args: Vec<String> = settings
                .args
                .iter()
                .map(|arg| resolved(arg, &env))
                .collect();
            probe_command(&resolved(&command, &env), &args, env_of_entry).await
        }
        (None, None) => bail!("the entry `{}` cannot be read back", request.name),
    })
}

/// Variables as the client will have them.
fn client_environment(request: &ConnectRequest) -> BTreeMap<String, String> {
    let mut env = environment();
    if let Some(ConnectKey::Variable {
        name,
        value: Some(value),
    }) = &request.key
    {
        // The name of an input becomes a variable, too.
        env.extend([name.clone(), KEY_VARIABLE.to_owned()].map(|name| (name, value.clone())));
    }
    env
}

/// Replaces `${NAME}` and `${NAME:-default}`.
fn resolved(text: &str, env: &BTreeMap<String, String>) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, (reference, after))) = rest
        .split_once("${")
        .and_then(|(before, rest)| Some((before, rest.split_once('}')?)))
    {
        let (name, default) = reference.split_once(":-").unwrap_or((reference, ""));
        out.push_str(before);
        // Clients spell it with a prefix, which our config takes as well.
        let name = name.strip_prefix("env:").unwrap_or(name);
        out.push_str(env.get(name).map_or(default, String::as_str));
        rest = after;
    }
    out + rest
}

/// Replaces the references of a table's values.
fn resolved_table(
    table: BTreeMap<String, String>,
    env: &BTreeMap<String, String>,
) -> BTreeMap<String, String> {
    table
        .into_iter()
        .map(|(name, value)| (name, resolved(&value, env)))
        .collect()
}

/// Key in the headers of an entry.
fn bearer(headers: BTreeMap<String, String>, env: &BTreeMap<String, String>) -> Option<String> {
    let headers = resolved_table(headers, env);
    let value = headers
        .into_iter()
        .find(|(name, _)| name.eq_ignore_ascii_case("authorization"))?
        .1;
    value.strip_prefix("Bearer ").map(str::to_owned)
}
