//! Notices of changes.
//!
//! Owns their messages in both eras. Does not know who listens (`listeners`). Invariant: a notice
//! to a subscription names it.

use serde_json::{Value, json};

use super::wire;

/// Change that listeners may have asked for.
#[derive(Debug, Clone)]
pub(super) enum ChangeNotice {
    /// Changed list: `tools`, `prompts` or `resources`.
    List(&'static str),
    /// Changed resource.
    Resource(String),
}

impl ChangeNotice {
    /// True if the filter of a modern subscription covers it.
    pub(super) fn is_within(&self, filter: &Value) -> bool {
        match self {
            ChangeNotice::List(what) => filter[format!("{what}ListChanged")] == true,
            ChangeNotice::Resource(uri) => filter["resourceSubscriptions"]
                .as_array()
                .is_some_and(|all| all.iter().any(|u| u == uri.as_str())),
        }
    }

    /// Encodes it, for a modern subscription with that id.
    pub(super) fn encode(&self, subscription: Option<&str>) -> String {
        let mut params = json!({});
        if let Some(id) = subscription {
            let id: Value = serde_json::from_str(id).unwrap_or_default();
            params["_meta"] = json!({"io.modelcontextprotocol/subscriptionId": id});
        }
        match self {
            ChangeNotice::List(what) => {
                wire::notification(&format!("notifications/{what}/list_changed"), &params)
            }
            ChangeNotice::Resource(uri) => {
                params["uri"] = json!(uri);
                wire::notification("notifications/resources/updated", &params)
            }
        }
    }
}
