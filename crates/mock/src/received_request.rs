//! HTTP requests as the rest of the mock sees them.
//!
//! Owns the access to their headers. Does not read bodies (`http`). Invariant: names of headers are
//! in lower case.

use bytes::Bytes;

/// HTTP request, as the rest of the mock sees it.
pub(super) struct ReceivedRequest {
    pub(super) headers: Vec<(String, String)>,
    pub(super) body: Bytes,
}

impl ReceivedRequest {
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.headers
            .iter()
            .find(|(n, _)| n == name)
            .map(|(_, v)| v.as_str())
    }

    pub(super) fn accepts(&self, kind: &str) -> bool {
        let group = kind.split('/').next().unwrap_or_default();
        self.headers
            .iter()
            .filter(|(n, _)| n == "accept")
            .flat_map(|(_, v)| v.split(','))
            .any(|one| {
                let one = one.split(';').next().unwrap_or_default().trim();
                one.eq_ignore_ascii_case(kind) || one == "*/*" || one == format!("{group}/*")
            })
    }
}
