//! Messages of servers that keep JSON-RPC less strictly than their clients must.
//!
//! Owns what the official SDKs accept anyway: ids as another JSON type. Does not replace bytes that
//! are not UTF-8 or decide whose answer it is (`transport`). Invariant: a text that is strictly
//! right is read as it is elsewhere.

use bytes::Bytes;
use serde::de::{Error as _, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use super::{MalformedMessage, RequestId, RpcMessage, RpcPayload};
use crate::json::{BorrowedKey, RawJson};

/// Largest whole number that every reader of JSON keeps exact.
const EXACT_MAX: f64 = 9_007_199_254_740_992.0;

/// Message or batch of a server.
pub struct ServerPayload(pub RpcPayload);

impl ServerPayload {
    /// Parses a text of a server. `batch_max` limits the messages in a batch.
    pub fn parse(bytes: &Bytes, batch_max: usize) -> Result<Self, MalformedMessage> {
        RpcPayload::read(bytes, batch_max, parse_message).map(ServerPayload)
    }
}

fn parse_message(bytes: &Bytes) -> Result<RpcMessage, MalformedMessage> {
    match RpcMessage::parse_fast(bytes)? {
        Some(message) => Ok(message),
        None => RpcMessage::parse_strict(bytes, read_echoed_id),
    }
}

/// Reads an id. A number such as `7.0` is the whole number that it equals.
fn read_echoed_id(raw: RawJson) -> Option<RequestId> {
    let number = echoed_number(raw.bytes());
    RequestId::from_raw(raw).or_else(|| number.map(RequestId::number))
}

/// Returns the length of a text with U+FFFD in place of what is not UTF-8. `None` if all of it is.
pub fn mended_length(text: &[u8]) -> Option<usize> {
    std::str::from_utf8(text).err()?;
    Some(text.utf8_chunks().map(mended_chunk_length).sum())
}

fn mended_chunk_length(chunk: std::str::Utf8Chunk<'_>) -> usize {
    let replacement = if chunk.invalid().is_empty() {
        0
    } else {
        char::REPLACEMENT_CHARACTER.len_utf8()
    };
    chunk.valid().len() + replacement
}

/// Returns the number that an echoed id means: `7`, `"7"`, `7.0`.
///
/// The official SDKs take all of them: TypeScript reads `Number(response.id)`, Python
/// `int(response.id)`.
pub fn echoed_number(json: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(json).ok()?;
    // Nearly all servers echo the number as it was.
    if let Ok(number) = text.parse() {
        return Some(number);
    }
    let text = text
        .strip_prefix('"')
        .map_or(Some(text), |rest| rest.strip_suffix('"'))?
        .trim();
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        return text.parse().ok();
    }
    if !text
        .bytes()
        .all(|byte| byte.is_ascii_digit() || matches!(byte, b'.' | b'e' | b'E' | b'+'))
    {
        return None;
    }
    let number: f64 = text.parse().ok()?;
    // Truncates nothing: the number is whole and small.
    (number.fract() == 0.0 && (0.0..=EXACT_MAX).contains(&number)).then_some(number as u64)
}

/// Reads a whole number, which languages with one type of numbers may write as `-32000.0`.
pub(super) fn read_whole_number<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<i64, D::Error> {
    match JsonNumber::deserialize(deserializer)? {
        JsonNumber::Integer(number) => Ok(number),
        // Truncates nothing: the number is whole and small.
        JsonNumber::Float(number) if number.fract() == 0.0 && number.abs() <= EXACT_MAX => {
            Ok(number as i64)
        }
        JsonNumber::Float(_) => Err(D::Error::custom("the number is not whole")),
    }
}

#[derive(Deserialize)]
#[serde(untagged)]
enum JsonNumber {
    Integer(i64),
    Float(f64),
}

/// Returns the id of the request that a malformed text means to answer. `None` if it isn't an
/// answer, such as a log line with an `id`.
pub fn answered_id(text: &[u8]) -> Option<u64> {
    let text = String::from_utf8_lossy(text);
    let members: AnswerMembers<'_> = serde_json::from_str(&text).ok()?;
    // A log line may have an id and an error, too, but never those alone.
    let is_answer = members.has_version || members.has_outcome && !members.has_others;
    members
        .id
        .filter(|_| is_answer && !members.has_method)
        .and_then(|id| echoed_number(id.get().as_bytes()))
}

/// Returns the texts of the messages in a batch.
pub fn batch_items(batch: &Bytes) -> Vec<Bytes> {
    let items: Vec<&RawValue> = serde_json::from_slice(batch).unwrap_or_default();
    items
        .into_iter()
        .map(|item| batch.slice_ref(item.get().as_bytes()))
        .collect()
}

/// Members of a text that may be an answer. Duplicates aren't an error here.
#[derive(Default)]
struct AnswerMembers<'a> {
    id: Option<&'a RawValue>,
    has_version: bool,
    has_method: bool,
    has_outcome: bool,
    has_others: bool,
}

impl<'de> Deserialize<'de> for AnswerMembers<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(AnswerVisitor)
    }
}

struct AnswerVisitor;

impl<'de> Visitor<'de> for AnswerVisitor {
    type Value = AnswerMembers<'de>;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a JSON object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut members = AnswerMembers::default();
        while let Some(BorrowedKey(key)) = map.next_key::<BorrowedKey<'de>>()? {
            match &*key {
                "id" if members.id.is_none() => {
                    members.id = Some(map.next_value()?);
                    continue;
                }
                "jsonrpc" => members.has_version = true,
                "method" => members.has_method = true,
                "result" | "error" => members.has_outcome = true,
                _ => members.has_others = true,
            }
            map.next_value::<IgnoredAny>()?;
        }
        Ok(members)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answered(text: &str) -> Option<u64> {
        let ServerPayload(parsed) =
            ServerPayload::parse(&Bytes::copy_from_slice(text.as_bytes()), 10).unwrap();
        let RpcPayload::One(RpcMessage::Response(response)) = parsed else {
            panic!("no response")
        };
        response.id.and_then(|id| echoed_number(id.raw().bytes()))
    }

    /// Returns the code of an error response, in which it is written like this.
    fn code_of_error(code: &str) -> Option<i64> {
        let text = format!(r#"{{"jsonrpc":"2.0","id":7,"error":{{"code":{code},"message":"m"}}}}"#);
        let Ok(ServerPayload(RpcPayload::One(RpcMessage::Response(response)))) =
            ServerPayload::parse(&Bytes::from(text), 10)
        else {
            return None;
        };
        response.outcome.err().map(|error| error.code)
    }

    #[test]
    fn the_code_of_an_error_may_be_a_whole_float() {
        assert_eq!(
            [
                code_of_error("-32000"),
                code_of_error("-32000.0"),
                code_of_error("-3.2e4")
            ],
            [Some(-32000); 3]
        );
        assert_eq!(
            [
                code_of_error("-32000.5"),
                code_of_error("\"-32000\""),
                code_of_error("1e300")
            ],
            [None; 3]
        );
    }

    #[test]
    fn echoed_ids_are_the_numbers_that_they_equal() {
        for id in [
            "7", "\"7\"", "7.0", "\"7.0\"", "7.00", "7e0", "70.0e-1", "\" 7 \"", "\"07\"",
        ] {
            let expected = if id.contains('-') { None } else { Some(7) };
            assert_eq!(echoed_number(id.as_bytes()), expected, "{id}");
        }
        for id in [
            "7.5", "-7", "null", "\"\"", "\"x\"", "\"7", "true", "1e300", "\"nan\"", "\"inf\"",
            "[7]", "",
        ] {
            assert_eq!(echoed_number(id.as_bytes()), None, "{id}");
        }
        for id in ["7", "\"7\"", "7.0"] {
            let text = format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{}}}}"#);
            assert_eq!(answered(&text), Some(7), "{id}");
        }
    }

    #[test]
    fn the_length_of_a_mended_text_is_known() {
        for text in [
            &b"x\xff\xfe"[..],
            b"\xe2\x82",
            b"\xff",
            b"a\xf0\x9f\x98b\xc0",
            b"\xed\xa0\x80",
        ] {
            assert_eq!(
                mended_length(text),
                Some(String::from_utf8_lossy(text).len()),
                "{text:?}"
            );
        }
        assert_eq!(mended_length("x\u{fffd}".as_bytes()), None);
        assert!(ServerPayload::parse(&Bytes::from_static(b"\xff\xfe{\0"), 10).is_err());
    }

    #[test]
    fn the_request_that_a_malformed_answer_means_is_known() {
        let answers = [
            r#"{"id":7,"result":{}}"#,
            r#"{"jsonrpc":"2.0","id":7}"#,
            r#"{"jsonrpc":"1.0","id":"7","result":{}}"#,
            r#"{"jsonrpc":"2.0","id":7.0,"result":null}"#,
            r#"{"jsonrpc":"2.0","id":7,"result":{},"error":{"code":1}}"#,
            r#"{"id":7,"error":"no","error":"no"}"#,
        ];
        for text in answers {
            assert_eq!(answered_id(text.as_bytes()), Some(7), "{text}");
        }
        let others = [
            r#"{"level":30,"id":7,"msg":"call"}"#,
            r#"{"level":30,"id":7,"error":"no"}"#,
            r#"{"level":30,"id":7,"context":{"result":1}}"#,
            r#"{"jsonrpc":"2.0","id":7,"method":5}"#,
            r#"{"jsonrpc":"2.0","id":null,"result":{}}"#,
            r#"[{"id":7,"result":{}}]"#,
            "7",
        ];
        for text in others {
            assert_eq!(answered_id(text.as_bytes()), None, "{text}");
        }
    }
}
