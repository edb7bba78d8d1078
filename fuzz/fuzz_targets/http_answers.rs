//! See `answers` in `src/http1.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| moongate_fuzz::answers(data));
