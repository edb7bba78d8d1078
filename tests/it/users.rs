//! Complaints of users about MCP gateways, one test for each: the gateway gives no reason for the same.

mod access;
mod asking_tools;
mod elicitations;
mod children;
mod connection;
mod findings;
mod input;
mod lists;
mod lookalikes;
mod names;
mod dedicated;
mod pages;
mod restarts;
mod proxies;
mod questions;
mod resume;
mod roots;
mod sessions;
mod sse;
mod subscribing;
mod tls;
mod transit;
mod observability;
mod odd_texts;
mod outputs;
mod uris;
