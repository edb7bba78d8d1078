//! Authorization responses: what the browser brings back.
//!
//! Owns the reading of the address, and the checks before a code is used. Does not exchange the
//! code. Invariant: nothing in a response is used before its state, address and issuer are checked.

use std::collections::BTreeSet;

use url::{Url, form_urlencoded};

use crate::authorization_request::{PendingLogin, callback_path};
use crate::error_codes;
use crate::login_error::LoginError;
use crate::secret_text::SecretText;
use crate::untrusted_url;

/// Maximum length of an address, in bytes.
const LENGTH_MAX: usize = 8 * 1024;

/// Answer at the redirect address, parsed from its query.
#[derive(Debug)]
pub struct AuthorizationResponse {
    /// Path of a pasted address.
    path: Option<String>,
    state: Option<SecretText>,
    code: Option<SecretText>,
    iss: Option<String>,
    error: Option<String>,
}

impl AuthorizationResponse {
    /// Reads the query of the callback.
    ///
    /// # Errors
    /// The text is too long, has invisible characters, or repeats a parameter.
    pub fn from_query(query: &str) -> Result<Self, LoginError> {
        let is_visible = query.bytes().all(|byte| byte.is_ascii_graphic());
        if query.len() > LENGTH_MAX || !is_visible {
            return Err(LoginError::NotAnAnswer);
        }
        let mut response = AuthorizationResponse {
            path: None,
            state: None,
            code: None,
            iss: None,
            error: None,
        };
        let mut names = BTreeSet::new();
        for (name, value) in form_urlencoded::parse(query.as_bytes()) {
            let value = value.into_owned();
            match &*name {
                "state" => response.state = Some(SecretText::new(value)),
                "code" => response.code = Some(SecretText::new(value)),
                "iss" => response.iss = Some(value),
                "error" => response.error = Some(value),
                _ => {}
            }
            // RFC 6749, section 3.1: parameters "MUST NOT be included more than once".
            if !names.insert(name) {
                return Err(LoginError::NotAnAnswer);
            }
        }
        Ok(response)
    }

    /// Reads a pasted address, or only its query.
    ///
    /// # Errors
    /// The text isn't such an address.
    pub fn from_address(text: &str) -> Result<Self, LoginError> {
        let text = text.trim();
        // A fragment stays in the browser, so it isn't part of the answer.
        let text = text.split_once('#').map_or(text, |(before, _)| before);
        let Some((before, query)) = text.split_once('?') else {
            return Self::from_query(text)?.with_parameters()?.with_origin();
        };
        let response = Self::from_query(query)?.with_parameters()?;
        let path = match before {
            "" => None,
            _ => Some(path_of(before).ok_or(LoginError::NotAnAnswer)?),
        };
        AuthorizationResponse { path, ..response }.with_origin()
    }

    /// Refuses a text with neither a code nor an error.
    fn with_parameters(self) -> Result<Self, LoginError> {
        let is_answer = self.code.is_some() || self.error.is_some();
        match is_answer {
            true => Ok(self),
            false => Err(LoginError::NotAnAnswer),
        }
    }

    /// Refuses a pasted answer that does not show where it came from.
    fn with_origin(self) -> Result<Self, LoginError> {
        let is_shown = self.path.is_some() || self.iss.is_some();
        match is_shown {
            true => Ok(self),
            false => Err(LoginError::NotAnAnswer),
        }
    }

    /// State, which identifies the waiting login.
    pub fn state(&self) -> Option<&str> {
        self.state.as_ref().map(SecretText::expose)
    }

    /// Checks an answer that arrived at this path. Returns its code.
    ///
    /// # Errors
    /// The answer is for another login, from another authorization server, or has no code.
    pub fn check(
        &self,
        pending: &PendingLogin,
        callback_path: &str,
    ) -> Result<SecretText, LoginError> {
        self.check_from(pending, Some(callback_path))
    }

    /// Checks a pasted answer. Returns its code.
    ///
    /// # Errors
    /// The answer is for another login, from another authorization server, or has no code.
    pub fn check_pasted(&self, pending: &PendingLogin) -> Result<SecretText, LoginError> {
        self.check_from(pending, self.path.as_deref())
    }

    fn check_from(
        &self,
        pending: &PendingLogin,
        path: Option<&str>,
    ) -> Result<SecretText, LoginError> {
        if self.state() != Some(pending.state.expose()) {
            return Err(LoginError::UnknownState);
        }
        let server = || pending.target_server.clone();
        let host = || untrusted_url::host(&pending.issuer);
        if !self.came_to(pending, path) {
            return Err(LoginError::OtherCallback { server: server() });
        }
        // 2026-07-28, basic/authorization, "Authorization Response Validation": simple string
        // comparison, in errors, too: "on mismatch the client MUST NOT act on or display `error`".
        let is_sender = match &self.iss {
            Some(iss) => *iss == pending.iss,
            None => !pending.iss_required,
        };
        if !is_sender {
            return Err(LoginError::OtherSender {
                server: server(),
                host: host(),
            });
        }
        if let Some(code) = &self.error {
            return Err(LoginError::Refused {
                server: server(),
                host: host(),
                reason: error_codes::describe(code),
            });
        }
        let code = self.code.clone().filter(|code| !code.expose().is_empty());
        code.ok_or(LoginError::NotAnAnswer)
    }

    /// True if the address is the issuer's own, or the answer names its issuer.
    fn came_to(&self, pending: &PendingLogin, path: Option<&str>) -> bool {
        match path {
            // A proxy may have stripped the path of our own address.
            Some(path) => {
                path == pending.client.redirect.path() || path == callback_path(&pending.issuer)
            }
            None => self.iss.is_some(),
        }
    }
}

/// Path of an address without its query. Some browsers leave out the scheme when it is copied.
fn path_of(address: &str) -> Option<String> {
    if address.contains("://") {
        return Url::parse(address).ok().map(|url| url.path().to_owned());
    }
    let start = address.find('/')?;
    Some(address[start..].to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::authorization_request::tests::pending;

    const STATE: &str = "state=state-of-this-login";
    const ISS: &str = "iss=https%3A%2F%2Fauth.example.com";

    fn path() -> String {
        callback_path(&pending().issuer)
    }

    /// Name of the error, for tables.
    fn kind(error: &LoginError) -> &'static str {
        match error {
            LoginError::NotAnAnswer => "not an answer",
            LoginError::UnknownState => "state",
            LoginError::OtherCallback { .. } => "callback",
            LoginError::OtherSender { .. } => "sender",
            LoginError::Refused { .. } => "refused",
            _ => "other",
        }
    }

    fn check(query: &str, pending: &PendingLogin, path: &str) -> Result<String, &'static str> {
        let read = AuthorizationResponse::from_query(query);
        let code = read.and_then(|response| response.check(pending, path));
        match code {
            Ok(code) => Ok(code.expose().to_owned()),
            Err(error) => Err(kind(&error)),
        }
    }

    #[test]
    fn an_answer_counts_if_state_address_and_issuer_are_right() {
        let required = PendingLogin {
            iss_required: true,
            ..pending()
        };
        let optional = pending();
        let code = "code=one%20two";
        let good = || Ok("one two".to_owned());
        for (rest, with_iss, without) in [
            (ISS, good(), good()),
            ("", Err("sender"), good()),
            ("iss=", Err("sender"), Err("sender")),
            ("iss=https://evil.example", Err("sender"), Err("sender")),
            (
                "iss=https://auth.example.com/",
                Err("sender"),
                Err("sender"),
            ),
            (
                "iss=https://auth.example.com:443",
                Err("sender"),
                Err("sender"),
            ),
            ("iss=HTTPS://auth.example.com", Err("sender"), Err("sender")),
            (
                "iss=https%253A//auth.example.com",
                Err("sender"),
                Err("sender"),
            ),
        ] {
            let query = format!("{code}&{STATE}&{rest}");
            assert_eq!(check(&query, &required, &path()), with_iss, "{rest}");
            assert_eq!(check(&query, &optional, &path()), without, "{rest}");
        }
    }

    #[test]
    fn an_error_is_shown_only_from_the_right_sender_and_in_our_words() {
        let pending = PendingLogin {
            iss_required: true,
            ..pending()
        };
        let evil = "error=access_denied&error_description=%3Cscript%3E";
        let query = format!("{evil}&{STATE}&iss=https://evil.example");
        assert_eq!(check(&query, &pending, &path()), Err("sender"));
        let query = format!("{evil}&code=x&{STATE}&{ISS}");
        let response = AuthorizationResponse::from_query(&query).unwrap();
        let error = response.check(&pending, &path()).unwrap_err().to_string();
        assert!(error.contains("declined (access_denied)"), "{error}");
        assert!(error.contains("auth.example.com"), "{error}");
        assert!(!error.contains("script"), "{error}");
        let query = format!("error=%3Cscript%3E&{STATE}&{ISS}");
        let response = AuthorizationResponse::from_query(&query).unwrap();
        let error = response.check(&pending, &path()).unwrap_err().to_string();
        assert!(!error.contains("script"), "{error}");
    }

    #[test]
    fn an_answer_for_another_login_or_at_another_address_is_refused() {
        let pending = pending();
        let own = path();
        let own = own.as_str();
        let other = callback_path(&Url::parse("https://evil.example").unwrap());
        let other = other.as_str();
        for (query, path, expected) in [
            ("code=x&state=other".to_owned(), own, "state"),
            ("code=x".to_owned(), own, "state"),
            ("code=x&state=".to_owned(), own, "state"),
            (format!("code=x&{STATE}"), other, "callback"),
            (format!("code=x&{STATE}&{ISS}"), other, "callback"),
            (
                format!("error=access_denied&{STATE}"),
                "/oauth/callback",
                "callback",
            ),
            (STATE.to_owned(), own, "not an answer"),
            (format!("code=&{STATE}"), own, "not an answer"),
        ] {
            assert_eq!(check(&query, &pending, path), Err(expected), "{query}");
        }
        let mut below = pending;
        below.client.redirect = Url::parse(&format!("https://gate.example/sub{own}")).unwrap();
        let query = format!("code=x&{STATE}");
        for path in [format!("/sub{own}"), own.to_owned()] {
            assert_eq!(check(&query, &below, &path), Ok("x".to_owned()));
        }
    }

    #[test]
    fn a_hostile_query_is_refused() {
        let long = format!("code={}", "x".repeat(LENGTH_MAX));
        for query in [
            "code=a&code=b",
            "state=a&state=a",
            "code=a&x=1&x=2",
            "c%6fde=a&code=b",
            "code=a b",
            "code=a\r\nb",
            "code=\u{e9}",
            long.as_str(),
        ] {
            let error = AuthorizationResponse::from_query(query).unwrap_err();
            assert!(matches!(error, LoginError::NotAnAnswer), "{query}");
        }
    }

    #[test]
    fn an_address_is_pasted_whole_or_as_its_query() {
        let pending = pending();
        let own = path();
        let query = format!("code=x&{STATE}");
        let good = || Ok("x".to_owned());
        for (text, expected) in [
            (format!("http://127.0.0.1:8080{own}?{query}"), good()),
            (
                format!("  http://localhost:8080{own}?{query}#_=_\n"),
                good(),
            ),
            (format!("127.0.0.1:8080{own}?{query}"), good()),
            (format!("{own}?{query}"), good()),
            (format!("?{query}&{ISS}"), good()),
            (format!("{query}&{ISS}"), good()),
            // Nothing would show where such an answer came from.
            (format!("?{query}"), Err("not an answer")),
            (query.clone(), Err("not an answer")),
            (
                format!("http://127.0.0.1:8080/oauth/callback/other?{query}"),
                Err("callback"),
            ),
            (format!("http://127.0.0.1:8080/?{query}"), Err("callback")),
            (format!("127.0.0.1:8080?{query}"), Err("not an answer")),
            (
                "https://auth.example.com/authorize?state=x".to_owned(),
                Err("not an answer"),
            ),
            (String::new(), Err("not an answer")),
            ("yes".to_owned(), Err("not an answer")),
            ("http://127.0.0.1:8080/".to_owned(), Err("not an answer")),
            (
                format!("http://127.0.0.1:8080{own}?code=x\n{STATE}"),
                Err("not an answer"),
            ),
        ] {
            let read = AuthorizationResponse::from_address(&text);
            let code = read.and_then(|response| response.check_pasted(&pending));
            let found = match code {
                Ok(code) => Ok(code.expose().to_owned()),
                Err(error) => Err(kind(&error)),
            };
            assert_eq!(found, expected, "{text}");
        }
    }

    #[test]
    fn debug_shows_neither_code_nor_state() {
        let query = format!("code=hush&{STATE}");
        let response = AuthorizationResponse::from_query(&query).unwrap();
        let shown = format!("{response:?}");
        assert!(
            !shown.contains("hush") && !shown.contains("state-of"),
            "{shown}"
        );
    }
}
