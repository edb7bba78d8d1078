//! One listener on an endpoint: what it is told of what happens, and where it is subscribed.
//!
//! Owns the way of a subscription from server to server, as lists and configs change. Does not count subscriptions
//! (`hub`). Invariant: a subscription is where the resource is, as far as that is known; where nothing tells any more whose
//! it is, it stays where it was, or waits for that server.

use std::sync::Arc;

use futures_util::future::{BoxFuture, join_all};
use tokio::sync::broadcast;

use crate::gateway::Snapshot;
use crate::gateway::generation::Member;
use crate::gateway::hub::{Happened, Subscription, URI_MAX};
use crate::gateway::templates::LookupBudget;
use crate::gateway::view::View;
use crate::json::{Object, Raw, Text};
use crate::model::{Caller, Error, Filter, Kind, Notice};
use crate::upstream::Ear;

/// One listener.
pub(super) struct Listening {
    view: View,
    caller: Arc<Caller>,
    filter: Filter,
    /// The resources that it asked for, also those that are not there.
    wanted: Vec<Wanted>,
    /// What it could list when it was told last.
    seen: [u64; 4],
    receiver: broadcast::Receiver<Happened>,
    /// What it is still to be told.
    owed: Vec<Notice>,
    _subscriptions: Vec<Subscription>,
    /// What connections of its client's own listen to for it.
    _ear: Ear,
}

/// One resource that was asked for.
#[derive(Clone)]
struct Wanted {
    uri: Text,
    /// The server where it was found last, and what that calls it.
    place: Option<(Text, Text)>,
    /// Whether it is subscribed to there.
    honoured: bool,
}

/// What kept resources out of those that are subscribed to.
#[derive(Default)]
struct LeftOut {
    /// A limit, by its setting.
    full: Option<Text>,
    /// A server that offers no subscriptions.
    unoffered: Option<Text>,
}

/// What resources are looked for in.
struct Search<'a> {
    view: &'a View,
    snapshot: &'a Snapshot,
    caller: &'a Caller,
    /// For all resources of one listener together.
    budget: &'a LookupBudget,
}

impl Wanted {
    /// Where it is; `first`: it was never anywhere, so that a guess is better than nothing.
    fn find(&self, search: &Search<'_>, first: bool) -> Option<(Arc<Member>, Text)> {
        let Search { view, snapshot, caller, budget } = search;
        if first {
            return view.locate(snapshot, caller, &self.uri, budget).ok();
        }
        let before = || {
            let (server, local) = self.place.as_ref()?;
            Some((view.member(snapshot, server, local)?, local.clone()))
        };
        view.known_place(snapshot, caller, &self.uri, budget).or_else(before)
    }

    /// Whether it is elsewhere than where it is subscribed to.
    fn is_moved(&self, search: &Search<'_>) -> bool {
        let Some((member, local)) = self.find(search, false) else { return false };
        !self.honoured || self.place.as_ref().is_none_or(|(server, at)| *server != member.name || *at != local)
    }
}

impl Listening {
    /// Also gives what of the filter is honoured.
    pub(super) fn new(
        view: View,
        caller: &Arc<Caller>,
        filter: Filter,
        receiver: broadcast::Receiver<Happened>,
    ) -> (Self, Filter) {
        // Copies: the URIs are spans of a message, which must not live as long as the listener.
        let wanted = |uri: &Text| Wanted { uri: Text::from(uri.as_str()), place: None, honoured: false };
        let mut wanted: Vec<Wanted> = filter.uris.iter().map(wanted).collect();
        let (subscriptions, left_out) = view.subscribe(caller, &mut wanted, true);
        let seen = view.digests(caller, &filter);
        let LeftOut { full, unoffered } = left_out;
        let filter = Filter { uris: honoured(&wanted), full, unoffered, ..filter };
        let ear = view.ear(caller, &filter, &subscriptions);
        let caller = caller.clone();
        let told = filter.clone();
        let (_ear, _subscriptions, owed) = (ear, subscriptions, Vec::new());
        (Listening { view, caller, filter, wanted, seen, receiver, owed, _subscriptions, _ear }, told)
    }

    pub(super) async fn next(&mut self) -> Option<Notice> {
        loop {
            if let Some(notice) = self.owed.pop() {
                return Some(notice);
            }
            match self.receiver.recv().await {
                Ok(Happened::Changed(server, kind)) => {
                    if matches!(kind, Kind::Resources | Kind::Templates) && self.is_moved() {
                        self.follow()?;
                    }
                    if self.view.includes(&server) && self.filter.wants(&Notice::Changed(kind)) {
                        self.compare();
                    }
                }
                Ok(Happened::Reloaded) => {
                    self.follow()?;
                    self.compare();
                }
                Ok(happened) => {
                    let heard = self.view.heard(&self.caller, happened);
                    match heard.filter(|notice| self.filter.wants(notice)) {
                        // Its own connection says so: told whether or not what everybody lists differs, and once.
                        Some(Notice::Changed(kind)) => {
                            self.compare();
                            self.owe(kind);
                        }
                        Some(notice) => return Some(notice),
                        None => {}
                    }
                }
                Err(broadcast::error::RecvError::Lagged(_)) => {
                    // It cannot know what it missed, nor can we.
                    self.follow()?;
                    self.compare();
                    for kind in [Kind::Tools, Kind::Prompts, Kind::Resources] {
                        if self.filter.wants(&Notice::Changed(kind)) {
                            self.owe(kind);
                        }
                    }
                    // The last that is owed is told first.
                    for uri in self.filter.uris.clone() {
                        self.owe_update(&uri);
                    }
                }
                Err(broadcast::error::RecvError::Closed) => return None,
            }
        }
    }

    /// Goes on with the endpoint as it is now; `None`: it is no longer there for this principal.
    fn follow(&mut self) -> Option<()> {
        self.view = self.view.gateway.view(&self.view.name, &self.caller.principal)?.again();
        if self.wanted.is_empty() {
            return Some(());
        }
        let before = self.wanted.clone();
        // The new ones are there before the old ones go.
        (self._subscriptions, _) = self.view.subscribe(&self.caller, &mut self.wanted, false);
        self.filter.uris = honoured(&self.wanted);
        self._ear = self.view.ear(&self.caller, &self.filter, &self._subscriptions);
        for (now, before) in self.wanted.clone().iter().zip(before) {
            // What changed while it was subscribed to nowhere, or elsewhere, cannot be known.
            let missed = before.place.is_some() && (!before.honoured || before.place != now.place);
            if now.honoured && missed {
                self.owe_update(&now.uri);
            }
        }
        Some(())
    }

    fn is_moved(&self) -> bool {
        let snapshot = self.view.now.snapshot.load();
        let budget = LookupBudget::new();
        let search = Search { view: &self.view, snapshot: &snapshot, caller: &self.caller, budget: &budget };
        self.wanted.iter().any(|wanted| wanted.is_moved(&search))
    }

    /// Owes it news of the lists that are no longer as it saw them.
    fn compare(&mut self) {
        let now = self.view.digests(&self.caller, &self.filter);
        let seen = std::mem::replace(&mut self.seen, now);
        for kind in Kind::ALL.into_iter().filter(|kind| now[*kind as usize] != seen[*kind as usize]) {
            self.owe(kind);
        }
    }

    /// Owes it the news of a resource, once.
    fn owe_update(&mut self, uri: &Text) {
        let params = Object::new().with("uri", Raw::string(uri));
        self.owed.retain(|owed| !matches!(owed, Notice::Updated(other, _) if other == uri));
        self.owed.push(Notice::Updated(uri.clone(), params));
    }

    /// Owes it the news of a list, once.
    fn owe(&mut self, kind: Kind) {
        // Templates have no notification of their own.
        let kind = if kind == Kind::Templates { Kind::Resources } else { kind };
        if !self.owed.iter().any(|owed| matches!(owed, Notice::Changed(other) if *other == kind)) {
            self.owed.push(Notice::Changed(kind));
        }
    }
}

fn honoured(wanted: &[Wanted]) -> Vec<Text> {
    wanted.iter().filter(|wanted| wanted.honoured).map(|wanted| wanted.uri.clone()).collect()
}

impl View {
    /// Subscribes to those resources that there are here. Also says what kept others out.
    fn subscribe(&self, caller: &Caller, wanted: &mut [Wanted], first: bool) -> (Vec<Subscription>, LeftOut) {
        let snapshot = self.now.snapshot.load();
        let budget = LookupBudget::new();
        let search = Search { view: self, snapshot: &snapshot, caller, budget: &budget };
        let (mut subscriptions, mut left_out) = (Vec::new(), LeftOut::default());
        for wanted in wanted {
            wanted.honoured = false;
            let Some((member, local)) = wanted.find(&search, first) else { continue };
            if member.face().is_some_and(|face| !face.features.subscribe && !face.features.subscribe_untried) {
                left_out.unoffered = Some(member.name.clone());
                continue;
            }
            if local.len() > URI_MAX {
                continue;
            }
            match self.gateway.hub.subscribe(&member.upstream, &local) {
                Some(subscription) => {
                    (wanted.place, wanted.honoured) = (Some(subscription.place()), true);
                    subscriptions.push(subscription);
                }
                None => {
                    self.gateway.metrics.refused.with_label_values(&["max_subscriptions"]).inc();
                    left_out.full = Some(Text::from(format!("servers.{}.max_subscriptions", member.settings.name)));
                }
            }
        }
        (subscriptions, left_out)
    }

    /// Tries those servers of the resources that deny subscriptions and were not tried, all at once and each once.
    pub(super) fn find_out_subscriptions(
        &self,
        caller: &Caller,
        uris: &[Text],
    ) -> Option<BoxFuture<'static, Result<(), Error>>> {
        let untried = |member: &Member| member.face().is_some_and(|face| face.features.subscribe_untried);
        if !self.now.servers.iter().any(|member| self.includes(&member.name) && untried(member)) {
            return None;
        }
        let (snapshot, budget) = (self.now.snapshot.load(), LookupBudget::new());
        let mut trials: Vec<(Arc<Member>, Text)> = Vec::new();
        for uri in uris {
            let Ok((member, local)) = self.locate(&snapshot, caller, uri, &budget) else { continue };
            let is_new = trials.iter().all(|(other, _)| other.name != member.name);
            if is_new && local.len() <= URI_MAX && untried(&member) {
                trials.push((member, Text::from(local.as_str())));
            }
        }
        (!trials.is_empty()).then(|| {
            Box::pin(async move {
                let ends = trials.iter().map(|(member, uri)| member.try_subscription(uri));
                join_all(ends).await.into_iter().collect()
            }) as BoxFuture<'static, _>
        })
    }

    /// Has connections that are the client's own listen to what it listens to.
    fn ear(&self, caller: &Caller, filter: &Filter, subscriptions: &[Subscription]) -> Ear {
        let lists = filter.tools || filter.prompts || filter.resources || filter.logs;
        self.gateway.shared.ears.listen(caller, lists, subscriptions.iter().map(Subscription::place).collect())
    }

    /// What tells each list that is listened to from another; those that are not are all the same.
    fn digests(&self, caller: &Caller, filter: &Filter) -> [u64; 4] {
        Kind::ALL.map(|kind| match filter.wants(&Notice::Changed(kind)) {
            true => self.listed(caller, kind, false).digest,
            false => 0,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures_util::FutureExt;
    use tokio::task::unconstrained;

    use futures_util::StreamExt;

    use super::*;
    use crate::gateway::{Gateway, GatewaySettings, NameRules};
    use crate::link::guard::Guard;
    use crate::model::{Server as _, testing};
    use crate::policy::{ANYBODY, AccessTable};
    use crate::telemetry::CallLog;
    use crate::telemetry::Metrics;
    use crate::upstream::{Connect, ServerSettings, Shared};

    fn gateway() -> Arc<Gateway> {
        let connect = Connect::Stdio { command: "none".to_owned(), args: Vec::new(), env: Vec::new(), cwd: None };
        let settings = GatewaySettings {
            names: NameRules { separator: "__".to_owned(), max_length: 64 },
            servers: vec![ServerSettings::new("a", connect)],
            disabled: Vec::new(),
            views: Vec::new(),
            access: AccessTable::default(),
            drain: Duration::ZERO,
            calls: CallLog::default(),
            uri_max: 8192,
            schema: crate::gateway::SchemaStyle::AsIs,
        };
        Gateway::new(settings, Arc::new(Shared::new(Arc::new(Metrics::new()), Guard::none())))
    }

    #[tokio::test]
    async fn a_listener_that_falls_behind_is_told_of_what_it_may_have_missed() {
        let (gateway, caller) = (gateway(), testing::caller(ANYBODY, None));
        let view = gateway.endpoints().find("a", &caller.principal).unwrap();
        let filter = Filter { tools: true, uris: vec![Text::from("x:1"), Text::from("x:2")], ..Filter::default() };
        let mut notices = view.listen(&caller, filter);
        for _ in 0..2000 {
            gateway.hub.publish(Happened::Logged(Text::from("a"), None, Object::new()));
        }
        let next = || unconstrained(notices.stream.next()).now_or_never().flatten();
        let mut told: Vec<String> = std::iter::from_fn(next)
            .map(|notice| match notice {
                Notice::Updated(uri, params) => {
                    assert_eq!(params.text("uri").as_ref(), Some(&uri));
                    uri.to_string()
                }
                other => format!("{other:?}"),
            })
            .collect();
        assert_eq!(told.pop().as_deref(), Some("Changed(Tools)"), "lists are looked at last");
        told.sort();
        assert_eq!(told, ["x:1", "x:2"]);
    }
}
