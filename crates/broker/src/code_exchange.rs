//! Exchange of an authorization code for tokens.
//!
//! Owns the checks of a code, and ends a login whose code is used twice. Does not issue codes
//! (`callback_route.rs`). Invariant: a code is used up only after its client, redirect, verifier
//! and resource have been checked.

use std::ops::RangeInclusive;

use aws_lc_rs::constant_time::verify_slices_are_equal;
use axum::response::Response;
use jiff::Timestamp;
use moongate_oauth::{SecretText, code_challenge};

use crate::broker::{Broker, later};
use crate::client_record::ClientRecord;
use crate::code_table::{CodeGrant, CodeState};
use crate::end_cause::EndCause;
use crate::form_fields::FormFields;
use crate::login_row::LoginRow;
use crate::oauth_error::{INVALID_GRANT, OAuthCode, OAuthError};
use crate::person_row::PersonRow;
use crate::token_reply::{store_error, token_reply};

/// Lengths of a PKCE verifier (RFC 7636, section 4.1).
const VERIFIER_LENGTHS: RangeInclusive<usize> = 43..=128;

/// Error for a request that lacks a parameter.
const INCOMPLETE: OAuthError = OAuthError::new(
    OAuthCode::InvalidRequest,
    "The request needs code and code_verifier",
);
/// Error for a resource that the person did not approve.
pub(crate) const OTHER_RESOURCE: OAuthError = OAuthError::new(
    OAuthCode::InvalidTarget,
    "The resource is not the one that the login is for",
);

/// Exchanges the code in a request for the first tokens of a login.
pub(crate) async fn exchange_code(
    broker: &Broker,
    client: &ClientRecord,
    form: &FormFields,
) -> Result<Response, OAuthError> {
    let code = form.get("code").ok_or(INCOMPLETE)?;
    let verifier = form.get("code_verifier").ok_or(INCOMPLETE)?;
    match broker.codes.state(code) {
        CodeState::Waiting(grant) => check_grant(broker, &grant, client, form, verifier)?,
        CodeState::Used(_) => {
            end_replayed(broker, client, code).await;
            return Err(INVALID_GRANT);
        }
        CodeState::Unknown => return Err(INVALID_GRANT),
    }
    let _unsettled = broker.unsettled.token();
    let Some(grant) = broker.codes.take(code) else {
        // Another request was faster, so this one is a replay.
        end_replayed(broker, client, code).await;
        return Err(INVALID_GRANT);
    };
    let now = Timestamp::now();
    let authority = broker.settings.provider.authority();
    let person = PersonRow::of(authority, grant.person.clone(), now);
    let row = LoginRow {
        mark: person.mark(),
        client: grant.client,
        client_name: grant.client_name.clone(),
        endpoint: grant.endpoint.clone(),
        since: now,
        ends: later(now, broker.settings.max),
        last_used: now,
        generation: 0,
        advanced: now,
        is_used: false,
        replays: 0,
    };
    // A renewal of the same person must not lose its new token to the row of this login.
    let _lock = broker.renewals.acquire(&row.mark).await;
    let live = match broker.store.start(row, person).await {
        Ok(live) => live,
        Err(fault) => {
            // The client is told to try again, and this is all that it can try with.
            broker.codes.give_back(code, grant);
            return Err(store_error(fault));
        }
    };
    if !broker.codes.set_login(code, live.id) {
        broker.store.end(live.id, EndCause::Replay).await;
        return Err(INVALID_GRANT);
    }
    Ok(token_reply(broker, &live, &grant.scope))
}

/// Checks that a request belongs to a code. Changes nothing.
fn check_grant(
    broker: &Broker,
    grant: &CodeGrant,
    client: &ClientRecord,
    form: &FormFields,
    verifier: &str,
) -> Result<(), OAuthError> {
    // OAuth 2.1 omits the redirect here, because PKCE binds the code. If it is sent, it must match.
    let has_redirect = form
        .get("redirect_uri")
        .is_none_or(|redirect| redirect == grant.redirect);
    if grant.client != client.mark() || !has_redirect || !is_verified(grant, verifier) {
        return Err(INVALID_GRANT);
    }
    check_resource(broker, form, &grant.endpoint)
}

fn is_verified(grant: &CodeGrant, verifier: &str) -> bool {
    let challenge = code_challenge(&SecretText::new(verifier));
    VERIFIER_LENGTHS.contains(&verifier.len())
        && verify_slices_are_equal(challenge.as_bytes(), grant.challenge.as_bytes()).is_ok()
}

/// Checks that a request names its login's endpoint or none.
pub(crate) fn check_resource(
    broker: &Broker,
    form: &FormFields,
    endpoint: &str,
) -> Result<(), OAuthError> {
    let Some(resource) = form.get("resource") else {
        return Ok(());
    };
    let named = broker.resources.endpoint_of(resource);
    if named.as_deref() == Some(endpoint) {
        Ok(())
    } else {
        Err(OTHER_RESOURCE)
    }
}

/// Ends the login of a code that was used before (RFC 6749, section 4.1.2). One that has yet to
/// start ends as soon as it has. Another client learns nothing, and ends nothing either.
async fn end_replayed(broker: &Broker, client: &ClientRecord, code: &str) {
    if let Some(login) = broker.codes.record_replay(code, &client.mark()) {
        broker.store.end(login, EndCause::Replay).await;
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use http::StatusCode;

    use super::*;
    use crate::test_broker::{REDIRECT, TestBroker, VERIFIER, client};

    /// Builds a form for a code, with some values replaced.
    fn form(code: &SecretText, changes: &[(&str, &str)]) -> FormFields {
        let mut fields = vec![
            ("code", code.expose()),
            ("code_verifier", VERIFIER),
            ("redirect_uri", REDIRECT),
            ("resource", "https://mcp.test/mcp"),
        ];
        for (name, value) in changes {
            fields.retain(|(known, _)| known != name);
            fields.push((*name, *value));
        }
        let mut query = url::form_urlencoded::Serializer::new(String::new());
        query.extend_pairs(fields);
        FormFields::of_query(&query.finish()).unwrap()
    }

    async fn exchange(
        test: &TestBroker,
        client_id: &str,
        form: &FormFields,
    ) -> Result<StatusCode, OAuthCode> {
        let exchanged = exchange_code(&test.broker, &client(client_id), form).await;
        exchanged
            .map(|response| response.status())
            .map_err(|error| error.code)
    }

    #[tokio::test]
    async fn a_wrong_part_is_refused_and_uses_nothing_up() {
        let test = TestBroker::in_memory();
        let code = test.code();
        let other_verifier = "x".repeat(43);
        for (name, value, expected) in [
            ("code", "unknown", OAuthCode::InvalidGrant),
            ("code", "", OAuthCode::InvalidRequest),
            ("code_verifier", "", OAuthCode::InvalidRequest),
            ("code_verifier", "short", OAuthCode::InvalidGrant),
            (
                "code_verifier",
                other_verifier.as_str(),
                OAuthCode::InvalidGrant,
            ),
            (
                "redirect_uri",
                "http://127.0.0.1:7001/callback",
                OAuthCode::InvalidGrant,
            ),
            (
                "redirect_uri",
                "http://localhost:7000/callback",
                OAuthCode::InvalidGrant,
            ),
            (
                "resource",
                "https://mcp.test/mcp/files",
                OAuthCode::InvalidTarget,
            ),
            (
                "resource",
                "https://evil.test/mcp",
                OAuthCode::InvalidTarget,
            ),
        ] {
            let form = form(&code, &[(name, value)]);
            let refused = exchange(&test, "client", &form).await;
            assert_eq!(refused, Err(expected), "{name} {value}");
        }
        let right = form(&code, &[]);
        let refused = exchange(&test, "other client", &right).await;
        assert_eq!(refused, Err(OAuthCode::InvalidGrant));
        assert!(test.broker.people().is_empty());
        assert_eq!(exchange(&test, "client", &right).await, Ok(StatusCode::OK));
        assert_eq!(test.broker.people().len(), 1);
    }

    #[tokio::test]
    async fn redirect_and_resource_may_be_left_out() {
        let test = TestBroker::in_memory();
        let form = form(&test.code(), &[("redirect_uri", ""), ("resource", "")]);
        assert_eq!(exchange(&test, "client", &form).await, Ok(StatusCode::OK));
    }

    #[tokio::test]
    async fn a_code_that_comes_twice_ends_its_login() {
        let test = TestBroker::in_memory();
        let form = form(&test.code(), &[]);
        assert_eq!(exchange(&test, "client", &form).await, Ok(StatusCode::OK));
        let live = test.broker.store.logins().remove(0);
        // Another client cannot end a login by guessing.
        let refused = exchange(&test, "other client", &form).await;
        assert_eq!(refused, Err(OAuthCode::InvalidGrant));
        assert!(!live.ended.is_cancelled());
        let refused = exchange(&test, "client", &form).await;
        assert_eq!(refused, Err(OAuthCode::InvalidGrant));
        assert!(live.ended.is_cancelled());
        assert!(test.broker.people().is_empty());
    }

    #[tokio::test]
    async fn of_two_exchanges_at_once_at_most_one_gets_tokens() {
        let test = TestBroker::on_disk().await;
        let form = form(&test.code(), &[]);
        let first = exchange(&test, "client", &form);
        let second = exchange(&test, "client", &form);
        let results = <[_; 2]>::from(tokio::join!(first, second));
        let refused = Err(OAuthCode::InvalidGrant);
        assert!(results.contains(&refused), "{results:?}");
        assert!(test.broker.people().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_code_that_comes_twice_ends_its_login_however_long_that_takes_to_start() {
        let test = TestBroker::in_memory();
        let form = form(&test.code(), &[]);
        let renewal = test.broker.renewals.acquire(&test.person().mark()).await;
        let other_work = async {
            tokio::time::sleep(Duration::from_secs(20)).await;
            drop(renewal);
        };
        let first = exchange(&test, "client", &form);
        let second = exchange(&test, "client", &form);
        let (first, second, ()) = tokio::join!(first, second, other_work);
        let refused = Err(OAuthCode::InvalidGrant);
        assert_eq!((&first, &second), (&refused, &refused));
        assert!(test.broker.people().is_empty());
    }

    #[tokio::test]
    async fn a_store_that_cannot_write_is_said_to_be_down() {
        let test = TestBroker::on_disk().await;
        let form = form(&test.code(), &[]);
        test.close_store().await;
        for _ in 0..2 {
            let refused = exchange(&test, "client", &form).await;
            assert_eq!(refused, Err(OAuthCode::TemporarilyUnavailable));
        }
        assert!(test.broker.people().is_empty());
    }
}
