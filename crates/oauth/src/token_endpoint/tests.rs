//! Tests of `token_endpoint.rs`.

use moongate_telemetry::logs::redact;

use super::*;
use crate::authorization_request::tests::pending;
use crate::login_error::LoginError;

fn read(status: u16, body: &str) -> Result<TokenSet, TokenFailure> {
    let body = Bytes::copy_from_slice(body.as_bytes());
    let response = Response::builder().status(status).body(body).unwrap();
    read_tokens(&response, ExchangeKind::RefreshToken, "auth.example.com")
        .map_err(|refusal| refusal.failure)
}

fn client(method: ClientAuthMethod, secret: Option<&str>) -> ClientIdentity {
    ClientIdentity {
        id: "a:b c".to_owned(),
        secret: secret.map(SecretText::new),
        method,
        ..pending().client
    }
}

#[test]
fn a_client_authenticates_once() {
    let sent = |client: &ClientIdentity| {
        let mut form = TokenForm::new("refresh_token");
        let header = form.authenticate(client);
        let header = header.map(|value| value.to_str().unwrap().to_owned());
        (form.0, header)
    };
    // `a%3Ab+c:s%26%C3%A9` in base64.
    let header = "Basic YSUzQWIrYzpzJTI2JUMzJUE5".to_owned();
    let alone = "grant_type=refresh_token&client_id=a%3Ab+c".to_owned();
    let posted = "grant_type=refresh_token&client_secret=s%26%C3%A9&client_id=a%3Ab+c".to_owned();
    for (method, secret, form, header) in [
        (ClientAuthMethod::None, None, alone.clone(), None),
        (
            ClientAuthMethod::None,
            Some("s&\u{e9}"),
            alone.clone(),
            None,
        ),
        (ClientAuthMethod::Basic, None, alone, None),
        (
            ClientAuthMethod::Basic,
            Some("s&\u{e9}"),
            "grant_type=refresh_token".to_owned(),
            Some(header),
        ),
        (ClientAuthMethod::Post, Some("s&\u{e9}"), posted, None),
    ] {
        assert_eq!(sent(&client(method, secret)), (form, header), "{method:?}");
    }
    let value = basic("a", &SecretText::new("hush")).unwrap();
    assert!(value.is_sensitive());
}

#[test]
fn tokens_are_read() {
    let tokens = read(
        200,
        r#"{"access_token": "one", "token_type": "bEARER", "expires_in": 3600,
            "refresh_token": "two", "scope": ["read"], "id_token": 7}"#,
    );
    let expected = TokenSet {
        access: SecretText::new("one"),
        refresh: Some(SecretText::new("two")),
        expires_in: Some(Duration::from_secs(3600)),
    };
    let start = Timestamp::from_second(1000).unwrap();
    let end = Timestamp::from_second(4600).unwrap();
    assert_eq!(expected.expires_at(start), Some(end));
    assert_eq!(tokens, Ok(expected));
    let tokens = read(
        201,
        r#"{"access_token": "one", "token_type": "Bearer", "refresh_token": ""}"#,
    );
    let tokens = tokens.unwrap();
    assert_eq!(tokens.refresh, None);
    assert_eq!(tokens.expires_in, None);
    assert_eq!(tokens.expires_at(start), None);
}

#[test]
fn a_lifetime_is_a_number_or_a_text_and_has_bounds() {
    for (life, expected) in [
        ("60", Some(60)),
        ("60.0", Some(60)),
        ("\"60\"", Some(60)),
        ("0", None),
        ("-1", None),
        ("null", None),
        ("\"soon\"", None),
        ("\"inf\"", None),
        ("\"NaN\"", None),
        ("true", None),
        ("[60]", None),
        ("{\"seconds\": 60}", None),
        ("18446744073709551615", None),
        ("1e18", Some(LIFE_MAX.as_secs())),
    ] {
        let body =
            format!(r#"{{"access_token": "one", "token_type": "Bearer", "expires_in": {life}}}"#);
        let tokens = read(200, &body).unwrap();
        let found = tokens.expires_in.map(|life| life.as_secs());
        assert_eq!(found, expected, "{life}");
        assert!(tokens.expires_at(Timestamp::MAX).is_none(), "{life}");
    }
}

#[test]
fn a_member_of_the_wrong_type_does_not_cost_the_access_token() {
    for other in ["123", "true", "[\"two\"]", "{\"value\": \"two\"}", "null"] {
        let body = format!(
            r#"{{"access_token": "one", "token_type": "Bearer", "refresh_token": {other},
                "expires_in": {other}, "error": {other}}}"#
        );
        let tokens = read(200, &body).unwrap();
        assert_eq!(tokens.access, SecretText::new("one"), "{other}");
        assert_eq!(tokens.refresh, None, "{other}");
    }
    for body in [
        r#"{"access_token": 123, "token_type": "Bearer"}"#,
        r#"{"access_token": "one", "token_type": 1}"#,
    ] {
        let failure = read(200, body).unwrap_err();
        assert!(matches!(failure, TokenFailure::Unavailable(_)), "{body}");
    }
}

#[test]
fn a_refused_code_ends_no_login() {
    let body = Bytes::from_static(br#"{"error": "invalid_grant"}"#);
    let response = Response::builder().status(400).body(body).unwrap();
    let refusal = read_tokens(&response, ExchangeKind::Code, "auth.example.com").unwrap_err();
    assert!(matches!(refusal.failure, TokenFailure::Ended(_)));
    let shown = refusal.failure.to_string();
    assert!(
        shown.starts_with("auth.example.com issued no token, because it"),
        "{shown}"
    );
}

#[test]
fn the_redaction_of_logs_leaves_each_failure_as_it_is() {
    for (status, body) in [
        (400_u16, r#"{"error": "invalid_grant"}"#),
        (400, r#"{"error": "bad_refresh_token"}"#),
        (400, r#"{"error": "invalid_scope"}"#),
        (400, r#"{"error": "unknown"}"#),
        (503, r#"{"status": 503}"#),
        (503, "busy"),
        (200, "{}"),
        (200, r#"{"token_type": "Bearer"}"#),
    ] {
        for kind in [ExchangeKind::Code, ExchangeKind::RefreshToken] {
            let body = Bytes::from_static(body.as_bytes());
            let response = Response::builder().status(status).body(body).unwrap();
            let refusal = read_tokens(&response, kind, "auth.example.com").unwrap_err();
            let error = LoginError::Token {
                server: "files".to_owned(),
                failure: refusal.failure,
            };
            let text = error.to_string();
            assert_eq!(redact(&text), text);
        }
    }
}

#[test]
fn only_two_codes_end_a_login_whatever_the_status() {
    for (status, body, is_ended) in [
        (400, r#"{"error": "invalid_grant"}"#, true),
        (
            200,
            r#"{"error": "invalid_grant", "access_token": "a", "token_type": "Bearer"}"#,
            true,
        ),
        (401, r#"{"error": "invalid_client"}"#, true),
        (200, r#"{"error": "bad_refresh_token"}"#, true),
        (400, r#"{"error": "invalid_request"}"#, false),
        (400, r#"{"error": "invalid_scope"}"#, false),
        (
            200,
            r#"{"error": "", "access_token": "a", "token_type": "Bearer"}"#,
            false,
        ),
        (400, r#"{"error": "INVALID_GRANT"}"#, false),
        (500, r#"{"error": "server_error"}"#, false),
        (503, "", false),
        (401, "<html>invalid_grant</html>", false),
        (400, r#"{"error": {"code": "invalid_grant"}}"#, false),
        (
            500,
            r#"{"access_token": "a", "token_type": "Bearer"}"#,
            false,
        ),
        (200, "{}", false),
        (200, "[]", false),
        (200, r#"{"access_token": "a"}"#, false),
        (200, r#"{"access_token": "a", "token_type": "DPoP"}"#, false),
        (200, r#"{"token_type": "Bearer"}"#, false),
        (
            200,
            r#"{"access_token": "", "token_type": "Bearer"}"#,
            false,
        ),
        (
            200,
            r#"{"access_token": "a\r\nb", "token_type": "Bearer"}"#,
            false,
        ),
        (
            200,
            r#"{"access_token": "a b", "token_type": "Bearer"}"#,
            false,
        ),
        (
            200,
            r#"{"access_token": "a", "access_token": "b", "token_type": "Bearer"}"#,
            false,
        ),
    ] {
        let failure = read(status, body).unwrap_err();
        let found = matches!(failure, TokenFailure::Ended(_));
        assert_eq!(found, is_ended, "{status} {body}");
    }
}

#[test]
fn no_byte_of_an_answer_is_in_a_failure() {
    for (status, body) in [
        (
            400,
            r#"{"error": "canary", "error_description": "canary", "error_uri": "canary"}"#,
        ),
        (
            400,
            r#"{"error": "invalid_grant", "error_description": "canary"}"#,
        ),
        (500, "canary"),
        (200, r#"{"access_token": "canary", "token_type": "canary"}"#),
        (
            200,
            r#"{"access_token": "canary\n", "token_type": "Bearer"}"#,
        ),
    ] {
        let failure = read(status, body).unwrap_err();
        let shown = format!("{failure} {failure:?}");
        assert!(!shown.contains("canary"), "{shown}");
        assert!(shown.contains("auth.example.com"), "{shown}");
    }
}
