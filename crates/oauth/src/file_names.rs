//! File names in the login folder.
//!
//! Owns how a login or a state becomes a name. Does not touch the disk. Invariant: names have only
//! characters that every file system accepts, and two logins never share one.

use aws_lc_rs::digest::{SHA256, digest};

use crate::settings::LoginTarget;

/// Length of the digest in a login's name.
const DIGEST_LEN: usize = 16;
/// Length of the server's part, which is there for people to read.
const SERVER_LEN: usize = 64;

/// File names of a login.
pub(crate) struct LoginNames {
    /// File name without its extension. The file is sealed under this name.
    pub(crate) stem: String,
}

impl LoginNames {
    /// Names the login of a server.
    pub(crate) fn of(target: &LoginTarget) -> Self {
        // No URL contains a NUL, so the two cannot run together.
        let whole = format!("{}\0{}", target.server, target.url);
        let server: String = target
            .server
            .chars()
            .map(plain_character)
            .take(SERVER_LEN)
            .collect();
        // The server is in the digest, too: some file systems ignore case.
        let stem = format!("{server}-{}", hex_digest(&whole, DIGEST_LEN));
        LoginNames { stem }
    }
}

fn plain_character(c: char) -> char {
    if c.is_ascii_alphanumeric() || c == '-' {
        c
    } else {
        '_'
    }
}

/// Computes the first characters of a SHA-256 in hexadecimal.
pub(crate) fn hex_digest(text: &str, length: usize) -> String {
    let hex: String = digest(&SHA256, text.as_bytes())
        .as_ref()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    hex.chars().take(length).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stem(server: &str, url: &str) -> String {
        let url = url::Url::parse(url).unwrap();
        let server = server.to_owned();
        LoginNames::of(&LoginTarget { server, url }).stem
    }

    #[test]
    fn names_are_readable_and_differ_by_server_and_url() {
        let linear = stem("linear", "https://mcp.linear.app/mcp");
        let (server, digest) = linear.rsplit_once('-').unwrap();
        assert_eq!(server, "linear");
        assert_eq!(digest.len(), DIGEST_LEN);
        assert_ne!(linear, stem("linear", "https://mcp.linear.app/sse"));
        let capital = stem("Linear", "https://mcp.linear.app/mcp");
        assert_ne!(linear, capital.to_lowercase());
    }

    #[test]
    fn no_server_name_escapes_the_folder() {
        let odd = stem("../a\\b:c", "https://a.example");
        assert!(odd.starts_with("___a_b_c-"), "{odd}");
    }

    #[test]
    fn digests_are_those_of_sha_256() {
        // FIPS 180-4, the digest of "abc".
        assert_eq!(hex_digest("abc", 16), "ba7816bf8f01cfea");
    }
}
