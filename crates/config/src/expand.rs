//! Expansion of `${VAR}`, `${VAR:-default}` and `${file:/path}` in values.
//!
//! Owns the search and replacement of references, after parsing, so that no value can change the
//! config's structure. Does not read the environment of the process: callers pass it. Invariant: a
//! replaced value is never expanded again, and no message quotes it.

use std::cell::RefCell;
use std::path::{Path as FilePath, PathBuf};

use moongate_platform::foreign_file;

use super::collector::ProblemCollector;
use super::problem::ProblemKind;
use super::reference_variables::ReferenceVariables;
use super::source::ConfigSources;
use super::tree::{ConfigNode, ConfigPath, ConfigValue};
use moongate_telemetry::secret_names::sounds_secret;

/// Largest file that a reference puts into a value.
const SECRET_BYTES_MAX: u64 = 1 << 20;

/// Limit of references within the defaults of others. The replacement calls itself for each, and no
/// stack is endless.
const NESTED_MAX: usize = 16;

/// Problem of a reference without an end.
const UNCLOSED: &str = "unclosed `${`";

/// Sources of references.
pub(super) struct ReferenceLookup<'a> {
    pub(super) variables: &'a ReferenceVariables<'a>,
    pub(super) sources: &'a ConfigSources,
    /// Files that texts name, even if they do not exist.
    pub(super) files: RefCell<Vec<PathBuf>>,
}

/// Text with its references replaced.
#[derive(Debug, Default, PartialEq)]
pub(super) struct ExpandedText {
    pub(super) text: String,
    /// True if the text had a reference.
    has_reference: bool,
    /// True if a reference led to a file, or to a variable that sounds like a secret.
    secret: bool,
}

/// Problem of a reference that leads nowhere, and its fix.
#[derive(Debug, PartialEq)]
pub(super) struct DanglingReference {
    /// `Reference` if something outside of the config is missing, `Value` if the text itself is
    /// wrong.
    kind: ProblemKind,
    message: String,
    fix: String,
}

/// Expands all texts under `node`. Leaves alone the subtrees that `skip` selects.
pub(super) fn expand(
    node: &mut ConfigNode,
    path: &ConfigPath,
    lookup: &ReferenceLookup<'_>,
    skip: &dyn Fn(&ConfigPath) -> bool,
    faults: &mut ProblemCollector,
) {
    if skip(path) {
        return;
    }
    match &mut node.value {
        ConfigValue::Text(text) => {
            let directory = lookup.sources.directory(node.span);
            // Missing files count too: a watch has to notice when they appear.
            lookup.files.borrow_mut().extend(files(text, directory));
            match expand_text(text, lookup.variables, directory) {
                Ok(expanded) => {
                    node.expanded |= expanded.has_reference;
                    node.secret |= expanded.secret;
                    *text = expanded.text;
                }
                Err(problem) => {
                    let message = format!("`{path}`: {}", problem.message);
                    faults
                        .for_setting(path)
                        .error(problem.kind, node.span, message, problem.fix);
                    // One problem for each value is enough.
                    node.value = ConfigValue::Null;
                }
            }
        }
        ConfigValue::List(items) => {
            for (i, item) in items.iter_mut().enumerate() {
                expand(item, &path.item(i), lookup, skip, faults);
            }
        }
        ConfigValue::Table(table) => {
            for (key, child) in table {
                expand(child, &path.key(key), lookup, skip, faults);
            }
        }
        _ => {}
    }
}

pub(super) fn expand_text(
    text: &str,
    env: &ReferenceVariables<'_>,
    directory: Option<&FilePath>,
) -> Result<ExpandedText, DanglingReference> {
    let mut out = ExpandedText::default();
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        out.text.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        if let Some(after) = rest.strip_prefix('$') {
            out.text.push('$');
            rest = after;
        } else if let Some(after) = rest.strip_prefix('{') {
            let end = closing_brace(after)?;
            let found = reference(&after[..end], env, directory)?;
            out.text.push_str(&found.text);
            out.has_reference = true;
            out.secret |= found.secret;
            rest = &after[end + 1..];
        // A lone dollar sign is text, as in `100$`.
        } else {
            out.text.push('$');
        }
    }
    out.text.push_str(rest);
    Ok(out)
}

/// Returns true if a text may have a reference to a file. Errs on that side: a doubled dollar sign
/// counts, too.
pub(super) fn refers_to_file(text: &str) -> bool {
    let mut references = text.split("${").skip(1);
    references.any(|reference| reference.trim_start().starts_with("file:"))
}

/// True if the reference that a text is inside of has no closing brace.
pub(super) fn is_unclosed(text: &str) -> bool {
    // References that are nested too deeply are reported by the expansion.
    closing_brace(text).is_err_and(|problem| problem.message == UNCLOSED)
}

/// Finds the brace that closes a reference. A default may hold references itself, up to a depth.
fn closing_brace(text: &str) -> Result<usize, DanglingReference> {
    // The reference itself is the first level.
    let mut depth = 1_usize;
    let mut before = ' ';
    for (at, c) in text.char_indices() {
        match c {
            '{' if before == '$' && depth == NESTED_MAX => {
                let message = format!("references are nested more than {NESTED_MAX} deep");
                let fix = "write out the innermost default".to_owned();
                return Err(DanglingReference {
                    kind: ProblemKind::Value,
                    message,
                    fix,
                });
            }
            '{' if before == '$' => depth += 1,
            '}' if depth == 1 => return Ok(at),
            '}' => depth -= 1,
            _ => {}
        }
        before = c;
    }
    Err(DanglingReference {
        kind: ProblemKind::Value,
        message: UNCLOSED.to_owned(),
        fix: "close it, or write `$${` for a literal `${`".to_owned(),
    })
}

fn reference(
    inside: &str,
    env: &ReferenceVariables<'_>,
    directory: Option<&FilePath>,
) -> Result<ExpandedText, DanglingReference> {
    // Every file counts as a secret: that is what people keep in separate files.
    if let Some(path) = inside.strip_prefix("file:") {
        return Ok(ExpandedText {
            text: read_file(path, directory)?,
            has_reference: true,
            secret: true,
        });
    }
    let (name, default) = match inside.split_once(":-") {
        Some((name, default)) => (name, Some(default)),
        None => (inside, None),
    };
    let name = name.strip_prefix("env:").unwrap_or(name);
    // POSIX, Environment Variables: names of letters, digits and underscores, without a digit in
    // front.
    let plain = name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    if name.is_empty() || !plain || name.starts_with(|c: char| c.is_ascii_digit()) {
        return Err(not_a_name(name));
    }
    // Configs of editors have these references. An error about a missing variable would not help.
    if name.starts_with("workspaceFolder") && env.get(name).is_none() {
        return Err(DanglingReference {
            kind: ProblemKind::Value,
            message: format!(
                "`${{{name}}}` is the folder that is open in an editor, which a gateway does not \
                 have"
            ),
            fix: "write the path".to_owned(),
        });
    }
    let sounds_secret = sounds_secret(name);
    match (env.get(name), default) {
        // As in a shell, `:-` treats an empty variable as unset.
        (Some((value, in_file)), default) if default.is_none() || !value.is_empty() => {
            Ok(ExpandedText {
                text: value.to_owned(),
                has_reference: true,
                secret: sounds_secret || in_file,
            })
        }
        (_, Some(default)) => {
            let inner = expand_text(default, env, directory)?;
            Ok(ExpandedText {
                has_reference: true,
                secret: sounds_secret || inner.secret,
                ..inner
            })
        }
        (_, None) => Err(DanglingReference {
            kind: ProblemKind::Reference,
            message: format!("the environment variable {name} is not set"),
            fix: format!("set {name}, or give a default: `${{{name}:-default}}`"),
        }),
    }
}

fn not_a_name(name: &str) -> DanglingReference {
    if name.starts_with("input:") {
        return DanglingReference {
            kind: ProblemKind::Value,
            message: "inputs that an editor prompts for are not available to a daemon".to_owned(),
            fix: "use an environment variable, `${NAME}`, or a file, `${file:/path}`".to_owned(),
        };
    }
    DanglingReference {
        kind: ProblemKind::Value,
        message: "the text between `${` and `}` is not a variable name".to_owned(),
        fix: "write `${NAME}`, `${NAME:-default}` or `${file:/path}`, or `$${` for a literal `${`"
            .to_owned(),
    }
}

/// Lists the files that a text names. An escaped reference may add one that it does not.
fn files(text: &str, directory: Option<&FilePath>) -> Vec<PathBuf> {
    let named = text
        .split("${file:")
        .skip(1)
        .filter_map(|rest| rest.split('}').next());
    named.map(|path| relative_to(path, directory)).collect()
}

/// Resolves a path relative to the file that names it.
pub(super) fn relative_to(path: &str, directory: Option<&FilePath>) -> PathBuf {
    directory.map_or_else(|| PathBuf::from(path), |directory| directory.join(path))
}

fn read_file(path: &str, directory: Option<&FilePath>) -> Result<String, DanglingReference> {
    let path = relative_to(path, directory);
    let text =
        foreign_file::read_text(&path, SECRET_BYTES_MAX).map_err(|error| DanglingReference {
            kind: ProblemKind::Reference,
            message: format!(
                "the file {} cannot be read: {}",
                path.display(),
                reason(&error)
            ),
            fix: fix_or(
                &error,
                "create it as UTF-8 text that the gateway's user can read, or correct the path",
            ),
        })?;
    // Editors end a file with a line break, which belongs to no secret.
    let text = text.strip_suffix('\n').unwrap_or(&text);
    Ok(text.strip_suffix('\r').unwrap_or(text).to_owned())
}

/// Reason why a file cannot be read, without the system's error number.
pub(super) fn reason(error: &std::io::Error) -> String {
    match error.kind() {
        std::io::ErrorKind::NotFound => "it does not exist".to_owned(),
        // A refusal of ours says more than the system's.
        std::io::ErrorKind::PermissionDenied if error.raw_os_error().is_some() => {
            "permission denied".to_owned()
        }
        std::io::ErrorKind::IsADirectory => "it is a directory".to_owned(),
        std::io::ErrorKind::InvalidData => "it is not UTF-8 text".to_owned(),
        _ => error.to_string(),
    }
}

/// Returns what mends an error of a file: what is known of it, or this.
pub(super) fn fix_or(error: &std::io::Error, fix: &str) -> String {
    foreign_file::fix_of(error).unwrap_or_else(|| fix.to_owned())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use proptest::prelude::*;

    fn env() -> BTreeMap<String, String> {
        BTreeMap::from([
            ("A".to_owned(), "one".to_owned()),
            ("EMPTY".to_owned(), String::new()),
        ])
    }

    fn run(text: &str) -> Result<String, String> {
        expand_text(text, &ReferenceVariables::of_process(&env()), None)
            .map(|found| found.text)
            .map_err(|problem| problem.message)
    }

    #[test]
    fn references() {
        for (text, expected) in [
            ("plain", "plain"),
            ("x${A}y", "xoney"),
            ("${env:A}", "one"),
            ("${B:-two}", "two"),
            ("${B:-}", ""),
            ("${B:-${A}}!", "one!"),
            ("${EMPTY}", ""),
            ("${EMPTY:-full}", "full"),
            ("$$", "$"),
            ("$${A}", "${A}"),
            ("a$b", "a$b"),
            ("100$", "100$"),
        ] {
            assert_eq!(run(text).as_deref(), Ok(expected), "{text}");
        }
        assert_eq!(
            run("${B}").unwrap_err(),
            "the environment variable B is not set"
        );
        assert!(
            run("${A").is_err()
                && run("${}").is_err()
                && run("${a b}").is_err()
                && run("${input:key}").is_err()
        );
    }

    fn nested_defaults(depth: usize) -> String {
        format!("{}x{}", "${B:-".repeat(depth), "}".repeat(depth))
    }

    #[test]
    fn nested_defaults_end_at_a_depth() {
        assert_eq!(run(&nested_defaults(NESTED_MAX)).as_deref(), Ok("x"));
        for n in [NESTED_MAX + 1, 5_000, 200_000] {
            assert_eq!(
                run(&nested_defaults(n)).unwrap_err(),
                "references are nested more than 16 deep"
            );
        }
        // An escape opens nothing, and references in a row aren't nested.
        assert_eq!(
            run(&"${B:-$${A}}".repeat(100)).map(|text| text.len()),
            Ok(400)
        );
        assert!(run(&"${B:-".repeat(100_000)).is_err());
    }

    #[test]
    fn files() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("secret"), "hush\n").unwrap();
        let found = expand_text(
            "<${file:secret}>",
            &ReferenceVariables::of_process(&env()),
            Some(directory.path()),
        )
        .unwrap();
        assert_eq!(found.text, "<hush>");
        assert!(found.secret);
        assert!(
            expand_text(
                "${file:none}",
                &ReferenceVariables::of_process(&env()),
                Some(directory.path())
            )
            .is_err()
        );
    }

    proptest! {
        #[test]
        fn a_text_without_dollars_stays(text in "[^$]*") {
            prop_assert_eq!(run(&text), Ok(text));
        }

        #[test]
        fn doubling_dollars_escapes_any_text(text in ".*") {
            prop_assert_eq!(run(&text.replace('$', "$$")), Ok(text));
        }

        #[test]
        fn what_was_put_in_is_not_expanded(value in ".*", before in "[^$]*", after in "[^$]*") {
            let env = BTreeMap::from([("V".to_owned(), value.clone())]);
            let variables = ReferenceVariables::of_process(&env);
            let found = expand_text(&format!("{before}${{V}}{after}"), &variables, None).unwrap();
            prop_assert_eq!(found.text, format!("{before}{value}{after}"));
        }

        #[test]
        fn no_text_panics(text in "[${}:A-a -]*") {
            let _ = run(&text);
        }
    }
}
