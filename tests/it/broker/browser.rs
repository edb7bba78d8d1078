//! Person's browser: cookies, forms, pages that lead elsewhere, and the company login's redirects.
//!
//! Owns what a browser sends automatically, such as cookies and `Origin`. Does not run scripts.
//! Invariant: the gateway never redirects, so a redirect from it fails the test.

use std::collections::BTreeMap;

use http::header::SET_COOKIE;
use url::Url;

use super::html;
use super::parameters::Parameters;
use crate::harness::{HttpClient, HttpReply};

/// Maximum number of pages that a browser follows automatically.
const MOVES_MAX: usize = 10;
/// Start of the approval button's label.
const YES: &str = "Approve";

/// Browser with its cookies, which belong to a host and not to a port.
#[derive(Clone)]
pub(super) struct PersonBrowser {
    /// Origin of the gateway.
    gateway: String,
    /// Origin of the company's login.
    provider: String,
    cookies: BTreeMap<(String, String), String>,
}

/// Page that a browser shows.
#[derive(Debug)]
pub(super) struct BrowserPage {
    /// Address in its address bar.
    pub(super) url: String,
    pub(super) reply: HttpReply,
}

/// Place at which a browser stops moving on.
#[derive(Debug)]
pub(super) enum BrowserStop {
    /// Address of a client, which is not opened here.
    Client(String),
    Page(BrowserPage),
}

/// Button of the consent page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ConsentButton {
    Yes,
    No,
}

impl PersonBrowser {
    pub(super) fn new(gateway: &str, provider: &str) -> Self {
        PersonBrowser {
            gateway: gateway.to_owned(),
            provider: provider.to_owned(),
            cookies: BTreeMap::new(),
        }
    }

    /// Opens an address that somebody typed or that a program opened.
    pub(super) async fn open(&mut self, url: &str) -> BrowserPage {
        self.get(url, "none").await
    }

    async fn get(&mut self, url: &str, site: &str) -> BrowserPage {
        let cookies = self.cookie_header(url);
        let mut headers = vec![
            ("accept", "text/html"),
            ("sec-fetch-dest", "document"),
            ("sec-fetch-mode", "navigate"),
            ("sec-fetch-site", site),
        ];
        headers.extend(cookies.as_deref().map(|cookies| ("cookie", cookies)));
        let reply = HttpClient::new().send("GET", url, &headers, "").await;
        self.keep_cookies(url, &reply);
        self.check(url, reply)
    }

    /// Presses a button of the consent page.
    pub(super) async fn press(&mut self, page: &BrowserPage, button: ConsentButton) -> BrowserPage {
        let (action, form) = page.filled_form(button);
        let origin = self.gateway.clone();
        self.post(&action, &form, &origin).await
    }

    /// Sends a form as a page of an origin does.
    pub(super) async fn post(&mut self, url: &str, form: &Parameters, origin: &str) -> BrowserPage {
        let cookies = self.cookie_header(url);
        let site = match origin == self.gateway {
            true => "same-origin",
            false => "cross-site",
        };
        let mut headers = vec![
            ("accept", "text/html"),
            ("content-type", "application/x-www-form-urlencoded"),
            ("origin", origin),
            ("sec-fetch-dest", "document"),
            ("sec-fetch-mode", "navigate"),
            ("sec-fetch-site", site),
        ];
        headers.extend(cookies.as_deref().map(|cookies| ("cookie", cookies)));
        let reply = HttpClient::new()
            .send("POST", url, &headers, form.encode())
            .await;
        self.keep_cookies(url, &reply);
        self.check(url, reply)
    }

    /// Follows pages that lead elsewhere automatically, up to a client or to a page that stays.
    pub(super) async fn follow(&mut self, mut page: BrowserPage) -> BrowserStop {
        for _ in 0..MOVES_MAX {
            let Some(next) = page.next_address() else {
                return BrowserStop::Page(page);
            };
            if !self.is_ours(&next) {
                return BrowserStop::Client(next);
            }
            page = self.get(&next, "cross-site").await;
        }
        panic!("{} is one page too many", page.url);
    }

    /// Logs in as a person does, up to the address of the client.
    pub(super) async fn log_in(&mut self, address: &str) -> String {
        let page = self.open(address).await;
        let page = self.press(&page, ConsentButton::Yes).await;
        match self.follow(page).await {
            BrowserStop::Client(answer) => answer,
            // A private scheme opens only when its link is pressed.
            BrowserStop::Page(page) => page.client_link(),
        }
    }

    /// Goes on from the consent page, and returns the page that stays.
    pub(super) async fn try_log_in(&mut self, address: &str) -> BrowserPage {
        let page = self.open(address).await;
        let page = self.press(&page, ConsentButton::Yes).await;
        match self.follow(page).await {
            BrowserStop::Page(page) => page,
            BrowserStop::Client(answer) => panic!("it ends at {answer}"),
        }
    }

    /// Approves, and stops at the address that brings the provider's answer to the gateway.
    pub(super) async fn up_to_the_answer(&mut self, address: &str) -> String {
        let page = self.open(address).await;
        let page = self.press(&page, ConsentButton::Yes).await;
        let next = page.next_address().unwrap_or_else(|| panic!("{page:?}"));
        assert!(next.starts_with(&self.provider), "{next}");
        let page = self.get(&next, "cross-site").await;
        page.next_address().unwrap_or_else(|| panic!("{page:?}"))
    }

    fn is_ours(&self, url: &str) -> bool {
        let origin = origin_of(url);
        origin == self.gateway || origin == self.provider
    }

    /// Checks what holds for every page of the gateway.
    fn check(&self, url: &str, reply: HttpReply) -> BrowserPage {
        let page = BrowserPage {
            url: url.to_owned(),
            reply,
        };
        if origin_of(url) == self.gateway {
            page.check_headers();
        }
        page
    }

    fn keep_cookies(&mut self, url: &str, reply: &HttpReply) {
        for cookie in reply.headers.get_all(SET_COOKIE) {
            let cookie = cookie.to_str().unwrap();
            let (pair, attributes) = cookie.split_once(';').unwrap_or((cookie, ""));
            let (name, value) = pair.split_once('=').unwrap();
            let attributes = attributes.to_ascii_lowercase();
            if origin_of(url) == self.gateway {
                for needed in ["httponly", "samesite=lax", "path=/"] {
                    assert!(attributes.contains(needed), "{cookie}");
                }
            }
            let key = (host_of(url), name.to_owned());
            match value.is_empty() || attributes.contains("max-age=0") {
                true => self.cookies.remove(&key),
                false => self.cookies.insert(key, value.to_owned()),
            };
        }
    }

    fn cookie_header(&self, url: &str) -> Option<String> {
        let host = host_of(url);
        let pairs = self.cookies.iter().filter(|((owner, _), _)| *owner == host);
        let pairs: Vec<String> = pairs
            .map(|((_, name), value)| format!("{name}={value}"))
            .collect();
        (!pairs.is_empty()).then(|| pairs.join("; "))
    }

    /// Lists the values of all cookies.
    pub(super) fn cookie_values(&self) -> Vec<String> {
        self.cookies.values().cloned().collect()
    }
}

impl BrowserPage {
    pub(super) fn html(&self) -> String {
        self.reply.text_body()
    }

    /// Returns the text that a person sees.
    pub(super) fn text(&self) -> String {
        html::text_of(&self.html())
    }

    /// Checks that nothing can run in the page, or lead on without the person.
    fn check_headers(&self) {
        let reply = &self.reply;
        let is_redirect = (300..400).contains(&reply.status);
        assert!(!is_redirect, "{} redirects: {reply:?}", self.url);
        if !reply.header("content-type").starts_with("text/html") {
            return;
        }
        assert_eq!(reply.header("cache-control"), "no-store", "{}", self.url);
        let policy = reply.header("content-security-policy");
        for rule in [
            "default-src 'none'",
            "frame-ancestors 'none'",
            "base-uri 'none'",
        ] {
            assert!(policy.contains(rule), "{policy}");
        }
        assert!(!policy.contains("unsafe-inline"), "{policy}");
        let html = self.html();
        for part in ["<script", "<iframe", "<img"] {
            assert!(!html.contains(part), "{part} in {html}");
        }
        for link in self.links() {
            assert!(!link.starts_with("javascript:"), "{link}");
        }
    }

    /// Returns the address and the fields that a button sends.
    pub(super) fn filled_form(&self, button: ConsentButton) -> (String, Parameters) {
        let html = self.html();
        let forms = html::forms(&html);
        let mut buttons = forms
            .iter()
            .flat_map(|form| form.buttons.iter().map(move |pressed| (form, pressed)));
        let (form, pressed) = buttons
            .find(|(_, pressed)| pressed.label.starts_with(YES) == (button == ConsentButton::Yes))
            .unwrap_or_else(|| panic!("{button:?} is not in {html}"));
        let fields = form.fields.iter().chain(&pressed.field);
        let form_fields = fields.fold(Parameters::default(), |all, (name, value)| {
            all.and_again(name, value)
        });
        (self.resolve(&form.action), form_fields)
    }

    /// Finds the address that the page opens automatically or redirects to.
    fn next_address(&self) -> Option<String> {
        let header = |name| Some(self.reply.header(name)).filter(|value| !value.is_empty());
        if let Some(location) = header("location") {
            return Some(self.resolve(location));
        }
        let target = match header("refresh") {
            Some(value) => html::refresh_address(value)?,
            None => html::refresh(&self.html())?,
        };
        Some(self.resolve(&target))
    }

    /// Returns the link to the client, which carries the answer of a login.
    pub(super) fn client_link(&self) -> String {
        let html = self.html();
        let own = origin_of(&self.url);
        let links = html::links(&html).into_iter().map(|it| self.resolve(&it));
        let mut links = links.filter(|link| origin_of(link) != own);
        links.next().unwrap_or_else(|| panic!("no link in {html}"))
    }

    /// Lists the links of the page.
    pub(super) fn links(&self) -> Vec<String> {
        html::links(&self.html())
    }

    /// Returns true if nothing but a person leads on from here.
    pub(super) fn stays(&self) -> bool {
        self.next_address().is_none()
    }

    fn resolve(&self, target: &str) -> String {
        Url::parse(&self.url)
            .unwrap()
            .join(target)
            .unwrap()
            .to_string()
    }
}

fn origin_of(url: &str) -> String {
    Url::parse(url).unwrap().origin().ascii_serialization()
}

fn host_of(url: &str) -> String {
    let url = Url::parse(url).unwrap();
    url.host_str().unwrap_or_default().to_owned()
}
