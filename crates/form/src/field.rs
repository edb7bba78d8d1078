//! Fields of a form.
//!
//! Owns their types. Does not read schemas (`build.rs`). Invariant: names, texts and values are the
//! server's, as it wrote them.

use moongate_jsonrpc::json::RawJson;

/// Field of a form.
#[derive(Clone, Debug)]
pub struct FormField {
    /// Name of the member.
    pub name: String,
    /// Title, if the schema has one.
    pub title: Option<String>,
    /// Text about the field.
    pub description: Option<String>,
    /// Kind of its value.
    pub kind: FieldKind,
    /// True if the member must be there.
    pub required: bool,
    /// True if the value may be `null`.
    pub nullable: bool,
    /// Default, if the schema has one.
    pub default: Option<RawJson>,
    /// First example, if the schema has some.
    pub example: Option<RawJson>,
    /// Bounds of the value.
    pub limits: FieldLimits,
}

/// Kind of a field's value.
#[derive(Clone, Debug)]
pub enum FieldKind {
    /// Text. `format` is the schema's.
    Text {
        /// True for text of several lines.
        is_long: bool,
        /// Format, if the schema has one.
        format: Option<String>,
    },
    /// Number.
    Number,
    /// Whole number.
    Integer,
    /// True or false.
    Boolean,
    /// One of some values.
    Choice(Vec<FieldChoice>),
    /// Object with these members.
    Object {
        /// Members that have a field.
        fields: Vec<FormField>,
        /// Number of further members, beyond the bounds of a form.
        omitted: usize,
    },
    /// Object with members of any name, and these values.
    Map(Box<FormField>),
    /// Array of such items.
    List(Box<FormField>),
    /// Value of one of these forms.
    Variants(Vec<FormField>),
    /// Value that is written as JSON.
    Json,
}

/// Value that a field may have.
#[derive(Clone, Debug)]
pub struct FieldChoice {
    /// Value.
    pub value: RawJson,
    /// Text for people.
    pub title: String,
}

/// Bounds of a value: of a number, of the characters of a text, or of the items of an array.
#[derive(Clone, Copy, Debug, Default)]
pub struct FieldLimits {
    /// Smallest value.
    pub least: Option<f64>,
    /// Largest value.
    pub most: Option<f64>,
    /// Value that a number must exceed.
    pub above: Option<f64>,
    /// Value that a number must stay under.
    pub below: Option<f64>,
}

impl FormField {
    /// Returns the title, or else the name.
    pub fn label(&self) -> &str {
        self.title.as_deref().unwrap_or(&self.name)
    }

    /// Names the type of the value, for people.
    pub fn type_name(&self) -> &str {
        match &self.kind {
            FieldKind::Text { format, .. } => format.as_deref().unwrap_or("string"),
            FieldKind::Number => "number",
            FieldKind::Integer => "integer",
            FieldKind::Boolean => "boolean",
            FieldKind::Choice(_) => "one of",
            FieldKind::Object { .. } | FieldKind::Map(_) => "object",
            FieldKind::List(_) => "array",
            FieldKind::Variants(_) => "one of several forms",
            FieldKind::Json => "JSON",
        }
    }
}
