//! Content codings of responses: gzip, deflate and br.
//!
//! Owns the decoders, and what they hold. Does not limit the whole body (`read_body.rs`,
//! `event_stream.rs`). Invariant: one step decodes a bounded number of bytes, however small its
//! input was, and what arrived is decoded to its last byte.

use std::io::{self, Write};
use std::task::{Context, Poll, ready};

use brotli_decompressor::{BrotliDecompressStream, BrotliResult, BrotliState, StandardAlloc};
use bytes::{Buf, Bytes};
use flate2::write::{DeflateDecoder, MultiGzDecoder, ZlibDecoder};
use http::header::{CONTENT_ENCODING, CONTENT_LENGTH};
use http::{HeaderMap, Response};
use moongate_http1::ConnectionError;
use moongate_telemetry::{MemoryReservation, MemoryShare};

use crate::LinkError;
use crate::response_body::ResponseBody;

/// Bytes of br that one step decodes at most.
const STEP_MAX: usize = 16 * 1024;
/// Largest window of br (RFC 7932, 9.1), in bytes. A decoder keeps as many of the last bytes.
const BROTLI_WINDOW_MAX: usize = 1 << 24;
/// Limit of the codings of one body. Nobody means more than one.
const CODINGS_MAX: usize = 3;

/// Undoes the codings of a response. What the decoders keep is reserved in `memory`. Fails if a
/// coding is unknown.
pub(super) fn decode_response(
    response: Response<ResponseBody>,
    memory: &MemoryShare,
) -> Result<Response<ResponseBody>, LinkError> {
    if !response.headers().contains_key(CONTENT_ENCODING) {
        return Ok(response);
    }
    let codings = codings(response.headers());
    // The status reports an error. Its words are not worth another one.
    let known: Result<Vec<Coding>, String> = codings.iter().map(|name| Coding::of(name)).collect();
    let known = match known {
        Ok(known) if known.len() <= CODINGS_MAX => known,
        _ if !response.status().is_success() => return Ok(response),
        Ok(_) => {
            return Err(LinkError::Protocol(format!(
                "the answer has {} content codings",
                codings.len()
            )));
        }
        Err(name) => {
            let text = format!(
                "the answer has the content coding {name:?}, but only gzip, deflate and br are \
                 supported"
            );
            return Err(LinkError::Protocol(text));
        }
    };
    let (mut head, mut body) = response.into_parts();
    head.headers.remove(CONTENT_LENGTH);
    // RFC 9110, 8.4: "the content codings are listed in the order in which they were applied".
    for coding in known.into_iter().rev() {
        body = ResponseBody::Decoded(Box::new(DecodedBody::new(coding, body, memory.begin())));
    }
    Ok(Response::from_parts(head, body))
}

/// Returns the names of the codings, in the order in which they were applied.
fn codings(headers: &HeaderMap) -> Vec<String> {
    let lines = headers
        .get_all(CONTENT_ENCODING)
        .iter()
        .map(|value| String::from_utf8_lossy(value.as_bytes()));
    let names = lines.flat_map(|line| {
        line.split(',')
            .map(|name| name.trim().to_ascii_lowercase())
            .collect::<Vec<_>>()
    });
    names
        .filter(|name| !name.is_empty() && name != "identity")
        .map(|name| name.chars().take(40).collect())
        .collect()
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
    /// Memory of the decoder.
    reservation: MemoryReservation,
    /// Bytes that were decoded.
    decoded: usize,
}

enum DecoderState {
    /// The first bytes decide between the forms of a coding.
    Unstarted(Vec<u8>),
    Running(RunningDecoder),
    /// Everything was decoded, or the decoder failed.
    Finished,
}

/// Decoder with the input that it has not read.
struct RunningDecoder {
    decoder: ContentDecoder,
    input: Bytes,
    is_ended: bool,
}

enum ContentDecoder {
    Flate(Box<dyn FlateDecoder>),
    Brotli(Box<BrotliDecoder>),
}

/// Outcome of one step.
enum DecoderStep {
    Data(Bytes),
    NeedsInput,
    Finished(Bytes),
}

impl DecodedBody {
    fn new(coding: Coding, inner: ResponseBody, reservation: MemoryReservation) -> Self {
        DecodedBody {
            inner,
            coding,
            state: DecoderState::Unstarted(Vec::new()),
            reservation,
            decoded: 0,
        }
    }

    /// True if no bytes are left to take.
    pub(super) fn is_finished(&self) -> bool {
        matches!(self.state, DecoderState::Finished) && self.inner.is_finished()
    }

    /// Returns the body with its coding. What was not read of it is lost.
    pub(super) fn into_inner(self) -> ResponseBody {
        self.inner
    }

    /// Returns the next bytes. `None` at the end of the body.
    pub(super) fn poll_data(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Option<Bytes>, ConnectionError>> {
        loop {
            match self.step() {
                Ok(Some(bytes)) => return Poll::Ready(Ok(Some(bytes))),
                Ok(None) => {}
                Err(error) => {
                    self.state = DecoderState::Finished;
                    return Poll::Ready(Err(error.into()));
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
        let DecoderState::Running(running) = &mut self.state else {
            return Ok(None);
        };
        if matches!(self.coding, Coding::Brotli) {
            // The other codings keep 32 KiB.
            let window = self.decoded.min(BROTLI_WINDOW_MAX);
            self.reservation.cover(window).map_err(io::Error::other)?;
        }
        let name = self.coding.name();
        let step = running.step().map_err(|error| {
            io::Error::new(
                io::ErrorKind::InvalidData,
                format!("the answer is not valid {name}: {error}"),
            )
        })?;
        let data = match step {
            DecoderStep::Data(data) => data,
            DecoderStep::NeedsInput => return Ok(None),
            DecoderStep::Finished(data) => {
                self.state = DecoderState::Finished;
                data
            }
        };
        self.decoded += data.len();
        Ok(Some(data).filter(|data| !data.is_empty()))
    }

    /// Takes the next input; `None` at its end.
    fn feed(&mut self, data: Option<Bytes>) {
        let is_ended = data.is_none();
        let data = data.unwrap_or_default();
        match &mut self.state {
            DecoderState::Unstarted(first) => {
                first.extend_from_slice(&data);
                if is_ended && first.is_empty() {
                    // A notification is answered with an empty body, whatever its headers say.
                    self.state = DecoderState::Finished;
                } else if is_ended || first.len() >= 2 {
                    let input = Bytes::from(std::mem::take(first));
                    let decoder = ContentDecoder::new(self.coding, &input);
                    self.state = DecoderState::Running(RunningDecoder {
                        decoder,
                        input,
                        is_ended,
                    });
                }
            }
            DecoderState::Running(running) => {
                // A decoder asks for more only when it has read everything.
                running.input = data;
                running.is_ended = is_ended;
            }
            // Bytes after the end of the coding mean nothing. They are read so that the connection
            // can be reused.
            DecoderState::Finished => {}
        }
    }
}

impl RunningDecoder {
    fn step(&mut self) -> io::Result<DecoderStep> {
        match &mut self.decoder {
            ContentDecoder::Flate(decoder) => {
                step_flate(&mut **decoder, &mut self.input, self.is_ended)
            }
            ContentDecoder::Brotli(decoder) => decoder.step(&mut self.input, self.is_ended),
        }
    }
}

impl ContentDecoder {
    fn new(coding: Coding, first: &[u8]) -> Self {
        match coding {
            Coding::Gzip => ContentDecoder::Flate(Box::new(MultiGzDecoder::new(Vec::new()))),
            Coding::Deflate if is_zlib(first) => {
                ContentDecoder::Flate(Box::new(ZlibDecoder::new(Vec::new())))
            }
            Coding::Deflate => ContentDecoder::Flate(Box::new(DeflateDecoder::new(Vec::new()))),
            Coding::Brotli => ContentDecoder::Brotli(Box::new(BrotliDecoder::new())),
        }
    }
}

/// Methods that the decoders of `flate2` have in common.
trait FlateDecoder: Write + Send {
    fn output(&mut self) -> &mut Vec<u8>;

    /// Checks that the input was complete.
    fn finish(&mut self) -> io::Result<()>;
}

macro_rules! flate_decoder {
    ($decoder:ident) => {
        impl FlateDecoder for $decoder<Vec<u8>> {
            fn output(&mut self) -> &mut Vec<u8> {
                self.get_mut()
            }

            fn finish(&mut self) -> io::Result<()> {
                self.try_finish()
            }
        }
    };
}

flate_decoder!(MultiGzDecoder);
flate_decoder!(ZlibDecoder);
flate_decoder!(DeflateDecoder);

/// Decodes some of the input. A write fills the decoder's buffer of 32 KiB at most.
fn step_flate(
    decoder: &mut dyn FlateDecoder,
    input: &mut Bytes,
    is_ended: bool,
) -> io::Result<DecoderStep> {
    let mut is_finished = false;
    while !input.is_empty() && decoder.output().is_empty() && !is_finished {
        let read = decoder.write(input)?;
        input.advance(read);
        is_finished = read == 0;
    }
    if input.is_empty() {
        // An event that has arrived must not wait for the next one.
        decoder.flush()?;
    }
    is_finished |= input.is_empty() && is_ended;
    if is_finished {
        decoder.finish()?;
    }
    let data = Bytes::from(std::mem::take(decoder.output()));
    Ok(match data {
        data if is_finished => DecoderStep::Finished(data),
        data if data.is_empty() => DecoderStep::NeedsInput,
        data => DecoderStep::Data(data),
    })
}

/// True if the bytes start with a header of RFC 1950. Some servers send bare RFC 1951 under the
/// name `deflate`.
fn is_zlib(first: &[u8]) -> bool {
    let [method, flags, ..] = first else {
        return false;
    };
    method & 0x0f == 8 && (u16::from(*method) << 8 | u16::from(*flags)).is_multiple_of(31)
}

/// Decoder of br.
struct BrotliDecoder(BrotliState<StandardAlloc, StandardAlloc, StandardAlloc>);

impl BrotliDecoder {
    fn new() -> Self {
        let alloc = StandardAlloc::default;
        // Strict: without the windows of up to a gigabyte that RFC 7932 does not have.
        BrotliDecoder(BrotliState::new_strict(alloc(), alloc(), alloc()))
    }

    fn step(&mut self, input: &mut Bytes, is_ended: bool) -> io::Result<DecoderStep> {
        let mut out = vec![0; STEP_MAX];
        let mut left = input.len();
        let mut room = out.len();
        let mut read = 0;
        let mut written = 0;
        let mut total = 0;
        let state = &mut self.0;
        let result = BrotliDecompressStream(
            &mut left,
            &mut read,
            input,
            &mut room,
            &mut written,
            &mut out,
            &mut total,
            state,
        );
        input.advance(read);
        out.truncate(written);
        match result {
            BrotliResult::ResultFailure => Err(io::ErrorKind::InvalidData.into()),
            BrotliResult::ResultSuccess => Ok(DecoderStep::Finished(out.into())),
            _ if written > 0 => Ok(DecoderStep::Data(out.into())),
            _ if is_ended => Err(io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(DecoderStep::NeedsInput),
        }
    }
}

#[cfg(test)]
mod tests {
    use moongate_telemetry::{MemoryBudget, MemoryHolder, MemoryLimit, MemoryWatch, Metrics};

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

    fn share(limit: MemoryLimit) -> MemoryShare {
        let metrics = Metrics::new();
        MemoryBudget::new(&MemoryWatch::new(limit, &metrics), &metrics).share(MemoryHolder::Local)
    }

    fn body(coding: Coding) -> DecodedBody {
        DecodedBody::new(
            coding,
            ResponseBody::Empty,
            share(MemoryLimit::None).begin(),
        )
    }

    /// Decodes all that can be decoded of the input so far.
    fn decode_rest(state: &mut DecodedBody) -> io::Result<Vec<u8>> {
        let mut all = Vec::new();
        while let Some(bytes) = state.step()? {
            all.extend_from_slice(&bytes);
        }
        Ok(all)
    }

    fn decoded(coding: Coding, coded: &[u8], chunk: usize) -> io::Result<Vec<u8>> {
        let mut chunks = coded.chunks(chunk).map(Bytes::copy_from_slice);
        let mut state = body(coding);
        let mut all = Vec::new();
        loop {
            all.extend_from_slice(&decode_rest(&mut state)?);
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
        let mut raw =
            flate2::write::DeflateEncoder::new(Vec::new(), flate2::Compression::default());
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
                assert_eq!(
                    decoded(coding, &body, chunk).unwrap(),
                    TEXT,
                    "{coding:?} {chunk}"
                );
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
        let mut state = body(Coding::Gzip);
        state.feed(Some(gzip(&vec![0; 10 << 20]).into()));
        let first = state.step().unwrap().unwrap();
        assert!(first.len() < 256 << 10, "{}", first.len());
        assert!(!decode_rest(&mut state).unwrap().is_empty());
    }

    #[test]
    fn an_event_is_decoded_whole_although_the_stream_goes_on() {
        let event: Vec<u8> = (0..200_000_u32)
            .flat_map(|i| (i.wrapping_mul(2_654_435_761) >> 22).to_le_bytes())
            .collect();
        for size in [10, 16 * 1024, 30 * 1024, 33 * 1024, event.len()] {
            let event = &event[..size];
            let mut encoder =
                flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
            let mut state = body(Coding::Gzip);
            for _ in 0..3 {
                encoder.write_all(event).unwrap();
                encoder.flush().unwrap();
                state.feed(Some(std::mem::take(encoder.get_mut()).into()));
                assert!(decode_rest(&mut state).unwrap() == event, "{size}");
            }
        }
    }

    #[test]
    fn the_window_of_a_decoder_is_reserved() {
        let mut state = DecodedBody::new(
            Coding::Brotli,
            ResponseBody::Empty,
            share(MemoryLimit::Bytes(1)).begin(),
        );
        state.decoded = 1 << 20;
        state.feed(Some(brotli().into()));
        assert!(
            state
                .step()
                .unwrap_err()
                .to_string()
                .contains("limits.memory")
        );
    }

    #[test]
    fn a_body_that_nobody_wants_is_not_decoded() {
        let twice = ResponseBody::Decoded(Box::new(body(Coding::Brotli)));
        let twice = DecodedBody::new(Coding::Gzip, twice, share(MemoryLimit::None).begin());
        assert!(matches!(
            ResponseBody::Decoded(Box::new(twice)).into_coded(),
            ResponseBody::Empty
        ));
    }

    fn decode_empty(coding: &'static str) -> Result<Response<ResponseBody>, LinkError> {
        let response = Response::builder().header(CONTENT_ENCODING, coding);
        decode_response(
            response.body(ResponseBody::Empty).unwrap(),
            &share(MemoryLimit::None),
        )
    }

    #[test]
    fn codings_are_named_in_order_and_unknown_ones_are_told() {
        assert!(matches!(
            decode_empty("identity").unwrap().body(),
            ResponseBody::Empty
        ));
        assert!(matches!(
            decode_empty("X-GZIP").unwrap().body(),
            ResponseBody::Decoded(_)
        ));
        assert!(decode_empty("gzip, br").is_ok());
        let error = decode_empty("zstd").err().unwrap().to_string();
        assert!(error.contains("\"zstd\""), "{error}");
        assert!(decode_empty("br, br, br, br").is_err());
    }
}
