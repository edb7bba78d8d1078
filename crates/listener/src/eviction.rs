//! Choice of the connections that make room for another.
//!
//! Owns the order in which connections go. Does not close them (`connection_limit.rs`). Invariant:
//! a connection with an open admitted request is never chosen.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::connection_limit::ConnectionSlot;

/// Time in which a connection is safe from eviction, after its start or its last admitted request.
// A new client needs a moment to send its first request, and a busy one to send its next.
const EVICTION_GRACE: Duration = Duration::from_secs(1);
/// Part of all slots that make room at once, if so many connections never had an admitted request.
// The choice examines every connection, so under a flood one choice has to serve for many.
const SHARE_AT_ONCE: usize = 64;
/// The same where open files are short. Nobody can be accepted then until some are free.
const SHARE_WITHOUT_FILES: usize = 4;

/// Connections that make room, or the time until one can.
pub(super) enum Eviction {
    Chosen(Vec<Arc<ConnectionSlot>>),
    Wait(Duration),
}

/// Chooses among the connections of a limit of this size.
///
/// Connections that never had an admitted request go first, the oldest of them. If they take more
/// than half of the slots, their time of grace does not count: a flood of them must not use up
/// everybody's.
pub(super) fn choose<'a>(
    slots: impl Iterator<Item = &'a Arc<ConnectionSlot>>,
    limit: usize,
) -> Eviction {
    choose_share(slots, limit, limit / SHARE_AT_ONCE)
}

/// Chooses where open files are short, and the limit itself may be far away.
pub(super) fn choose_without_files<'a>(
    slots: impl ExactSizeIterator<Item = &'a Arc<ConnectionSlot>>,
) -> Eviction {
    let open = slots.len();
    choose_share(slots, open, open / SHARE_WITHOUT_FILES)
}

fn choose_share<'a>(
    slots: impl Iterator<Item = &'a Arc<ConnectionSlot>>,
    limit: usize,
    at_once: usize,
) -> Eviction {
    let now = Instant::now();
    let mut newcomers = Vec::new();
    let mut idlest = None;
    let mut next = EVICTION_GRACE;
    // Connections that were already asked to leave aren't evicted a second time.
    for slot in slots.filter(|slot| !slot.is_evicted() && !slot.is_for_probes) {
        let Some(since) = slot.idle_since() else {
            continue;
        };
        let left = (since + EVICTION_GRACE).saturating_duration_since(now);
        if !left.is_zero() {
            next = next.min(left);
        }
        if !slot.had_requests() {
            newcomers.push((since, slot));
        } else if left.is_zero() && idlest.is_none_or(|(before, _)| since < before) {
            idlest = Some((since, slot));
        }
    }
    let is_crowded = newcomers.len() > limit / 2;
    newcomers.sort_unstable_by_key(|(since, _)| *since);
    newcomers.truncate(at_once.max(1));
    newcomers.retain(|(since, _)| is_crowded || *since + EVICTION_GRACE <= now);
    if !newcomers.is_empty() {
        return Eviction::Chosen(
            newcomers
                .into_iter()
                .map(|(_, slot)| slot.clone())
                .collect(),
        );
    }
    idlest.map_or(Eviction::Wait(next), |(_, slot)| {
        Eviction::Chosen(vec![slot.clone()])
    })
}

/// Returns the oldest connection in a slot for probes, without an open admitted request.
pub(super) fn oldest_for_probes<'a>(
    slots: impl Iterator<Item = &'a Arc<ConnectionSlot>>,
) -> Option<Arc<ConnectionSlot>> {
    let idle = slots.filter(|slot| slot.is_for_probes && !slot.is_evicted());
    let idle = idle.filter_map(|slot| Some((slot.idle_since()?, slot)));
    idle.min_by_key(|(since, _)| *since)
        .map(|(_, slot)| slot.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(slots: &[Arc<ConnectionSlot>], limit: usize) -> Vec<usize> {
        match choose(slots.iter(), limit) {
            Eviction::Chosen(chosen) => {
                let indices = chosen
                    .iter()
                    .filter_map(|one| slots.iter().position(|slot| Arc::ptr_eq(slot, one)));
                indices.collect()
            }
            Eviction::Wait(_) => Vec::new(),
        }
    }

    fn slot() -> Arc<ConnectionSlot> {
        Arc::new(ConnectionSlot::new())
    }

    fn serve_one(slot: &Arc<ConnectionSlot>) {
        slot.begin().admit();
    }

    #[tokio::test(start_paused = true)]
    async fn a_flood_of_newcomers_costs_no_idle_client_its_place() {
        let idle = slot();
        tokio::time::sleep(Duration::from_millis(5)).await;
        serve_one(&idle);
        tokio::time::sleep(EVICTION_GRACE * 10).await;
        let mut slots = vec![idle];
        // A few that are new have their time. The idle client goes.
        slots.extend([slot(), slot()]);
        assert_eq!(chosen(&slots, 10), [0]);
        // Many that are new have none: the oldest goes at once, and the idle client stays.
        tokio::time::sleep(Duration::from_millis(5)).await;
        slots.extend((0..5).map(|_| slot()));
        assert_eq!(chosen(&slots, 10), [1]);
        // After their time, they go whatever their number is.
        tokio::time::sleep(EVICTION_GRACE).await;
        slots.truncate(2);
        assert_eq!(chosen(&slots, 10), [1]);
    }

    #[tokio::test(start_paused = true)]
    async fn one_look_frees_many_places_in_a_large_flood() {
        let slots: Vec<_> = (0..1000).map(|_| slot()).collect();
        assert_eq!(chosen(&slots, 1000).len(), 1000 / SHARE_AT_ONCE);
        // Far from the limit they have their time of grace, unless open files are short.
        assert!(chosen(&slots, 16_384).is_empty());
        assert!(matches!(choose_without_files(slots.iter()),
                Eviction::Chosen(slots) if slots.len() == 250));
        let busy: Vec<_> = slots.iter().map(|slot| slot.begin()).collect();
        busy.iter().for_each(|request| request.admit());
        assert!(chosen(&slots, 1000).is_empty(), "all of them work");
    }
}
