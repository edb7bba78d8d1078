//! Logins of clients, read as `auth`.
//!
//! Owns the spellings that clients have for one login. Does not warn about them (`harmless`).
//! Invariant: nothing of a client's login is run, and a secret is read with its client alone.

use std::collections::BTreeMap;

use moongate_listener::is_loopback_host;
use moongate_oauth::is_scope;
use url::Url;

use super::super::tree::{ConfigNode, ConfigValue};

/// Well-known names of an authorization server's metadata. What is around them is the issuer.
const WELL_KNOWN: [&str; 2] = [
    "/.well-known/oauth-authorization-server",
    "/.well-known/openid-configuration",
];

/// Ends of members' names that say where the authorization server is.
const PLACES: [&str; 4] = ["url", "uri", "endpoint", "issuer"];
/// Beginnings of the names of addresses that are the client's own.
const OWN_PLACES: [&str; 2] = ["redirect", "callback"];

/// Login of a client's entry.
pub(super) struct ClientLogin {
    /// `auth` with the same login.
    pub(super) auth: ConfigNode,
    /// True if it has a client that somebody registered.
    pub(super) has_client: bool,
    /// Members that have no equal in `auth`, as they are written.
    pub(super) left_out: Vec<String>,
}

impl ClientLogin {
    /// Reads a login. `None`: it says nothing that `auth` can say, or is of another kind.
    pub(super) fn read(node: &ConfigNode) -> Option<Self> {
        let mut auth: BTreeMap<String, ConfigNode> = BTreeMap::new();
        let mut left_out = Vec::new();
        let mut is_elsewhere = false;
        for (name, member) in node.as_table()? {
            let plain_name = plain(name);
            let (key, read) = match plain_name.as_str() {
                // Of two names for one thing, the first counts.
                "clientid" => ("client_id", text_of(member)),
                "clientsecret" => ("client_secret", text_of(member)),
                "scope" | "scopes" => ("scopes", scopes_of(member)),
                "issuer" | "issuerurl" | "authservermetadataurl" => ("issuer", issuer_of(member)),
                "type" | "granttype" if !is_login(member) => return None,
                "enabled" if member.value == ConfigValue::Bool(false) => return None,
                "type" | "granttype" | "enabled" => continue,
                _ => ("", None),
            };
            match read {
                Some(value) if !auth.contains_key(key) => {
                    let node = ConfigNode {
                        value,
                        ..member.clone()
                    };
                    auth.insert(key.to_owned(), node);
                }
                _ => {
                    is_elsewhere |= is_place(&plain_name);
                    left_out.push(name.clone());
                }
            }
        }
        let has_client = auth.contains_key("client_id");
        let has_secret = auth.contains_key("client_secret");
        if auth.is_empty() || has_secret && !has_client {
            return None;
        }
        // The client sends its secret to that place alone. Without the place, the server would
        // choose who gets it.
        if has_secret && is_elsewhere && !auth.contains_key("issuer") {
            return None;
        }
        Some(ClientLogin {
            auth: ConfigNode {
                value: ConfigValue::Table(auth),
                ..node.clone()
            },
            has_client,
            left_out,
        })
    }
}

/// Leaves out case and separators: `clientId`, `client_id` and `CLIENT_ID` are one name.
fn plain(name: &str) -> String {
    name.chars()
        .filter(char::is_ascii_alphanumeric)
        .map(|c| c.to_ascii_lowercase())
        .collect()
}

/// True for the name of a member that says where the authorization server is.
fn is_place(plain_name: &str) -> bool {
    let is_own = OWN_PLACES.iter().any(|own| plain_name.starts_with(own));
    !is_own && PLACES.iter().any(|end| plain_name.ends_with(end))
}

/// True for the kind of a login that a person makes.
fn is_login(member: &ConfigNode) -> bool {
    let kind = member.as_text().map(plain);
    kind.is_some_and(|kind| {
        matches!(
            kind.as_str(),
            "oauth" | "oauth2" | "oauth21" | "authorizationcode"
        )
    })
}

fn text_of(member: &ConfigNode) -> Option<ConfigValue> {
    let text = member.as_text().filter(|text| !text.trim().is_empty())?;
    Some(ConfigValue::Text(text.to_owned()))
}

/// Reads scopes from a list, or from a text with spaces or commas. `None`: one of them is not a
/// scope, or there is none.
fn scopes_of(member: &ConfigNode) -> Option<ConfigValue> {
    let words: Vec<&str> = match &member.value {
        ConfigValue::Text(text) => text.split([' ', ',']).filter(|w| !w.is_empty()).collect(),
        ConfigValue::List(items) => items
            .iter()
            .map(ConfigNode::as_text)
            .collect::<Option<_>>()?,
        _ => return None,
    };
    // A reference is replaced later, by a text that nobody has seen.
    let is_known = |word: &&str| is_scope(word) && !word.contains("${");
    if words.is_empty() || !words.iter().all(is_known) {
        return None;
    }
    let items = words
        .into_iter()
        .map(|word| ConfigNode::new(ConfigValue::Text(word.to_owned()), member.span));
    Some(ConfigValue::List(items.collect()))
}

/// Reads an issuer, or the address of its metadata. `None`: it cannot be an issuer.
fn issuer_of(member: &ConfigNode) -> Option<ConfigValue> {
    let text = member.as_text()?.trim();
    let around = WELL_KNOWN.iter().find_map(|name| text.split_once(name));
    let issuer = match around {
        // What follows is the issuer's path. Anything else would become part of its host.
        Some((_, after)) if !after.is_empty() && !after.starts_with('/') => return None,
        Some((before, after)) => format!("{before}{after}"),
        None => text.to_owned(),
    };
    let url = Url::parse(&issuer).ok()?;
    let is_safe = match url.scheme() {
        "https" => true,
        "http" => url.host_str().is_some_and(is_loopback_host),
        _ => false,
    };
    let has_credentials = !url.username().is_empty() || url.password().is_some();
    let is_plain = url.query().is_none() && url.fragment().is_none() && !has_credentials;
    (is_safe && is_plain && !issuer.contains('$')).then_some(ConfigValue::Text(issuer))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::super::tree::SourceSpan;
    use super::*;

    fn node(value: &Value) -> ConfigNode {
        let value = match value {
            Value::Bool(value) => ConfigValue::Bool(*value),
            Value::String(text) => ConfigValue::Text(text.clone()),
            Value::Array(items) => ConfigValue::List(items.iter().map(node).collect()),
            Value::Object(members) => {
                let members = members.iter().map(|(name, it)| (name.clone(), node(it)));
                ConfigValue::Table(members.collect())
            }
            other => panic!("not in a login: {other}"),
        };
        ConfigNode::new(value, SourceSpan::BUILT_IN)
    }

    /// `auth` of a login, and what is left out.
    fn read(login: &Value) -> Option<(Value, Vec<String>)> {
        let read = ClientLogin::read(&node(login))?;
        Some((read.auth.to_json(&|_, _| None), read.left_out))
    }

    #[test]
    fn each_spelling_of_a_login_is_read() {
        let whole = json!({"client_id": "x", "client_secret": "${S}", "scopes": ["a", "b"]});
        for login in [
            json!({"CLIENT_ID": "x", "CLIENT_SECRET": "${S}", "scopes": ["a", "b"]}),
            json!({"clientId": "x", "clientSecret": "${S}", "scope": "a b"}),
            json!({"client_id": "x", "client_secret": "${S}", "scopes": "a,b", "type": "oauth"}),
            json!({"enabled": true, "clientId": "x", "clientSecret": "${S}", "scopes": ["a", "b"]}),
        ] {
            assert_eq!(read(&login), Some((whole.clone(), vec![])), "{login}");
        }
    }

    #[test]
    fn an_issuer_comes_from_its_name_or_from_its_metadata() {
        let issuer = "https://auth.example.com/tenant";
        for (key, text) in [
            ("issuer", issuer),
            (
                "authServerMetadataUrl",
                "https://auth.example.com/.well-known/oauth-authorization-server/tenant",
            ),
            (
                "authServerMetadataUrl",
                "https://auth.example.com/tenant/.well-known/openid-configuration",
            ),
        ] {
            let (auth, _) = read(&json!({ key: text })).unwrap();
            assert_eq!(auth, json!({"issuer": issuer}), "{text}");
        }
        for text in [
            "http://auth.example.com",
            "https://a.example/?x",
            "https://:hush@a.example",
            "https://auth.example.com/.well-known/oauth-authorization-server.evil.example/x",
            "https://auth.example.com/.well-known/openid-configuration@evil.example/x",
            "https://auth.example.com/.well-known/openid-configuration:8443/x",
            "${ISSUER}",
            "a",
        ] {
            assert_eq!(read(&json!({"issuer": text})), None, "{text}");
        }
    }

    #[test]
    fn what_auth_cannot_say_is_named() {
        let login = json!({"clientId": "x", "redirectUri": "http://localhost:1/", "tokenUrl": "u",
            "scopes": ["a b"], "callbackPort": "8080"});
        let (auth, mut left_out) = read(&login).unwrap();
        assert_eq!(auth, json!({"client_id": "x"}));
        left_out.sort();
        assert_eq!(
            left_out,
            ["callbackPort", "redirectUri", "scopes", "tokenUrl"]
        );
    }

    #[test]
    fn a_secret_without_its_authorization_server_is_not_taken() {
        for place in [
            json!({"tokenUrl": "https://auth.example.com/token"}),
            json!({"authorization_url": "https://auth.example.com/authorize"}),
            json!({"token_endpoint": "https://auth.example.com/token"}),
            json!({"issuer": "${ISSUER}"}),
            json!({"authServerMetadataUrl": "http://auth.example.com/x"}),
        ] {
            let mut login = json!({"clientId": "x", "clientSecret": "${S}"});
            let members = place.as_object().unwrap().clone();
            login.as_object_mut().unwrap().extend(members);
            assert_eq!(read(&login), None, "{login}");
            // Next to its issuer, the secret goes there.
            login["issuerUrl"] = json!("https://auth.example.com");
            assert!(read(&login).is_some(), "{login}");
        }
        let own = json!({"clientId": "x", "clientSecret": "${S}", "redirectUri": "http://[::1]/"});
        assert!(read(&own).is_some());
    }

    #[test]
    fn other_logins_are_not_ours() {
        for login in [
            json!("oauth"),
            json!({}),
            json!({"redirectUri": "http://localhost:1/"}),
            json!({"clientSecret": "hush"}),
            json!({"clientId": ""}),
            json!({"clientId": "x", "enabled": false}),
            json!({"clientId": "x", "grantType": "client_credentials"}),
            json!({"type": "command", "command": "gh", "clientId": "x"}),
        ] {
            assert_eq!(read(&login), None, "{login}");
        }
    }
}
