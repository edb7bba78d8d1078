//! Logins and renewals at fake providers.

mod fake_provider;
mod github;
mod openid;
