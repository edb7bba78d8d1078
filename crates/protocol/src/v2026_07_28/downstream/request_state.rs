//! `requestState` as clients of this revision carry it: always sealed by the gateway.
//!
//! basic/patterns/mrtr.mdx, Server Requirements: "servers MUST treat `requestState` as an
//! attacker-controlled input". Owns the content of the sealed bytes and their bindings. Does not
//! own the key (`session`). Invariant: a server's state goes back to that server alone, byte for
//! byte. It is valid only in a retry of the same request by the same caller at the same endpoint.

use bytes::Bytes;
use moongate_telemetry::StateRefusal;

use crate::dialect::DownstreamState;
use moongate_jsonrpc::json::{ByteString, JsonObject, RawJson};
use moongate_model::{Error, McpErrorKind, McpMethod, Principal};
use moongate_session::{OpenedState, ParkTicket, SealBinding, SealError, SealMark};

/// State carried by a client.
#[derive(Debug, PartialEq)]
pub(crate) enum CarriedState {
    /// ParkTicket of a parked exchange, whose server holds the state (`StateHolder::Server`).
    HeldByServer(ParkTicket),
    /// State of a server that kept nothing itself (`StateHolder::Client`).
    HeldByClient {
        /// Name of the server.
        server: Option<ByteString>,
        /// State from the server: a JSON value.
        state: RawJson,
    },
}

/// Parts of a request that its state is bound to.
pub(crate) struct StateContext {
    method: McpMethod,
    /// Name of the tool or prompt, or URI of the resource.
    target: Option<ByteString>,
    arguments: Option<RawJson>,
}

/// Bindings of one request's state.
pub(crate) struct StateBindings {
    caller: SealBinding,
    request: SealBinding,
}

impl StateContext {
    /// Reads the context of a request. Shares the request's bytes.
    pub(crate) fn from_request(
        method: &McpMethod,
        target: Option<ByteString>,
        params: &JsonObject,
    ) -> Self {
        StateContext {
            method: method.clone(),
            target,
            arguments: params.get("arguments").cloned(),
        }
    }

    /// True if the request may get input requests.
    ///
    /// "Servers MUST NOT send `InputRequiredResult` responses on any other client requests".
    pub(crate) fn allows_input(&self) -> bool {
        matches!(
            self.method,
            McpMethod::CallTool | McpMethod::GetPrompt | McpMethod::ReadResource
        )
    }

    /// Returns the method.
    pub(crate) fn method(&self) -> &McpMethod {
        &self.method
    }

    /// Returns the bindings to the caller and to the request.
    ///
    /// "The authenticated principal", and "an identifier for the originating request, e.g. the
    /// method name and a digest of its salient parameters".
    pub(crate) fn bindings(&self, principal: &Principal, scope: &ByteString) -> StateBindings {
        let mut arguments = Vec::new();
        if let Some(raw) = &self.arguments {
            canonical(raw, &mut arguments, DEPTH_MAX);
        }
        let target = self.target.as_ref().map_or("", ByteString::as_str);
        StateBindings {
            caller: SealBinding::of(&[&principal.key, scope.as_bytes()]),
            request: SealBinding::of(&[
                self.method.name().as_bytes(),
                target.as_bytes(),
                &arguments,
            ]),
        }
    }
}

// The tag is sealed, too: a server's own state can never be taken for a ticket.
const PARKED: u8 = 1;
const SERVER: u8 = 2;

impl CarriedState {
    /// Seals the state into a JSON string for the client.
    pub(crate) fn seal(&self, bindings: &StateBindings, state: &DownstreamState) -> RawJson {
        // 2026-07-28/basic/patterns/mrtr.mdx, Server Requirements: the payload SHOULD have "a short
        // expiry (TTL), rejecting state presented after it lapses". A parked call waits no longer
        // than that.
        RawJson::string(&state.seal.seal(
            bindings.caller,
            bindings.request,
            &self.write(),
            state.input_timeout,
        ))
    }

    fn write(&self) -> Vec<u8> {
        let mut plain = Vec::new();
        match self {
            CarriedState::HeldByServer(ticket) => {
                plain.push(PARKED);
                plain.extend_from_slice(&ticket.0);
            }
            CarriedState::HeldByClient { server, state } => {
                let server = server.as_ref().map_or("", ByteString::as_str);
                plain.push(SERVER);
                // The length first, so that no two states share their bytes.
                plain.extend_from_slice(&(server.len() as u64).to_be_bytes());
                plain.extend_from_slice(server.as_bytes());
                plain.extend_from_slice(state.bytes());
            }
        }
        plain
    }

    /// Opens the state from a client, and returns the mark of its seal, too. Fails with the error
    /// for the client.
    pub(crate) fn open(
        value: &RawJson,
        bindings: &StateBindings,
        state: &DownstreamState,
    ) -> Result<(CarriedState, SealMark), Error> {
        let opened = match value.as_text() {
            Some(text) => state.seal.open(bindings.caller, bindings.request, &text),
            // The gateway hands out strings only.
            None => Err(SealError::Foreign),
        };
        let read = opened.and_then(|OpenedState { plain, mark }| {
            CarriedState::read(plain)
                .map(|state| (state, mark))
                .ok_or(SealError::Foreign)
        });
        read.map_err(|refused| self::state_error(refused, state))
    }

    fn read(plain: Vec<u8>) -> Option<CarriedState> {
        let plain = Bytes::from(plain);
        match *plain.first()? {
            PARKED => Some(CarriedState::HeldByServer(ParkTicket(
                plain[1..].try_into().ok()?,
            ))),
            SERVER => {
                let length =
                    usize::try_from(u64::from_be_bytes(plain.get(1..9)?.try_into().ok()?)).ok()?;
                let end = length.checked_add(9)?;
                let server = std::str::from_utf8(plain.get(9..end)?).ok()?;
                let server = (!server.is_empty()).then(|| ByteString::from(server));
                Some(CarriedState::HeldByClient {
                    server,
                    state: RawJson::parse(plain.slice(end..)).ok()?,
                })
            }
            _ => None,
        }
    }
}

/// Builds the error for unusable state. It helps the sender and reveals nothing about other
/// clients.
pub(crate) fn state_error(refused: SealError, state: &DownstreamState) -> Error {
    state
        .metrics
        .inputs
        .state_refused
        .inc(StateRefusal(refused.label()));
    let why = match refused {
        // One text for both: an own text for another caller's state would confirm that it exists.
        SealError::Foreign | SealError::OtherCaller => {
            "it was not issued here, was changed, or is older than the last restart of the gateway"
        }
        SealError::OtherRequest => {
            "it was issued for another request: a retry must repeat the name and arguments"
        }
        SealError::Expired => {
            "it has expired, was used before, or belongs to a call that a restart of the \
             gateway ended"
        }
    };
    Error::new(
        McpErrorKind::InvalidParams,
        format!("Invalid params: requestState cannot be used: {why}; call again without it"),
    )
}

/// Depth to which arguments are compared by meaning. Below it, they are compared by their bytes.
// The arguments are a client's, and each level is a call of this function: without a bound they
// fill the stack.
const DEPTH_MAX: usize = 8;

/// Writes arguments in a canonical form, since a client's library may encode a retry differently.
///
/// The form has no spaces, ordered members and strings without needless escapes. Numbers stay as
/// they are.
fn canonical(value: &RawJson, out: &mut Vec<u8>, depth: usize) {
    let deeper = depth.checked_sub(1);
    if let (Some(deeper), Some(object)) = (deeper, value.as_object()) {
        let mut members: Vec<_> = object.iter().collect();
        // RFC 8259, section 1: "An object is an unordered collection of zero or more name/value
        // pairs".
        members.sort_by_key(|(a, _)| *a);
        out.push(b'{');
        for (key, value) in members {
            write_text(key, out);
            canonical(value, out, deeper);
        }
        out.push(b'}');
    } else if let (Some(deeper), Some(items)) = (deeper, value.as_array()) {
        out.push(b'[');
        for item in &items {
            canonical(item, out, deeper);
        }
        out.push(b']');
    } else if let Some(string) = value.as_text() {
        write_text(&string, out);
    } else {
        // Numbers and literals, with their own tag: `1` and `"1"` must differ.
        out.push(b'#');
        out.extend_from_slice(&(value.bytes().len() as u64).to_be_bytes());
        out.extend_from_slice(value.bytes());
    }
}

fn write_text(text: &ByteString, out: &mut Vec<u8>) {
    // The length comes before the text, so that a quote inside it cannot end it.
    out.push(b'"');
    out.extend_from_slice(&(text.len() as u64).to_be_bytes());
    out.extend_from_slice(text.as_bytes());
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use super::*;
    use moongate_access::auth::{AuthMethods, AuthSettings, KeyHash, KeySettings};
    use moongate_access::policy::GlobList;
    use moongate_session::StateSealer;

    fn key(name: &str, key: &str) -> KeySettings {
        let name = name.to_owned();
        let hash = KeyHash::of(key);
        KeySettings {
            name,
            hash,
            role: None,
            views: None,
            tools: GlobList::all(),
            rate: None,
            expires: None,
        }
    }

    /// Authenticates by a key in a process with these keys.
    fn principal(keys: &[KeySettings], key: &str) -> Arc<Principal> {
        let headers = http::HeaderMap::from_iter([(
            http::HeaderName::from_static("x-api-key"),
            key.parse().unwrap(),
        )]);
        let (methods, _) = AuthMethods::new(&AuthSettings {
            keys: keys.to_vec(),
            ..AuthSettings::default()
        });
        methods
            .authenticate(&headers, "", None)
            .ok()
            .unwrap()
            .principal
    }

    /// Returns a sealer of a restarted process, which restores the key of the seal.
    fn restored_sealer() -> StateSealer {
        let sealer = StateSealer::default();
        sealer.restore(&[7; 32], &[]);
        sealer
    }

    #[test]
    fn state_opens_for_its_key_in_every_process_and_for_no_other_key() {
        let before = principal(&[key("one", "mg_1"), key("two", "mg_2")], "mg_1");
        let after = principal(&[key("two", "mg_2"), key("one", "mg_1")], "mg_1");
        let other = principal(&[key("one", "mg_3")], "mg_3");
        assert_ne!(before.id, after.id);
        assert_eq!(before.id, other.id);
        assert_eq!(before.name, other.name);
        let context = StateContext {
            method: McpMethod::CallTool,
            target: None,
            arguments: None,
        };
        let server = ByteString::literal("files");
        let bound = context.bindings(&before, &server);
        let sealed = restored_sealer().seal(
            bound.caller,
            bound.request,
            b"state",
            Duration::from_secs(60),
        );
        for (principal, opened) in [
            (&after, Ok(b"state".to_vec())),
            (&other, Err(SealError::OtherCaller)),
        ] {
            let bound = context.bindings(principal, &server);
            let plain = restored_sealer()
                .open(bound.caller, bound.request, &sealed)
                .map(|opened| opened.plain);
            assert_eq!(plain, opened);
        }
    }

    fn digest(json: &str) -> Vec<u8> {
        let mut out = Vec::new();
        canonical(
            &RawJson::parse(Bytes::from(json.to_owned())).unwrap(),
            &mut out,
            DEPTH_MAX,
        );
        out
    }

    #[test]
    fn equal_arguments_match_in_every_encoding() {
        let one = digest(r#"{"a":1,"b":{"c":[true,null,"\u00e9/x"],"d":"y"}}"#);
        assert_eq!(
            one,
            digest(" {\"b\" : {\"d\":\"y\", \"c\": [ true , null, \"é\\/x\" ] } ,\"a\":1}")
        );
        for other in [
            r#"{"a":2,"b":{"c":[true,null,"é/x"],"d":"y"}}"#,
            r#"{"a":1,"b":{"c":[null,true,"é/x"],"d":"y"}}"#,
            r#"{"a":1,"b":{"c":[true,null,"é/x","d"],"y":""}}"#,
            r#"{"a":"1","b":{"c":[true,null,"é/x"],"d":"y"}}"#,
            r#"{"a":1}"#,
            "[]",
        ] {
            assert_ne!(one, digest(other), "{other}");
        }
    }

    #[test]
    fn sealed_state_opens_to_the_same_bytes() {
        for state in [
            CarriedState::HeldByServer(ParkTicket([7; 16])),
            CarriedState::HeldByClient {
                server: Some(ByteString::from("files")),
                state: RawJson::literal(r#""AbC==""#),
            },
            CarriedState::HeldByClient {
                server: None,
                state: RawJson::literal(r#""""#),
            },
        ] {
            assert_eq!(CarriedState::read(state.write()), Some(state));
        }
        for broken in [
            &b""[..],
            b"\x01short",
            b"\x02\xff\xff\xff\xff\xff\xff\xff\xffx",
            b"\x02\0\0\0\0\0\0\0\0{",
            b"\x03",
        ] {
            assert_eq!(CarriedState::read(broken.to_vec()), None, "{broken:?}");
        }
    }
}
