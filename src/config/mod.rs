//! The config file: read, checked all at once, resolved into a [`Plan`].
//!
//! Owns the way from files, environment and flags to a plan: each source is read into a tree with places (`parse`),
//! clients' forms become ours (`client_formats`), figment merges the layers (`layers`), references are replaced
//! (`expand`), keys and types are checked against the schema (`check`), and values become settings (`resolve`). Does
//! not start anything. Invariant: there is a plan only if there is no problem, and then every problem was looked for.

mod advice;
mod check;
mod choices;
mod client_formats;
mod expand;
mod failed_servers;
mod file;
mod keys;
mod merge;
mod redact;
mod server_names;
mod parse;
mod gateway_addresses;
mod plan;
mod problem;
mod resolve;
mod schema;
mod source;
mod supervision;
mod schema_types;
mod tree;
mod parse_units;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

pub use gateway_addresses::{GatewayAddresses, gateway_addresses};
pub use parse_units::duration;
pub use plan::{LogSettings, NameSettings, Plan, PlanLimits, ReloadSettings, ViewSettings};
pub use problem::{ConfigProblem, ConfigProblems, ProblemKind, ProblemOrigin, SourceSnippet};
pub use schema::json_schema;
pub use source::search;

use problem::ProblemCollector;
use source::{ConfigSources, FileFormat};
use tree::{ConfigNode, ConfigValue, SourceSpan};

/// The flags are one source, after all others; these are the places of its names.
const FLAGS: usize = usize::MAX - 1;
const LISTEN_PLACE: SourceSpan = SourceSpan { source: FLAGS, start: 0, end: 0 };
const ONLY_PLACE: SourceSpan = SourceSpan { source: FLAGS, start: 1, end: 1 };

/// Where a config comes from.
#[derive(Clone, Debug, Default)]
pub struct LoadOptions<'a> {
    /// Files, weakest first. Empty: no file; see [`search`].
    pub paths: Vec<PathBuf>,
    /// The environment: for `MOONGATE_*` settings, and for references in values.
    pub env: BTreeMap<String, String>,
    /// `--listen`: replaces `gateway.listen`, unless empty.
    pub listen: Vec<String>,
    /// `--only`: servers to use, whatever else is configured; all if empty.
    pub only: Vec<String>,
    /// The protocol revisions that a server can be made to speak, as `protocol` names them.
    pub revisions: &'a [&'a str],
    /// How much a problem in one server's entry costs.
    pub tolerance: ErrorTolerance,
}

/// How much of a config a problem in one server's entry costs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ErrorTolerance {
    /// All of it: a reload with any problem changes nothing, and `check` refuses it.
    #[default]
    None,
    /// That server: a gateway starts with the others.
    PerServer,
}

/// A config that can be run.
#[derive(Clone, Debug)]
pub struct LoadedConfig {
    /// What to run.
    pub plan: Plan,
    /// What works, but probably not as meant.
    pub warnings: Vec<ConfigProblem>,
    /// What works, and could be safer or is not meant: for whoever looks at the config, not for each start.
    pub advice: Vec<ConfigProblem>,
    /// Problems that cost only the servers that they name; see [`Tolerance::PerServer`].
    pub failed: Vec<ConfigProblem>,
    /// The files that were read, weakest first.
    pub sources: Vec<PathBuf>,
    /// Those, and the files that values refer to.
    pub files: Vec<PathBuf>,
    resolved: serde_json::Value,
}

impl LoadedConfig {
    /// Whether another one says the same.
    pub fn is_same(&self, other: &LoadedConfig) -> bool {
        self.resolved == other.resolved
    }

    /// The merged config with all defaults and references resolved, as JSON (which is a config itself); secrets are
    /// replaced by `***`.
    pub fn print(&self) -> String {
        let mut text = serde_json::to_string_pretty(&self.resolved).expect("a JSON value can be written");
        text.push('\n');
        text
    }
}

/// Reads and checks a config.
///
/// Fails with every problem that there is, not only the first; only a file that cannot be parsed hides the problems of
/// what it means.
pub fn load(options: &LoadOptions<'_>) -> Result<LoadedConfig, ConfigProblems> {
    let mut faults = ProblemCollector::default();
    let mut sources = ConfigSources::default();
    let layers = read_layers(options, &mut sources, &mut faults)?;
    let mut merged = merge::merge(&layers).unwrap_or_else(|error| {
        broken(&mut faults, &error);
        ConfigNode::table(SourceSpan::BUILT_IN)
    });
    let mut files = options.paths.clone();
    let mut advice = ProblemCollector::default();
    advice::advise_on_servers(&merged, &mut advice);
    files.extend(expand_all(&mut merged, options, &sources, &mut faults));
    let mut checked = merged.clone();
    check::check_tree(&mut checked, &mut faults);
    let json = checked.to_json(&|_, _| false);
    let file: file::ConfigFile = serde_json::from_value(json).unwrap_or_else(|error| {
        // The check lets through only what the keys' types accept.
        broken(&mut faults, &error.to_string());
        file::ConfigFile::default()
    });
    let resolver = resolve::PlanResolver {
        tree: &merged,
        faults: &mut faults,
        revisions: options.revisions,
        only: &options.only,
        env: &options.env,
        sources: &sources,
        files: &mut files,
    };
    let mut plan = resolver.plan(&file);
    if let Some(last) = options.paths.len().checked_sub(1)
        && faults.errors.is_empty()
        && file.servers.is_empty()
    {
        let fix = "add `[servers.NAME]` with a `url` or a `command`, or use the config file of a client";
        let place = SourceSpan { source: last, start: 0, end: 0 };
        faults.warn(ProblemKind::Missing, place, "no server is configured: clients find nothing here", fix);
    }
    let problems = faults.finish(&sources);
    let tolerable =
        |problem: &ConfigProblem| options.tolerance == ErrorTolerance::PerServer && problem.server.is_some();
    if !problems.errors.iter().all(tolerable) {
        return Err(ConfigProblems { files, ..problems });
    }
    failed_servers::replace_failed_servers(&mut plan, &problems.errors);
    let mut resolved = merged.to_json(&|path, node| {
        node.secret || node.as_text().is_some_and(|text| redact::is_secret(path, text, before(&merged, path)))
    });
    escape(&mut resolved);
    let ConfigProblems { errors: failed, warnings, .. } = problems;
    let advice = advice.finish(&sources).warnings;
    Ok(LoadedConfig { plan, warnings, advice, failed, sources: options.paths.clone(), files, resolved })
}

/// All layers, weakest first. Fails where a file cannot be read at all.
fn read_layers(
    options: &LoadOptions<'_>,
    sources: &mut ConfigSources,
    faults: &mut ProblemCollector,
) -> Result<Vec<ConfigNode>, ConfigProblems> {
    let mut layers = Vec::new();
    for path in &options.paths {
        layers.extend(read(path, sources, faults));
    }
    // What is left of such a file would only lead to problems that are none.
    if layers.len() < options.paths.len() || faults.errors.iter().any(|fault| fault.kind == ProblemKind::Syntax) {
        return Err(ConfigProblems { files: options.paths.clone(), ..std::mem::take(faults).finish(sources) });
    }
    let (mut variables, names) = merge::environment(&options.env, sources.next(), &layers, faults);
    sources.variables(names);
    client_formats::normalise(&mut variables, None, faults);
    layers.push(variables);
    layers.push(merge::flags(&options.listen, LISTEN_PLACE));
    Ok(layers)
}

/// Reports what cannot happen: saying so is better than running with less.
fn broken(faults: &mut ProblemCollector, error: &str) {
    let fix = "please report this as a bug";
    faults.error(ProblemKind::Type, SourceSpan::BUILT_IN, format!("the config cannot be put together: {error}"), fix);
}

/// One file as a layer; nothing if it cannot be read.
fn read(path: &Path, sources: &mut ConfigSources, faults: &mut ProblemCollector) -> Option<ConfigNode> {
    // Editors on Windows put a mark in front of UTF-8.
    let text = std::fs::read_to_string(path).map(|text| text.trim_start_matches('\u{feff}').to_owned());
    let index = sources.file(path, text.as_ref().cloned().unwrap_or_default());
    let whole = SourceSpan { source: index, start: 0, end: 0 };
    let text = match text {
        Ok(text) => text,
        Err(error) => {
            let message = format!("the file cannot be read: {}", expand::reason(&error));
            faults.error(ProblemKind::Syntax, whole, message, "check the path, and who may read it");
            return None;
        }
    };
    let Some(format) = FileFormat::of(path) else {
        let message = "the file's extension does not say how it is written";
        faults.error(ProblemKind::Syntax, whole, message, "name it .toml, .yaml or .json");
        return None;
    };
    let mut tree = parse::parse(format, &text, index, faults);
    sources.set_secrets(index, &tree);
    if tree.as_table().is_none() {
        let message = format!("the file must be a table of settings, but is {}", tree.kind());
        faults.error(ProblemKind::Type, tree.span, message, "write keys and values, such as `servers`");
        return None;
    }
    advice::warn_of_permissions(path, index, faults);
    client_formats::normalise(&mut tree, Some(path), faults);
    Some(tree)
}

/// Replaces references, except those of servers that are not used: what only they need may be missing. Gives the files
/// that are referred to.
fn expand_all(
    tree: &mut ConfigNode,
    options: &LoadOptions<'_>,
    sources: &ConfigSources,
    faults: &mut ProblemCollector,
) -> Vec<PathBuf> {
    let before = tree.clone();
    let unused = |path: &tree::ConfigPath| match path.steps().as_slice() {
        ["servers", name] => !is_used(&before, name, &options.only),
        _ => false,
    };
    let lookup = expand::ReferenceLookup { env: &options.env, sources, files: RefCell::default() };
    expand::expand(tree, &tree::ConfigPath::root(), &lookup, &unused, faults);
    lookup.files.into_inner()
}

/// Whether a server is to run: it is enabled, and among those asked for.
fn is_used(tree: &ConfigNode, name: &str, only: &[String]) -> bool {
    let says = |path: &[&str]| match tree.at(&tree::ConfigPath::of(path)).map(|node| &node.value) {
        Some(ConfigValue::Bool(value)) => Some(*value),
        _ => None,
    };
    let enabled = says(&["servers", name, "enabled"]).or_else(|| says(&["defaults", "enabled"])).unwrap_or(true);
    enabled && (only.is_empty() || only.iter().any(|other| other == name))
}

/// Doubles every dollar sign: what is printed is not to be expanded a second time.
fn escape(value: &mut serde_json::Value) {
    match value {
        serde_json::Value::String(text) => *text = text.replace('$', "$$"),
        serde_json::Value::Array(items) => items.iter_mut().for_each(escape),
        serde_json::Value::Object(object) => object.values_mut().for_each(escape),
        _ => {}
    }
}

/// The item before the one at a path, if that is in a list.
fn before<'a>(tree: &'a ConfigNode, path: &tree::ConfigPath) -> Option<&'a str> {
    let (last, list) = path.0.split_last()?;
    let index: usize = last.strip_prefix('[')?.strip_suffix(']')?.parse().ok()?;
    let list = tree::ConfigPath(list.to_vec());
    tree.at(&list.item(index.checked_sub(1)?))?.as_text()
}
