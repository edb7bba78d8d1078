//! Advice on a config that works.
//!
//! Looks for settings that work and are probably not meant, or not safe. Does not refuse anything.
//! Invariant: the plan stays the same.

use std::path::Path as FilePath;

use moongate_platform::private_file::{self, OtherWriters};

use super::collector::ProblemCollector;
use super::problem::ProblemKind;
use super::tree::{ConfigNode, ConfigPath, ConfigValue, SourceSpan};

/// Programs that fetch a package and run it: the program, the words after it, and the sign before a
/// version.
const RUNNERS: [(&str, &[&str], &str); 7] = [
    ("npx", &[], "@"),
    ("bunx", &[], "@"),
    ("pnpm", &["dlx"], "@"),
    ("npm", &["exec"], "@"),
    ("uvx", &[], "=="),
    ("uv", &["tool", "run"], "=="),
    ("pipx", &["run"], "=="),
];

/// Flags of these programs that name the package.
const PACKAGE_FLAGS: [&str; 4] = ["--package", "-p", "--from", "--spec"];
/// Flags of these programs whose value is not the package.
const VALUE_FLAGS: [&str; 10] = [
    "--with",
    "--python",
    "--index-url",
    "--default-index",
    "--extra-index-url",
    "--directory",
    "--registry",
    "--cache",
    "--prefix",
    "--index",
];

/// Warns of a file that others may write. Writers of a config can start programs as the gateway's
/// user.
pub(super) fn warn_of_permissions(path: &FilePath, source: usize, faults: &mut ProblemCollector) {
    if !path.exists() {
        return;
    }
    let span = SourceSpan {
        source,
        start: 0,
        end: 0,
    };
    let shown = path.display();
    let who = private_file::other_writers(path).map(|others| match others {
        OtherWriters::Everybody => "everybody on this machine",
        OtherWriters::Group => "everybody in its group",
    });
    if let Some(who) = who {
        let message = format!("{who} can write to {shown}, and so run programs on this machine");
        faults.warn(
            ProblemKind::Access,
            span,
            message,
            format!("chmod go-w {shown}"),
        );
    }
    // The file's mode is useless where anybody may rename another file over it.
    let parent = path
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty())
        .unwrap_or(FilePath::new("."));
    if private_file::is_open_folder(parent) {
        let message = format!(
            "everybody on this machine can replace {shown}, and so run programs on this machine"
        );
        faults.warn(
            ProblemKind::Access,
            span,
            message,
            format!("chmod o-w {}", parent.display()),
        );
    }
}

/// Looks through the servers before references are replaced.
pub(super) fn advise_on_servers(tree: &ConfigNode, faults: &mut ProblemCollector) {
    for (name, server) in tree
        .child("servers")
        .and_then(ConfigNode::as_table)
        .into_iter()
        .flatten()
    {
        let path = ConfigPath::of(&["servers", name]);
        package(server, &path, faults);
        home_of_shell(server, &path, faults);
        for table in ["env", "headers"] {
            for (key, node) in server
                .child(table)
                .and_then(ConfigNode::as_table)
                .into_iter()
                .flatten()
            {
                variable(node, &path.key(table).key(key), faults);
            }
        }
    }
}

/// Warns of a package without a version: each start may run a new one.
fn package(server: &ConfigNode, path: &ConfigPath, faults: &mut ProblemCollector) {
    let Some(command) = server.child("command").and_then(ConfigNode::as_text) else {
        return;
    };
    // A path and the suffixes of Windows do not change the program.
    let program = command.rsplit('/').next().unwrap_or(command);
    let program = program
        .strip_suffix(".cmd")
        .or(program.strip_suffix(".exe"))
        .unwrap_or(program);
    let args: Vec<&ConfigNode> = match server.child("args").map(|args| &args.value) {
        Some(ConfigValue::List(args)) => args.iter().collect(),
        _ => Vec::new(),
    };
    let words: Vec<&str> = args
        .iter()
        .map(|arg| arg.as_text().unwrap_or_default())
        .collect();
    let runner = RUNNERS
        .iter()
        .find(|(name, first, _)| *name == program && words.starts_with(first));
    let Some((_, first, mark)) = runner else {
        return;
    };
    let Some(at) = package_at(&words, first.len()) else {
        return;
    };
    let word = words[at]
        .rsplit_once('=')
        .filter(|(flag, _)| PACKAGE_FLAGS.contains(flag))
        .map_or(words[at], |it| it.1);
    if is_pinned(word) {
        return;
    }
    // `@latest` pins nothing.
    let bare = word.strip_suffix("@latest").unwrap_or(word);
    let message = format!("`{path}` runs whatever version of `{bare}` is newest when it starts");
    let fix = format!("pin the version that you reviewed: `{bare}{mark}1.2.3`");
    faults
        .for_setting(path)
        .warn(ProblemKind::Package, args[at].span, message, fix);
}

/// Warns of arguments that start with `~/`: only a shell replaces that.
fn home_of_shell(server: &ConfigNode, path: &ConfigPath, faults: &mut ProblemCollector) {
    let Some(ConfigValue::List(args)) = server.child("args").map(|args| &args.value) else {
        return;
    };
    let path = path.key("args");
    for (at, arg) in args.iter().enumerate() {
        if arg.as_text().is_some_and(|text| text.starts_with("~/")) {
            let message = format!(
                "`{}` starts with `~`, which only a shell expands",
                path.item(at)
            );
            faults.for_setting(&path).warn(
                ProblemKind::Reference,
                arg.span,
                message,
                "write `${HOME}` instead of `~`",
            );
        }
    }
}

/// Finds the word that names the package.
fn package_at(words: &[&str], first: usize) -> Option<usize> {
    let mut at = first;
    while let Some(word) = words.get(at) {
        // With such a flag, the first word without a dash is only the command to run.
        if PACKAGE_FLAGS.contains(word) {
            return (at + 1 < words.len()).then_some(at + 1);
        }
        if word
            .split_once('=')
            .is_some_and(|(flag, _)| PACKAGE_FLAGS.contains(&flag))
            || !word.starts_with('-')
        {
            return Some(at);
        }
        at += if VALUE_FLAGS.contains(word) { 2 } else { 1 };
    }
    None
}

/// True if a word names one version of a package, or is not from a registry.
fn is_pinned(word: &str) -> bool {
    // A path or a reference may be pinned elsewhere. Advice that is often wrong is not read.
    if word.is_empty()
        || word.starts_with(['.', '/', '~', '$'])
        || word.contains("${")
        || word.starts_with("file:")
    {
        return true;
    }
    let version = match word.split_once("==") {
        Some((_, version)) => Some(version),
        // A scope starts with `@`, too, and a user comes before `@` in a URL.
        None => word
            .rsplit_once(['@', '#'])
            .filter(|(name, rest)| !name.is_empty() && !rest.contains('/'))
            .map(|it| it.1),
    };
    version.is_some_and(|version| {
        !version.is_empty() && !matches!(version, "latest" | "next" | "*" | "main")
    })
}

/// Warns of `$NAME`, which shells and some clients replace and Moongate does not.
fn variable(node: &ConfigNode, path: &ConfigPath, faults: &mut ProblemCollector) {
    let Some(text) = node.as_text() else { return };
    // `$$` is our escape for a dollar sign, so no name follows it.
    let plain = text.replace("$$", "");
    let name = plain.split('$').skip(1).find_map(|rest| {
        let end = rest
            .find(|c: char| !c.is_ascii_alphanumeric() && c != '_')
            .unwrap_or(rest.len());
        let name = &rest[..end];
        (!name.is_empty() && !name.starts_with(|c: char| c.is_ascii_digit())).then_some(name)
    });
    if let Some(name) = name {
        let message = format!("`{path}` contains `${name}`, which is not expanded");
        let fix =
            format!("write `${{{name}}}` for the variable, or `$${name}` for the literal text");
        faults
            .for_setting(path)
            .warn(ProblemKind::Reference, node.span, message, fix);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_told_from_scopes_and_paths() {
        for word in [
            "a@1.2.3",
            "@s/a@1",
            "a==1.2",
            "./a",
            "/a",
            "git+https://h.example/a@v1",
            "${X}",
            "github:a/b#c1",
        ] {
            assert!(is_pinned(word), "{word}");
        }
        for word in [
            "a",
            "@s/a",
            "@s/a@latest",
            "a@latest",
            "a@",
            "git+https://u@h.example/a",
            "github:a/b",
        ] {
            assert!(!is_pinned(word), "{word}");
        }
    }

    #[test]
    fn the_package_is_the_first_word_or_what_a_flag_names() {
        assert_eq!(package_at(&["-y", "a", "-p", "b"], 0), Some(1));
        assert_eq!(package_at(&["-y", "-p", "a", "b"], 0), Some(2));
        assert_eq!(package_at(&["--with", "x", "--from", "a", "b"], 0), Some(3));
        assert_eq!(
            package_at(&["tool", "run", "--python", "3", "a"], 2),
            Some(4)
        );
        assert_eq!(package_at(&["--package=a", "b"], 0), Some(0));
        assert_eq!(package_at(&["-y"], 0), None);
    }
}
