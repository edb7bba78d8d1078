//! Local address that leads a browser to a login, once.
//!
//! Owns its path and its response. Does not listen. Invariant: other users of this machine, who can
//! see a browser's command line, never see the `state`, and only the first visitor is led on.

use std::net::SocketAddr;

use parking_lot::Mutex;
use url::Url;

/// Path before the random part.
const FOLDER: &str = "/start/";
/// Page for a second visit.
const USED: &str = "This address was used already. If that was not your browser, press Ctrl-C in \
                    the terminal and run moongate login again.\n";

/// Page that redirects to a login.
pub(super) struct StartPage {
    path: String,
    /// Address of the login, until the first visit.
    login: Mutex<Option<Url>>,
}

impl StartPage {
    /// Creates the page of a login.
    pub(super) fn new(login: Url) -> Self {
        let random = moongate_random::random_bytes::<16>();
        let once: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
        StartPage {
            path: format!("{FOLDER}{once}"),
            login: Mutex::new(Some(login)),
        }
    }

    /// Returns the address for the browser, if the page is served here.
    pub(super) fn address(&self, socket: SocketAddr) -> String {
        format!("http://{socket}{}", self.path)
    }

    /// Responds to a request for a path. `None` if the path is not this page's.
    pub(super) fn respond(&self, path: &str) -> Option<String> {
        if path != self.path {
            return None;
        }
        Some(match self.login.lock().take() {
            Some(login) => format!(
                "HTTP/1.1 303 See Other\r\nlocation: {login}\r\ncache-control: no-store\r\n\
                 referrer-policy: no-referrer\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
            ),
            None => format!(
                "HTTP/1.1 410 Gone\r\ncontent-type: text/plain\r\ncache-control: no-store\r\n\
                 content-length: {}\r\nconnection: close\r\n\r\n{USED}",
                USED.len()
            ),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_login_is_given_away_once_for_the_whole_path() {
        let login = Url::parse("https://auth.example/authorize?state=abc").unwrap();
        let page = StartPage::new(login);
        let address = page.address(SocketAddr::from(([127, 0, 0, 1], 8080)));
        let path = address.strip_prefix("http://127.0.0.1:8080").unwrap();
        assert!(!address.contains("abc"), "{address}");
        assert_eq!(page.respond("/start/"), None);
        assert_eq!(page.respond("/"), None);
        let first = page.respond(path).unwrap();
        let location = "\r\nlocation: https://auth.example/authorize?state=abc\r\n";
        assert!(first.contains(location), "{first}");
        let second = page.respond(path).unwrap();
        assert!(second.starts_with("HTTP/1.1 410 "), "{second}");
        assert!(!second.contains("state"), "{second}");
    }
}
