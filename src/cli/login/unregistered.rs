//! Clients for authorization servers without registration. A person registers one by hand, and it
//! goes into the config.
//!
//! Owns the questions and the entry. Does not write files (`config_edit.rs`). Invariant: the config
//! gets the name of a variable and never the secret.

use std::path::PathBuf;

use moongate_config::edit::ConfigOperation;
use moongate_listener::is_loopback_host;
use moongate_oauth::{LoginServer, ServerAuth};
use serde::Serialize;
use serde_json::{Map, json};
use url::Url;

use super::input_lines::{InputLines, can_ask};
use crate::cli::config_edit::{EditedConfig, write_edit};
use crate::cli::process::print_message;

/// Maximum length of a client id.
const ID_MAX: usize = 512;

/// Outcome of an offer to write a client into the config.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ClientOffer {
    Written,
    NotWritten,
}

/// Offers to write a client of this issuer into the config, if there is a terminal to ask on.
pub(super) async fn offer_client(
    server: &LoginServer,
    issuer: &str,
    config: &[PathBuf],
    input: &mut InputLines,
) -> anyhow::Result<ClientOffer> {
    // Other `auth` settings would be lost, and whoever wrote those can write these, too.
    if server.auth != ServerAuth::default() || !can_ask() {
        return Ok(ClientOffer::NotWritten);
    }
    let name = &server.target.server;
    let id = input
        .ask("To write the client into the config, type its client id. To skip this, press Enter:")
        .await?;
    if id.is_empty() {
        return Ok(ClientOffer::NotWritten);
    }
    if id.len() > ID_MAX || !id.bytes().all(|byte| byte.is_ascii_graphic()) {
        anyhow::bail!("a client id is one word of visible characters");
    }
    let variable = secret_variable(name);
    let question = format!("Does the client have a secret? Moongate will read it from {variable}.");
    let has_secret = input.confirm(&question).await?;
    let client = WrittenClient {
        id: &id,
        secret: has_secret.then_some(&*variable),
        issuer,
    };
    let operation = client.operation(name);
    let prepared = EditedConfig::of(config).show(std::slice::from_ref(&operation), None)?;
    if !input.confirm("Write this?").await? {
        print_message("nothing was written");
        return Ok(ClientOffer::NotWritten);
    }
    let written = write_edit(prepared)?;
    let file = written.path.display();
    print_message(&format!("written to {file}:{}", written.line));
    print_message(&describe_next_step(name, client.secret));
    Ok(ClientOffer::Written)
}

/// Describes the next step for a login with a new client. `variable` holds its secret.
fn describe_next_step(server: &str, variable: Option<&str>) -> String {
    match variable {
        Some(variable) => format!(
            "Next: set {variable} here and where the gateway runs, then run `moongate login \
             {server}` again."
        ),
        None => format!("Next: run `moongate login {server}` again."),
    }
}

/// Returns the variable for the secret of a server's client, such as `GITHUB_CLIENT_SECRET`.
fn secret_variable(server: &str) -> String {
    let name: String = server
        .chars()
        .map(|c| match c {
            c if c.is_ascii_alphanumeric() => c.to_ascii_uppercase(),
            _ => '_',
        })
        .collect();
    // No variable starts with a digit.
    let start = if name.starts_with(|c: char| c.is_ascii_digit()) {
        "_"
    } else {
        ""
    };
    format!("{start}{name}_CLIENT_SECRET")
}

/// Client as it goes into the config.
struct WrittenClient<'a> {
    id: &'a str,
    /// Variable with its secret.
    secret: Option<&'a str>,
    /// Authorization server that it was registered at. No other may get its secret.
    issuer: &'a str,
}

/// Table `auth` of a server.
#[derive(Serialize)]
struct AuthTable {
    client_id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    client_secret: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    issuer: Option<String>,
}

impl WrittenClient<'_> {
    /// Returns the edit that gives a server this client.
    fn operation(&self, server: &str) -> ConfigOperation {
        // The key is written verbatim, so that its references stay, and a dollar sign would start
        // one.
        let literal = |text: &str| text.replace('$', "$$");
        let auth = AuthTable {
            client_id: literal(self.id),
            client_secret: self.secret.map(|variable| format!("${{{variable}}}")),
            // The config accepts no `http://` issuer on another machine, even one in `egress.allow`.
            issuer: is_config_issuer(self.issuer).then(|| literal(self.issuer)),
        };
        ConfigOperation::SetKeys {
            server: server.to_owned(),
            values: Map::from_iter([("auth".to_owned(), json!(auth))]),
        }
    }
}

fn is_config_issuer(issuer: &str) -> bool {
    let Ok(url) = Url::parse(issuer) else {
        return false;
    };
    url.scheme() == "https" || url.host_str().is_some_and(is_loopback_host)
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    #[test]
    fn the_next_step_names_the_variable_of_a_secret() {
        assert_eq!(
            describe_next_step("github", Some("GITHUB_CLIENT_SECRET")),
            "Next: set GITHUB_CLIENT_SECRET here and where the gateway runs, then run `moongate \
             login github` again."
        );
        assert_eq!(
            describe_next_step("github", None),
            "Next: run `moongate login github` again."
        );
    }

    #[test]
    fn a_secret_is_the_name_of_a_variable() {
        assert_eq!(secret_variable("github"), "GITHUB_CLIENT_SECRET");
        assert_eq!(secret_variable("my-hub_2"), "MY_HUB_2_CLIENT_SECRET");
        assert_eq!(secret_variable("2fa"), "_2FA_CLIENT_SECRET");
        let written = |secret, issuer| {
            let client = WrittenClient {
                id: "Ov23$x",
                secret,
                issuer,
            };
            let ConfigOperation::SetKeys { server, values } = client.operation("github") else {
                panic!("keys are set");
            };
            assert_eq!(server, "github");
            Value::Object(values).to_string()
        };
        assert_eq!(
            written(None, "http://auth.internal"),
            r#"{"auth":{"client_id":"Ov23$$x"}}"#
        );
        assert_eq!(
            written(None, "http://127.0.0.1:9000"),
            r#"{"auth":{"client_id":"Ov23$$x","issuer":"http://127.0.0.1:9000"}}"#
        );
        assert_eq!(
            written(Some("A_SECRET"), "https://auth.example/a$b"),
            "{\"auth\":{\"client_id\":\"Ov23$$x\",\"client_secret\":\"${A_SECRET}\",\
             \"issuer\":\"https://auth.example/a$$b\"}}"
        );
    }
}
