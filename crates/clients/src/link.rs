//! Links that add a server to a client.
//!
//! Owns the encoding of what a link carries. Does not open links. Invariant: a link to a web page
//! has no key, and no character of a name or URL ends its part of the link.

use std::fmt::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value};

use crate::entry::{ConnectRequest, client_entry};
use crate::profile::{ClientProfile, ConnectMethod};
use crate::template::TemplateValues;

/// Returns the link that adds the gateway to a client, if it has one for this request.
pub fn deeplink(profile: &ClientProfile, request: &ConnectRequest) -> Option<String> {
    let template = profile.link?;
    let public = profile.method == ConnectMethod::PublicUrl;
    // A link with only a URL cannot start our bridge.
    let has_entry = ["{entry}", "{named}", "{base64}"]
        .iter()
        .any(|part| template.contains(part));
    if !has_entry && request.is_bridged(profile) || public && !request.url.starts_with("https://") {
        return None;
    }
    // The server of a web page would see the key, and an input is defined only in the file.
    let keyless = template.starts_with("https:") || request.input(profile).is_some();
    let carried = if keyless {
        ConnectRequest {
            key: None,
            ..request.clone()
        }
    } else {
        request.clone()
    };
    let mut entry = String::new();
    let mut named = String::new();
    if has_entry {
        let value = client_entry(profile, &carried).ok()?;
        let mut members = Map::from_iter([("name".to_owned(), Value::from(request.name.as_str()))]);
        members.extend(value.as_object().cloned().unwrap_or_default());
        (entry, named) = (value.to_string(), Value::Object(members).to_string());
    }
    // Base64 has `+`, `/` and `=`, which mean something else in a query.
    let base64 = percent_encode(&STANDARD.encode(&entry));
    let [name, url, entry, named] =
        [&request.name, &request.url, &entry, &named].map(|text| percent_encode(text));
    let values = [
        ("name", &name),
        ("url", &url),
        ("entry", &entry),
        ("named", &named),
        ("base64", &base64),
    ];
    let values = values.map(|(placeholder, value)| (placeholder, Some(value.as_str())));
    TemplateValues(&values).fill(template)
}

/// Encodes everything but the unreserved characters (RFC 3986, section 2.3).
fn percent_encode(text: &str) -> String {
    text.bytes()
        .fold(String::with_capacity(text.len()), |mut out, byte| {
            if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
                out.push(char::from(byte));
            } else {
                let _ = write!(out, "%{byte:02X}");
            }
            out
        })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;

    use super::*;
    use crate::entry::{ConnectKey, ConnectRoute};
    use crate::start_command::StartCommand;
    use crate::table::{client, clients};

    fn request(name: &str, url: &str) -> ConnectRequest {
        ConnectRequest {
            name: name.to_owned(),
            url: url.to_owned(),
            key: Some(ConnectKey::Value("mg_k&#'\u{e9}".to_owned())),
            route: ConnectRoute::Best,
            start: StartCommand::program("/bin/moongate"),
        }
    }

    /// Request with characters that end the part of a link that they are in.
    fn odd_request() -> ConnectRequest {
        request(
            "m&o#o'n \u{65e5}",
            "http://127.0.0.1:8080/mcp/a%20b?x=1&y=2#z",
        )
    }

    fn decoded(text: &str) -> String {
        let mut bytes = Vec::new();
        let mut rest = text.as_bytes();
        while let [first, after @ ..] = rest {
            let escape = (*first == b'%').then(|| std::str::from_utf8(&after[..2]).unwrap());
            bytes.push(escape.map_or(*first, |hex| u8::from_str_radix(hex, 16).unwrap()));
            rest = if escape.is_some() { &after[2..] } else { after };
        }
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn links_carry_the_entry_and_nothing_ends_it_early() {
        let odd = odd_request();
        let entry = json!({"url": odd.url, "headers": {"Authorization": "Bearer mg_k&#'\u{e9}"}});
        let typed =
            json!({"name": odd.name, "type": "http", "url": odd.url, "headers": entry["headers"]});
        let keyless = json!({"name": odd.name, "type": "http", "url": odd.url});
        let from_base64 =
            |text: &str| String::from_utf8(STANDARD.decode(decoded(text)).unwrap()).unwrap();
        for (id, start, after, base64, json) in [
            (
                "cursor",
                "cursor://anysphere.cursor-deeplink/mcp/install?name=",
                "&config=",
                true,
                &entry,
            ),
            (
                "lmstudio",
                "lmstudio://add_mcp?name=",
                "&config=",
                true,
                &entry,
            ),
            (
                "kiro",
                "https://kiro.dev/launch/mcp/add?name=",
                "&config=",
                false,
                &json!({"url": odd.url}),
            ),
            ("vscode", "vscode:mcp/install", "?", false, &typed),
            (
                "vscode-insiders",
                "vscode-insiders:mcp/install",
                "?",
                false,
                &typed,
            ),
            (
                "visual-studio",
                "https://vs-open.link/mcp-install",
                "?",
                false,
                &keyless,
            ),
        ] {
            let link = deeplink(client(id).unwrap(), &odd).unwrap();
            let (name, config) = link.strip_prefix(start).unwrap().split_once(after).unwrap();
            assert!(name.is_empty() || decoded(name) == odd.name, "{link}");
            let text = if base64 {
                from_base64(config)
            } else {
                decoded(config)
            };
            assert_eq!(&serde_json::from_str::<Value>(&text).unwrap(), json, "{id}");
        }
    }

    #[test]
    fn a_link_of_several_parts_carries_each_of_them() {
        let odd = odd_request();
        let goose = deeplink(client("goose").unwrap(), &odd).unwrap();
        let query: Vec<_> = goose
            .split_once('?')
            .unwrap()
            .1
            .split('&')
            .map(|pair| pair.split_once('=').unwrap())
            .collect();
        assert_eq!(query.len(), 6);
        assert_eq!(query[0].0, "url");
        assert_eq!(decoded(query[0].1), odd.url);
        assert_eq!(query[2].0, "id");
        assert_eq!(decoded(query[2].1), odd.name);
    }

    #[test]
    fn a_link_to_a_web_page_has_no_key() {
        let request = request("moongate", "https://moongate.example/mcp");
        for profile in clients() {
            let Some(link) = deeplink(profile, &request) else {
                continue;
            };
            assert!(link.is_ascii() && !link.contains([' ', '"', '<']), "{link}");
            assert!(
                !link.starts_with("https:") || !decoded(&link).contains("mg_k"),
                "{link}"
            );
        }
        let local = ConnectRequest {
            url: "http://127.0.0.1:8080/mcp".to_owned(),
            ..request.clone()
        };
        assert!(deeplink(client("claude-ai").unwrap(), &request).is_some());
        assert_eq!(deeplink(client("claude-ai").unwrap(), &local), None);
        assert_eq!(
            deeplink(
                client("goose").unwrap(),
                &ConnectRequest {
                    route: ConnectRoute::Bridge,
                    ..local
                }
            ),
            None
        );
    }
}
