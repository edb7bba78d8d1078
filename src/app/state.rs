//! From the store to the parts that go on with what an earlier run left.
//!
//! Owns the order. Invariant: no client is told that its session does not exist before it is known what the earlier run
//! left, and nobody waits for a store that another process still has.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::timeout;

use crate::gateway::Gateway;
use crate::revision::FrontState;
use crate::session::{Seal, Sessions};
use crate::store::{Phase, Store, Table};
use crate::upstream::{self, Shared};

/// How long the start waits for the store; what comes later is taken over when it comes.
const OPEN_TIME: Duration = Duration::from_millis(250);
/// The same where the gateway must not run without it.
const REQUIRED_TIME: Duration = Duration::from_secs(30);
/// What the key is found by that seals clients' state.
const SEAL: &[u8] = b"seal";

/// What goes on after a restart.
pub(super) struct State {
    store: Store,
    sessions: Arc<Sessions>,
    seal: Arc<Seal>,
    gateway: Arc<Gateway>,
    shared: Arc<Shared>,
    /// How long a server's lists are kept without being confirmed.
    catalog_age: Duration,
}

impl State {
    /// The parts of a gateway that is about to serve.
    pub(super) fn of(front: &FrontState, gateway: &Arc<Gateway>, shared: &Arc<Shared>, catalog_age: Duration) -> Self {
        let (sessions, seal) = (front.sessions.clone(), front.seal.clone());
        let store = shared.store.clone();
        State { store, sessions, seal, gateway: gateway.clone(), shared: shared.clone(), catalog_age }
    }

    /// Takes over what is there; later, where that has to be waited for.
    ///
    /// Fails where the store is required and cannot be used.
    pub(super) async fn begin(self, required: bool) -> anyhow::Result<()> {
        let mut phase = self.store.phase();
        let time = if required { REQUIRED_TIME } else { OPEN_TIME };
        let _ = timeout(time, phase.wait_for(|phase| *phase != Phase::Opening)).await;
        let now = phase.borrow().clone();
        match now {
            Phase::Absent(Some(why)) if required => {
                anyhow::bail!("the state cannot be kept: {why} (gateway.state, gateway.state_dir)")
            }
            Phase::Opening | Phase::Locked => {
                tokio::spawn(self.later(now == Phase::Locked));
            }
            settled => self.settled(&settled),
        }
        Ok(())
    }

    async fn later(self, locked: bool) {
        if locked {
            tracing::warn!("another process has the state; it is taken over when that one ends (gateway.state_dir)");
        }
        let mut phase = self.store.phase();
        let settled = phase.wait_for(|phase| !matches!(phase, Phase::Opening | Phase::Locked)).await;
        if let Ok(settled) = settled.map(|phase| phase.clone()) {
            self.settled(&settled);
        }
    }

    fn settled(&self, phase: &Phase) {
        if let Phase::Absent(Some(why)) = phase {
            tracing::warn!(
                "a restart will forget lists and sessions, since the state cannot be kept: {why} (gateway.state)"
            );
        }
        self.restore();
        self.sessions.set_restored();
    }

    fn restore(&self) {
        let Some(mut contents) = self.store.take_contents() else { return };
        let secrets = contents.take(Table::Secrets);
        let key = secrets.iter().find(|(name, _)| &name[..] == SEAL).and_then(|(_, key)| key[..].try_into().ok());
        let key = key.unwrap_or_else(|| {
            let key: [u8; 32] = crate::random::bytes();
            self.store.put(Table::Secrets, SEAL, Bytes::copy_from_slice(&key));
            key
        });
        self.seal.restore(&key);
        self.gateway.restore(contents.take(Table::Catalog), self.catalog_age, &self.store);
        self.sessions.restore(&mut contents);
        let of_a_session = |key: &Bytes| upstream::owner_of(key).is_some_and(|owner| self.sessions.is_dormant(&owner));
        let (used, over): (Vec<_>, Vec<_>) =
            contents.take(Table::Leases).into_iter().partition(|(key, _)| of_a_session(key));
        self.shared.restore(used);
        for (key, _) in over {
            self.store.remove(Table::Leases, key);
        }
    }
}
