//! Counter of subscribers by key. Does not subscribe anywhere. Invariant: the demand changes with
//! the first subscriber of a key, and with the end of its last one.

use std::collections::BTreeMap;

/// Number of subscribers by key.
#[derive(Debug)]
pub struct DemandCounter<K>(BTreeMap<K, usize>);

impl<K> Default for DemandCounter<K> {
    fn default() -> Self {
        DemandCounter(BTreeMap::new())
    }
}

impl<K: Ord + Clone> DemandCounter<K> {
    /// Adds a subscriber. Returns true if it is the first one of its key.
    pub fn add(&mut self, key: &K) -> bool {
        if let Some(count) = self.0.get_mut(key) {
            *count += 1;
            return false;
        }
        self.0.insert(key.clone(), 1);
        true
    }

    /// Removes a subscriber. Returns true if it was the last one of its key.
    pub fn remove(&mut self, key: &K) -> bool {
        match self.0.get_mut(key) {
            Some(count) if *count > 1 => {
                *count -= 1;
                false
            }
            Some(_) => self.0.remove(key).is_some(),
            None => false,
        }
    }

    /// Returns true if the key has a subscriber.
    pub fn contains(&self, key: &K) -> bool {
        self.0.contains_key(key)
    }

    /// Returns the keys that have subscribers, in their order.
    pub fn keys(&self) -> impl Iterator<Item = &K> {
        self.0.keys()
    }

    /// Returns the number of keys that have subscribers.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns true without subscribers.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn only_first_and_last_subscribers_are_signalled(steps in prop::collection::vec((any::<bool>(), 0..4u8), 0..64)) {
            let mut counter = DemandCounter::default();
            let mut subscribers = Vec::new();
            for (adds, key) in steps {
                let before = subscribers.contains(&key);
                let signalled = if adds {
                    subscribers.push(key);
                    counter.add(&key)
                } else {
                    // A subscriber that does not exist changes nothing.
                    if let Some(at) = subscribers.iter().position(|other| *other == key) {
                        subscribers.swap_remove(at);
                    }
                    counter.remove(&key)
                };
                prop_assert_eq!(signalled, before != subscribers.contains(&key));
                let mut keys = subscribers.clone();
                keys.sort_unstable();
                keys.dedup();
                prop_assert_eq!(counter.keys().copied().collect::<Vec<_>>(), keys.clone());
                prop_assert_eq!(counter.len(), keys.len());
                prop_assert_eq!(counter.is_empty(), keys.is_empty());
                prop_assert_eq!(counter.contains(&key), keys.contains(&key));
            }
            for key in subscribers {
                counter.remove(&key);
            }
            prop_assert!(counter.is_empty());
        }
    }
}
