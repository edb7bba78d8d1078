//! Metadata of the authorization server (RFC 8414).
//!
//! Owns what clients learn from it. Does not serve it (`metadata_route.rs`). Invariant: it lists
//! nothing that a route refuses and only our own scopes, since clients request every scope they
//! see.

use moongate_access::auth::{BrokerSettings, SignatureAlgorithm};
use serde::Serialize;

/// Client authentication methods, the most common first. A registration always gets `none`,
/// whatever it requests.
const CLIENT_METHODS: [&str; 4] = [
    "none",
    "client_secret_basic",
    "client_secret_post",
    "private_key_jwt",
];

#[derive(Serialize)]
struct ServerMetadata<'a> {
    issuer: &'a str,
    authorization_endpoint: String,
    token_endpoint: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    registration_endpoint: Option<String>,
    revocation_endpoint: String,
    scopes_supported: [&'static str; 2],
    response_types_supported: [&'static str; 1],
    response_modes_supported: [&'static str; 1],
    grant_types_supported: [&'static str; 2],
    token_endpoint_auth_methods_supported: [&'static str; 4],
    token_endpoint_auth_signing_alg_values_supported: [&'static str; 9],
    revocation_endpoint_auth_methods_supported: [&'static str; 4],
    revocation_endpoint_auth_signing_alg_values_supported: [&'static str; 9],
    code_challenge_methods_supported: [&'static str; 1],
    authorization_response_iss_parameter_supported: bool,
    client_id_metadata_document_supported: bool,
}

/// Returns the metadata as JSON.
pub(crate) fn server_document(settings: &BrokerSettings) -> String {
    let issuer = settings.issuer();
    let at = |path: &str| format!("{issuer}{path}");
    let algorithms = SignatureAlgorithm::ALL.map(SignatureAlgorithm::name);
    let metadata = ServerMetadata {
        issuer: &issuer,
        authorization_endpoint: at("/authorize"),
        token_endpoint: at("/token"),
        registration_endpoint: settings.clients.registered.then(|| at("/register")),
        revocation_endpoint: at("/revoke"),
        scopes_supported: ["mcp", "offline_access"],
        response_types_supported: ["code"],
        response_modes_supported: ["query"],
        grant_types_supported: ["authorization_code", "refresh_token"],
        token_endpoint_auth_methods_supported: CLIENT_METHODS,
        token_endpoint_auth_signing_alg_values_supported: algorithms,
        revocation_endpoint_auth_methods_supported: CLIENT_METHODS,
        revocation_endpoint_auth_signing_alg_values_supported: algorithms,
        code_challenge_methods_supported: ["S256"],
        authorization_response_iss_parameter_supported: true,
        client_id_metadata_document_supported: settings.clients.documents,
    };
    serde_json::to_string(&metadata).expect("our documents are JSON")
}

#[cfg(test)]
mod tests {
    use moongate_access::auth::ClientKinds;

    use crate::test_broker::settings;

    use super::*;

    #[test]
    fn the_document_lists_what_there_is() {
        let document = server_document(&settings());
        for member in [
            r#""issuer":"https://mcp.test","#,
            r#""authorization_endpoint":"https://mcp.test/authorize","#,
            r#""token_endpoint":"https://mcp.test/token","#,
            r#""registration_endpoint":"https://mcp.test/register","#,
            r#""revocation_endpoint":"https://mcp.test/revoke","#,
            r#""scopes_supported":["mcp","offline_access"],"#,
            r#""response_modes_supported":["query"],"#,
            r#""token_endpoint_auth_methods_supported":["none","#,
            r#""code_challenge_methods_supported":["S256"],"#,
            r#""authorization_response_iss_parameter_supported":true,"#,
            r#""client_id_metadata_document_supported":true"#,
        ] {
            assert!(document.contains(member), "{member}: {document}");
        }
        for word in ["null", "HS256", "implicit", "plain", "openid"] {
            assert!(!document.contains(word), "{word}: {document}");
        }
    }

    #[test]
    fn a_kind_of_clients_that_is_off_is_not_listed() {
        let off = BrokerSettings {
            clients: ClientKinds {
                documents: false,
                registered: false,
            },
            ..settings()
        };
        let document = server_document(&off);
        assert!(!document.contains("registration_endpoint"), "{document}");
        assert!(document.contains(r#""client_id_metadata_document_supported":false"#));
    }
}
