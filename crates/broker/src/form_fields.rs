//! Request parameters without duplicates.
//!
//! Owns the parsing of queries and forms. Does not know what a parameter means. Invariant: a name
//! occurs once and its value is text, so the value that is used is the one that was checked.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use axum::extract::Request;
use http::header::CONTENT_TYPE;
use http::request::Parts;
use url::form_urlencoded;

/// Maximum number of parameters.
const COUNT_MAX: usize = 40;
/// Maximum size of a query or form, in bytes.
const SIZE_MAX: usize = 8 * 1024;
/// Longest wait for a body.
const BODY_TIMEOUT: Duration = Duration::from_secs(10);
/// Media type of forms.
const FORM: &str = "application/x-www-form-urlencoded";
/// Longest name in a fault, in characters.
const NAME_SHOWN: usize = 64;

/// Parameters of a request.
pub(crate) struct FormFields(BTreeMap<String, String>);

/// Reason why parameters cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum FormFault {
    /// Too many bytes or names.
    TooLong,
    /// Not a form, or not text.
    NotAForm,
    /// This parameter occurs more than once.
    Twice(String),
}

impl fmt::Debug for FormFields {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Values are codes and tokens.
        out.write_str("FormFields(hidden)")
    }
}

impl FormFields {
    /// Reads the query of a URL.
    pub(crate) fn of_query(query: &str) -> Result<Self, FormFault> {
        if query.len() > SIZE_MAX {
            return Err(FormFault::TooLong);
        }
        let mut fields = BTreeMap::<String, String>::new();
        for (name, value) in form_urlencoded::parse(query.as_bytes()) {
            // Invalid UTF-8 becomes this character, which no parameter needs.
            if name.contains('\u{fffd}') || value.contains('\u{fffd}') {
                return Err(FormFault::NotAForm);
            }
            if fields.len() >= COUNT_MAX {
                return Err(FormFault::TooLong);
            }
            // RFC 6749, section 3.1: "Request and response parameters MUST NOT be included more
            // than once."
            if fields.contains_key(&*name) {
                return Err(FormFault::Twice(name.chars().take(NAME_SHOWN).collect()));
            }
            fields.insert(name.into_owned(), value.into_owned());
        }
        Ok(FormFields(fields))
    }

    /// Reads the body of a request. Also returns the rest of the request.
    pub(crate) async fn of_body(request: Request) -> Result<(Parts, Self), FormFault> {
        let (head, body) = request.into_parts();
        if !is_form(&head) {
            return Err(FormFault::NotAForm);
        }
        let reading = axum::body::to_bytes(body, SIZE_MAX);
        let body = match tokio::time::timeout(BODY_TIMEOUT, reading).await {
            Ok(Ok(body)) => body,
            Ok(Err(_)) | Err(_) => return Err(FormFault::TooLong),
        };
        let form = str::from_utf8(&body).map_err(|_| FormFault::NotAForm)?;
        Ok((head, FormFields::of_query(form)?))
    }

    /// Returns a parameter. One without a value counts as absent (RFC 6749, section 3.1).
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        let value = self.0.get(name).map(String::as_str);
        value.filter(|value| !value.is_empty())
    }
}

fn is_form(head: &Parts) -> bool {
    let kind = head.headers.get(CONTENT_TYPE);
    let kind = kind.and_then(|value| value.to_str().ok());
    kind.and_then(|value| value.split(';').next())
        .is_some_and(|value| value.trim().eq_ignore_ascii_case(FORM))
}

#[cfg(test)]
mod tests {
    use axum::body::Body;

    use super::*;

    #[test]
    fn no_parameter_is_there_twice_not_even_an_empty_one() {
        for query in [
            "state=1&state=2",
            "state=1&state=1",
            "state&state=1",
            "state=1&st%61te=2",
            "a=1&state=1&b=2&state=",
        ] {
            let fault = FormFields::of_query(query).unwrap_err();
            assert_eq!(fault, FormFault::Twice("state".to_owned()), "{query}");
        }
        let name = "x".repeat(1000);
        let fault = FormFields::of_query(&format!("{name}&{name}")).unwrap_err();
        assert_eq!(fault, FormFault::Twice(name[..NAME_SHOWN].to_owned()));
    }

    #[test]
    fn a_query_is_small_and_text() {
        let many: Vec<String> = (0..=COUNT_MAX).map(|n| format!("p{n}=1")).collect();
        let fault = FormFields::of_query(&many.join("&")).unwrap_err();
        assert_eq!(fault, FormFault::TooLong);
        assert!(FormFields::of_query(&many[1..].join("&")).is_ok());
        let fault = FormFields::of_query(&"x".repeat(SIZE_MAX + 1)).unwrap_err();
        assert_eq!(fault, FormFault::TooLong);
        for query in ["a=%ff", "%c3=1", "a=\u{fffd}"] {
            let fault = FormFields::of_query(query).unwrap_err();
            assert_eq!(fault, FormFault::NotAForm, "{query}");
        }
    }

    #[test]
    fn an_empty_value_is_absent() {
        let fields = FormFields::of_query("a=&b&c=1+2%263&=x").unwrap();
        assert_eq!(fields.get("a"), None);
        assert_eq!(fields.get("b"), None);
        assert_eq!(fields.get("c"), Some("1 2&3"));
        assert_eq!(fields.get("d"), None);
        assert!(!format!("{fields:?}").contains("1 2"));
    }

    async fn read(kind: Option<&str>, body: Vec<u8>) -> Result<String, FormFault> {
        let mut request = Request::post("/token");
        if let Some(kind) = kind {
            request = request.header(CONTENT_TYPE, kind);
        }
        let request = request.body(Body::from(body)).unwrap();
        let (head, fields) = FormFields::of_body(request).await?;
        assert_eq!(head.uri.path(), "/token");
        Ok(fields.get("a").unwrap_or_default().to_owned())
    }

    #[tokio::test]
    async fn a_body_is_a_form_and_small() {
        let form = || b"a=1".to_vec();
        for kind in [FORM, "Application/X-WWW-Form-Urlencoded; charset=utf-8"] {
            assert_eq!(read(Some(kind), form()).await, Ok("1".to_owned()));
        }
        for kind in [None, Some("application/json"), Some("multipart/form-data")] {
            assert_eq!(read(kind, form()).await, Err(FormFault::NotAForm));
        }
        let long = vec![b'x'; SIZE_MAX + 1];
        assert_eq!(read(Some(FORM), long).await, Err(FormFault::TooLong));
        let binary = vec![b'a', b'=', 0xff];
        assert_eq!(read(Some(FORM), binary).await, Err(FormFault::NotAForm));
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_drips_is_given_up() {
        let pending = futures_util::stream::pending::<Result<bytes::Bytes, std::io::Error>>();
        let request = Request::post("/token")
            .header(CONTENT_TYPE, FORM)
            .body(Body::from_stream(pending))
            .unwrap();
        let fault = FormFields::of_body(request).await.unwrap_err();
        assert_eq!(fault, FormFault::TooLong);
    }
}
