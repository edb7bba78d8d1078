//! Pages of clients, which come from the table: one for each, and the reference page that lists
//! them.
//!
//! `UPDATE_EXPECTED=1` writes them.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use moongate_clients::{
    ClientProfile, ConnectKey, ConnectMethod, ConnectRequest, ConnectRoute, OffSwitch,
    StartCommand, StepKind, UserFiles, clients, connect_steps,
};

const HEAD: &str = "\
# Supported clients

Generated from Moongate's table of clients: `UPDATE_EXPECTED=1 cargo test -p moongate-clients` \
rewrites it and the
pages that it links to. [The guide](../guides/clients.md) says how `moongate connect` writes \
entries.

- **link**: a link adds Moongate to this client. Its page has the link.
- **names, tools**: the longest tool name, including the server's name, and the largest number of \
tools. `-`: no
  limit is known.
- With many tools, some clients work better with [search
  mode](../guides/search-mode.md#which-clients-should-use-it).

| client | `moongate connect` | over HTTP | link | names, tools | checked |
|---|---|---|---|---|---|
";

fn docs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs")
}

/// The pages by their paths below `docs/`.
fn pages() -> BTreeMap<String, String> {
    let list = clients().fold(HEAD.to_owned(), |list, row| list + &line(row));
    let own = clients().map(|row| (format!("clients/{}.md", row.id), page(row)));
    own.chain([("reference/clients.md".to_owned(), list)])
        .collect()
}

fn line(row: &ClientProfile) -> String {
    let over_http = match (row.method, row.http) {
        (ConnectMethod::Discontinued, _) => "import only",
        (ConnectMethod::PublicUrl, _) => "public HTTPS, with a login",
        (_, Some(_)) => "yes",
        (_, None) => "no, by command",
    };
    let limits = [row.limits.name_length, row.limits.tools]
        .map(|limit| limit.map_or("-".to_owned(), |n| n.to_string()));
    let link = if row.link.is_some() { "yes" } else { "" };
    let title = row.title;
    let id = row.id;
    let limits = limits.join(", ");
    format!(
        "| [{title}](../clients/{id}.md) | `{id}` | {over_http} | {link} | {limits} | {} |\n",
        row.checked
    )
}

fn page(row: &ClientProfile) -> String {
    let mut out = format!("# {}\n\n", row.title);
    if !row.note.is_empty() {
        let _ = writeln!(out, "{}\n", row.note);
    }
    match row.method {
        ConnectMethod::File => {
            let _ = writeln!(out, "This writes Moongate's entry, after showing it:\n");
            let _ = writeln!(out, "```console\nmoongate connect {} --write\n```", row.id);
        }
        ConnectMethod::Paste => {
            let _ = writeln!(out, "This shows the text to paste:\n");
            let _ = writeln!(out, "```console\nmoongate connect {}\n```", row.id);
        }
        ConnectMethod::PublicUrl => {
            out += "[Company login](../guides/company-login.md) shows the config.\n";
        }
        ConnectMethod::Discontinued => {
            out += "This copies its servers into Moongate's config:\n";
            let _ = writeln!(out, "\n```console\nmoongate import {}\n```", row.id);
        }
    }
    if row.link.is_some() && row.method == ConnectMethod::PublicUrl {
        let _ = writeln!(
            out,
            "`moongate connect {} --endpoint URL` prints a link that adds it.",
            row.id
        );
    }
    for (_, link, _) in steps(row, None)
        .into_iter()
        .filter(|step| step.0 == StepKind::Link)
    {
        let _ = writeln!(
            out,
            "\nOr open this link, which adds it:\n\n```text\n{link}\n```"
        );
    }
    if row.id == "claude-desktop" {
        out += "\nA bundle does the same without a file to edit. Claude Desktop asks for the \
                address and the key:\n";
        out += "\n```console\nmoongate connect claude-desktop --bundle moongate.mcpb\n```\n";
    }
    out.truncate(out.trim_end().len());
    out.push('\n');
    out += &files(row);
    out += &entry(row);
    let _ = writeln!(out, "\n## In the client\n\n{}", row.next_step);
    for note in steps(row, None)
        .into_iter()
        .filter(|step| step.0 == StepKind::Note)
        .map(|step| step.1)
    {
        if note != row.note && note != row.next_step {
            let _ = writeln!(out, "{note}");
        }
    }
    if let Some(advice) = discovery_advice(row) {
        let _ = writeln!(out, "{advice}");
    }
    let _ = writeln!(
        out,
        "\nThese facts were checked on {}. [All clients](../reference/clients.md)",
        row.checked
    );
    out
}

/// Sentence on search mode, for clients with a limit of tools and for those that are known to do
/// better with few, or with all.
fn discovery_advice(row: &ClientProfile) -> Option<String> {
    let link = "(../guides/search-mode.md#which-clients-should-use-it)";
    match (row.id, row.limits.tools) {
        ("claude-code", _) => Some(format!(
            "It looks up tools by itself: give it [complete lists]{link}."
        )),
        ("cursor" | "codex" | "gemini" | "goose" | "lmstudio", _) => Some(format!(
            "With more than 40 tools, give it [search mode]{link}."
        )),
        (_, Some(max)) => Some(format!(
            "With more than {max} tools, give it [search mode]{link}."
        )),
        _ => None,
    }
}

/// Places of the client's files.
fn files(row: &ClientProfile) -> String {
    let mut out = String::new();
    let mut file = |system: &str, paths: &[&str]| {
        let shown = |path: &&str| {
            format!(
                "`{}`",
                path.replace("{support}", "~/Library/Application Support")
            )
        };
        let paths: Vec<String> = paths.iter().map(shown).collect();
        let line = format!("- {system}: {}", paths.join(", else "));
        let _ = match line.chars().count() {
            ..=120 => writeln!(out, "{line}"),
            _ => writeln!(out, "- {system}:\n  {}", paths.join(",\n  else ")),
        };
    };
    match row.user_files {
        UserFiles::Same([]) => {}
        UserFiles::Same(paths) => file("Yours", paths),
        UserFiles::Each {
            linux,
            macos,
            windows,
        } => {
            file("Linux", linux);
            file("macOS", macos);
            file("Windows", windows);
        }
    }
    if out.is_empty() {
        return out;
    }
    if let Some(path) = row.project_file {
        let flag = if row.method == ConnectMethod::File {
            ", with `--project`"
        } else {
            ""
        };
        let _ = writeln!(out, "- In a project{flag}: `{path}`");
    }
    if let Some(folder) = row.folder {
        let _ = writeln!(
            out,
            "- `moongate import` also reads each file of `{folder}`, in your home and in a project"
        );
    }
    match row.off_switch {
        OffSwitch::Disabled => out += "- `disabled: true` in an entry switches it off\n",
        OffSwitch::Enabled => out += "- `enabled: false` in an entry switches it off\n",
        OffSwitch::None => {}
    }
    let explained = explained_places(&out);
    format!("\n## Files\n\n{out}{explained}")
}

/// Explains the placeholders of a list of files.
fn explained_places(files: &str) -> String {
    let mut explained = String::new();
    let names = [
        (
            "{config}",
            "`{config}` is `~/.config` on Linux and `%APPDATA%` on Windows.",
        ),
        (
            "{xdg}",
            "`{xdg}` is `$XDG_CONFIG_HOME`, or else `~/.config`.",
        ),
    ];
    for (_, what) in names.into_iter().filter(|(name, _)| files.contains(name)) {
        explained += &format!("\n{what}\n");
    }
    for name in [
        "CLAUDE_CONFIG_DIR",
        "CODEX_HOME",
        "COPILOT_HOME",
        "VIBE_HOME",
    ] {
        if files.contains(&format!("{{{name}}}")) {
            explained += &format!("\nThe first one counts if the variable `{name}` is set.\n");
        }
    }
    explained
}

/// The entry, without a key and with one.
fn entry(row: &ClientProfile) -> String {
    let block = |key: Option<ConnectKey>| {
        let steps = steps(row, key)
            .into_iter()
            .filter(|step| step.0 == StepKind::File);
        steps
            .map(|(_, text, language)| {
                format!("\n```{language} client\n{}\n```\n", text.trim_end())
            })
            .collect::<String>()
    };
    let key = |value: &str| {
        Some(ConnectKey::Variable {
            name: "MOONGATE_KEY".to_owned(),
            value: Some(value.to_owned()),
        })
    };
    let plain = block(None);
    if plain.is_empty() {
        return plain;
    }
    let command = steps(row, None)
        .into_iter()
        .find(|step| step.0 == StepKind::Command);
    let command = command
        .map(|(_, text, _)| format!("\nOr run:\n\n```console\n{text}\n```\n"))
        .unwrap_or_default();
    format!(
        "\n## Entry\n{plain}{command}\nWith a key:\n{}",
        block(key("mg_your_key"))
    )
}

fn request(key: Option<ConnectKey>) -> ConnectRequest {
    ConnectRequest {
        name: "moongate".to_owned(),
        url: "http://127.0.0.1:8080/mcp".to_owned(),
        key,
        route: ConnectRoute::Best,
        start: StartCommand::program("moongate"),
    }
}

fn steps(row: &ClientProfile, key: Option<ConnectKey>) -> Vec<(StepKind, String, &'static str)> {
    let path = match row.user_files {
        UserFiles::Same(paths) | UserFiles::Each { linux: paths, .. } => paths.first().copied(),
    };
    let steps = connect_steps(row, &request(key), path).into_iter();
    steps
        .map(|step| (step.kind, step.text, step.language.unwrap_or_default()))
        .collect()
}

#[test]
fn an_entry_is_labelled_with_its_language() {
    let row = clients()
        .find(|row| row.method == ConnectMethod::File)
        .unwrap();
    for (path, language) in [
        ("X.TOML", "toml"),
        ("x.Yml", "yaml"),
        ("x.jsonc", "json"),
        ("x", "json"),
    ] {
        let steps = connect_steps(row, &request(None), Some(path));
        let file = steps.iter().find(|step| step.kind == StepKind::File);
        assert_eq!(file.unwrap().language, Some(language), "{path}");
    }
}

#[test]
fn the_pages_are_fresh() {
    let pages = pages();
    if std::env::var_os("UPDATE_EXPECTED").is_some() {
        std::fs::create_dir_all(docs().join("clients")).unwrap();
        pages
            .iter()
            .for_each(|(path, page)| std::fs::write(docs().join(path), page).unwrap());
    }
    for (path, page) in &pages {
        let there = std::fs::read_to_string(docs().join(path)).unwrap_or_default();
        assert_eq!(&there, page, "UPDATE_EXPECTED=1 rewrites docs/{path}");
    }
    // A client that left the table leaves no page behind.
    let files = std::fs::read_dir(docs().join("clients"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name());
    let unknown: Vec<_> = files
        .filter(|name| !pages.contains_key(&format!("clients/{}", name.display())))
        .collect();
    assert!(unknown.is_empty(), "{unknown:?}");
}

#[test]
fn every_page_says_how_to_connect_and_what_comes_next() {
    for (row, page) in clients().map(|row| (row, page(row))) {
        assert!(
            page.contains(row.next_step) && page.contains(row.checked),
            "{page}"
        );
        let has_entry = matches!(row.method, ConnectMethod::File | ConnectMethod::Paste);
        assert_eq!(page.contains("## Entry"), has_entry, "{page}");
        assert_eq!(
            page.contains("--write"),
            row.method == ConnectMethod::File,
            "{page}"
        );
        assert!(
            page.lines()
                .all(|line| line.chars().count() <= 120 || line.contains(['`', '%'])),
            "{page}"
        );
    }
}
