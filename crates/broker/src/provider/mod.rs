//! Company's login, which authenticates people.
//!
//! Owns the requests to it and the facts in its answers. Does not keep logins or show pages.
//! Invariant: no byte of an answer reaches a page, a log line or an error.

pub(crate) mod client;
pub(crate) mod fault;

mod answer;
mod entra;
mod facts;
mod github;
mod google;
mod metadata;
mod openid;
mod presets;
mod provider_http;
mod token_request;
mod userinfo;

#[cfg(test)]
mod tests;
