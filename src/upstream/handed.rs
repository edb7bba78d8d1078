//! Sessions at servers that belong to one client's session, between two runs of the gateway.
//!
//! Owns their rows in the store. Does not know what is in them (`revision`). Invariant: a row is read only with the id of
//! the client's session, which the store does not have: what is in the file opens nobody's session.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use aws_lc_rs::aead::{AES_256_GCM_SIV, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use aws_lc_rs::hmac;
use bytes::Bytes;

use crate::json::Raw;
use crate::model::Caller;
use crate::session::{Digest, digest};
use crate::store::{Rows, Table};
use crate::upstream::connect::Active;
use crate::upstream::sharing::Ends;
use crate::upstream::{Connect, ServerSettings, Shared, kept};

/// The rows of all servers, by key.
#[derive(Default)]
pub(super) struct Handed {
    /// What an earlier run left.
    left: Mutex<HashMap<Bytes, Bytes>>,
    /// Which connection's a row is: one that took another's place has the same row, which the other leaves alone. There
    /// is an entry for each connection that is kept (`max_connections`).
    whose: Mutex<HashMap<Bytes, u64>>,
    connections: AtomicU64,
}

impl Handed {
    fn left(&self) -> MutexGuard<'_, HashMap<Bytes, Bytes>> {
        self.left.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn whose(&self) -> MutexGuard<'_, HashMap<Bytes, u64>> {
        self.whose.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The digest of the client's session in a row's key.
pub fn owner_of(key: &[u8]) -> Option<Digest> {
    key.get(..32)?.try_into().ok()
}

impl Shared {
    /// Takes over rows of an earlier run.
    pub fn restore(&self, rows: Rows) {
        self.handed.left().extend(rows);
    }
}

/// The row of one connection.
pub(super) struct Row {
    key: Bytes,
    secret: LessSafeKey,
    shared: Arc<Shared>,
    connection: u64,
}

impl Row {
    /// Nothing where the connection ends with the process in any case.
    pub(super) fn of(settings: &ServerSettings, shared: &Arc<Shared>, caller: &Caller, ends: Ends) -> Option<Self> {
        let id = caller.session.as_ref().filter(|_| ends == Ends::WithSession && shared.store.keeps())?;
        let Connect::Http { .. } = settings.connect else { return None };
        // With other settings it may be another server, which must not be shown a session of this one.
        let purpose = format!("a session at the server {} {}", settings.name, kept::digest(settings));
        let secret = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, id.as_bytes()), purpose.as_bytes());
        let secret = LessSafeKey::new(UnboundKey::new(&AES_256_GCM_SIV, secret.as_ref()).ok()?);
        let key = [&digest(id)[..], settings.name.as_bytes()].concat().into();
        let connection = shared.handed.connections.fetch_add(1, Ordering::Relaxed);
        Some(Row { key, secret, shared: shared.clone(), connection })
    }

    /// What an earlier run left; once.
    pub(super) fn take(&self) -> Option<Raw> {
        let sealed = self.shared.handed.left().remove(&self.key)?;
        let mut sealed = sealed.to_vec();
        let (nonce, sealed) = sealed.split_at_mut_checked(NONCE_LEN)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).ok()?;
        let plain = self.secret.open_in_place(nonce, Aad::empty(), sealed).ok()?;
        Raw::parse(Bytes::copy_from_slice(plain)).ok()
    }

    /// Keeps the connection for the next run.
    pub(super) fn keep(&self, active: &Active) {
        let mut whose = self.shared.handed.whose();
        if self.write(active) {
            whose.insert(self.key.clone(), self.connection);
        }
    }

    /// Keeps it as it is from now on, whenever its session is another.
    pub(super) async fn follow(&self, active: &Active) {
        loop {
            active.server.renewed().await;
            let whose = self.shared.handed.whose();
            if whose.get(&self.key) == Some(&self.connection) && !self.write(active) {
                self.shared.store.remove(Table::Leases, self.key.clone());
            }
        }
    }

    /// The connection ends, and no other run goes on with it.
    pub(super) fn forget(&self) {
        let mut whose = self.shared.handed.whose();
        if whose.get(&self.key) == Some(&self.connection) {
            whose.remove(&self.key);
            self.shared.store.remove(Table::Leases, self.key.clone());
        }
    }

    /// Whether there is anything to go on with.
    fn write(&self, active: &Active) -> bool {
        let sealed = active.server.hand_over().and_then(|raw| self.seal(&raw));
        active.is_kept.store(sealed.is_some(), Ordering::Relaxed);
        sealed.map(|sealed| self.shared.store.put(Table::Leases, self.key.clone(), sealed)).is_some()
    }

    fn seal(&self, raw: &Raw) -> Option<Vec<u8>> {
        let nonce: [u8; NONCE_LEN] = crate::random::bytes();
        let mut sealed = raw.bytes().to_vec();
        self.secret.seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), Aad::empty(), &mut sealed).ok()?;
        Some([&nonce[..], &sealed].concat())
    }
}
