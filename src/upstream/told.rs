//! News of a connection beside the main one.
//!
//! Owns where they go: to the connection's own clients, and to everybody's lists. Does not listen (`ears`). Invariant: what
//! is told on one client's connection reaches no other client, except that a list changed.

use crate::json::Text;
use crate::model::{Kind, Notice};
use crate::upstream::added::Adding;
use crate::upstream::connect::Active;
use crate::upstream::ears::Owner;
use crate::upstream::elsewhere::{Elsewhere, Teller};
use crate::upstream::{News, ServerSettings, Share, Sink, Upstream};

/// Where news of such a connection go.
pub(super) struct Told {
    lists: Teller,
    sink: Sink,
    /// Where all clients are to share what is listed: what this connection adds to it.
    adding: Option<Adding>,
}

impl Told {
    pub(super) fn new(upstream: &Upstream, key: &Text, owner: Owner) -> Self {
        let adding = (upstream.settings.share == Share::Auto).then(|| Adding::new(&upstream.added, key.clone()));
        Told { lists: Elsewhere::teller(&upstream.elsewhere, owner), sink: upstream.sink.clone(), adding }
    }

    /// Tells whether lists are to be heard of, whoever listens to them.
    pub(super) fn wants_lists(&self) -> bool {
        self.adding.is_some()
    }

    pub(super) fn tell(&self, server: &str, notice: Notice) {
        match notice {
            Notice::Changed(kind) => match &self.adding {
                Some(adding) => adding.change(kind),
                None => self.lists.changed(kind),
            },
            Notice::Missed(kind) => self.lists.missed(kind),
            // Which of its owner's clients was sent to that page is known by the elicitation's id.
            Notice::Elicited(id, params) => (self.sink)(server, News::Elicited(id, params)),
            notice @ (Notice::Updated(..) | Notice::Log(..)) => {
                (self.sink)(server, News::Own(self.lists.owner().clone(), Box::new(notice)));
            }
            _ => {}
        }
    }

    /// Takes the lists that change there, for as long as the connection is watched.
    pub(super) async fn take_lists(&self, active: &Active, settings: &ServerSettings) {
        match &self.adding {
            Some(adding) => adding.follow(active, settings, |kind| self.lists.changed(kind)).await,
            None => std::future::pending().await,
        }
    }

    /// Notes that the connection has ended: what it added is listed no longer.
    pub(super) fn end(&self) {
        let shorter = |kind: Kind| self.lists.missed(kind);
        if let Some(adding) = &self.adding {
            adding.end(shorter);
        }
    }
}
