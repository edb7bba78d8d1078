//! Principals: the identities that credentials prove.
//!
//! Owns what names a principal, in one process and across processes. Does not check credentials
//! (`access`). Invariant: whatever is stored or leaves the process is bound to a key, never to an
//! id.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Identity that the credentials prove.
#[derive(Debug)]
pub struct Principal {
    /// Name from the configuration, or the one that its login reported first; for logs, never for
    /// decisions.
    pub name: String,
    /// Number in this process, given only once. Equal ids are the same principal.
    pub id: u32,
    /// Identity in every process.
    pub key: PrincipalKey,
    /// Set of roles in the policy, as a [`RoleId`].
    role: AtomicU32,
    /// Secret that marks handles as its own. `None` where callers cannot be distinguished.
    pub secret: Option<PrincipalSecret>,
    /// Time of its last call, for people.
    pub last_call: LastCall,
    /// End of its logins, in seconds since 1970. Zero: none is known.
    login_end: AtomicU64,
}

/// Time of a principal's last call. Lives as long as the principal, and no longer than the process.
#[derive(Debug, Default)]
pub struct LastCall(AtomicU64);

impl LastCall {
    /// Records a call at this time, in seconds since 1970.
    pub fn record(&self, at: u64) {
        // Relaxed, and no maximum: of calls at the same time any one will do.
        self.0.store(at, Ordering::Relaxed);
    }

    /// Returns the time, in seconds since 1970. `None` before the first call.
    pub fn time(&self) -> Option<u64> {
        Some(self.0.load(Ordering::Relaxed)).filter(|at| *at > 0)
    }
}

/// Identity of a principal in every process. Made from its credentials, not from its position in
/// the config. No API key.
pub type PrincipalKey = [u8; 16];

/// Standing of the principal behind a stored key.
#[derive(Clone, Debug)]
pub enum PrincipalStanding {
    /// Known in this process.
    Seen(Arc<Principal>),
    /// Admitted by a login that was not used in this process yet.
    Unseen,
    /// Not admitted.
    Unknown,
}

/// Set of roles in the policy. Principals with the same set may use the same, and see the same
/// lists. A key of the config has a set with one role, which is its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RoleId(pub u32);

impl RoleId {
    /// Maximum number of sets that people can have.
    pub const SETS_MAX: usize = 256;
    /// First of the sets that people can have. Ids of principals are lower.
    const FIRST_SET: u32 = Principal::OPERATOR - 256;

    /// Returns the set of people with this index.
    pub fn of_set(index: u8) -> Self {
        RoleId(RoleId::FIRST_SET + u32::from(index))
    }

    /// Returns the index of a set that people have. `None`: the role is a principal's own.
    pub fn set_index(self) -> Option<usize> {
        let index = usize::try_from(self.0.checked_sub(RoleId::FIRST_SET)?).ok()?;
        (index < RoleId::SETS_MAX).then_some(index)
    }
    /// Role of every client if no keys are configured.
    pub const ANONYMOUS: RoleId = RoleId(Principal::ANONYMOUS);
    /// Role of operators, who may use every tool that the config exposes.
    pub const OPERATOR: RoleId = RoleId(Principal::OPERATOR);
}

/// Secret of one principal. Stays the same for as long as its credentials do.
#[derive(Clone)]
pub struct PrincipalSecret([u8; 32]);

impl PrincipalSecret {
    /// Wraps 256 secret bits.
    pub fn new(bits: [u8; 32]) -> Self {
        PrincipalSecret(bits)
    }

    /// Returns the bits.
    pub fn bits(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Debug for PrincipalSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

impl Principal {
    /// Id of the gateway itself, for its own requests to servers.
    pub const GATEWAY: u32 = u32::MAX;
    /// Id of every client if no keys are configured.
    pub const ANONYMOUS: u32 = u32::MAX - 1;
    /// Id of operators who call a tool from the admin listener.
    pub const OPERATOR: u32 = u32::MAX - 2;

    /// Greatest id that the credentials of a client can have.
    pub const LAST: u32 = RoleId::FIRST_SET - 1;

    /// Creates a principal with its own role.
    pub fn new(name: &str, id: u32, key: PrincipalKey) -> Self {
        Principal {
            name: name.to_owned(),
            id,
            key,
            role: id.into(),
            secret: None,
            last_call: LastCall::default(),
            login_end: AtomicU64::new(0),
        }
    }

    /// Returns the principal with this secret.
    #[must_use]
    pub fn with_secret(self, secret: Option<PrincipalSecret>) -> Self {
        Principal { secret, ..self }
    }

    /// Returns the set of roles that it has now.
    pub fn role(&self) -> RoleId {
        // Relaxed: the set publishes no other data.
        RoleId(self.role.load(Ordering::Relaxed))
    }

    /// Replaces its roles, also for what it has open.
    pub fn set_role(&self, role: RoleId) {
        self.role.store(role.0, Ordering::Relaxed);
    }

    /// Returns the time from which none of its logins is good, in seconds since 1970. `None`: it
    /// has no login, or one without an end.
    pub fn login_end(&self) -> Option<u64> {
        Some(self.login_end.load(Ordering::Relaxed)).filter(|end| *end > 0)
    }

    /// Replaces the end of its logins.
    pub fn set_login_end(&self, end: Option<u64>) {
        self.login_end.store(end.unwrap_or(0), Ordering::Relaxed);
    }

    /// Creates the principal of every client if no keys are configured. All processes know it by
    /// the same key.
    pub fn anonymous() -> Self {
        Principal::new("anybody", Principal::ANONYMOUS, [0; 16])
    }

    /// Creates the principal of operators. It isn't a client's, and no table holds it.
    pub fn operator() -> Self {
        Principal::new("admin", Principal::OPERATOR, [0xff; 16])
    }
}

impl PartialEq for Principal {
    fn eq(&self, other: &Self) -> bool {
        self.id == other.id
    }
}

impl Eq for Principal {}
