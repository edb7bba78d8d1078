//! Sessions at servers that belong to one client's session, between two runs of the gateway.
//!
//! Owns their rows in the store. Does not know what is in them (`revision`). Invariant: a row is read only with the id of
//! the client's session, which the store does not have: what is in the file opens nobody's session.

use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::sync::{Mutex, PoisonError};

use aws_lc_rs::aead::{AES_256_GCM_SIV, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use aws_lc_rs::hmac;
use bytes::Bytes;
use tokio_util::sync::CancellationToken;

use crate::json::Raw;
use crate::model::Caller;
use crate::session::{Digest, digest};
use crate::store::{Rows, Store, Table};
use crate::upstream::connect::Active;
use crate::upstream::sharing::Ends;
use crate::upstream::{Connect, ServerSettings, Shared, kept};

/// What an earlier run left, by key.
#[derive(Default)]
pub(super) struct Handed(Mutex<HashMap<Bytes, Bytes>>);

/// The digest of the client's session in a row's key.
pub fn owner_of(key: &[u8]) -> Option<Digest> {
    key.get(..32)?.try_into().ok()
}

impl Shared {
    /// Takes over rows of an earlier run.
    pub fn restore(&self, rows: Rows) {
        self.handed.0.lock().unwrap_or_else(PoisonError::into_inner).extend(rows);
    }
}

/// The row of one connection.
pub(super) struct Row<'a> {
    key: Bytes,
    secret: LessSafeKey,
    shared: &'a Shared,
}

impl<'a> Row<'a> {
    /// Nothing where the connection ends with the process in any case.
    pub(super) fn of(settings: &ServerSettings, shared: &'a Shared, caller: &Caller, ends: Ends) -> Option<Self> {
        let id = caller.session.as_ref().filter(|_| ends == Ends::WithSession && shared.store.keeps())?;
        let Connect::Http { .. } = settings.connect else { return None };
        // With other settings it may be another server, which must not be shown a session of this one.
        let purpose = format!("a session at the server {} {}", settings.name, kept::digest(settings));
        let secret = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, id.as_bytes()), purpose.as_bytes());
        let secret = LessSafeKey::new(UnboundKey::new(&AES_256_GCM_SIV, secret.as_ref()).ok()?);
        Some(Row { key: [&digest(id)[..], settings.name.as_bytes()].concat().into(), secret, shared })
    }

    /// What an earlier run left; once.
    pub(super) fn take(&self) -> Option<Raw> {
        let sealed = self.shared.handed.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.key)?;
        let mut sealed = sealed.to_vec();
        let (nonce, sealed) = sealed.split_at_mut_checked(NONCE_LEN)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).ok()?;
        let plain = self.secret.open_in_place(nonce, Aad::empty(), sealed).ok()?;
        Raw::parse(Bytes::copy_from_slice(plain)).ok()
    }

    /// Keeps a connection for the next run, until the client's session ends or the connection makes room for another.
    pub(super) fn keep(self, active: &Active, ended: &CancellationToken, evicted: &CancellationToken) {
        let Some(sealed) = active.server.hand_over().and_then(|raw| self.seal(&raw)) else { return };
        self.shared.store.put(Table::Leases, self.key.clone(), sealed);
        active.is_kept.store(true, Ordering::Relaxed);
        tokio::spawn(forget(self.shared.store.clone(), self.key, ended.clone(), evicted.clone()));
    }

    fn seal(&self, raw: &Raw) -> Option<Vec<u8>> {
        let nonce: [u8; NONCE_LEN] = crate::random::bytes();
        let mut sealed = raw.bytes().to_vec();
        self.secret.seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), Aad::empty(), &mut sealed).ok()?;
        Some([&nonce[..], &sealed].concat())
    }
}

/// Forgets a row with the client's session, or with the connection.
async fn forget(store: Store, key: Bytes, ended: CancellationToken, evicted: CancellationToken) {
    tokio::select! {
        () = ended.cancelled() => {}
        () = evicted.cancelled() => {}
    }
    store.remove(Table::Leases, key);
}
