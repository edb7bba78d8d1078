//! Grant in memory, ready to be sent.
//!
//! Owns what a request needs from a grant: its header, and when it must be renewed. Does not renew
//! it. Invariant: the header is built once, and a request with a fresh token only copies it.

use std::time::Duration;

use http::HeaderValue;
use jiff::{SignedDuration, Timestamp};

use crate::grant::LoginGrant;
use crate::login_folder::GrantVersion;

/// Age below which a refused token is not renewed, because a new one would be refused, too.
const NEW_TOKEN: SignedDuration = SignedDuration::from_secs(30);

/// Login as this process knows it.
pub(super) struct HeldLogin {
    /// Grant. `None` without a login.
    pub(super) grant: Option<HeldGrant>,
    /// Version of the file that it was read from, or that it could not replace.
    pub(super) version: Option<GrantVersion>,
}

/// Grant in memory.
pub(super) struct HeldGrant {
    pub(super) grant: LoginGrant,
    /// True if its file has an older one, because the disk could not be written.
    pub(super) is_unsaved: bool,
    header: Option<HeaderValue>,
    refresh_at: Option<Timestamp>,
}

/// Stage in a token's lifetime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum GrantStage {
    /// Nothing is due.
    Fresh,
    /// It is valid, but should be renewed.
    Due,
    /// It must be renewed before it is sent.
    Expired,
    /// Only a new login helps.
    Over,
}

impl HeldGrant {
    pub(super) fn new(grant: LoginGrant) -> Self {
        HeldGrant {
            header: grant.authorization(),
            refresh_at: grant.refresh_at(random_share()),
            is_unsaved: false,
            grant,
        }
    }

    /// Holds a grant that its file does not have.
    pub(super) fn unsaved(grant: LoginGrant) -> Self {
        HeldGrant {
            is_unsaved: true,
            ..HeldGrant::new(grant)
        }
    }

    pub(super) fn stage(&self, now: Timestamp) -> GrantStage {
        let has_passed = |time: Option<Timestamp>| time.is_some_and(|time| time <= now);
        if self.grant.ended {
            GrantStage::Over
        } else if has_passed(self.grant.expires) {
            match self.grant.refresh {
                Some(_) => GrantStage::Expired,
                None => GrantStage::Over,
            }
        } else if has_passed(self.refresh_at) {
            GrantStage::Due
        } else {
            GrantStage::Fresh
        }
    }

    /// Returns the header of a token that may be sent now.
    pub(super) fn header(&self, now: Timestamp) -> Option<&HeaderValue> {
        match self.stage(now) {
            GrantStage::Fresh | GrantStage::Due => self.header.as_ref(),
            GrantStage::Expired | GrantStage::Over => None,
        }
    }

    /// Returns true for the header of this token, valid or not.
    pub(super) fn has_header(&self, sent: &HeaderValue) -> bool {
        self.header.as_ref() == Some(sent)
    }

    /// Returns true if a refusal of the token is worth a renewal.
    pub(super) fn is_worth_renewal(&self, now: Timestamp) -> bool {
        let is_new = self.time_as_new(now).is_some();
        self.grant.refresh.is_some() && !self.grant.ended && !is_new
    }

    /// Returns how much longer the token counts as new. `None`: it no longer does.
    pub(super) fn time_as_new(&self, now: Timestamp) -> Option<Duration> {
        // A clock that was set back makes the age negative, which says nothing.
        let age = now.duration_since(self.grant.obtained);
        let is_new = !age.is_negative() && age < NEW_TOKEN;
        is_new.then(|| (NEW_TOKEN - age).unsigned_abs())
    }
}

/// Returns a random number from 0 to 1.
fn random_share() -> f64 {
    let random = u16::from_ne_bytes(moongate_random::random_bytes());
    f64::from(random) / f64::from(u16::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::grant::tests::grant;

    #[test]
    fn a_token_is_sent_while_it_is_valid_by_the_current_clock() {
        let second = |number| Timestamp::from_second(number).unwrap();
        // By the clock at the time of reading, it expired in 1970.
        let held = HeldGrant::new(grant());
        assert_eq!(held.header(second(2_000)), None);
        let sent = held.header(second(1_999)).unwrap();
        assert_eq!(sent, "Bearer hush-access");
        let ended = HeldGrant::new(LoginGrant {
            ended: true,
            ..grant()
        });
        assert_eq!(ended.header(second(1_001)), None);
    }
}
