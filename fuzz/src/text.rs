//! Bytes in, a meaning out: what can be judged without a gateway.

use std::time::Duration;

use bytes::Bytes;
use moongate_config::LoadOptions;
use moongate_gateway::NameRules;
use moongate_gateway::pure::{NameRequest, assign, looks_wrapped, matches, unwrap, wrap};
use moongate_jsonrpc::message::{RpcMessage, RpcPayload};
use moongate_jsonrpc::sse::{SseDecoder, SseEvent};
use moongate_protocol::SUPPORTED;
use moongate_session::{SealBinding, StateSealer};
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

/// A JSON object's members as they were written, doubled ones too.
pub(crate) struct Members(pub(crate) Vec<(String, Box<RawValue>)>);

impl<'de> Deserialize<'de> for Members {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct All;
        impl<'de> Visitor<'de> for All {
            type Value = Members;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members, A::Error> {
                let mut all = Vec::new();
                while let Some(member) = map.next_entry()? {
                    all.push(member);
                }
                Ok(Members(all))
            }
        }
        deserializer.deserialize_map(All)
    }
}

impl Members {
    /// The last member of this name, which most readers take.
    pub(crate) fn last(&self, name: &str) -> Option<&str> {
        self.0
            .iter()
            .rev()
            .find(|(key, _)| key == name)
            .map(|(_, value)| value.get())
    }

    /// The only member of this name; panics where it is there twice.
    pub(crate) fn only(&self, name: &str) -> Option<&str> {
        let mut found = self.0.iter().filter(|(key, _)| key == name);
        let first = found.next();
        assert!(found.next().is_none(), "{name} is there twice");
        first.map(|(_, value)| value.get())
    }
}

/// A message that is taken has one meaning, whoever reads it.
pub fn envelope(data: &[u8]) {
    let bytes = Bytes::copy_from_slice(data);
    let Ok(payload) = RpcPayload::parse(&bytes, 50) else {
        return;
    };
    serde_json::from_slice::<serde::de::IgnoredAny>(data).expect("what is taken is JSON");
    let RpcPayload::One(message) = payload else {
        return;
    };
    // A key that isn't text (half a surrogate pair) is never among those that are read.
    let Ok(members) = serde_json::from_slice::<Members>(data) else {
        return;
    };
    assert_eq!(members.only("jsonrpc"), Some("\"2.0\""));
    let (id, method) = (members.only("id"), members.only("method"));
    let (result, error) = (members.only("result"), members.only("error"));
    let text = |raw: &str| serde_json::from_str::<String>(raw).expect("a method is text");
    match &message {
        RpcMessage::Request(request) => {
            assert_eq!(id.map(str::as_bytes), Some(&request.id.raw().bytes()[..]));
            assert_eq!(method.map(text).as_deref(), Some(&*request.method));
        }
        RpcMessage::Notification(notification) => {
            assert!(id.is_none());
            assert_eq!(method.map(text).as_deref(), Some(&*notification.method));
        }
        RpcMessage::Response(response) => {
            assert!(method.is_none());
            assert_eq!(result.is_some(), response.outcome.is_ok());
            assert_ne!(result.is_some(), error.is_some());
            let shown = response.id.as_ref().map(|id| id.raw().bytes().clone());
            assert_eq!(
                id.filter(|id| *id != "null").map(str::as_bytes),
                shown.as_deref()
            );
        }
    }
}

/// The whole text at once, as the standard puts it, line by line.
fn by_the_standard(bytes: &[u8]) -> Vec<SseEvent> {
    let bytes = bytes.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(bytes);
    let mut lines = vec![Vec::new()];
    let mut at = 0;
    while at < bytes.len() {
        match (bytes[at], bytes.get(at + 1)) {
            (b'\r', Some(b'\n')) => {
                at += 1;
                lines.push(Vec::new());
            }
            (b'\r' | b'\n', _) => lines.push(Vec::new()),
            (byte, _) => lines.last_mut().expect("there is one").push(byte),
        }
        at += 1;
    }
    // Text without an end isn't a line yet.
    lines.pop();
    let (mut events, mut kind, mut id, mut data) = (Vec::new(), None, None, Vec::<Vec<u8>>::new());
    for line in lines {
        if line.is_empty() {
            let kind = kind.take().filter(|kind: &String| !kind.is_empty());
            let (id, data) = (id.take(), std::mem::take(&mut data).join(&b'\n'));
            if !data.is_empty() {
                events.push(SseEvent {
                    kind,
                    id,
                    data: Bytes::from(data),
                });
            }
            continue;
        }
        let colon = line.iter().position(|byte| *byte == b':');
        let (field, value) = line.split_at(colon.unwrap_or(line.len()));
        let value = value.strip_prefix(b":").unwrap_or(value);
        let value = value.strip_prefix(b" ").unwrap_or(value).to_vec();
        match field {
            b"data" => data.push(value),
            b"event" => kind = Some(String::from_utf8_lossy(&value).into_owned()),
            b"id" if !value.contains(&0) => id = String::from_utf8(value).ok(),
            _ => {}
        }
    }
    events
}

/// Event streams read as the standard says, however they are cut; and no event is longer than the
/// limit.
pub fn sse(data: &[u8]) {
    let Some((cut, text)) = data.split_first() else {
        return;
    };
    let read = |size: usize, limit: usize| {
        let (mut reader, mut events) = (SseDecoder::new(limit), Vec::new());
        for piece in text.chunks(size.max(1)) {
            reader.push(piece);
            loop {
                match reader.next_event() {
                    Ok(Some(event)) => events.push(event),
                    Ok(None) => break,
                    Err(_) => return (events, true),
                }
            }
        }
        (events, false)
    };
    let expected = by_the_standard(text);
    assert_eq!(read(usize::from(*cut), 1 << 20).0, expected);
    assert_eq!(read(text.len(), 1 << 20).0, expected);
    let (events, _) = read(usize::from(*cut), 16);
    assert!(
        events.iter().all(|event| event.data.len() <= 2 * 16),
        "an event is over its limit"
    );
    assert!(
        events.len() <= expected.len() && events[..] == expected[..events.len()],
        "a limit changes no event"
    );
}

/// No file makes the gateway fall over, and every refusal says something.
pub fn config(data: &[u8]) {
    let Some((kind, text)) = data.split_first() else {
        return;
    };
    let name = ["a.toml", "a.yaml", "a.json"][usize::from(*kind) % 3];
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join(name);
    std::fs::write(&path, text).expect("a file");
    let load = |path| {
        moongate_config::load(&LoadOptions {
            paths: vec![path],
            revisions: &SUPPORTED,
            ..LoadOptions::default()
        })
    };
    match load(path) {
        Err(problems) => assert!(
            !problems.to_string().trim().is_empty(),
            "a refusal says why"
        ),
        Ok(loaded) => {
            for warning in &loaded.warnings {
                assert!(!warning.render("warning").trim().is_empty());
            }
        }
    }
}

/// What was changed, or made up, does not open; what was not does.
pub fn sealed(data: &[u8]) {
    thread_local! {
        static SEAL: (StateSealer, String) = {
            let seal = StateSealer::default();
            let sealed = seal.seal(SealBinding::of(&[b"who"]), SealBinding::of(&[b"what"]),
                b"state", Duration::from_secs(3600));
            (seal, sealed)
        };
    }
    SEAL.with(|(seal, sealed)| {
        let open = |text: &str| {
            seal.open(
                SealBinding::of(&[b"who"]),
                SealBinding::of(&[b"what"]),
                text,
            )
        };
        assert_eq!(
            open(sealed).ok().map(|opened| opened.plain).as_deref(),
            Some(&b"state"[..])
        );
        if let Ok(text) = std::str::from_utf8(data) {
            assert!(open(text).is_err(), "what nobody sealed is open");
        }
        // The input says which characters are replaced by which.
        let mut changed: Vec<u8> = sealed.clone().into_bytes();
        for pair in data.chunks_exact(2) {
            let at = usize::from(pair[0]) % changed.len();
            changed[at] = pair[1];
        }
        if let Ok(text) = std::str::from_utf8(&changed)
            && text != sealed
        {
            assert!(open(text).is_err(), "what was changed is open: {text}");
        }
    });
}

/// Whatever servers call their things, each gets a name of its own that every client takes, in
/// whatever order.
pub fn names(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let mut items: Vec<NameRequest<'_>> = Vec::new();
    for line in text.lines().take(200) {
        let mut parts = line.split('\t');
        let (server, prefix) = (
            parts.next().unwrap_or_default(),
            parts.next().unwrap_or_default(),
        );
        let (name, local) = (
            parts.next().unwrap_or_default(),
            parts.next().unwrap_or_default(),
        );
        let item = NameRequest {
            server,
            prefix,
            name,
            local,
        };
        // A server has each of its own names once.
        if !items
            .iter()
            .any(|other| other.server == server && other.local == local)
        {
            items.push(item);
        }
    }
    let rules = NameRules {
        separator: "__".to_owned(),
        max_length: 24,
    };
    let names: Vec<String> = assign(&items, &rules)
        .into_iter()
        .map(|(name, _)| name)
        .collect();
    assert_eq!(names.len(), items.len());
    for name in &names {
        assert!(
            name.len() <= 24 && name.starts_with(|c: char| c.is_ascii_alphabetic()),
            "{name:?}"
        );
        assert!(
            name.chars()
                .all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-'),
            "{name:?}"
        );
    }
    let mut unique = names.clone();
    unique.sort_unstable();
    unique.dedup();
    assert_eq!(unique.len(), names.len(), "two have one name");
    items.reverse();
    let mut again: Vec<String> = assign(&items, &rules)
        .into_iter()
        .map(|(name, _)| name)
        .collect();
    again.reverse();
    assert_eq!(again, names, "the order does not matter");
}

/// What is wrapped unwraps to itself, and a template is matched in the end.
pub fn uris(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let mut lines = text.splitn(3, '\n');
    let (server, uri) = (
        lines.next().unwrap_or_default(),
        lines.next().unwrap_or_default(),
    );
    let template = lines.next().unwrap_or_default();
    let named = !server.is_empty()
        && server
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_');
    if named {
        let wrapped = wrap(server, uri);
        assert!(looks_wrapped(&wrapped));
        let (of, own) = unwrap(&wrapped).expect("it is wrapped");
        assert_eq!((of, &*own), (server, uri));
    }
    if let Some((of, own)) = unwrap(uri) {
        assert!(looks_wrapped(uri));
        if !of.is_empty()
            && of
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_')
        {
            assert_eq!(
                unwrap(&wrap(of, &own)).map(|(of, own)| (of, own.into_owned())),
                Some((of, own.into_owned()))
            );
        }
    }
    matches(template, uri);
    if !uri.contains(['{', '}']) {
        assert!(
            matches(uri, uri),
            "a template without expressions is itself"
        );
    }
}
