//! Test browser.
//!
//! Owns redirects and their cookies. Does not run scripts, and forgets everything after a page.
//! Invariant: it opens any address, like a person who trusts the printed one.

use std::collections::BTreeMap;

use http::header::SET_COOKIE;
use url::Url;

use crate::harness::{HttpClient, HttpReply};

/// Maximum number of redirects that a browser follows.
const REDIRECTS_MAX: usize = 5;

/// Page that a browser shows.
pub(super) struct BrowserPage {
    /// Address in its address bar.
    pub(super) url: String,
    pub(super) reply: HttpReply,
}

/// Opens an address, and follows redirects to a page.
pub(super) async fn browse(url: &str) -> BrowserPage {
    let http = HttpClient::new();
    let mut jar = CookieJar::default();
    let mut url = url.to_owned();
    for _ in 0..REDIRECTS_MAX {
        let reply = match jar.header(&url) {
            Some(cookies) => http.send("GET", &url, &[("cookie", &cookies)], "").await,
            None => http.get(&url).await,
        };
        jar.keep(&url, &reply);
        match location(&url, &reply) {
            Some(next) => url = next,
            None => return BrowserPage { url, reply },
        }
    }
    panic!("{url} is one redirect too many");
}

/// Opens an address that redirects. Returns the address that a browser would open next, whether
/// anybody listens there or not.
pub(super) async fn approve(url: &str) -> String {
    let reply = HttpClient::new().get(url).await;
    location(url, &reply).unwrap_or_else(|| panic!("{url} leads nowhere: {reply:?}"))
}

/// Cookies by the origin that set them, and by name. Their paths do not matter here.
#[derive(Default)]
struct CookieJar(BTreeMap<(String, String), String>);

impl CookieJar {
    /// Keeps what a reply sets, and drops what it empties.
    fn keep(&mut self, url: &str, reply: &HttpReply) {
        for cookie in reply.headers.get_all(SET_COOKIE) {
            let cookie = cookie.to_str().unwrap();
            let pair = cookie.split(';').next().unwrap_or_default();
            let (name, value) = pair.split_once('=').unwrap();
            let key = (origin_of(url), name.to_owned());
            match value {
                "" => self.0.remove(&key),
                value => self.0.insert(key, value.to_owned()),
            };
        }
    }

    /// Returns the header for a request, if there are cookies for it.
    fn header(&self, url: &str) -> Option<String> {
        let origin = origin_of(url);
        let pairs = self.0.iter().filter(|((owner, _), _)| *owner == origin);
        let pairs: Vec<String> = pairs
            .map(|((_, name), value)| format!("{name}={value}"))
            .collect();
        (!pairs.is_empty()).then(|| pairs.join("; "))
    }
}

fn origin_of(url: &str) -> String {
    Url::parse(url).unwrap().origin().ascii_serialization()
}

fn location(url: &str, reply: &HttpReply) -> Option<String> {
    let location = reply.headers.get("location")?.to_str().unwrap();
    let joined = Url::parse(url).unwrap().join(location).unwrap();
    Some(joined.into())
}
