//! Exposed URIs: unchanged where one server owns them, wrapped where several do. Pure functions.
//!
//! Owns the format of a wrapped URI. Does not choose which URIs are wrapped (`build_catalog.rs`,
//! `resolve_uri.rs`). Invariant: unwrapping a wrapped URI gives the same bytes.

use std::borrow::Cow;

use moongate_protocol::APP_SCHEME;

/// Scheme of a wrapped URI.
const SCHEME: &str = "moongate:";
/// Host of a wrapped app page, behind the scheme that it must keep.
const APP_HOST: &str = "moongate/";

/// Wraps a URI with the name of its server.
pub fn wrap(server: &str, uri: &str) -> String {
    match uri.strip_prefix(APP_SCHEME) {
        Some(rest) => format!("{APP_SCHEME}{APP_HOST}{server}/{rest}"),
        None => format!("{SCHEME}{server}:{uri}"),
    }
}

/// Returns the server and its own URI, if the URI is a wrapped one.
pub fn unwrap(uri: &str) -> Option<(&str, Cow<'_, str>)> {
    if let Some(rest) = uri.strip_prefix(SCHEME) {
        return rest
            .split_once(':')
            .map(|(server, uri)| (server, Cow::Borrowed(uri)));
    }
    let (server, rest) = uri
        .strip_prefix(APP_SCHEME)?
        .strip_prefix(APP_HOST)?
        .split_once('/')?;
    Some((server, Cow::Owned(format!("{APP_SCHEME}{rest}"))))
}

/// Returns true if a URI must be wrapped even if no other server has it, because it would be read
/// as wrapped.
pub fn looks_wrapped(uri: &str) -> bool {
    uri.starts_with(SCHEME)
        || uri
            .strip_prefix(APP_SCHEME)
            .is_some_and(|rest| rest.starts_with(APP_HOST))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn wrapping_loses_nothing(server in "[a-z][a-z0-9_-]{0,20}",
            scheme in "(ui://)?(moongate[:/])?", uri in "\\PC{0,200}") {
            let uri = scheme + &uri;
            let wrapped = wrap(&server, &uri);
            prop_assert_eq!(unwrap(&wrapped), Some((server.as_str(), uri.as_str().into())));
            prop_assert_eq!(wrapped.starts_with(APP_SCHEME), uri.starts_with(APP_SCHEME));
            prop_assert!(looks_wrapped(&wrapped));
        }
    }
}
