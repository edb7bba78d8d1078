//! Times at which the keys of operators were last used.
//!
//! Owns their table. Does not check keys. Invariant: only keys of the config are in it, and a
//! removed one leaves it.

use std::collections::HashMap;
use std::time::SystemTime;

use parking_lot::Mutex;

use moongate_access::auth::{AdminAccess, AdminKey, KeyHash};

/// Last use of each key, by its hash.
#[derive(Default)]
pub(crate) struct KeyUses(Mutex<HashMap<KeyHash, SystemTime>>);

impl KeyUses {
    /// Records that a request has a key.
    pub(crate) fn record(&self, key: &AdminKey) {
        self.0.lock().insert(key.hash, SystemTime::now());
    }

    /// Returns the time of a key's last use. `None`: not since the start.
    pub(crate) fn last(&self, key: &AdminKey) -> Option<SystemTime> {
        self.0.lock().get(&key.hash).copied()
    }

    /// Forgets removed keys.
    pub(crate) fn end_removed(&self, access: &AdminAccess) {
        self.0.lock().retain(|hash, _| access.find(hash).is_some());
    }
}
