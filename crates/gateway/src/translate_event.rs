//! Translation of servers' events for the subscribers of one endpoint.
//!
//! Owns the exposed form of an event. Does not distribute events (`events.rs`). Invariant: an event of a server reaches
//! only endpoints that include the server.

use std::sync::Arc;

use crate::endpoint::Endpoint;
use crate::events::GatewayEvent;
use crate::templates::LookupBudget;
use moongate_jsonrpc::json::{ByteString, RawJson};
use moongate_model::{Caller, Notification};

impl Endpoint {
    /// Translates an event for a subscriber on this endpoint. Returns `None` if it is of no concern there.
    pub(super) fn translate_event(&self, caller: &Arc<Caller>, happened: GatewayEvent) -> Option<Notification> {
        match happened {
            GatewayEvent::LogMessage(server, level, params) => {
                self.includes(&server).then_some(Notification::Log(level, params))
            }
            GatewayEvent::ElicitationCompleted(server, id, params) => {
                self.includes(&server).then_some(Notification::ElicitationComplete(id, params))
            }
            GatewayEvent::TaskChanged(server, mut task) => {
                let upstream = self.generation.servers.iter().find(|u| u.name == server && self.includes(&server))?;
                self.task_naming(caller, upstream).expose_task(&mut task);
                Some(Notification::TaskStatus(task))
            }
            // The subscriber compares its lists to find out whether a change is visible to it.
            GatewayEvent::ListChanged(..) | GatewayEvent::Reconfigured => None,
            GatewayEvent::FromDedicatedConnection(server, owner, notice) if owner.matches(caller) => match *notice {
                Notification::ResourceUpdated(uri, params) => {
                    self.translate_event(caller, GatewayEvent::ResourceUpdated(server, uri, params))
                }
                Notification::Log(level, params) => {
                    self.translate_event(caller, GatewayEvent::LogMessage(server, level, params))
                }
                Notification::ListChanged(kind) => self.includes(&server).then_some(Notification::ListChanged(kind)),
                _ => None,
            },
            GatewayEvent::FromDedicatedConnection(..) => None,
            GatewayEvent::ResourceUpdated(server, local, mut params) => {
                if !self.includes(&server) {
                    return None;
                }
                let exposed = || self.gateway.exposed_uri(&server, &local, &LookupBudget::new());
                let uri = if self.keeps_local_names() { None } else { exposed() };
                if let Some(uri) = &uri {
                    params.set(ByteString::literal("uri"), RawJson::string(uri));
                }
                Some(Notification::ResourceUpdated(uri.unwrap_or(local), params))
            }
        }
    }
}
