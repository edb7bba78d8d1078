//! Content codings of responses: gzip, deflate and br.
//!
//! Owns the decoders, and what they hold. Does not limit the whole body (`read_body.rs`, `event_stream.rs`). Invariant:
//! one step decodes a bounded number of bytes, however small its input was.

use std::io::{self, BufRead, Read};
use std::task::{Context, Poll, ready};

use brotli_decompressor::{BrotliDecompressStream, BrotliResult, BrotliState, StandardAlloc};
use bytes::{Buf, Bytes};
use flate2::bufread::{DeflateDecoder, MultiGzDecoder, ZlibDecoder};
use http::header::{CONTENT_ENCODING, CONTENT_LENGTH};
use http::{HeaderMap, Response};
use moongate_http1::ConnectionError;

use crate::LinkError;
use crate::response_body::ResponseBody;

/// Limit of the bytes that one step decodes.
const STEP_MAX: usize = 16 * 1024;
/// Limit of the codings of one body. Nobody means more than one.
const CODINGS_MAX: usize = 3;

/// Undoes the codings of a response. Fails if one is unknown.
pub(super) fn decode_response(response: Response<ResponseBody>) -> Result<Response<ResponseBody>, LinkError> {
    if !response.headers().contains_key(CONTENT_ENCODING) {
        return Ok(response);
    }
    let codings = codings(response.headers());
    // An error is told by its status. Its words are not worth another error.
    let known: Result<Vec<Coding>, String> = codings.iter().map(|name| Coding::of(name)).collect();
    let known = match known {
        Ok(known) if known.len() <= CODINGS_MAX => known,
        _ if !response.status().is_success() => return Ok(response),
        Ok(_) => return Err(LinkError::Protocol(format!("the answer has {} content codings", codings.len()))),
        Err(name) => {
            let text = format!("the answer has the content coding {name:?}, and only gzip, deflate and br are known");
            return Err(LinkError::Protocol(text));
        }
    };
    let (mut head, mut body) = response.into_parts();
    head.headers.remove(CONTENT_LENGTH);
    // RFC 9110, 8.4: "the content codings are listed in the order in which they were applied".
    for coding in known.into_iter().rev() {
        body = ResponseBody::Decoded(Box::new(DecodedBody::new(coding, body)));
    }
    Ok(Response::from_parts(head, body))
}

/// Returns the names of the codings, in the order in which they were applied.
fn codings(headers: &HeaderMap) -> Vec<String> {
    let lines = headers.get_all(CONTENT_ENCODING).iter().map(|value| String::from_utf8_lossy(value.as_bytes()));
    let names = lines.flat_map(|line| line.split(',').map(|name| name.trim().to_ascii_lowercase()).collect::<Vec<_>>());
    names.filter(|name| !name.is_empty() && name != "identity").map(|name| name.chars().take(40).collect()).collect()
}

#[derive(Clone, Copy, Debug)]
enum Coding {
    Gzip,
    Deflate,
    Brotli,
}

impl Coding {
    fn of(name: &str) -> Result<Self, String> {
        match name {
            "gzip" | "x-gzip" => Ok(Coding::Gzip),
            "deflate" => Ok(Coding::Deflate),
            "br" => Ok(Coding::Brotli),
            _ => Err(name.to_owned()),
        }
    }

    fn name(self) -> &'static str {
        match self {
            Coding::Gzip => "gzip",
            Coding::Deflate => "deflate",
            Coding::Brotli => "br",
        }
    }
}

/// Body without its coding.
pub(super) struct DecodedBody {
    inner: ResponseBody,
    coding: Coding,
    state: DecoderState,
}

enum DecoderState {
    /// The first bytes decide between the forms of a coding.
    Unstarted(Vec<u8>),
    Running(Decoder),
    /// Everything was decoded, or the decoder failed.
    Finished,
}

enum Decoder {
    Gzip(Box<MultiGzDecoder<ChunkReader>>),
    Zlib(Box<ZlibDecoder<ChunkReader>>),
    Raw(Box<DeflateDecoder<ChunkReader>>),
    Brotli(Box<BrotliDecoder>),
}

impl DecodedBody {
    fn new(coding: Coding, inner: ResponseBody) -> Self {
        DecodedBody { inner, coding, state: DecoderState::Unstarted(Vec::new()) }
    }

    /// True if no bytes are left to take.
    pub(super) fn is_finished(&self) -> bool {
        matches!(self.state, DecoderState::Finished) && self.inner.is_finished()
    }

    /// Returns the next bytes. `None` at the end of the body.
    pub(super) fn poll_data(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Bytes>, ConnectionError>> {
        loop {
            match self.step() {
                Ok(Some(bytes)) => return Poll::Ready(Ok(Some(bytes))),
                Ok(None) => {}
                Err(error) => {
                    self.state = DecoderState::Finished;
                    let text = format!("the answer is not valid {}: {error}", self.coding.name());
                    return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, text).into()));
                }
            }
            let data = ready!(self.inner.poll_data(cx))?;
            if data.is_none() && matches!(self.state, DecoderState::Finished) {
                return Poll::Ready(Ok(None));
            }
            self.feed(data);
        }
    }

    /// Decodes some bytes. `None` if more input is needed.
    fn step(&mut self) -> io::Result<Option<Bytes>> {
        let DecoderState::Running(decoder) = &mut self.state else { return Ok(None) };
        let mut out = vec![0; STEP_MAX];
        match decoder.read(&mut out) {
            Ok(0) => {
                self.state = DecoderState::Finished;
                Ok(None)
            }
            Ok(count) => {
                out.truncate(count);
                Ok(Some(out.into()))
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Takes the next input; `None` at its end.
    fn feed(&mut self, data: Option<Bytes>) {
        match &mut self.state {
            DecoderState::Unstarted(first) => {
                let is_end = data.is_none();
                first.extend_from_slice(&data.unwrap_or_default());
                if is_end && first.is_empty() {
                    // A notification is answered with an empty body, whatever its headers say.
                    self.state = DecoderState::Finished;
                } else if is_end || first.len() >= 2 {
                    let reader = ChunkReader { data: std::mem::take(first).into(), is_ended: is_end };
                    self.state = DecoderState::Running(Decoder::new(self.coding, reader));
                }
            }
            DecoderState::Running(decoder) => {
                let reader = decoder.reader();
                match data {
                    // The decoder asks for more only when it has read everything.
                    Some(data) => reader.data = data,
                    None => reader.is_ended = true,
                }
            }
            // Bytes after the end of the coding mean nothing. They are read so that the connection can be reused.
            DecoderState::Finished => {}
        }
    }
}

impl Decoder {
    fn new(coding: Coding, reader: ChunkReader) -> Self {
        match coding {
            Coding::Gzip => Decoder::Gzip(Box::new(MultiGzDecoder::new(reader))),
            Coding::Deflate if is_zlib(&reader.data) => Decoder::Zlib(Box::new(ZlibDecoder::new(reader))),
            Coding::Deflate => Decoder::Raw(Box::new(DeflateDecoder::new(reader))),
            Coding::Brotli => Decoder::Brotli(Box::new(BrotliDecoder::new(reader))),
        }
    }

    fn reader(&mut self) -> &mut ChunkReader {
        match self {
            Decoder::Gzip(decoder) => decoder.get_mut(),
            Decoder::Zlib(decoder) => decoder.get_mut(),
            Decoder::Raw(decoder) => decoder.get_mut(),
            Decoder::Brotli(decoder) => &mut decoder.reader,
        }
    }

    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        match self {
            Decoder::Gzip(decoder) => decoder.read(out),
            Decoder::Zlib(decoder) => decoder.read(out),
            Decoder::Raw(decoder) => decoder.read(out),
            Decoder::Brotli(decoder) => decoder.read(out),
        }
    }
}

/// True if the bytes begin with a header of RFC 1950. Some servers send bare RFC 1951 under the name `deflate`.
fn is_zlib(first: &[u8]) -> bool {
    let [method, flags, ..] = first else { return false };
    method & 0x0f == 8 && (u16::from(*method) << 8 | u16::from(*flags)).is_multiple_of(31)
}

/// Input that arrives in chunks. Between them it blocks.
struct ChunkReader {
    data: Bytes,
    is_ended: bool,
}

impl Read for ChunkReader {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let data = self.fill_buf()?;
        let count = data.len().min(out.len());
        out[..count].copy_from_slice(&data[..count]);
        self.consume(count);
        Ok(count)
    }
}

impl BufRead for ChunkReader {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.data.is_empty() && !self.is_ended {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        Ok(&self.data)
    }

    fn consume(&mut self, count: usize) {
        self.data.advance(count);
    }
}

/// Decoder of br, which has no reader that may block.
struct BrotliDecoder {
    reader: ChunkReader,
    state: BrotliState<StandardAlloc, StandardAlloc, StandardAlloc>,
    is_finished: bool,
}

impl BrotliDecoder {
    fn new(reader: ChunkReader) -> Self {
        let alloc = StandardAlloc::default;
        // Strict: without the windows of up to a gigabyte that RFC 7932 does not have.
        let state = BrotliState::new_strict(alloc(), alloc(), alloc());
        BrotliDecoder { reader, state, is_finished: false }
    }

    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        if self.is_finished {
            return Ok(0);
        }
        let (mut left, mut at) = (self.reader.data.len(), 0);
        let (mut room, mut written, mut total) = (out.len(), 0, 0);
        let result = BrotliDecompressStream(
            &mut left,
            &mut at,
            &self.reader.data,
            &mut room,
            &mut written,
            out,
            &mut total,
            &mut self.state,
        );
        self.reader.consume(at);
        match result {
            BrotliResult::ResultFailure => Err(io::ErrorKind::InvalidData.into()),
            BrotliResult::ResultSuccess => {
                self.is_finished = true;
                Ok(written)
            }
            _ if written > 0 => Ok(written),
            _ if self.reader.is_ended => Err(io::ErrorKind::UnexpectedEof.into()),
            _ => Err(io::ErrorKind::WouldBlock.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    const TEXT: &[u8] = b"{\"jsonrpc\":\"2.0\"} {\"jsonrpc\":\"2.0\"} {\"jsonrpc\":\"2.0\"}";
    /// `TEXT` in br: an uncompressed metablock (RFC 7932, 9.2), and the last one.
    fn brotli() -> Vec<u8> {
        // WBITS 16, then ISLAST 0, MNIBBLES 4, MLEN - 1, ISUNCOMPRESSED 1.
        let bits: u32 = (u32::try_from(TEXT.len()).unwrap() - 1) << 4 | 1 << 20;
        let mut out = bits.to_le_bytes()[..3].to_vec();
        out.extend_from_slice(TEXT);
        out.push(3);
        out
    }

    fn decoded(coding: Coding, body: &[u8], chunk: usize) -> io::Result<Vec<u8>> {
        let mut chunks = body.chunks(chunk).map(Bytes::copy_from_slice);
        let mut state = DecodedBody::new(coding, ResponseBody::Empty);
        let mut all = Vec::new();
        loop {
            while let Some(bytes) = state.step()? {
                all.extend_from_slice(&bytes);
            }
            if matches!(state.state, DecoderState::Finished) {
                return Ok(all);
            }
            state.feed(chunks.next());
        }
    }

    fn gzip(text: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
        encoder.write_all(text).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn each_coding_is_undone_however_its_bytes_arrive() {
        let mut zlib = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::default());
        zlib.write_all(TEXT).unwrap();
        let mut raw = flate2::write::DeflateEncoder::new(Vec::new(), flate2::Compression::default());
        raw.write_all(TEXT).unwrap();
        let two_members = [gzip(&TEXT[..10]), gzip(&TEXT[10..])].concat();
        let bodies = [
            (Coding::Gzip, gzip(TEXT)),
            (Coding::Gzip, two_members),
            (Coding::Deflate, zlib.finish().unwrap()),
            (Coding::Deflate, raw.finish().unwrap()),
            (Coding::Brotli, brotli()),
        ];
        for (coding, body) in bodies {
            for chunk in [1, 2, 7, 1000] {
                assert_eq!(decoded(coding, &body, chunk).unwrap(), TEXT, "{coding:?} {chunk}");
            }
            let cut = &body[..body.len() - 1];
            assert!(decoded(coding, cut, 7).is_err(), "{coding:?}");
        }
        for coding in [Coding::Gzip, Coding::Deflate, Coding::Brotli] {
            assert!(decoded(coding, &[0xff; 64], 7).is_err(), "{coding:?}");
            assert_eq!(decoded(coding, b"", 7).unwrap(), b"", "{coding:?}");
        }
    }

    #[test]
    fn a_bomb_is_decoded_in_steps() {
        let mut state = DecodedBody::new(Coding::Gzip, ResponseBody::Empty);
        state.feed(Some(gzip(&vec![0; 10 << 20]).into()));
        let first = state.step().unwrap().unwrap();
        assert!(first.len() <= STEP_MAX, "{}", first.len());
    }

    #[test]
    fn codings_are_named_in_order_and_unknown_ones_are_told() {
        let response = |coding: &'static str| {
            let response = Response::builder().header(CONTENT_ENCODING, coding);
            decode_response(response.body(ResponseBody::Empty).unwrap())
        };
        assert!(matches!(response("identity").unwrap().body(), ResponseBody::Empty));
        assert!(matches!(response("X-GZIP").unwrap().body(), ResponseBody::Decoded(_)));
        assert!(response("gzip, br").is_ok());
        let error = response("zstd").err().unwrap().to_string();
        assert!(error.contains("\"zstd\""), "{error}");
        assert!(response("br, br, br, br").is_err());
    }
}
