//! Exchange of a refresh token for the next tokens of a login.
//!
//! Owns the steps: the checks, the recheck of the person, and the new generation. Does not judge
//! replayed tokens (`refresh_verdict.rs`). Invariant: neither a failed write nor an outage of the
//! company's login ends a login.

use std::time::Duration;

use axum::response::Response;
use jiff::Timestamp;
use moongate_tokens::log_name;

use crate::broker::{Broker, later};
use crate::client_record::ClientRecord;
use crate::code_exchange::check_resource;
use crate::end_cause::EndCause;
use crate::form_fields::FormFields;
use crate::login_row::LiveLogin;
use crate::oauth_error::{INVALID_GRANT, OAuthCode, OAuthError};
use crate::provider::fault::RenewFault;
use crate::recheck::renew_person;
use crate::refresh_verdict::{RefreshVerdict, judge_refresh};
use crate::token_reply::{SCOPE, store_error, token_reply};

/// Age up to which an earlier recheck is enough for a renewal. Otherwise a client that renews in a
/// loop would flood the company's login.
const FRESH_AGE: Duration = Duration::from_secs(60);

/// Error for a request without a token.
const INCOMPLETE: OAuthError =
    OAuthError::new(OAuthCode::InvalidRequest, "The request needs refresh_token");
/// Error for a person whom the company's login cannot confirm right now.
const PROVIDER_DOWN: OAuthError = OAuthError::new(
    OAuthCode::TemporarilyUnavailable,
    "The company's login cannot be reached: try again later",
);

/// Exchanges the refresh token in a request.
pub(crate) async fn refresh(
    broker: &Broker,
    client: &ClientRecord,
    form: &FormFields,
) -> Result<Response, OAuthError> {
    let token = form.get("refresh_token").ok_or(INCOMPLETE)?;
    let claims = broker.seals.open_refresh(token).ok_or(INVALID_GRANT)?;
    let live = broker.store.find(claims.login).ok_or(INVALID_GRANT)?;
    // Another client gets nothing and cannot end the login.
    if live.row.client != client.mark() {
        return Err(INVALID_GRANT);
    }
    check_resource(broker, form, &live.row.endpoint)?;
    let sent = claims.generation;
    if judge_refresh(&live.row, sent, Timestamp::now()) != RefreshVerdict::Advance {
        return answer_old(broker, live, sent).await;
    }
    confirm_person(broker, &live).await?;
    let advanced = broker
        .store
        .advance(live.id, sent, Timestamp::now())
        .await
        .map_err(store_error)?;
    if sent.checked_add(1) == Some(advanced.row.generation) {
        return Ok(token_reply(broker, &advanced, SCOPE));
    }
    // Other requests have renewed it more than once in the meantime.
    answer_old(broker, advanced, sent).await
}

/// Handles a token that is not the newest: repeats its successor, or ends the login.
async fn answer_old(broker: &Broker, live: LiveLogin, sent: u32) -> Result<Response, OAuthError> {
    if judge_refresh(&live.row, sent, Timestamp::now()) == RefreshVerdict::Repeat {
        broker.store.record_replay(live.id);
        return Ok(token_reply(broker, &live, SCOPE));
    }
    broker.metrics.broker.replays.inc();
    let person = broker.store.person(&live.row.mark);
    let name = person.map_or(String::new(), |person| log_name(&person.facts.name));
    tracing::warn!(
        "refresh token of {name} reused after its successor: somebody may have a copy, so the \
         login ends"
    );
    broker.store.end(live.id, EndCause::Replay).await;
    Err(INVALID_GRANT)
}

/// Asks the company's login if it still accepts the person.
async fn confirm_person(broker: &Broker, live: &LiveLogin) -> Result<(), OAuthError> {
    let mark = &live.row.mark;
    let known = broker.store.person(mark).ok_or(INVALID_GRANT)?;
    if Timestamp::now() < later(known.checked, FRESH_AGE) {
        return Ok(());
    }
    match renew_person(broker, mark).await {
        Ok(()) => Ok(()),
        Err(RenewFault::Ended | RenewFault::OtherSubject) => Err(INVALID_GRANT),
        Err(fault @ (RenewFault::Down | RenewFault::Unchecked)) => {
            let person = broker.store.person(mark).ok_or(INVALID_GRANT)?;
            match fault {
                _ if Timestamp::now() < broker.checked_until(&person) => Ok(()),
                // The person can never be rechecked, so only a new login helps.
                RenewFault::Unchecked => {
                    broker.store.end(live.id, EndCause::Expired).await;
                    Err(INVALID_GRANT)
                }
                _ => Err(PROVIDER_DOWN),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use http::StatusCode;

    use super::*;
    use crate::person_row::PersonRow;
    use crate::test_broker::{TestBroker, client};

    fn form(token: &str, resource: &str) -> FormFields {
        let query = format!("refresh_token={token}&resource={resource}");
        FormFields::of_query(&query).unwrap()
    }

    async fn send(test: &TestBroker, client_id: &str, form: &FormFields) -> Result<u32, OAuthCode> {
        let refreshed = refresh(&test.broker, &client(client_id), form).await;
        let response = refreshed.map_err(|error| error.code)?;
        assert_eq!(response.status(), StatusCode::OK);
        let body = axum::body::to_bytes(response.into_body(), 4096).await;
        let body = String::from_utf8(body.unwrap().to_vec()).unwrap();
        let token = body.split('"').find(|text| text.starts_with("mgr_"));
        let claims = test.broker.seals.open_refresh(token.unwrap()).unwrap();
        Ok(claims.generation)
    }

    fn minutes_ago(minutes: u64) -> Timestamp {
        Timestamp::now() - Duration::from_secs(60 * minutes)
    }

    #[tokio::test]
    async fn checks_come_before_changes() {
        let test = TestBroker::in_memory();
        // Old enough that use by its own client would end the login.
        let live = test
            .login(|row| {
                row.generation = 5;
                row.is_used = true;
                row.advanced = minutes_ago(60);
            })
            .await;
        let own = "https://mcp.test/mcp";
        for generation in [3, 5] {
            let token = test.refresh_token(&live, generation);
            for (client_id, token, resource, expected) in [
                ("other client", token.as_str(), own, OAuthCode::InvalidGrant),
                ("client", "mgr_garbage", own, OAuthCode::InvalidGrant),
                ("client", "", own, OAuthCode::InvalidRequest),
                (
                    "client",
                    token.as_str(),
                    "https://mcp.test/mcp/files",
                    OAuthCode::InvalidTarget,
                ),
                (
                    "client",
                    token.as_str(),
                    "https://evil.test/mcp",
                    OAuthCode::InvalidTarget,
                ),
            ] {
                let refused = send(&test, client_id, &form(token, resource)).await;
                assert_eq!(refused, Err(expected), "{client_id} {resource}");
            }
        }
        // An access token is not a refresh token.
        let access = test.access_token(&live, 5);
        let refused = send(&test, "client", &form(&access, "")).await;
        assert_eq!(refused, Err(OAuthCode::InvalidGrant));
        assert!(!live.ended.is_cancelled());
        let token = test.refresh_token(&live, 5);
        assert_eq!(send(&test, "client", &form(&token, own)).await, Ok(6));
    }

    #[tokio::test]
    async fn a_copy_that_comes_two_minutes_later_ends_the_login() {
        let test = TestBroker::in_memory();
        let live = test
            .login(|row| {
                row.generation = 5;
                row.is_used = true;
                row.advanced = minutes_ago(3);
            })
            .await;
        let token = test.refresh_token(&live, 4);
        let refused = send(&test, "client", &form(&token, "")).await;
        assert_eq!(refused, Err(OAuthCode::InvalidGrant));
        assert!(live.ended.is_cancelled());
        // The newest token is useless, too.
        let token = test.refresh_token(&live, 5);
        let refused = send(&test, "client", &form(&token, "")).await;
        assert_eq!(refused, Err(OAuthCode::InvalidGrant));
        assert_eq!(test.broker.metrics.broker.replays.get(), 1);
    }

    #[tokio::test]
    async fn a_copy_after_a_minute_gets_the_same_successor() {
        let test = TestBroker::in_memory();
        let live = test
            .login(|row| {
                row.generation = 5;
                row.is_used = true;
                row.advanced = minutes_ago(1);
            })
            .await;
        let token = test.refresh_token(&live, 4);
        assert_eq!(send(&test, "client", &form(&token, "")).await, Ok(5));
        assert_eq!(test.broker.people()[0].replays, 1);
    }

    #[tokio::test]
    async fn a_lost_answer_is_given_again_until_its_tokens_are_used() {
        let test = TestBroker::in_memory();
        let live = test
            .login(|row| {
                row.generation = 5;
                row.advanced = minutes_ago(60);
            })
            .await;
        let token = test.refresh_token(&live, 4);
        assert_eq!(send(&test, "client", &form(&token, "")).await, Ok(5));
        test.broker.store.record_use(live.id, 5, Timestamp::now());
        let refused = send(&test, "client", &form(&token, "")).await;
        assert_eq!(refused, Err(OAuthCode::InvalidGrant));
        assert!(live.ended.is_cancelled());
    }

    #[tokio::test]
    async fn a_thief_who_renews_in_step_ends_the_login_with_one_step_too_many() {
        let test = TestBroker::in_memory();
        let live = test.login(|_| {}).await;
        let stolen = test.refresh_token(&live, 0);
        assert_eq!(send(&test, "client", &form(&stolen, "")).await, Ok(1));
        // The thief is immediate, so both now have the same token.
        assert_eq!(send(&test, "client", &form(&stolen, "")).await, Ok(1));
        let next = test.refresh_token(&live, 1);
        assert_eq!(send(&test, "client", &form(&next, "")).await, Ok(2));
        // Two steps behind is too late, however soon it comes.
        let refused = send(&test, "client", &form(&stolen, "")).await;
        assert_eq!(refused, Err(OAuthCode::InvalidGrant));
        assert!(live.ended.is_cancelled());
    }

    #[tokio::test]
    async fn two_at_once_get_the_same_generation() {
        let test = TestBroker::on_disk().await;
        let live = test.login(|_| {}).await;
        let token = test.refresh_token(&live, 0);
        let form = form(&token, "");
        let both = tokio::join!(send(&test, "client", &form), send(&test, "client", &form));
        assert_eq!(<[_; 2]>::from(both), [Ok(1), Ok(1)]);
        assert!(!live.ended.is_cancelled());
    }

    #[tokio::test]
    async fn a_store_that_cannot_write_ends_nothing() {
        let test = TestBroker::on_disk().await;
        let live = test.login(|_| {}).await;
        let token = test.refresh_token(&live, 0);
        test.close_store().await;
        for _ in 0..2 {
            let refused = send(&test, "client", &form(&token, "")).await;
            assert_eq!(refused, Err(OAuthCode::TemporarilyUnavailable));
        }
        assert!(!live.ended.is_cancelled());
        let row = test.broker.store.find(live.id).unwrap().row;
        assert_eq!(row.generation, 0);
    }

    #[tokio::test]
    async fn a_person_of_whom_nobody_can_ask_must_log_in_again() {
        let test = TestBroker::in_memory();
        let live = test.login(|_| {}).await;
        let person = test.broker.store.person(&live.row.mark).unwrap();
        let old = PersonRow {
            checked: minutes_ago(60 * 25),
            ..(*person).clone()
        };
        let version = person.version;
        test.broker.store.put_person(old, version).await.unwrap();
        let token = test.refresh_token(&live, 0);
        let refused = send(&test, "client", &form(&token, "")).await;
        assert_eq!(refused, Err(OAuthCode::InvalidGrant));
        assert!(live.ended.is_cancelled());
    }
}
