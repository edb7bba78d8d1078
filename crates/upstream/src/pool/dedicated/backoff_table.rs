//! Backoff of one server's dedicated connections, by key. Owns the cooldown after a failure or a
//! loss. Does not dial (`lifecycle.rs`). Invariant: a failure concerns its own key only, unless the
//! program cannot be started for anyone.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::connection::reconnect_backoff::{DEMAND_DELAY, ReconnectBackoff, WINDOW};
use crate::login_need::ConnectFailure;
use crate::supervision_options::BackoffSettings;
use moongate_jsonrpc::json::ByteString;
use moongate_protocol::ConnectError;
use moongate_telemetry::logs;
use moongate_transport::LinkError;

/// Limit of cooldowns that are remembered for one server. Beyond it, the one that ends first is
/// dropped.
// Keys come from clients' sessions, which can come and go without end.
const COOLDOWNS_MAX: usize = 1024;

/// Backoff of the dedicated connections of one server, by key. They are opened on use only.
#[derive(Default)]
pub(crate) struct BackoffTable {
    cooldowns: HashMap<ByteString, (ReconnectBackoff, ConnectCooldown)>,
    /// Reason of the last failure or loss.
    last_reason: Option<Arc<str>>,
    /// Cooldown of all connections, because the program cannot be started for any client.
    spawn_failure: Option<ConnectCooldown>,
}

/// Cooldown of one dedicated connection.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ConnectCooldown {
    /// Failure that caused it.
    pub(crate) reason: Arc<str>,
    /// True if a login is the way out. The reason is then the sentence for it.
    pub(crate) needs_login: bool,
    /// Time of the earliest next attempt.
    pub(crate) until: Instant,
    /// Time until which calls wait for the end of the cooldown, because the connection was lost a
    /// moment ago.
    grace_until: Option<Instant>,
}

impl ConnectCooldown {
    /// Returns true if a call should wait for the end of the cooldown. Otherwise it fails at once.
    pub(crate) fn is_worth_waiting(&self) -> bool {
        // A wait that cannot end within the grace would only delay the same error.
        self.grace_until.is_some_and(|grace| self.until <= grace)
    }
}

impl BackoffTable {
    /// Starts an attempt, unless a cooldown forbids it.
    pub(crate) fn try_begin(
        &mut self,
        key: &ByteString,
        backoff: BackoffSettings,
        now: Instant,
    ) -> Result<ReconnectBackoff, ConnectCooldown> {
        let key_cooldown = self.cooldowns.get(key).map(|(_, cooldown)| cooldown);
        if let Some(cooldown) = self
            .spawn_failure
            .iter()
            .chain(key_cooldown)
            .find(|cooldown| cooldown.until > now)
        {
            return Err(cooldown.clone());
        }
        // One attempt finds out for all whether the program can be started by now.
        if let Some(cooldown) = &mut self.spawn_failure {
            cooldown.until = now + DEMAND_DELAY;
        }
        // The entry goes on with its failures, so that the delays keep growing.
        let mut reconnect = self.cooldowns.remove(key).map_or_else(
            || ReconnectBackoff::new(backoff),
            |(reconnect, _)| reconnect,
        );
        reconnect.record_attempt(now);
        Ok(reconnect)
    }

    /// Returns the cooldown after other connections used up the attempts of the window.
    pub(crate) fn over_budget(&self, until: Instant) -> ConnectCooldown {
        let last = self
            .last_reason
            .clone()
            .unwrap_or_else(|| "other connections to it fail".into());
        ConnectCooldown {
            reason: last,
            needs_login: false,
            until,
            grace_until: None,
        }
    }

    /// Records a successful attempt.
    pub(crate) fn on_success(&mut self) {
        self.spawn_failure = None;
    }

    /// Records a failed attempt, which `failure` describes, and returns its cooldown.
    pub(crate) fn on_failure(
        &mut self,
        key: &ByteString,
        mut reconnect: ReconnectBackoff,
        (error, failure): (&ConnectError, &ConnectFailure),
        now: Instant,
    ) -> ConnectCooldown {
        let delay = reconnect.on_failure(error, now);
        // These connections are opened on demand only, so that the cooldown ends where demand may
        // end it.
        let cooldown = ConnectCooldown {
            reason: logs::one_line(&failure.reason).into(),
            needs_login: failure.needs_login,
            until: delay.demand_from,
            grace_until: None,
        };
        let unstartable = matches!(error, ConnectError::Link(LinkError::Spawn(_)));
        self.spawn_failure = unstartable.then(|| cooldown.clone());
        self.cool_down(key, reconnect, cooldown.clone(), now);
        cooldown
    }

    /// Resets the backoff of one key. Earlier failures say nothing about the next attempt.
    pub(crate) fn reset(&mut self, key: &ByteString) {
        self.cooldowns.remove(key);
    }

    /// Records the loss of a connection after this uptime. `grace`: the time that calls wait for
    /// the next connection.
    pub(crate) fn on_loss(
        &mut self,
        key: &ByteString,
        mut reconnect: ReconnectBackoff,
        up: Duration,
        reason: &str,
        grace: Duration,
    ) {
        let now = Instant::now();
        let until = reconnect.on_loss(up, now).demand_from;
        let cooldown = ConnectCooldown {
            reason: logs::one_line(reason).into(),
            needs_login: false,
            until,
            grace_until: Some(now + grace),
        };
        self.cool_down(key, reconnect, cooldown, now);
    }

    fn cool_down(
        &mut self,
        key: &ByteString,
        reconnect: ReconnectBackoff,
        cooldown: ConnectCooldown,
        now: Instant,
    ) {
        // After its cooldown, an entry still counts the attempts of the window.
        self.cooldowns.retain(|_, (reconnect, cooldown)| {
            cooldown
                .until
                .max(reconnect.last_attempt().map_or(now, |last| last + WINDOW))
                > now
        });
        if self.cooldowns.len() >= COOLDOWNS_MAX && !self.cooldowns.contains_key(key) {
            let first = self
                .cooldowns
                .iter()
                .min_by_key(|(_, (_, cooldown))| cooldown.until)
                .map(|(key, _)| key.clone());
            first.and_then(|key| self.cooldowns.remove(&key));
        }
        self.last_reason = Some(cooldown.reason.clone());
        self.cooldowns.insert(key.clone(), (reconnect, cooldown));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connection::reconnect_backoff::tests::{refused, status};

    fn backoff() -> BackoffSettings {
        BackoffSettings::default()
    }

    fn try_attempt(paces: &mut BackoffTable, key: &ByteString) -> Result<(), ConnectCooldown> {
        paces.try_begin(key, backoff(), Instant::now()).map(drop)
    }

    fn fail_attempt(
        paces: &mut BackoffTable,
        key: &ByteString,
        error: &ConnectError,
    ) -> ConnectCooldown {
        let pace = paces.try_begin(key, backoff(), Instant::now()).unwrap();
        let failure = ConnectFailure::other(error.to_string());
        paces.on_failure(key, pace, (error, &failure), Instant::now())
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_rests_alone_unless_nobody_could_be_started() {
        let mut paces = BackoffTable::default();
        let one = ByteString::literal("one");
        let other = ByteString::literal("other");
        let pause = fail_attempt(&mut paces, &one, &status(401, None));
        assert_eq!(
            try_attempt(&mut paces, &one),
            Err(pause),
            "refused credentials are one client's"
        );
        assert!(try_attempt(&mut paces, &other).is_ok());
        paces.reset(&one);
        assert!(
            try_attempt(&mut paces, &one).is_ok(),
            "it was tried in the wrong era"
        );
        let unstartable = LinkError::Spawn("no such command".to_owned()).into();
        let pause = fail_attempt(&mut paces, &other, &unstartable);
        let third = ByteString::literal("third");
        assert_eq!(try_attempt(&mut paces, &third), Err(pause.clone()));
        // The cooldown of the unstartable program is over.
        tokio::time::advance(pause.until - Instant::now()).await;
        assert!(try_attempt(&mut paces, &third).is_ok());
        assert!(
            try_attempt(&mut paces, &other).is_err(),
            "one tries for all"
        );
        paces.on_success();
        assert!(try_attempt(&mut paces, &other).is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn cooldowns_are_bounded_and_expire() {
        let mut paces = BackoffTable::default();
        for n in 0..COOLDOWNS_MAX + 10 {
            let key = ByteString::from(format!("{n}"));
            fail_attempt(&mut paces, &key, &refused());
        }
        assert_eq!(paces.cooldowns.len(), COOLDOWNS_MAX);
        // All attempts have left the window, so that the next entry removes the old ones.
        tokio::time::advance(WINDOW).await;
        let key = ByteString::literal("last");
        let pace = paces.try_begin(&key, backoff(), Instant::now()).unwrap();
        paces.on_loss(&key, pace, Duration::ZERO, "gone", WINDOW);
        assert_eq!(paces.cooldowns.len(), 1);
        assert!(
            paces
                .try_begin(&key, backoff(), Instant::now())
                .err()
                .is_some_and(|pause| pause.is_worth_waiting())
        );
    }
}
