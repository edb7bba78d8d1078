//! Exposed URIs: as they are where one server owns them, wrapped where several do. Pure functions.
//!
//! Invariant: unwrapping what was wrapped gives the same bytes.

use std::borrow::Cow;

use crate::revision::APP_SCHEME;

/// What a wrapped URI begins with.
const SCHEME: &str = "moongate:";
/// What a wrapped URI of an app's page begins with, behind the scheme that it must keep.
const APP_HOST: &str = "moongate/";

/// A URI that says whose it is.
pub fn wrap(server: &str, uri: &str) -> String {
    match uri.strip_prefix(APP_SCHEME) {
        Some(rest) => format!("{APP_SCHEME}{APP_HOST}{server}/{rest}"),
        None => format!("{SCHEME}{server}:{uri}"),
    }
}

/// The server and its own URI, if the URI is a wrapped one.
pub fn unwrap(uri: &str) -> Option<(&str, Cow<'_, str>)> {
    if let Some(rest) = uri.strip_prefix(SCHEME) {
        return rest.split_once(':').map(|(server, uri)| (server, Cow::Borrowed(uri)));
    }
    let (server, rest) = uri.strip_prefix(APP_SCHEME)?.strip_prefix(APP_HOST)?.split_once('/')?;
    Some((server, Cow::Owned(format!("{APP_SCHEME}{rest}"))))
}

/// Whether a URI must be wrapped even if nobody else has it: it would be read as a wrapped one.
pub fn looks_wrapped(uri: &str) -> bool {
    uri.starts_with(SCHEME) || uri.strip_prefix(APP_SCHEME).is_some_and(|rest| rest.starts_with(APP_HOST))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn wrapping_loses_nothing(server in "[a-z][a-z0-9_-]{0,20}", scheme in "(ui://)?(moongate[:/])?", uri in "\\PC{0,200}") {
            let uri = scheme + &uri;
            let wrapped = wrap(&server, &uri);
            prop_assert_eq!(unwrap(&wrapped), Some((server.as_str(), uri.as_str().into())));
            prop_assert_eq!(wrapped.starts_with(APP_SCHEME), uri.starts_with(APP_SCHEME));
            prop_assert!(looks_wrapped(&wrapped));
        }
    }
}
