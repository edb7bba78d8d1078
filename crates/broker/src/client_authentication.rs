//! Client authentication in a request to `/token` or `/revoke`.
//!
//! Owns where a request may carry it. Does not verify a proof (`clients.rs`). Invariant: a request
//! names one client in one place, so the client that is checked is the one that is used.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use http::HeaderMap;
use http::header::AUTHORIZATION;
use moongate_tokens::ClaimSet;
use url::form_urlencoded;

use crate::form_fields::FormFields;
use crate::oauth_error::{OAuthCode, OAuthError};

/// Type of assertions (RFC 7523, section 2.2).
const ASSERTION_TYPE: &str = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer";

/// Error for a request that names no client.
const NO_CLIENT: OAuthError =
    OAuthError::new(OAuthCode::InvalidClient, "The request names no client");
/// Error for a request that authenticates in several ways.
const SEVERAL: OAuthError = OAuthError::new(
    OAuthCode::InvalidRequest,
    "The client authenticates in more than one way",
);
/// Error for an assertion about another client than the request names.
const FOREIGN: OAuthError = OAuthError::new(
    OAuthCode::InvalidClient,
    "The client_assertion names another client than client_id",
);
/// Error for a client with a secret, since no client has one.
const SECRET: OAuthError = OAuthError::new(
    OAuthCode::InvalidClient,
    "Clients have no secrets here: register again",
);

/// Client named in a request.
#[derive(PartialEq, Eq)]
pub(crate) struct SentClient<'a> {
    /// Id, still unproven.
    pub(crate) id: String,
    /// Assertion that authenticates the client.
    pub(crate) assertion: Option<&'a str>,
}

/// Reads the client of a request.
pub(crate) fn read_client<'a>(
    headers: &HeaderMap,
    form: &'a FormFields,
) -> Result<SentClient<'a>, OAuthError> {
    let in_form = form.get("client_id");
    let assertion = read_assertion(form)?;
    if form.get("client_secret").is_some() {
        return Err(SECRET);
    }
    let in_header = read_basic(headers)?;
    if in_header.is_some() && assertion.is_some() {
        return Err(SEVERAL);
    }
    let proved = match (in_header, assertion) {
        (Some(id), _) => Some(id),
        (None, Some(assertion)) => Some(unproved_subject(assertion).ok_or(NO_CLIENT)?),
        (None, None) => None,
    };
    let id = match (proved, in_form) {
        // RFC 7521, section 4.2.1: an assertion that is not valid is `invalid_client`.
        (Some(proved), Some(id)) if proved != id && assertion.is_some() => return Err(FOREIGN),
        (Some(proved), Some(id)) if proved != id => return Err(SEVERAL),
        (Some(proved), _) => proved,
        (None, Some(id)) => id.to_owned(),
        (None, None) => return Err(NO_CLIENT),
    };
    Ok(SentClient { id, assertion })
}

fn read_assertion(form: &FormFields) -> Result<Option<&str>, OAuthError> {
    let assertion = form.get("client_assertion");
    match (assertion, form.get("client_assertion_type")) {
        (None, None) => Ok(None),
        (Some(_), Some(ASSERTION_TYPE)) => Ok(assertion),
        _ => Err(OAuthError::new(
            OAuthCode::InvalidClient,
            "The client_assertion_type is not jwt-bearer",
        )),
    }
}

/// Reads the client from an assertion that is not verified yet. It only selects the keys to use.
fn unproved_subject(assertion: &str) -> Option<String> {
    let claims = assertion.split('.').nth(1)?;
    let claims = URL_SAFE_NO_PAD.decode(claims).ok()?;
    let claims: ClaimSet = serde_json::from_slice(&claims).ok()?;
    claims.text("sub").map(str::to_owned)
}

/// Reads the client from a Basic header, which libraries also send without a secret.
fn read_basic(headers: &HeaderMap) -> Result<Option<String>, OAuthError> {
    let mut basic = headers
        .get_all(AUTHORIZATION)
        .into_iter()
        .filter_map(|value| value.to_str().ok())
        .filter_map(|value| value.split_once(' '))
        .filter(|(scheme, _)| scheme.eq_ignore_ascii_case("basic"));
    let Some((_, credentials)) = basic.next() else {
        return Ok(None);
    };
    if basic.next().is_some() {
        return Err(SEVERAL);
    }
    let decoded = STANDARD.decode(credentials.trim());
    let text = decoded.ok().and_then(|bytes| String::from_utf8(bytes).ok());
    let text = text.ok_or(NO_CLIENT)?;
    match text.split_once(':') {
        Some((id, "")) if !id.is_empty() => Ok(Some(decode_form(id))),
        Some((_, secret)) if !secret.is_empty() => Err(SECRET),
        _ => Err(NO_CLIENT),
    }
}

/// Decodes a form-encoded value (RFC 6749, section 2.3.1).
fn decode_form(text: &str) -> String {
    let mut pairs = form_urlencoded::parse(text.as_bytes());
    match (pairs.next(), pairs.next()) {
        (Some((name, value)), None) if value.is_empty() => name.into_owned(),
        // Some clients do not encode it, contrary to the RFC.
        _ => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    // {"sub":"https://client.test/c.json"}
    const SUBJECT: &str = "x.eyJzdWIiOiJodHRwczovL2NsaWVudC50ZXN0L2MuanNvbiJ9.x";
    const CLIENT: &str = "https://client.test/c.json";
    const TYPE: &str = "urn%3Aietf%3Aparams%3Aoauth%3Aclient-assertion-type%3Ajwt-bearer";

    fn read(authorization: &[&str], form: &str) -> Result<(String, bool), OAuthCode> {
        let mut headers = HeaderMap::new();
        for value in authorization {
            headers.append(AUTHORIZATION, HeaderValue::from_str(value).unwrap());
        }
        let form = FormFields::of_query(form).unwrap();
        let client = read_client(&headers, &form).map_err(|error| error.code)?;
        Ok((client.id, client.assertion.is_some()))
    }

    fn basic(credentials: &str) -> String {
        format!("Basic {}", STANDARD.encode(credentials))
    }

    #[test]
    fn a_request_with_two_clients_or_a_secret_is_refused() {
        let with_secret = basic("mgc_1:hush");
        let own = basic("mgc_1:");
        let broken = "Basic !".to_owned();
        let assertion = format!("client_assertion={SUBJECT}&client_assertion_type={TYPE}");
        let refused = OAuthCode::InvalidClient;
        for (headers, form, code) in [
            (vec![], "".to_owned(), refused),
            (vec![], "client_id=".to_owned(), refused),
            (
                vec![],
                "client_id=mgc_1&client_secret=x".to_owned(),
                refused,
            ),
            (vec![&*with_secret], "client_id=mgc_1".to_owned(), refused),
            (vec![&*broken], "client_id=mgc_1".to_owned(), refused),
            (
                vec![&*own],
                "client_id=mgc_2".to_owned(),
                OAuthCode::InvalidRequest,
            ),
            (vec![&*own, &*own], String::new(), OAuthCode::InvalidRequest),
            (vec![&*own], assertion.clone(), OAuthCode::InvalidRequest),
            (vec![], format!("client_id=mgc_1&{assertion}"), refused),
            (vec![], format!("client_assertion={SUBJECT}"), refused),
            (
                vec![],
                format!("client_assertion_type={TYPE}&client_id=mgc_1"),
                refused,
            ),
            (vec![], assertion.replace(SUBJECT, "x.y.z"), refused),
        ] {
            assert_eq!(read(&headers, &form), Err(code), "{headers:?} {form}");
        }
    }

    #[test]
    fn a_client_is_named_by_form_header_or_assertion() {
        let assertion = format!("client_assertion={SUBJECT}&client_assertion_type={TYPE}");
        let encoded = basic("https%3A%2F%2Fclient.test%2Fc.json:");
        for (headers, form, id, is_proved) in [
            (vec![], "client_id=mgc_1".to_owned(), "mgc_1", false),
            (
                vec!["Bearer x"],
                "client_id=mgc_1".to_owned(),
                "mgc_1",
                false,
            ),
            (vec![&*encoded], String::new(), CLIENT, false),
            (vec![], assertion.clone(), CLIENT, true),
            (
                vec![],
                format!("{assertion}&client_id={CLIENT}"),
                CLIENT,
                true,
            ),
        ] {
            let expected = Ok((id.to_owned(), is_proved));
            assert_eq!(read(&headers, &form), expected, "{headers:?} {form}");
        }
        let plain = basic("mgc_a-b_c:");
        assert_eq!(read(&[&plain], ""), Ok(("mgc_a-b_c".to_owned(), false)));
    }
}
