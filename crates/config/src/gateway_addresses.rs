//! Addresses of a config's gateway, for commands that talk to it.
//!
//! Owns reading `gateway.listen`, `admin`, `tls` and `public_url` alone. Does not read servers and keys, whose
//! references may be set only for the gateway. Invariant: a `gateway` table with a problem gives no
//! address.

use std::path::PathBuf;

use super::collector::ProblemCollector;
use super::env_setting::read_variables;
use super::file::ConfigFile;
use super::layers::{expand_all, read_layers};
use super::options::LoadOptions;
use super::problem::ConfigProblems;
use super::resolve::PlanResolver;
use super::source::ConfigSources;
use super::tree::{ConfigNode, ConfigPath, SourceSpan};
use super::{check, merge};
use moongate_listener::ListenAddress;
use url::Url;

/// Addresses of a gateway.
#[derive(Clone, Debug, PartialEq)]
pub struct GatewayAddresses {
    /// Addresses for clients.
    pub listen: Vec<ListenAddress>,
    /// Address for operators. `None` if there is none.
    pub admin: Option<ListenAddress>,
    /// Certificate of the addresses in `listen`.
    pub certificate: Option<PathBuf>,
    /// URL at which a proxy serves the gateway to clients.
    pub public_url: Option<Url>,
}

/// Reads the addresses of a config's gateway.
///
/// Fails with the problems of the files themselves, and of the `gateway` table.
pub fn gateway_addresses(options: &LoadOptions<'_>) -> Result<GatewayAddresses, ConfigProblems> {
    let mut faults = ProblemCollector::default();
    let mut sources = ConfigSources::default();
    let layers = read_layers(options, &mut sources, &mut faults)?;
    // Problems elsewhere are the gateway's concern. Here only its address matters.
    let mut faults = ProblemCollector::default();
    let mut merged =
        merge::merge(&layers).unwrap_or_else(|_| ConfigNode::table(SourceSpan::BUILT_IN));
    if let Some(table) = merged.as_table_mut() {
        table.retain(|name, _| name == "gateway");
        // Only the gateway's user may be able to read its secrets, and no address depends on them.
        let gateway = table.get_mut("gateway").and_then(ConfigNode::as_table_mut);
        if let Some(gateway) = gateway {
            gateway.retain(|name, _| !name.starts_with("secret"));
        }
    }
    // Only the gateway's user may be able to read the env file, and an address seldom needs it.
    let variables = read_variables(&merged, options, &sources, &mut ProblemCollector::default());
    expand_all(&mut merged, options, &variables, &sources, &mut faults);
    let mut checked = merged.clone();
    check::check_tree(&mut checked, &|_| false, &mut faults);
    let file: ConfigFile =
        serde_json::from_value(checked.to_json(&|_, _| None)).unwrap_or_default();
    let mut resolver = PlanResolver {
        tree: &merged,
        checked: &checked,
        faults: &mut faults,
        revisions: options.revisions,
        only: &[],
        env: &options.env,
        sources: &sources,
        files: &mut Vec::new(),
        platform: options.platform,
    };
    let admin = resolver.admin(&file.gateway.admin);
    let listen = resolver
        .addresses(&file.gateway.listen)
        .into_iter()
        .map(|(_, address)| address)
        .collect();
    // A wrong one is the gateway's concern, too: nobody connects to it here.
    let public_url = file.gateway.public_url.as_deref();
    let public_url = public_url.and_then(|url| Url::parse(url).ok());
    let tls = file
        .gateway
        .tls
        .filter(|_| checked.at(&ConfigPath::of(&["gateway", "tls"])).is_some());
    let certificate = tls.and_then(|tls| tls.cert).map(PathBuf::from);
    let problems = faults.finish(&sources);
    match problems.errors.is_empty() {
        true => Ok(GatewayAddresses {
            listen,
            admin,
            certificate,
            public_url,
        }),
        false => Err(problems),
    }
}
