//! Logins at servers: the program, an authorization server, and a browser that follows redirects.
//!
//! `world` has the parts of a login, and `issuer` the authorization server. `oidc_provider` has one
//! that we did not write. Everything listens on loopback, which `egress.allow` permits here.

mod attacks;
mod bridge;
mod browser;
mod command;
mod crashes;
mod ended_logins;
mod helper_command;
mod issuer;
pub(crate) mod oidc_provider;
mod on_the_page;
mod over_the_api;
mod renewal;
mod secrets;
mod whole_login;
mod world;
