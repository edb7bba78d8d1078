//! See `sse` in `src/lib.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| moongate_fuzz::sse(data));
