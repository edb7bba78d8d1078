//! Viewer of a page: what the request may see and do, and which view it asks for.
//!
//! Owns how these are read from a request. Does not check keys or roles (`key_check.rs`,
//! `operator_check.rs`). Invariant: every page and fragment passes the checks of the API.

use std::sync::Arc;

use axum::extract::FromRequestParts;
use axum::response::Response;
use http::request::Parts;

use crate::admin_state::AdminState;
use crate::key_check::{AccessGrant, KeyCarrier};
use crate::operator_check::{Operator, Viewer};
use moongate_page::view_query::ViewQuery;

/// Reader of a page.
pub(super) struct PageViewer {
    pub(super) admin: Arc<AdminState>,
    /// True if the reader may act. Otherwise the page has no buttons for actions.
    pub(super) may_act: bool,
    /// True if the reader has a session that can be ended.
    pub(super) is_signed_in: bool,
    pub(super) query: ViewQuery,
}

impl PageViewer {
    /// Returns true if the view of keys has something for this reader: keys, or the means to make
    /// one.
    pub(super) fn sees_keys(&self) -> bool {
        self.may_act
            || !self.admin.access.load().keys.is_empty()
            || !self.admin.listener_state.load().auth.is_open()
    }

    /// Returns true if people can log in at this gateway.
    pub(super) fn sees_people(&self) -> bool {
        self.admin.people.can_log_in()
    }
}

impl FromRequestParts<Arc<AdminState>> for PageViewer {
    type Rejection = Response;

    async fn from_request_parts(
        parts: &mut Parts,
        admin: &Arc<AdminState>,
    ) -> Result<Self, Response> {
        let Viewer(admin) = Viewer::from_request_parts(parts, admin).await?;
        // This decides only which buttons are drawn. The API checks again at each action.
        let may_act = Operator::from_request_parts(parts, &admin).await.is_ok();
        let grant = parts.extensions.get::<AccessGrant>();
        let is_signed_in = matches!(
            grant,
            Some(AccessGrant::Key {
                carrier: KeyCarrier::Cookie(_),
                ..
            })
        );
        let query = ViewQuery::parse(parts.uri.query().unwrap_or_default());
        Ok(PageViewer {
            admin,
            may_act,
            is_signed_in,
            query,
        })
    }
}
