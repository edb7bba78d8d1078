//! Change poller of the event feed: the task that compares states while somebody watches.
//!
//! Owns the task, its intervals, and which members of a status are news. Does not queue events
//! (`event_feed.rs`) or write streams (`event_stream.rs`). Invariant: without a watcher nothing is
//! computed.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::time::Instant;

use crate::admin_state::AdminState;
use crate::calls::call_row;
use crate::config_view::config_state;
use crate::event_feed::{AdminEvent, FeedWatcher, KeptEvents};
use crate::server_signs::ServerSigns;
use crate::sessions::session_rows;
use crate::status::{gateway_status, server_statuses};
use moongate_api::{
    CallFlood, FeedSnapshot, RemovedServer, ServerCounters, ServerStatus, SessionRow, SessionsEvent,
};
use moongate_gateway::RecentCalls;

/// Interval of polling for changes: well below the 300 ms after which a person notices a delay.
const POLL_INTERVAL: Duration = Duration::from_millis(150);
/// Interval of changes that never end while clients are busy. After a pause they are reported at
/// the next poll.
// Nobody reads faster, and each report costs the browser a new table.
const BUSY_INTERVAL: Duration = Duration::from_secs(2);
/// Changes of calls that one poll reports one by one. Of more only their number is reported.
const CALL_CHANGES_MAX: u64 = 20;

/// Adds a watcher, or returns `None` if there are too many.
pub(super) fn watch(admin: &Arc<AdminState>) -> Option<FeedWatcher> {
    admin.events.watch(|| {
        // The first poll happens before the task: later changes are all reported.
        // Weak, or the task would keep the whole gateway alive for a page that nobody closes.
        tokio::spawn(poll_changes(Arc::downgrade(admin), LastPoll::new(admin)));
    })
}

/// State at the last poll, as it was reported.
struct LastPoll {
    reading: LastReading,
    servers: HashMap<String, ServerStatus>,
    sessions: Vec<SessionRow>,
    call_change: u64,
    call_id: u64,
    config_version: u64,
    /// Time of the last report of changes that never end. `None` before the first.
    busy_at: Option<Instant>,
}

/// Last reading of all servers. Read before their statuses, so that a later change is a sign.
struct LastReading {
    at: Instant,
    signs: ServerSigns,
    call_change: u64,
}

impl LastReading {
    fn new(admin: &AdminState) -> Self {
        LastReading {
            at: Instant::now(),
            signs: ServerSigns::read(admin),
            call_change: admin.gateway.recent_calls().last_change(),
        }
    }
}

impl LastPoll {
    fn new(admin: &AdminState) -> Self {
        LastPoll {
            reading: LastReading::new(admin),
            call_change: admin.gateway.recent_calls().last_change(),
            call_id: admin.gateway.recent_calls().last_id(),
            servers: by_name(server_statuses(admin)),
            sessions: session_rows(admin),
            config_version: admin.reloader.config().version,
            busy_at: None,
        }
    }

    /// Finds the changes since the last poll.
    fn changes(&mut self, admin: &AdminState) -> Vec<AdminEvent> {
        let is_due = self.busy_at.is_none_or(|at| at.elapsed() >= BUSY_INTERVAL);
        let mut events = Vec::new();
        if self.needs_reading(admin, is_due) {
            events = self.server_changes(by_name(server_statuses(admin)), is_due);
        }
        events.extend(self.call_changes(admin.gateway.recent_calls(), is_due));
        let sessions = session_rows(admin);
        // Idle times differ at each poll. Only sessions that start or end are news.
        if ids(&sessions) != ids(&self.sessions) {
            let event = SessionsEvent { sessions };
            events.push(AdminEvent::new("sessions", &event));
            self.sessions = event.sessions;
        }
        let config = admin.reloader.config();
        if config.version != self.config_version {
            self.config_version = config.version;
            events.push(AdminEvent::new("config", &config_state(&config)));
        }
        events
    }

    /// Returns true if the servers may differ from their last statuses. Numbers of calls count once
    /// they are due.
    fn needs_reading(&mut self, admin: &AdminState, is_due: bool) -> bool {
        let call_change = admin.gateway.recent_calls().last_change();
        let has_counted = is_due && call_change != self.reading.call_change;
        if !has_counted
            && self.reading.at.elapsed() < BUSY_INTERVAL
            && !self.reading.signs.have_changed(admin)
        {
            return false;
        }
        self.reading = LastReading::new(admin);
        true
    }

    /// Finds servers that changed. Those that only counted calls wait until such changes are due.
    fn server_changes(
        &mut self,
        servers: HashMap<String, ServerStatus>,
        is_due: bool,
    ) -> Vec<AdminEvent> {
        let mut events = Vec::new();
        self.servers.retain(|name, _| {
            let is_there = servers.contains_key(name);
            if !is_there {
                events.push(AdminEvent::new(
                    "server",
                    &RemovedServer {
                        name: name.clone(),
                        removed: true,
                    },
                ));
            }
            is_there
        });
        for (name, server) in servers {
            let before = self.servers.get(&name);
            let is_news =
                before.is_none_or(|before| without_counts(before) != without_counts(&server));
            let has_counted = is_due
                && before.is_some_and(|before| without_times(before) != without_times(&server));
            if has_counted {
                self.busy_at = Some(Instant::now());
            }
            if is_news || has_counted {
                events.push(AdminEvent::new("server", &server));
                self.servers.insert(name, server);
            }
        }
        events
    }

    /// Finds calls that started or ended. If they are many, it counts them when that is due.
    fn call_changes(&mut self, calls: &RecentCalls, is_due: bool) -> Vec<AdminEvent> {
        // Read before the calls: a later change waits for the next poll, also if its slot is read
        // after it.
        let last_change = calls.last_change();
        let last_id = calls.last_id();
        let is_flooded = last_change - self.call_change > CALL_CHANGES_MAX;
        if is_flooded && !is_due {
            return Vec::new();
        }
        let before = (
            std::mem::replace(&mut self.call_change, last_change),
            std::mem::replace(&mut self.call_id, last_id),
        );
        if is_flooded {
            self.busy_at = Some(Instant::now());
            return vec![AdminEvent::new(
                "calls",
                &CallFlood {
                    started: last_id - before.1,
                },
            )];
        }
        let mut calls = calls.changed_since(before.0);
        calls.retain(|call| call.change <= last_change);
        calls
            .iter()
            .map(|call| AdminEvent::new("call", &call_row(call)))
            .collect()
    }
}

/// Builds the event that a watcher gets first.
pub(super) fn snapshot_event(admin: &AdminState) -> AdminEvent {
    let calls = admin.gateway.recent_calls().changed_since(0);
    let snapshot = FeedSnapshot {
        status: gateway_status(admin),
        calls: calls.iter().map(call_row).collect(),
        sessions: session_rows(admin),
        config: config_state(&admin.reloader.config()),
    };
    AdminEvent::new("snapshot", &snapshot)
}

async fn poll_changes(admin: Weak<AdminState>, mut last: LastPoll) {
    let mut kept = KeptEvents::default();
    loop {
        tokio::time::sleep(POLL_INTERVAL).await;
        let Some(admin) = admin.upgrade() else { return };
        if admin.events.stop_if_unwatched() {
            return;
        }
        for event in last.changes(&admin) {
            admin.events.send(kept.push(event));
        }
    }
}

fn by_name(servers: Vec<ServerStatus>) -> HashMap<String, ServerStatus> {
    servers
        .into_iter()
        .map(|server| (server.name().to_owned(), server))
        .collect()
}

/// Returns a status without what changes with the time alone, or with every edit of the file. With
/// that every server would be news at every poll.
fn without_times(server: &ServerStatus) -> ServerStatus {
    let mut server = server.clone();
    (
        server.condition.since_seconds,
        server.condition.next_attempt_seconds,
    ) = (None, None);
    (server.source.line, server.source.etag) = (None, None);
    server
}

/// Returns a status also without what changes with the server's calls, or as often as its program
/// likes.
fn without_counts(server: &ServerStatus) -> ServerStatus {
    let mut server = without_times(server);
    server.condition.stderr.clear();
    // Named one by one: a new counter does not compile until somebody puts it on one side.
    let ServerCounters {
        tools,
        resources,
        prompts,
        tools_on,
        tokens,
        tokens_all,
        // These change with calls.
        connections: _,
        waiting: _,
        inflight: _,
        last_error: _,
        calls: _,
        p50_ms: _,
        p95_ms: _,
    } = server.counters;
    server.counters = ServerCounters {
        tools,
        resources,
        prompts,
        tools_on,
        tokens,
        tokens_all,
        ..ServerCounters::default()
    };
    server
}

fn ids(sessions: &[SessionRow]) -> Vec<&str> {
    sessions.iter().map(|session| session.id.as_str()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use moongate_api::EntrySource;

    #[test]
    fn the_place_of_a_server_in_its_file_is_no_news() {
        let [first, moved, locked] = [(1, true), (2, true), (2, false)].map(|(line, editable)| {
            let source = EntrySource {
                line: Some(line),
                etag: Some(line.to_string()),
                editable,
                ..EntrySource::default()
            };
            without_counts(&ServerStatus {
                source,
                ..ServerStatus::default()
            })
        });
        assert_eq!(first, moved);
        assert_ne!(first, locked);
    }
}
