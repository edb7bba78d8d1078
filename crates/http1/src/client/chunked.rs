//! Incremental decoder of chunked bodies.
//!
//! Owns the state between two reads, and no buffer. Does not know connections. Invariant: the
//! result does not depend on how the bytes were split, and bytes that another recipient could read
//! differently are an error.

use bytes::BytesMut;

use crate::error::ParseError;

/// Limit of a chunk-size line with its extensions, in bytes.
const LINE_MAX: u16 = 4096;
/// Limit of the trailer section, in bytes.
const TRAILER_MAX: u16 = 16 * 1024;
/// Limit of lines in the trailer section, as for headers.
const TRAILER_LINES_MAX: u8 = 100;
/// Limit of hexadecimal digits in a chunk size: more would overflow 64 bits.
const DIGITS_MAX: u8 = 16;

/// Decoder, described by the position of the next byte.
#[derive(Debug)]
pub(super) struct ChunkedDecoder {
    state: ChunkState,
    /// Bytes left in the current chunk.
    remaining: u64,
    digits: u8,
    /// Length of the current line or trailer so far.
    line_length: u16,
    /// Lines of the trailer so far.
    trailer_lines: u8,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum ChunkState {
    Size,
    /// White space after the size.
    Space,
    Extension,
    SizeEnd,
    Data,
    DataReturn,
    DataEnd,
    /// Start of a line of the trailer.
    Line,
    TrailerName,
    TrailerValue,
    TrailerEnd,
    LastEnd,
    Finished,
}

impl ChunkedDecoder {
    pub(super) fn new() -> Self {
        ChunkedDecoder {
            state: ChunkState::Size,
            remaining: 0,
            digits: 0,
            line_length: 0,
            trailer_lines: 0,
        }
    }

    pub(super) fn is_finished(&self) -> bool {
        self.state == ChunkState::Finished
    }

    /// Appends the data in `input` to `out` and returns how much of `input` belongs to this body.
    pub(super) fn decode(&mut self, input: &[u8], out: &mut BytesMut) -> Result<usize, ParseError> {
        let mut used = 0;
        while used < input.len() && self.state != ChunkState::Finished {
            if self.state == ChunkState::Data {
                let data = &input[used..];
                // A chunk may be longer than what was read, and on 32 bits longer than any buffer.
                let taken =
                    usize::try_from(self.remaining).map_or(data.len(), |left| left.min(data.len()));
                out.extend_from_slice(&data[..taken]);
                used += taken;
                self.remaining -= taken as u64;
                if self.remaining == 0 {
                    self.state = ChunkState::DataReturn;
                }
                continue;
            }
            self.state = self.step(input[used])?;
            used += 1;
        }
        Ok(used)
    }

    /// Advances by one byte. RFC 9112, section 7.1: chunk = chunk-size [ chunk-ext ] CRLF
    /// chunk-data CRLF. A bare line feed ends no line: section 2.2 lets recipients be lenient only
    /// in heads.
    fn step(&mut self, byte: u8) -> Result<ChunkState, ParseError> {
        match (self.state, byte) {
            (ChunkState::Size, b'0'..=b'9' | b'a'..=b'f' | b'A'..=b'F') => self.digit(byte),
            // RFC 9112, section 7.1: "chunk-size = 1*HEXDIG". Some recipients read an empty size as
            // zero, which ends the body.
            (ChunkState::Size, _) if self.digits == 0 => Err(ParseError("a chunk has no size")),
            (ChunkState::Size | ChunkState::Space, b'\r') | (ChunkState::Extension, b'\r') => {
                Ok(ChunkState::SizeEnd)
            }
            (ChunkState::Size | ChunkState::Space, b';') => {
                self.extend_line(LINE_MAX, ChunkState::Extension)
            }
            (ChunkState::Size | ChunkState::Space, b' ' | b'\t') => {
                self.extend_line(LINE_MAX, ChunkState::Space)
            }
            (ChunkState::Size | ChunkState::Space, b'\n') => {
                Err(ParseError("a chunk size ends in a bare line feed"))
            }
            (ChunkState::Size | ChunkState::Space, _) => {
                Err(ParseError("a chunk size is not a hexadecimal number"))
            }
            // Recipients that end the line here and those that do not would see two different
            // bodies.
            (ChunkState::Extension, b'\n') => {
                Err(ParseError("a chunk extension ends in a bare line feed"))
            }
            (ChunkState::Extension, _) => self.extend_line(LINE_MAX, ChunkState::Extension),
            (ChunkState::SizeEnd, b'\n') => {
                // A size of zero marks the last chunk; a trailer may follow it.
                (self.line_length, self.digits) = (0, 0);
                Ok(if self.remaining == 0 {
                    ChunkState::Line
                } else {
                    ChunkState::Data
                })
            }
            (ChunkState::DataReturn, b'\r') => Ok(ChunkState::DataEnd),
            (ChunkState::DataEnd, b'\n') => Ok(ChunkState::Size),
            // Never skipped: the next response on this connection would start at the wrong
            // position.
            (ChunkState::DataReturn | ChunkState::DataEnd, _) => {
                Err(ParseError("a chunk is longer than its size"))
            }
            (ChunkState::Line, b'\r') => Ok(ChunkState::LastEnd),
            (ChunkState::Line | ChunkState::TrailerName | ChunkState::TrailerValue, _) => {
                self.trailer(byte)
            }
            (ChunkState::TrailerEnd, b'\n') => Ok(ChunkState::Line),
            (ChunkState::LastEnd, b'\n') => Ok(ChunkState::Finished),
            (ChunkState::SizeEnd | ChunkState::TrailerEnd | ChunkState::LastEnd, _) => {
                Err(ParseError("a carriage return has no line feed"))
            }
            (ChunkState::Data | ChunkState::Finished, _) => Ok(self.state),
        }
    }

    /// Checks one byte of a trailer line. The line is ignored, but it has to be a header: RFC 9112,
    /// section 7.1.2 has "trailer-section = *( field-line CRLF )".
    fn trailer(&mut self, byte: u8) -> Result<ChunkState, ParseError> {
        let next = match (self.state, byte) {
            (_, b'\n') => {
                return Err(ParseError("a trailer line ends in a bare line feed"));
            }
            (ChunkState::TrailerValue, b'\r') => return Ok(ChunkState::TrailerEnd),
            (ChunkState::TrailerValue, b'\t' | b' '..=b'~' | 0x80..) => ChunkState::TrailerValue,
            (ChunkState::TrailerName, b':') => ChunkState::TrailerValue,
            (ChunkState::Line | ChunkState::TrailerName, byte) if is_token(byte) => {
                ChunkState::TrailerName
            }
            _ => return Err(ParseError("a trailer line is not a header")),
        };
        if self.state == ChunkState::Line {
            self.trailer_lines += 1;
            if self.trailer_lines > TRAILER_LINES_MAX {
                return Err(ParseError("the trailer has more than 100 lines"));
            }
        }
        self.extend_line(TRAILER_MAX, next)
    }

    fn digit(&mut self, byte: u8) -> Result<ChunkState, ParseError> {
        // Leading zeros count as well, so that a size line is bounded.
        if self.digits == DIGITS_MAX {
            return Err(ParseError("a chunk size has more than 16 digits"));
        }
        self.digits += 1;
        let value = (byte as char).to_digit(16).unwrap_or_default();
        self.remaining = self.remaining << 4 | u64::from(value);
        Ok(ChunkState::Size)
    }

    /// Counts one byte of an extension or a trailer, which are ignored but bounded.
    fn extend_line(&mut self, limit: u16, next: ChunkState) -> Result<ChunkState, ParseError> {
        self.line_length += 1;
        match self.line_length > limit {
            false => Ok(next),
            true if limit == LINE_MAX => {
                Err(ParseError("the chunk extensions are longer than 4 KiB"))
            }
            true => Err(ParseError("the trailer is longer than 16 KiB")),
        }
    }
}

/// True for a byte of a token (RFC 9110, section 5.6.2), as in names of headers.
fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Returns the decoded bytes, the number of used bytes, and true at the end of the body.
    fn decode(pieces: &[&[u8]]) -> Result<(Vec<u8>, usize, bool), &'static str> {
        let mut chunks = ChunkedDecoder::new();
        let mut out = BytesMut::new();
        let mut used = 0;
        for piece in pieces {
            used += chunks.decode(piece, &mut out).map_err(|wrong| wrong.0)?;
        }
        Ok((out.to_vec(), used, chunks.is_finished()))
    }

    /// Decodes the bytes at every split into two and byte by byte, and expects one result.
    fn decode_all_ways(bytes: &[u8]) -> Result<(Vec<u8>, usize, bool), &'static str> {
        let whole = decode(&[bytes]);
        for at in 0..=bytes.len() {
            let (left, right) = bytes.split_at(at);
            assert_eq!(decode(&[left, right]), whole, "cut at {at}");
        }
        assert_eq!(decode(&bytes.chunks(1).collect::<Vec<_>>()), whole);
        whole
    }

    #[test]
    fn bodies_are_decoded_however_they_are_cut() {
        for (bytes, text) in [
            ("0\r\n\r\n", ""),
            ("2\r\nok\r\n0\r\n\r\n", "ok"),
            ("2\r\nok\r\n3\r\n\r\n!\r\n00\r\n\r\n", "ok\r\n!"),
            ("A\r\n0123456789\r\n0\r\n\r\n", "0123456789"),
            ("a;x\r\n0123456789\r\n0;y=\"z\"\r\n\r\n", "0123456789"),
            ("2  ; x = 1\r\nok\r\n0 \r\n\r\n", "ok"),
            ("0000000000000002\r\nok\r\n0\r\n\r\n", "ok"),
            ("2\r\nok\r\n0\r\nA: b\r\nC: d\r\n\r\n", "ok"),
        ] {
            assert_eq!(
                decode_all_ways(bytes.as_bytes()),
                Ok((text.into(), bytes.len(), true)),
                "{bytes:?}"
            );
            // Bytes after the body are not consumed.
            let more = format!("{bytes}HTTP/1.1 200 OK\r\n");
            assert_eq!(
                decode_all_ways(more.as_bytes()),
                Ok((text.into(), bytes.len(), true)),
                "{more:?}"
            );
        }
    }

    #[test]
    fn ambiguous_chunks_are_refused() {
        for (bytes, why) in [
            ("\r\n", "a chunk has no size"),
            (" 2\r\nok\r\n", "a chunk has no size"),
            (";x\r\n", "a chunk has no size"),
            ("+2\r\nok\r\n", "a chunk has no size"),
            ("-2\r\nok\r\n", "a chunk has no size"),
            ("0x2\r\nok\r\n", "a chunk size is not a hexadecimal number"),
            ("2g\r\nok\r\n", "a chunk size is not a hexadecimal number"),
            ("2 2\r\nok\r\n", "a chunk size is not a hexadecimal number"),
            ("2\nok\r\n", "a chunk size ends in a bare line feed"),
            ("2 \nok\r\n", "a chunk size ends in a bare line feed"),
            ("2;x\nok\r\n", "a chunk extension ends in a bare line feed"),
            ("2\rok\r\n", "a carriage return has no line feed"),
            ("2;\r\r\nok\r\n", "a carriage return has no line feed"),
            ("2\r\nok!\r\n", "a chunk is longer than its size"),
            ("2\r\nok\n0\r\n\r\n", "a chunk is longer than its size"),
            ("2\r\nok0\r\n\r\n", "a chunk is longer than its size"),
            ("2\r\nok\r0\r\n\r\n", "a chunk is longer than its size"),
            (
                "00000000000000002\r\nok\r\n",
                "a chunk size has more than 16 digits",
            ),
            (
                "fffffffffffffffff\r\n",
                "a chunk size has more than 16 digits",
            ),
            ("0\r\n\n", "a trailer line ends in a bare line feed"),
            ("0\r\nA: b\n\r\n", "a trailer line ends in a bare line feed"),
            ("0\r\nA: b\rC\r\n\r\n", "a carriage return has no line feed"),
            ("0\r\nno field\r\n\r\n", "a trailer line is not a header"),
            ("0\r\nA : b\r\n\r\n", "a trailer line is not a header"),
            ("0\r\n: b\r\n\r\n", "a trailer line is not a header"),
            ("0\r\nA: b\r\n c\r\n\r\n", "a trailer line is not a header"),
            ("0\r\nA: \x01\r\n\r\n", "a trailer line is not a header"),
            ("0\r\n\r!", "a carriage return has no line feed"),
        ] {
            assert_eq!(decode_all_ways(bytes.as_bytes()), Err(why), "{bytes:?}");
        }
    }

    fn chunk_with_extension(length: usize) -> String {
        format!("2;{}\r\nok\r\n", "x".repeat(length))
    }

    fn trailer_of_lines(lines: usize) -> String {
        format!("0\r\n{}\r\n", "A: b\r\n".repeat(lines))
    }

    fn trailer_of_length(length: usize) -> String {
        format!("0\r\nA:{}\r\n\r\n", "b".repeat(length - 2))
    }

    #[test]
    fn chunk_extensions_and_trailers_are_bounded() {
        let fits = chunk_with_extension(usize::from(LINE_MAX) - 1);
        // The limit is for each chunk: a stream may be long.
        let many = fits.repeat(20) + "0\r\n\r\n";
        assert_eq!(
            decode(&[many.as_bytes()]),
            Ok(("ok".repeat(20).into(), many.len(), true))
        );
        let long = chunk_with_extension(usize::from(LINE_MAX));
        assert_eq!(
            decode(&[long.as_bytes()]),
            Err("the chunk extensions are longer than 4 KiB")
        );
        assert_eq!(
            decode(&[trailer_of_lines(100).as_bytes()]),
            Ok((vec![], 100 * 6 + 5, true))
        );
        assert_eq!(
            decode(&[trailer_of_lines(101).as_bytes()]),
            Err("the trailer has more than 100 lines")
        );
        let longest = usize::from(TRAILER_MAX);
        assert_eq!(
            decode(&[trailer_of_length(longest).as_bytes()]),
            Ok((vec![], longest + 7, true))
        );
        assert_eq!(
            decode(&[trailer_of_length(longest + 1).as_bytes()]),
            Err("the trailer is longer than 16 KiB")
        );
    }

    #[test]
    fn a_chunk_of_the_largest_size_is_only_long() {
        let mut chunks = ChunkedDecoder::new();
        let mut out = BytesMut::new();
        assert_eq!(
            chunks.decode(b"ffffffffffffffff\r\nabc", &mut out).unwrap(),
            21
        );
        assert_eq!(&out[..], b"abc");
        assert_eq!(chunks.remaining, u64::MAX - 3);
        assert!(!chunks.is_finished());
    }

    fn written(parts: &[Vec<u8>], extension: &str, trailer: &str) -> Vec<u8> {
        let mut bytes = Vec::new();
        for part in parts {
            bytes.extend_from_slice(format!("{:X}{extension}\r\n", part.len()).as_bytes());
            bytes.extend_from_slice(part);
            bytes.extend_from_slice(b"\r\n");
        }
        bytes.extend_from_slice(format!("0\r\n{trailer}\r\n").as_bytes());
        bytes
    }

    proptest! {
        #[test]
        fn encoded_chunks_decode_to_the_same_bytes(
            parts in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..80), 0..6),
            extension in "(;[a-z]{0,5})?",
            trailer in "([a-z]{1,5}: [a-z]{0,5}\r\n){0,3}",
            cuts in prop::collection::vec(1_usize..40, 1..20),
        ) {
            let bytes = written(&parts, &extension, &trailer);
            let mut pieces = Vec::new();
            let mut rest = &bytes[..];
            let mut cuts = cuts.into_iter().cycle();
            while !rest.is_empty() {
                let (piece, others) = rest.split_at(cuts.next().unwrap().min(rest.len()));
                pieces.push(piece);
                rest = others;
            }
            prop_assert_eq!(decode(&pieces), Ok((parts.concat(), bytes.len(), true)));
        }

        #[test]
        fn any_bytes_are_read_the_same_however_they_are_cut(
            bytes in prop::collection::vec(prop::sample::select(b"0123af \t;x\r\n:".to_vec()),
                0..60),
        ) {
            let _ = decode_all_ways(&bytes);
        }
    }
}
