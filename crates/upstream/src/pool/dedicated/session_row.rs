//! Row of one persisted upstream session. Owns its key and its encryption. Does not know its
//! content (`protocol`). Invariant: a row opens only with the id of the client's session, which the
//! store does not have. The file alone opens no session.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use aws_lc_rs::aead::{AES_256_GCM_SIV, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use aws_lc_rs::hmac;
use bytes::Bytes;

use crate::all_servers::session_store::UpstreamSessionStore;
use crate::connection::UpstreamConnection;
use crate::lists::cache;
use crate::pool::isolation::ConnectionLifetime;
use crate::settings::{ConnectTarget, ServerSettings};
use moongate_jsonrpc::json::RawJson;
use moongate_model::Caller;
use moongate_session::digest;
use moongate_session::store::{StateStore, StoreTable};

/// Row of one connection.
pub(crate) struct UpstreamSessionRow {
    key: Bytes,
    secret: LessSafeKey,
    sessions: Arc<UpstreamSessionStore>,
    store: StateStore,
    connection: u64,
}

impl UpstreamSessionRow {
    /// Creates the row. `None` if the connection ends with the process in any case.
    pub(crate) fn of(
        settings: &ServerSettings,
        sessions: &Arc<UpstreamSessionStore>,
        store: &StateStore,
        caller: &Caller,
        lifetime: ConnectionLifetime,
    ) -> Option<Self> {
        let id = caller
            .session
            .as_ref()
            .filter(|_| lifetime == ConnectionLifetime::WithSession && store.is_persistent())?;
        let ConnectTarget::Http { .. } = settings.connect else {
            return None;
        };
        // Other settings may mean another server, which must not see a session of this one.
        let purpose = format!(
            "a session at the server {} {}",
            settings.name,
            cache::settings_digest(settings)
        );
        let secret = hmac::sign(
            &hmac::Key::new(hmac::HMAC_SHA256, id.as_bytes()),
            purpose.as_bytes(),
        );
        let secret = LessSafeKey::new(UnboundKey::new(&AES_256_GCM_SIV, secret.as_ref()).ok()?);
        // The digest of the id, since the store must not hold what opens a session.
        let key = [&digest(id)[..], settings.name.as_bytes()].concat().into();
        let connection = sessions.next_connection();
        Some(UpstreamSessionRow {
            key,
            secret,
            sessions: sessions.clone(),
            store: store.clone(),
            connection,
        })
    }

    /// Takes the session that a previous process persisted. Works once.
    pub(crate) fn take_persisted(&self) -> Option<RawJson> {
        // Removed, so that two connections never resume one session.
        let sealed = self.sessions.take(&self.key)?;
        let mut sealed = sealed.to_vec();
        let (nonce, sealed) = sealed.split_at_mut_checked(NONCE_LEN)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).ok()?;
        let plain = self
            .secret
            .open_in_place(nonce, Aad::empty(), sealed)
            .ok()?;
        RawJson::parse(Bytes::copy_from_slice(plain)).ok()
    }

    /// Persists the connection for the next process.
    pub(crate) fn persist(&self, connection: &UpstreamConnection) {
        let mut owners = self.sessions.lock_owners();
        if self.write_session(connection) {
            owners.insert(self.key.clone(), self.connection);
        }
    }

    /// Persists the session again whenever it changes. Never returns.
    pub(crate) async fn persist_changes(&self, connection: &UpstreamConnection) {
        loop {
            connection.server.session_changed().await;
            // A replacement may own the row by now.
            let owners = self.sessions.lock_owners();
            if owners.get(&self.key) == Some(&self.connection) && !self.write_session(connection) {
                self.store
                    .remove(StoreTable::UpstreamSessions, self.key.clone());
            }
        }
    }

    /// Discards the row of a connection that ends for good.
    pub(crate) fn discard(&self) {
        let mut owners = self.sessions.lock_owners();
        if owners.get(&self.key) == Some(&self.connection) {
            owners.remove(&self.key);
            self.store
                .remove(StoreTable::UpstreamSessions, self.key.clone());
        }
    }

    /// Writes the session. Returns true if there is one to resume.
    fn write_session(&self, connection: &UpstreamConnection) -> bool {
        let sealed = connection
            .server
            .export_session()
            .and_then(|raw| self.seal(&raw));
        connection
            .is_persisted
            .store(sealed.is_some(), Ordering::Relaxed);
        sealed
            .map(|sealed| {
                self.store
                    .put(StoreTable::UpstreamSessions, self.key.clone(), sealed)
            })
            .is_some()
    }

    fn seal(&self, raw: &RawJson) -> Option<Vec<u8>> {
        // A random nonce may repeat: AES-GCM-SIV tolerates that, where plain GCM would not.
        let nonce: [u8; NONCE_LEN] = moongate_random::random_bytes();
        let mut sealed = raw.bytes().to_vec();
        self.secret
            .seal_in_place_append_tag(
                Nonce::assume_unique_for_key(nonce),
                Aad::empty(),
                &mut sealed,
            )
            .ok()?;
        Some([&nonce[..], &sealed].concat())
    }
}
