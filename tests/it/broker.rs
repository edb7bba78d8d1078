//! Logins of people at the gateway: a client, a person's browser and the company's login.
//!
//! `world` puts the parts together, `shapes` has ten clients as they were seen, and `provider` is
//! the company's login. Everything is on loopback
//! and speaks HTTP: no test reaches into the gateway.

mod browser;
mod client;
mod documents;
mod html;
mod parameters;
mod provider;
mod provider_endpoints;
mod shapes;
mod signing_key;
mod whole_logins;
mod world;
