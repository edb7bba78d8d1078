//! Browser of the tests.
//!
//! Owns the following of redirects. Does not run scripts or keep cookies. Invariant: it opens what
//! it is given, as a person would who trusts the printed address.

use url::Url;

use crate::harness::{HttpClient, HttpReply};

/// Redirects that a browser follows.
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
    let mut url = url.to_owned();
    for _ in 0..REDIRECTS_MAX {
        let reply = http.get(&url).await;
        match location(&url, &reply) {
            Some(next) => url = next,
            None => return BrowserPage { url, reply },
        }
    }
    panic!("{url} is one redirect too many");
}

/// Opens an address that redirects. Returns the address that a browser would go on to, whether
/// anybody is there or not.
pub(super) async fn approve(url: &str) -> String {
    let reply = HttpClient::new().get(url).await;
    location(url, &reply).unwrap_or_else(|| panic!("{url} leads nowhere: {reply:?}"))
}

fn location(url: &str, reply: &HttpReply) -> Option<String> {
    let location = reply.headers.get("location")?.to_str().unwrap();
    let joined = Url::parse(url).unwrap().join(location).unwrap();
    Some(joined.into())
}
