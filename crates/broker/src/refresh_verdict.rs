//! Verdict on a refresh token: renew, repeat the successor, or end the login.
//!
//! Owns the rule for replayed tokens. Does not change a login. Invariant: a token older than the
//! last two never yields new tokens.

use jiff::{SignedDuration, Timestamp};

use crate::login_row::LoginRow;

/// Time in which the token before the newest always yields the same successor. A client's processes
/// share one token and may renew at the same moment.
const REPEAT_WINDOW: SignedDuration = SignedDuration::from_mins(2);

/// Verdict on a refresh token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RefreshVerdict {
    /// The newest token: its successor is due.
    Advance,
    /// The one before it: the same successor again.
    Repeat,
    /// A token that only a copy can still send. The login ends.
    Replay,
}

/// Judges the generation of a refresh token that was sent.
pub(crate) fn judge_refresh(row: &LoginRow, sent: u32, now: Timestamp) -> RefreshVerdict {
    if sent == row.generation {
        return RefreshVerdict::Advance;
    }
    let is_previous = sent.checked_add(1) == Some(row.generation);
    // A clock that was set back makes it recent, so no login ends.
    let is_recent = now.duration_since(row.advanced) <= REPEAT_WINDOW;
    // While the successor is unused, the response that carried it may have been lost.
    if is_previous && (is_recent || !row.is_used) {
        RefreshVerdict::Repeat
    } else {
        RefreshVerdict::Replay
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ADVANCED: Timestamp = Timestamp::UNIX_EPOCH;

    fn row(generation: u32, is_used: bool) -> LoginRow {
        LoginRow {
            mark: [1; 16],
            client: [2; 16],
            client_name: "client".to_owned(),
            endpoint: String::new(),
            since: ADVANCED,
            ends: Timestamp::MAX,
            last_used: ADVANCED,
            generation,
            advanced: ADVANCED,
            is_used,
            replays: 0,
        }
    }

    fn verdict(row: &LoginRow, sent: u32, seconds: i64) -> RefreshVerdict {
        let now = Timestamp::from_second(seconds).unwrap();
        judge_refresh(row, sent, now)
    }

    #[test]
    fn the_token_before_gives_the_same_for_two_minutes_to_anybody() {
        let used = row(5, true);
        for seconds in [0, 61, 120] {
            assert_eq!(verdict(&used, 4, seconds), RefreshVerdict::Repeat);
        }
        for seconds in [121, 3600] {
            assert_eq!(verdict(&used, 4, seconds), RefreshVerdict::Replay);
        }
    }

    #[test]
    fn a_lost_answer_may_be_asked_for_again_at_any_time() {
        let unused = row(5, false);
        assert_eq!(verdict(&unused, 4, 86_400), RefreshVerdict::Repeat);
        assert_eq!(verdict(&unused, 3, 86_400), RefreshVerdict::Replay);
    }

    #[test]
    fn older_and_newer_tokens_end_the_login() {
        for is_used in [false, true] {
            for sent in [0, 1, 2, 3, 6, 7, u32::MAX] {
                let verdict = verdict(&row(5, is_used), sent, 0);
                assert_eq!(verdict, RefreshVerdict::Replay, "{sent}");
            }
        }
        // Nothing comes before the first one.
        assert_eq!(verdict(&row(0, false), u32::MAX, 0), RefreshVerdict::Replay);
    }

    #[test]
    fn a_thief_who_renews_in_step_is_caught_once_the_owner_is_ahead() {
        // Both hold generation 4, and the owner renews. The thief is later than any process of the
        // owner, or comes after another renewal.
        assert_eq!(verdict(&row(5, true), 4, 1800), RefreshVerdict::Replay);
        assert_eq!(verdict(&row(6, false), 4, 1), RefreshVerdict::Replay);
    }

    #[test]
    fn a_clock_that_was_set_back_ends_nothing() {
        assert_eq!(verdict(&row(5, true), 4, -3600), RefreshVerdict::Repeat);
    }

    proptest! {
        #[test]
        fn one_generation_renews_and_at_most_one_repeats(
            generation in 0..1000_u32,
            sent in 0..1000_u32,
            is_used: bool,
            seconds in 0..10_000_i64,
        ) {
            let expected = match generation.checked_sub(sent) {
                Some(0) => RefreshVerdict::Advance,
                Some(1) if !is_used || seconds <= 120 => RefreshVerdict::Repeat,
                _ => RefreshVerdict::Replay,
            };
            prop_assert_eq!(verdict(&row(generation, is_used), sent, seconds), expected);
        }
    }
}
