//! Failures of the company's login.
//!
//! Owns their text for people and for the operator. Does not classify failures. Invariant: a text
//! contains no byte of a provider's answer.

use moongate_tokens::TokenFault;

use crate::oauth_error::OAuthCode;

/// Failure of a login at the company's login.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ProviderFault {
    /// It cannot be reached, or cannot answer at the moment.
    #[error("it cannot be reached or is too busy")]
    Down,
    /// The person or a company policy denied it.
    #[error("it denied the login")]
    Denied,
    /// Its answer is malformed, or refuses this gateway.
    #[error("its answer cannot be used")]
    BadAnswer,
    /// Its ID token is invalid.
    #[error("its ID token was refused")]
    BadToken,
    /// It does not say who the person is.
    #[error("it does not say who the person is")]
    NoSubject,
    /// The person is from another tenant.
    #[error("the person is from another tenant")]
    OtherTenant,
    /// The account is not in the company's domain.
    #[error("the account is not in the configured domain")]
    OtherDomain,
    /// The person is not a member of an organization that may log in.
    #[error("the person is not a member of a configured organization")]
    NotAMember,
    /// The person is in too many groups for a token, so none is known.
    #[error("the person is in too many groups for its token")]
    TooManyGroups,
    /// It issued no token for renewals, and none is stored.
    #[error("it issued no token for renewals")]
    NoToken,
}

/// Failure of a renewal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum RenewFault {
    /// The person may no longer log in.
    #[error("the company login no longer accepts the person")]
    Ended,
    /// The answer is about a different person, or for a different client.
    #[error("the company login answered for another person")]
    OtherSubject,
    /// The provider is down, or its answer is inconclusive. The person may still be entitled.
    #[error("the company login cannot confirm the person right now")]
    Down,
    /// The person has no token for a recheck.
    #[error("the company login issued no token for later checks")]
    Unchecked,
}

impl ProviderFault {
    /// Returns the text for the person's page.
    pub(crate) fn page_text(self) -> &'static str {
        match self {
            ProviderFault::Down => "Your company's login is not responding. Try again in a minute.",
            ProviderFault::Denied => "Your company's login denied access.",
            ProviderFault::BadAnswer | ProviderFault::BadToken => {
                "Your company's login sent an invalid response. Log in again. If that does not \
                 help, ask the operator of this gateway."
            }
            ProviderFault::NoSubject => {
                "Your company's login did not say who you are. Ask the operator of this gateway."
            }
            ProviderFault::OtherTenant => "Your account belongs to another company's tenant.",
            ProviderFault::OtherDomain => {
                "Your account is not in the company's domain. Log in with your work account."
            }
            ProviderFault::NotAMember => {
                "You are not a member of an organization that may log in here."
            }
            ProviderFault::TooManyGroups => {
                "You are in too many groups, so your company's login sent none of them. Ask the \
                 operator of this gateway to use app roles instead."
            }
            ProviderFault::NoToken => {
                "Your company's login did not permit this gateway to check your account later. \
                 Log in again, and agree when it asks."
            }
        }
    }

    /// Returns the error code for the client.
    pub(crate) fn code(self) -> OAuthCode {
        match self {
            ProviderFault::Down => OAuthCode::TemporarilyUnavailable,
            ProviderFault::Denied
            | ProviderFault::OtherTenant
            | ProviderFault::OtherDomain
            | ProviderFault::NotAMember
            | ProviderFault::TooManyGroups => OAuthCode::AccessDenied,
            ProviderFault::BadAnswer
            | ProviderFault::BadToken
            | ProviderFault::NoSubject
            | ProviderFault::NoToken => OAuthCode::ServerError,
        }
    }
}

impl From<ProviderFault> for RenewFault {
    fn from(fault: ProviderFault) -> Self {
        match fault {
            ProviderFault::Denied | ProviderFault::OtherDomain | ProviderFault::NotAMember => {
                RenewFault::Ended
            }
            ProviderFault::OtherTenant | ProviderFault::NoSubject => RenewFault::OtherSubject,
            ProviderFault::Down
            | ProviderFault::BadAnswer
            | ProviderFault::BadToken
            | ProviderFault::TooManyGroups
            | ProviderFault::NoToken => RenewFault::Down,
        }
    }
}

/// Failure of a step shared by logins and renewals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StepFault {
    /// The code or token is no longer valid.
    Ended,
    /// Two answers are about different people.
    OtherSubject,
    /// The ID token was refused.
    Token(TokenFault),
    /// Another failure.
    Provider(ProviderFault),
}

impl From<ProviderFault> for StepFault {
    fn from(fault: ProviderFault) -> Self {
        StepFault::Provider(fault)
    }
}

impl From<StepFault> for ProviderFault {
    fn from(fault: StepFault) -> Self {
        match fault {
            StepFault::Ended => ProviderFault::BadAnswer,
            StepFault::Token(TokenFault::NoSubject) => ProviderFault::NoSubject,
            StepFault::OtherSubject | StepFault::Token(_) => ProviderFault::BadToken,
            StepFault::Provider(fault) => fault,
        }
    }
}

impl From<StepFault> for RenewFault {
    fn from(fault: StepFault) -> Self {
        match fault {
            StepFault::Ended => RenewFault::Ended,
            // OpenID Connect Core 1.0, section 12.2: `iss`, `sub` and `aud` must be those of the
            // login.
            StepFault::OtherSubject
            | StepFault::Token(
                TokenFault::Issuer
                | TokenFault::Audience
                | TokenFault::Party
                | TokenFault::NoSubject,
            ) => RenewFault::OtherSubject,
            // The person may still be entitled, as the next answer may show.
            StepFault::Token(_) => RenewFault::Down,
            StepFault::Provider(fault) => fault.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_not_admitted_is_denied_and_a_provider_that_is_down_ends_nothing() {
        for (fault, code, renewal) in [
            (
                ProviderFault::Down,
                OAuthCode::TemporarilyUnavailable,
                RenewFault::Down,
            ),
            (
                ProviderFault::Denied,
                OAuthCode::AccessDenied,
                RenewFault::Ended,
            ),
            (
                ProviderFault::BadToken,
                OAuthCode::ServerError,
                RenewFault::Down,
            ),
            (
                ProviderFault::OtherTenant,
                OAuthCode::AccessDenied,
                RenewFault::OtherSubject,
            ),
            (
                ProviderFault::NotAMember,
                OAuthCode::AccessDenied,
                RenewFault::Ended,
            ),
        ] {
            assert_eq!(fault.code(), code, "{fault}");
            assert_eq!(RenewFault::from(fault), renewal, "{fault}");
        }
    }

    #[test]
    fn a_token_for_somebody_else_ends_the_logins_and_an_unknown_key_does_not() {
        for (fault, renewal) in [
            (TokenFault::Issuer, RenewFault::OtherSubject),
            (TokenFault::Audience, RenewFault::OtherSubject),
            (TokenFault::Party, RenewFault::OtherSubject),
            (TokenFault::UnknownKey, RenewFault::Down),
            (TokenFault::Expired, RenewFault::Down),
        ] {
            let found = RenewFault::from(StepFault::Token(fault));
            assert_eq!(found, renewal, "{}", fault.cause());
        }
    }
}
