//! Structured output of tools, in the form that a client's era can hold.
//!
//! Owns the choice between a value and its envelope, `{"result": value}`. Does not write schemas
//! (`wrapped_schema.rs`). Invariant: a client gets results that fit the schema that it was listed,
//! and a value keeps its bytes in either form.
//!
//! 2026-07-28/schema.json, CallToolResult: `structuredContent` "can be any JSON value (object,
//! array, string, number, boolean, or null) that conforms to the tool's outputSchema if one is
//! defined". 2025-11-25/schema.json has "An optional JSON object", and in Tool: "Currently
//! restricted to type: \"object\" at the root level."

use crate::era::{Era, era_of};
use crate::legacy::wrapped_schema::{MEMBER, wrap_schema};
use moongate_jsonrpc::json::{ByteString, JsonObject, RawJson};

/// Member of a result that has the value.
const CONTENT: &str = "structuredContent";

/// Shape of a tool's structured output, by the schema that its server listed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OutputShape {
    /// Objects, or nothing is known.
    #[default]
    Object,
    /// Objects whose only member is the value. A server of both eras may list such a schema to its
    /// legacy clients.
    Envelope,
    /// Any value.
    Value,
}

/// Structured output of one tool.
#[derive(Clone, Debug, Default)]
pub struct ToolOutput {
    /// Shape of the server's own schema.
    pub shape: OutputShape,
    /// Schema for clients that hold schemas of objects only, if the server's own is of another
    /// kind.
    wrapped: Option<RawJson>,
}

/// Output that a tool was listed with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ListedOutput {
    /// Shape by the server's own schema.
    pub shape: OutputShape,
    /// Era of the connection that gave the list, if known.
    pub era: Option<Era>,
}

impl ToolOutput {
    /// Reads the definition of a tool.
    pub fn of(definition: &JsonObject) -> Self {
        let Some(schema) = definition.get("outputSchema") else {
            return ToolOutput::default();
        };
        match wrap_schema(schema) {
            Some(wrapped) => ToolOutput {
                shape: OutputShape::Value,
                wrapped: Some(wrapped.detached()),
            },
            None if is_envelope_schema(schema) => ToolOutput {
                shape: OutputShape::Envelope,
                wrapped: None,
            },
            None => ToolOutput::default(),
        }
    }

    /// Returns true if clients of some revisions get another schema than the server's.
    pub fn is_wrapped(&self) -> bool {
        self.wrapped.is_some()
    }

    /// Returns the definition as a client of this revision can hold it. `None`: as it is.
    pub fn listed_for(&self, client: &str, definition: &RawJson) -> Option<RawJson> {
        if holds_objects_only(client) {
            self.wrapped_in(definition)
        } else {
            None
        }
    }

    fn wrapped_in(&self, definition: &RawJson) -> Option<RawJson> {
        let wrapped = self.wrapped.as_ref()?;
        let mut definition = definition.as_object()?;
        definition.set(ByteString::literal("outputSchema"), wrapped.clone());
        Some(definition.to_raw())
    }
}

/// Returns true if clients of this revision can hold no other structured output than objects.
pub fn holds_objects_only(client: &str) -> bool {
    // The gateway's own requests have no revision, and no limits.
    !client.is_empty() && era_of(client) == Era::Legacy
}

/// Fits the result of a tool to the schema that a client of this revision was listed. `answered` is
/// the revision of the connection that gave the result.
pub fn fit_output(client: &str, listed: ListedOutput, answered: &str, result: &mut JsonObject) {
    let is_limited = holds_objects_only(client);
    let shape = listed.shape;
    // The common case ends here: a modern client of a tool that gives objects.
    if !is_limited && shape == OutputShape::Object {
        return;
    }
    let Some(content) = result.get(CONTENT) else {
        return;
    };
    if shape == OutputShape::Object {
        match content {
            content if content.is_object() => {}
            // Before 2026-07-28 a server that writes null has no structured content.
            content if content.is_null() && era_of(answered) == Era::Legacy => {
                drop(result.remove(CONTENT))
            }
            _ => wrap_content(result),
        }
        return;
    }
    // A server of both eras wraps by itself what it gives in its legacy era.
    let is_foreign = listed.era.is_some_and(|era| era != era_of(answered));
    let has_envelope = is_envelope(content) && (is_foreign || shape == OutputShape::Envelope);
    let wants_envelope = match shape {
        OutputShape::Value => is_limited,
        OutputShape::Envelope | OutputShape::Object => {
            is_foreign || (is_limited && !content.is_object())
        }
    };
    if wants_envelope {
        if !has_envelope {
            wrap_content(result);
        }
    } else if shape == OutputShape::Value && is_foreign && listed.era == Some(Era::Modern) {
        unwrap_content(result);
    }
}

/// Fits what a server's sampling request has of tools and their results to a client that holds
/// objects only.
pub(crate) fn fit_sampling(params: &mut JsonObject) {
    change_items(params, ("tools", "\"outputSchema\""), |tool| {
        ToolOutput::of(&tool.as_object()?).wrapped_in(tool)
    });
    change_items(params, ("messages", "\"structuredContent\""), fit_message);
}

fn fit_message(message: &RawJson) -> Option<RawJson> {
    let mut message = message.as_object()?;
    let content = message.get("content")?;
    let changed = match content.as_array() {
        Some(blocks) => changed_array(&blocks, fit_block)?,
        None => fit_block(content)?,
    };
    message.set(ByteString::literal("content"), changed);
    Some(message.to_raw())
}

fn fit_block(block: &RawJson) -> Option<RawJson> {
    let mut block = block.as_object()?;
    let content = block.get(CONTENT).filter(|content| !content.is_object())?;
    let envelope = envelope(content.clone());
    block.set(ByteString::literal(CONTENT), envelope);
    Some(block.to_raw())
}

/// Changes the items of a member whose text has a mark.
fn change_items(
    params: &mut JsonObject,
    (member, mark): (&'static str, &str),
    change: impl Fn(&RawJson) -> Option<RawJson>,
) {
    // Most requests have none, and long messages then cost only one scan.
    let items = params
        .get(member)
        .filter(|items| memchr::memmem::find(items.bytes(), mark.as_bytes()).is_some())
        .and_then(RawJson::as_array);
    if let Some(changed) = items.and_then(|items| changed_array(&items, change)) {
        params.set(ByteString::literal(member), changed);
    }
}

/// Returns the array with changed items. `None` if none changes.
fn changed_array(
    items: &[RawJson],
    change: impl Fn(&RawJson) -> Option<RawJson>,
) -> Option<RawJson> {
    let changed: Vec<Option<RawJson>> = items.iter().map(change).collect();
    let is_changed = changed.iter().any(Option::is_some);
    is_changed.then(|| {
        RawJson::array(
            items
                .iter()
                .zip(&changed)
                .map(|(item, new)| new.as_ref().unwrap_or(item)),
        )
    })
}

fn envelope(value: RawJson) -> RawJson {
    JsonObject::new().with(MEMBER, value).to_raw()
}

fn is_envelope(content: &RawJson) -> bool {
    content
        .as_object()
        .is_some_and(|object| object.iter().count() == 1 && object.get(MEMBER).is_some())
}

/// Returns true if a schema demands an envelope.
fn is_envelope_schema(schema: &RawJson) -> bool {
    schema
        .as_object()
        .is_some_and(|schema| requires_value_alone(&schema) && has_value_alone(&schema))
}

fn requires_value_alone(schema: &JsonObject) -> bool {
    let required = schema
        .get("required")
        .and_then(|names| names.parse_as::<Vec<String>>().ok());
    required.is_some_and(|names| names == [MEMBER])
}

fn has_value_alone(schema: &JsonObject) -> bool {
    schema
        .get_object("properties")
        .is_some_and(|all| all.iter().count() == 1 && all.get(MEMBER).is_some())
}

fn wrap_content(result: &mut JsonObject) {
    let Some(content) = result.get(CONTENT).cloned() else {
        return;
    };
    if !content.is_object() {
        repeat_as_text(result, &content);
    }
    result.set(ByteString::literal(CONTENT), envelope(content));
}

fn unwrap_content(result: &mut JsonObject) {
    let content = result
        .get(CONTENT)
        .filter(|content| is_envelope(content))
        .and_then(RawJson::as_object);
    if let Some(value) = content.and_then(|content| content.get(MEMBER).cloned()) {
        result.set(ByteString::literal(CONTENT), value);
    }
}

/// Repeats a value as text where a result has no text, as the official SDK does.
///
/// 2025-11-25/server/tools.mdx, Structured Content: "For backwards compatibility, a tool that
/// returns structured content SHOULD also return the serialized JSON in a TextContent block."
fn repeat_as_text(result: &mut JsonObject, value: &RawJson) {
    let mut blocks = match result.get("content") {
        None => Vec::new(),
        Some(content) => match content.as_array() {
            Some(blocks) => blocks,
            None => return,
        },
    };
    if blocks.iter().any(is_text_block) {
        return;
    }
    let text = RawJson::string(&String::from_utf8_lossy(value.bytes()));
    blocks.push(
        JsonObject::new()
            .with("type", RawJson::literal("\"text\""))
            .with("text", text)
            .to_raw(),
    );
    result.set(
        ByteString::literal("content"),
        RawJson::array(blocks.iter()),
    );
}

fn is_text_block(block: &RawJson) -> bool {
    block
        .as_object()
        .and_then(|block| block.get_string("type"))
        .is_some_and(|kind| kind.as_str() == "text")
}
