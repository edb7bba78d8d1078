//! Loader of a config: all steps from the sources to a plan.
//!
//! Owns the order of the steps, and what a problem costs. Does not know keys. Invariant: all
//! problems are reported at once, each with its location.

use std::path::PathBuf;

use super::collector::ProblemCollector;
use super::config_locations::ConfigLocations;
use super::env_setting::read_variables;
use super::file::ConfigFile;
use super::layers::{expand_all, read_layers};
use super::options::{ErrorTolerance, LoadOptions};
use super::plan::Plan;
use super::problem::{ConfigProblem, ConfigProblems, ProblemKind};
use super::resolve;
use super::server_keys::layer_defaults;
use super::source::ConfigSources;
use super::tree::{ConfigNode, ConfigPath, SourceSpan};
use super::{advice, check, failed_servers, merge, redact};

/// Config that can run.
#[derive(Clone, Debug)]
pub struct LoadedConfig {
    /// Settings to run with.
    pub plan: Plan,
    /// Settings that work, but probably not as meant.
    pub warnings: Vec<ConfigProblem>,
    /// Settings that work and could be safer. For a person who checks the config, not for each
    /// start.
    pub advice: Vec<ConfigProblem>,
    /// Problems that cost only the servers they name (see [`ErrorTolerance::PerServer`]).
    pub failed: Vec<ConfigProblem>,
    /// Files that were read, weakest first.
    pub sources: Vec<PathBuf>,
    /// Files that were read, and files that values refer to.
    pub files: Vec<PathBuf>,
    /// Locations of servers and of their rules.
    pub locations: ConfigLocations,
    resolved: serde_json::Value,
}

impl LoadedConfig {
    /// True if both configs resolve to the same values.
    pub fn is_same(&self, other: &LoadedConfig) -> bool {
        self.resolved == other.resolved
    }

    /// Returns the merged config as JSON, with secrets as `***` and dollar signs doubled.
    pub(super) fn resolved(&self) -> &serde_json::Value {
        &self.resolved
    }

    /// Prints the merged config as JSON, with defaults and references resolved. It is a config
    /// itself. Secrets become `***`.
    pub fn print(&self) -> String {
        let mut text =
            serde_json::to_string_pretty(&self.resolved).expect("a JSON value can be written");
        text.push('\n');
        text
    }
}

/// Reads and checks a config.
///
/// Fails with all problems, not only the first. A file that cannot be parsed hides the problems in
/// its values.
pub fn load(options: &LoadOptions<'_>) -> Result<LoadedConfig, ConfigProblems> {
    let mut faults = ProblemCollector::default();
    let mut sources = ConfigSources::default();
    let layers = read_layers(options, &mut sources, &mut faults)?;
    let mut merged = merge::merge(&layers).unwrap_or_else(|error| {
        report_bug(&mut faults, &error);
        ConfigNode::table(SourceSpan::BUILT_IN)
    });
    let locations = ConfigLocations::find(&layers, &sources);
    let mut files = options.paths.clone();
    let mut advice = ProblemCollector::default();
    // Before references are replaced: advice is about the text that somebody wrote.
    advice::advise_on_servers(&merged, &mut advice);
    let variables = read_variables(&merged, options, &sources, &mut faults);
    files.extend(expand_all(
        &mut merged,
        options,
        &variables,
        &sources,
        &mut faults,
    ));
    // The resolver needs the whole tree for spans, so the check works on a copy.
    let mut checked = merged.clone();
    check::check_tree(
        &mut checked,
        &|path| merged.is_unused(path, &options.only),
        &mut faults,
    );
    let mut json = checked.to_json(&|_, _| None);
    layer_defaults(&mut json);
    let file: ConfigFile = serde_json::from_value(json).unwrap_or_else(|error| {
        // The check keeps only values that the types of the keys accept.
        report_bug(&mut faults, &error.to_string());
        ConfigFile::default()
    });
    let resolver = resolve::PlanResolver {
        tree: &merged,
        checked: &checked,
        faults: &mut faults,
        revisions: options.revisions,
        only: &options.only,
        env: &options.env,
        sources: &sources,
        files: &mut files,
        platform: options.platform,
    };
    let mut plan = resolver.plan(&file);
    if file.servers.is_empty() {
        warn_of_no_server(options, &mut faults);
    }
    let problems = faults.finish(&sources);
    let errors = &problems.errors;
    if !errors.iter().all(|problem| is_tolerated(problem, options)) {
        return Err(ConfigProblems { files, ..problems });
    }
    // With `PerServer`, these servers stay visible and state their problems.
    failed_servers::replace_failed_servers(&mut plan, &problems.errors);
    let resolved = masked_config(&merged);
    let ConfigProblems {
        errors: failed,
        warnings,
        ..
    } = problems;
    let advice = advice.finish(&sources).warnings;
    Ok(LoadedConfig {
        plan,
        warnings,
        advice,
        failed,
        sources: options.paths.clone(),
        files,
        locations,
        resolved,
    })
}

/// Warns of a config without servers.
fn warn_of_no_server(options: &LoadOptions<'_>, faults: &mut ProblemCollector) {
    // A start without any file serves the demo, so no server is missing there.
    if let Some(last) = options.paths.len().checked_sub(1)
        && faults.errors.is_empty()
    {
        let fix = "add `[servers.NAME]` with a `url` or a `command`, or use a client's config file";
        let span = SourceSpan {
            source: last,
            start: 0,
            end: 0,
        };
        faults.warn(
            ProblemKind::Missing,
            span,
            "no server is configured, so clients will see no tools",
            fix,
        );
    }
}

/// True if a problem costs only the server that it names.
fn is_tolerated(problem: &ConfigProblem, options: &LoadOptions<'_>) -> bool {
    problem.server.as_ref().is_some_and(|name| {
        options.tolerance == ErrorTolerance::PerServer || options.failing.contains(name)
    })
}

/// Returns the merged config as JSON, with secrets as `***` and dollar signs doubled.
fn masked_config(merged: &ConfigNode) -> serde_json::Value {
    // A referenced value may be secret, although its key does not sound so.
    let mut resolved = merged.to_json(&|path, node| {
        if node.secret {
            Some("***".to_owned())
        } else {
            redact::masked_node(path, node, before(merged, path), "***")
        }
    });
    escape(&mut resolved);
    resolved
}

/// Reports an internal mistake. An error is better than a gateway that runs with less than its
/// config.
fn report_bug(faults: &mut ProblemCollector, error: &str) {
    let fix = "please report this as a bug";
    faults.error(
        ProblemKind::Type,
        SourceSpan::BUILT_IN,
        format!("the config cannot be assembled: {error}"),
        fix,
    );
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
pub(super) fn before<'a>(tree: &'a ConfigNode, path: &ConfigPath) -> Option<&'a str> {
    let (last, list) = path.0.split_last()?;
    let index: usize = last.strip_prefix('[')?.strip_suffix(']')?.parse().ok()?;
    let list = ConfigPath(list.to_vec());
    tree.at(&list.item(index.checked_sub(1)?))?.as_text()
}
