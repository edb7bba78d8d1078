//! Lists as a section for a system prompt: Markdown, nothing cut.

use std::sync::Arc;

use crate::json::{Object, Raw, Text};
use crate::model::Kind;

use super::output::clean;
use super::schema::{self, Argument};

/// The section; `instructions` are the server's own.
pub(super) fn lists(lists: &[(Kind, Vec<Arc<Object>>)], instructions: Option<&str>) -> String {
    let filled = lists.iter().filter(|(_, items)| !items.is_empty());
    let sections: Vec<String> = filled.map(|(kind, items)| section(*kind, items, instructions)).collect();
    clean(&sections.join("\n")).into_owned()
}

fn section(kind: Kind, items: &[Arc<Object>], instructions: Option<&str>) -> String {
    let heading = match kind {
        Kind::Tools => "Tools",
        Kind::Resources => "Resources",
        Kind::Templates => "Resource templates",
        Kind::Prompts => "Prompts",
    };
    let mut out = format!("# {heading}\n");
    // How to use the server matters most where something is to be called.
    if let (Kind::Tools, Some(instructions)) = (kind, instructions) {
        paragraph(&mut out, instructions);
    }
    for item in items {
        out.push('\n');
        self::item(&mut out, kind, item);
    }
    out
}

fn item(out: &mut String, kind: Kind, item: &Object) {
    let key = item.text(kind.item_key()).unwrap_or_else(|| Text::literal(""));
    out.push_str(&format!("## {}\n", key.replace('\n', " ")));
    let described = item.text("description").or_else(|| item.text("title"));
    if let Some(description) = described {
        paragraph(out, &description);
    }
    let arguments = match kind {
        Kind::Tools => schema::arguments(&item.object("inputSchema").unwrap_or_default()),
        Kind::Prompts => schema::prompt_arguments(item),
        Kind::Resources | Kind::Templates => {
            if let Some(mime) = item.text("mimeType") {
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
            arguments.iter().for_each(|argument| out.push_str(&self::argument(argument)));
        }
    }
}

/// `` - `a` (number, required): What it is. One of 1, 2. ``
fn argument(argument: &Argument) -> String {
    let mut about = argument.types.clone();
    about.push(if argument.required { "required" } else { "optional" }.to_owned());
    about.extend(argument.default.as_ref().map(|default| format!("default {default:?}")));
    let mut line = format!("- `{}` ({})", argument.name, about.join(", "));
    if let Some(description) = &argument.description {
        line.push_str(&format!(": {}", description.trim().replace('\n', "\n  ")));
    }
    if !argument.choices.is_empty() {
        let choices: Vec<String> = argument.choices.iter().map(|raw: &Raw| format!("{raw:?}")).collect();
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
        let items = vec![Arc::new(Raw::literal(tool).as_object().unwrap())];
        let text = lists(&[(Kind::Tools, items), (Kind::Prompts, Vec::new())], Some("Be kind."));
        let wanted = "# Tools\n\nBe kind.\n\n## add\n\nAdds.\nTwo.\n\nArguments:\n\n- `a` (number, required): The first\n\
            - `b` (integer, null, optional, default 1.0)\n- `c` (string, optional): one of \"x\", \"y\".\n";
        assert_eq!(text, wanted);
    }
}
