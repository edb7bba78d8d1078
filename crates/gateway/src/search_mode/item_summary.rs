//! Summary of an item: how to use it, what keeps it from running, and what it does.
//!
//! Owns the words. Does not search (`ranked_items.rs`). Invariant: each part is one line, whatever
//! a server wrote.

use crate::catalog_route::{CatalogRoute, ItemForm};
use crate::endpoint::Endpoint;
use crate::search_mode::item_texts::json_text;
use crate::search_mode::server_overview::state_note;
use moongate_jsonrpc::json::{JsonObject, RawJson};
use moongate_model::ItemKind;

/// Arguments of a prompt that are named.
const PROMPT_ARGUMENTS_MAX: usize = 20;

/// Summary of one item.
pub(super) struct ItemSummary {
    /// Name with arguments, or URI.
    pub(super) signature: String,
    /// Remarks, such as the state of a server that is not ready.
    pub(super) notes: Vec<&'static str>,
    /// Beginning of the description, or nothing.
    pub(super) about: String,
}

impl Endpoint {
    /// Summarizes a form of an item as this endpoint shows it.
    pub(super) fn summarize(
        &self,
        kind: ItemKind,
        route: &CatalogRoute,
        form: &ItemForm,
    ) -> ItemSummary {
        let definition = self.listed_definition(kind, route, form);
        let members = definition.as_object().unwrap_or_default();
        let key = if self.keeps_local_names() {
            &route.local
        } else {
            &route.exposed
        };
        let is_split = self.search_rules().is_some_and(|rules| rules.split_calls);
        // Without the split one tool makes all calls, so the remark would only cost context.
        let reads =
            (kind == ItemKind::Tools && is_split && is_read_only(&members)).then_some("reads only");
        let notes = reads
            .into_iter()
            .chain(state_note(route.upstream.status().state))
            .collect();
        let description = members
            .get_string("description")
            .or_else(|| members.get_string("title"));
        let about = description
            .map(|text| moongate_search::summary(&text))
            .unwrap_or_default();
        ItemSummary {
            signature: signature_of(kind, key, &members),
            notes,
            about,
        }
    }
}

impl ItemSummary {
    /// Writes the summary in one line, and the description in a second one.
    pub(super) fn to_lines(&self) -> String {
        let mut lines = self.signature.clone();
        for note in &self.notes {
            lines += &format!(" [{note}]");
        }
        if !self.about.is_empty() {
            lines += "\n  ";
            lines += &self.about;
        }
        lines
    }
}

/// Returns true if a tool says that it only reads.
pub(super) fn is_read_only(tool: &JsonObject) -> bool {
    let annotations = tool.get_object("annotations");
    // A missing hint counts as no, as the specification has it for `readOnlyHint`.
    annotations.is_some_and(|hints| {
        hints
            .get("readOnlyHint")
            .is_some_and(|hint| hint.bytes() == "true")
    })
}

fn signature_of(kind: ItemKind, key: &str, members: &JsonObject) -> String {
    match kind {
        ItemKind::Tools => moongate_search::signature(
            key,
            members
                .get("inputSchema")
                .map(json_text)
                .unwrap_or_default(),
        ),
        ItemKind::Prompts => prompt_signature(key, members),
        ItemKind::Resources | ItemKind::Templates => {
            let about = ["name", "mimeType"]
                .into_iter()
                .filter_map(|member| members.get_string(member));
            let about = about
                .map(|text| moongate_search::summary(&text))
                .collect::<Vec<_>>()
                .join(", ");
            format!("{} ({about})", one_line(key))
        }
    }
}

fn prompt_signature(name: &str, prompt: &JsonObject) -> String {
    let arguments = prompt
        .get("arguments")
        .and_then(RawJson::as_array)
        .unwrap_or_default();
    let arguments = arguments
        .iter()
        .take(PROMPT_ARGUMENTS_MAX)
        .filter_map(RawJson::as_object)
        .filter_map(|argument| argument_signature(&argument));
    format!(
        "{}({})",
        one_line(name),
        arguments.collect::<Vec<_>>().join(", ")
    )
}

fn argument_signature(argument: &JsonObject) -> Option<String> {
    let is_required = argument
        .get("required")
        .is_some_and(|required| required.bytes() == "true");
    let name = argument.get_string("name")?;
    // A server chooses the name of an argument: `summary` bounds it, and keeps it in one line.
    Some(format!(
        "{}{}",
        moongate_search::summary(&name),
        if is_required { "" } else { "?" }
    ))
}

/// Returns a text of others in one line.
pub(super) fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
