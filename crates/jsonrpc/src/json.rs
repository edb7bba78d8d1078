//! JSON by span: values keep the bytes of their sender.
//!
//! Owns [`RawJson`] (one value) and [`ByteString`] (one decoded string), and leaves [`JsonObject`]
//! (one level of an object) to `object`. Does not know JSON-RPC or MCP. Invariant: the bytes that
//! were checked are the bytes that are forwarded.

mod case_fold;
mod lenient;
mod members;
mod object;
mod scanner;
mod tokens;

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;

use bytes::{BufMut, Bytes, BytesMut};
use serde::Deserialize;
use serde::de::{self, DeserializeOwned};
use serde_json::value::RawValue;

pub(crate) use case_fold::is_lookalike;
pub use lenient::ValueChange;
pub use members::{MemberValue, or_default, or_null};
pub use object::JsonObject;
pub(crate) use object::{BorrowedKey, MEMBERS_MAX, ShallowObject};
pub(crate) use scanner::JsonScanner;
pub use tokens::{JsonToken, JsonTokens, TokenKind};

/// Complete JSON value, byte for byte as its sender wrote it.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct RawJson(Bytes);

/// Decoded JSON string: UTF-8, cheap to clone.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ByteString(Bytes);

// === impl RawJson ===

impl RawJson {
    /// JSON `null`.
    pub const NULL: RawJson = RawJson(Bytes::from_static(b"null"));

    /// Wraps a literal that is known to be valid JSON.
    pub const fn literal(json: &'static str) -> Self {
        RawJson(Bytes::from_static(json.as_bytes()))
    }

    /// Checks that `bytes` hold exactly one JSON value.
    pub fn parse(bytes: Bytes) -> Result<Self, serde_json::Error> {
        let value: &RawValue = serde_json::from_slice(&bytes)?;
        let trimmed = bytes.slice_ref(value.get().as_bytes());
        Ok(RawJson(trimmed))
    }

    /// Copies a text that is known to be one JSON value.
    pub(crate) fn from_text(json: &str) -> Self {
        RawJson(Bytes::copy_from_slice(json.as_bytes()))
    }

    /// Encodes a string.
    pub fn string(value: &str) -> Self {
        RawJson::from_value(&value)
    }

    /// Encodes a whole number.
    pub fn number(value: u64) -> Self {
        RawJson(Bytes::copy_from_slice(
            itoa::Buffer::new().format(value).as_bytes(),
        ))
    }

    /// Serialises one of our own values. Not for payloads.
    pub fn from_value<T: serde::Serialize>(value: &T) -> Self {
        RawJson(Bytes::from(
            serde_json::to_vec(value).expect("our own values have string keys and finite numbers"),
        ))
    }

    /// Returns the span of `value`, which was found in `whole`.
    pub(crate) fn slice(whole: &Bytes, value: &RawValue) -> Self {
        RawJson(whole.slice_ref(value.get().as_bytes()))
    }

    /// Returns the value at `span` of `whole`, which was scanned there.
    pub(crate) fn span(whole: &Bytes, span: Range<usize>) -> Self {
        RawJson(whole.slice(span))
    }

    /// Copies the value, so that it does not keep the message alive that it came in.
    #[must_use]
    pub fn detached(&self) -> Self {
        RawJson(Bytes::copy_from_slice(&self.0))
    }

    /// Returns the bytes of the value.
    pub fn bytes(&self) -> &Bytes {
        &self.0
    }

    /// True if the value is `null`.
    pub fn is_null(&self) -> bool {
        &self.0[..] == b"null"
    }

    /// True if the value is an object.
    pub fn is_object(&self) -> bool {
        self.0.first() == Some(&b'{')
    }

    /// Returns the decoded string if the value is a string.
    pub fn as_text(&self) -> Option<ByteString> {
        if self.0.first() != Some(&b'"') {
            return None;
        }
        let inner = &self.0[1..self.0.len() - 1];
        // Without escapes the text is a span of the value, and needs no copy.
        if memchr::memchr(b'\\', inner).is_none() {
            return Some(ByteString(self.0.slice(1..self.0.len() - 1)));
        }
        serde_json::from_slice::<String>(&self.0)
            .ok()
            .map(ByteString::from)
    }

    /// Parses the value into one of our own types.
    pub fn parse_as<T: DeserializeOwned>(&self) -> Result<T, serde_json::Error> {
        serde_json::from_slice(&self.0)
    }

    /// Parses one level of the value, if it is an object without duplicate keys.
    pub fn as_object(&self) -> Option<JsonObject> {
        JsonObject::parse(self.0.clone()).ok()
    }

    /// Builds an array of the items, whose bytes are unchanged.
    pub fn array<'a>(items: impl Iterator<Item = &'a RawJson>) -> Self {
        let mut out = BytesMut::new();
        out.put_u8(b'[');
        for item in items {
            if out.len() > 1 {
                out.put_u8(b',');
            }
            out.put_slice(&item.0);
        }
        out.put_u8(b']');
        RawJson(out.freeze())
    }

    /// Returns the items if the value is an array.
    pub fn as_array(&self) -> Option<Vec<RawJson>> {
        // `RawValue` borrows, so that each item is a span of the array.
        let items: Vec<&RawValue> = serde_json::from_slice(&self.0).ok()?;
        Some(
            items
                .into_iter()
                .map(|v| RawJson::slice(&self.0, v))
                .collect(),
        )
    }
}

impl serde::Serialize for RawJson {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let value: &RawValue =
            serde_json::from_slice(&self.0).map_err(serde::ser::Error::custom)?;
        serde::Serialize::serialize(value, serializer)
    }
}

impl<'de> Deserialize<'de> for RawJson {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = Box::<RawValue>::deserialize(deserializer)?;
        Ok(RawJson(Bytes::from(String::from(Box::<str>::from(value)))))
    }
}

impl fmt::Debug for RawJson {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&String::from_utf8_lossy(&self.0))
    }
}

// === impl ByteString ===

impl ByteString {
    /// Wraps a string that is known at compile time, without allocation.
    pub const fn literal(text: &'static str) -> Self {
        ByteString(Bytes::from_static(text.as_bytes()))
    }

    /// Returns the span of `text` if it borrows from `whole`; a copy if it had escapes.
    pub(crate) fn within(whole: &Bytes, text: Cow<'_, str>) -> Self {
        match text {
            Cow::Borrowed(text) => ByteString(whole.slice_ref(text.as_bytes())),
            Cow::Owned(text) => ByteString::from(text),
        }
    }

    /// Returns the text at `span` of `whole`. It was scanned there: valid UTF-8 without escapes.
    pub(crate) fn span(whole: &Bytes, span: Range<usize>) -> Self {
        ByteString(whole.slice(span))
    }

    /// Returns the bytes of the string, without the check of its encoding that [`Self::as_str`] is.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Returns the string.
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).expect("a Text is made from a str only")
    }
}

impl From<String> for ByteString {
    fn from(text: String) -> Self {
        ByteString(Bytes::from(text))
    }
}

impl From<&str> for ByteString {
    fn from(text: &str) -> Self {
        ByteString(Bytes::copy_from_slice(text.as_bytes()))
    }
}

/// Allows look-ups in a table of `ByteString` by plain bytes. Both have the same hash.
impl std::borrow::Borrow<[u8]> for ByteString {
    fn borrow(&self) -> &[u8] {
        &self.0
    }
}

impl std::ops::Deref for ByteString {
    type Target = str;
    fn deref(&self) -> &str {
        self.as_str()
    }
}

impl fmt::Debug for ByteString {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

impl fmt::Display for ByteString {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Checks the text of a message once. A parser of bytes would check every piece again.
pub(crate) fn utf8(bytes: &[u8]) -> Result<&str, serde_json::Error> {
    std::str::from_utf8(bytes).map_err(|e| de::Error::custom(format_args!("not UTF-8: {e}")))
}

/// Appends `text` as a JSON string.
pub fn write_string(out: &mut BytesMut, text: &str) {
    if !write_plain(out, text.as_bytes()) {
        out.put_slice(&RawJson::string(text).0);
    }
}

/// Appends UTF-8 as a JSON string, and returns true, if nothing in it needs an escape.
fn write_plain(out: &mut BytesMut, text: &[u8]) -> bool {
    let is_plain = scanner::plain_len(text) == text.len();
    if is_plain {
        out.put_u8(b'"');
        out.put_slice(text);
        out.put_u8(b'"');
    }
    is_plain
}

#[cfg(test)]
pub(crate) mod tests;
