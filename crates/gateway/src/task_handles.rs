//! Task handles: names that contain the server and the owner of a task. Pure functions.
//!
//! Owns the format of a handle. Does not store anything. Invariant: a handle leads only to the
//! server that it names. A handle made for one principal leads no other principal anywhere.

use aws_lc_rs::constant_time::verify_slices_are_equal;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use moongate_access::auth::mark_texts;
use moongate_model::PrincipalSecret;

/// Makes a handle from the server and its own task id, with the mark of the principal that it is
/// for.
pub(super) fn make_handle(server: &str, local: &str, secret: Option<&PrincipalSecret>) -> String {
    match secret {
        None => format!("{server}:{local}"),
        Some(secret) => format!("{server}:{}:{local}", mark(secret, server, local)),
    }
}

/// Returns the server and its own task id, if the handle was made for this principal.
pub(super) fn open_handle<'a>(
    handle: &'a str,
    secret: Option<&PrincipalSecret>,
) -> Option<(&'a str, &'a str)> {
    // Servers' names have no colon.
    let (server, rest) = handle.split_once(':')?;
    let Some(secret) = secret else {
        return Some((server, rest));
    };
    let (given, local) = rest.split_once(':')?;
    // Constant time, so that nobody can guess a mark byte by byte.
    let is_ours =
        verify_slices_are_equal(given.as_bytes(), mark(secret, server, local).as_bytes()).is_ok();
    is_ours.then_some((server, local))
}

fn mark(secret: &PrincipalSecret, server: &str, local: &str) -> String {
    URL_SAFE_NO_PAD.encode(mark_texts(secret, &[server, local]))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn secret(n: u8) -> PrincipalSecret {
        PrincipalSecret::new([n; 32])
    }

    #[test]
    fn a_handle_is_for_its_principal() {
        let handle = make_handle("a", "task 1", Some(&secret(1)));
        assert_eq!(
            open_handle(&handle, Some(&secret(1))),
            Some(("a", "task 1"))
        );
        assert_eq!(open_handle(&handle, Some(&secret(2))), None);
        let forged = [
            "a:task 1",
            "a::task 1",
            &handle.replacen('a', "b", 1),
            &format!("{handle}x"),
            "a",
            "",
        ];
        for forged in forged {
            assert_eq!(open_handle(forged, Some(&secret(1))), None, "{forged}");
        }
        assert_eq!(open_handle("a:b:c", None), Some(("a", "b:c")));
    }

    proptest! {
        #[test]
        fn handles_lose_nothing(server in "[a-z][a-z0-9_-]{0,20}", local in "\\PC{0,200}",
            marked in any::<bool>()) {
            let secret = marked.then(|| secret(7));
            let handle = make_handle(&server, &local, secret.as_ref());
            prop_assert_eq!(open_handle(&handle, secret.as_ref()),
                Some((server.as_str(), local.as_str())));
        }
    }
}
