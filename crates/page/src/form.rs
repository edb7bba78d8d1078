//! HTML forms: a suitable control for each field of a schema.
//!
//! Owns the markup of fields. Does not read schemas (`moongate_form`) or values
//! (`assets/js/form.js`). Invariant: server text is never treated as markup, and each control has a
//! name for screen readers.

use maud::{Markup, html};
use moongate_form::{FieldChoice, FieldKind, FormField};
use moongate_jsonrpc::json::RawJson;

use super::text::VisibleText;

/// Choices that are shown all at once. More are a list to open.
const RADIOS_MAX: usize = 4;
/// Optional fields of a tool that are shown at once, and names of others on the line that hides
/// them.
const OPTIONAL_SHOWN: usize = 4;
const NAMES_MAX: usize = 5;
/// Longest text about a field that is shown whole, in characters. A longer one shows only its start
/// until it is opened.
const HINT_MAX: usize = 400;
const HINT_SHOWN: usize = 120;
/// Longest suggested value, in characters. Longer ones can be used, too, but are cut on their
/// button.
const SUGGESTION_MAX: usize = 60;

/// Renders the field of a whole form.
pub(super) fn render_form(root: &FormField) -> Markup {
    FormRenderer { groups: 0 }.field(root, FieldPosition::Root)
}

/// Place of a field in its form.
#[derive(Clone, Copy, PartialEq)]
enum FieldPosition {
    Root,
    Member,
    /// Row of a list, value of a map, or variant. It is there as soon as it is shown.
    Item,
}

struct FormRenderer {
    /// Groups of radio buttons so far.
    groups: usize,
}

impl FormRenderer {
    fn field(&mut self, field: &FormField, position: FieldPosition) -> Markup {
        let kind = kind_name(&field.kind);
        let limits = &field.limits;
        let required = (position == FieldPosition::Member && field.required).then_some("");
        let null = field.nullable.then_some("");
        let control = self.control(field, position);
        let has_state = match field.kind {
            FieldKind::Choice(_) | FieldKind::Boolean => false,
            FieldKind::Text { .. } => position == FieldPosition::Member || field.nullable,
            _ => (position == FieldPosition::Member && !field.required) || field.nullable,
        };
        let body = html! {
            (control)
            @if has_state { (state_select(field, position)) }
            @if position != FieldPosition::Root { (field_hint(field)) }
        };
        // A group of controls is a fieldset, a single one has its label around it.
        let is_group = !matches!(
            field.kind,
            FieldKind::Text { .. } | FieldKind::Number | FieldKind::Integer | FieldKind::Json
        );
        let name = &field.name;
        html! {
            @if is_group && position != FieldPosition::Root {
                fieldset class="f" data-f=(kind) data-name=(name) data-required=[required] data-null=[null]
                    data-least=[limits.least] data-most=[limits.most] {
                    legend { (caption(field, position)) }
                    (body)
                }
            } @else {
                div class="f" data-f=(kind) data-name=(name) data-required=[required] data-null=[null] data-least=[limits.least]
                    data-most=[limits.most] data-above=[limits.above] data-below=[limits.below] {
                        (body) }
            }
        }
    }

    fn control(&mut self, field: &FormField, position: FieldPosition) -> Markup {
        match &field.kind {
            FieldKind::Text { is_long: true, .. } => labelled(
                field,
                position,
                &html! { textarea class="in" rows="4" data-v {} },
            ),
            FieldKind::Text { format, .. } => {
                labelled(field, position, &text_input(format.as_deref()))
            }
            FieldKind::Number | FieldKind::Integer => labelled(
                field,
                position,
                &html! { input class="in" type="text" inputmode="decimal" autocomplete="off" data-v; },
            ),
            FieldKind::Boolean => {
                let choices = ["true", "false"].map(|text| FieldChoice {
                    value: RawJson::literal(text),
                    title: text.to_owned(),
                });
                self.choices(field, &choices, position)
            }
            FieldKind::Choice(choices) => self.choices(field, choices, position),
            FieldKind::Object { fields, omitted } => html! {
                @let (shown, folded) = fields.split_at(unfolded(fields, position));
                div class="kids" {
                    @for member in shown { (self.field(member, FieldPosition::Member)) }
                    @if !folded.is_empty() {
                        details data-fold {
                            summary {
                                (folded.len()) " more" span class="soft" {
                                    ": " (folded_names(folded)) } }
                            @for member in folded { (self.field(member, FieldPosition::Member)) }
                        }
                    }
                    label class="rest" hidden[*omitted == 0] {
                        span class="cap" {
                            "Other properties, as JSON"
                            @if *omitted > 0 { " " span class="soft" { (omitted) " not shown in \
                                this form" } }
                        }
                        textarea class="in mono" rows="3" {}
                    }
                }
            },
            FieldKind::List(item) => self.rows(item, false),
            FieldKind::Map(values) => self.rows(values, true),
            FieldKind::Variants(variants) => html! {
                div class="kids" {
                    select class="in" data-variant aria-label=(format!("Form of {}",
                        spoken_name(field))) {
                        @for (n, variant) in variants.iter().enumerate() {
                            option value=(n) {
                                (VisibleText(variant.title.as_deref().unwrap_or(variant.type_name()))) }
                        }
                    }
                    @for variant in variants { (self.field(variant, FieldPosition::Item)) }
                }
            },
            FieldKind::Json => labelled(
                field,
                position,
                &html! { textarea class="in mono" rows="3" spellcheck="false" data-v {} },
            ),
        }
    }

    fn rows(&mut self, item: &FormField, is_map: bool) -> Markup {
        html! {
            div class="kids" {}
            template {
                div class="rowf" {
                    @if is_map {
                        label { span class="cap" { "name" }
                            input class="in" type="text" data-key; } }
                    (self.field(item, FieldPosition::Item))
                    button type="button" class="btn small" data-del { "Remove" }
                }
            }
            button type="button" class="btn small js-only" data-add { "Add" }
        }
    }

    fn choices(
        &mut self,
        field: &FormField,
        choices: &[FieldChoice],
        position: FieldPosition,
    ) -> Markup {
        let is_optional = position == FieldPosition::Member && !field.required;
        let null = FieldChoice {
            value: RawJson::NULL,
            title: "null".to_owned(),
        };
        let all = choices.iter().chain(field.nullable.then_some(&null));
        if choices.len() > RADIOS_MAX {
            return html! {
                select class="in" data-v aria-label=(spoken_name(field)) {
                    option value="" { "unset" }
                    @for choice in all {
                        option value=(format!("{:?}", choice.value)) {
                            (VisibleText(&choice.title)) } }
                }
            };
        }
        self.groups += 1;
        let group = format!("g{}", self.groups);
        html! {
            div class="radios" {
                @if is_optional {
                    label { input type="radio" name=(group) value="" data-v checked; " " span class="soft" { "unset" } } }
                @for choice in all {
                    label {
                        input type="radio" name=(group) value=(format!("{:?}", choice.value)) data-v;
                        " " (VisibleText(&choice.title)) }
                }
            }
        }
    }
}

/// Returns how many members of an object are shown at once. The others are optional, and are
/// behind a line.
fn unfolded(fields: &[FormField], position: FieldPosition) -> usize {
    let required = fields
        .iter()
        .rposition(|field| field.required)
        .map_or(0, |last| last + 1);
    let shown = required + OPTIONAL_SHOWN;
    // A line that hides one or two fields takes as much room as they do.
    if position == FieldPosition::Root && fields.len() > shown + 2 {
        shown
    } else {
        fields.len()
    }
}

/// Names the first fields behind a line.
fn folded_names(fields: &[FormField]) -> Markup {
    html! {
        @for (n, field) in fields.iter().take(NAMES_MAX).enumerate() { @if n > 0 { ", " }
            (VisibleText(&field.name)) }
        @if fields.len() > NAMES_MAX { ", …" }
    }
}

fn kind_name(kind: &FieldKind) -> &'static str {
    match kind {
        FieldKind::Text { .. } => "text",
        FieldKind::Number => "number",
        FieldKind::Integer => "integer",
        FieldKind::Boolean | FieldKind::Choice(_) => "choice",
        FieldKind::Object { .. } => "object",
        FieldKind::Map(_) => "map",
        FieldKind::List(_) => "list",
        FieldKind::Variants(_) => "variants",
        FieldKind::Json => "json",
    }
}

/// Returns the name of a field for screen readers, where no label is next to the control.
fn spoken_name(field: &FormField) -> String {
    super::text::show_invisible(if field.name.is_empty() {
        field.type_name()
    } else {
        &field.name
    })
}

/// Renders the input of a short text. A known format gets its keyboard, or an example.
fn text_input(format: Option<&str>) -> Markup {
    let (kind, mode, hint) = match format {
        Some("date") => ("date", None, None),
        Some("date-time") => ("text", None, Some("2026-11-23T14:00:00Z")),
        Some("time") => ("text", None, Some("14:00:00Z")),
        Some("email") => ("text", Some("email"), None),
        Some("uri" | "url") => ("text", Some("url"), None),
        _ => ("text", None, None),
    };
    html! {
    input class="in" type=(kind) inputmode=[mode] placeholder=[hint] autocomplete="off" spellcheck="false" data-v; }
}

fn labelled(field: &FormField, position: FieldPosition, control: &Markup) -> Markup {
    html! { label { span class="cap" { (caption(field, position)) } (control) } }
}

fn caption(field: &FormField, position: FieldPosition) -> Markup {
    let limits = [
        ("≥", field.limits.least),
        ("≤", field.limits.most),
        (">", field.limits.above),
        ("<", field.limits.below),
    ];
    html! {
        @if !field.name.is_empty() { b { (VisibleText(&field.name)) } }
        @if position == FieldPosition::Member && field.required { " " b title="required" { "*" } }
        " " span class="soft" {
            (VisibleText(field.type_name()))
            @for (sign, limit) in limits { @if let Some(limit) = limit { " " (sign) " " (limit) } }
            @if let Some(title) = &field.title {
                @if *title != field.name { " · " (VisibleText(title)) } }
        }
    }
}

fn state_select(field: &FormField, position: FieldPosition) -> Markup {
    let is_item = position == FieldPosition::Item;
    html! {
        select class="in st js-only" data-state
            aria-label=(format!("State of {}", spoken_name(field))) {
            @if !is_item { option value="unset" { "unset" } }
            option value="value" { "value" }
            @if field.nullable { option value="null" { "null" } }
        }
    }
}

fn field_hint(field: &FormField) -> Markup {
    let suggestions = [("default", &field.default), ("example", &field.example)];
    html! {
        @if let Some(text) = &field.description {
            @if text.chars().count() > HINT_MAX {
                details class="hint" {
                    summary {
                        (VisibleText(&text.chars().take(HINT_SHOWN).collect::<String>())) "…" }
                        p class="prose" { (VisibleText(text)) } }
            } @else { p class="hint prose" { (VisibleText(text)) } }
        }
        @for (what, value) in suggestions {
            @if let Some(value) = value {
                @let json = format!("{value:?}");
                button type="button" class="plain use js-only" data-use=(json) {
                    "use the " (what) " " code {
                        (VisibleText(&json.chars().take(SUGGESTION_MAX).collect::<String>())) }
                }
            }
        }
    }
}
