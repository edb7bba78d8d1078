//! What users of MCP gateways complain about, one test for each complaint, numbered as in the research behind this
//! project (`users_NN_...`): each holds the gateway to not giving them the same reason.

mod access;
mod askers;
mod children;
mod connection;
mod findings;
mod input;
mod lists;
mod lookalikes;
mod names;
mod own;
mod pages;
mod restarts;
mod proxies;
mod resume;
mod sessions;
mod sse;
mod subscribing;
mod tls;
mod transit;
mod watching;
mod uris;
