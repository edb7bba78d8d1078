//! Moongate's entry in a client's file.
//!
//! Owns the request to connect a client, and the entry that answers it. Does not write files.
//! Invariant: the key itself is in an entry only where the client cannot read it from a variable.

use std::fmt;

use serde_json::Value;

use crate::profile::{ClientProfile, ConnectMethod, VariableForm};
use crate::start_command::StartCommand;
use crate::template::TemplateValues;

/// Key that a client sends.
#[derive(Clone, PartialEq, Eq)]
pub enum ConnectKey {
    /// The key itself.
    Value(String),
    /// Variable of the client's environment, with its value if that is known here.
    Variable {
        /// Name of the variable.
        name: String,
        /// Value, for clients that read no variables.
        value: Option<String>,
    },
}

// Keys must not reach logs or messages.
impl fmt::Debug for ConnectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ConnectKey::Value(_) => f.write_str("Value(..)"),
            ConnectKey::Variable { name, .. } => write!(f, "Variable({name})"),
        }
    }
}

/// Route from a client to the gateway.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ConnectRoute {
    /// HTTP, or the bridge for a client that starts programs only.
    #[default]
    Best,
    /// `moongate stdio` in front of the gateway.
    Bridge,
}

/// Request to connect a client to a gateway.
#[derive(Clone, Debug)]
pub struct ConnectRequest {
    /// Name of the entry.
    pub name: String,
    /// Endpoint of the gateway: a URL, or `unix:PATH`.
    pub url: String,
    /// Key for the endpoint.
    pub key: Option<ConnectKey>,
    /// Route to the endpoint.
    pub route: ConnectRoute,
    /// Command that starts this program, for the bridge.
    pub start: StartCommand,
}

/// Cause of a missing entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EntryError {
    /// The client reads no variables, and the value of this one is unknown.
    KeyUnknown(String),
    /// The client takes no entry from a file or a text.
    NoEntry,
}

impl fmt::Display for EntryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            EntryError::KeyUnknown(name) => {
                write!(f, "it cannot read variables, and {name} is not set here")
            }
            EntryError::NoEntry => f.write_str("it cannot take an entry"),
        }
    }
}

impl ConnectRequest {
    /// True if the client reaches the gateway through `moongate stdio`.
    pub fn is_bridged(&self, profile: &ClientProfile) -> bool {
        self.route == ConnectRoute::Bridge
            || profile.http.is_none()
            || !self.url.starts_with("http")
    }

    /// Returns the variable that the client reads the key from. `None` if its entry has the key
    /// itself, or none.
    pub fn variable(&self, profile: &ClientProfile) -> Option<&str> {
        let reads = match profile.variable {
            VariableForm::None => false,
            VariableForm::Reference(_) => true,
            // A bridge gets its environment from the entry.
            VariableForm::Entry(_) | VariableForm::Input(_) => !self.is_bridged(profile),
        };
        match &self.key {
            Some(ConnectKey::Variable { name, .. }) if reads => Some(name),
            _ => None,
        }
    }

    /// Returns the id of the input that the client asks for.
    pub fn input(&self, profile: &ClientProfile) -> Option<&'static str> {
        match profile.variable {
            VariableForm::Input(id) => self.variable(profile).map(|_| id),
            _ => None,
        }
    }

    /// Returns the key in the form that the client's entry has: itself, or a reference.
    pub(crate) fn key_text(&self, profile: &ClientProfile) -> Result<Option<String>, EntryError> {
        if let Some(name) = self.variable(profile) {
            return Ok(Some(match profile.variable {
                VariableForm::Reference(form) => form.replace("NAME", name),
                VariableForm::Input(id) => format!("${{input:{id}}}"),
                VariableForm::Entry(_) | VariableForm::None => name.to_owned(),
            }));
        }
        match &self.key {
            None => Ok(None),
            Some(
                ConnectKey::Value(key)
                | ConnectKey::Variable {
                    value: Some(key), ..
                },
            ) => Ok(Some(key.clone())),
            Some(ConnectKey::Variable { name, value: None }) => {
                Err(EntryError::KeyUnknown(name.clone()))
            }
        }
    }
}

/// Returns the entry of a client: the value below its name, or the item of its list.
pub fn client_entry(
    profile: &ClientProfile,
    request: &ConnectRequest,
) -> Result<Value, EntryError> {
    let template = match (profile.method, profile.http) {
        (ConnectMethod::PublicUrl | ConnectMethod::Discontinued, _) => {
            return Err(EntryError::NoEntry);
        }
        (_, Some(http)) if !request.is_bridged(profile) => match profile.variable {
            VariableForm::Entry(by_variable) if request.variable(profile).is_some() => by_variable,
            _ => http,
        },
        _ => profile.stdio,
    };
    let key = request.key_text(profile)?;
    let bearer = key.as_ref().map(|key| format!("Bearer {key}"));
    let values = TemplateValues(&[
        ("name", Some(&request.name)),
        ("url", Some(&request.url)),
        ("program", Some(&request.start.command)),
        ("key", key.as_deref()),
        ("bearer", bearer.as_deref()),
        ("variable", request.variable(profile)),
    ]);
    // The template is parsed before it is filled. A quote in a URL cannot break out of its text.
    let template: Value = serde_json::from_str(template).map_err(|_| EntryError::NoEntry)?;
    let mut entry = values.fill_json(&template).ok_or(EntryError::NoEntry)?;
    insert_start_args(&template, &mut entry, &request.start.args);
    Ok(entry)
}

/// Inserts arguments behind the program, wherever the template starts it: in one list, or as a
/// command with `args`.
fn insert_start_args(template: &Value, entry: &mut Value, args: &[String]) {
    match (template, entry) {
        (Value::Array(template), Value::Array(words))
            if template.first().is_some_and(is_program) =>
        {
            words.splice(1..1, args.iter().cloned().map(Value::String));
        }
        (Value::Object(template), Value::Object(members)) => {
            if let Some(Value::Array(words)) = members
                .get_mut("args")
                .filter(|_| template.values().any(is_program))
            {
                words.splice(0..0, args.iter().cloned().map(Value::String));
            }
            for (name, member) in members {
                insert_start_args(template.get(name).unwrap_or(&Value::Null), member, args);
            }
        }
        _ => {}
    }
}

fn is_program(value: &Value) -> bool {
    value.as_str() == Some("{program}")
}

#[cfg(test)]
pub(crate) mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;

    use super::*;
    use crate::table::{client, clients};

    const URL: &str = "http://127.0.0.1:8080/mcp";

    pub(crate) fn request(key: Option<ConnectKey>, route: ConnectRoute) -> ConnectRequest {
        ConnectRequest {
            name: "moongate".to_owned(),
            url: URL.to_owned(),
            key,
            route,
            start: StartCommand::program("/bin/moongate"),
        }
    }

    fn variable(value: Option<&str>) -> Option<ConnectKey> {
        Some(ConnectKey::Variable {
            name: "GATE".to_owned(),
            value: value.map(str::to_owned),
        })
    }

    fn typed_entry(bearer: &str) -> Value {
        json!({"type": "http", "url": URL, "headers": {"Authorization": bearer}})
    }

    #[test]
    fn a_variable_is_named_where_the_client_reads_it() {
        for (id, expected) in [
            ("claude-code", typed_entry("Bearer ${GATE}")),
            ("vscode", typed_entry("Bearer ${input:moongate-key}")),
            (
                "cursor",
                json!({"url": URL, "headers": {"Authorization": "Bearer ${env:GATE}"}}),
            ),
            ("codex", json!({"url": URL, "bearer_token_env_var": "GATE"})),
            (
                "warp",
                json!({"url": URL, "headers": {"Authorization": "Bearer mg_k"}}),
            ),
            (
                "claude-desktop",
                json!({"command": "/bin/moongate", "args": ["stdio", "--url", URL],
                    "env": {"MOONGATE_KEY": "mg_k"}}),
            ),
        ] {
            let request = request(variable(Some("mg_k")), ConnectRoute::Best);
            assert_eq!(
                client_entry(client(id).unwrap(), &request),
                Ok(expected),
                "{id}"
            );
        }
        let unknown = client_entry(
            client("warp").unwrap(),
            &request(variable(None), ConnectRoute::Best),
        );
        assert_eq!(unknown, Err(EntryError::KeyUnknown("GATE".to_owned())));
        assert_eq!(
            format!("{:?}", ConnectKey::Value("mg_k".to_owned())),
            "Value(..)"
        );
    }

    #[test]
    fn every_bridge_starts_the_package_where_the_program_ran_from_a_cache() {
        fn texts(value: &Value) -> Vec<&str> {
            match value {
                Value::Array(items) => items.iter().flat_map(texts).collect(),
                Value::Object(members) => members.values().flat_map(texts).collect(),
                other => other.as_str().into_iter().collect(),
            }
        }
        let start = StartCommand {
            command: "npx".to_owned(),
            args: ["-y", "moongate@1.2.3"].map(str::to_owned).into(),
        };
        for profile in clients() {
            let request = ConnectRequest {
                start: start.clone(),
                ..request(None, ConnectRoute::Bridge)
            };
            let Ok(entry) = client_entry(profile, &request) else {
                continue;
            };
            let words = texts(&entry);
            let expected = [
                "npx",
                "-y",
                "moongate@1.2.3",
                "stdio",
                "--url",
                &request.url,
            ];
            assert!(
                words.windows(expected.len()).any(|part| part == expected),
                "{}: {entry}",
                profile.id
            );
        }
    }

    #[test]
    fn every_entry_has_the_url_and_the_key_or_neither_key_nor_its_table() {
        for profile in clients() {
            for route in [ConnectRoute::Best, ConnectRoute::Bridge] {
                let Ok(without) = client_entry(profile, &request(None, route)) else {
                    continue;
                };
                let key = Some(ConnectKey::Value("mg_k".to_owned()));
                let with = client_entry(profile, &request(key, route))
                    .unwrap()
                    .to_string();
                let without = without.to_string();
                assert!(
                    without.contains("127.0.0.1:8080/mcp") && !without.contains("{}"),
                    "{without}"
                );
                assert!(
                    !without.contains("Authorization") && !without.contains("MOONGATE_KEY"),
                    "{without}"
                );
                assert!(with.contains("mg_k"), "{with}");
                assert_eq!(
                    with.contains("stdio\",\"--url"),
                    request(None, route).is_bridged(profile),
                    "{with}"
                );
            }
        }
    }
}
