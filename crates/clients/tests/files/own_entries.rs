//! Entries of ours that users changed, or have several of.

use std::path::Path;

use moongate_clients::{
    ConnectRoute, ExistingEntry, client, connect_text, existing_entry, replace_text,
};
use moongate_edit::Format;

use super::{URL, own, request};

/// Entry of Cline as its user has set it.
const OF_CLINE: &str = r#"{
  "mcpServers": {
    "moongate": {
      "type": "streamableHttp",
      "url": "http://127.0.0.1:8080/mcp",
      "disabled": true, // for now
      "autoApprove": ["github__get_issue"],
      "timeout": 120
    }
  }
}
"#;

#[test]
fn what_a_user_set_in_our_entry_stays() {
    let profile = client("cline").unwrap();
    let request = request(URL, ConnectRoute::Best);
    let existing = existing_entry(Path::new("mcp.json"), OF_CLINE, "moongate", &own());
    assert_eq!(existing, ExistingEntry::Ours);
    let text = connect_text(profile, &request, Format::Json, OF_CLINE).unwrap();
    for kept in [
        "\"disabled\": true, // for now\n",
        "\"autoApprove\": [\"github__get_issue\"],\n",
        "\"timeout\": 120",
        "\"Authorization\": \"Bearer mg_key\"",
    ] {
        assert!(text.contains(kept), "{kept}: {text}");
    }
    let again = connect_text(profile, &request, Format::Json, &text).unwrap();
    assert_eq!(again, text);
    // Only the caller knows that the entry is somebody else's.
    let replaced = replace_text(profile, &request, Format::Json, OF_CLINE).unwrap();
    assert!(
        replaced.contains("\"disabled\": false") && !replaced.contains("timeout"),
        "{replaced}"
    );
}
