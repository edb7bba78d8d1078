//! Whose a URI is, and what clients call it.
//!
//! Owns the order in which that is looked for: lists, what a URI says itself, templates, links that were seen. Does not
//! read requests (`view`). Invariant: a URI longer than `limits.uri` is never looked up, only found or not.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::gateway::catalog::{Route, name_of};
use crate::gateway::generation::Member;
use crate::gateway::templates::LookupBudget;
use crate::gateway::view::{Scope, View};
use crate::gateway::{Gateway, Snapshot, uris};
use crate::json::{Object, Raw, Text};
use crate::model::{Caller, Error, Kind, Reason};
use crate::policy::traverses;

/// What counts on the way from a URI to its server.
#[derive(Clone, Copy)]
struct Search<'a> {
    snapshot: &'a Snapshot,
    uri: &'a Text,
    /// Whether the URI is too long to be looked up.
    is_long: bool,
    budget: &'a LookupBudget,
}

impl View {
    /// Whose a URI is, and what that server calls it.
    pub(super) fn locate(
        &self,
        snapshot: &Snapshot,
        caller: &Caller,
        uri: &Text,
        budget: &LookupBudget,
    ) -> Result<(Arc<Member>, Text), Error> {
        let search = self.gateway.search(snapshot, uri, budget);
        let listed = || self.find(snapshot, caller, Kind::Resources, uri);
        let place = self.place(search, listed, true);
        place.ok_or_else(|| if search.is_long { too_long(self.gateway.uri_max()) } else { not_found(uri) })
    }

    /// The same for whoever does not ask for it now: without a guess, since where nothing tells whose it is, it is nobody's.
    pub(super) fn known_place(
        &self,
        snapshot: &Snapshot,
        caller: &Caller,
        uri: &Text,
        budget: &LookupBudget,
    ) -> Option<(Arc<Member>, Text)> {
        let permitted = |route: &&Arc<Route>| self.permits(&caller.principal, Kind::Resources, route);
        let listed = || snapshot.find(Kind::Resources, uri).filter(permitted).cloned();
        self.place(self.gateway.search(snapshot, uri, budget), listed, false)
    }

    fn place(
        &self,
        search: Search<'_>,
        listed: impl FnOnce() -> Option<Arc<Route>>,
        guess: bool,
    ) -> Option<(Arc<Member>, Text)> {
        if let Scope::Server(upstream) = &self.scope {
            return self
                .gateway
                .admits(search.snapshot, upstream, search.uri)
                .then(|| (upstream.clone(), search.uri.clone()));
        }
        if let Some(route) = listed() {
            return Some((route.upstream.clone(), route.local.clone()));
        }
        let (server, local) = match uris::unwrap(search.uri) {
            Some((server, local)) => (Text::from(server), Text::from(&*local)),
            None => {
                let only = || self.only_server(search.snapshot).filter(|_| guess);
                (self.unlisted(search).or_else(only).filter(|_| !search.is_long)?, search.uri.clone())
            }
        };
        Some((self.member(search.snapshot, &server, &local)?, local))
    }

    /// The server of a URI in no list, by templates and by what was learned.
    fn unlisted(&self, search: Search<'_>) -> Option<Text> {
        if search.is_long {
            return None;
        }
        let by_template =
            search.snapshot.find_template(search.uri, search.budget).map(|route| name_of(&route.upstream));
        by_template.or_else(|| self.gateway.learned.find(search.uri))
    }

    /// The server of this name, if it is here and may have the resource.
    pub(super) fn member(&self, snapshot: &Snapshot, server: &str, local: &Text) -> Option<Arc<Member>> {
        let member = self.now.servers.iter().find(|u| u.settings.name == server && self.includes(server));
        member.filter(|member| self.gateway.admits(snapshot, member, local)).cloned()
    }

    /// The server that a URI in no list must belong to, because no other has resources here.
    fn only_server(&self, snapshot: &Snapshot) -> Option<Text> {
        let mut servers = snapshot.resource_servers().filter(|server| self.includes(server));
        let first = servers.next()?;
        servers.next().is_none().then(|| first.clone())
    }
}

impl Gateway {
    /// Longest URI that is looked up, in bytes.
    pub(super) fn uri_max(&self) -> usize {
        self.uri_max.load(Ordering::Relaxed)
    }

    fn search<'a>(&self, snapshot: &'a Snapshot, uri: &'a Text, budget: &'a LookupBudget) -> Search<'a> {
        Search { snapshot, uri, is_long: uri.len() > self.uri_max(), budget }
    }

    /// Whether the config lets a server have a resource. Patterns are not tried on long URIs: those must be listed.
    fn admits(&self, snapshot: &Snapshot, member: &Member, local: &Text) -> bool {
        let rules = &member.settings.resources;
        if local.len() > self.uri_max() && rules.decides() {
            return snapshot.find_local(Kind::Resources, &name_of(member), local).is_some();
        }
        rules.has_uri(local)
    }

    /// The exposed form of a server's own URI, if it differs; learns what stands in no list.
    pub(super) fn exposed_uri(&self, server: &Text, uri: &Text, budget: &LookupBudget) -> Option<Text> {
        let wrapped = || Some(Text::from(uris::wrap(server, uri)));
        let snapshot = self.snapshot();
        if let Some(route) = snapshot.find_local(Kind::Resources, server, uri) {
            return (route.exposed != *uri).then(|| route.exposed.clone());
        }
        // It would lead to another server.
        if uris::looks_wrapped(uri) || snapshot.find(Kind::Resources, uri).is_some() {
            return wrapped();
        }
        if uri.len() > self.uri_max() {
            return None;
        }
        match snapshot.find_template(uri, budget) {
            Some(route) if route.upstream.settings.name == server.as_str() => None,
            Some(_) => wrapped(),
            None if budget.is_spent() => {
                self.metrics.dropped.with_label_values(&["uri_lookup"]).inc();
                None
            }
            None => (!self.learned.learn(uri, server)).then(wrapped).flatten(),
        }
    }
}

/// The answer for whatever leads nowhere. It says about its spelling only what holds for every server.
fn not_found(uri: &Text) -> Error {
    let data = Object::new().with("uri", Raw::string(uri));
    let spelling = match traverses(uri) {
        true => " (dot segments, %2e, %2f and %5c are refused where patterns decide about resources)",
        false => "",
    };
    Error::new(Reason::UnknownResource, format!("Resource not found: {uri}{spelling}")).with_data(data.raw())
}

fn too_long(limit: usize) -> Error {
    let message = format!("Invalid params: no server lists this uri, and it is longer than {limit} bytes (limits.uri)");
    Error::new(Reason::InvalidParams, message)
}
