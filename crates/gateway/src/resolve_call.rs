//! Resolution of a call to its server.
//!
//! Owns the step from the exposed name to the server and its own name. Does not decide who may use
//! it (`permitted.rs`) or start calls (`start_call.rs`). Invariant: a name that may not be used
//! gets the same error as one that does not exist.

use crate::call_route::{CallRoute, check_issuer};
use crate::catalog::Snapshot;
use crate::endpoint::Endpoint;
use crate::permitted::Permitted;
use crate::templates::LookupBudget;
use moongate_jsonrpc::json::{ByteString, RawJson};
use moongate_model::{Call, Caller, Error, ItemKind, McpErrorKind, McpMethod};

impl Endpoint {
    /// Resolves a call to its target, and names the item as its server does. A call that is refused
    /// stays as it was.
    pub(super) fn route(
        &self,
        caller: &Caller,
        call: &mut Call,
    ) -> Result<Permitted<CallRoute>, Error> {
        let snapshot = self.generation.snapshot.load();
        match call.method {
            McpMethod::CallTool => self.resolve_named(&snapshot, caller, ItemKind::Tools, call),
            McpMethod::GetPrompt => self.resolve_named(&snapshot, caller, ItemKind::Prompts, call),
            McpMethod::ReadResource => self.resolve_resource(&snapshot, caller, call),
            McpMethod::Complete => self.resolve_completion(&snapshot, caller, call),
            McpMethod::Task(_) => self.route_task_call(caller, call),
            McpMethod::Other(_) => self.route_extension_call(caller, call),
            McpMethod::List(_) => Err(Error::new(
                McpErrorKind::UnknownMethod,
                format!("Method not found: {}", call.method.name()),
            )),
        }
    }

    fn resolve_named(
        &self,
        snapshot: &Snapshot,
        caller: &Caller,
        kind: ItemKind,
        call: &mut Call,
    ) -> Result<Permitted<CallRoute>, Error> {
        let name = call
            .params
            .get_string("name")
            .ok_or_else(|| Error::without_text(&call.params, "name"))?;
        let what = if kind == ItemKind::Tools {
            "tool"
        } else {
            "prompt"
        };
        let route = self
            .lookup(snapshot, caller, kind, &name)
            .ok_or_else(|| unknown_name(what, &name))?;
        let era = moongate_protocol::era_of(caller.revision);
        // The check needs the definition, which is known only now.
        if let Some(check) = call.deferred_check.take() {
            check(route.definition_for(era), call.params.get("arguments"))?;
        }
        Self::check_task_mode(&route.upstream, call)?;
        check_issuer(&route.upstream, call)?;
        // Most names stay, and then the parameters reach the server as the client's own bytes.
        if route.local != name {
            call.params
                .set(ByteString::literal("name"), route.local_raw.clone());
        }
        call.definition = Some(route.definition_for(era).clone());
        Ok(route.route_call(era))
    }

    fn resolve_resource(
        &self,
        snapshot: &Snapshot,
        caller: &Caller,
        call: &mut Call,
    ) -> Result<Permitted<CallRoute>, Error> {
        let uri = call
            .params
            .get_string("uri")
            .ok_or_else(|| Error::without_text(&call.params, "uri"))?;
        let (server, local) = self.resolve_uri(snapshot, caller, &uri, &LookupBudget::new())?;
        check_issuer(&server, call)?;
        // Most URIs stay, and then the parameters reach the server as the client's own bytes.
        if local != uri {
            call.params
                .set(ByteString::literal("uri"), RawJson::string(&local));
        }
        Ok(server.route_call(self.method_meter(&McpMethod::ReadResource)))
    }

    /// Resolves `completion/complete`. The prompt or template that it refers to decides the server.
    fn resolve_completion(
        &self,
        snapshot: &Snapshot,
        caller: &Caller,
        call: &mut Call,
    ) -> Result<Permitted<CallRoute>, Error> {
        let params = &call.params;
        let mut reference = params.get_object("ref").ok_or_else(wrong_reference)?;
        let is_prompt = reference
            .get_string("type")
            .is_some_and(|t| t.as_str() == "ref/prompt");
        let (server, key, local) = if is_prompt {
            let name = reference.get_string("name").ok_or_else(wrong_reference)?;
            let route = self
                .lookup(snapshot, caller, ItemKind::Prompts, &name)
                .ok_or_else(|| unknown_name("prompt", &name))?;
            (route.server(), "name", route.local.clone())
        } else {
            let uri = reference.get_string("uri").ok_or_else(wrong_reference)?;
            let (server, local) = match self.lookup(snapshot, caller, ItemKind::Templates, &uri) {
                Some(route) => (route.server(), route.local.clone()),
                None => self.resolve_uri(snapshot, caller, &uri, &LookupBudget::new())?,
            };
            (server, "uri", local)
        };
        check_issuer(&server, call)?;
        if reference.get_string(key).as_ref() != Some(&local) {
            reference.set(ByteString::literal(key), RawJson::string(&local));
            call.params
                .set(ByteString::literal("ref"), reference.to_raw());
        }
        Ok(server.route_call(self.method_meter(&McpMethod::Complete)))
    }
}

fn unknown_name(what: &str, name: &str) -> Error {
    Error::new(McpErrorKind::UnknownName, format!("Unknown {what}: {name}"))
}

fn wrong_reference() -> Error {
    Error::new(
        McpErrorKind::InvalidParams,
        "Invalid params: ref must name a prompt or a resource template",
    )
}
