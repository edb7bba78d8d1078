//! Settings tab of a server: a form for the settings that can be changed here, and the rest of its
//! entry.
//!
//! Owns the form and the list below it. Does not read the entry (`moongate_config`) or save it
//! (`admin/config_change.rs`). Invariant: no secret is shown, and a reference to a variable is
//! never replaced by a plain value.

use maud::{Markup, html};
use moongate_api::{EffectiveSettings, NO_PREFIX, ServerStatus, ShownEntry, ShownValue};
use moongate_model::{ServerStart, SharingMode};

use super::config_location::entry_location;
use super::copy::code_block;
use super::switch::server_url;
use super::text::VisibleText;

/// Setting with a field: key, label, meaning, and values to choose from.
struct SettingField {
    key: &'static str,
    label: &'static str,
    meaning: &'static str,
    choices: &'static [(&'static str, &'static str)],
    /// Value that holds now. Empty where the page does not say.
    effective: fn(&EffectiveSettings) -> &str,
}

const fn field(key: &'static str, label: &'static str, meaning: &'static str) -> SettingField {
    SettingField {
        key,
        label,
        meaning,
        choices: &[],
        effective: |_| "",
    }
}

const FIELDS: [SettingField; 7] = [
    field(
        "title",
        "Title",
        "shown to people instead of the server's own title",
    ),
    field(
        "description",
        "Description",
        "shown to models instead of the server's instructions",
    ),
    SettingField {
        effective: |now| &now.prefix,
        ..field(
            "prefix",
            "Prefix",
            "comes before the names of its tools and prompts; \"\" for none",
        )
    },
    SettingField {
        effective: |now| &now.timeout,
        ..field(
            "timeout",
            "Timeout",
            "longest time a call may take, such as 60s or 5m",
        )
    },
    SettingField {
        effective: |now| match now.share {
            SharingMode::Auto => "auto",
            SharingMode::Session => "session",
            SharingMode::Principal => "principal",
        },
        choices: &[
            ("auto", "all clients"),
            ("session", "one session"),
            ("principal", "one key"),
        ],
        ..field("share", "Shared by", "who shares a connection to it")
    },
    SettingField {
        effective: |now| match now.start {
            ServerStart::Eager => "eager",
            ServerStart::Lazy => "lazy",
        },
        choices: &[
            ("eager", "with the gateway"),
            ("lazy", "when a call needs it"),
        ],
        ..field("start", "Starts", "when Moongate connects to it")
    },
    SettingField {
        effective: |now| &now.idle_stop,
        ..field(
            "idle_stop",
            "Idle stop",
            "a lazy server stops when unused for this long",
        )
    },
];

/// Renders the tab. `effective` has the values that hold now.
pub(super) fn render(
    server: &ServerStatus,
    entry: Option<&ShownEntry>,
    effective: Option<&EffectiveSettings>,
    may_act: bool,
) -> Markup {
    let Some(entry) = entry else {
        return html! { p class="empty" { "There are no settings to \
        show: " (VisibleText(server.source.why_not.as_deref().unwrap_or_default())) "." } };
    };
    let can_save = may_act && server.source.editable;
    let others = entry
        .values
        .iter()
        .filter(|value| field_of(value).is_none());
    html! {
        form class="settings" method="post" data-send=(server_url(server.name())) data-method="PATCH" data-under="set" data-changed
            data-done=(format!("The settings of {} are saved.", server.name())) {
            div class="fields" {
                @for field in &FIELDS {
                    (draw_field(field, entry, effective.map(field.effective).unwrap_or_default(),
                        can_save)) }
            }
            @if can_save {
                div class="row" { button class="btn main js-only" { "Save" }
                    span class="soft" {
                        "Saved in the config" (entry_location(&server.source)) "." } } }
        }
        @if others.clone().next().is_some() { (other_values(others)) }
    }
}

fn field_of(value: &ShownValue) -> Option<&'static SettingField> {
    let [key] = &value.keys[..] else { return None };
    FIELDS.iter().find(|field| field.key == key)
}

fn draw_field(field: &SettingField, entry: &ShownEntry, effective: &str, can_save: bool) -> Markup {
    let SettingField {
        key,
        label,
        meaning,
        choices,
        ..
    } = *field;
    let value = entry.values.iter().find(|value| value.keys == [key]);
    let own = value
        .and_then(|value| value.text.as_deref())
        .unwrap_or_default();
    // What is typed here is plain text. Saved over a reference, it would cut off the variable.
    let is_fixed =
        !can_save || value.is_some_and(|value| value.is_reference() || value.text.is_none());
    let shown = match value {
        Some(value) if value.is_reference() => own.to_owned(),
        // An empty field means: not set.
        Some(value) if key == "prefix" && value.text.as_deref() == Some("") => NO_PREFIX.to_owned(),
        _ => own.replace("$$", "$"),
    };
    let suggestions = (key == "prefix").then_some("no-prefix");
    let fallback = choices
        .iter()
        .find(|(choice, _)| *choice == effective)
        .map_or(effective, |(_, words)| words);
    html! {
        label class="f" data-key-of=(key) {
            span class="cap" { b { (label) } " " span class="soft" { (meaning) } }
            @if !choices.is_empty() {
                select class="in" name=(key) disabled[is_fixed] {
                    option value="" selected[own.is_empty()] { "not set: " (fallback) }
                    @for (choice, words) in choices {
                        option value=(choice) selected[own == *choice] { (words) } }
                }
            } @else if key == "description" {
                textarea class="in" name=(key) rows="2" disabled[is_fixed] placeholder=(effective) {
                    (shown) }
            } @else {
                input class="in" name=(key) value=(shown) disabled[is_fixed] placeholder=(effective) autocomplete="off" spellcheck="false" list=[suggestions];
                @if let Some(id) = suggestions {
                    datalist id=(id) { option value=(NO_PREFIX) { "no prefix" } } }
            }
            @if value.is_some_and(ShownValue::is_reference) { span class="hint" { "This value \
                refers to a variable or a file. Change it in the config file." } }
        }
    }
}

fn other_values<'a>(values: impl Iterator<Item = &'a ShownValue>) -> Markup {
    html! {
        div class="wide" tabindex="0" role="region" aria-label="Other settings" {
            table {
                thead { tr { th scope="col" { "Other settings" } th scope="col" { "Value" } } }
                tbody {
                    @for value in values {
                        tr {
                            td { code { (VisibleText(&value.keys.join("."))) } }
                            td { (shown_value(value)) }
                        }
                    }
                }
            }
        }
    }
}

fn shown_value(value: &ShownValue) -> Markup {
    let origin = match value.text.as_deref() {
        Some(text) if value.is_reference() && text.contains("${file:") => Some("from a file"),
        Some(_) if value.is_reference() => Some("from the environment"),
        _ => None,
    };
    html! {
        @match &value.text {
            Some(text) => { code { (VisibleText(text)) }
                @if let Some(origin) = origin { " " span class="soft" { (origin) } } }
            None => {
                "••••"
                @if let Some(advice) = &value.advice {
                    span class="orange" { " is stored in plain text in the file." } " Set the \
                        variable and write this instead:"
                    (code_block(advice, "the line"))
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use moongate_api::EntrySource;

    fn value(keys: &[&str], text: Option<&str>, advice: Option<&str>) -> ShownValue {
        let keys = keys.iter().map(|key| (*key).to_owned()).collect();
        ShownValue {
            keys,
            text: text.map(str::to_owned),
            advice: advice.map(str::to_owned),
        }
    }

    #[test]
    fn own_values_fill_the_form_and_the_rest_is_listed() {
        let entry = ShownEntry {
            values: vec![
                value(&["title"], Some("<b>5$$"), None),
                value(&["timeout"], Some("${TIME}"), None),
                value(&["start"], Some("lazy"), None),
                value(
                    &["headers", "Authorization"],
                    None,
                    Some("Authorization = \"Bearer ${A_TOKEN}\""),
                ),
                value(&["env", "K"], Some("${file:/run/k}"), None),
            ],
            toml: String::new(),
        };
        let mut server = ServerStatus::default();
        server.identity.name = "a".to_owned();
        server.source = EntrySource {
            file: Some("/etc/m.toml".to_owned()),
            line: Some(3),
            editable: true,
            ..EntrySource::default()
        };
        let effective = EffectiveSettings {
            prefix: "a".to_owned(),
            timeout: "60s".to_owned(),
            share: SharingMode::Auto,
            start: ServerStart::Lazy,
            idle_stop: "10m".to_owned(),
        };
        let effective = Some(&effective);
        let html = render(&server, Some(&entry), effective, true).into_string();
        for part in [
            "data-send=\"/api/v1/servers/a\"",
            "value=\"&lt;b&gt;5$\"",
            "name=\"timeout\" value=\"${TIME}\" disabled",
            "<option value=\"lazy\" selected>",
            "not set: all clients",
            "placeholder=\"a\"",
            "is stored in plain text in the file",
            "Bearer ${A_TOKEN}",
            "from a file",
            "Save",
        ] {
            assert!(html.contains(part), "{part} in {html}");
        }
        (server.source.editable, server.source.why_not) =
            (false, Some("admin.edit is false".to_owned()));
        let html = render(&server, Some(&entry), effective, true).into_string();
        assert!(
            !html.contains("Save") && html.matches(" disabled").count() == FIELDS.len(),
            "{html}"
        );
        assert!(
            render(&server, None, effective, true)
                .into_string()
                .contains("There are no settings to show")
        );
    }
}
