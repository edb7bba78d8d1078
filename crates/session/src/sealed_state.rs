//! Sealed state: handed to a client, and brought back by it.
//!
//! Owns the keys and the format. Does not know what the state says. Invariant: only state that this
//! gateway sealed for the same caller and request opens, and only before it expires. Outside,
//! nothing of it can be read or changed. State that is spent opens no second time
//! (`spent_states.rs`).

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use aws_lc_rs::aead::{AES_256_GCM_SIV, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use aws_lc_rs::digest::{Context, SHA256};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use tokio::time::Instant;

use crate::spent_states::{SealMark, SpentStates};
use moongate_model::PrincipalKey;

/// Digest of the caller and the request that sealed state belongs to.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct SealBinding([u8; 32]);

impl SealBinding {
    /// Digests the parts. Their lengths are part of the digest, so boundaries count.
    pub fn of(parts: &[&[u8]]) -> Self {
        // A digest keeps the sealed text short, whatever the arguments are.
        let mut context = Context::new(&SHA256);
        for part in parts {
            // Lengths keep apart parts that would read the same in a row.
            context.update(&(part.len() as u64).to_be_bytes());
            context.update(part);
        }
        SealBinding(
            context
                .finish()
                .as_ref()
                .try_into()
                .expect("SHA-256 has 32 bytes"),
        )
    }
}

/// Cause of refused state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SealError {
    /// Changed, sealed by another gateway, or sealed by a previous process whose key was not
    /// persisted.
    Foreign,
    /// Sealed for another caller, or for a request at another endpoint.
    OtherCaller,
    /// Sealed for another request.
    OtherRequest,
    /// Expired, or used before.
    Expired,
}

/// State that was opened.
#[derive(Debug, PartialEq, Eq)]
pub struct OpenedState {
    /// Sealed bytes.
    pub plain: Vec<u8>,
    /// Mark of this seal.
    pub mark: SealMark,
}

/// Use of a state by its principal.
pub struct StateUse {
    sealer: Arc<StateSealer>,
    principal: PrincipalKey,
    mark: SealMark,
}

impl StateUse {
    /// Takes the use back: the state was of no effect, and may be sent again.
    pub fn give_back(self) {
        self.sealer.spent.give_back(&self.principal, &self.mark);
    }
}

impl SealError {
    /// Returns the value of the label `reason`.
    pub fn label(self) -> &'static str {
        match self {
            SealError::Foreign => "foreign",
            SealError::OtherCaller => "other_caller",
            SealError::OtherRequest => "other_request",
            SealError::Expired => "expired",
        }
    }
}

/// Length of the id of a key, which comes before each seal.
const ID_LEN: usize = 4;

/// Key of seals, with its id.
struct SealKey {
    id: [u8; ID_LEN],
    key: LessSafeKey,
}

impl SealKey {
    fn new(key: &[u8; 32]) -> Self {
        let mut context = Context::new(&SHA256);
        context.update(b"moongate id of a seal's key");
        context.update(key);
        let digest = context.finish();
        let id = *digest.as_ref().first_chunk().expect("SHA-256 has 32 bytes");
        let key = UnboundKey::new(&AES_256_GCM_SIV, key).expect("the key has 256 bits");
        SealKey {
            id,
            key: LessSafeKey::new(key),
        }
    }

    /// Opens what follows a nonce.
    fn open<'a>(&self, aad: &[u8], sealed: &'a mut [u8]) -> Option<([u8; NONCE_LEN], &'a [u8])> {
        let (nonce, sealed) = sealed.split_first_chunk_mut::<NONCE_LEN>()?;
        let nonce_of = Nonce::assume_unique_for_key(*nonce);
        let plain = self
            .key
            .open_in_place(nonce_of, Aad::from(aad), sealed)
            .ok()?;
        Some((*nonce, plain))
    }

    /// Opens a copy, since a failed attempt leaves nothing to use.
    fn open_copy(&self, aad: &[u8], sealed: &[u8]) -> Option<([u8; NONCE_LEN], Vec<u8>)> {
        let mut copy = sealed.to_vec();
        let (nonce, plain) = self.open(aad, &mut copy)?;
        Some((nonce, plain.to_vec()))
    }
}

/// Keys of seals: the one that seals, and earlier ones that still open.
struct SealKeys {
    current: SealKey,
    before: Vec<SealKey>,
}

impl SealKeys {
    /// Opens a seal with the key that it names, or one of an earlier version, which names none.
    fn open(&self, whole: &[u8]) -> Option<([u8; NONCE_LEN], Vec<u8>)> {
        let (id, sealed) = whole.split_first_chunk::<ID_LEN>()?;
        match self.all().find(|key| key.id == *id) {
            Some(key) => key.open_copy(id, sealed),
            None => self.all().find_map(|key| key.open_copy(&[], whole)),
        }
    }

    /// Iterates over the keys, the current one first.
    fn all(&self) -> impl Iterator<Item = &SealKey> {
        std::iter::once(&self.current).chain(&self.before)
    }
}

/// Seals and opens state.
pub struct StateSealer {
    /// Keys, made on first use unless a previous process left some. Most gateways never need them.
    keys: OnceLock<SealKeys>,
    epoch: Instant,
    /// Milliseconds from 1970 to `epoch`. An expiry time must mean the same in the next process.
    began_ms: u64,
    /// States that were used.
    spent: SpentStates,
}

impl Default for StateSealer {
    fn default() -> Self {
        let began_ms = u64::try_from(jiff::Timestamp::now().as_millisecond()).unwrap_or_default();
        StateSealer {
            keys: OnceLock::new(),
            epoch: Instant::now(),
            began_ms,
            spent: SpentStates::default(),
        }
    }
}

/// Length of the sealed header: expiry time (8 bytes), the caller's and the request's binding.
const HEADER_LEN: usize = 8 + 32 + 32;

impl StateSealer {
    /// Seals `plain` for `caller` and `request`. It expires after `life`.
    pub fn seal(
        &self,
        caller: SealBinding,
        request: SealBinding,
        plain: &[u8],
        life: Duration,
    ) -> String {
        // A random nonce is safe: AES-GCM-SIV (RFC 8452) tolerates the repetition of one.
        let nonce: [u8; NONCE_LEN] = moongate_random::random_bytes();
        let mut sealed = Vec::with_capacity(HEADER_LEN + plain.len() + 16);
        sealed.extend_from_slice(&self.now_ms().saturating_add(millis(life)).to_be_bytes());
        sealed.extend_from_slice(&caller.0);
        sealed.extend_from_slice(&request.0);
        sealed.extend_from_slice(plain);
        let nonce_of = Nonce::assume_unique_for_key(nonce);
        let SealKey { id, key } = &self.keys().current;
        key.seal_in_place_append_tag(nonce_of, Aad::from(id), &mut sealed)
            .expect("state fits into memory");
        let mut whole = Vec::with_capacity(ID_LEN + NONCE_LEN + sealed.len());
        whole.extend_from_slice(id);
        whole.extend_from_slice(&nonce);
        whole.extend_from_slice(&sealed);
        URL_SAFE_NO_PAD.encode(whole)
    }

    /// Opens what [`StateSealer::seal`] returned.
    pub fn open(
        &self,
        caller: SealBinding,
        request: SealBinding,
        sealed: &str,
    ) -> Result<OpenedState, SealError> {
        let whole = URL_SAFE_NO_PAD
            .decode(sealed)
            .map_err(|_| SealError::Foreign)?;
        // Opened before anything is compared: until then every byte is the client's.
        let (nonce, plain) = self.keys().open(&whole).ok_or(SealError::Foreign)?;
        let (head, plain) = plain
            .split_at_checked(HEADER_LEN)
            .ok_or(SealError::Foreign)?;
        let (end, bindings) = head.split_at(8);
        // No comparison in constant time is needed: the seal authenticates the bindings, so nobody
        // can choose them.
        if bindings[..32] != caller.0 {
            return Err(SealError::OtherCaller);
        }
        if bindings[32..] != request.0 {
            return Err(SealError::OtherRequest);
        }
        let expires_ms = u64::from_be_bytes(end.try_into().expect("it was split at 8"));
        // Last, so that a caller's own mistake is named even for an old state.
        if self.now_ms() > expires_ms {
            return Err(SealError::Expired);
        }
        Ok(OpenedState {
            plain: plain.to_vec(),
            mark: SealMark { expires_ms, nonce },
        })
    }

    /// Spends an opened state of a principal. Fails if it was used before.
    pub fn spend(
        self: &Arc<Self>,
        principal: PrincipalKey,
        mark: SealMark,
    ) -> Result<StateUse, SealError> {
        let is_first = self.spent.spend(&principal, mark, self.now_ms());
        is_first
            .then(|| StateUse {
                sealer: self.clone(),
                principal,
                mark,
            })
            .ok_or(SealError::Expired)
    }

    /// Restores a persisted key, and those before it, which still open. Has no effect if something
    /// was sealed already, since that has to open.
    pub fn restore(&self, key: &[u8; 32], before: &[[u8; 32]]) {
        self.keys.get_or_init(|| SealKeys {
            current: SealKey::new(key),
            before: before.iter().map(SealKey::new).collect(),
        });
    }

    fn keys(&self) -> &SealKeys {
        self.keys.get_or_init(|| SealKeys {
            current: SealKey::new(&moongate_random::random_bytes()),
            before: Vec::new(),
        })
    }

    fn now_ms(&self) -> u64 {
        // Monotonic within a process: setting the clock back extends no state.
        self.began_ms.saturating_add(millis(self.epoch.elapsed()))
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Opens a seal, and returns the sealed bytes alone.
    fn open(
        seal: &StateSealer,
        caller: SealBinding,
        request: SealBinding,
        sealed: &str,
    ) -> Result<Vec<u8>, SealError> {
        seal.open(caller, request, sealed)
            .map(|opened| opened.plain)
    }

    fn binding(text: &str) -> SealBinding {
        SealBinding::of(&[text.as_bytes()])
    }

    #[tokio::test(start_paused = true)]
    async fn sealed_state_opens_only_for_its_binding() {
        let seal = StateSealer::default();
        let caller = binding("a");
        let request = binding("tools/call");
        let sealed = seal.seal(caller, request, b"state", Duration::from_secs(10));
        assert_eq!(
            open(&seal, caller, request, &sealed).as_deref(),
            Ok(&b"state"[..])
        );
        assert_eq!(
            open(&seal, binding("b"), request, &sealed),
            Err(SealError::OtherCaller)
        );
        assert_eq!(
            open(&seal, caller, binding("prompts/get"), &sealed),
            Err(SealError::OtherRequest)
        );
        assert_eq!(
            open(&StateSealer::default(), caller, request, &sealed),
            Err(SealError::Foreign)
        );
        let seal = Arc::new(seal);
        let mark = seal.open(caller, request, &sealed).unwrap().mark;
        let first = seal
            .spend([1; 16], mark)
            .unwrap_or_else(|_| panic!("it was not used yet"));
        assert!(seal.spend([1; 16], mark).is_err(), "it was used");
        first.give_back();
        assert!(seal.spend([1; 16], mark).is_ok());
        tokio::time::advance(Duration::from_secs(11)).await;
        assert_eq!(
            open(&seal, caller, request, &sealed),
            Err(SealError::Expired)
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_kept_key_opens_what_an_earlier_run_sealed() {
        let earlier = StateSealer::default();
        let later = StateSealer::default();
        earlier.restore(&[7; 32], &[]);
        later.restore(&[7; 32], &[]);
        let sealed = earlier.seal(
            binding("a"),
            binding("b"),
            b"state",
            Duration::from_secs(10),
        );
        assert_eq!(
            open(&later, binding("a"), binding("b"), &sealed).as_deref(),
            Ok(&b"state"[..])
        );
        later.restore(&[8; 32], &[]);
        assert!(
            open(&later, binding("a"), binding("b"), &sealed).is_ok(),
            "the key in use stays"
        );
        tokio::time::advance(Duration::from_secs(11)).await;
        assert_eq!(
            open(&later, binding("a"), binding("b"), &sealed),
            Err(SealError::Expired)
        );
    }

    fn sealer(key: [u8; 32], before: &[[u8; 32]]) -> StateSealer {
        let sealer = StateSealer::default();
        sealer.restore(&key, before);
        sealer
    }

    #[tokio::test(start_paused = true)]
    async fn a_key_before_the_current_one_opens_and_seals_nothing() {
        let old = sealer([7; 32], &[]);
        let rotated = sealer([8; 32], &[[6; 32], [7; 32]]);
        let caller = binding("a");
        let request = binding("b");
        let by_old = old.seal(caller, request, b"state", Duration::from_secs(10));
        assert_eq!(
            open(&rotated, caller, request, &by_old).as_deref(),
            Ok(&b"state"[..])
        );
        let by_rotated = rotated.seal(caller, request, b"state", Duration::from_secs(10));
        assert_eq!(
            open(&old, caller, request, &by_rotated),
            Err(SealError::Foreign)
        );
        assert_eq!(
            open(&sealer([8; 32], &[]), caller, request, &by_rotated).as_deref(),
            Ok(&b"state"[..])
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_seal_of_a_version_without_ids_of_keys_opens() {
        let sealer = StateSealer::default();
        sealer.restore(&[8; 32], &[[7; 32]]);
        let caller = binding("a");
        let request = binding("b");
        for key in [[7; 32], [8; 32]] {
            let mut sealed = [
                &(sealer.now_ms() + 1000).to_be_bytes()[..],
                &caller.0,
                &request.0,
                b"state",
            ]
            .concat();
            let nonce = Nonce::assume_unique_for_key([3; NONCE_LEN]);
            SealKey::new(&key)
                .key
                .seal_in_place_append_tag(nonce, Aad::empty(), &mut sealed)
                .unwrap();
            let text = URL_SAFE_NO_PAD.encode([&[3; NONCE_LEN][..], &sealed].concat());
            assert_eq!(
                open(&sealer, caller, request, &text).as_deref(),
                Ok(&b"state"[..])
            );
        }
    }

    #[test]
    fn parts_of_a_binding_do_not_run_together() {
        assert!(SealBinding::of(&[b"ab", b"c"]) != SealBinding::of(&[b"a", b"bc"]));
        assert!(SealBinding::of(&[b"ab"]) != SealBinding::of(&[b"ab", b""]));
    }

    proptest! {
        #[test]
        fn altered_sealed_state_does_not_open(plain in proptest::collection::vec(any::<u8>(),
            0..200), at in any::<usize>(), flip in 1u8..) {
            let seal = StateSealer::default();
            let caller = binding("a");
            let request = binding("b");
            let sealed = seal.seal(caller, request, &plain, Duration::from_secs(1));
            prop_assert_eq!(open(&seal, caller, request, &sealed), Ok(plain));
            let mut bytes = URL_SAFE_NO_PAD.decode(&sealed).unwrap();
            let at = at % bytes.len();
            bytes[at] ^= flip;
            prop_assert_eq!(open(&seal, caller, request, &URL_SAFE_NO_PAD.encode(&bytes)),
                Err(SealError::Foreign));
            bytes.truncate(at);
            prop_assert_eq!(open(&seal, caller, request, &URL_SAFE_NO_PAD.encode(&bytes)),
                Err(SealError::Foreign));
        }

        #[test]
        fn garbage_is_refused(text in ".{0,300}") {
            prop_assert_eq!(open(&StateSealer::default(), binding("a"), binding("b"), &text),
                Err(SealError::Foreign));
        }
    }
}
