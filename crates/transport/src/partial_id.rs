//! Scanner for the `id` of a message that is too long to be buffered.
//!
//! Owns the state between two parts of the message. Does not keep the parts. Invariant: only an
//! `id` of the outermost object counts.

use moongate_jsonrpc::message::echoed_number;

/// Limit of the bytes of an id. Longer ones are nobody's.
const ID_MAX: usize = 32;

/// Incremental scanner for the `id` of a message. Some servers write it last, after a result that
/// may hold ids of other things.
#[derive(Default)]
pub struct PartialIdScanner {
    depth: usize,
    in_string: bool,
    escaped: bool,
    /// Last string of the outermost object, up to the length that distinguishes it from the keys
    /// that count.
    key: Vec<u8>,
    /// Value after the key, while it is read.
    value: Option<Vec<u8>>,
    /// First id that was read.
    id: Option<u64>,
    has_outcome: bool,
    has_method: bool,
}

/// Length of the longest key that counts.
const KEY_MAX: usize = "result".len();

impl PartialIdScanner {
    /// Scans the next part of a request. Returns its id once it was read.
    pub fn feed(&mut self, part: &[u8]) -> Option<u64> {
        self.scan(part);
        self.id
    }

    /// Scans the next part of a server's message. Returns the id once it is known to be that of an
    /// answer: both sides count their requests from one.
    pub fn feed_answer(&mut self, part: &[u8]) -> Option<u64> {
        self.scan(part);
        self.id.filter(|_| self.has_outcome && !self.has_method)
    }

    fn scan(&mut self, part: &[u8]) {
        for byte in part.iter().copied() {
            if self.in_string {
                self.string(byte);
                continue;
            }
            match byte {
                b'"' => {
                    self.in_string = true;
                    if !self.keep_byte(byte) {
                        self.key.clear();
                    }
                }
                b'{' | b'[' => {
                    self.depth += 1;
                    self.value = None;
                }
                // Only members of the message itself count, not those of its result.
                b':' if self.depth == 1 => {
                    self.value = (self.key == b"id").then(Vec::new);
                    self.has_method |= self.key == b"method";
                    self.has_outcome |= self.key == b"result" || self.key == b"error";
                }
                b',' | b'}' | b']' => {
                    let value = self.value.take();
                    // A second id would be a duplicate member, which no sender means.
                    self.id = self
                        .id
                        .or_else(|| value.and_then(|value| echoed_number(value.trim_ascii())));
                    // The text was never parsed, so its brackets may be unbalanced.
                    self.depth -= usize::from(byte != b',' && self.depth > 0);
                }
                _ => {
                    self.keep_byte(byte);
                }
            }
        }
    }

    /// Keeps a byte of the value. False if no value is read.
    fn keep_byte(&mut self, byte: u8) -> bool {
        match &mut self.value {
            Some(value) if value.len() < ID_MAX => value.push(byte),
            Some(_) => self.value = None,
            None => return false,
        }
        true
    }

    fn string(&mut self, byte: u8) {
        if self.keep_byte(byte) {
            self.in_string = byte != b'"';
            return;
        }
        match byte {
            _ if std::mem::take(&mut self.escaped) => {}
            b'\\' => self.escaped = true,
            b'"' => {
                self.in_string = false;
                return;
            }
            _ => {}
        }
        // One byte more is enough to distinguish any other key from those that count.
        if self.depth == 1 && self.key.len() <= KEY_MAX {
            self.key.push(byte);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(text: &str, part: usize) -> Option<u64> {
        let mut scan = PartialIdScanner::default();
        text.as_bytes()
            .chunks(part)
            .fold(None, |found, part| found.or(scan.feed(part)))
    }

    fn answered_id(text: &str) -> Option<u64> {
        PartialIdScanner::default().feed_answer(text.as_bytes())
    }

    #[test]
    fn the_id_of_an_answer_is_not_that_of_a_request() {
        assert_eq!(
            answered_id(r#"{"jsonrpc":"2.0","id":17,"result":{"method":4"#),
            Some(17)
        );
        assert_eq!(answered_id(r#"{"error":{"code":1},"id":17}"#), Some(17));
        assert_eq!(
            answered_id(
                r#"{"jsonrpc":"2.0","id":17,"method":"sampling/createMessage","params":{"result":1"#
            ),
            None
        );
        assert_eq!(
            answered_id(r#"{"method":"roots/list","id":17,"params":{}}"#),
            None
        );
        assert_eq!(answered_id(r#"{"level":30,"id":17,"msg":"#), None);
    }

    #[test]
    fn the_id_of_a_message_is_found_wherever_it_stands() {
        let own = [
            r#"{"jsonrpc":"2.0","id":17,"result":{"id":4}}"#,
            r#"{"result":{"id":4,"text":"\"id\":5,{\\"},"jsonrpc":"2.0","id": 17 }"#,
            r#"{ "error": [{"id":3}], "x": "id", "id" : 17, "result": {}}"#,
            r#"{"id":"17","result":4}"#,
            r#"{"id": 17.0 ,"result":4}"#,
        ];
        for text in own {
            for part in [1, 2, 7, 1000] {
                assert_eq!(id(text, part), Some(17), "{text}");
            }
        }
        let none = [
            r#"{"result":{"id":4}}"#,
            r#"{"id":"x17","result":4}"#,
            r#"{"id":null,"result":4}"#,
            r#"{"ids":4,"i":5,"\u0069d":6}"#,
            r#"[{"id":4}]"#,
            r#"{"id":99999999999999999999,"x":1}"#,
            "4,5]}}",
        ];
        for text in none {
            for part in [1, 1000] {
                assert_eq!(id(text, part), None, "{text}");
            }
        }
    }
}
