//! Edits from outside: golden texts, and what holds for all texts.

#![allow(clippy::unwrap_used)] // a test that cannot go on has failed

mod goldens;
mod properties;
