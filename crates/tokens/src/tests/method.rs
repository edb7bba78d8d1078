//! Tests of the authentication method, with keys that it fetched.

use std::sync::Arc;

use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderValue};
use moongate_access::auth::{
    AuthError, AuthMethods, AuthSettings, LackedRight, PrincipalTable, RoleMatch,
    SignatureAlgorithm, TokenIssuer, TokenSettings,
};
use moongate_access::policy::{GlobList, RoleAccess};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use url::Url;

use super::signed_token::{ISSUER, IssuerSecrets, PUBLIC_URL, claims_replacing, claims_with};
use crate::TokenMethodSource;

const HEADER: &str = r#"{"alg":"ES256","kid":"es256"}"#;
const CHALLENGE: &str = concat!(
    r#"Bearer resource_metadata="https://mcp.test/.well-known/oauth-protected-resource/mcp", "#,
    r#"scope="mcp", error="invalid_token""#
);

/// Serves a key set at every path. Returns its URL.
async fn serve_keys(set: String) -> Url {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/keys", listener.local_addr().unwrap());
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let _ = stream.read(&mut [0; 4096]).await;
            let length = set.len();
            let response = format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n{set}");
            let _ = stream.write_all(response.as_bytes()).await;
        }
    });
    Url::parse(&url).unwrap()
}

fn settings(jwks_url: Url) -> AuthSettings {
    let issuer = TokenIssuer {
        issuer: ISSUER.to_owned(),
        audience: None,
        algorithms: vec![SignatureAlgorithm::Es256],
        jwks_url,
        scope: "mcp".to_owned(),
    };
    let staff = RoleMatch {
        role: "staff".to_owned(),
        issuer: ISSUER.to_owned(),
        anyone: false,
        claims: [("groups".to_owned(), vec!["staff".to_owned()])].into(),
        emails: None,
    };
    AuthSettings {
        roles: vec![RoleAccess {
            name: "staff".to_owned(),
            shared_role: None,
            endpoints: None,
            tools: vec![GlobList::all()],
            rate: None,
        }],
        matches: vec![staff],
        tokens: Some(TokenSettings {
            public_url: Url::parse(PUBLIC_URL).unwrap(),
            issuers: vec![issuer],
        }),
        ..AuthSettings::default()
    }
}

fn methods(settings: &AuthSettings) -> Arc<AuthMethods> {
    let source = Arc::new(TokenMethodSource::new(Vec::new(), &[7; 32]));
    AuthMethods::with_source(Arc::default(), Vec::new(), Some(source), settings).0
}

fn sent(token: &str) -> HeaderMap {
    let value = HeaderValue::try_from(format!("Bearer {token}")).unwrap();
    HeaderMap::from_iter([(AUTHORIZATION, value)])
}

/// Authenticates a token, and waits for the fetch that a refusal carries.
async fn authenticate(methods: &AuthMethods, token: &str) -> Result<String, AuthError> {
    let headers = sent(token);
    let refused = match methods.authenticate(&headers, "", None) {
        Ok(identity) => return Ok(identity.principal.name.clone()),
        Err(refused) => refused,
    };
    let Some(fetch) = refused.fetch else {
        return Err(refused.error);
    };
    fetch.await;
    methods
        .authenticate(&headers, "", None)
        .map(|identity| identity.principal.name.clone())
        .map_err(|refused| refused.error)
}

#[tokio::test]
async fn a_valid_token_proves_its_person_and_a_missing_right_is_named() {
    let secrets = IssuerSecrets::new();
    let methods = methods(&settings(serve_keys(secrets.key_set()).await));
    let staff = secrets.sign(HEADER, &claims_with(r#","groups":["staff"]"#));
    let found = authenticate(&methods, &staff).await;
    assert_eq!(found.as_deref(), Ok("ann at https://login.test"));
    assert!(!methods.principals().is_single());
    let guest = secrets.sign(HEADER, &claims_with(""));
    assert_eq!(
        authenticate(&methods, &guest).await,
        Err(AuthError::Forbidden(LackedRight::Role))
    );
    let without_groups = secrets.sign(HEADER, &claims_with(r#","_claim_names":{"groups":"src1"}"#));
    let refused = authenticate(&methods, &without_groups).await.unwrap_err();
    assert_eq!(refused, AuthError::Forbidden(LackedRight::Groups));
    assert!(refused.cause().contains("use app roles"));
    let claims = claims_replacing(r#""scope":"openid mcp""#, r#""groups":["staff"]"#);
    let without_scope = secrets.sign(HEADER, &claims);
    assert_eq!(
        authenticate(&methods, &without_scope).await,
        Err(AuthError::Forbidden(LackedRight::Scope))
    );
    // The same token opens no other endpoint, although the connection has just verified it.
    let mut cached = None;
    let headers = sent(&staff);
    assert!(
        methods
            .authenticate(&headers, "", Some(&mut cached))
            .is_ok()
    );
    let refused = methods.authenticate(&headers, "files", Some(&mut cached));
    let cause = refused.err().map(|refused| refused.error.cause());
    assert_eq!(cause, Some("token for another audience"));
}

#[tokio::test]
async fn every_refusal_looks_the_same_and_only_unknown_keys_cause_a_fetch() {
    let secrets = IssuerSecrets::new();
    let methods = methods(&settings(serve_keys(secrets.key_set()).await));
    let good = secrets.sign(HEADER, &claims_with(r#","groups":["staff"]"#));
    assert!(authenticate(&methods, &good).await.is_ok());
    let claims = claims_with("");
    let foreign = IssuerSecrets::new();
    for token in [
        secrets.sign(r#"{"alg":"none"}"#, &claims),
        secrets.sign(r#"{"alg":"ES256","kid":"other"}"#, &claims),
        foreign.sign(HEADER, &claims_with(r#","groups":["staff"]"#)),
        secrets.sign(HEADER, &claims_replacing(r#""exp":"#, r#""exp":1,"ex":"#)),
        secrets.sign(HEADER, &claims_replacing(ISSUER, "https://evil.test")),
        "eyJhbGciOiJub25lIn0.e30.".to_owned(),
        "unknown-key".to_owned(),
    ] {
        let refused = methods.authenticate(&sent(&token), "", None).err().unwrap();
        // The keys were fetched a moment ago.
        assert!(refused.fetch.is_none(), "{token}");
        let challenge = methods.challenge(&refused.error, "", Some("mcp.test"));
        assert_eq!(challenge, CHALLENGE, "{token}");
    }
}

#[tokio::test]
async fn a_token_whose_keys_cannot_be_fetched_is_not_called_invalid() {
    let secrets = IssuerSecrets::new();
    // Nothing listens there.
    let methods = methods(&settings(Url::parse("http://127.0.0.1:9/keys").unwrap()));
    let good = secrets.sign(HEADER, &claims_with(r#","groups":["staff"]"#));
    let foreign = IssuerSecrets::new().sign(HEADER, &claims_with(""));
    for token in [good, foreign] {
        let refused = authenticate(&methods, &token).await.unwrap_err();
        assert!(matches!(refused, AuthError::Unchecked(_)), "{refused:?}");
    }
    let other = secrets.sign(HEADER, &claims_replacing(ISSUER, "https://evil.test"));
    let refused = authenticate(&methods, &other).await.unwrap_err();
    assert!(matches!(refused, AuthError::Invalid(_)), "{refused:?}");
}

#[tokio::test]
async fn no_oauth_metadata_is_served_at_another_host_or_without_an_issuer() {
    let settings = settings(Url::parse("http://127.0.0.1:9/keys").unwrap());
    let with_issuer = methods(&settings);
    let path = "/.well-known/oauth-protected-resource/mcp";
    let document = with_issuer.document(path, Some("MCP.test:443")).unwrap();
    assert!(
        document.starts_with(r#"{"resource":"https://mcp.test/mcp","#),
        "{document}"
    );
    let plain = r#"Bearer realm="moongate""#;
    for host in [
        Some("127.0.0.1:8080"),
        Some("localhost"),
        Some("evil.test"),
        None,
    ] {
        assert_eq!(with_issuer.document(path, host), None, "{host:?}");
        assert_eq!(
            with_issuer.challenge(&AuthError::Missing, "", host),
            plain,
            "{host:?}"
        );
    }
    assert_eq!(
        with_issuer.document("/.well-known/oauth-protected-resource", Some("mcp.test")),
        None
    );
    let (reloaded, _) = with_issuer.reloaded(&AuthSettings {
        tokens: None,
        required: true,
        ..settings
    });
    assert_eq!(reloaded.document(path, Some("mcp.test")), None);
    assert_eq!(
        reloaded.challenge(&AuthError::Missing, "", Some("mcp.test")),
        plain
    );
}

#[tokio::test]
async fn a_connection_has_the_roles_of_its_own_token() {
    let secrets = IssuerSecrets::new();
    let mut settings = settings(serve_keys(secrets.key_set()).await);
    let admin = RoleMatch {
        role: "admin".to_owned(),
        claims: [("groups".to_owned(), vec!["admin".to_owned()])].into(),
        ..settings.matches[0].clone()
    };
    settings.matches.push(admin);
    let methods = methods(&settings);
    let narrow = secrets.sign(HEADER, &claims_with(r#","groups":["staff"]"#));
    let wide = secrets.sign(HEADER, &claims_with(r#","groups":["staff","admin"]"#));
    authenticate(&methods, &narrow).await.unwrap();
    let mut connections = [None, None];
    let mut roles = Vec::new();
    for _ in 0..2 {
        for (token, cached) in [&narrow, &wide].into_iter().zip(&mut connections) {
            let proven = methods.authenticate(&sent(token), "", Some(cached));
            roles.push(proven.ok().unwrap().principal.role());
        }
    }
    assert_ne!(roles[0], roles[1]);
    assert_eq!(roles[..2], roles[2..], "the narrow token gains nothing");
}

#[tokio::test]
async fn a_person_stays_until_the_last_of_their_tokens_ends() {
    let secrets = IssuerSecrets::new();
    let settings = settings(serve_keys(secrets.key_set()).await);
    let methods = methods(&settings);
    let long = secrets.sign(HEADER, &claims_with(r#","groups":["staff"]"#));
    authenticate(&methods, &long).await.unwrap();
    let principals: &Arc<PrincipalTable> = methods.principals();
    let key = principals.all()[0].key;
    let end = principals.expiry_of(&key).unwrap();
    let soon = format!(r#""exp":{},"ex":"#, jiff::Timestamp::now().as_second() + 60);
    let claims = claims_replacing(r#""exp":"#, &soon).replace("openid", "mcp");
    let short = claims.replacen('{', r#"{"groups":["staff"],"#, 1);
    authenticate(&methods, &secrets.sign(HEADER, &short))
        .await
        .unwrap();
    assert_eq!(principals.expiry_of(&key), Some(end));
    assert_eq!(principals.all().len(), 1);
}
