//! News of all servers, to whoever listens.
//!
//! Owns the listeners' queue and the count of subscriptions. Invariant: a server is subscribed to exactly the
//! resources that somebody listens to.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::broadcast;

use crate::json::{Object, Text};
use crate::model::{Kind, Level, Notice, Task};
use crate::upstream::{Owner, Upstream};

/// News that may wait for a slow listener; one that falls further behind is told that everything may have changed.
const NEWS: usize = 1024;

/// Longest URI that can be subscribed to, in bytes: it is kept, and sent to its server.
pub(super) const URI_MAX: usize = 8 * 1024;

/// What happened at a server.
#[derive(Clone, Debug)]
pub(super) enum Happened {
    /// What it lists changed.
    Changed(Text, Kind),
    /// Anything may be different: servers, names, rules.
    Reloaded,
    /// One of its resources did: the server, its own URI, the params.
    Updated(Text, Text, Object),
    /// It told of one of its tasks.
    Task(Text, Box<Task>),
    /// It logged something that belongs to no call: the server, the level, the params.
    Logged(Text, Option<Level>, Object),
    /// It said this on a connection of one client's.
    Own(Text, Owner, Box<Notice>),
    /// A user is done with a page that it sent them to: the server, the elicitation's id, the params.
    Elicited(Text, Text, Object),
}

/// Listeners and their subscriptions.
pub(super) struct Hub {
    news: broadcast::Sender<Happened>,
    /// By server; only where there are any.
    subscribed: Mutex<HashMap<Text, Subscriptions>>,
}

/// What is subscribed to at one server, and how often.
struct Subscriptions {
    /// What stands for that server now: one that was configured anew is told what others are still counted for.
    upstream: Arc<Upstream>,
    uris: BTreeMap<Text, usize>,
}

impl Default for Hub {
    fn default() -> Self {
        Hub { news: broadcast::Sender::new(NEWS), subscribed: Mutex::default() }
    }
}

impl Hub {
    /// Tells everybody.
    pub(super) fn publish(&self, happened: Happened) {
        let _ = self.news.send(happened);
    }

    /// Hears of everything from now on.
    pub(super) fn listen(&self) -> broadcast::Receiver<Happened> {
        self.news.subscribe()
    }

    /// Subscribes to a resource of a server until the guard is dropped. `None`: there are too many others already
    /// (`max_subscriptions`).
    pub(super) fn subscribe(self: &Arc<Self>, upstream: &Arc<Upstream>, uri: &Text) -> Option<Subscription> {
        // A copy: the URI is a span of a client's message, which must not live as long as the subscription.
        let uri = Text::from(uri.as_str());
        let counted = self.count(upstream, &uri, true);
        counted.then(|| Subscription { hub: self.clone(), upstream: upstream.clone(), uri })
    }

    /// One listener more or less. False: there is no room for another resource.
    fn count(&self, upstream: &Arc<Upstream>, uri: &Text, more: bool) -> bool {
        let mut subscribed = self.subscribed.lock().unwrap_or_else(PoisonError::into_inner);
        let fresh = || Subscriptions { upstream: upstream.clone(), uris: BTreeMap::new() };
        let there = subscribed.entry(upstream.name.clone()).or_insert_with(fresh);
        let moved = more && !Arc::ptr_eq(&there.upstream, upstream);
        if moved {
            there.upstream = upstream.clone();
        }
        let uris = &mut there.uris;
        let before = uris.get(uri).copied().unwrap_or(0);
        if more && before == 0 && uris.len() >= upstream.live().max_subscriptions {
            return false;
        }
        let after = if more { before + 1 } else { before.saturating_sub(1) };
        if after == 0 {
            uris.remove(uri);
        } else {
            uris.insert(uri.clone(), after);
        }
        // The server hears of it only where the first comes or the last goes.
        if (before == 0) != (after == 0) || moved {
            there.upstream.latest().subscribe(there.uris.keys().cloned().collect());
        }
        if there.uris.is_empty() {
            subscribed.remove(&upstream.name);
        }
        true
    }
}

impl Hub {
    /// Subscribes a server to what somebody listens to at the one that it takes the place of.
    pub(super) fn move_to(&self, upstream: &Arc<Upstream>) {
        let mut subscribed = self.subscribed.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(there) = subscribed.get_mut(&upstream.name) {
            there.upstream = upstream.clone();
            upstream.subscribe(there.uris.keys().cloned().collect());
        }
    }
}

/// One listener's interest in one resource.
pub(super) struct Subscription {
    hub: Arc<Hub>,
    upstream: Arc<Upstream>,
    uri: Text,
}

impl Subscription {
    /// The server and its own URI.
    pub(super) fn place(&self) -> (Text, Text) {
        (self.upstream.name.clone(), self.uri.clone())
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        self.hub.count(&self.upstream, &self.uri, false);
    }
}
