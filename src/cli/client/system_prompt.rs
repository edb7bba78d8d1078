//! Lists as a section for a system prompt. Owns their Markdown.
//!
//! Does not choose items. Invariant: no text is cut.

use std::sync::Arc;

use moongate_form::schema::{self, SchemaArgument};
use moongate_jsonrpc::json::{JsonObject, RawJson};
use moongate_model::{ItemKind, ItemTexts};

use super::output::without_control_characters;
use super::switched_off::SwitchedOffTools;

/// Returns the section. `instructions` are the server's own.
pub(super) fn lists(
    lists: &[(ItemKind, Vec<Arc<JsonObject>>)],
    instructions: Option<&str>,
) -> String {
    let filled = lists.iter().filter(|(_, items)| !items.is_empty());
    let sections: Vec<String> = filled
        .map(|(kind, items)| section(*kind, items, instructions))
        .collect();
    without_control_characters(&sections.join("\n")).into_owned()
}

/// Returns a section with tools that are switched off, so that a model neither calls nor promises
/// them.
pub(super) fn switched_off(servers: &[SwitchedOffTools]) -> String {
    if servers.is_empty() {
        return String::new();
    }
    let mut out =
        "\n# Switched off\n\nThese tools exist, but the operator switched them off. They cannot be \
         called:\n\n"
            .to_owned();
    for SwitchedOffTools { server, tools } in servers {
        for tool in tools {
            out.push_str(&format!(
                "- `{}` of {server}\n",
                tool.replace(['\n', '`'], " ")
            ));
        }
    }
    without_control_characters(&out).into_owned()
}

fn section(kind: ItemKind, items: &[Arc<JsonObject>], instructions: Option<&str>) -> String {
    let heading = match kind {
        ItemKind::Tools => "Tools",
        ItemKind::Resources => "Resources",
        ItemKind::Templates => "Resource templates",
        ItemKind::Prompts => "Prompts",
    };
    let mut out = format!("# {heading}\n");
    // Instructions matter most where tools are to be called.
    if let (ItemKind::Tools, Some(instructions)) = (kind, instructions) {
        paragraph(&mut out, instructions);
    }
    for item in items {
        out.push('\n');
        self::item(&mut out, kind, item);
    }
    out
}

fn item(out: &mut String, kind: ItemKind, item: &JsonObject) {
    let texts: ItemTexts = item.read_members();
    let key = kind.key_of(item);
    let key = key.as_deref().unwrap_or_default();
    // A name is a server's text: a line break in it would end the heading and start a paragraph.
    out.push_str(&format!("## {}\n", key.replace('\n', " ")));
    if let Some(description) = texts.about() {
        paragraph(out, description);
    }
    let arguments = match kind {
        ItemKind::Tools => schema::arguments(&texts.input_schema.unwrap_or_default()),
        ItemKind::Prompts => schema::prompt_arguments(item),
        ItemKind::Resources | ItemKind::Templates => {
            if let Some(mime) = texts.mime_type {
                paragraph(out, &format!("Type: {mime}"));
            }
            return;
        }
    };
    match arguments.as_slice() {
        [] => paragraph(out, "Arguments: none."),
        arguments => {
            paragraph(out, "Arguments:");
            out.push('\n');
            arguments
                .iter()
                .for_each(|argument| out.push_str(&self::argument(argument)));
        }
    }
}

/// Formats an argument: `` - `a` (number, required): What it is. One of 1, 2. ``
fn argument(argument: &SchemaArgument) -> String {
    let mut about = argument.types.clone();
    about.push(
        if argument.required {
            "required"
        } else {
            "optional"
        }
        .to_owned(),
    );
    about.extend(
        argument
            .default
            .as_ref()
            .map(|default| format!("default {default:?}")),
    );
    let mut line = format!("- `{}` ({})", argument.name, about.join(", "));
    if let Some(description) = &argument.description {
        line.push_str(&format!(": {}", description.trim().replace('\n', "\n  ")));
    }
    if !argument.choices.is_empty() {
        let choices: Vec<String> = argument
            .choices
            .iter()
            .map(|raw: &RawJson| format!("{raw:?}"))
            .collect();
        let joint = match argument.description {
            None => ": one",
            Some(_) if line.ends_with('.') => " One",
            Some(_) => ". One",
        };
        line.push_str(&format!("{joint} of {}.", choices.join(", ")));
    }
    line + "\n"
}

fn paragraph(out: &mut String, text: &str) {
    out.push_str(&format!("\n{}\n", text.trim()));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tool_is_told_with_its_arguments() {
        let tool = r#"{"name":"add","description":" Adds.\nTwo. ","inputSchema":{"properties":{
            "a":{"type":"number","description":"The first"},"b":{"type":["integer","null"],"default":1.0},
            "c":{"enum":["x","y"]}},"required":["a"]}}"#;
        let items = vec![Arc::new(RawJson::literal(tool).as_object().unwrap())];
        let text = lists(
            &[(ItemKind::Tools, items), (ItemKind::Prompts, Vec::new())],
            Some("Be kind."),
        );
        let wanted = "# Tools\n\nBe kind.\n\n## add\n\nAdds.\nTwo.\n\nArguments:\n\n- `a` (number, \
                      required): The first\n\
            - `b` (integer, null, optional, default 1.0)\n- `c` (string, optional): one \
            of \"x\", \"y\".\n";
        assert_eq!(text, wanted);
    }

    #[test]
    fn a_tool_that_is_switched_off_is_a_line_whatever_its_name() {
        assert_eq!(switched_off(&[]), "");
        let off = SwitchedOffTools {
            server: "a".to_owned(),
            tools: vec!["rm".to_owned(), "b`\n# c".to_owned()],
        };
        let text = switched_off(&[off]);
        assert!(
            text.ends_with("They cannot be called:\n\n- `rm` of a\n- `b  # c` of a\n"),
            "{text}"
        );
    }
}
