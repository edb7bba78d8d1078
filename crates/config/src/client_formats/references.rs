//! References in clients' files, converted into ours.
//!
//! Owns the conversion of each client's style to `${NAME}` and `${file:PATH}`. Does not resolve
//! references (`expand`). Invariant: what the client does not replace reaches the server as it is
//! in the file.

use std::collections::BTreeMap;

use super::super::expand::is_unclosed;
use super::client::ReferenceStyle;

/// Bytes in which a reference ends. A text of openings alone would otherwise be searched to its end
/// from each of them.
const REFERENCE_MAX: usize = 1024;

/// Beginnings of references that name a kind of value.
const EDITOR_KINDS: [&str; 5] = ["env:", "file:", "workspaceFolder", "command:", "config:"];

/// Problem of a reference that cannot be converted: message and fix.
pub(super) type UnreadableReference = (String, &'static str);

/// Defaults of the inputs that an editor would ask for, by id.
pub(super) type EditorInputs = BTreeMap<String, Option<String>>;

/// What an editor knows when it replaces references.
#[derive(Default)]
pub(super) struct EditorContext {
    pub(super) inputs: EditorInputs,
    /// Folder that is open. `None` if it is not known.
    pub(super) workspace: Option<String>,
}

/// Converts the references in a text. Adds the variables that stand for inputs to `asked`.
pub(super) fn rewrite(
    text: &str,
    styles: &[ReferenceStyle],
    editor: &EditorContext,
    asked: &mut Vec<String>,
) -> Result<String, UnreadableReference> {
    let mut out = String::with_capacity(text.len());
    let is_ours = styles.contains(&ReferenceStyle::Escaped);
    let mut rest = text;
    let mut is_after_dollar = false;
    while let Some(at) = rest.find(['$', '%', '{']) {
        out.push_str(&rest[..at]);
        is_after_dollar &= at == 0;
        rest = &rest[at..];
        let converted = parse_reference(rest, styles, editor, asked)?;
        let is_dollar = converted.is_none() && rest.starts_with('$');
        let (found, taken) = match converted {
            Some(found) => found,
            // Our own marks pass unchanged.
            None if is_ours && (rest.starts_with("$$") || rest.starts_with("${")) => {
                (rest[..2].to_owned(), 2)
            }
            // Only the opening is skipped: a default may hold a reference of the client's style.
            None if opens_reference(rest) => ("${".to_owned(), 2),
            None if is_dollar && (is_after_dollar || begins_mark(&rest[1..])) => {
                ("$$".to_owned(), 1)
            }
            None => (rest[..1].to_owned(), 1),
        };
        is_after_dollar = is_dollar && taken == 1;
        out.push_str(&found);
        rest = &rest[taken..];
    }
    out.push_str(rest);
    Ok(out)
}

/// True if a dollar sign before this text would be read as more than itself, once the text is
/// converted.
fn begins_mark(text: &str) -> bool {
    text.starts_with(['$', '{', '%'])
}

/// True if a text starts with a reference of ours, or with one of an editor that a gateway cannot
/// replace. `expand` reports the latter.
fn opens_reference(text: &str) -> bool {
    let Some(inside) = text.strip_prefix("${") else {
        return false;
    };
    if EDITOR_KINDS.iter().any(|kind| inside.starts_with(kind)) {
        return between(text, "${", "}").is_some();
    }
    let name = name(inside);
    match inside[name.len()..].strip_prefix(":-") {
        Some(default) => !name.is_empty() && !is_unclosed(default),
        None => !name.is_empty() && inside[name.len()..].starts_with('}'),
    }
}

/// Converts the reference at the start of a text. Returns it with its length in the client's style.
fn parse_reference(
    text: &str,
    styles: &[ReferenceStyle],
    editor: &EditorContext,
    asked: &mut Vec<String>,
) -> Result<Option<(String, usize)>, UnreadableReference> {
    if let Some(found) = editor_reference(text, editor, asked) {
        return Ok(Some(found));
    }
    if let Some((inside, taken)) =
        between(text, "${{", "}}").filter(|_| styles.contains(&ReferenceStyle::Secrets))
    {
        let name = inside.trim().rsplit('.').next().unwrap_or_default();
        return Ok(Some((format!("${{{name}}}"), taken)));
    }
    if let Some((inside, _)) =
        between(text, "{{", "}}").filter(|_| styles.contains(&ReferenceStyle::PerUser))
    {
        let message = format!(
            "`{{{{{inside}}}}}` is a per-user placeholder, which a shared gateway cannot fill in"
        );
        return Err((
            message,
            "write the value, or let `forward_headers` pass on what the client sends",
        ));
    }
    if styles.contains(&ReferenceStyle::Braces) {
        for kind in ["env", "file"] {
            if let Some((inside, taken)) = between(text, &format!("{{{kind}:"), "}") {
                let prefix = if kind == "file" { "file:" } else { "" };
                return Ok(Some((format!("${{{prefix}{inside}}}"), taken)));
            }
        }
    }
    if let Some((inside, taken)) =
        between(text, "$(", ")").filter(|_| styles.contains(&ReferenceStyle::Shell))
    {
        return Ok(Some((shell_reference(inside)?, taken)));
    }
    if styles.contains(&ReferenceStyle::Dollar) && text.starts_with('$') {
        let name = name(&text[1..]);
        if !name.is_empty() {
            return Ok(Some((format!("${{{name}}}"), 1 + name.len())));
        }
    }
    if styles.contains(&ReferenceStyle::Percent) && text.starts_with('%') {
        let name = name(&text[1..]);
        if !name.is_empty() && text[1 + name.len()..].starts_with('%') {
            return Ok(Some((format!("${{{name}}}"), 2 + name.len())));
        }
    }
    Ok(None)
}

/// Converts a reference that editors replace, in the files of all clients.
fn editor_reference(
    text: &str,
    editor: &EditorContext,
    asked: &mut Vec<String>,
) -> Option<(String, usize)> {
    if let Some((id, taken)) = between(text, "${input:", "}") {
        let name = variable(id);
        asked.push(name.clone());
        return Some(match editor.inputs.get(id) {
            // A default is plain text to the editor, so its dollar signs must survive our
            // expansion.
            Some(Some(default)) => (
                format!("${{{name}:-{}}}", default.replace('$', "$$")),
                taken,
            ),
            _ => (format!("${{{name}}}"), taken),
        });
    }
    if let Some(workspace) = &editor.workspace
        && let Some((which, taken)) = between(text, "${workspaceFolder", "}")
    {
        // `${workspaceFolder:NAME}` is one of several folders. The file is in the one that is meant
        // most often.
        let value = if which == "Basename" {
            workspace.rsplit(['/', '\\']).next().unwrap_or_default()
        } else {
            workspace
        };
        return Some((value.replace('$', "$$"), taken));
    }
    // VS Code's variables for the home directory, and for what separates names in a path.
    if let Some(mark) = ["${pathSeparator}", "${/}"]
        .into_iter()
        .find(|mark| text.starts_with(mark))
    {
        return Some((std::path::MAIN_SEPARATOR.to_string(), mark.len()));
    }
    text.starts_with("${userHome}")
        .then(|| ("${HOME}".to_owned(), "${userHome}".len()))
}

/// Converts the command of a shell's substitution, if it only reads a variable or a file.
fn shell_reference(command: &str) -> Result<String, UnreadableReference> {
    let words: Vec<&str> = command.split_whitespace().collect();
    match words.as_slice() {
        ["echo", name] if name.starts_with('$') => {
            Ok(format!("${{{}}}", name.trim_matches(['$', '{', '}'])))
        }
        ["cat", path] if !path.starts_with('-') => Ok(format!("${{file:{path}}}")),
        // A gateway that runs commands from a copied file would be a trap.
        _ => Err((
            "commands in values are not run".to_owned(),
            "use an environment variable, `${NAME}`, or a file, `${file:/path}`",
        )),
    }
}

/// Name of a variable at the start of a text, empty if there is none.
fn name(text: &str) -> &str {
    let end = text
        .find(|c: char| !c.is_ascii_alphanumeric() && c != '_')
        .unwrap_or(text.len());
    if text.starts_with(|c: char| c.is_ascii_digit()) {
        ""
    } else {
        &text[..end]
    }
}

/// Text between two marks at the start of a text, and the length of all three.
fn between<'a>(text: &'a str, open: &str, close: &str) -> Option<(&'a str, usize)> {
    let rest = text.strip_prefix(open)?;
    let end = rest.as_bytes()[..rest.len().min(REFERENCE_MAX)]
        .windows(close.len())
        .position(|part| part == close.as_bytes())?;
    Some((&rest[..end], open.len() + end + close.len()))
}

/// Name of the environment variable for an input.
fn variable(id: &str) -> String {
    id.chars()
        .map(|c| {
            if c.is_ascii_alphanumeric() {
                c.to_ascii_uppercase()
            } else {
                '_'
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::super::expand::expand_text;
    use super::super::super::reference_variables::ReferenceVariables;
    use super::super::client::{
        CRUSH, ClientFormat, GEMINI, LIBRECHAT, LIST, OPENCODE, SERVERS, SHARED,
    };
    use super::*;

    /// Texts of clients, with what they become.
    fn converted_references() -> [(&'static ClientFormat, &'static str, &'static str); 15] {
        [
            (&GEMINI, "Bearer $TOKEN!", "Bearer ${TOKEN}!"),
            (
                &GEMINI,
                "%HOME%/x ${A} $1 100% %",
                "${HOME}/x ${A} $1 100% %",
            ),
            (&GEMINI, "$$TOKEN $%HOME%", "$$${TOKEN} $$${HOME}"),
            (
                &SHARED,
                "$TOKEN %HOME% {env:A} $(x)",
                "$TOKEN %HOME% {env:A} $(x)",
            ),
            (
                &SHARED,
                "${input:a-key}/${input:url}",
                "${A_KEY}/${URL:-x$$y}",
            ),
            (
                &SHARED,
                "${workspaceFolder}/a ${workspaceFolderBasename}",
                "/w/$$x/a $$x",
            ),
            (
                &SHARED,
                "${userHome}/x ${env:A} 5$",
                "${HOME}/x ${env:A} 5$",
            ),
            (&SHARED, "a$$b $$ $$${A}", "a$$$$b $$$$ $$$$${A}"),
            (
                &SHARED,
                "${NOPE ${} ${a b} ${1} ${A:-x",
                "$${NOPE $${} $${a b} $${1} $${A:-x",
            ),
            (
                &SHARED,
                "${A:-x$$} ${A:-${B:-$}} ${command:x}",
                "${A:-x$$$$} ${A:-${B:-$}} ${command:x}",
            ),
            (&SERVERS, "a$$b $${A} ${NOPE", "a$$b $${A} ${NOPE"),
            (
                &OPENCODE,
                "Bearer {env:T} {file:~/k} {x}",
                "Bearer ${T} ${file:~/k} {x}",
            ),
            (
                &CRUSH,
                "$(echo $T) $(cat /run/k) $U",
                "${T} ${file:/run/k} ${U}",
            ),
            (&LIST, "${{ secrets.KEY }}", "${KEY}"),
            (&GEMINI, "\u{e9}$A\u{e9}%B%", "\u{e9}${A}\u{e9}${B}"),
        ]
    }

    #[test]
    fn each_client_s_references_become_ours_and_no_others() {
        let inputs = EditorInputs::from([
            ("a-key".to_owned(), None),
            ("url".to_owned(), Some("x$y".to_owned())),
        ]);
        let editor = EditorContext {
            inputs,
            workspace: Some("/w/$x".to_owned()),
        };
        for (format, text, expected) in converted_references() {
            assert_eq!(
                rewrite(text, format.references, &editor, &mut Vec::new()).as_deref(),
                Ok(expected),
                "{text}"
            );
        }
        // What no client replaces also comes out of our expansion as it went in.
        for text in [
            "a$$b",
            "$$$",
            "${NOPE",
            "${",
            "$",
            "${}${${",
            "a$$$$b${x y}$",
            "$%$${1}",
        ] {
            let ours = rewrite(text, SHARED.references, &editor, &mut Vec::new()).unwrap();
            let env = BTreeMap::new();
            let expanded = expand_text(&ours, &ReferenceVariables::of_process(&env), None).unwrap();
            assert_eq!(expanded.text, text);
        }
        let openings = "$(".repeat(50_000);
        assert_eq!(
            rewrite(&openings, CRUSH.references, &editor, &mut Vec::new()).as_deref(),
            Ok(&*openings)
        );
        assert!(rewrite("$(rm -rf /)", CRUSH.references, &editor, &mut Vec::new()).is_err());
        assert!(
            rewrite(
                "{{LIBRECHAT_USER_ID}}",
                LIBRECHAT.references,
                &editor,
                &mut Vec::new()
            )
            .is_err()
        );
        let mut asked = Vec::new();
        let _ = rewrite("${input:a-key}", &[], &editor, &mut asked);
        assert_eq!(asked, ["A_KEY"]);
    }
}
