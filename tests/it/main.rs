//! Black-box tests: a gateway, its servers and its clients, over real sockets.
//!
//! One module for each area. `harness` starts gateways. Clients come from `moongate-testing`.

// The harness starts and stops programs with signals.
#![cfg(unix)]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod access_tokens;
mod add_server;
mod admin_access;
mod admin_add;
mod admin_api;
mod admin_edit;
mod admin_facts;
mod admin_keys;
mod admin_other_pages;
mod admin_record;
mod broker;
mod broken_config;
mod cli;
mod clients;
mod completions;
mod config;
mod connect;
mod deploy;
mod doctor;
mod edit;
mod embedding;
mod examples;
mod explain;
mod faults;
mod fronts;
mod fuzz_corpus;
mod golden;
mod harness;
mod import;
mod instructions;
mod interop;
mod limits;
mod login;
mod masks;
mod mock;
mod operate;
mod odd_servers;
mod page;
mod page_try;
mod packages;
mod pairs;
mod pasted_texts;
mod pictures;
mod readme;
mod reload;
mod restart;
mod search;
mod second_method;
mod sim;
mod soak;
mod try_call;
mod users;
mod wire;
