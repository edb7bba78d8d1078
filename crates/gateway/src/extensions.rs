//! Extensions of the protocol at a server's own endpoint.
//!
//! Owns what passes of them, and what is announced. Does not decide who may use them
//! (`permitted.rs`). Invariant: a method that no rule can judge reaches a server only for a caller
//! to whom the rules leave everything of that server.

use std::sync::Arc;

use crate::call_route::CallRoute;
use crate::endpoint::Endpoint;
use crate::expose;
use crate::permitted::Permitted;
use moongate_jsonrpc::json::JsonObject;
use moongate_model::{
    Call, Caller, Error, InputKind, InputRequired, McpErrorKind, Notification, Principal,
    ServerDescription,
};

impl Endpoint {
    /// Returns true if the principal may use the extensions of this endpoint's server.
    pub(super) fn permits_extensions(&self, principal: &Principal) -> bool {
        self.permit_extensions(principal).is_some()
    }

    /// Routes a call of a method that no revision has.
    pub(super) fn route_extension_call(
        &self,
        caller: &Caller,
        call: &Call,
    ) -> Result<Permitted<CallRoute>, Error> {
        let server = self.permit_extensions(&caller.principal).ok_or_else(|| {
            Error::new(
                McpErrorKind::UnknownMethod,
                format!("Method not found: {}", call.method.name()),
            )
        })?;
        Ok(server.route_call(self.method_meter(&call.method)))
    }

    /// Passes a client's notification on to the server.
    pub(super) fn notify_extension(&self, caller: &Arc<Caller>, notification: Notification) {
        if let Some(server) = self.permit_extensions(&caller.principal) {
            server.upstream.notify_extension(caller, notification);
        }
    }

    /// Merges the servers' announcements of one kind for a caller: those that work here.
    pub(super) fn merge_announcements<'a>(
        &self,
        principal: &Principal,
        descriptions: &'a [ServerDescription],
        of: fn(&'a ServerDescription) -> &'a JsonObject,
    ) -> JsonObject {
        let mut announced = expose::merge_extensions(descriptions.iter().map(of));
        if !self.permits_extensions(principal) {
            announced.retain(moongate_protocol::is_bridged_extension);
        }
        announced
    }
}

/// Returns the error for a server's request that belongs to an extension, if its client may use
/// none.
pub(super) fn extension_error(input: &InputRequired) -> Option<Error> {
    let (_, request) = input
        .requests
        .iter()
        .find(|(_, request)| request.kind == InputKind::Extension)?;
    let message = format!(
        "The server asks the client for {}, which is an extension's",
        request.method
    );
    Some(Error::new(McpErrorKind::CannotCross, message))
}
