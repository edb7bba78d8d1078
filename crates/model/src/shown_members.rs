//! Members of MCP objects that people see: of listed items, of peers, of elicitations.
//!
//! Owns their names. Does not show them. Invariant: a member of a wrong type counts as missing,
//! because peers write these objects.

use moongate_jsonrpc::json::{JsonObject, RawJson, or_default};
use serde::Deserialize;

/// Texts of a listed item.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ItemTexts {
    /// Name, which is what identifies a tool or a prompt.
    #[serde(deserialize_with = "or_default")]
    pub name: Option<String>,
    /// Title.
    #[serde(deserialize_with = "or_default")]
    pub title: Option<String>,
    /// Description.
    #[serde(deserialize_with = "or_default")]
    pub description: Option<String>,
    /// MIME type of a resource.
    #[serde(deserialize_with = "or_default")]
    pub mime_type: Option<String>,
    /// Schema of a tool's arguments.
    #[serde(deserialize_with = "or_default")]
    pub input_schema: Option<JsonObject>,
}

impl ItemTexts {
    /// Returns the description, or else the title.
    pub fn about(&self) -> Option<&str> {
        self.description.as_deref().or(self.title.as_deref())
    }
}

/// Name that a client or a server gives itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct PeerName {
    /// Name of the program.
    #[serde(deserialize_with = "or_default")]
    pub name: Option<String>,
    /// Name for people.
    #[serde(deserialize_with = "or_default")]
    pub title: Option<String>,
    /// Version of the program.
    #[serde(deserialize_with = "or_default")]
    pub version: Option<String>,
}

impl PeerName {
    /// Reads the value that a peer introduces itself with.
    pub fn of(info: &RawJson) -> Self {
        info.as_object().unwrap_or_default().read_members()
    }
}

/// Question of a server to a person.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ShownQuestion {
    /// Message above the form, or about the page.
    #[serde(deserialize_with = "or_default")]
    pub message: String,
    /// Page to open.
    #[serde(deserialize_with = "or_default")]
    pub url: String,
    /// Schema of the form.
    #[serde(deserialize_with = "or_default")]
    pub requested_schema: JsonObject,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(json: &'static str) -> JsonObject {
        RawJson::literal(json).as_object().unwrap()
    }

    #[test]
    fn a_description_comes_before_a_title() {
        let both: ItemTexts = object(r#"{"title":"T","description":"D"}"#).read_members();
        assert_eq!(both.about(), Some("D"));
        let wrong: ItemTexts = object(r#"{"title":"T","description":7}"#).read_members();
        assert_eq!(wrong.about(), Some("T"));
        assert_eq!(ItemTexts::default().about(), None);
    }

    #[test]
    fn members_have_the_names_of_the_specification() {
        let item: ItemTexts =
            object(r#"{"name":"a","mimeType":"b","inputSchema":{"c":1}}"#).read_members();
        let expected = ItemTexts {
            name: Some("a".to_owned()),
            mime_type: Some("b".to_owned()),
            input_schema: Some(object(r#"{"c":1}"#)),
            ..ItemTexts::default()
        };
        assert_eq!(item, expected);
        let question: ShownQuestion =
            object(r#"{"message":"m","url":"u","requestedSchema":{"c":1}}"#).read_members();
        let expected = ShownQuestion {
            message: "m".to_owned(),
            url: "u".to_owned(),
            requested_schema: object(r#"{"c":1}"#),
        };
        assert_eq!(question, expected);
    }

    #[test]
    fn a_peer_without_a_readable_name_has_none() {
        assert_eq!(PeerName::of(&RawJson::literal("7")), PeerName::default());
        let peer = PeerName::of(&RawJson::literal(r#"{"name":"a","version":1}"#));
        assert_eq!(peer.name.as_deref(), Some("a"));
        assert_eq!(peer.version, None);
    }
}
