//! Checks before every page of a login.
//!
//! Owns what a browser's request must have. Does not read forms or cookies. Invariant: a form is
//! read only if it comes from one of our pages.

use std::net::IpAddr;
use std::time::Duration;

use axum::response::Response;
use http::{HeaderMap, StatusCode, header};

use crate::broker::Broker;
use crate::error_page::refusal_page;
use crate::request_rates::RatedRoute;

/// Time to wait for the store of logins.
const STORE_WAIT: Duration = Duration::from_secs(2);

/// Counts a request against the rate limit of the pages.
pub(crate) fn check_rate(broker: &Broker, peer: Option<IpAddr>) -> Result<(), Response> {
    if broker.rates.admit(RatedRoute::Authorize, peer) {
        return Ok(());
    }
    let text = "Too many logins are starting right now. Load this page again in a minute.";
    let status = StatusCode::TOO_MANY_REQUESTS;
    Err(refuse(status, "Try again in a minute", text))
}

/// Checks that a browser opens a page itself, and neither as a part of another one nor ahead.
pub(crate) fn check_page_load(headers: &HeaderMap) -> Result<(), Response> {
    // A page that is loaded ahead, which any site can ask for, would use up an answer or a rate.
    // After a refusal the browser loads it again when a person opens it.
    if headers.contains_key("sec-purpose") {
        let text = "This page can't be loaded ahead. Open it in its own tab.";
        return Err(refuse(StatusCode::FORBIDDEN, "Open this in a tab", text));
    }
    // Fetch Metadata: old browsers do not send it, and then the other headers protect the page.
    let destination = headers.get("sec-fetch-dest");
    if destination.is_none_or(|destination| destination == "document") {
        return Ok(());
    }
    let text = "This page can't be shown inside another page. Open it in its own tab.";
    Err(refuse(StatusCode::FORBIDDEN, "Open this in a tab", text))
}

/// Checks that a form comes from one of this gateway's pages. `null` and a missing origin are
/// refused.
pub(crate) fn check_origin(issuer: &str, headers: &HeaderMap) -> Result<(), Response> {
    let mut origins = headers.get_all(header::ORIGIN).iter();
    let is_own = origins.next().is_some_and(|origin| origin == issuer);
    if is_own && origins.next().is_none() {
        return Ok(());
    }
    let text = "The answer did not come from this gateway's own page. Nothing was approved. Start \
                the login again in your program.";
    Err(refuse(StatusCode::FORBIDDEN, "Nothing was approved", text))
}

/// Waits until logins can be stored.
pub(crate) async fn check_store(broker: &Broker) -> Result<(), Response> {
    if broker.store.ready(STORE_WAIT).await {
        return Ok(());
    }
    let text = "This gateway is still starting. Load this page again in a minute.";
    let status = StatusCode::SERVICE_UNAVAILABLE;
    Err(refuse(status, "Try again in a minute", text))
}

/// Runs the rest of a request in a separate task, so that a browser that disconnects leaves nothing
/// half done.
pub(crate) async fn run_to_the_end(
    work: impl Future<Output = Response> + Send + 'static,
) -> Response {
    tokio::spawn(work).await.unwrap_or_else(|_| {
        let text = "Something went wrong in this gateway. Start the login again in your program.";
        let status = StatusCode::INTERNAL_SERVER_ERROR;
        refusal_page(status, "This login failed", text, None)
    })
}

fn refuse(status: StatusCode, title: &'static str, text: &str) -> Response {
    refusal_page(status, title, text, None)
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    const ISSUER: &str = "https://mcp.test";

    fn with(name: &'static str, values: &[&'static str]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(name, HeaderValue::from_static(value));
        }
        headers
    }

    #[test]
    fn a_form_of_another_origin_is_refused() {
        let none: [&str; 0] = [];
        for origins in [
            &none[..],
            &["null"],
            &[""],
            &["https://evil.test"],
            &["http://mcp.test"],
            &["https://mcp.test:8443"],
            &["https://mcp.test/"],
            &["https://mcp.test.evil.test"],
            &["https://sub.mcp.test"],
            &["https://mcp.test", "https://evil.test"],
            &["https://evil.test", "https://mcp.test"],
        ] {
            let refused = check_origin(ISSUER, &with("origin", origins)).unwrap_err();
            assert_eq!(refused.status(), StatusCode::FORBIDDEN, "{origins:?}");
        }
        assert!(check_origin(ISSUER, &with("origin", &[ISSUER])).is_ok());
    }

    #[test]
    fn a_page_is_never_a_part_of_another_one() {
        for destination in ["iframe", "frame", "embed", "object", "image", "empty", ""] {
            let headers = with("sec-fetch-dest", &[destination]);
            assert!(check_page_load(&headers).is_err(), "{destination}");
        }
        assert!(check_page_load(&with("sec-fetch-dest", &["document"])).is_ok());
        assert!(check_page_load(&HeaderMap::new()).is_ok());
    }

    #[test]
    fn a_page_is_not_loaded_ahead() {
        for purpose in [
            "prefetch",
            "prefetch;prerender",
            "prefetch;anonymous-client-ip",
        ] {
            let mut headers = with("sec-purpose", &[purpose]);
            headers.insert("sec-fetch-dest", HeaderValue::from_static("document"));
            let refused = check_page_load(&headers).unwrap_err();
            assert_eq!(refused.status(), StatusCode::FORBIDDEN, "{purpose}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn work_goes_on_when_the_browser_goes_away() {
        let (ended, end) = tokio::sync::oneshot::channel();
        let started = tokio::time::timeout(
            Duration::from_millis(1),
            run_to_the_end(async move {
                tokio::time::sleep(Duration::from_millis(50)).await;
                let _ = ended.send(());
                Response::default()
            }),
        );
        assert!(started.await.is_err(), "the browser went away");
        assert!(end.await.is_ok());
    }
}
