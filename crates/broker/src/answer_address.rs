//! Redirect addresses that carry the answer to a client.
//!
//! Owns the answer's parameters. Does not choose or check the redirect. Invariant: every answer has
//! `state` and `iss`, and goes to exactly the redirect that was checked.

use moongate_oauth::SecretText;
use url::form_urlencoded::Serializer;

use crate::authorize_request::AuthorizeRequest;
use crate::oauth_error::OAuthError;

/// Returns the redirect address with the answer to a request: a code or an error.
pub(crate) fn answer_address(
    issuer: &str,
    request: &AuthorizeRequest,
    answer: Result<&SecretText, &OAuthError>,
) -> String {
    address_at(issuer, &request.redirect, request.state.as_deref(), answer)
}

/// Returns the redirect address with an answer to a request whose other parameters may be invalid.
pub(crate) fn address_at(
    issuer: &str,
    redirect: &str,
    state: Option<&str>,
    answer: Result<&SecretText, &OAuthError>,
) -> String {
    let mut query = Serializer::new(String::new());
    match answer {
        Ok(code) => {
            query.append_pair("code", code.expose());
        }
        Err(error) => {
            query.append_pair("error", error.code.name());
            query.append_pair("error_description", error.text);
        }
    }
    if let Some(state) = state {
        query.append_pair("state", state);
    }
    // RFC 9207, section 2: `iss` lets a client detect an answer from another server.
    query.append_pair("iss", issuer);
    let query = query.finish();
    // RFC 6749, section 3.1.2: the redirect "MAY include an "application/x-www-form-urlencoded"
    // formatted query component, which MUST be retained". As text, since a parser would change it.
    let joint = match redirect.split_once('?') {
        None => "?",
        Some((_, retained)) if retained.is_empty() || retained.ends_with('&') => "",
        Some(_) => "&",
    };
    format!("{redirect}{joint}{query}")
}

#[cfg(test)]
mod tests {
    use crate::oauth_error::OAuthCode;

    use super::*;

    const ISSUER: &str = "https://mcp.test";

    fn with_code(redirect: &str, state: Option<&str>) -> String {
        address_at(ISSUER, redirect, state, Ok(&SecretText::new("c-1")))
    }

    #[test]
    fn no_state_can_add_a_parameter_or_end_the_query() {
        assert_eq!(
            with_code(
                "https://claude.ai/cb",
                Some("x&code=evil#y\r\nSet-Cookie: a=b")
            ),
            "https://claude.ai/cb?code=c-1&state=x%26code%3Devil%23y%0D%0ASet-Cookie%3A+a%3Db\
             &iss=https%3A%2F%2Fmcp.test"
        );
    }

    #[test]
    fn the_redirect_stays_as_it_is() {
        for (redirect, start) in [
            ("http://127.0.0.1:7000", "http://127.0.0.1:7000?code=c-1&"),
            ("http://[::1]:7000/cb", "http://[::1]:7000/cb?code=c-1&"),
            (
                "https://a.test/cb?x=%41",
                "https://a.test/cb?x=%41&code=c-1&",
            ),
            ("https://a.test/cb?x=1&", "https://a.test/cb?x=1&code=c-1&"),
            ("https://a.test/cb?", "https://a.test/cb?code=c-1&"),
            ("cursor://a.b/oauth", "cursor://a.b/oauth?code=c-1&"),
            ("com.example.app:/cb", "com.example.app:/cb?code=c-1&"),
        ] {
            assert_eq!(
                with_code(redirect, None),
                format!("{start}iss=https%3A%2F%2Fmcp.test")
            );
        }
    }

    #[test]
    fn an_error_has_the_parameters_of_an_answer() {
        let error = OAuthError::new(OAuthCode::AccessDenied, "The person said no.");
        let address = address_at(ISSUER, "https://a.test/cb", Some("s"), Err(&error));
        assert_eq!(
            address,
            "https://a.test/cb?error=access_denied&error_description=The+person+said+no.\
             &state=s&iss=https%3A%2F%2Fmcp.test"
        );
    }
}
