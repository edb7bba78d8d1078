//! Texts of one item that the index reads.
//!
//! Owns which members count. Does not rank. Invariant: the texts are those that lists show.

use crate::catalog_route::CatalogRoute;
use moongate_jsonrpc::json::{ByteString, JsonObject, RawJson};
use moongate_model::ItemKind;
use moongate_search::{ArgumentText, ToolDocument, argument_texts};

/// Item of the catalogue, by its exposed key.
pub(super) type ItemId = (ItemKind, ByteString);

/// Texts of one item.
pub(super) struct ItemTexts {
    id: ItemId,
    own_name: ByteString,
    description: String,
    arguments: Vec<ArgumentText>,
}

impl ItemTexts {
    pub(super) fn read(kind: ItemKind, route: &CatalogRoute) -> Self {
        let listed = route.form.listed.as_object().unwrap_or_default();
        let own_name = match kind {
            ItemKind::Tools | ItemKind::Prompts => route.local.clone(),
            // The key is a URI, which says less than the name.
            ItemKind::Resources | ItemKind::Templates => {
                let name = listed.get_string("name");
                name.unwrap_or_else(|| route.local.clone())
            }
        };
        let parts = ["title", "description"].map(|key| listed.get_string(key));
        let description = parts
            .iter()
            .flatten()
            .map(ByteString::as_str)
            .collect::<Vec<_>>()
            .join("\n");
        let arguments = match kind {
            ItemKind::Tools => listed
                .get("inputSchema")
                .map(|schema| argument_texts(json_text(schema))),
            ItemKind::Prompts => Some(prompt_arguments(&listed)),
            ItemKind::Resources | ItemKind::Templates => None,
        };
        let arguments = arguments.unwrap_or_default();
        ItemTexts {
            id: (kind, route.exposed.clone()),
            own_name,
            description,
            arguments,
        }
    }

    pub(super) fn document(&self) -> ToolDocument<'_, ItemId> {
        ToolDocument {
            id: self.id.clone(),
            exposed_name: &self.id.1,
            own_name: &self.own_name,
            description: &self.description,
            arguments: &self.arguments,
        }
    }
}

/// Returns a value as text. Text that is not UTF-8 is not JSON either.
pub(super) fn json_text(raw: &RawJson) -> &str {
    std::str::from_utf8(raw.bytes()).unwrap_or_default()
}

fn prompt_arguments(prompt: &JsonObject) -> Vec<ArgumentText> {
    let arguments = prompt
        .get("arguments")
        .and_then(RawJson::as_array)
        .unwrap_or_default();
    arguments
        .iter()
        .filter_map(RawJson::as_object)
        .filter_map(|argument| {
            let description = argument.get_string("description");
            Some(ArgumentText {
                name: argument.get_string("name")?.to_string(),
                description: description.map(|text| text.to_string()).unwrap_or_default(),
            })
        })
        .collect()
}
