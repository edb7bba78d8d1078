//! Logins and renewals at providers that the tests play.

mod fake_provider;
mod github;
mod openid;
