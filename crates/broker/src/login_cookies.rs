//! Cookies of the consent page and of logins.
//!
//! Owns their names, attributes and number. Does not decide what a cookie opens
//! (`consent_forms.rs`, `transactions.rs`). Invariant: a cookie crosses a network only over TLS,
//! and a login's cookie is set only after approval.

use aws_lc_rs::digest::{SHA256, digest};
use http::{HeaderMap, HeaderValue, header};
use moongate_oauth::SecretText;
use url::Url;

/// Lifetime of both kinds of cookies, in seconds.
const AGE_MAX: u32 = 10 * 60;
/// Maximum number of login cookies in a browser.
const LOGINS_MAX: usize = 5;
/// Characters of `state` in the name of a login cookie, so that logins in several tabs do not share
/// one.
const STATE_LENGTH: usize = 6;
/// Characters of a secret in a cookie: 256 bits as base64url.
const SECRET_LENGTH: usize = 43;

/// Cookies in people's browsers, by how they reach the gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LoginCookies {
    /// Over TLS. With the prefix `__Host-`, browsers accept a cookie from no other host.
    Tls,
    /// Without TLS, only on loopback, where some browsers reject `Secure` cookies.
    Plain,
}

impl LoginCookies {
    /// Returns the kind of cookies for the public URL.
    pub(crate) fn of(public_url: &Url) -> Self {
        match public_url.scheme() {
            "https" => LoginCookies::Tls,
            _ => LoginCookies::Plain,
        }
    }

    /// Builds the header that ties consent forms to a browser.
    pub(crate) fn set_form(self, secret: &SecretText) -> HeaderValue {
        self.set(self.form_name(), secret.expose(), AGE_MAX)
    }

    /// Builds the header that ties a login to a browser.
    pub(crate) fn set_login(self, state: &SecretText, secret: &SecretText) -> HeaderValue {
        let name = self.login_name(state.expose()).unwrap_or_default();
        self.set(&name, secret.expose(), AGE_MAX)
    }

    /// Builds the header that removes a login's cookie. `None`: the `state` has no such cookie.
    pub(crate) fn remove_login(self, state: &str) -> Option<HeaderValue> {
        self.login_name(state).map(|name| self.set(&name, "", 0))
    }

    /// Builds the headers that remove a browser's oldest login cookies, to make room for another
    /// one.
    pub(crate) fn remove_oldest(self, headers: &HeaderMap) -> Vec<HeaderValue> {
        // RFC 6265, section 5.4: "cookies with earlier creation-times are listed before cookies
        // with later creation-times".
        let names: Vec<&str> = cookies(headers)
            .map(|(name, _)| name)
            .filter(|name| self.is_login_name(name))
            .collect();
        let surplus = (names.len() + 1).saturating_sub(LOGINS_MAX);
        names[..surplus]
            .iter()
            .map(|name| self.set(name, "", 0))
            .collect()
    }

    /// Returns the secrets in a request to which consent forms may be tied.
    // There may be several, because a page at another port of this host can set a plain one, too.
    pub(crate) fn form_secrets(self, headers: &HeaderMap) -> Vec<SecretText> {
        cookies(headers)
            .filter(|(name, value)| *name == self.form_name() && is_secret(value))
            .map(|(_, value)| SecretText::new(value))
            .collect()
    }

    /// Returns the hashes of the secrets in a request to which the login with this `state` may be
    /// tied.
    pub(crate) fn login_hashes(self, headers: &HeaderMap, state: &str) -> Vec<[u8; 32]> {
        let Some(wanted) = self.login_name(state) else {
            return Vec::new();
        };
        cookies(headers)
            .filter(|(name, _)| *name == wanted)
            .map(|(_, value)| cookie_hash(value))
            .collect()
    }

    fn form_name(self) -> &'static str {
        match self {
            LoginCookies::Tls => "__Host-moongate-form",
            LoginCookies::Plain => "moongate-form",
        }
    }

    fn login_prefix(self) -> &'static str {
        match self {
            LoginCookies::Tls => "__Host-moongate-login-",
            LoginCookies::Plain => "moongate-login-",
        }
    }

    fn login_name(self, state: &str) -> Option<String> {
        let suffix = state.get(..STATE_LENGTH)?;
        is_base64url(suffix).then(|| format!("{}{suffix}", self.login_prefix()))
    }

    fn is_login_name(self, name: &str) -> bool {
        name.strip_prefix(self.login_prefix())
            .is_some_and(|suffix| suffix.len() == STATE_LENGTH && is_base64url(suffix))
    }

    fn set(self, name: &str, value: &str, age: u32) -> HeaderValue {
        // Lax, because the company's login sends the browser back here from another site.
        let attributes = match self {
            LoginCookies::Tls => "Secure; HttpOnly; SameSite=Lax; Path=/",
            LoginCookies::Plain => "HttpOnly; SameSite=Lax; Path=/",
        };
        HeaderValue::try_from(format!("{name}={value}; Max-Age={age}; {attributes}"))
            .expect("names and secrets are base64url")
    }
}

/// Returns the hash of a cookie's secret. Only the hash is kept.
pub(crate) fn cookie_hash(secret: &str) -> [u8; 32] {
    let digest = digest(&SHA256, secret.as_bytes());
    *digest.as_ref().first_chunk().expect("SHA-256 has 32 bytes")
}

/// Returns the names and values of all cookies of a request.
fn cookies(headers: &HeaderMap) -> impl Iterator<Item = (&str, &str)> {
    headers
        .get_all(header::COOKIE)
        .into_iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(';'))
        .filter_map(|cookie| cookie.trim().split_once('='))
}

fn is_secret(value: &str) -> bool {
    value.len() == SECRET_LENGTH && is_base64url(value)
}

fn is_base64url(text: &str) -> bool {
    text.bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
}

#[cfg(test)]
mod tests {
    use moongate_oauth::random_text;

    use super::*;

    fn request(cookies: &[&str]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for cookie in cookies {
            headers.append(header::COOKIE, HeaderValue::from_str(cookie).unwrap());
        }
        headers
    }

    #[test]
    fn a_cookie_of_another_name_form_or_state_opens_nothing() {
        let secret = random_text();
        let secret = secret.expose();
        for cookie in [
            format!("moongate-form={secret}"),
            format!("x__Host-moongate-form={secret}"),
            "__Host-moongate-form=".to_owned(),
            "__Host-moongate-form=short".to_owned(),
            format!("__Host-moongate-form={secret}x"),
            format!("__Host-moongate-form={}\"", &secret[1..]),
        ] {
            let headers = request(&[&cookie]);
            assert!(
                LoginCookies::Tls.form_secrets(&headers).is_empty(),
                "{cookie}"
            );
        }
        let headers = request(&[&format!("__Host-moongate-login-abcdef={secret}")]);
        for state in ["", "abcde", "abcdeg", "ABCDEF", "abcde;", "äbcdef", "abcdé"] {
            let hashes = LoginCookies::Tls.login_hashes(&headers, state);
            assert!(hashes.is_empty(), "{state}");
        }
        let hashes = LoginCookies::Plain.login_hashes(&headers, "abcdef-rest");
        assert!(hashes.is_empty(), "a browser behind TLS has other names");
        let hashes = LoginCookies::Tls.login_hashes(&headers, "abcdef-rest");
        assert_eq!(hashes, [cookie_hash(secret)]);
        assert_ne!(cookie_hash(secret), cookie_hash(random_text().expose()));
    }

    #[test]
    fn secrets_are_found_among_other_cookies() {
        let first = random_text();
        let second = random_text();
        let line = format!("a=b; moongate-form={}; c=d", first.expose());
        let headers = request(&[&line, &format!("moongate-form={}", second.expose())]);
        let found = LoginCookies::Plain.form_secrets(&headers);
        assert_eq!(found, [first, second]);
    }

    #[test]
    fn cookies_have_these_attributes() {
        let secret = SecretText::new("s");
        let state = SecretText::new("abcdef-rest");
        let tls = LoginCookies::of(&Url::parse("https://mcp.test").unwrap());
        assert_eq!(
            tls.set_form(&secret),
            "__Host-moongate-form=s; Max-Age=600; Secure; HttpOnly; SameSite=Lax; Path=/"
        );
        assert_eq!(
            tls.set_login(&state, &secret),
            "__Host-moongate-login-abcdef=s; Max-Age=600; Secure; HttpOnly; SameSite=Lax; Path=/"
        );
        assert_eq!(
            tls.remove_login("abcdef-rest").unwrap(),
            "__Host-moongate-login-abcdef=; Max-Age=0; Secure; HttpOnly; SameSite=Lax; Path=/"
        );
        assert_eq!(tls.remove_login("a\r\nSet-Cookie: x=y"), None);
        let plain = LoginCookies::of(&Url::parse("http://127.0.0.1:8080").unwrap());
        assert_eq!(
            plain.set_login(&state, &secret),
            "moongate-login-abcdef=s; Max-Age=600; HttpOnly; SameSite=Lax; Path=/"
        );
    }

    #[test]
    fn a_browser_keeps_five_logins_and_the_oldest_make_room() {
        let cookies: Vec<String> = (0..6)
            .map(|n| format!("moongate-login-abcde{n}=x"))
            .collect();
        let all = cookies.join("; ");
        let removed = LoginCookies::Plain.remove_oldest(&request(&[&all]));
        let names: Vec<&str> = removed
            .iter()
            .filter_map(|header| header.to_str().ok()?.split('=').next())
            .collect();
        assert_eq!(names, ["moongate-login-abcde0", "moongate-login-abcde1"]);
        let four = cookies[..4].join("; ");
        for few in [four.as_str(), "moongate-login-=x", ""] {
            let removed = LoginCookies::Plain.remove_oldest(&request(&[few]));
            assert!(removed.is_empty(), "{few}");
        }
    }
}
