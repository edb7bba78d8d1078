//! One level of a JSON object, whose values keep the bytes of their sender.
//!
//! Owns [`JsonObject`], and the pass over a text that finds its members. Does not read the values.
//! Invariant: an unmodified object keeps its bytes. A duplicate key on a parsed level is an error,
//! since two readers could disagree about the one that counts.

use std::borrow::Cow;
use std::fmt;

use bytes::{BufMut, Bytes, BytesMut};
use serde::Deserialize;
use serde::de::{self, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::{ByteString, JsonScanner, RawJson, utf8, write_plain, write_string};

/// Level of a JSON object, in the order of its sender. Values are unparsed bytes.
#[derive(Clone, Default)]
pub struct JsonObject {
    /// Whole object as it arrived, while it is unmodified.
    pub(super) whole: Option<Bytes>,
    pub(super) entries: Vec<(ByteString, RawJson)>,
}

impl JsonObject {
    /// Creates an object without members.
    pub const fn new() -> Self {
        JsonObject {
            whole: None,
            entries: Vec::new(),
        }
    }

    /// Parses one level of an object.
    ///
    /// Fails if `bytes` are not one JSON object, or if a key occurs twice on this level.
    pub fn parse(bytes: Bytes) -> Result<Self, serde_json::Error> {
        // Checked once for the whole text; the spans inside need no separate check.
        let text = utf8(&bytes)?;
        let mut scan = JsonScanner::new(&bytes);
        if let Some(object) = JsonObject::scanned(&mut scan, &bytes)
            && scan.is_finished()
        {
            return Ok(object);
        }
        let shallow: ShallowObject<'_> = serde_json::from_str(text)?;
        let object = shallow.within(&bytes);
        Ok(object)
    }

    /// Scans one level of an object in `whole`, at the position of `scan`. `None` if serde has to
    /// decide.
    pub(crate) fn scanned(scan: &mut JsonScanner<'_>, whole: &Bytes) -> Option<Self> {
        scan.peek()?;
        let start = scan.position();
        let mut entries: Vec<(ByteString, RawJson)> = Vec::with_capacity(4);
        scan.object(|scan, key| {
            let text = &whole[key.clone()];
            if entries.len() >= MEMBERS_MAX || entries.iter().any(|(known, _)| known.0 == text) {
                return None;
            }
            let value = scan.value()?;
            entries.push((ByteString::span(whole, key), RawJson::span(whole, value)));
            Some(())
        })?;
        let text = if entries.is_empty() {
            Bytes::from_static(b"{}")
        } else {
            whole.slice(start..scan.position())
        };
        Some(JsonObject {
            whole: Some(text),
            entries,
        })
    }

    /// Returns the value of `key`.
    pub fn get(&self, key: &str) -> Option<&RawJson> {
        self.entries
            .iter()
            .find(|(k, _)| k.0 == key.as_bytes())
            .map(|(_, v)| v)
    }

    /// Returns the decoded string at `key`, if there is one.
    pub fn get_string(&self, key: &str) -> Option<ByteString> {
        self.get(key)?.as_text()
    }

    /// Returns the object at `key`, if there is one.
    pub fn get_object(&self, key: &str) -> Option<JsonObject> {
        self.get(key)?.as_object()
    }

    /// Returns true if there is an object at `key`.
    pub fn has_object(&self, key: &str) -> bool {
        self.get(key).is_some_and(RawJson::is_object)
    }

    /// Returns true if the value at `key` is `true`.
    pub fn is_true(&self, key: &str) -> bool {
        self.get(key).is_some_and(|raw| &raw.bytes()[..] == b"true")
    }

    /// Sets `key`, in place if present, otherwise at the end.
    pub fn set(&mut self, key: impl Into<ByteString>, value: RawJson) {
        self.whole = None;
        let key = key.into();
        match self.entries.iter_mut().find(|(k, _)| *k == key) {
            Some(entry) => entry.1 = value,
            None => self.entries.push((key, value)),
        }
    }

    /// Sets `key` and returns the object, for chains.
    #[must_use]
    pub fn with(mut self, key: &'static str, value: RawJson) -> Self {
        // Keys are literals of ours, so they need no allocation.
        self.set(ByteString::literal(key), value);
        self
    }

    /// Removes `key` and keeps the order of the others.
    pub fn remove(&mut self, key: &str) -> Option<RawJson> {
        let at = self
            .entries
            .iter()
            .position(|(k, _)| k.0 == key.as_bytes())?;
        self.whole = None;
        Some(self.entries.remove(at).1)
    }

    /// Retains the members for which `keep` returns true.
    pub fn retain(&mut self, mut keep: impl FnMut(&str) -> bool) {
        let before = self.entries.len();
        self.entries.retain(|(k, _)| keep(k.as_str()));
        // Unmodified objects keep their bytes, so that they are forwarded without a new encoding.
        if self.entries.len() != before {
            self.whole = None;
        }
    }

    /// True if there are no members.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Creates an empty object that its sender wrote.
    pub const fn given_empty() -> Self {
        JsonObject {
            whole: Some(Bytes::from_static(b"{}")),
            entries: Vec::new(),
        }
    }

    /// Returns false for params that a message does not have: those are empty, and nobody wrote
    /// them.
    pub fn is_given(&self) -> bool {
        self.whole.is_some() || !self.entries.is_empty()
    }

    /// Returns the members in order.
    pub fn iter(&self) -> impl Iterator<Item = (&ByteString, &RawJson)> {
        self.entries.iter().map(|(k, v)| (k, v))
    }

    /// Returns the object's bytes: the received ones if it is unmodified.
    pub fn bytes(&self) -> Bytes {
        match &self.whole {
            Some(whole) => whole.clone(),
            None => {
                let mut out = BytesMut::with_capacity(self.size_hint());
                self.write(&mut out);
                out.freeze()
            }
        }
    }

    /// Encodes the object once, so that clones share the bytes.
    #[must_use]
    pub fn to_shared(mut self) -> Self {
        self.whole = Some(self.bytes());
        self
    }

    /// Returns the object as one value.
    pub fn to_raw(&self) -> RawJson {
        RawJson(self.bytes())
    }

    /// Returns the approximate number of bytes that [`JsonObject::write`] appends.
    pub fn size_hint(&self) -> usize {
        match &self.whole {
            Some(whole) => whole.len(),
            None => {
                2 + self
                    .entries
                    .iter()
                    .map(|(k, v)| k.0.len() + v.0.len() + 4)
                    .sum::<usize>()
            }
        }
    }

    /// Appends the object to `out`.
    pub fn write(&self, out: &mut BytesMut) {
        if let Some(whole) = &self.whole {
            out.put_slice(whole);
            return;
        }
        // Modified objects are encoded again, but the values keep their bytes.
        out.put_u8(b'{');
        self.write_members(out, false);
        out.put_u8(b'}');
    }

    /// Appends the members without braces. A leading comma is written if `comma` is set and a
    /// member follows.
    pub fn write_members(&self, out: &mut BytesMut, comma: bool) {
        for (n, (key, value)) in self.entries.iter().enumerate() {
            if n > 0 || comma {
                out.put_u8(b',');
            }
            // Only a key with escapes is looked at as text, so its encoding is checked again.
            if !write_plain(out, key.as_bytes()) {
                write_string(out, key.as_str());
            }
            out.put_u8(b':');
            out.put_slice(&value.0);
        }
    }

    /// Returns the bytes between the braces of an unmodified object, so that members can precede
    /// them without a copy.
    pub fn whole_members(&self) -> Option<Bytes> {
        let whole = self.whole.as_ref()?;
        Some(whole.slice(1..whole.len() - 1))
    }
}

impl serde::Serialize for JsonObject {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serde::Serialize::serialize(&self.to_raw(), serializer)
    }
}

impl<'de> Deserialize<'de> for JsonObject {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        RawJson::deserialize(deserializer)?
            .as_object()
            .ok_or_else(|| de::Error::custom("an object with duplicate keys"))
    }
}

impl fmt::Debug for JsonObject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&String::from_utf8_lossy(&self.bytes()))
    }
}

impl PartialEq for JsonObject {
    // White space between the members does not count; `whole` is only a cache.
    fn eq(&self, other: &Self) -> bool {
        self.entries == other.entries
    }
}

impl Eq for JsonObject {}

/// Borrowed [`JsonObject`], found in one pass over the text.
pub(crate) struct ShallowObject<'a>(Vec<(Cow<'a, str>, &'a RawValue)>);

impl ShallowObject<'_> {
    /// Binds the spans to their buffer.
    pub(crate) fn within(self, buffer: &Bytes) -> JsonObject {
        let whole = self.whole(buffer);
        let entries = self.0.into_iter().map(|(key, value)| {
            (
                ByteString::within(buffer, key),
                RawJson::slice(buffer, value),
            )
        });
        JsonObject {
            entries: entries.collect(),
            whole,
        }
    }

    /// Returns the text from brace to brace without a second pass, by the positions of the first
    /// key and the last value. `None` if the first key has escapes, since it is then not a span of
    /// the buffer.
    fn whole(&self, buffer: &Bytes) -> Option<Bytes> {
        let (Some((Cow::Borrowed(first), _)), Some((_, last))) = (self.0.first(), self.0.last())
        else {
            return self.0.is_empty().then(|| Bytes::from_static(b"{}"));
        };
        let base = buffer.as_ptr() as usize;
        // Both spans point into `buffer`, so the differences are offsets in it.
        let key_at = first.as_ptr() as usize - base;
        let value_end = last.get().as_ptr() as usize - base + last.get().len();
        let open = memchr::memrchr(b'{', &buffer[..key_at])?;
        let close = value_end + memchr::memchr(b'}', &buffer[value_end..])?;
        Some(buffer.slice(open..=close))
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for ShallowObject<'a> {
    fn deserialize<D: de::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ShallowVisitor;
        impl<'de> Visitor<'de> for ShallowVisitor {
            type Value = ShallowObject<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a JSON object")
            }
            fn visit_map<A: MapAccess<'de>>(
                self,
                mut map: A,
            ) -> Result<ShallowObject<'de>, A::Error> {
                let mut entries: Vec<(Cow<'de, str>, &'de RawValue)> = Vec::with_capacity(4);
                while let Some(key) = map.next_key::<BorrowedKey<'de>>()? {
                    // A linear scan suits the handful of keys in a params object. The limit keeps a
                    // client from causing quadratic work.
                    if entries.len() >= MEMBERS_MAX {
                        return Err(de::Error::custom("too many members in one object"));
                    }
                    if entries.iter().any(|(k, _)| *k == key.0) {
                        return Err(de::Error::custom(format_args!("duplicate key {:?}", key.0)));
                    }
                    entries.push((key.0, map.next_value()?));
                }
                Ok(ShallowObject(entries))
            }
        }
        deserializer.deserialize_map(ShallowVisitor)
    }
}

/// Limit of members on one level. The largest object of the protocol has about fifteen.
pub(crate) const MEMBERS_MAX: usize = 1024;

/// String that borrows from the text if it has no escapes. Serde never borrows for a `Cow` inside
/// an `Option`.
pub(crate) struct BorrowedKey<'a>(pub(crate) Cow<'a, str>);

impl<'de: 'a, 'a> Deserialize<'de> for BorrowedKey<'a> {
    fn deserialize<D: de::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct KeyVisitor;
        impl<'de> Visitor<'de> for KeyVisitor {
            type Value = BorrowedKey<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string")
            }
            fn visit_borrowed_str<E>(self, v: &'de str) -> Result<BorrowedKey<'de>, E> {
                Ok(BorrowedKey(Cow::Borrowed(v)))
            }
            fn visit_str<E>(self, v: &str) -> Result<BorrowedKey<'de>, E> {
                Ok(BorrowedKey(Cow::Owned(v.to_owned())))
            }
        }
        deserializer.deserialize_str(KeyVisitor)
    }
}
