//! Cookies of one connection, as load balancers set them to keep a client with one server.
//!
//! Owns their reading, their end and their limit. Does not share them: each connection has its own
//! jar. Invariant: cookies go back to the host that set them, and nowhere else.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::SystemTime;

use http::header::SET_COOKIE;
use http::{HeaderMap, HeaderValue};
use parking_lot::Mutex;

/// Limit of names, values and paths together, in bytes.
const BYTES_MAX: usize = 4096;

/// Cookies of one connection.
#[derive(Default)]
pub(super) struct CookieJar {
    /// False as long as the jar is empty, as it is for nearly all servers.
    has_any: AtomicBool,
    cookies: Mutex<Vec<Cookie>>,
}

struct Cookie {
    name: String,
    value: String,
    path: Option<String>,
}

impl CookieJar {
    /// Takes the cookies of a response. `is_secure`: it came over TLS.
    pub(super) fn store(&self, headers: &HeaderMap, is_secure: bool) {
        if !headers.contains_key(SET_COOKIE) {
            return;
        }
        let mut cookies = self.cookies.lock();
        for line in headers.get_all(SET_COOKIE) {
            if let Some((cookie, is_over)) = line
                .to_str()
                .ok()
                .and_then(|line| read_cookie(line, is_secure))
            {
                cookies.retain(|other| other.name != cookie.name || other.path != cookie.path);
                if !is_over {
                    cookies.push(cookie);
                }
            }
        }
        // The oldest make room. One that is too long on its own is dropped.
        while cookies.iter().map(Cookie::size).sum::<usize>() > BYTES_MAX {
            cookies.remove(0);
        }
        self.has_any.store(!cookies.is_empty(), Ordering::Release);
    }

    /// Returns the `Cookie` header of a request to this path. `configured`: the header that it has
    /// already.
    pub(super) fn header(
        &self,
        path: &str,
        configured: Option<&HeaderValue>,
    ) -> Option<HeaderValue> {
        if !self.has_any.load(Ordering::Acquire) {
            return None;
        }
        let cookies = self.cookies.lock();
        let matching = cookies.iter().filter(|cookie| {
            cookie
                .path
                .as_deref()
                .is_none_or(|prefix| covers(prefix, path))
        });
        let own = matching
            .map(|cookie| format!("{}={}", cookie.name, cookie.value))
            .collect::<Vec<_>>()
            .join("; ");
        if own.is_empty() {
            return None;
        }
        let configured = configured.and_then(|configured| configured.to_str().ok());
        let all = configured.map_or(own.clone(), |configured| format!("{configured}; {own}"));
        let mut header = HeaderValue::try_from(all).ok()?;
        header.set_sensitive(true);
        Some(header)
    }
}

impl Cookie {
    fn size(&self) -> usize {
        self.name.len() + self.value.len() + self.path.as_ref().map_or(0, String::len)
    }
}

/// Reads a `Set-Cookie` line. The flag is true if the cookie ends now. RFC 6265, 5.2, without
/// domains: all cookies are host-only here.
fn read_cookie(line: &str, is_secure: bool) -> Option<(Cookie, bool)> {
    let mut parts = line.split(';');
    let (name, value) = parts.next()?.split_once('=')?;
    let name = name.trim().to_owned();
    let value = value.trim().to_owned();
    if name.is_empty() {
        return None;
    }
    let mut path = None;
    let mut max_age = None;
    let mut expires = None;
    for part in parts {
        let (attribute, value) = part.split_once('=').unwrap_or((part, ""));
        match (attribute.trim().to_ascii_lowercase().as_str(), value.trim()) {
            ("path", value) if value.starts_with('/') => path = Some(value.to_owned()),
            ("max-age", value) => max_age = value.parse::<i64>().ok(),
            ("expires", value) => expires = httpdate::parse_http_date(value).ok(),
            ("secure", _) if !is_secure => return None,
            _ => {}
        }
    }
    // 5.3: `Max-Age` has precedence. A later end is not waited for: the connection ends before.
    let is_over = match max_age {
        Some(seconds) => seconds <= 0,
        None => expires.is_some_and(|end| end <= SystemTime::now()),
    };
    Some((Cookie { name, value, path }, is_over))
}

/// True if a cookie of this path goes to a request. RFC 6265, 5.1.4.
fn covers(prefix: &str, path: &str) -> bool {
    let path = path.split('?').next().unwrap_or(path);
    path.strip_prefix(prefix)
        .is_some_and(|rest| rest.is_empty() || prefix.ends_with('/') || rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn jar(lines: &[&str]) -> CookieJar {
        let jar = CookieJar::default();
        for line in lines {
            jar.store(
                &HeaderMap::from_iter([(SET_COOKIE, HeaderValue::from_str(line).unwrap())]),
                false,
            );
        }
        jar
    }

    fn sent(jar: &CookieJar, path: &str) -> String {
        jar.header(path, None)
            .map(|header| header.to_str().unwrap().to_owned())
            .unwrap_or_default()
    }

    #[test]
    fn cookies_go_back_until_they_end() {
        assert_eq!(
            sent(
                &jar(&["a=1; Path=/; HttpOnly", "b=2", "a=3; path=/"]),
                "/mcp"
            ),
            "b=2; a=3"
        );
        assert_eq!(sent(&jar(&["a=1", "a=; Max-Age=0"]), "/mcp"), "");
        assert_eq!(
            sent(
                &jar(&["a=1", "a=x; Expires=Thu, 01 Jan 1970 00:00:00 GMT"]),
                "/mcp"
            ),
            ""
        );
        assert_eq!(
            sent(
                &jar(&["a=1; Max-Age=60; Expires=Thu, 01 Jan 1970 00:00:00 GMT"]),
                "/mcp"
            ),
            "a=1"
        );
        assert_eq!(sent(&jar(&["a=1; Secure", "=2", "no", ""]), "/mcp"), "");
        assert_eq!(
            sent(&jar(&["a=1; Domain=other.example"]), "/mcp"),
            "a=1",
            "to this host only"
        );
    }

    #[test]
    fn a_cookie_goes_to_its_path_only() {
        let jar = jar(&["a=1; Path=/mcp"]);
        assert_eq!(
            ["/mcp", "/mcp/x", "/mcp?q", "/mcpx", "/"].map(|path| sent(&jar, path)),
            ["a=1", "a=1", "a=1", "", ""]
        );
    }

    #[test]
    fn a_jar_is_bounded_and_keeps_the_newest() {
        let long = format!("long={}", "x".repeat(BYTES_MAX));
        assert_eq!(sent(&jar(&["a=1", &long]), "/"), "");
        let long = format!("long=1; Path=/{}", "x".repeat(BYTES_MAX));
        assert_eq!(jar(&["a=1", &long]).cookies.lock().len(), 0);
        let [first, second] = ["a", "b"].map(|name| format!("{name}={}", "x".repeat(3000)));
        assert_eq!(sent(&jar(&[&first, &second]), "/"), second);
    }

    #[test]
    fn a_configured_cookie_is_kept() {
        let configured = HeaderValue::from_static("own=7");
        assert_eq!(
            jar(&["a=1"]).header("/", Some(&configured)).unwrap(),
            "own=7; a=1"
        );
        assert!(
            CookieJar::default()
                .header("/", Some(&configured))
                .is_none()
        );
    }
}
