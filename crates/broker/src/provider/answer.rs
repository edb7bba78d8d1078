//! Callback answers from the company's login.
//!
//! Owns the checks before a code is used. Does not exchange the code or check `state`, by which the
//! transaction was found. Invariant: an answer is ignored until its issuer has been checked.

use moongate_oauth::SecretText;

use crate::form_fields::FormFields;
use crate::provider::fault::ProviderFault;
use crate::provider::metadata::ProviderEndpoints;

/// Reads the code from the query of the callback.
pub(crate) fn read_code(
    query: &str,
    endpoints: &ProviderEndpoints,
) -> Result<SecretText, ProviderFault> {
    let fields = FormFields::of_query(query).map_err(|_| ProviderFault::BadAnswer)?;
    // RFC 9207, section 2.4: compared as text, also in errors.
    let is_sender = match fields.get("iss") {
        Some(issuer) => issuer == endpoints.issuer,
        None => !endpoints.sends_issuer,
    };
    if !is_sender {
        return Err(ProviderFault::BadAnswer);
    }
    if let Some(error) = fields.get("error") {
        return Err(fault_of(error));
    }
    match fields.get("code") {
        Some(code) => Ok(SecretText::new(code)),
        None => Err(ProviderFault::BadAnswer),
    }
}

/// Returns the fault for an error code (RFC 6749, section 4.1.2.1; OpenID Connect Core 1.0, section
/// 3.1.2.6).
fn fault_of(error: &str) -> ProviderFault {
    match error {
        "access_denied" | "consent_required" | "interaction_required" | "login_required" => {
            ProviderFault::Denied
        }
        "server_error" | "temporarily_unavailable" => ProviderFault::Down,
        _ => ProviderFault::BadAnswer,
    }
}

#[cfg(test)]
mod tests {
    use url::Url;

    use super::*;

    fn endpoints(sends_issuer: bool) -> ProviderEndpoints {
        ProviderEndpoints {
            issuer: "https://login.test".to_owned(),
            authorization: Url::parse("https://login.test/authorize").unwrap(),
            token: Url::parse("https://login.test/token").unwrap(),
            userinfo: None,
            keys: None,
            scopes: Vec::new(),
            takes_posted_secret: true,
            sends_issuer,
        }
    }

    fn read(query: &str) -> Result<String, ProviderFault> {
        read_code(query, &endpoints(false)).map(|code| code.expose().to_owned())
    }

    #[test]
    fn an_answer_of_another_issuer_is_refused_whatever_it_says() {
        for query in [
            "code=x&iss=https%3A%2F%2Fevil.test",
            "code=x&iss=https%3A%2F%2Flogin.test%2F",
            "error=access_denied&iss=https%3A%2F%2Fevil.test",
            "code=x&code=y",
            "code=x&iss=https%3A%2F%2Flogin.test&iss=https%3A%2F%2Fevil.test",
            "state=s",
            "code=",
            "",
            "error=%3Cscript%3E",
        ] {
            assert_eq!(read(query), Err(ProviderFault::BadAnswer), "{query}");
        }
        assert_eq!(read("code=x&state=s").as_deref(), Ok("x"));
        let own = "code=x&iss=https%3A%2F%2Flogin.test";
        assert_eq!(read(own).as_deref(), Ok("x"));
        assert!(read_code(own, &endpoints(true)).is_ok());
        assert!(read_code("code=x", &endpoints(true)).is_err());
    }

    #[test]
    fn errors_are_a_no_or_a_provider_that_is_down() {
        for (query, fault) in [
            ("error=access_denied&code=x", ProviderFault::Denied),
            ("error=login_required", ProviderFault::Denied),
            ("error=temporarily_unavailable", ProviderFault::Down),
            ("error=server_error", ProviderFault::Down),
            ("error=invalid_request", ProviderFault::BadAnswer),
        ] {
            assert_eq!(read(query), Err(fault), "{query}");
        }
    }
}
