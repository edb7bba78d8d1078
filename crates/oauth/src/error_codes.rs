//! Error codes of authorization servers.
//!
//! Owns the known codes, and our words for each. Does not decide what follows from one. Invariant:
//! no text from an authorization server passes through, because a code that is not in this table is
//! never shown.

/// Words for an unknown error code.
const UNKNOWN: &str = "it gave an unknown error code";

/// Known codes: RFC 6749 (4.1.2.1, 5.2), RFC 7591 (3.2.2), RFC 8707 (2), RFC 9449 (8), OpenID
/// Connect Core (3.1.2.6), and GitHub's variants of them.
const CODES: [(&str, &str); 23] = [
    ("access_denied", "the login was declined (access_denied)"),
    (
        "account_selection_required",
        "it needs a person to choose an account (account_selection_required)",
    ),
    (
        "bad_refresh_token",
        "the refresh token has expired (bad_refresh_token)",
    ),
    (
        "bad_verification_code",
        "the code has expired (bad_verification_code)",
    ),
    (
        "consent_required",
        "it needs a person's consent (consent_required)",
    ),
    (
        "interaction_required",
        "it needs a person in the browser (interaction_required)",
    ),
    (
        "invalid_client",
        "it does not know this client (invalid_client)",
    ),
    (
        "invalid_client_metadata",
        "it does not accept this kind of client (invalid_client_metadata)",
    ),
    (
        "invalid_dpop_proof",
        "it requires DPoP, which this version does not support (invalid_dpop_proof)",
    ),
    (
        "invalid_grant",
        "it no longer accepts this code or token (invalid_grant)",
    ),
    (
        "invalid_redirect_uri",
        "it does not accept our redirect address (invalid_redirect_uri)",
    ),
    (
        "invalid_request",
        "it considers our request invalid (invalid_request)",
    ),
    (
        "invalid_scope",
        "it does not grant a scope that we asked for (invalid_scope)",
    ),
    (
        "invalid_target",
        "it does not accept the resource that we named (invalid_target)",
    ),
    (
        "login_required",
        "it needs a person to log in (login_required)",
    ),
    ("server_error", "it failed (server_error)"),
    (
        "temporarily_unavailable",
        "it is down or too busy (temporarily_unavailable)",
    ),
    (
        "unapproved_software_statement",
        "it registers only approved software (unapproved_software_statement)",
    ),
    (
        "unauthorized_client",
        "it does not allow this client to log in (unauthorized_client)",
    ),
    (
        "unmet_authentication_requirements",
        "it requires a stronger login (unmet_authentication_requirements)",
    ),
    (
        "unsupported_grant_type",
        "it does not support this kind of login (unsupported_grant_type)",
    ),
    (
        "unsupported_response_type",
        "it does not support this kind of login (unsupported_response_type)",
    ),
    (
        "use_dpop_nonce",
        "it requires DPoP, which this version does not support (use_dpop_nonce)",
    ),
];

/// Returns our words for an error code.
pub(crate) fn describe(code: &str) -> &'static str {
    let known = CODES.iter().find(|(known, _)| *known == code);
    known.map_or(UNKNOWN, |(_, words)| *words)
}

/// True if an answer with this code ends a login for good.
pub(crate) fn ends_login(code: &str) -> bool {
    // GitHub has its own name for `invalid_grant` on a refresh.
    matches!(
        code,
        "invalid_grant" | "invalid_client" | "bad_refresh_token"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_code_has_words_that_name_it_and_others_have_none() {
        for (code, _) in CODES {
            assert!(describe(code).ends_with(&format!("({code})")), "{code}");
        }
        for code in ["", "Invalid_Grant", "<script>", "invalid_grant\n"] {
            assert_eq!(describe(code), UNKNOWN);
            assert!(!ends_login(code));
        }
        for code in ["server_error", "invalid_scope", "access_denied"] {
            assert!(!ends_login(code), "{code}");
        }
        assert!(ends_login("invalid_grant"));
        assert!(ends_login("invalid_client"));
    }
}
