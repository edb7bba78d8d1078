//! Env file that a config names: `gateway.env_file`.
//!
//! Owns its location, its bound and its problems. Does not know its format (`env_file`) and does
//! not replace references (`expand`). Invariant: no message quotes a value.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use moongate_platform::{foreign_file, private_file};

use super::collector::ProblemCollector;
use super::expand::{self, relative_to};
use super::layers::read_layers;
use super::options::LoadOptions;
use super::problem::{ConfigProblems, ProblemKind};
use super::reference_variables::ReferenceVariables;
use super::source::ConfigSources;
use super::tree::{ConfigNode, ConfigPath, SourceSpan};
use super::{env_file, merge};

/// Largest env file that is read.
const SIZE_MAX: u64 = 1 << 20;

/// Reads the env file that a config names.
pub(super) fn read_variables<'a>(
    merged: &ConfigNode,
    options: &'a LoadOptions<'_>,
    sources: &ConfigSources,
    faults: &mut ProblemCollector,
) -> ReferenceVariables<'a> {
    let process = ReferenceVariables::of_process(&options.env);
    let Some((node, path)) = find_env_file(merged, &process, sources) else {
        return process;
    };
    let shown = path.display().to_string();
    let file = match read(&path, options) {
        Ok(file) => file,
        Err(UnusableFile { why, fix }) => {
            let message = format!("`gateway.env_file`: the file {shown} cannot be used: {why}");
            faults.error(ProblemKind::Reference, node.span, message, fix);
            BTreeMap::new()
        }
    };
    if private_file::is_readable_by_others(&path) {
        let message =
            format!("other users on this machine can read {shown}, which contains secrets");
        faults.warn(
            ProblemKind::Access,
            node.span,
            message,
            format!("chmod 600 {shown}"),
        );
    }
    ReferenceVariables {
        path: Some(path),
        file,
        ..process
    }
}

/// Finds the setting, and the path that it names.
fn find_env_file<'a>(
    merged: &'a ConfigNode,
    process: &ReferenceVariables<'_>,
    sources: &ConfigSources,
) -> Option<(&'a ConfigNode, PathBuf)> {
    let node = merged.at(&ConfigPath::of(&["gateway", "env_file"]))?;
    let directory = sources.directory(node.span);
    // A reference that leads nowhere is reported when all of them are replaced.
    let text = expand::expand_text(node.as_text()?, process, directory)
        .ok()?
        .text;
    (!text.is_empty()).then(|| (node, relative_to(&text, directory)))
}

/// Reason why a file cannot be used, and what mends it.
struct UnusableFile {
    why: String,
    fix: String,
}

fn read(path: &Path, options: &LoadOptions<'_>) -> Result<BTreeMap<String, String>, UnusableFile> {
    const FIX: &str = "write one `NAME=value` per line, in a file that the gateway's user can \
                       read, or remove the key";
    let text = match options.texts.get(path) {
        Some(text) => Ok(text.clone()),
        None => foreign_file::read_text(path, SIZE_MAX),
    };
    let text = text.map_err(|error| UnusableFile {
        why: expand::reason(&error),
        fix: expand::fix_or(&error, FIX),
    })?;
    env_file::parse(&text).map_err(|error| UnusableFile {
        why: format!("line {}: {}", error.line, error.why),
        fix: FIX.to_owned(),
    })
}

/// Returns the variables of an env file. A file that cannot be read has none.
pub fn env_file_variables(path: &Path) -> BTreeMap<String, String> {
    let text = foreign_file::read_text(path, SIZE_MAX).unwrap_or_default();
    env_file::parse(&text).unwrap_or_default()
}

/// Returns the path of the env file that a config names. Fails if the config cannot be read.
pub fn env_file_in_config(options: &LoadOptions<'_>) -> Result<Option<PathBuf>, ConfigProblems> {
    let mut faults = ProblemCollector::default();
    let mut sources = ConfigSources::default();
    let layers = read_layers(options, &mut sources, &mut faults)?;
    let merged = merge::merge(&layers).unwrap_or_else(|_| ConfigNode::table(SourceSpan::BUILT_IN));
    let process = ReferenceVariables::of_process(&options.env);
    Ok(find_env_file(&merged, &process, &sources).map(|(_, path)| path))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::load;

    #[test]
    fn a_config_reads_the_variables_of_its_env_file() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        let config = "[gateway]\nenv_file = '${WHERE}.env'\n[servers.a]\nurl = \
                      'http://a.example/mcp'\n\
                      headers = { X = '${ONE}', Y = '${TWO}' }\n";
        std::fs::write(at("moongate.toml"), config).unwrap();
        let env = [("WHERE", "the"), ("TWO", "process")]
            .map(|(name, value)| (name.to_owned(), value.to_owned()));
        let options = LoadOptions::of_files(vec![at("moongate.toml")], env.into());
        let strict = LoadOptions {
            tolerance: Default::default(),
            ..options.clone()
        };
        let error = load(&strict).unwrap_err().to_string();
        assert!(
            error.contains("gateway.env_file") && error.contains("the.env"),
            "{error}"
        );
        std::fs::write(at("the.env"), "ONE=s3cr3t\nTWO=file\n").unwrap();
        private_file::make_private(&at("the.env")).unwrap();
        let loaded = load(&strict).unwrap();
        let printed = loaded.print();
        // Values of the file count as secrets.
        assert!(
            loaded.warnings.is_empty() && !printed.contains("s3cr3t"),
            "{:?} {printed}",
            loaded.warnings
        );
        assert!(
            loaded.files.contains(&at("the.env")),
            "it is watched: {:?}",
            loaded.files
        );
        assert_eq!(env_file_in_config(&options), Ok(Some(at("the.env"))));
        // Texts that are not written yet are checked in the same way.
        let texts = [(at("the.env"), "ONE s3cr3t\n".to_owned())].into();
        let error = load(&LoadOptions {
            texts,
            ..options.clone()
        })
        .unwrap_err()
        .to_string();
        assert!(
            error.contains("line 1: it has no `=`") && !error.contains("s3cr3t"),
            "{error}"
        );
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt as _;
            std::fs::set_permissions(at("the.env"), std::fs::Permissions::from_mode(0o644))
                .unwrap();
            assert!(load(&strict).unwrap().warnings[0].fix.contains("chmod 600"));
        }
    }
}
