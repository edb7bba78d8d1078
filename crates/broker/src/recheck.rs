//! Rechecks at the company's login of people who use their logins.
//!
//! Owns when a person is due and what an answer changes. Does not talk to the provider
//! (`provider/`). Invariant: only a definite answer from the company's login ends a login, never
//! one about an old token.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use futures_util::{StreamExt as _, stream};
use jiff::Timestamp;
use moongate_model::PrincipalKey;
use tokio::time::Instant;

use crate::broker::{Broker, later};
use crate::end_cause::EndCause;
use crate::login_store::StoreFault;
use crate::person_facts::wanted_digest;
use crate::person_row::{PersonRow, ProvenPerson};
use crate::provider::fault::RenewFault;

/// Interval between searches for people who are due.
const ROUND_INTERVAL: Duration = Duration::from_secs(60);
/// Delay before a person is rechecked if the company's login was down.
const RETRY_PAUSE: Duration = Duration::from_secs(5 * 60);
/// Maximum number of concurrent rechecks. New roles may make everybody due.
const QUESTIONS_MAX: usize = 8;

/// Earliest times of people's next rechecks, after failures.
type RetryPauses = HashMap<PrincipalKey, Instant>;

/// Rechecks people who use their logins, for as long as it runs. Also ends expired logins.
pub async fn recheck_forever(broker: Arc<Broker>) {
    let mut pauses = RetryPauses::new();
    loop {
        if broker.store.is_ready() {
            end_old_logins(&broker).await;
            ask_about_due(&broker, &mut pauses).await;
        }
        tokio::select! {
            () = tokio::time::sleep(ROUND_INTERVAL) => {}
            () = broker.roles_changed.notified() => take_all_roles(&broker),
        }
    }
}

/// Ends the logins of people about whom nobody can be asked, once their time is over. What the
/// others have open ends then, too: a stream makes no request that could be refused, and nobody
/// asks about a person who makes none.
async fn end_old_logins(broker: &Broker) {
    let now = Timestamp::now();
    // Listing also ends logins that are too old or were not used for too long.
    for login in broker.store.logins() {
        let person = broker.store.person(&login.row.mark);
        let is_confirmed = person
            .as_ref()
            .is_some_and(|person| now < broker.checked_until(person));
        if is_confirmed {
            continue;
        }
        if person.is_some_and(|person| person.token.is_some()) {
            broker.store.close_open(login.id);
        } else {
            broker.store.end(login.id, EndCause::Expired).await;
        }
    }
}

async fn ask_about_due(broker: &Arc<Broker>, pauses: &mut RetryPauses) {
    let now = Instant::now();
    pauses.retain(|_, until| now < *until);
    let due = due_people(broker).into_iter();
    let asking: Vec<_> = due
        .filter(|mark| !pauses.contains_key(mark))
        .map(|mark| ask_in_task(broker.clone(), mark))
        .collect();
    let mut asking = stream::iter(asking).buffer_unordered(QUESTIONS_MAX);
    let mut failures = 0;
    while let Some((mark, has_answer)) = asking.next().await {
        if has_answer {
            failures = 0;
            continue;
        }
        pauses.insert(mark, Instant::now() + RETRY_PAUSE);
        failures += 1;
        if failures >= QUESTIONS_MAX {
            // The provider is down. Each of the others would wait for it in vain, and what else a
            // round does would wait for them.
            return;
        }
    }
}

/// Rechecks a person in a separate task, because an answer may contain the only copy of a new
/// token. Returns false if there was no answer.
async fn ask_in_task(broker: Arc<Broker>, mark: PrincipalKey) -> (PrincipalKey, bool) {
    let asking = tokio::spawn(async move { renew_person(&broker, &mark).await });
    let has_answer = matches!(
        asking.await,
        Ok(Ok(()) | Err(RenewFault::Ended | RenewFault::OtherSubject))
    );
    (mark, has_answer)
}

/// Returns the people who used a login since their last recheck, if it was long ago or roles now
/// need other facts.
fn due_people(broker: &Broker) -> HashSet<PrincipalKey> {
    let now = Timestamp::now();
    let wanted = wanted_digest(&broker.matches(), &broker.settings.provider);
    let recheck = broker.settings.recheck;
    let mut due = HashSet::new();
    for login in broker.store.logins() {
        let mark = login.row.mark;
        if due.contains(&mark) {
            continue;
        }
        let Some(person) = broker.store.person(&mark) else {
            continue;
        };
        let is_stale =
            later(person.checked, recheck) <= now && person.checked < login.row.last_used;
        let is_in_use = now < later(login.row.last_used, recheck);
        let lacks_facts = person.wanted != wanted && is_in_use;
        if person.token.is_some() && (is_stale || lacks_facts) {
            due.insert(mark);
        }
    }
    due
}

/// Asks the company's login about a person, and stores what it says. Ends all of the person's
/// logins if it no longer accepts them.
pub(crate) async fn renew_person(broker: &Broker, mark: &PrincipalKey) -> Result<(), RenewFault> {
    let _unsettled = broker.unsettled.token();
    let began = Timestamp::now();
    let waited_since = Instant::now();
    let lock = broker.renewals.acquire(mark).await;
    let mut last_failure = lock.ok_or(RenewFault::Down)?;
    let person = broker.store.person(mark).ok_or(RenewFault::Ended)?;
    // Another task rechecked the person, or they logged in, while this one waited.
    if began <= person.checked {
        return Ok(());
    }
    // Others had no answer while this waited. One after the other, all who wait would hold up those
    // behind them for as long as a provider takes that does not answer.
    if last_failure.is_some_and(|failed| waited_since <= failed) {
        return Err(RenewFault::Down);
    }
    let fault = match broker.provider.renew(&person).await {
        Ok(proven) => match take_answer(broker, &person, proven).await {
            Ok(()) => return Ok(()),
            Err(fault) => fault,
        },
        Err(fault) => fault,
    };
    let cause = match fault {
        RenewFault::Ended => EndCause::Provider,
        RenewFault::OtherSubject => EndCause::OtherSubject,
        RenewFault::Down => {
            *last_failure = Some(Instant::now());
            return Err(fault);
        }
        RenewFault::Unchecked => return Err(fault),
    };
    let now = broker.store.person(mark);
    if fault == RenewFault::Ended && now.is_some_and(|now| now.token != person.token) {
        // A new login has replaced the token that the answer was about.
        return Ok(());
    }
    broker.store.end_person(mark, cause).await;
    Err(fault)
}

/// Stores an answer about a person.
async fn take_answer(
    broker: &Broker,
    before: &PersonRow,
    proven: ProvenPerson,
) -> Result<(), RenewFault> {
    let authority = broker.settings.provider.authority();
    let after = PersonRow::of(authority, proven, Timestamp::now());
    let mark = before.mark();
    if after.mark() != mark {
        return Err(RenewFault::OtherSubject);
    }
    match broker.store.put_person(after, before.version).await {
        // A new login has replaced the row with a later answer.
        Ok(()) | Err(StoreFault::Gone) => {}
        Err(fault) => {
            tracing::warn!("person not stored on disk: {fault}");
            // The answer holds while this process runs, because memory has it.
            let is_kept = broker.store.person(&mark);
            if is_kept.is_none_or(|now| now.version == before.version) {
                return Err(RenewFault::Down);
            }
        }
    }
    take_roles(broker, &mark);
    Ok(())
}

/// Gives everybody the roles of now. Whoever only listens makes no request that would.
fn take_all_roles(broker: &Broker) {
    let logins = broker.store.logins();
    let marks: HashSet<PrincipalKey> = logins.iter().map(|login| login.row.mark).collect();
    for mark in &marks {
        take_roles(broker, mark);
    }
}

/// Gives a person the roles of now, also in what is open.
fn take_roles(broker: &Broker, mark: &PrincipalKey) {
    let Some(person) = broker.store.person(mark) else {
        return;
    };
    let Some(principal) = broker.principals.find(mark) else {
        return;
    };
    let roles = broker.roles_of_facts(&person.facts);
    let names: Vec<&str> = roles.iter().map(String::as_str).collect();
    if let Some(set) = broker.principals.role_sets().intern(&names) {
        principal.set_role(set);
    }
    if roles.is_empty() {
        // A person without a role has nothing open. The login remains, since a role may match
        // again.
        broker.principals.remove(mark);
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;
    use moongate_access::auth::{Person, RoleMatch};
    use moongate_model::Principal;
    use moongate_oauth::SecretText;
    use moongate_telemetry::ProviderOutcome;
    use moongate_tokens::PEOPLE;

    use super::*;
    use crate::login_row::LoginRow;
    use crate::test_broker::{TestBroker, proven, staff};

    /// Returns a broker with one login, whose person was last checked this many seconds ago.
    async fn broker_of(
        age: u64,
        change: impl FnOnce(&mut PersonRow),
    ) -> (TestBroker, PrincipalKey) {
        let test = TestBroker::in_memory();
        let live = test.login(|_| {}).await;
        let known = test.broker.store.person(&live.row.mark).unwrap();
        let mut person = (*known).clone();
        person.checked = Timestamp::now() - Duration::from_secs(age);
        change(&mut person);
        let stored = test.broker.store.put_person(person, known.version);
        stored.await.unwrap();
        (test, live.row.mark)
    }

    fn with_token(person: &mut PersonRow) {
        person.token = Some(SecretText::new("provider token"));
    }

    #[tokio::test]
    async fn people_are_due_after_the_time_if_they_can_be_asked_about() {
        let (test, mark) = broker_of(3700, with_token).await;
        assert_eq!(due_people(&test.broker), HashSet::from([mark]));
        let (test, _) = broker_of(3500, with_token).await;
        assert!(due_people(&test.broker).is_empty());
        let (test, _) = broker_of(3700, |_| {}).await;
        assert!(due_people(&test.broker).is_empty());
    }

    #[tokio::test]
    async fn a_round_ends_after_a_few_questions_without_an_answer() {
        let test = TestBroker::in_memory();
        let live = test.login(|_| {}).await;
        for n in 0..20 {
            let mut person = test.person();
            person.subject = format!("person {n}");
            person.checked = Timestamp::now() - Duration::from_secs(3700);
            with_token(&mut person);
            let mark = person.mark();
            let login = LoginRow {
                mark,
                ..live.row.clone()
            };
            test.broker.store.start(login, person).await.unwrap();
        }
        assert_eq!(due_people(&test.broker).len(), 20);
        // No renewal gets a lock, so there is no answer for anybody.
        let mut locks = Vec::new();
        for n in 0..u128::MAX {
            let Some(lock) = test.broker.renewals.acquire(&n.to_be_bytes()).await else {
                break;
            };
            locks.push(lock);
        }
        let mut pauses = RetryPauses::new();
        ask_about_due(&test.broker, &mut pauses).await;
        assert_eq!(pauses.len(), QUESTIONS_MAX);
        // The next round goes on with others.
        ask_about_due(&test.broker, &mut pauses).await;
        assert_eq!(pauses.len(), 2 * QUESTIONS_MAX);
    }

    #[tokio::test]
    async fn other_facts_make_people_due_at_once() {
        let (test, mark) = broker_of(10, with_token).await;
        assert!(due_people(&test.broker).is_empty());
        let claims = [("department".to_owned(), vec!["7".to_owned()])];
        test.broker.replace_roles(vec![RoleMatch {
            claims: claims.into(),
            ..staff()
        }]);
        assert_eq!(due_people(&test.broker), HashSet::from([mark]));
    }

    #[tokio::test]
    async fn what_nobody_can_ask_about_ends_with_its_time() {
        let (test, _) = broker_of(25 * 3600, |_| {}).await;
        end_old_logins(&test.broker).await;
        assert!(test.broker.people().is_empty());
        for has_token in [false, true] {
            let (test, _) = broker_of(23 * 3600, |person| {
                if has_token {
                    with_token(person);
                }
            })
            .await;
            end_old_logins(&test.broker).await;
            assert_eq!(test.broker.people().len(), 1);
        }
    }

    #[tokio::test]
    async fn a_stream_of_somebody_who_was_not_confirmed_for_too_long_ends() {
        for (hours, is_open) in [(24, true), (26, false)] {
            let (test, mark) = broker_of(hours * 3600, with_token).await;
            let live = test.broker.store.logins_of(&mark).remove(0);
            end_old_logins(&test.broker).await;
            assert_eq!(!live.ended.is_cancelled(), is_open, "{hours}");
            // A renewal may confirm the person still.
            let left = test.broker.store.find(live.id).unwrap();
            assert!(!left.ended.is_cancelled(), "{hours}");
        }
    }

    #[tokio::test]
    async fn a_login_that_is_over_ends() {
        let test = TestBroker::in_memory();
        let live = test.login(|row| row.ends = Timestamp::UNIX_EPOCH).await;
        end_old_logins(&test.broker).await;
        assert!(live.ended.is_cancelled());
    }

    #[tokio::test]
    async fn an_answer_about_somebody_else_changes_nothing_of_the_person() {
        let (test, mark) = broker_of(3700, with_token).await;
        let before = test.broker.store.person(&mark).unwrap();
        let mut other = proven();
        other.subject = "bob".to_owned();
        let taken = take_answer(&test.broker, &before, other).await;
        assert_eq!(taken, Err(RenewFault::OtherSubject));
        assert_eq!(test.broker.store.person(&mark), Some(before));
    }

    /// Lets a person with the role "staff" come.
    fn meet(test: &TestBroker, mark: PrincipalKey) -> Arc<Principal> {
        let principals = &test.principals;
        let ann = Person {
            key: mark,
            name: "ann",
            secret: test.broker.person_key.secret_of(&mark),
            role: principals.role_sets().intern(&["staff"]).unwrap(),
            expires: None,
        };
        principals.meet(PEOPLE, ann).unwrap()
    }

    #[tokio::test]
    async fn other_roles_of_a_reload_hold_for_what_is_open() {
        let (test, mark) = broker_of(10, with_token).await;
        let ann = meet(&test, mark);
        let before = ann.role();
        let other = RoleMatch {
            role: "readers".to_owned(),
            ..staff()
        };
        test.broker.replace_roles(vec![other]);
        take_all_roles(&test.broker);
        assert_ne!(ann.role(), before);
        assert!(test.principals.admits(&ann));
        test.broker.replace_roles(Vec::new());
        take_all_roles(&test.broker);
        assert!(!test.principals.admits(&ann));
        assert_eq!(test.broker.people().len(), 1);
    }

    #[tokio::test]
    async fn new_claims_hold_at_once_and_missing_ones_are_gone() {
        let (test, mark) = broker_of(3700, with_token).await;
        let principals = &test.principals;
        let ann = meet(&test, mark);
        let role = ann.role();
        let before = test.broker.store.person(&mark).unwrap();
        let mut without = proven();
        without.facts.claims.clear();
        without.token = Some(SecretText::new("next provider token"));
        take_answer(&test.broker, &before, without).await.unwrap();
        assert_ne!(ann.role(), role);
        assert!(!principals.admits(&ann));
        let after = test.broker.store.person(&mark).unwrap();
        assert!(after.facts.claims.is_empty() && after.version > before.version);
        assert_eq!(test.broker.people().len(), 1);
        // An answer about the previous token no longer changes anything.
        take_answer(&test.broker, &before, proven()).await.unwrap();
        assert!(test.broker.people()[0].roles.is_empty());
    }

    #[tokio::test]
    async fn an_answer_that_cannot_be_written_counts_in_memory() {
        let test = TestBroker::on_disk().await;
        let live = test.login(|_| {}).await;
        let before = test.broker.store.person(&live.row.mark).unwrap();
        test.close_store().await;
        let mut newer = proven();
        newer.token = Some(SecretText::new("next provider token"));
        let taken = take_answer(&test.broker, &before, newer.clone()).await;
        assert_eq!(taken, Ok(()));
        let after = test.broker.store.person(&live.row.mark).unwrap();
        assert_eq!(after.token, newer.token);
    }

    #[tokio::test(start_paused = true)]
    async fn a_stop_waits_for_renewals_but_not_for_ever() {
        for is_answered in [true, false] {
            let (test, mark) = broker_of(3700, with_token).await;
            let mut running = test.broker.renewals.acquire(&mark).await.unwrap();
            let renewing = tokio::spawn(ask_in_task(test.broker.clone(), mark));
            tokio::time::sleep(Duration::from_secs(1)).await;
            // The end of the round leaves what was asked under way.
            renewing.abort();
            let broker = test.broker.clone();
            let settling = tokio::spawn(async move { broker.settle().await });
            tokio::time::sleep(Duration::from_secs(2)).await;
            assert!(!settling.is_finished());
            if is_answered {
                *running = Some(Instant::now());
                drop(running);
                tokio::time::sleep(Duration::from_secs(1)).await;
            } else {
                tokio::time::sleep(Duration::from_secs(4)).await;
            }
            assert!(settling.is_finished(), "{is_answered}");
        }
    }

    #[tokio::test]
    async fn whoever_waits_for_a_renewal_shares_its_failure() {
        let (test, mark) = broker_of(3700, with_token).await;
        let mut running = test.broker.renewals.acquire(&mark).await.unwrap();
        let mut waiting = Box::pin(renew_person(&test.broker, &mark));
        assert!((&mut waiting).now_or_never().is_none());
        *running = Some(Instant::now());
        drop(running);
        assert_eq!(waiting.await, Err(RenewFault::Down));
        let metrics = &test.broker.metrics.broker.provider;
        assert_eq!(metrics.get(ProviderOutcome("unreachable")), 0);
    }

    #[tokio::test]
    async fn whoever_was_asked_about_a_moment_ago_is_not_asked_about_again() {
        let (test, mark) = broker_of(0, |person| {
            person.checked = later(Timestamp::now(), Duration::from_secs(5));
            with_token(person);
        })
        .await;
        assert_eq!(renew_person(&test.broker, &mark).await, Ok(()));
        let unknown = renew_person(&test.broker, &[9; 16]).await;
        assert_eq!(unknown, Err(RenewFault::Ended));
    }
}
