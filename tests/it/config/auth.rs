//! Credentials for servers: how `auth` is resolved, who takes it for a change, and where its
//! secrets are.

use moongate_oauth::{
    ClientCredentialsSettings, ClientProof, CommandSettings, OAuthSettings, SecretText, ServerAuth,
};
use url::Url;

use super::*;

/// `auth` of the only server of a config.
fn auth_of(lines: &str) -> ServerAuth {
    let text = format!("[servers.a]\nurl = \"https://a.example/mcp\"\n{lines}\n");
    auth_in(&plan(
        &[("moongate.toml", &text)],
        &[("SECRET", "hush-client")],
    ))
}

/// `auth` of the only server of a config, as a table.
fn auth_of_table(lines: &str) -> ServerAuth {
    auth_of(&format!("[servers.a.auth]\n{lines}"))
}

fn auth_in(plan: &Plan) -> ServerAuth {
    let ConnectTarget::Http { auth, .. } = &plan.servers[0].connect else {
        panic!("{:?}", plan.servers);
    };
    auth.clone()
}

#[test]
fn a_server_without_auth_can_be_logged_in_to() {
    let default = ServerAuth::OAuth(OAuthSettings::default());
    for lines in ["", "auth = {}", "auth = { type = \"oauth\" }"] {
        assert_eq!(auth_of(lines), default, "{lines}");
    }
}

#[test]
fn a_login_has_the_settings_of_the_config() {
    let auth = auth_of_table(
        r#"
        client_id = "moongate"
        client_secret = "${SECRET}"
        issuer = "http://127.0.0.1:9000"
        scopes = ["read", "write"]
        resource = false
        params = { access_type = "offline", prompt = "" }
        "#,
    );
    let pair = |(name, value): (&str, &str)| (name.to_owned(), value.to_owned());
    let expected = OAuthSettings {
        client_id: Some("moongate".to_owned()),
        client_secret: Some(SecretText::new("hush-client")),
        client_id_url: None,
        issuer: Some(Url::parse("http://127.0.0.1:9000").unwrap()),
        scopes: Some(vec!["read".to_owned(), "write".to_owned()]),
        sends_resource: false,
        params: BTreeMap::from([("access_type", "offline"), ("prompt", "")].map(pair)),
    };
    assert_eq!(auth, ServerAuth::OAuth(expected));
    let document = auth_of("auth = { client_id_url = \"https://example.com/client.json\" }");
    let expected = OAuthSettings {
        client_id_url: Some(Url::parse("https://example.com/client.json").unwrap()),
        ..OAuthSettings::default()
    };
    assert_eq!(document, ServerAuth::OAuth(expected));
}

#[test]
fn a_command_has_the_settings_of_the_config() {
    let auth = auth_of_table(
        r#"
        type = "command"
        command = "gh"
        args = ["auth", "token"]
        env = { A = "${SECRET}" }
        "#,
    );
    let expected = CommandSettings {
        command: "gh".to_owned(),
        args: vec!["auth".to_owned(), "token".to_owned()],
        env: vec![("A".to_owned(), SecretText::new("hush-client"))],
        ttl: Duration::from_secs(600),
    };
    assert_eq!(auth, ServerAuth::Command(expected));
}

#[test]
fn a_client_without_a_person_has_the_settings_of_the_config() {
    let auth = auth_of(
        r#"
        [servers.a.auth]
        type = "client_credentials"
        client_id = "moongate"
        client_secret = "${SECRET}"
        issuer = "https://login.example.com/tenant"
        scopes = ["read"]
        resource = false
        "#,
    );
    let expected = ClientCredentialsSettings {
        client_id: "moongate".to_owned(),
        proof: ClientProof::Secret(SecretText::new("hush-client")),
        issuer: Url::parse("https://login.example.com/tenant").unwrap(),
        scopes: Some(vec!["read".to_owned()]),
        sends_resource: false,
    };
    assert_eq!(auth, ServerAuth::ClientCredentials(expected));
}

#[test]
fn the_private_key_of_a_client_comes_from_a_file() {
    use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair};
    use base64::Engine as _;

    let random = aws_lc_rs::rand::SystemRandom::new();
    let algorithm = &ECDSA_P256_SHA256_FIXED_SIGNING;
    let document = EcdsaKeyPair::generate_pkcs8(algorithm, &random).unwrap();
    let packed = base64::engine::general_purpose::STANDARD.encode(document.as_ref());
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("key.pem");
    let pem = format!("-----BEGIN PRIVATE KEY-----\n{packed}\n-----END PRIVATE KEY-----\n");
    std::fs::write(&file, pem).unwrap();
    let auth = auth_of(&format!(
        r#"
        [servers.a.auth]
        type = "client_credentials"
        client_id = "moongate"
        private_key = "${{file:{}}}"
        key_id = "key-1"
        audience = "https://login.example.com"
        issuer = "https://login.example.com"
        "#,
        file.display()
    ));
    let ServerAuth::ClientCredentials(settings) = auth else {
        panic!("{auth:?}");
    };
    let ClientProof::Assertion(assertion) = &settings.proof else {
        panic!("{settings:?}");
    };
    assert_eq!(assertion.key_id.as_deref(), Some("key-1"));
    let audience = assertion.audience.as_deref();
    assert_eq!(audience, Some("https://login.example.com"));
    assert!(!format!("{settings:?}").contains(&packed));
}

#[test]
fn a_websocket_may_have_auth() {
    let text = "[servers.a]\nurl = \"wss://a.example/mcp\"\nauth = { client_id = \"x\" }\n";
    let auth = auth_in(&plan(&[("moongate.toml", text)], &[]));
    let ServerAuth::OAuth(settings) = auth else {
        panic!("{auth:?}");
    };
    assert_eq!(settings.client_id.as_deref(), Some("x"));
}

#[test]
fn secrets_of_auth_are_shown_nowhere() {
    let text = r#"
        [servers.a]
        url = "https://a.example/mcp"
        auth = { client_id = "shown-client", client_secret = "hush-literal" }
        [servers.b]
        url = "https://b.example/mcp"
        auth = { type = "command", command = "gh", env = { A = "hush-value", GH_TOKEN = "hush-2" } }
        [servers.c]
        url = "https://c.example/mcp"
        auth = { client_id = "x", client_secret = "${SECRET}" }
        [servers.d]
        url = "https://d.example/mcp"
        [servers.d.auth]
        type = "client_credentials"
        client_id = "x"
        issuer = "https://login.example.com"
        client_secret = "hush-d"
        "#;
    let loaded = load_texts(&[("moongate.toml", text)], &[("SECRET", "hush-variable")]).unwrap();
    let printed = loaded.print();
    assert!(printed.contains("shown-client"), "{printed}");
    for shown in [printed, format!("{:?}", loaded.plan)] {
        assert!(!shown.contains("hush"), "{shown}");
    }
}

#[test]
fn a_changed_auth_is_another_connection() {
    let server = |lines: &str| {
        let text = format!("[servers.a]\nurl = \"https://a.example/mcp\"\n{lines}\n");
        let plan = plan(&[("moongate.toml", &text)], &[]);
        plan.servers[0].clone()
    };
    let before = server("auth = { client_id = \"x\" }");
    assert_eq!(
        before,
        server("auth = { type = \"oauth\", client_id = \"x\" }")
    );
    for lines in ["", "auth = { client_id = \"y\" }"] {
        assert!(!before.same_connection(&server(lines)), "{lines}");
    }
}

#[test]
fn auth_of_a_client_s_file_is_ours_only_in_our_form() {
    let load_json = |name: &str, auth: &str| {
        let text =
            format!(r#"{{"servers": {{"a": {{"url": "https://a.example/", "auth": {auth}}}}}}}"#);
        let loaded = load_texts(&[(name, &text)], &[]).unwrap();
        let warned = loaded.warnings.iter().any(|it| it.message.contains("auth"));
        (auth_in(&loaded.plan), warned)
    };
    let ours = r#"{"type": "command", "command": "gh"}"#;
    let (auth, warned) = load_json("moongate.json", ours);
    assert!(
        matches!(auth, ServerAuth::Command(_)) && !warned,
        "{auth:?}"
    );
    // An editor's file is never ours, so that nothing of it runs.
    for (name, auth) in [("moongate.json", "\"oauth\""), ("mcp.json", ours)] {
        let found = load_json(name, auth);
        assert_eq!(found, (ServerAuth::default(), true), "{name} {auth}");
    }
    let theirs = r#"{"CLIENT_ID": "x", "CLIENT_SECRET": "y", "scopes": ["a"]}"#;
    let login = OAuthSettings {
        client_id: Some("x".to_owned()),
        client_secret: Some(SecretText::new("y")),
        scopes: Some(vec!["a".to_owned()]),
        ..OAuthSettings::default()
    };
    let expected = (ServerAuth::OAuth(login), true);
    for name in ["moongate.json", "mcp.json"] {
        assert_eq!(load_json(name, theirs), expected, "{name}");
    }
}

#[test]
fn hosts_of_egress_are_compared_as_urls_have_them() {
    let text = "[egress]\nallow = [\"Auth.Internal\", \"10.0.0.7\", \"[::1]\", \"fd00::7\"]\n";
    let plan = plan(&[("moongate.toml", text)], &[]);
    assert_eq!(plan.egress, ["auth.internal", "10.0.0.7", "::1", "fd00::7"]);
}
