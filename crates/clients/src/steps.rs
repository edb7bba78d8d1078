//! Steps that connect a client to a gateway, for people to follow.
//!
//! Owns their order: the link, the command, the file, and what else to know. Does not do any of
//! them. Invariant: the command line, the admin API and the documents show the same steps.

use moongate_edit::Format;

use crate::command_line::{add_command, quoted};
use crate::connect_file::{connect_text, format_of};
use crate::entry::{ConnectKey, ConnectRequest};
use crate::link::deeplink;
use crate::profile::{ClientProfile, ConnectMethod};

/// Kind of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StepKind {
    /// Link to open.
    Link,
    /// Command to run.
    Command,
    /// Text of a file.
    File,
    /// Sentence.
    Note,
}

impl StepKind {
    /// Name of the kind in the admin API.
    pub fn name(self) -> &'static str {
        match self {
            StepKind::Link => "link",
            StepKind::Command => "command",
            StepKind::File => "file",
            StepKind::Note => "note",
        }
    }
}

/// One step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectStep {
    /// Kind of the step.
    pub kind: StepKind,
    /// Link, command, part of a file, or sentence.
    pub text: String,
    /// Path of the file.
    pub path: Option<String>,
    /// Language of the text.
    pub language: Option<&'static str>,
}

fn step(kind: StepKind, text: String) -> ConnectStep {
    ConnectStep {
        kind,
        text,
        path: None,
        language: None,
    }
}

/// Returns the steps that connect a client. `file` is the path of its file, as it is shown.
pub fn connect_steps(
    profile: &ClientProfile,
    request: &ConnectRequest,
    file: Option<&str>,
) -> Vec<ConnectStep> {
    let mut steps = Vec::new();
    if !profile.note.is_empty() {
        steps.push(step(StepKind::Note, profile.note.to_owned()));
    }
    // Some links have only the URL. Without the note their users would wonder about a refused
    // client.
    let missing_key = request.key.is_some() && !profile.link.is_some_and(carries_key);
    if let Some(link) = deeplink(profile, request) {
        steps.push(step(StepKind::Link, link));
        if missing_key && profile.method == ConnectMethod::File {
            steps.push(step(
                StepKind::Note,
                "The link has no key: add the header from the entry below.".to_owned(),
            ));
        }
    }
    if let Some(command) = add_command(profile, request) {
        steps.push(ConnectStep {
            language: Some("sh"),
            ..step(StepKind::Command, command)
        });
    }
    steps.extend(file_step(profile, request, file));
    steps.extend(variable_note(profile, request));
    steps.push(step(StepKind::Note, profile.next_step.to_owned()));
    steps.extend(limit_note(profile));
    steps
}

/// True if a link of this template has the key inside.
fn carries_key(template: &str) -> bool {
    // A web page would get the key in its address, and with it every log on the way.
    !template.starts_with("https:")
        && ["{entry}", "{named}", "{base64}"]
            .iter()
            .any(|part| template.contains(part))
}

fn file_step(
    profile: &ClientProfile,
    request: &ConnectRequest,
    file: Option<&str>,
) -> Option<ConnectStep> {
    let path = match profile.method {
        ConnectMethod::File => file?,
        ConnectMethod::Paste => "pasted.json",
        ConnectMethod::PublicUrl | ConnectMethod::Discontinued => return None,
    };
    let format = format_of(std::path::Path::new(path));
    // An empty file shows the entry inside its wrapper, as in a client's own file.
    let text = connect_text(profile, request, format, "").ok()?;
    let path = (profile.method == ConnectMethod::File).then(|| path.to_owned());
    Some(ConnectStep {
        kind: StepKind::File,
        text,
        path,
        language: Some(language(format)),
    })
}

/// Returns the name of a format in a fenced block.
fn language(format: Format) -> &'static str {
    match format {
        Format::Toml => "toml",
        Format::Json => "json",
        Format::Yaml => "yaml",
    }
}

/// Line that sets the variable that the client reads.
fn variable_note(profile: &ClientProfile, request: &ConnectRequest) -> Option<ConnectStep> {
    let name = request.variable(profile)?;
    // Such a client keeps the key itself, so a variable would have no reader.
    if request.input(profile).is_some() {
        return Some(step(
            StepKind::Note,
            format!("{} asks for the key once.", profile.title),
        ));
    }
    let value = match &request.key {
        Some(ConnectKey::Variable {
            value: Some(value), ..
        }) => quoted(value),
        _ => "mg_your_key".to_owned(),
    };
    let line = format!("export {name}={value}");
    Some(ConnectStep {
        language: Some("sh"),
        ..step(StepKind::Command, line)
    })
}

fn limit_note(profile: &ClientProfile) -> Option<ConnectStep> {
    let name = profile
        .limits
        .name_length
        .map(|max| format!("names of at most {max} characters, including the server's"));
    let tools = profile
        .limits
        .tools
        .map(|max| format!("at most {max} tools"));
    let both: Vec<String> = [name, tools].into_iter().flatten().collect();
    let text = format!("{} accepts {}.", profile.title, both.join(", and "));
    (!both.is_empty()).then(|| step(StepKind::Note, text))
}
