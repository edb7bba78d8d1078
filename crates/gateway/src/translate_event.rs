//! Translation of servers' events for the subscribers of one endpoint.
//!
//! Owns the exposed form of an event. Does not distribute events (`events.rs`). Invariant: an event
//! of a server reaches only endpoints that include the server, and only its audience.

use std::sync::Arc;

use crate::endpoint::Endpoint;
use crate::templates::LookupBudget;
use moongate_jsonrpc::json::{ByteString, JsonObject, RawJson};
use moongate_model::{Caller, Notification};
use moongate_upstream::UpstreamEvent;

impl Endpoint {
    /// Translates an event for a subscriber on this endpoint. Returns `None` if it is of no concern
    /// there.
    pub(super) fn translate_event(
        &self,
        caller: &Arc<Caller>,
        event: UpstreamEvent,
    ) -> Option<Notification> {
        let UpstreamEvent {
            server,
            audience,
            notification,
        } = event;
        if !audience.includes(caller) || !self.includes(&server) {
            return None;
        }
        match notification {
            Notification::ResourceUpdated(local, params) => {
                Some(self.expose_update(&server, local, params))
            }
            Notification::TaskStatus(mut task) => {
                let upstream = self
                    .generation
                    .servers
                    .iter()
                    .find(|upstream| upstream.name == server)?;
                self.task_naming(caller, upstream).expose_task(&mut task);
                Some(Notification::TaskStatus(task))
            }
            extension @ Notification::Extension(..) => self
                .permits_extensions(&caller.principal)
                .then_some(extension),
            other => Some(other),
        }
    }

    fn expose_update(
        &self,
        server: &ByteString,
        local: ByteString,
        mut params: JsonObject,
    ) -> Notification {
        let uri = if self.keeps_local_names() {
            None
        } else {
            self.gateway
                .exposed_uri(server, &local, &LookupBudget::new())
        };
        if let Some(uri) = &uri {
            params.set(ByteString::literal("uri"), RawJson::string(uri));
        }
        Notification::ResourceUpdated(uri.unwrap_or(local), params)
    }
}
