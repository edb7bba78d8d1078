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

use crate::json::RawJson;
use crate::model::Caller;
use crate::session::{SessionDigest, digest};
use crate::store::{StoreTable, StoredRows};
use crate::upstream::dial::UpstreamConnection;
use crate::upstream::isolation::ConnectionLifetime;
use crate::upstream::{ConnectTarget, ServerSettings, UpstreamContext, cache};

/// The rows of all servers, by key.
#[derive(Default)]
pub(super) struct UpstreamSessionStore {
    /// What an earlier run left.
    persisted: Mutex<HashMap<Bytes, Bytes>>,
    /// Which connection's a row is: one that took another's place has the same row, which the other leaves alone. There
    /// is an entry for each connection that is kept (`max_connections`).
    owners: Mutex<HashMap<Bytes, u64>>,
    connections: AtomicU64,
}

impl UpstreamSessionStore {
    fn lock_persisted(&self) -> MutexGuard<'_, HashMap<Bytes, Bytes>> {
        self.persisted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock_owners(&self) -> MutexGuard<'_, HashMap<Bytes, u64>> {
        self.owners.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The digest of the client's session in a row's key.
pub fn client_session_digest(key: &[u8]) -> Option<SessionDigest> {
    key.get(..32)?.try_into().ok()
}

impl UpstreamContext {
    /// Takes over rows of an earlier run.
    pub fn restore(&self, rows: StoredRows) {
        self.session_store.lock_persisted().extend(rows);
    }
}

/// The row of one connection.
pub(super) struct UpstreamSessionRow {
    key: Bytes,
    secret: LessSafeKey,
    context: Arc<UpstreamContext>,
    connection: u64,
}

impl UpstreamSessionRow {
    /// Nothing where the connection ends with the process in any case.
    pub(super) fn of(
        settings: &ServerSettings,
        shared: &Arc<UpstreamContext>,
        caller: &Caller,
        ends: ConnectionLifetime,
    ) -> Option<Self> {
        let id = caller
            .session
            .as_ref()
            .filter(|_| ends == ConnectionLifetime::WithSession && shared.store.is_persistent())?;
        let ConnectTarget::Http { .. } = settings.connect else { return None };
        // With other settings it may be another server, which must not be shown a session of this one.
        let purpose = format!("a session at the server {} {}", settings.name, cache::digest(settings));
        let secret = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, id.as_bytes()), purpose.as_bytes());
        let secret = LessSafeKey::new(UnboundKey::new(&AES_256_GCM_SIV, secret.as_ref()).ok()?);
        let key = [&digest(id)[..], settings.name.as_bytes()].concat().into();
        let connection = shared.session_store.connections.fetch_add(1, Ordering::Relaxed);
        Some(UpstreamSessionRow { key, secret, context: shared.clone(), connection })
    }

    /// What an earlier run left; once.
    pub(super) fn take_persisted(&self) -> Option<RawJson> {
        let sealed = self.context.session_store.lock_persisted().remove(&self.key)?;
        let mut sealed = sealed.to_vec();
        let (nonce, sealed) = sealed.split_at_mut_checked(NONCE_LEN)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).ok()?;
        let plain = self.secret.open_in_place(nonce, Aad::empty(), sealed).ok()?;
        RawJson::parse(Bytes::copy_from_slice(plain)).ok()
    }

    /// Keeps the connection for the next run.
    pub(super) fn persist(&self, active: &UpstreamConnection) {
        let mut whose = self.context.session_store.lock_owners();
        if self.write_session(active) {
            whose.insert(self.key.clone(), self.connection);
        }
    }

    /// Keeps it as it is from now on, whenever its session is another.
    pub(super) async fn persist_changes(&self, active: &UpstreamConnection) {
        loop {
            active.server.session_changed().await;
            let whose = self.context.session_store.lock_owners();
            if whose.get(&self.key) == Some(&self.connection) && !self.write_session(active) {
                self.context.store.remove(StoreTable::Leases, self.key.clone());
            }
        }
    }

    /// The connection ends, and no other run goes on with it.
    pub(super) fn discard(&self) {
        let mut whose = self.context.session_store.lock_owners();
        if whose.get(&self.key) == Some(&self.connection) {
            whose.remove(&self.key);
            self.context.store.remove(StoreTable::Leases, self.key.clone());
        }
    }

    /// Whether there is anything to go on with.
    fn write_session(&self, active: &UpstreamConnection) -> bool {
        let sealed = active.server.export_session().and_then(|raw| self.seal(&raw));
        active.is_persisted.store(sealed.is_some(), Ordering::Relaxed);
        sealed.map(|sealed| self.context.store.put(StoreTable::Leases, self.key.clone(), sealed)).is_some()
    }

    fn seal(&self, raw: &RawJson) -> Option<Vec<u8>> {
        let nonce: [u8; NONCE_LEN] = crate::random::random_bytes();
        let mut sealed = raw.bytes().to_vec();
        self.secret.seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), Aad::empty(), &mut sealed).ok()?;
        Some([&nonce[..], &sealed].concat())
    }
}
