//! Authorization requests in consent forms, sealed to a browser.
//!
//! Owns the seal and its lifetime. Does not check requests. Invariant: a form opens for ten
//! minutes, only in the browser that it was shown in, and the request inside cannot be changed.

use jiff::{SignedDuration, Timestamp};
use moongate_oauth::{RootSecrets, SealRing, SecretText};
use serde::{Deserialize, Serialize};

use crate::authorize_request::AuthorizeRequest;

/// Purpose of the key.
const PURPOSE: &str = "broker consent forms";
/// Time for which a form can be answered.
const LIFETIME: SignedDuration = SignedDuration::from_mins(10);

/// Seals of consent forms.
pub(crate) struct ConsentForms(SealRing);

/// Contents of a sealed form.
#[derive(Serialize, Deserialize)]
struct FormContent {
    request: AuthorizeRequest,
    shown: Timestamp,
}

impl ConsentForms {
    /// Derives the seals from the root secrets.
    pub(crate) fn new(secrets: &RootSecrets) -> Self {
        ConsentForms(secrets.seal_ring(PURPOSE))
    }

    /// Seals a request for the form of a page. `cookie` is the secret of the browser.
    pub(crate) fn seal(&self, request: &AuthorizeRequest, cookie: &SecretText) -> String {
        self.seal_at(request, cookie, Timestamp::now())
    }

    /// Opens a request that a browser with this cookie sends back. `None`: not a valid form for it.
    pub(crate) fn open(&self, sealed: &str, cookie: &str) -> Option<AuthorizeRequest> {
        self.open_at(sealed, cookie, Timestamp::now())
    }

    fn seal_at(&self, request: &AuthorizeRequest, cookie: &SecretText, now: Timestamp) -> String {
        let content = FormContent {
            request: request.clone(),
            shown: now,
        };
        let content = serde_json::to_vec(&content).expect("a request is plain JSON");
        self.0.seal(&aad(cookie.expose()), &content)
    }

    fn open_at(&self, sealed: &str, cookie: &str, now: Timestamp) -> Option<AuthorizeRequest> {
        let content = self.0.open(&aad(cookie), sealed)?;
        let content: FormContent = serde_json::from_slice(&content).ok()?;
        let is_live = now.duration_since(content.shown) < LIFETIME;
        is_live.then_some(content.request)
    }
}

/// Returns the name under which a form is sealed.
fn aad(cookie: &str) -> String {
    format!("consent form {cookie}")
}

#[cfg(test)]
mod tests {
    use moongate_oauth::random_text;

    use super::*;

    fn forms(secret: u8) -> ConsentForms {
        ConsentForms::new(&RootSecrets::of_bytes(&[secret; 32]))
    }

    fn request() -> AuthorizeRequest {
        AuthorizeRequest {
            client_id: "mgc_1".to_owned(),
            redirect: "https://claude.ai/callback".to_owned(),
            state: Some("their state".to_owned()),
            challenge: "c".repeat(43),
            endpoint: "files".to_owned(),
            scope: "mcp offline_access".to_owned(),
            is_all_servers: false,
        }
    }

    #[test]
    fn a_form_of_one_browser_is_nothing_in_another() {
        let forms = forms(1);
        let cookie = random_text();
        let sealed = forms.seal(&request(), &cookie);
        assert_eq!(forms.open(&sealed, random_text().expose()), None);
        assert_eq!(forms.open(&sealed, ""), None);
        assert_eq!(forms.open("", cookie.expose()), None);
        assert_eq!(forms.open(&sealed[1..], cookie.expose()), None);
        assert_eq!(forms.open(&sealed, cookie.expose()), Some(request()));
    }

    #[test]
    fn a_form_of_another_gateway_or_purpose_is_refused() {
        let cookie = random_text();
        let foreign = forms(2).seal(&request(), &cookie);
        assert_eq!(forms(1).open(&foreign, cookie.expose()), None);
        let tokens = RootSecrets::of_bytes(&[1; 32]).seal_ring("broker access tokens");
        let content = FormContent {
            request: request(),
            shown: Timestamp::now(),
        };
        let content = serde_json::to_vec(&content).unwrap();
        let foreign = tokens.seal(&aad(cookie.expose()), &content);
        assert_eq!(forms(1).open(&foreign, cookie.expose()), None);
    }

    #[test]
    fn a_form_can_be_answered_for_ten_minutes() {
        let forms = forms(1);
        let cookie = random_text();
        let shown = Timestamp::UNIX_EPOCH;
        let sealed = forms.seal_at(&request(), &cookie, shown);
        let open_after = |seconds: i64| {
            let now = shown
                .checked_add(SignedDuration::from_secs(seconds))
                .unwrap();
            forms.open_at(&sealed, cookie.expose(), now).is_some()
        };
        assert!(open_after(0) && open_after(599));
        assert!(!open_after(600));
    }

    #[test]
    fn two_renderings_in_a_browser_are_both_good() {
        let forms = forms(1);
        let cookie = random_text();
        let first = forms.seal(&request(), &cookie);
        let second = forms.seal(&request(), &cookie);
        assert_ne!(first, second);
        for sealed in [first, second] {
            assert!(forms.open(&sealed, cookie.expose()).is_some());
        }
    }

    #[test]
    fn a_form_shows_nothing_of_the_request() {
        let sealed = forms(1).seal(&request(), &random_text());
        assert!(!sealed.contains("claude"));
        assert!(sealed.bytes().all(|byte| byte.is_ascii_graphic()));
    }
}
