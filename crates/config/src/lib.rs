//! Config: files, environment and flags become a [`Plan`].
//!
//! Owns the steps: each source becomes a tree with places (`parse`), forms of clients become ours (`client_formats`),
//! and figment merges the layers (`merge`). References are replaced (`expand`), keys and types are checked against the
//! schema (`check`), and values become settings (`resolve`). Does not start anything. Invariant: a plan has no
//! problems, except those that cost only the servers they name.

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

use moongate_platform::Platform;
use problem::ProblemCollector;
use source::{ConfigSources, FileFormat};
use tree::{ConfigNode, ConfigValue, SourceSpan};

/// Source number of the flags, after all others. The places below stand for their names.
const FLAGS: usize = usize::MAX - 1;
const LISTEN_PLACE: SourceSpan = SourceSpan { source: FLAGS, start: 0, end: 0 };
const ONLY_PLACE: SourceSpan = SourceSpan { source: FLAGS, start: 1, end: 1 };

/// Sources of a config, and options for reading it.
#[derive(Clone, Debug, Default)]
pub struct LoadOptions<'a> {
    /// Config files, weakest first. Empty for none, see [`search`].
    pub paths: Vec<PathBuf>,
    /// Environment, for `MOONGATE_*` settings and for references in values.
    pub env: BTreeMap<String, String>,
    /// Addresses of `--listen`, which replace `gateway.listen` unless empty.
    pub listen: Vec<String>,
    /// Servers of `--only`. All servers if empty.
    pub only: Vec<String>,
    /// Protocol revisions that a server can be made to speak, as `protocol` names them.
    pub revisions: &'a [&'a str],
    /// Cost of a problem in one server's entry.
    pub tolerance: ErrorTolerance,
    /// Abilities of the system that the config is for.
    pub platform: Platform,
}

/// Cost of a problem in one server's entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ErrorTolerance {
    /// Whole config: a reload with a problem changes nothing, and `check` refuses it.
    #[default]
    None,
    /// Only that server: a gateway starts with the others.
    PerServer,
}

/// Config that can run.
#[derive(Clone, Debug)]
pub struct LoadedConfig {
    /// Settings to run with.
    pub plan: Plan,
    /// Settings that work, but probably not as meant.
    pub warnings: Vec<ConfigProblem>,
    /// Settings that work and could be safer. For a person who checks the config, not for each start.
    pub advice: Vec<ConfigProblem>,
    /// Problems that cost only the servers they name (see [`ErrorTolerance::PerServer`]).
    pub failed: Vec<ConfigProblem>,
    /// Files that were read, weakest first.
    pub sources: Vec<PathBuf>,
    /// Files that were read, and files that values refer to.
    pub files: Vec<PathBuf>,
    resolved: serde_json::Value,
}

impl LoadedConfig {
    /// True if both configs resolve to the same values.
    pub fn is_same(&self, other: &LoadedConfig) -> bool {
        self.resolved == other.resolved
    }

    /// Prints the merged config as JSON, with defaults and references resolved. It is a config itself. Secrets become
    /// `***`.
    pub fn print(&self) -> String {
        let mut text = serde_json::to_string_pretty(&self.resolved).expect("a JSON value can be written");
        text.push('\n');
        text
    }
}

/// Reads and checks a config.
///
/// Fails with all problems, not only the first. A file that cannot be parsed hides the problems in its values.
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
    // Before references are replaced: advice is about the text that somebody wrote.
    advice::advise_on_servers(&merged, &mut advice);
    files.extend(expand_all(&mut merged, options, &sources, &mut faults));
    // The resolver needs the whole tree for places, so the check works on a copy.
    let mut checked = merged.clone();
    check::check_tree(&mut checked, &mut faults);
    let json = checked.to_json(&|_, _| false);
    let file: file::ConfigFile = serde_json::from_value(json).unwrap_or_else(|error| {
        // The check keeps only values that the types of the keys accept.
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
        platform: options.platform,
    };
    let mut plan = resolver.plan(&file);
    // A start without any file serves the demo, so no server is missing there.
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
    // With `PerServer`, these servers stay visible and state their problems.
    failed_servers::replace_failed_servers(&mut plan, &problems.errors);
    // A referenced value may be secret, although its key does not sound so.
    let mut resolved = merged.to_json(&|path, node| {
        node.secret || node.as_text().is_some_and(|text| redact::is_secret(path, text, before(&merged, path)))
    });
    escape(&mut resolved);
    let ConfigProblems { errors: failed, warnings, .. } = problems;
    let advice = advice.finish(&sources).warnings;
    Ok(LoadedConfig { plan, warnings, advice, failed, sources: options.paths.clone(), files, resolved })
}

/// Reads all layers, weakest first. Fails if a file cannot be read or parsed.
fn read_layers(
    options: &LoadOptions<'_>,
    sources: &mut ConfigSources,
    faults: &mut ProblemCollector,
) -> Result<Vec<ConfigNode>, ConfigProblems> {
    let mut layers = Vec::new();
    for path in &options.paths {
        layers.extend(read(path, sources, faults));
    }
    // The rest of such a file would only lead to problems that are none.
    if layers.len() < options.paths.len() || faults.errors.iter().any(|fault| fault.kind == ProblemKind::Syntax) {
        return Err(ConfigProblems { files: options.paths.clone(), ..std::mem::take(faults).finish(sources) });
    }
    let (mut variables, names) = merge::environment(&options.env, sources.next(), &layers, faults);
    sources.variables(names);
    // Variables may use the aliases of clients, too.
    client_formats::normalise(&mut variables, None, faults);
    layers.push(variables);
    layers.push(merge::flags(&options.listen, LISTEN_PLACE));
    Ok(layers)
}

/// Reports an internal mistake. An error is better than a gateway that runs with less than its config.
fn broken(faults: &mut ProblemCollector, error: &str) {
    let fix = "please report this as a bug";
    faults.error(ProblemKind::Type, SourceSpan::BUILT_IN, format!("the config cannot be put together: {error}"), fix);
}

/// Reads one file as a layer. `None` if it cannot be read.
fn read(path: &Path, sources: &mut ConfigSources, faults: &mut ProblemCollector) -> Option<ConfigNode> {
    // Editors on Windows put a byte order mark in front of UTF-8.
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
    // Secrets are noted before the next problem could show a line of this file.
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

/// Replaces references, and returns the files they name. Skips unused servers, whose variables and files may be
/// missing.
fn expand_all(
    tree: &mut ConfigNode,
    options: &LoadOptions<'_>,
    sources: &ConfigSources,
    faults: &mut ProblemCollector,
) -> Vec<PathBuf> {
    // `expand` changes the tree while `unused` reads it.
    let before = tree.clone();
    let unused = |path: &tree::ConfigPath| match path.steps().as_slice() {
        ["servers", name] => !is_used(&before, name, &options.only),
        _ => false,
    };
    let lookup = expand::ReferenceLookup { env: &options.env, sources, files: RefCell::default() };
    expand::expand(tree, &tree::ConfigPath::root(), &lookup, &unused, faults);
    lookup.files.into_inner()
}

/// True if a server should run: it is enabled, and `--only` does not leave it out.
fn is_used(tree: &ConfigNode, name: &str, only: &[String]) -> bool {
    let says = |path: &[&str]| match tree.at(&tree::ConfigPath::of(path)).map(|node| &node.value) {
        Some(ConfigValue::Bool(value)) => Some(*value),
        _ => None,
    };
    let enabled = says(&["servers", name, "enabled"]).or_else(|| says(&["defaults", "enabled"])).unwrap_or(true);
    enabled && (only.is_empty() || only.iter().any(|other| other == name))
}

/// Doubles every dollar sign, so that the printed config is not expanded again.
fn escape(value: &mut serde_json::Value) {
    match value {
        serde_json::Value::String(text) => *text = text.replace('$', "$$"),
        serde_json::Value::Array(items) => items.iter_mut().for_each(escape),
        serde_json::Value::Object(object) => object.values_mut().for_each(escape),
        _ => {}
    }
}

/// Item before the one at a path, if that is in a list.
fn before<'a>(tree: &'a ConfigNode, path: &tree::ConfigPath) -> Option<&'a str> {
    let (last, list) = path.0.split_last()?;
    let index: usize = last.strip_prefix('[')?.strip_suffix(']')?.parse().ok()?;
    let list = tree::ConfigPath(list.to_vec());
    tree.at(&list.item(index.checked_sub(1)?))?.as_text()
}
