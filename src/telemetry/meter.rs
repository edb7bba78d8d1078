//! Handles to the operation histograms, found once and kept: a label look-up for each call would show.

use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use prometheus::Histogram;

use crate::telemetry::Metrics;

/// What one item of the catalogue, or one method, is measured by.
pub struct Meter {
    metrics: Arc<Metrics>,
    method: String,
    server: String,
    tool: String,
    /// Handles for success, by the client's revision; there are no more than there are revisions.
    known: RwLock<Vec<(&'static str, Handles)>>,
}

#[derive(Clone)]
struct Handles {
    server_operation: Histogram,
    /// Only where there is a server.
    client_operation: Option<Histogram>,
}

/// Makes meters.
#[derive(Clone)]
pub struct Meters(pub Arc<Metrics>);

impl Meters {
    /// A meter; `server` and `tool` are empty where there is none.
    pub fn meter(&self, method: &str, server: &str, tool: &str) -> Meter {
        Meter {
            metrics: self.0.clone(),
            method: method.to_owned(),
            server: server.to_owned(),
            tool: tool.to_owned(),
            known: RwLock::default(),
        }
    }
}

impl Meter {
    /// Records a call that ended: all of its time and the server's part of it.
    pub fn record(
        &self,
        revision: &'static str,
        error: Option<&'static str>,
        total: Duration,
        server: Option<Duration>,
    ) {
        let handles = self.handles(revision, error);
        handles.server_operation.observe(total.as_secs_f64());
        if let (Some(server), Some(client_operation)) = (server, &handles.client_operation) {
            client_operation.observe(server.as_secs_f64());
            self.metrics.overhead.observe(total.saturating_sub(server).as_secs_f64());
        }
    }

    fn handles(&self, revision: &'static str, error: Option<&'static str>) -> Handles {
        if error.is_none() {
            let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
            if let Some((_, handles)) = known.iter().find(|(r, _)| *r == revision) {
                return handles.clone();
            }
        }
        let labels = [self.method.as_str(), &self.server, &self.tool, error.unwrap_or_default(), revision];
        let handles = Handles {
            server_operation: self.metrics.server_operation.with_label_values(&labels),
            client_operation: self.client_operation(&labels),
        };
        if error.is_none() {
            let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
            known.push((revision, handles.clone()));
        }
        handles
    }

    /// A call that leads to no item was routed to no server that the labels could name.
    fn client_operation(&self, labels: &[&str]) -> Option<Histogram> {
        (!self.server.is_empty()).then(|| self.metrics.client_operation.with_label_values(labels))
    }
}
