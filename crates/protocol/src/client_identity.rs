//! What a client says about itself, in the size that is kept for it.
//!
//! Owns the limits of `clientInfo` and of capabilities. Does not read what they mean. Invariant: no
//! client makes a session or a parked call hold more than [`CLIENT_INFO_MAX`] and
//! [`CAPABILITIES_MAX`] bytes of them.

use moongate_jsonrpc::json::{JsonObject, RawJson};
use moongate_model::{Error, McpErrorKind};

/// Longest `clientInfo` that is kept as it came, in bytes. Of a longer one the members in [`KEPT`]
/// are left.
const CLIENT_INFO_MAX: usize = 4096;
/// Members of a long `clientInfo` that are kept.
const KEPT: [&str; 4] = ["name", "title", "version", "websiteUrl"];
/// Longest text of a kept member, in bytes.
const KEPT_TEXT_MAX: usize = 512;
/// Longest capabilities of a client, in bytes.
const CAPABILITIES_MAX: usize = 16 * 1024;

/// Returns a client's info in the size that is kept. Icons and the like may be images of megabytes.
pub(crate) fn bounded_client_info(info: &RawJson) -> Option<RawJson> {
    if info.bytes().len() <= CLIENT_INFO_MAX {
        return info.is_object().then(|| info.clone());
    }
    let long = info.as_object()?;
    let mut kept = JsonObject::default();
    for key in KEPT {
        if let Some(text) = long.get_string(key) {
            let end = (0..=text.len().min(KEPT_TEXT_MAX))
                .rev()
                .find(|at| text.is_char_boundary(*at));
            kept = kept.with(key, RawJson::string(&text[..end.unwrap_or(0)]));
        }
    }
    Some(kept.to_raw())
}

/// Checks the size of a client's capabilities. They can't be cut, since servers act on all of them.
pub(crate) fn check_capabilities_size(capabilities: &RawJson) -> Result<(), Error> {
    let size = capabilities.bytes().len();
    if size <= CAPABILITIES_MAX {
        return Ok(());
    }
    let message = format!(
        "Invalid params: the client's capabilities have {size} bytes, but at most \
         {CAPABILITIES_MAX} are accepted"
    );
    Err(Error::new(McpErrorKind::InvalidParams, message))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(text: String) -> RawJson {
        RawJson::parse(text.into_bytes().into()).unwrap()
    }

    #[test]
    fn a_short_info_is_kept_as_it_came() {
        let info = raw(r#"{ "name": "a", "version": "1", "icons": [], "x": 1 }"#.to_owned());
        assert_eq!(bounded_client_info(&info).unwrap().bytes(), info.bytes());
        assert!(bounded_client_info(&raw("[]".to_owned())).is_none());
    }

    #[test]
    fn of_a_long_info_the_texts_are_kept() {
        let name = "ü".repeat(4000);
        let icon = "A".repeat(4_000_000);
        let info = raw(format!(
            r#"{{"name":"{name}","version":"1.2","icons":[{{"src":"{icon}"}}],"websiteUrl":7}}"#
        ));
        let kept = bounded_client_info(&info).unwrap();
        assert_eq!(
            kept.bytes(),
            format!(r#"{{"name":"{}","version":"1.2"}}"#, "ü".repeat(256)).as_bytes()
        );
        assert!(bounded_client_info(&raw(format!("[\"{icon}\"]"))).is_none());
    }

    #[test]
    fn large_capabilities_are_an_error_that_names_the_limit() {
        let large = raw(format!(
            r#"{{"experimental":{{"x":"{}"}}}}"#,
            "x".repeat(CAPABILITIES_MAX)
        ));
        let error = check_capabilities_size(&large).unwrap_err();
        assert!(error.message.contains("at most 16384"), "{}", error.message);
        assert!(check_capabilities_size(&raw("{}".to_owned())).is_ok());
    }
}
