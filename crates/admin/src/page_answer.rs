//! HTML responses: whole pages, fragments, and pages in place of a refusal.
//!
//! Owns the frame of a page, its notices, and the content type. Does not read what a view shows
//! (`page_views.rs`) or protect it in browsers (`page_headers.rs`). Invariant: no view may be
//! cached.

use axum::body::Body as AxumBody;
use axum::extract::Request;
use axum::middleware::Next;
use axum::response::Response;
use http::{HeaderValue, header};
use maud::Markup;

use crate::config_view::config_state;
use crate::key_check::RefusalText;
use crate::page_headers::add_headers;
use crate::page_viewer::PageViewer;
use crate::status::server_statuses;
use moongate_gateway::FindingTopic;
use moongate_page::banners::NoticeFacts;
use moongate_page::frame::{PageContent, PageFrame, document};
use moongate_page::sign_in;

/// Reads the facts of the notices.
pub(super) fn notices(viewer: &PageViewer) -> NoticeFacts {
    let snapshot = viewer.admin.gateway.snapshot();
    let findings = snapshot.findings_about(None, FindingTopic::Filter);
    NoticeFacts {
        config: config_state(&viewer.admin.reloader.config()),
        findings: findings.into_iter().map(str::to_owned).collect(),
        may_act: viewer.may_act,
    }
}

/// Renders a page.
pub(super) fn render_page(viewer: &PageViewer, view: &'static str, body: Markup) -> Response {
    part(document(
        &frame(viewer),
        &PageContent {
            view,
            title: None,
            body,
        },
    ))
}

/// Renders a page of one thing, whose name is in the title.
pub(super) fn render_titled_page(
    viewer: &PageViewer,
    view: &'static str,
    title: &str,
    body: Markup,
) -> Response {
    part(document(
        &frame(viewer),
        &PageContent {
            view,
            title: Some(title),
            body,
        },
    ))
}

/// Reads what the frame of a page shows.
fn frame(viewer: &PageViewer) -> PageFrame {
    let admin = &viewer.admin;
    let urls = admin
        .gateway
        .endpoint_names()
        .iter()
        .map(|name| admin.url_of_endpoint(name))
        .collect();
    PageFrame {
        urls: if admin.endpoint_url.is_empty() {
            Vec::new()
        } else {
            urls
        },
        servers: server_statuses(admin),
        notices: notices(viewer),
        may_act: viewer.may_act,
        is_signed_in: viewer.is_signed_in,
        sees_keys: viewer.sees_keys(),
        sees_people: viewer.sees_people(),
    }
}

/// Answers with HTML.
pub(super) fn part(markup: Markup) -> Response {
    let mut response = Response::new(AxumBody::from(markup.into_string()));
    let headers = response.headers_mut();
    headers.insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("text/html; charset=utf-8"),
    );
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// Answers a browser that has no key with a page, if it asked for one.
pub(super) async fn explain_refusal(request: Request, next: Next) -> Response {
    let accept = request
        .headers()
        .get(header::ACCEPT)
        .and_then(|accept| accept.to_str().ok())
        .unwrap_or_default();
    let wants_page = accept.contains("text/html") && !request.uri().path().starts_with("/api/");
    let response = next.run(request).await;
    let Some(refusal) = response
        .extensions()
        .get::<RefusalText>()
        .copied()
        .filter(|_| wants_page)
    else {
        return response;
    };
    let (mut parts, _) = response.into_parts();
    parts.headers.insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("text/html; charset=utf-8"),
    );
    // The length was that of the JSON body.
    parts.headers.remove(header::CONTENT_LENGTH);
    let page = match refusal {
        RefusalText::SignIn => sign_in::sign_in_page(),
        RefusalText::Other(message) => sign_in::closed_page(message),
    };
    let body = AxumBody::from(page.into_string());
    add_headers(Response::from_parts(parts, body)).await
}
