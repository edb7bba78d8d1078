//! Entries of ours that users changed, or have several of.

use std::path::Path;

use moongate_clients::{
    ConnectKey, ConnectRequest, ConnectRoute, ExistingEntry, client, connect_text, disconnect_text,
    existing_entry, replace_text,
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

#[test]
fn an_input_stays_as_long_as_an_entry_uses_it() {
    let profile = client("vscode").unwrap();
    let first = request(URL, ConnectRoute::Best);
    let second = ConnectRequest {
        name: "coding".to_owned(),
        ..first.clone()
    };
    let text = connect_text(profile, &first, Format::Json, "").unwrap();
    let text = text.replace("Moongate key", "my words");
    let both = connect_text(profile, &second, Format::Json, &text).unwrap();
    assert!(both.contains("my words"), "{both}");
    for before in [None, Some("")] {
        let one = disconnect_text(profile, "moongate", Format::Json, &both, before).unwrap();
        assert!(
            one.contains("\"id\": \"moongate-key\"") && one.contains("coding"),
            "{one}"
        );
        let none = disconnect_text(profile, "coding", Format::Json, &one, before).unwrap();
        assert!(!none.contains("inputs"), "{none}");
    }
    // The key itself needs no input, and an input of the user stays.
    let inline = ConnectRequest {
        key: Some(ConnectKey::Value("mg_key".to_owned())),
        ..first
    };
    let own_input = r#"{"servers": {}, "inputs": [{"id": "mine"}]}"#;
    let text = connect_text(profile, &inline, Format::Json, own_input).unwrap();
    let back = disconnect_text(profile, "moongate", Format::Json, &text, Some(own_input));
    assert_eq!(back.as_deref(), Ok(own_input));
}

#[test]
fn an_empty_list_that_is_not_ours_stays() {
    let request = request(URL, ConnectRoute::Best);
    for id in ["cursor", "claude-code"] {
        let profile = client(id).unwrap();
        let before = "{\"inputs\": [], \"mcpServers\": {}}\n";
        let text = connect_text(profile, &request, Format::Json, before).unwrap();
        for known in [None, Some("{}"), Some(before)] {
            let back = disconnect_text(profile, "moongate", Format::Json, &text, known).unwrap();
            assert!(back.contains("\"inputs\": []"), "{id}: {back}");
        }
    }
}
