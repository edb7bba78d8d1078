//! People's logins at the gateway: a client, a person's browser and the company's login.
//!
//! `world` assembles the parts, `shapes` has ten real clients as observed, and `provider` is the
//! company's login. `oidc_provider` has one that we did not write. Everything is on loopback and
//! speaks HTTP, and no test reaches into the gateway.

mod browser;
mod client;
mod code_attacks;
mod consent_attacks;
mod document_attacks;
mod documents;
mod floods;
mod guides;
mod html;
mod in_a_browser;
mod oidc_provider;
mod parameters;
mod provider;
mod provider_attacks;
mod provider_endpoints;
mod redirect_attacks;
mod refresh_attacks;
mod restarts;
mod secrets;
mod shapes;
mod signing_key;
mod token_attacks;
mod whole_logins;
mod world;
