//! Homes of clients at a server that asks in the middle of calls.
//!
//! On a pipe a question of a server with sessions names no call (`revision::Calls`). At a server that is known to ask, a
//! call does not begin where another client's call could be meant. Owns whose home the main connection is. Opens no
//! connection (`lease`). Invariant: a principal's clients without sessions have one home, which does not depend on who
//! else calls at that moment.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::model::{Caller, Principal};
use crate::revision::Era;
use crate::upstream::UpstreamConnection;

/// Where a client's calls go at a server that asks, unless another client's call is in the way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HomeConnection {
    /// To the main connection: what the client did before is there, or nobody else's is.
    Shared,
    /// To the connection of its session or, without one, of its principal.
    Dedicated,
    /// To the connection that clients with sessions share: the main one is the same principal's without.
    SessionShared,
}

/// Clients whose calls the main connection had since it was opened: those of one principal with sessions, or those without.
#[derive(Default)]
pub(super) struct SharedTenant(AtomicU64);

/// No client's.
const NO_TENANT: u64 = 0;
/// Those of several principals, or of both kinds: it was not known yet that the server asks.
const SEVERAL_TENANTS: u64 = 1;

fn tenant_of(caller: &Caller) -> u64 {
    2 + u64::from(caller.principal.id) * 2 + u64::from(caller.session.is_some())
}

/// The principal of a kind, if it is one's.
fn principal_of(kind: u64) -> Option<u32> {
    u32::try_from(kind.checked_sub(2)? / 2).ok()
}

impl SharedTenant {
    /// Notes that a client's call begins on the main connection.
    pub(super) fn record_call(&self, caller: &Caller) {
        let kind = tenant_of(caller);
        if self.0.load(Ordering::Relaxed) == kind || caller.principal.id == Principal::GATEWAY {
            return;
        }
        let _ = self.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, |before| match before {
            NO_TENANT => Some(kind),
            _ if before == kind => None,
            _ => Some(SEVERAL_TENANTS),
        });
    }

    /// The home of a client. Those whose state may be on the main connection stay there; principals are apart.
    pub(super) fn home(&self, caller: &Caller) -> HomeConnection {
        match self.0.load(Ordering::Acquire) {
            NO_TENANT | SEVERAL_TENANTS => HomeConnection::Shared,
            tenant if tenant == tenant_of(caller) => HomeConnection::Shared,
            tenant if principal_of(tenant) == Some(caller.principal.id) && caller.session.is_some() => {
                HomeConnection::SessionShared
            }
            _ => HomeConnection::Dedicated,
        }
    }

    /// Forgets all clients: there is a new main connection.
    pub(super) fn reset(&self) {
        self.0.store(NO_TENANT, Ordering::Release);
    }

    /// Forgets a principal that is gone.
    pub(super) fn revoke_principals(&self, gone: &(dyn Fn(u32) -> bool + Sync)) {
        let forgotten = |tenant| gone(principal_of(tenant)?).then_some(NO_TENANT);
        let _ = self.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, forgotten);
    }
}

/// Whether questions on this connection name no call.
pub(super) fn input_is_ambiguous(active: &UpstreamConnection) -> bool {
    active.era == Era::Legacy && active.link.is_multiplexed()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::testing;

    #[test]
    fn who_was_first_on_the_main_connection_stays() {
        let (one, other) = (testing::caller(1, None), testing::caller(2, None));
        let session = testing::caller(1, Some("s"));
        let tenant = SharedTenant::default();
        assert_eq!([&one, &other, &session].map(|caller| tenant.home(caller)), [HomeConnection::Shared; 3]);
        tenant.record_call(&one);
        assert_eq!(tenant.home(&one), HomeConnection::Shared);
        assert_eq!(
            (tenant.home(&other), tenant.home(&session)),
            (HomeConnection::Dedicated, HomeConnection::SessionShared)
        );
        tenant.revoke_principals(&|id| id == 2);
        assert_eq!(tenant.home(&other), HomeConnection::Dedicated);
        tenant.revoke_principals(&|id| id == 1);
        assert_eq!(tenant.home(&other), HomeConnection::Shared);
    }

    #[test]
    fn clients_with_sessions_are_one_tenant_and_who_was_there_before_stays() {
        let (one, session) = (testing::caller(1, None), testing::caller(1, Some("s")));
        let tenant = SharedTenant::default();
        tenant.record_call(&session);
        tenant.record_call(&testing::caller(1, Some("t")));
        assert_eq!(tenant.home(&testing::caller(2, Some("u"))), HomeConnection::Dedicated, "another principal's");
        assert_eq!((tenant.home(&session), tenant.home(&one)), (HomeConnection::Shared, HomeConnection::Dedicated));
        // Before it was known that the server asks.
        tenant.record_call(&one);
        assert_eq!((tenant.home(&session), tenant.home(&one)), (HomeConnection::Shared, HomeConnection::Shared));
        tenant.reset();
        tenant.record_call(&one);
        assert_eq!((tenant.home(&one), tenant.home(&session)), (HomeConnection::Shared, HomeConnection::SessionShared));
    }
}
