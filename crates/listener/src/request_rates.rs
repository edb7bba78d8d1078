//! Request rates of principals: what each has used.
//!
//! Owns the buckets, those of the config's keys and those of people, who get theirs at their first
//! request. Does not count tokens (`moongate_access`). Invariant: a reload refills no bucket whose
//! rate stays.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;

use crate::admission::{AdmissionRejection, DEFAULT_RETRY_AFTER};
use moongate_access::auth::PrincipalTable;
use moongate_access::policy::{AccessTable, RequestRate, TokenBucket};
use moongate_model::Principal;

/// Maximum number of people with a bucket. Full buckets make room, since a new one would be the
/// same.
const PEOPLE_MAX: usize = 20_000;

/// Rates of all principals.
pub(super) struct RequestRates {
    /// Rate of each key that has one.
    keys: HashMap<u32, PrincipalRate>,
    people: Arc<Mutex<HashMap<u32, PrincipalRate>>>,
    /// Rate of principals without their own.
    general: Option<RequestRate>,
    access: AccessTable,
}

/// Rest of a principal's rate.
#[derive(Clone)]
struct PrincipalRate {
    token_bucket: Arc<TokenBucket>,
    /// Setting that it comes from.
    setting: Arc<str>,
}

impl RequestRates {
    /// Creates rates of nobody.
    pub(super) fn none() -> Self {
        let keys = HashMap::new();
        let people = Arc::default();
        RequestRates {
            keys,
            people,
            general: None,
            access: AccessTable::default(),
        }
    }

    /// Returns the rates after a change of principals or limits.
    pub(super) fn reloaded(
        &self,
        general: Option<RequestRate>,
        access: &AccessTable,
        principals: &PrincipalTable,
    ) -> Self {
        let people = self.people.clone();
        let access = access.clone();
        let mut rates = RequestRates {
            keys: HashMap::new(),
            people,
            general,
            access,
        };
        let keys = principals
            .all()
            .into_iter()
            .filter(|principal| principal.role().set_index().is_none());
        let keys = keys.filter_map(|principal| {
            let (rate, setting) = rates.rate_of(&principal)?;
            let before = self.keys.get(&principal.id);
            Some((principal.id, PrincipalRate::after(before, rate, setting)))
        });
        rates.keys = keys.collect();
        rates
    }

    /// Takes tokens for so many requests of a principal.
    pub(super) fn take(
        &self,
        principal: &Principal,
        count: usize,
    ) -> Result<(), AdmissionRejection> {
        match principal.role().set_index() {
            None => self
                .keys
                .get(&principal.id)
                .map_or(Ok(()), |rate| rate.take(count)),
            Some(_) => self.take_of_person(principal, count),
        }
    }

    fn take_of_person(&self, person: &Principal, count: usize) -> Result<(), AdmissionRejection> {
        let Some((rate, setting)) = self.rate_of(person) else {
            return Ok(());
        };
        let mut people = self.people.lock();
        let used = match people.get(&person.id) {
            Some(used) if used.token_bucket.rate() == rate => used.clone(),
            before => {
                let new = PrincipalRate::after(before, rate, setting);
                if people.len() >= PEOPLE_MAX {
                    people.retain(|_, used| !used.token_bucket.is_full());
                }
                if people.len() >= PEOPLE_MAX {
                    let message =
                        "Too many clients are active at once to limit the rate of each".to_owned();
                    return Err(AdmissionRejection::over_rate(message, DEFAULT_RETRY_AFTER));
                }
                people.insert(person.id, new.clone());
                new
            }
        };
        drop(people);
        used.take(count)
    }

    /// Returns the rate that a principal has now, with the setting that it comes from.
    fn rate_of(&self, principal: &Principal) -> Option<(RequestRate, String)> {
        let role = principal.role();
        match self.access.own_rate(role) {
            Some((name, rate)) if role.set_index().is_none() => {
                Some((rate?, format!("the rate of the key {name:?} in auth.keys")))
            }
            Some((names, rate)) => Some((
                rate?,
                format!("the rate of the roles {names} in auth.roles"),
            )),
            None => Some((self.general?, "limits.rate".to_owned())),
        }
    }
}

impl PrincipalRate {
    /// Returns a rate. The same one as before keeps its bucket, so that a reload refills nothing.
    fn after(before: Option<&PrincipalRate>, rate: RequestRate, setting: String) -> Self {
        let same = before
            .map(|before| &before.token_bucket)
            .filter(|bucket| bucket.rate() == rate);
        let token_bucket = same
            .cloned()
            .unwrap_or_else(|| Arc::new(TokenBucket::new(rate)));
        PrincipalRate {
            token_bucket,
            setting: setting.into(),
        }
    }

    fn take(&self, count: usize) -> Result<(), AdmissionRejection> {
        self.token_bucket.take(count).map_err(|retry_after| {
            let (RequestRate { count, per }, setting) = (self.token_bucket.rate(), &self.setting);
            let message = format!("Too many requests: {setting} allows {count} in {per:?}");
            AdmissionRejection::over_rate(message, retry_after)
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use moongate_access::policy::{GlobList, RoleAccess};

    use super::*;

    fn staff_access(principals: &PrincipalTable, rate: Option<Option<RequestRate>>) -> AccessTable {
        let role = RoleAccess {
            name: "staff".to_owned(),
            shared_role: None,
            endpoints: None,
            tools: vec![GlobList::all()],
            rate,
        };
        AccessTable::default().with_roles(vec![role], principals.role_sets().clone())
    }

    fn person(principals: &PrincipalTable, id: u32) -> Principal {
        let person = Principal::new("ann", id, [1; 16]);
        person.set_role(principals.role_sets().intern(&["staff"]).unwrap());
        person
    }

    #[tokio::test(start_paused = true)]
    async fn a_person_gets_a_rate_at_the_first_request_and_a_reload_refills_nothing() {
        let principals = PrincipalTable::default();
        let general = RequestRate {
            count: 2,
            per: Duration::from_secs(1),
        };
        let own = RequestRate {
            count: 1,
            ..general
        };
        let usual = staff_access(&principals, None);
        let rates = RequestRates::none().reloaded(Some(general), &usual, &principals);
        let ann = person(&principals, 1);
        let bob = person(&principals, 2);
        assert!(rates.take(&ann, 2).is_ok());
        let refused = rates.take(&ann, 1).err().unwrap();
        assert!(
            refused.error.message.contains("limits.rate allows 2 in 1s"),
            "{}",
            refused.error.message
        );
        assert!(rates.take(&bob, 1).is_ok());
        let later = rates.reloaded(Some(general), &usual, &principals);
        assert!(later.take(&ann, 1).is_err());
        // Another rate starts with a full bucket.
        let access = staff_access(&principals, Some(Some(own)));
        let later = later.reloaded(Some(general), &access, &principals);
        assert!(later.take(&ann, 1).is_ok());
        let refused = later.take(&ann, 1).err().unwrap();
        assert!(
            refused
                .error
                .message
                .contains("the roles staff in auth.roles"),
            "{}",
            refused.error.message
        );
        let unlimited = staff_access(&principals, Some(None));
        let later = later.reloaded(None, &unlimited, &principals);
        assert!(later.take(&ann, 100).is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn full_buckets_make_room_for_others() {
        let principals = PrincipalTable::default();
        let rates = RequestRates::none();
        let general = Some(RequestRate {
            count: 1,
            per: Duration::from_secs(1),
        });
        let rates = rates.reloaded(general, &AccessTable::default(), &principals);
        for id in 0..u32::try_from(PEOPLE_MAX).unwrap() {
            assert!(rates.take(&person(&principals, id), 1).is_ok());
        }
        let another = person(&principals, u32::MAX / 2);
        assert!(rates.take(&another, 1).is_err());
        tokio::time::advance(Duration::from_secs(2)).await;
        assert!(rates.take(&another, 1).is_ok());
        assert_eq!(rates.people.lock().len(), 1);
    }
}
