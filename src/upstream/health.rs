//! Whether a connection that nobody uses still leads to its server.
//!
//! Owns when a server is asked; the question is its revision's, and where that has none, none is put. Invariant: a
//! server is not asked while its calls show that it is there.

use tokio::time::timeout;

use crate::upstream::{Active, Upstream};

/// Waits until the server has left so many pings unanswered, and says so.
pub(super) async fn lost(upstream: &Upstream, active: &Active) -> String {
    let (settings, name) = (&upstream.settings.ping, &upstream.settings.name);
    if settings.interval.is_zero() {
        return std::future::pending().await;
    }
    let mut seen = active.calls.last();
    let mut missed = 0;
    loop {
        // What may be gone is asked again sooner.
        tokio::time::sleep(if missed == 0 { settings.interval } else { settings.timeout }).await;
        let busy = !active.calls.are_over() || active.calls.last() != seen;
        if busy {
            (missed, seen) = (0, active.calls.last());
            continue;
        }
        let Some(ping) = active.server.ping() else { return std::future::pending().await };
        let answered = timeout(settings.timeout, ping).await.unwrap_or(false);
        seen = active.calls.last();
        if answered {
            missed = 0;
            continue;
        }
        missed += 1;
        upstream.shared.metrics.pings_missed.with_label_values(&[name]).inc();
        if missed >= settings.misses {
            let limit = settings.timeout;
            return format!("it left {missed} pings unanswered, each for {limit:?} (servers.{name}.ping)");
        }
    }
}
