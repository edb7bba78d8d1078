//! Metadata in a client document (OAuth Client ID Metadata Document).
//!
//! Owns the parsing of a document. Does not fetch it (`client_documents.rs`). Invariant: a document
//! is valid only for the URL that it was fetched from.

use std::sync::Arc;

use moongate_oauth::parse_untrusted_url;
use moongate_tokens::JwkSet;
use moongate_transport::fetcher::FetchRules;
use serde::Deserialize;
use serde_json::value::RawValue;
use url::Url;

use crate::client_keys::ClientKeys;
use crate::client_record::{ClientOrigin, ClientProof, ClientRecord, visible_name};

/// Maximum number of redirect addresses.
const REDIRECTS_MAX: usize = 20;

#[derive(Deserialize)]
struct DocumentMembers {
    client_id: String,
    client_name: Option<String>,
    redirect_uris: Vec<String>,
    token_endpoint_auth_method: Option<String>,
    jwks: Option<Box<RawValue>>,
    jwks_uri: Option<String>,
}

/// Parses an id that is the URL of a document. `None`: it is something else.
pub(crate) fn parse_document_id(id: &str, rules: &FetchRules) -> Option<Url> {
    let url = parse_untrusted_url(id)?;
    // Another spelling of the URL would be another client with the same document.
    let is_exact = url.as_str() == id && url.query().is_none() && url.path() != "/";
    let is_allowed = url.scheme() == "https" || is_allowed_host(&url, rules);
    (is_exact && is_allowed).then_some(url)
}

/// Returns true if a URL needs no TLS, because the operator allows its host.
fn is_allowed_host(url: &Url, rules: &FetchRules) -> bool {
    // The config may have an IPv6 address with or without brackets.
    let bare = |host: &str| host.trim_matches(['[', ']']).to_ascii_lowercase();
    let host = url.host_str().map(bare);
    rules.hosts.iter().any(|known| Some(bare(known)) == host)
}

/// Parses the document of a URL. An error is the reason, for the operator.
pub(crate) fn read_document(
    url: &Url,
    body: &[u8],
    rules: &FetchRules,
) -> Result<ClientRecord, &'static str> {
    let members: DocumentMembers =
        serde_json::from_slice(body).map_err(|_| "it is not a client document")?;
    if members.client_id != url.as_str() {
        return Err("its client_id is another one");
    }
    if members.redirect_uris.is_empty() || members.redirect_uris.len() > REDIRECTS_MAX {
        return Err("it has no redirect_uris, or too many");
    }
    Ok(ClientRecord {
        proof: read_proof(&members, rules)?,
        id: members.client_id,
        name: visible_name(members.client_name.as_deref()),
        host: url.host_str().map(str::to_owned),
        origin: ClientOrigin::Document,
        redirects: members.redirect_uris,
    })
}

/// Reads how a client authenticates. A public document cannot contain a shared secret.
fn read_proof(members: &DocumentMembers, rules: &FetchRules) -> Result<ClientProof, &'static str> {
    match members.token_endpoint_auth_method.as_deref() {
        None | Some("none") => return Ok(ClientProof::None),
        Some("private_key_jwt") => {}
        Some(_) => {
            return Err("its token_endpoint_auth_method is neither none nor private_key_jwt");
        }
    }
    let keys = match (&members.jwks, members.jwks_uri.as_deref()) {
        (Some(jwks), None) => JwkSet::read(jwks.get().as_bytes())
            .map(ClientKeys::inline)
            .ok_or("its jwks has no usable key")?,
        (None, Some(address)) => parse_untrusted_url(address)
            .map(|url| ClientKeys::fetched(url, rules))
            .ok_or("its jwks_uri is not a usable URL")?,
        _ => return Err("it needs either jwks or jwks_uri"),
    };
    Ok(ClientProof::Keys(Arc::new(keys)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "https://client.test/oauth/client.json";

    fn read(document: &str) -> Result<ClientRecord, &'static str> {
        let url = Url::parse(ID).unwrap();
        read_document(&url, document.as_bytes(), &FetchRules::default())
    }

    fn document(more: &str) -> String {
        format!(r#"{{"client_id":"{ID}","redirect_uris":["https://client.test/cb"]{more}}}"#)
    }

    #[test]
    fn an_id_is_an_exact_url_with_a_path() {
        let allowing = FetchRules {
            hosts: vec!["127.0.0.1".to_owned(), "::1".to_owned()],
            ..FetchRules::default()
        };
        for (id, is_id) in [
            (ID, true),
            ("http://127.0.0.1:9000/client.json", true),
            ("http://[::1]:9000/client.json", true),
            ("http://client.test/oauth/client.json", false),
            ("https://client.test", false),
            ("https://client.test/", false),
            ("https://client.test/a/../client.json", false),
            ("https://client.test/a/%2e%2e/client.json", false),
            ("https://client.test:443/client.json", false),
            ("https://CLIENT.test/client.json", false),
            ("https://client.test/client.json?x=1", false),
            ("https://client.test/client.json#x", false),
            ("https://ann@client.test/client.json", false),
            ("ftp://client.test/client.json", false),
            ("mgc_1", false),
        ] {
            assert_eq!(parse_document_id(id, &allowing).is_some(), is_id, "{id}");
        }
    }

    #[test]
    fn another_document_is_refused() {
        for text in [
            String::new(),
            "<html>".to_owned(),
            "[]".to_owned(),
            "{}".to_owned(),
            document(r#","client_id":"https://client.test/oauth/client.json""#),
            document("").replace(ID, "https://client.test/oauth/client.json/"),
            document("").replace(ID, "https://evil.test/client.json"),
            document("").replace(r#""https://client.test/cb""#, ""),
            document(r#","token_endpoint_auth_method":"client_secret_basic""#),
            document(r#","token_endpoint_auth_method":"client_secret_jwt""#),
            document(r#","token_endpoint_auth_method":"private_key_jwt""#),
            document(r#","token_endpoint_auth_method":"private_key_jwt","jwks":{"keys":[]}"#),
            document(r#","token_endpoint_auth_method":"private_key_jwt","jwks_uri":"file:///x""#),
            document(
                r#","token_endpoint_auth_method":"private_key_jwt","jwks":{"keys":[]},
                    "jwks_uri":"https://client.test/keys""#,
            ),
        ] {
            assert!(read(&text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_document_says_how_its_client_proves_itself() {
        for more in [
            "",
            r#","token_endpoint_auth_method":"none","grant_types":["x"]"#,
        ] {
            let record = read(&document(more)).unwrap();
            assert!(matches!(record.proof, ClientProof::None));
            assert_eq!(
                (&*record.id, record.host.as_deref()),
                (ID, Some("client.test"))
            );
        }
        for keys in [
            r#""jwks_uri":"https://client.test/keys""#,
            r#""jwks":{"keys":[{"kty":"OKP","crv":"Ed25519",
                "x":"AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE"}]}"#,
        ] {
            let more = format!(r#","token_endpoint_auth_method":"private_key_jwt",{keys}"#);
            let record = read(&document(&more)).unwrap();
            assert!(matches!(record.proof, ClientProof::Keys(_)), "{keys}");
        }
    }
}
