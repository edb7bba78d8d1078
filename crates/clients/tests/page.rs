//! The reference page of clients, which comes from the table.
//!
//! `UPDATE_EXPECTED=1` writes it anew.

#![allow(clippy::unwrap_used)]

use std::fmt::Write as _;
use std::path::Path;

use moongate_clients::{
    ClientProfile, ConnectMethod, ConnectRequest, ConnectRoute, OffSwitch, StepKind, UserFiles, clients, connect_steps,
};

const HEAD: &str = "\
# Clients, one by one

Generated from Moongate's table of clients: `UPDATE_EXPECTED=1 cargo test -p moongate-clients` writes it anew.
[The guide](../guides/clients.md) says how `moongate connect` writes these entries, with a key if there is one.
`~` is the home, `{config}` is `~/.config` on Linux and `%APPDATA%` on Windows, `{xdg}` is `~/.config` on both, and
`{support}` is `~/Library/Application Support`. Another name in braces is a variable: its line counts if it is set.
";

fn page() -> String {
    let mut out = HEAD.to_owned();
    out += "\n| client | `moongate connect` | over HTTP | link | names, tools | checked |\n|---|---|---|---|---|---|\n";
    for row in clients() {
        let anchor = row.title.to_lowercase().replace(' ', "-").replace(['(', ')', '.'], "");
        let over_http = match (row.method, row.http) {
            (ConnectMethod::Discontinued, _) => "import only",
            (ConnectMethod::PublicUrl, _) => "public HTTPS only",
            (_, Some(_)) => "yes",
            (_, None) => "no, by command",
        };
        let limits =
            [row.limits.name_length, row.limits.tools].map(|limit| limit.map_or("-".to_owned(), |n| n.to_string()));
        let link = if row.link.is_some() { "yes" } else { "" };
        let _ = writeln!(
            out,
            "| [{}](#{anchor}) | `{}` | {over_http} | {link} | {} | {} |",
            row.title,
            row.id,
            limits.join(", "),
            row.checked
        );
    }
    clients().for_each(|row| out += &section(row));
    out
}

fn section(row: &ClientProfile) -> String {
    let mut out = format!("\n## {}\n\n", row.title);
    let mut file = |system: &str, paths: &[&str]| {
        let paths: Vec<String> = paths.iter().map(|path| format!("`{path}`")).collect();
        let _ = writeln!(out, "- {system}: {}", paths.join(", else "));
    };
    match row.user_files {
        UserFiles::Same([]) => {}
        UserFiles::Same(paths) => file("File", paths),
        UserFiles::Each { linux, macos, windows } => {
            file("Linux", linux);
            file("macOS", macos);
            file("Windows", windows);
        }
    }
    if let Some(path) = row.project_file {
        let _ = writeln!(out, "- In a project: `{path}`");
    }
    match row.off_switch {
        OffSwitch::Disabled => out += "- Off: `disabled` is true\n",
        OffSwitch::Enabled => out += "- Off: `enabled` is false\n",
        OffSwitch::None => {}
    }
    let request = ConnectRequest {
        name: "moongate".to_owned(),
        url: "http://127.0.0.1:8080/mcp".to_owned(),
        key: None,
        route: ConnectRoute::Best,
        program: "moongate".to_owned(),
    };
    let path = match row.user_files {
        UserFiles::Same(paths) | UserFiles::Each { linux: paths, .. } => paths.first().copied(),
    };
    for step in connect_steps(row, &request, path) {
        out.push_str(if out.ends_with("\n\n") { "" } else { "\n" });
        let _ = match step.kind {
            // A long link helps nobody on a page.
            StepKind::Link => writeln!(out, "`moongate connect {}` prints a link that adds it.", row.id),
            StepKind::Note => writeln!(out, "{}", step.text),
            StepKind::Command | StepKind::File => {
                // Blocks of these names are no commands and configs of ours, which another test would run.
                let language = match step.language.unwrap_or_default() {
                    "sh" => "console",
                    "json" => "jsonc",
                    other => other,
                };
                writeln!(out, "```{language}\n{}\n```", step.text.trim_end())
            }
        };
    }
    out
}

#[test]
fn the_page_is_fresh() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/clients.md");
    let page = page();
    if std::env::var_os("UPDATE_EXPECTED").is_some() {
        std::fs::write(&path, &page).unwrap();
    }
    let there = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(there, page, "UPDATE_EXPECTED=1 writes docs/reference/clients.md anew");
}
