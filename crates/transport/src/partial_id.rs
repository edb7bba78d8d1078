//! Scanner for the `id` of a message that is too long to be buffered.
//!
//! Owns the state between two parts of the message. Does not keep the parts. Invariant: only an `id` of the outermost
//! object counts.

use moongate_jsonrpc::message::echoed_number;

/// Limit of the bytes of an id. Longer ones are nobody's.
const ID_MAX: usize = 32;

/// Incremental scanner for the `id` of a message. Some servers write it last, after a result that may hold ids of
/// other things.
#[derive(Default)]
pub struct PartialIdScanner {
    depth: usize,
    in_string: bool,
    escaped: bool,
    /// Last string of the outermost object, up to the length that tells it from `id`.
    key: Vec<u8>,
    /// Value after the key, while it is read.
    value: Option<Vec<u8>>,
    /// True once an id was returned. Only the first counts.
    found: bool,
}

impl PartialIdScanner {
    /// Scans the next part. Returns the id if it ends in this part.
    pub fn feed(&mut self, part: &[u8]) -> Option<u64> {
        let mut found = None;
        for byte in part.iter().copied() {
            if self.in_string {
                self.string(byte);
                continue;
            }
            match byte {
                b'"' => {
                    self.in_string = true;
                    if !self.keep(byte) {
                        self.key.clear();
                    }
                }
                b'{' | b'[' => {
                    self.depth += 1;
                    self.value = None;
                }
                // Only members of the message itself count, not those of its result.
                b':' if self.depth == 1 => self.value = (self.key == b"id").then(Vec::new),
                b',' | b'}' | b']' => {
                    let value = self.value.take();
                    found = found.or_else(|| value.and_then(|value| echoed_number(value.trim_ascii())));
                    // The text was never parsed, so its brackets may be unbalanced.
                    self.depth -= usize::from(byte != b',' && self.depth > 0);
                }
                _ => {
                    self.keep(byte);
                }
            }
        }
        // A second id would be a duplicate member, which no sender means.
        found = found.filter(|_| !self.found);
        self.found |= found.is_some();
        found
    }

    /// Keeps a byte of the value. False if no value is read.
    fn keep(&mut self, byte: u8) -> bool {
        match &mut self.value {
            Some(value) if value.len() < ID_MAX => value.push(byte),
            Some(_) => self.value = None,
            None => return false,
        }
        true
    }

    fn string(&mut self, byte: u8) {
        if self.keep(byte) {
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
        // One byte more than `id` has is enough to tell any other key from it.
        if self.depth == 1 && self.key.len() <= b"id".len() {
            self.key.push(byte);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(text: &str, part: usize) -> Option<u64> {
        let mut scan = PartialIdScanner::default();
        text.as_bytes().chunks(part).fold(None, |found, part| found.or(scan.feed(part)))
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
