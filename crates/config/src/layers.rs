//! Layers of a config: the files, the environment and the flags, each as a tree.
//!
//! Owns their order, and the servers whose references are left alone. Does not merge them
//! (`merge`). Invariant: the weakest layer comes first.

use std::cell::RefCell;
use std::path::{Path, PathBuf};

use moongate_edit::FileTag;
use moongate_platform::foreign_file;

use super::collector::ProblemCollector;
use super::options::LoadOptions;
use super::problem::{ConfigProblems, ProblemKind};
use super::reference_variables::ReferenceVariables;
use super::source::{ConfigSources, FileFormat, LISTEN_SPAN};
use super::tree::{ConfigNode, ConfigPath, SourceSpan};
use super::{advice, client_formats, expand, merge, parse};

/// Largest config that is read, as for edits.
pub(super) const CONFIG_BYTES_MAX: u64 = 16 << 20;

/// Reads all layers, weakest first. Fails if a file cannot be read or parsed.
pub(super) fn read_layers(
    options: &LoadOptions<'_>,
    sources: &mut ConfigSources,
    faults: &mut ProblemCollector,
) -> Result<Vec<ConfigNode>, ConfigProblems> {
    let mut layers = Vec::new();
    for path in &options.paths {
        layers.extend(read(path, options.texts.get(path), sources, faults));
    }
    // The rest of such a file would only lead to problems that are none.
    if layers.len() < options.paths.len()
        || faults
            .errors
            .iter()
            .any(|fault| fault.kind == ProblemKind::Syntax)
    {
        return Err(ConfigProblems {
            files: options.paths.clone(),
            ..std::mem::take(faults).finish(sources)
        });
    }
    let (mut variables, names) = merge::environment(&options.env, sources.next(), &layers, faults);
    sources.variables(names);
    // Variables may use the aliases of clients, too.
    client_formats::normalise(&mut variables, None, faults);
    layers.push(variables);
    layers.push(merge::flags(&options.listen, LISTEN_SPAN));
    Ok(layers)
}

/// Reads one file as a layer. `None` if it cannot be read.
fn read(
    path: &Path,
    given: Option<&String>,
    sources: &mut ConfigSources,
    faults: &mut ProblemCollector,
) -> Option<ConfigNode> {
    // Editors on Windows put a byte order mark in front of UTF-8.
    let text = match given {
        Some(text) => Ok(text.clone()),
        None => foreign_file::read_text(path, CONFIG_BYTES_MAX),
    };
    let tag = text
        .as_ref()
        .ok()
        .map(|text| FileTag::of_bytes(text.as_bytes()));
    let text = text.map(|text| text.trim_start_matches('\u{feff}').to_owned());
    let index = sources.file(path, text.as_ref().cloned().unwrap_or_default());
    if let Some(tag) = tag {
        sources.set_tag(index, &tag);
    }
    let whole = SourceSpan {
        source: index,
        start: 0,
        end: 0,
    };
    let text = match text {
        Ok(text) => text,
        Err(error) => {
            let message = format!("the file cannot be read: {}", expand::reason(&error));
            let fix = expand::fix_or(&error, "check the path and its permissions");
            faults.error(ProblemKind::Syntax, whole, message, fix);
            return None;
        }
    };
    let Some(format) = FileFormat::of(path) else {
        let message = "the file extension does not identify a format";
        faults.error(
            ProblemKind::Syntax,
            whole,
            message,
            "name it .toml, .yaml or .json",
        );
        return None;
    };
    let mut tree = parse::parse(format, &text, index, faults);
    // Secrets are noted before the next problem could show a line of this file.
    sources.set_secrets(index, &tree);
    if tree.as_table().is_none() {
        let message = format!(
            "the file must be a table of settings, but is {}",
            tree.kind()
        );
        faults.error(
            ProblemKind::Type,
            tree.span,
            message,
            "write keys and values, such as `servers`",
        );
        return None;
    }
    advice::warn_of_permissions(path, index, faults);
    client_formats::normalise(&mut tree, Some(path), faults);
    Some(tree)
}

/// Replaces references, and returns the files they name. Skips unused servers, whose variables and
/// files may be missing.
pub(super) fn expand_all(
    tree: &mut ConfigNode,
    options: &LoadOptions<'_>,
    variables: &ReferenceVariables<'_>,
    sources: &ConfigSources,
    faults: &mut ProblemCollector,
) -> Vec<PathBuf> {
    // `expand` changes the tree while the test for unused servers reads it.
    let before = tree.clone();
    let lookup = expand::ReferenceLookup {
        variables,
        sources,
        files: RefCell::default(),
    };
    expand::expand(
        tree,
        &ConfigPath::root(),
        &lookup,
        &|path: &ConfigPath| before.is_unused(path, &options.only),
        faults,
    );
    let mut files = lookup.files.into_inner();
    files.extend(variables.path.clone());
    files
}
