//! Logins at servers: the program, an authorization server, and a browser that follows redirects.
//!
//! `world` has the parts of a login, and `issuer` the authorization server. Everything listens on
//! loopback, which `egress.allow` permits here.

mod browser;
mod command;
mod crashes;
mod ended_logins;
mod issuer;
mod over_the_api;
mod renewal;
mod whole_login;
mod world;
