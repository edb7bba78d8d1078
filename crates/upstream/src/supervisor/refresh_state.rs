//! Timers and pending work of one connected server: when its lists are due, and how its
//! notification stream is doing. Owns the times. Does not fetch, subscribe or wait. Invariant: a
//! change that was announced to nobody leads to a fetch.

use std::time::Duration;

use tokio::time::Instant;

use crate::connection::reconnect_backoff;
use crate::connection::subscription_acknowledgement::{ACKNOWLEDGE_TIMEOUT, EarlyUpdates};
use crate::lists::fetch::SETTLE_TIME;
use crate::lists::polls::PollTimer;
use crate::supervision_options::BackoffSettings;
use moongate_model::{ItemKind, Notification, NotificationStream};

/// Shortest interval between checks of whether a server that refuses calls refuses everything.
const REFUSAL_CHECK_INTERVAL: Duration = Duration::from_secs(10);

/// Longest time that an announced change waits, if earlier ones brought the same list.
const SETTLE_MAX: Duration = Duration::from_secs(30);
/// Time without an announcement after which the next one is believed again.
const QUIET_TIME: Duration = Duration::from_secs(60);

/// Returns how long an announced change waits. Doubles with each one that changed nothing: some
/// servers announce their lists all the time.
fn settle_time(unchanged: u32) -> Duration {
    SETTLE_TIME
        .saturating_mul(1 << unchanged.min(16))
        .min(SETTLE_MAX)
}

/// Timers and pending work of one connected server.
pub(super) struct RefreshState {
    /// Time of the next fetch of all lists: soon after a failure, else after the regular interval.
    pub(super) relist: Instant,
    pub(super) failures: u32,
    /// Timer of the polls of lists whose changes are not announced.
    pub(super) polls: PollTimer,
    /// Time to open the notification stream again. `None` while it is open.
    pub(super) reopen_at: Option<Instant>,
    /// Deadline for the acknowledgement of the stream, before the next one may replace it.
    pub(super) open_deadline: Instant,
    /// True if no other stream delivered notifications while this one was opening.
    pub(super) is_only_stream: bool,
    /// Updates of resources that may have changed before the acknowledgement.
    pub(super) early_updates: EarlyUpdates,
    /// Lists that were fetched before the acknowledgement. A change at that moment was announced to
    /// nobody.
    listed_early: Vec<ItemKind>,
    /// Lists that changed and wait for `settles_at`, when they are fetched together.
    pub(super) changed: Vec<ItemKind>,
    pub(super) settles_at: Instant,
    /// Announced changes in a row that brought the same list, for each kind.
    unchanged: [u32; ItemKind::ALL.len()],
    /// Times of the last announcements.
    announced: [Option<Instant>; ItemKind::ALL.len()],
    /// Streams in a row that ended without a notification.
    silent_ends: u32,
    /// Time of the last check of whether the server refuses everything.
    refusal_checked: Option<Instant>,
    backoff: BackoffSettings,
}

impl RefreshState {
    /// Creates the state for a stream that was just opened.
    pub(super) fn new(backoff: BackoffSettings) -> Self {
        let now = Instant::now();
        let listed_early = Vec::new();
        let changed = Vec::new();
        let open_deadline = now + ACKNOWLEDGE_TIMEOUT;
        RefreshState {
            relist: now,
            failures: 0,
            polls: PollTimer::new(),
            reopen_at: None,
            open_deadline,
            is_only_stream: true,
            early_updates: EarlyUpdates::default(),
            listed_early,
            changed,
            settles_at: now,
            unchanged: [0; ItemKind::ALL.len()],
            announced: [None; ItemKind::ALL.len()],
            silent_ends: 0,
            refusal_checked: None,
            backoff,
        }
    }

    fn backoff_delay(&self, failures: u32) -> Duration {
        reconnect_backoff::backoff_delay(self.backoff, failures)
    }

    /// Records a fetch of the lists. `regular`: the interval until the next one, after a success.
    pub(super) fn on_listed(&mut self, is_ok: bool, regular: impl FnOnce() -> Duration) {
        self.failures = if is_ok { 0 } else { self.failures + 1 };
        // A server that cannot list now is asked again with a backoff, and not after the long
        // regular interval.
        let delay = if is_ok {
            regular()
        } else {
            self.backoff_delay(self.failures)
        };
        self.relist = Instant::now() + delay;
    }

    /// Records that a stream is being opened. `alone`: no other stream delivers notifications
    /// meanwhile.
    pub(super) fn begin_opening(&mut self, alone: bool) {
        (self.reopen_at, self.open_deadline, self.is_only_stream) =
            (None, Instant::now() + ACKNOWLEDGE_TIMEOUT, alone);
        self.listed_early.clear();
    }

    /// Records that a list was fetched.
    pub(super) fn on_list_fetched(&mut self, kind: ItemKind, notifications: &NotificationStream) {
        // With another stream still open, the change is announced there, and a second fetch is not
        // needed.
        if self.is_only_stream && notifications.is_pending() && !self.listed_early.contains(&kind) {
            self.listed_early.push(kind);
        }
    }

    /// Records that a list changed, and starts the settle window.
    fn mark_changed(&mut self, kind: ItemKind) {
        let now = Instant::now();
        let quiet = &mut self.announced[kind as usize];
        if quiet.is_some_and(|announced| now - announced > QUIET_TIME) {
            self.unchanged[kind as usize] = 0;
        }
        *quiet = Some(now);
        // The first change opens the window. Later ones do not prolong it.
        let settles_at = now + settle_time(self.unchanged[kind as usize]);
        self.settles_at = if self.changed.is_empty() {
            settles_at
        } else {
            self.settles_at.min(settles_at)
        };
        if !self.changed.contains(&kind) {
            self.changed.push(kind);
        }
    }

    /// Records what came of a change that the server announced.
    pub(super) fn record_announced(&mut self, kind: ItemKind, has_changed: bool) {
        let unchanged = &mut self.unchanged[kind as usize];
        *unchanged = if has_changed {
            0
        } else {
            unchanged.saturating_add(1)
        };
    }

    /// Takes the lists that changed.
    pub(super) fn take_changed(&mut self) -> Vec<ItemKind> {
        let mut kinds = std::mem::take(&mut self.changed);
        // Templates have no separate notification: `notifications/resources/list_changed` covers
        // both.
        if kinds.contains(&ItemKind::Resources) && !kinds.contains(&ItemKind::Templates) {
            kinds.push(ItemKind::Templates);
        }
        kinds
    }

    /// Handles the acknowledgement of a stream. `opened`: false if the time for it elapsed.
    pub(super) fn on_opened(&mut self, opened: bool) {
        for kind in std::mem::take(&mut self.listed_early) {
            if opened {
                self.mark_changed(kind);
            }
        }
    }

    /// Handles one notification, or the end of the stream (`None`). Returns a notification that
    /// concerns no list.
    pub(super) fn on_notification(
        &mut self,
        notifications: &mut NotificationStream,
        notification: Option<Notification>,
    ) -> Option<Notification> {
        // A stream that delivered something works. One that only ends is opened ever more rarely.
        self.silent_ends = if notification.is_some() {
            0
        } else {
            self.silent_ends + 1
        };
        match notification {
            Some(Notification::ListChanged(kind) | Notification::MaybeChanged(kind)) => {
                self.mark_changed(kind)
            }
            Some(other) => return Some(other),
            None => {
                // All lists are fetched again once there is another stream.
                self.reopen_at = Some(Instant::now() + self.backoff_delay(self.silent_ends));
                self.listed_early.clear();
                notifications.established = None;
            }
        }
        None
    }

    /// Returns true if it is time to check whether the server refuses everything. Limited in rate,
    /// because a forbidden call is typically repeated again and again.
    pub(super) fn begin_refusal_check(&mut self) -> bool {
        if self
            .refusal_checked
            .is_some_and(|last| last.elapsed() < REFUSAL_CHECK_INTERVAL)
        {
            return false;
        }
        self.refusal_checked = Some(Instant::now());
        true
    }
}
