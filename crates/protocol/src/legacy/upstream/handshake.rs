//! Handshake with a legacy server.
//!
//! Owns `initialize`, its result and the snapshot of a session for another process. Does not keep
//! the session. Invariant: session ids are marked as sensitive.

use std::sync::Arc;

use http::{HeaderMap, HeaderValue};
use serde::{Deserialize, Serialize};

use crate::connect_error::ConnectError;
use crate::connect_options::ConnectOptions;
use crate::era::VERSION_HEADER;
use crate::legacy::profile::{Profile, SESSION_HEADER, profile};
use crate::legacy::tasks;
use crate::legacy::upstream::greeting::LegacyGreeting;
use crate::unannounced_lists::find_unannounced_lists;
use crate::{PendingCalls, server_capabilities};
use moongate_jsonrpc::json::{ByteString, JsonObject, RawJson};
use moongate_jsonrpc::message::{
    RequestId, RpcMessage, encode_with, write_notification, write_request,
};
use moongate_model::ServerDescription;
use moongate_transport::{HeaderList, Link, LinkError, OutgoingMessage};

/// Note on a server that took the handshake only without capabilities.
const ASKS_NOTHING: &str = "it refuses handshakes that declare capabilities, so it cannot ask its \
                            clients for anything (elicitation, sampling, roots)";

/// Result of the handshake.
pub(crate) struct LegacyNegotiated {
    pub(crate) profile: &'static Profile,
    pub(crate) session: Option<HeaderValue>,
    pub(crate) description: ServerDescription,
}

impl LegacyNegotiated {
    /// Returns the headers of all later messages.
    pub(crate) fn headers(&self) -> HeaderList {
        let version = self
            .profile
            .version_header
            .then(|| (VERSION_HEADER, HeaderValue::from_static(self.profile.name)));
        let session = self.session.clone().map(|id| (SESSION_HEADER, id));
        version.into_iter().chain(session).collect()
    }
}

/// Snapshot of a session as another process reads it.
#[derive(Serialize, Deserialize)]
struct SessionSnapshot {
    revision: String,
    session: String,
    #[serde(rename = "face")]
    description: ServerDescription,
}

impl LegacyNegotiated {
    /// Exports the state that another process needs to continue the session.
    pub(crate) fn export_session(&self) -> Option<RawJson> {
        let session = self.session.as_ref()?.to_str().ok()?.to_owned();
        Some(RawJson::from_value(&SessionSnapshot {
            revision: self.profile.name.to_owned(),
            session,
            description: self.description.clone(),
        }))
    }

    fn import_session(snapshot: &RawJson) -> Option<Self> {
        let snapshot: SessionSnapshot = snapshot.parse_as().ok()?;
        let mut session = HeaderValue::from_str(&snapshot.session).ok()?;
        // Sensitive values stay out of debug output: the id is a credential.
        session.set_sensitive(true);
        Some(LegacyNegotiated {
            profile: profile(&snapshot.revision)?,
            session: Some(session),
            description: snapshot.description,
        })
    }
}

/// Opens the server: `initialize`, then `notifications/initialized`; or continues a persisted
/// session.
pub(crate) async fn open(
    link: &Arc<dyn Link>,
    calls: &PendingCalls,
    options: &ConnectOptions,
) -> Result<CompletedHandshake, ConnectError> {
    if let Some(negotiated) = options
        .persisted_session
        .as_ref()
        .and_then(LegacyNegotiated::import_session)
    {
        // If the server has forgotten the session, the first call finds out and opens a new one.
        calls.continue_ids();
        return Ok(CompletedHandshake(negotiated));
    }
    handshake(link, calls, options)
        .await
        .map(CompletedHandshake)
}

pub(crate) async fn handshake(
    link: &Arc<dyn Link>,
    calls: &PendingCalls,
    options: &ConnectOptions,
) -> Result<LegacyNegotiated, ConnectError> {
    // 2025-11-25/basic/lifecycle.mdx, Version Negotiation: "the client MUST send a protocol version
    // it supports. This SHOULD be the _latest_ version supported by the client."
    let greeting = options
        .greeting
        .unwrap_or_else(|| LegacyGreeting::first(options.revision));
    let capabilities = declared_capabilities(calls, options, greeting);
    let params = JsonObject::new()
        .with("protocolVersion", RawJson::string(greeting.revision()))
        .with("capabilities", greeting.capabilities(&capabilities))
        .with("clientInfo", greeting.client_info(&options.client_info));
    let id = calls.next_id();
    let body = encode_with(256, |out| {
        write_request(out, &RequestId::number(id), "initialize", &params)
    });
    let reply = link
        .send(OutgoingMessage {
            body,
            id: Some(id),
            headers: HeaderList::new(),
        })
        .await?;
    let session = session_id(&reply.headers);
    let mut negotiated = LegacyNegotiated {
        session,
        ..read_initialize_result(first_response(reply.messages).await?, options)?
    };
    // 2025-11-25/basic/lifecycle.mdx, Initialization: "After successful initialization, the client
    // MUST send an `initialized` notification to indicate it is ready to begin normal operations".
    let body = encode_with(64, |out| {
        write_notification(out, "notifications/initialized", &JsonObject::new())
    });
    let headers = negotiated.headers();
    link.send(OutgoingMessage {
        body,
        id: None,
        headers: headers.clone(),
    })
    .await?;
    if greeting.is_bare() {
        negotiated.description.notes.push(ASKS_NOTHING.to_owned());
    }
    find_unannounced_lists(&mut negotiated.description, |kind| {
        send_request(link, calls, kind.list_method(), headers.clone())
    })
    .await;
    Ok(negotiated)
}

/// Returns the capabilities to declare. On a connection of several clients, roots are declared to
/// find out whether the server asks for them, and no longer once it did: no client's roots are for
/// all.
fn declared_capabilities(
    calls: &PendingCalls,
    options: &ConnectOptions,
    greeting: LegacyGreeting,
) -> RawJson {
    if options.is_shared {
        calls.roots_owner().mark_shared();
    }
    // A server that refused the first form may refuse any member, so that the later ones have none
    // that is a trial.
    let is_trial = options.is_shared
        && !calls.asks_roots()
        && greeting == LegacyGreeting::first(options.revision);
    match options.capabilities.as_object() {
        Some(capabilities) if is_trial => {
            calls.roots_owner().mark_trial();
            capabilities
                .with("roots", RawJson::literal(r#"{"listChanged":true}"#))
                .to_raw()
        }
        _ => options.capabilities.clone(),
    }
}

/// Sends a request without params, and returns its result.
async fn send_request(
    link: &Arc<dyn Link>,
    calls: &PendingCalls,
    method: &str,
    headers: HeaderList,
) -> Result<JsonObject, ConnectError> {
    let id = calls.next_id();
    let body = encode_with(64, |out| {
        write_request(out, &RequestId::number(id), method, &JsonObject::new())
    });
    first_response(
        link.send(OutgoingMessage {
            body,
            id: Some(id),
            headers,
        })
        .await?
        .messages,
    )
    .await
}

/// Returns the response to one of the gateway's own requests. Messages before it have no receiver.
pub(crate) async fn first_response(
    mut messages: moongate_transport::MessageStream,
) -> Result<JsonObject, ConnectError> {
    use futures_util::StreamExt;
    while let Some(message) = messages.next().await {
        if let RpcMessage::Response(response) = message? {
            return response.outcome.map_err(ConnectError::Answered);
        }
    }
    Err(LinkError::Protocol("the stream ended without an answer".to_owned()).into())
}

fn session_id(headers: &HeaderMap) -> Option<HeaderValue> {
    headers.get(SESSION_HEADER).cloned().map(|mut id| {
        id.set_sensitive(true);
        id
    })
}

fn read_initialize_result(
    result: JsonObject,
    options: &ConnectOptions,
) -> Result<LegacyNegotiated, ConnectError> {
    let version = result.get_string("protocolVersion");
    // 2025-11-25/basic/lifecycle.mdx, Version Negotiation: "If the client does not support the
    // version in the server's response, it SHOULD disconnect."
    let Some(profile) = version.as_deref().and_then(profile) else {
        let spoken = version.as_deref().unwrap_or("none at all");
        return Err(ConnectError::NoCommonRevision(format!(
            "it answered initialize with the unsupported revision {spoken:?}"
        )));
    };
    let info = result
        .get("serverInfo")
        .filter(|info| info.is_object())
        .cloned();
    let announced = result.get_object("capabilities").unwrap_or_default();
    let mut capabilities = server_capabilities::read_capabilities(&announced, options);
    // `false` is not the same as a missing member here: see `subscription_trial.rs`.
    capabilities.subscribe_untried = announced.get_object("resources").is_some_and(|resources| {
        resources
            .get("subscribe")
            .is_some_and(|flag| &flag.bytes()[..] == b"false")
    });
    capabilities.tasks = if profile.tasks {
        tasks::read_capability(&announced)
    } else {
        None
    };
    let instructions = result
        .get_string("instructions")
        .as_ref()
        .map(ByteString::to_string);
    let description = ServerDescription {
        info: info.unwrap_or_else(|| RawJson::literal("{}")),
        instructions,
        capabilities,
        notes: Vec::new(),
    };
    Ok(LegacyNegotiated {
        profile,
        session: None,
        description,
    })
}

/// Server after its handshake.
pub(crate) struct CompletedHandshake(pub(crate) LegacyNegotiated);

impl CompletedHandshake {
    /// Returns the negotiated revision.
    pub(crate) fn revision(&self) -> &'static str {
        self.0.profile.name
    }
}
