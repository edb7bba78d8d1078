//! Client registrations (RFC 7591), which are not stored.
//!
//! Owns the sealed form of an id. Does not know client documents. Invariant: an id opens to the
//! registration that it was made from, and never expires.

use jiff::Timestamp;
use moongate_oauth::RowSeal;
use serde::{Deserialize, Serialize};

use crate::client_record::{ClientOrigin, ClientProof, ClientRecord, visible_name};
use crate::oauth_error::{OAuthCode, OAuthError};
use crate::redirect_rules::{RedirectFault, RedirectRules};

/// Prefix of registered clients' ids.
pub(crate) const ID_PREFIX: &str = "mgc_";
/// Name that ids are sealed under.
const PURPOSE: &str = "client";
/// Maximum number of redirect addresses.
const REDIRECTS_MAX: usize = 10;
/// Longest id, in bytes. It is part of the URL that a browser opens.
const ID_MAX: usize = 1536;
/// Scope that every login gets.
pub(crate) const SCOPE: &str = "mcp offline_access";

/// Members of a registration that are read. Others are ignored, since clients list everything they
/// know.
#[derive(Deserialize)]
struct AskedRegistration {
    #[serde(default)]
    redirect_uris: Vec<String>,
    client_name: Option<String>,
}

/// Registration as sealed into an id.
#[derive(Serialize, Deserialize)]
struct SealedRegistration {
    #[serde(rename = "n")]
    name: String,
    #[serde(rename = "r")]
    redirects: Vec<String>,
}

/// Registration response. No member is `null`.
#[derive(Debug, Serialize)]
pub(crate) struct RegisteredClient {
    client_id: String,
    client_id_issued_at: i64,
    client_name: String,
    redirect_uris: Vec<String>,
    grant_types: [&'static str; 2],
    response_types: [&'static str; 1],
    token_endpoint_auth_method: &'static str,
    scope: &'static str,
}

/// Registers a client. Only its id remains.
pub(crate) fn register_client(
    body: &[u8],
    rules: &RedirectRules,
    seal: &RowSeal,
) -> Result<RegisteredClient, OAuthError> {
    let asked: AskedRegistration = serde_json::from_slice(body)
        .map_err(|_| invalid("The body is not a client registration"))?;
    let count = asked.redirect_uris.len();
    if count == 0 || count > REDIRECTS_MAX {
        return Err(OAuthError::new(
            OAuthCode::InvalidRedirectUri,
            "A client needs one to ten redirect_uris",
        ));
    }
    let registration = SealedRegistration {
        name: visible_name(asked.client_name.as_deref()),
        redirects: usable_redirects(asked.redirect_uris, rules)?,
    };
    let plain = serde_json::to_vec(&registration).expect("our rows are JSON");
    let client_id = format!("{ID_PREFIX}{}", seal.seal(PURPOSE, &plain));
    if client_id.len() > ID_MAX {
        return Err(invalid("The redirect_uris are too long"));
    }
    Ok(RegisteredClient {
        client_id,
        client_id_issued_at: Timestamp::now().as_second(),
        client_name: registration.name,
        redirect_uris: registration.redirects,
        grant_types: ["authorization_code", "refresh_token"],
        response_types: ["code"],
        // Regardless of the request: PKCE protects a public client, and a secret could leak.
        token_endpoint_auth_method: "none",
        scope: SCOPE,
    })
}

/// Opens the id of a registered client. `None`: it was not registered here.
pub(crate) fn open_client(id: &str, seal: &RowSeal) -> Option<ClientRecord> {
    if id.len() > ID_MAX {
        return None;
    }
    let plain = seal.open(PURPOSE, id.strip_prefix(ID_PREFIX)?)?;
    let registration: SealedRegistration = serde_json::from_slice(&plain).ok()?;
    Some(ClientRecord {
        id: id.to_owned(),
        name: registration.name,
        host: None,
        origin: ClientOrigin::Registered,
        redirects: registration.redirects,
        proof: ClientProof::None,
    })
}

/// Returns the addresses that a login may end at.
// Editors register the private schemes of all their editions in one request. One that the config
// does not know costs only itself, and the answer shows what is left (RFC 7591, section 3.2.1).
fn usable_redirects(
    addresses: Vec<String>,
    rules: &RedirectRules,
) -> Result<Vec<String>, OAuthError> {
    let mut usable = Vec::new();
    let mut unknown = None;
    for address in addresses {
        match rules.check(&address) {
            Ok(_) => usable.push(address),
            Err(fault) if fault.is_unknown_scheme() => unknown = Some(fault),
            Err(fault) => return Err(refuse(&fault)),
        }
    }
    match unknown {
        Some(fault) if usable.is_empty() => Err(refuse(&fault)),
        _ => Ok(usable),
    }
}

fn invalid(text: &'static str) -> OAuthError {
    OAuthError::new(OAuthCode::InvalidClientMetadata, text)
}

fn refuse(fault: &RedirectFault) -> OAuthError {
    let text = match fault {
        RedirectFault::Malformed => "A redirect address is malformed",
        RedirectFault::Scheme(_) => {
            "The scheme of a redirect address is not allowed: the operator can add it to \
             redirect_schemes"
        }
        RedirectFault::OwnHost => "A redirect address points to this gateway",
        RedirectFault::NotRegistered | RedirectFault::HostNotAllowed(_) => {
            "A redirect address is not allowed"
        }
    };
    OAuthError::new(OAuthCode::InvalidRedirectUri, text)
}

#[cfg(test)]
mod tests {
    use crate::test_broker::settings;

    use super::*;

    fn register(body: &str) -> Result<RegisteredClient, OAuthCode> {
        let rules = RedirectRules::new(&settings());
        register_client(body.as_bytes(), &rules, &RowSeal::of_key(&[7; 32]))
            .map_err(|error| error.code)
    }

    fn body(redirects: &[&str], more: &str) -> String {
        let redirects = serde_json::to_string(redirects).unwrap();
        format!(r#"{{"redirect_uris":{redirects}{more}}}"#)
    }

    #[test]
    fn registrations_that_cannot_be_used_are_refused() {
        let redirect = "http://127.0.0.1/cb";
        let many = [redirect; REDIRECTS_MAX + 1];
        let long: Vec<String> = (0..10)
            .map(|n| format!("http://127.0.0.1/{n}{}", "x".repeat(200)))
            .collect();
        let long: Vec<&str> = long.iter().map(String::as_str).collect();
        let uri = OAuthCode::InvalidRedirectUri;
        let metadata = OAuthCode::InvalidClientMetadata;
        for (text, code) in [
            (String::new(), metadata),
            ("[]".to_owned(), metadata),
            (
                r#"{"redirect_uris":"http://127.0.0.1/cb"}"#.to_owned(),
                metadata,
            ),
            (r#"{"redirect_uris":[1]}"#.to_owned(), metadata),
            (body(&[redirect], r#","redirect_uris":[]"#), metadata),
            (body(&[redirect], r#","client_name":1"#), metadata),
            ("{}".to_owned(), uri),
            (body(&[], ""), uri),
            (body(&many, ""), uri),
            (body(&[redirect, "javascript:alert(1)"], ""), uri),
            (body(&["https://mcp.test/cb"], ""), uri),
            (body(&["https://ann@claude.ai/cb"], ""), uri),
            (body(&long, ""), metadata),
        ] {
            assert_eq!(register(&text).unwrap_err(), code, "{text}");
        }
    }

    #[test]
    fn an_unknown_private_scheme_costs_only_itself() {
        let known = ["http://127.0.0.1/cb", "cursor://anysphere.cursor-mcp/cb"];
        let all = [known[0], "grokbot://cb", known[1]];
        assert_eq!(register(&body(&all, "")).unwrap().redirect_uris, known);
        let uri = OAuthCode::InvalidRedirectUri;
        assert_eq!(register(&body(&["grokbot://cb"], "")).unwrap_err(), uri);
    }

    #[test]
    fn an_id_opens_to_its_registration_and_no_other_text_does() {
        let text = body(
            &["http://127.0.0.1:1/cb", "https://claude.ai/cb"],
            r#","client_name":"Shape\u202e","grant_types":["device_code"],"x":{"y":null},
                "token_endpoint_auth_method":"client_secret_basic""#,
        );
        let client = register(&text).unwrap();
        let answer = serde_json::to_string(&client).unwrap();
        assert!(
            answer.contains(r#""token_endpoint_auth_method":"none""#),
            "{answer}"
        );
        assert!(
            !answer.contains("null") && !answer.contains("secret"),
            "{answer}"
        );
        let seal = RowSeal::of_key(&[7; 32]);
        let record = open_client(&client.client_id, &seal).unwrap();
        assert_eq!(record.name, "Shape\\u{202e}");
        assert_eq!(record.redirects, client.redirect_uris);
        assert_eq!(record.origin, ClientOrigin::Registered);
        let id = &client.client_id;
        let other = RowSeal::of_key(&[8; 32]);
        assert!(open_client(id, &other).is_none());
        for text in [
            "",
            "mgc_",
            "mgc_x",
            &id[4..],
            &id[..id.len() - 1],
            &format!("{id}A"),
        ] {
            assert!(open_client(text, &seal).is_none(), "{text}");
        }
    }
}
