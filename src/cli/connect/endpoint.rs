//! Meaning of `--endpoint`.
//!
//! Owns the words that it takes. Does not connect. Invariant: a word that means nothing is an error before anything is
//! written.

use super::ConnectArgs;
use crate::cli::locate;
use url::Url;

/// Returns the URL that `--endpoint` means: a name, a path, or a URL.
pub(super) fn endpoint_url(args: &ConnectArgs) -> Result<String, String> {
    let word = args.endpoint.as_deref().unwrap_or("/mcp");
    let path = match word {
        name if is_name(name) => format!("/mcp/{name}"),
        path if path.starts_with('/') => path.to_owned(),
        url if is_url(url) => return Ok(url.to_owned()),
        _ => {
            let forms = "a name such as coding, a path such as /mcp/coding, or a URL with http:// or https://";
            return Err(format!("--endpoint {word:?}: give {forms}"));
        }
    };
    let located = locate::endpoint(&args.config);
    located.map(|located| located.url(&path)).map_err(|error| format!("{error}; --endpoint takes a whole URL"))
}

/// Returns true if `--endpoint` names a place of the config's gateway, and not a whole URL.
pub(super) fn is_of_config(args: &ConnectArgs) -> bool {
    args.endpoint.as_deref().is_none_or(|word| !is_url(word))
}

fn is_name(word: &str) -> bool {
    moongate_config::legal_server_name(word).as_deref() == Some(word)
}

fn is_url(text: &str) -> bool {
    let is_web = |url: Url| matches!(url.scheme(), "http" | "https") && url.has_host();
    text.strip_prefix(moongate_server::UNIX).is_some_and(|path| !path.is_empty()) || Url::parse(text).is_ok_and(is_web)
}
