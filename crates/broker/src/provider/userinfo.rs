//! Claims of a person from the userinfo endpoint (OpenID Connect Core 1.0, section 5.3).
//!
//! Owns the parsing of an answer. Does not compare its subject (`openid.rs`). Invariant: only a
//! JSON object with a subject is accepted.

use http::StatusCode;
use moongate_oauth::SecretText;
use moongate_tokens::ClaimSet;
use url::Url;

use crate::provider::fault::ProviderFault;
use crate::provider::provider_http::{ProviderAnswer, ProviderHttp};

/// Fetches the claims of an access token's person.
pub(crate) async fn fetch_userinfo(
    http: &ProviderHttp,
    url: &Url,
    token: &SecretText,
) -> Result<ClaimSet, ProviderFault> {
    let answer = http.get(url, Some(token)).await?;
    read_userinfo(&answer)
}

fn read_userinfo(answer: &ProviderAnswer) -> Result<ClaimSet, ProviderFault> {
    if answer.status != StatusCode::OK {
        // The token was issued a moment ago, so a refusal says nothing about the person.
        return Err(ProviderFault::Down);
    }
    let claims: ClaimSet = answer.json().ok_or(ProviderFault::BadAnswer)?;
    match claims.text("sub") {
        Some(subject) if !subject.is_empty() => Ok(claims),
        _ => Err(ProviderFault::NoSubject),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_object_with_a_subject_counts() {
        for (status, body, fault) in [
            (200, r#"{"sub":""}"#, ProviderFault::NoSubject),
            (200, r#"{"sub":5}"#, ProviderFault::NoSubject),
            (200, r#"{"name":"Ann"}"#, ProviderFault::NoSubject),
            (
                200,
                r#"{"sub":"ann","sub":"bob"}"#,
                ProviderFault::BadAnswer,
            ),
            (200, "eyJhbGciOiJub25lIn0.e30.", ProviderFault::BadAnswer),
            (401, r#"{"sub":"ann"}"#, ProviderFault::Down),
            (503, "", ProviderFault::Down),
        ] {
            let found = read_userinfo(&ProviderAnswer::of(status, body));
            assert_eq!(found.unwrap_err(), fault, "{body}");
        }
        let found = read_userinfo(&ProviderAnswer::of(200, r#"{"sub":"ann"}"#));
        assert_eq!(found.unwrap().text("sub"), Some("ann"));
    }
}
