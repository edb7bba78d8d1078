//! Homes of clients at a server that asks in the middle of calls.
//!
//! On a pipe a question of a server with sessions names no call (`revision::Calls`). At a server that is known to ask, a
//! call does not begin where another client's call could be meant. Owns whose home the main connection is. Opens no
//! connection (`lease`). Invariant: a principal's clients without sessions have one home, which does not depend on who
//! else calls at that moment.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::model::{Caller, Principal};
use crate::revision::Era;
use crate::upstream::Active;

/// Where a client's calls go at a server that asks, unless another client's call is in the way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Home {
    /// To the main connection: what the client did before is there, or nobody else's is.
    Main,
    /// To the connection of its session or, without one, of its principal.
    Own,
    /// To the connection that clients with sessions share: the main one is the same principal's without.
    Sessions,
}

/// Clients whose calls the main connection had since it was opened: those of one principal with sessions, or those without.
#[derive(Default)]
pub(super) struct Tenant(AtomicU64);

/// No client's.
const NONE: u64 = 0;
/// Those of several principals, or of both kinds: it was not known yet that the server asks.
const SEVERAL: u64 = 1;

fn kind(caller: &Caller) -> u64 {
    2 + u64::from(caller.principal.id) * 2 + u64::from(caller.session.is_some())
}

/// The principal of a kind, if it is one's.
fn principal(kind: u64) -> Option<u32> {
    u32::try_from(kind.checked_sub(2)? / 2).ok()
}

impl Tenant {
    /// Notes that a client's call begins on the main connection.
    pub(super) fn note(&self, caller: &Caller) {
        let kind = kind(caller);
        if self.0.load(Ordering::Relaxed) == kind || caller.principal.id == Principal::GATEWAY {
            return;
        }
        let _ = self.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, |before| match before {
            NONE => Some(kind),
            _ if before == kind => None,
            _ => Some(SEVERAL),
        });
    }

    /// The home of a client. Those whose state may be on the main connection stay there; principals are apart.
    pub(super) fn home(&self, caller: &Caller) -> Home {
        match self.0.load(Ordering::Acquire) {
            NONE | SEVERAL => Home::Main,
            tenant if tenant == kind(caller) => Home::Main,
            tenant if principal(tenant) == Some(caller.principal.id) && caller.session.is_some() => Home::Sessions,
            _ => Home::Own,
        }
    }

    /// Forgets all clients: there is a new main connection.
    pub(super) fn reset(&self) {
        self.0.store(NONE, Ordering::Release);
    }

    /// Forgets a principal that is gone.
    pub(super) fn forget(&self, gone: &(dyn Fn(u32) -> bool + Sync)) {
        let forgotten = |tenant| gone(principal(tenant)?).then_some(NONE);
        let _ = self.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, forgotten);
    }
}

/// Whether questions on this connection name no call.
pub(super) fn is_ambiguous(active: &Active) -> bool {
    active.era == Era::Legacy && active.link.is_pipe()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::testing;

    #[test]
    fn who_was_first_on_the_main_connection_stays() {
        let (one, other) = (testing::caller(1, None), testing::caller(2, None));
        let session = testing::caller(1, Some("s"));
        let tenant = Tenant::default();
        assert_eq!([&one, &other, &session].map(|caller| tenant.home(caller)), [Home::Main; 3]);
        tenant.note(&one);
        assert_eq!(tenant.home(&one), Home::Main);
        assert_eq!((tenant.home(&other), tenant.home(&session)), (Home::Own, Home::Sessions));
        tenant.forget(&|id| id == 2);
        assert_eq!(tenant.home(&other), Home::Own);
        tenant.forget(&|id| id == 1);
        assert_eq!(tenant.home(&other), Home::Main);
    }

    #[test]
    fn clients_with_sessions_are_one_tenant_and_who_was_there_before_stays() {
        let (one, session) = (testing::caller(1, None), testing::caller(1, Some("s")));
        let tenant = Tenant::default();
        tenant.note(&session);
        tenant.note(&testing::caller(1, Some("t")));
        assert_eq!(tenant.home(&testing::caller(2, Some("u"))), Home::Own, "another principal's");
        assert_eq!((tenant.home(&session), tenant.home(&one)), (Home::Main, Home::Own));
        // Before it was known that the server asks.
        tenant.note(&one);
        assert_eq!((tenant.home(&session), tenant.home(&one)), (Home::Main, Home::Main));
        tenant.reset();
        tenant.note(&one);
        assert_eq!((tenant.home(&one), tenant.home(&session)), (Home::Main, Home::Sessions));
    }
}
