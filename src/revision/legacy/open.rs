//! The handshake with a legacy server.

use std::sync::Arc;

use http::{HeaderMap, HeaderValue};
use serde::{Deserialize, Serialize};

use crate::json::{Object, Raw, Text};
use crate::jsonrpc::{Id, Message, to_bytes, write_notification, write_request};
use crate::link::{Headers, Link, LinkError, Outgoing};
use crate::model::Face;
use crate::revision::connect::{ConnectError, Hello};
use crate::revision::legacy::{NEWEST, Profile, SESSION_HEADER, VERSION_HEADER, profile, tasks};
use crate::revision::{Calls, notices, v2026_07_28};

/// What the handshake came to.
pub(super) struct Agreed {
    pub(super) profile: &'static Profile,
    pub(super) session: Option<HeaderValue>,
    pub(super) face: Face,
}

impl Agreed {
    /// The headers of every message from here on.
    pub(super) fn headers(&self) -> Headers {
        let version =
            self.profile.version_header.then(|| (VERSION_HEADER, HeaderValue::from_static(self.profile.name)));
        let session = self.session.clone().map(|id| (SESSION_HEADER, id));
        version.into_iter().chain(session).collect()
    }
}

/// An agreement as another process reads it.
#[derive(Serialize, Deserialize)]
struct Kept {
    revision: String,
    session: String,
    face: Face,
}

impl Agreed {
    /// What another process needs to go on with the session.
    pub(super) fn hand_over(&self) -> Option<Raw> {
        let session = self.session.as_ref()?.to_str().ok()?.to_owned();
        Some(Raw::of(&Kept { revision: self.profile.name.to_owned(), session, face: self.face.clone() }))
    }

    fn take_over(kept: &Raw) -> Option<Self> {
        let kept: Kept = kept.read().ok()?;
        let mut session = HeaderValue::from_str(&kept.session).ok()?;
        session.set_sensitive(true);
        Some(Agreed { profile: profile(&kept.revision)?, session: Some(session), face: kept.face })
    }
}

/// Shakes hands: `initialize`, then `notifications/initialized`.
pub(in crate::revision) async fn open(
    link: &Arc<dyn Link>,
    calls: &Calls,
    hello: &Hello,
) -> Result<super::back::Opened, ConnectError> {
    if let Some(agreed) = hello.handed_over.as_ref().and_then(Agreed::take_over) {
        // Where the server has forgotten it, the first call hears so, and opens a new one.
        calls.take_over();
        return Ok(super::back::Opened(agreed));
    }
    handshake(link, calls, hello).await.map(super::back::Opened)
}

pub(super) async fn handshake(link: &Arc<dyn Link>, calls: &Calls, hello: &Hello) -> Result<Agreed, ConnectError> {
    let asked = hello.revision.and_then(profile).unwrap_or(NEWEST);
    let params = Object::new()
        .with("protocolVersion", Raw::string(asked.name))
        // A client's own tasks are not declared: the server would ask for their states outside any call
        // (2025-11-25/basic/utilities/tasks.mdx, Client Capabilities).
        .with("capabilities", v2026_07_28::tasks::declare(&hello.capabilities, false))
        .with("clientInfo", hello.info.clone());
    let id = calls.next_id();
    let body = to_bytes(256, |out| write_request(out, &Id::number(id), "initialize", &params));
    let reply = link.send(Outgoing { body, id: Some(id), headers: Headers::new() }).await?;
    let session = session_id(&reply.headers);
    let agreed = Agreed { session, ..read_answer(first_answer(reply.messages).await?, hello)? };
    let body = to_bytes(64, |out| write_notification(out, "notifications/initialized", &Object::new()));
    link.send(Outgoing { body, id: None, headers: agreed.headers() }).await?;
    Ok(agreed)
}

/// The answer to a request of the gateway's own; whatever comes before it is for nobody.
pub(in crate::revision) async fn first_answer(mut messages: crate::link::Messages) -> Result<Object, ConnectError> {
    use futures_util::StreamExt;
    while let Some(message) = messages.next().await {
        if let Message::Response(response) = message? {
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

fn read_answer(result: Object, hello: &Hello) -> Result<Agreed, ConnectError> {
    let version = result.text("protocolVersion");
    // 2025-11-25/basic/lifecycle.mdx, Version Negotiation: "If the client does not support the version in the
    // server's response, it SHOULD disconnect."
    let Some(profile) = version.as_deref().and_then(profile) else {
        let spoken = version.as_deref().unwrap_or("none at all");
        return Err(ConnectError::NoCommonRevision(format!(
            "it answered initialize with the unsupported revision {spoken:?}"
        )));
    };
    let info = result.get("serverInfo").filter(|info| info.is_object()).cloned();
    let capabilities = result.object("capabilities").unwrap_or_default();
    let mut features = notices::features(&capabilities, hello);
    let denied = |resources: Object| resources.get("subscribe").is_some_and(|said| &said.bytes()[..] == b"false");
    features.subscribe_untried = capabilities.object("resources").is_some_and(denied);
    features.tasks = if profile.tasks { tasks::features(&capabilities) } else { None };
    let instructions = result.text("instructions").as_ref().map(Text::to_string);
    let face = Face { info: info.unwrap_or_else(|| Raw::literal("{}")), instructions, features };
    Ok(Agreed { profile, session: None, face })
}
