//! HTML responses: whole pages and fragments.
//!
//! Owns the frame of a page, and the headers of a response. Does not read what a view shows
//! (`page_views.rs`). Invariant: no response may be cached.

use axum::body::Body as AxumBody;
use axum::response::Response;
use http::{HeaderValue, header};
use maud::Markup;

use crate::config_view::config_state;
use crate::page_viewer::PageViewer;
use crate::status::server_statuses;
use moongate_gateway::FindingTopic;
use moongate_page::banners::NoticeFacts;
use moongate_page::frame::{PageContent, PageFrame, document};

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
