//! Server-sent events of the WHATWG standard: a bounded decoder and an encoder.
//!
//! Owns the framing only. Does not know the meaning of an event's data. Invariant: an event never
//! exceeds the decoder's limit, and the result does not depend on how the bytes were split.

use bytes::{BufMut, Bytes, BytesMut};

/// Capacity that a decoder keeps between two lines, in bytes.
const BUFFER_KEPT: usize = 64 * 1024;
/// Limit of the id of an event, in bytes.
const ID_MAX: usize = 4096;
/// Bytes of an event's type that are kept.
const KIND_MAX: usize = 64;

/// Server-sent event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SseEvent {
    /// Field `event`; `None` if absent, which means `message`.
    pub kind: Option<String>,
    /// Field `id` of this event.
    pub id: Option<String>,
    /// Data lines, joined by `\n`.
    pub data: Bytes,
}

/// Error for an event over the limit.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("an event is longer than {limit} bytes")]
pub struct EventTooLong {
    /// Limit in bytes.
    pub limit: usize,
}

/// Incremental decoder.
#[derive(Debug)]
pub struct SseDecoder {
    buffer: BytesMut,
    /// Length of the buffer's start that is known to hold no line end.
    scanned: usize,
    limit: usize,
    started: bool,
    kind: Option<String>,
    id: Option<String>,
    data: Option<BytesMut>,
    /// True if the last line ended in CR: a following LF belongs to it.
    after_cr: bool,
    retry_ms: Option<u64>,
    last_id: Option<String>,
}

impl SseDecoder {
    /// Creates a decoder that refuses events of more than `limit` bytes.
    pub fn new(limit: usize) -> Self {
        SseDecoder {
            buffer: BytesMut::new(),
            scanned: 0,
            limit,
            started: false,
            kind: None,
            id: None,
            data: None,
            after_cr: false,
            retry_ms: None,
            last_id: None,
        }
    }

    /// Adds the next bytes of the body.
    pub fn push(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// Returns the number of bytes that wait for the end of their event.
    pub fn held_bytes(&self) -> usize {
        self.buffer.len() + self.data.as_ref().map_or(0, BytesMut::len)
    }

    /// Returns the last `retry` field, in milliseconds.
    pub fn retry_ms(&self) -> Option<u64> {
        self.retry_ms
    }

    /// Returns the standard's last event ID string: the id of the last event that had one, even
    /// without data. `None` if the server reset it.
    pub fn last_id(&self) -> Option<&str> {
        self.last_id.as_deref().filter(|id| !id.is_empty())
    }

    /// Returns the next complete event, if there is one.
    pub fn next_event(&mut self) -> Result<Option<SseEvent>, EventTooLong> {
        while let Some(line) = self.next_line()? {
            if line.is_empty() {
                if let Some(event) = self.dispatch() {
                    return Ok(Some(event));
                }
                continue;
            }
            self.field(&line)?;
        }
        Ok(None)
    }

    fn next_line(&mut self) -> Result<Option<Bytes>, EventTooLong> {
        // CR LF is one line end, even if the two bytes arrive apart.
        if self.after_cr && !self.buffer.is_empty() {
            self.after_cr = false;
            if self.buffer[0] == b'\n' {
                let _ = self.buffer.split_to(1);
            }
        }
        let Some(at) = memchr::memchr2(b'\n', b'\r', &self.buffer[self.scanned..]) else {
            self.scanned = self.buffer.len();
            // A line without an end must not grow without a bound either.
            return if self.scanned > self.limit {
                Err(EventTooLong { limit: self.limit })
            } else {
                Ok(None)
            };
        };
        let end = self.scanned + at;
        self.scanned = 0;
        let mut line = self.buffer.split_to(end + 1).freeze();
        if end > BUFFER_KEPT {
            // The memory of a long line goes with it, and not with the stream.
            self.buffer = BytesMut::from(&self.buffer[..]);
        }
        self.after_cr = line[end] == b'\r';
        line.truncate(end);
        // "The UTF-8 decode algorithm strips one leading UTF-8 Byte Order Mark (BOM), if any."
        if !std::mem::replace(&mut self.started, true) && line.starts_with(b"\xEF\xBB\xBF") {
            line = line.slice(3..);
        }
        Ok(Some(line))
    }

    fn field(&mut self, line: &Bytes) -> Result<(), EventTooLong> {
        let (name, mut value) = match memchr::memchr(b':', line) {
            Some(at) => (&line[..at], line.slice(at + 1..)),
            None => (&line[..], Bytes::new()),
        };
        // "If value starts with a U+0020 SPACE character, remove it from value."
        if value.first() == Some(&b' ') {
            value = value.slice(1..);
        }
        match name {
            b"data" => {
                let held = self.data.as_ref().map_or(0, BytesMut::len);
                // Many short lines can exceed the limit together.
                if held + value.len() > self.limit {
                    return Err(EventTooLong { limit: self.limit });
                }
                match &mut self.data {
                    None => self.data = Some(BytesMut::from(&value[..])),
                    Some(data) => {
                        data.put_u8(b'\n');
                        data.put_slice(&value);
                    }
                }
            }
            // A long one isn't one that anybody knows, whatever its end. Bytes that are not UTF-8,
            // such as half a character at the cut, are replaced as the standard says: without a
            // type, an event is a message.
            b"event" => {
                self.kind =
                    Some(String::from_utf8_lossy(&value[..value.len().min(KIND_MAX)]).into_owned())
            }
            // The standard ignores an id with a NULL character. A long one would be refused as a
            // header.
            b"id" if !value.contains(&0) && value.len() <= ID_MAX => {
                self.id = std::str::from_utf8(&value).ok().map(str::to_owned)
            }
            b"retry" => self.retry_ms = milliseconds(&value).or(self.retry_ms),
            // "Otherwise: The field is ignored." A comment starts with a colon, so that its name is
            // empty.
            _ => {}
        }
        Ok(())
    }

    fn dispatch(&mut self) -> Option<SseEvent> {
        // An empty type counts as absent.
        let kind = self.kind.take().filter(|kind| !kind.is_empty());
        let id = self.id.take();
        // The standard sets the last event ID before it looks at the data, so that an event without
        // data counts.
        if id.is_some() {
            self.last_id.clone_from(&id);
        }
        let data = self.data.take()?.freeze();
        // An event with an empty `data` field has no content: servers prime streams with one.
        if data.is_empty() {
            return None;
        }
        Some(SseEvent { kind, id, data })
    }
}

/// Encodes a reconnection time without an event. Readers of the standard do not show it to their
/// programs.
pub fn encode_retry(after: std::time::Duration) -> Bytes {
    Bytes::from(format!("retry: {}\n\n", after.as_millis()))
}

/// Parses digits. "If the field value consists of only ASCII digits": a sign, which Rust accepts,
/// is none.
fn milliseconds(value: &[u8]) -> Option<u64> {
    let digits = value.iter().all(u8::is_ascii_digit);
    std::str::from_utf8(value)
        .ok()
        .filter(|_| digits)?
        .parse()
        .ok()
}

/// Comment line that keeps a quiet stream alive.
pub const KEEP_ALIVE: &[u8] = b": keep-alive\n\n";

/// Encodes one JSON text as an event. JSON of several lines becomes several data lines.
pub fn encode_event(json: &[u8]) -> Bytes {
    let mut out = BytesMut::with_capacity(json.len() + 32);
    out.put_slice(b"event: message\n");
    put_data(out, json)
}

/// Encodes one JSON text as an event with an id, which must be a single line.
pub fn encode_event_with_id(json: &[u8], id: &str) -> Bytes {
    let mut out = BytesMut::with_capacity(json.len() + id.len() + 40);
    out.put_slice(b"event: message\nid: ");
    out.put_slice(id.as_bytes());
    out.put_u8(b'\n');
    put_data(out, json)
}

/// Encodes an event of another type.
pub fn encode_named_event(kind: &str, data: &str) -> Bytes {
    Bytes::from(format!("event: {kind}\ndata: {data}\n\n"))
}

/// Encodes an event with an id and no data, and the reconnection time. Readers record the id and
/// pass nothing on.
pub fn encode_priming_event(id: &str, retry: std::time::Duration) -> Bytes {
    Bytes::from(format!(
        "id: {id}\nretry: {}\ndata: \n\n",
        retry.as_millis()
    ))
}

fn put_data(mut out: BytesMut, json: &[u8]) -> Bytes {
    for line in json.split(|b| *b == b'\n') {
        out.put_slice(b"data: ");
        // A CR would end the line for the reader. JSON has it only as white space, never inside
        // strings.
        put_without(&mut out, line, b'\r');
        out.put_u8(b'\n');
    }
    out.put_u8(b'\n');
    out.freeze()
}

/// Appends `text` with each `unwanted` byte replaced by a space. Without any, this is one copy.
fn put_without(out: &mut BytesMut, text: &[u8], unwanted: u8) {
    let mut rest = text;
    while let Some(at) = memchr::memchr(unwanted, rest) {
        out.put_slice(&rest[..at]);
        out.put_u8(b' ');
        rest = &rest[at + 1..];
    }
    out.put_slice(rest);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Decodes the whole text at once by the wording of the standard, line by line.
    fn reference(text: &str) -> Vec<SseEvent> {
        let text = text
            .strip_prefix('\u{feff}')
            .unwrap_or(text)
            .replace("\r\n", "\n")
            .replace('\r', "\n");
        let Some((lines, _unfinished)) = text.rsplit_once('\n') else {
            return Vec::new();
        };
        let mut events = Vec::new();
        let mut kind = None;
        let mut id = None;
        let mut data = Vec::<String>::new();
        for line in lines.split('\n') {
            if line.is_empty() {
                let kind = kind.take().filter(|kind: &String| !kind.is_empty());
                let id = id.take();
                let data = std::mem::take(&mut data);
                if !data.concat().is_empty() || data.len() > 1 {
                    events.push(SseEvent {
                        kind,
                        id,
                        data: Bytes::from(data.join("\n")),
                    });
                }
                continue;
            }
            let (field, value) = line.split_once(':').unwrap_or((line, ""));
            let value = value.strip_prefix(' ').unwrap_or(value).to_owned();
            match field {
                "data" => data.push(value),
                "event" => kind = Some(value),
                "id" if !value.contains('\0') => id = Some(value),
                _ => {}
            }
        }
        events
    }

    fn lines() -> impl Strategy<Value = String> {
        let field = prop::sample::select(vec![
            "data",
            "data",
            "data",
            "event",
            "id",
            "retry",
            "",
            "other",
            "\u{feff}data",
        ]);
        let value = prop::sample::select(vec![
            "",
            ":",
            ": ",
            ":x",
            ": x",
            ":  é: ",
            ":{\"a\":1}",
            ":\0",
            ": 15",
        ]);
        let end =
            prop::sample::select(vec!["\n", "\r", "\r\n", "\n\n", "\r\r", "\r\n\r\n", "\n\r"]);
        let line =
            (field, value, end).prop_map(|(field, value, end)| format!("{field}{value}{end}"));
        let bom = prop::sample::select(vec!["", "", "\u{feff}"]);
        (bom, prop::collection::vec(line, 0..12))
            .prop_map(|(bom, lines)| format!("{bom}{}", lines.concat()))
    }

    proptest! {
        #[test]
        fn reading_is_as_the_standard_says_at_every_cut(text in lines(),
            cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..8)) {
            let bytes = text.as_bytes();
            let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
            cuts.extend([0, bytes.len()]);
            cuts.sort_unstable();
            let mut reader = SseDecoder::new(1 << 20);
            let mut events = Vec::new();
            for piece in cuts.windows(2) {
                reader.push(&bytes[piece[0]..piece[1]]);
                while let Some(event) = reader.next_event().unwrap() {
                    events.push(event);
                }
            }
            prop_assert_eq!(&events, &reference(&text));
            for size in 1..4 {
                prop_assert_eq!(&read_in_pieces(bytes, size), &events, "cut every {} bytes", size);
            }
        }

        #[test]
        fn framed_messages_read_back(messages in prop::collection::vec(crate::json::tests::value(),
            1..4), size in 1..9_usize) {
            let text: Vec<u8> = messages.iter().flat_map(|json| encode_event(json.as_bytes())).collect();
            let events = read_in_pieces(&text, size);
            prop_assert_eq!(events.len(), messages.len());
            for (event, json) in events.iter().zip(&messages) {
                // A CR between tokens becomes a space: equal value, equal length.
                prop_assert_eq!(event.data.len(), json.len());
                prop_assert_eq!(String::from_utf8(event.data.to_vec()).unwrap(),
                    json.replace('\r', " "));
            }
        }
    }

    fn read_in_pieces(text: &[u8], size: usize) -> Vec<SseEvent> {
        let mut reader = SseDecoder::new(1 << 20);
        let mut events = Vec::new();
        for piece in text.chunks(size) {
            reader.push(piece);
            while let Some(event) = reader.next_event().unwrap() {
                events.push(event);
            }
        }
        events
    }

    #[test]
    fn the_cut_does_not_matter() {
        let text =
            "\u{feff}: hi\r\nevent: message\rid: 7\ndata: {\"a\":\r\ndata: \"\u{e9}\"}\n\nretry: \
             5\ndata\n\ndata:x\r\r"
                .as_bytes();
        let whole = read_in_pieces(text, text.len());
        assert_eq!(whole.len(), 2);
        assert_eq!(&whole[0].data[..], "{\"a\":\n\"\u{e9}\"}".as_bytes());
        assert_eq!(whole[0].id.as_deref(), Some("7"));
        assert_eq!(&whole[1].data[..], b"x");
        for size in 1..text.len() {
            assert_eq!(read_in_pieces(text, size), whole, "cut every {size} bytes");
        }
    }

    #[test]
    fn the_last_event_id_and_retry_are_kept() {
        let mut reader = SseDecoder::new(64);
        for (text, id) in [
            ("data: 1\n\n", None),
            ("id: a\n", None),
            ("data:\n\n", Some("a")),
            ("data: 1\n\n", Some("a")),
            ("id: b\nretry: 7\n\n", Some("b")),
            ("id: c\0\ndata: 1\n\n", Some("b")),
            ("id\ndata: 1\n\n", None),
            ("retry: +8\nretry:\nretry: 9 \n\n", None),
        ] {
            reader.push(text.as_bytes());
            while reader.next_event().unwrap().is_some() {}
            assert_eq!(reader.last_id(), id, "{text:?}");
        }
        assert_eq!(reader.retry_ms(), Some(7));
    }

    #[test]
    fn a_long_event_is_refused() {
        let mut reader = SseDecoder::new(64);
        reader.push(&[b'x'; 65]);
        assert_eq!(reader.next_event(), Err(EventTooLong { limit: 64 }));
        let mut reader = SseDecoder::new(64);
        for _ in 0..3 {
            reader.push(b"data: 0123456789012345678901234567890\n");
        }
        assert_eq!(reader.next_event(), Err(EventTooLong { limit: 64 }));
    }

    #[test]
    fn a_decoder_keeps_no_memory_of_a_long_event() {
        let mut reader = SseDecoder::new(1 << 23);
        reader.push(
            &[
                b"event: ",
                &*vec![b'e'; 1 << 20],
                b"\nid: ",
                &*vec![b'i'; 1 << 20],
                b"\n",
            ]
            .concat(),
        );
        reader.push(&[b"data: ", &*vec![b'x'; 1 << 22], b"\n\ndata: 1\n\n"].concat());
        let event = reader.next_event().unwrap().unwrap();
        assert_eq!(event.kind.unwrap().len(), KIND_MAX);
        assert_eq!(event.id, None);
        assert_eq!(reader.next_event().unwrap().unwrap().data, "1");
        reader.push(b"data: 2");
        assert!(
            reader.buffer.capacity() <= 2 * BUFFER_KEPT,
            "{}",
            reader.buffer.capacity()
        );
    }

    #[test]
    fn a_foreign_type_is_not_taken_for_a_message_whatever_its_bytes_are() {
        let cut = [&*vec![b'x'; KIND_MAX - 1], "\u{e9}".as_bytes()].concat();
        for kind in [
            &cut[..],
            "\u{1f600}".repeat(KIND_MAX).as_bytes(),
            b"\xff",
            b"message\xc3",
        ] {
            let mut reader = SseDecoder::new(1 << 20);
            reader.push(&[b"event: ", kind, b"\ndata: {}\n\n"].concat());
            let event = reader.next_event().unwrap().unwrap();
            assert!(event.kind.is_some_and(|kind| kind != "message"), "{kind:?}");
        }
    }

    #[test]
    fn encoded_events_decode_to_the_same() {
        let json = b"{\"a\":\n 1,\r\n \"b\": 2}";
        let mut reader = SseDecoder::new(1024);
        reader.push(&encode_event(json));
        let event = reader.next_event().unwrap().unwrap();
        let value: serde_json::Value = serde_json::from_slice(&event.data).unwrap();
        assert_eq!(value, serde_json::json!({"a": 1, "b": 2}));
    }
}
