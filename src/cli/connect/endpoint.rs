//! Meaning of `--endpoint`.
//!
//! Owns the words that it takes, and the comparison with the config. Does not connect. Invariant: a
//! name that the config does not have is an error before anything is written.

use super::args::ConnectArgs;
use crate::cli::locate;
use crate::cli::process::load_options;
use moongate_config::nearest;
use url::Url;

/// Returns the URL that `--endpoint` means: a name, a path, or a URL.
pub(super) fn endpoint_url(args: &ConnectArgs) -> Result<String, String> {
    let word = args.endpoint.as_deref().unwrap_or("/mcp");
    let path = match word {
        name if is_name(name) => format!("/mcp/{name}"),
        path if path.starts_with('/') => path.to_owned(),
        url if is_url(url) => return Ok(url.to_owned()),
        _ => {
            let forms = "a name such as coding, a path such as /mcp/coding, or a URL with http:// \
                         or https://";
            return Err(format!("--endpoint {word:?}: give {forms}"));
        }
    };
    let located = locate::endpoint(&args.config);
    located
        .map(|located| located.url(&path))
        .map_err(|error| format!("{error}; --endpoint takes a whole URL"))
}

/// Refuses the name of a view or server that the config does not have. Without a config, each name
/// may be one.
pub(super) fn check_endpoint(args: &ConnectArgs) -> Result<(), String> {
    let Some(word) = args.endpoint.as_deref() else {
        return Ok(());
    };
    let name = word.strip_prefix("/mcp/").unwrap_or(word);
    let options = load_options(&args.config);
    // An address elsewhere may be of another gateway, whose names are not known here.
    if !is_name(name) || options.paths.is_empty() {
        return Ok(());
    }
    let Ok(loaded) = moongate_config::load(&options) else {
        return Ok(());
    };
    let plan = &loaded.plan;
    let views = plan.views.iter().map(|view| view.name.as_str());
    let names: Vec<&str> = views
        .chain(plan.servers.iter().map(|server| server.name.as_str()))
        .collect();
    if names.contains(&name) {
        return Ok(());
    }
    let near = nearest(name, &names).or_else(|| {
        let begun = names.iter().copied().filter(|it| it.starts_with(name));
        begun.min_by_key(|other| other.len())
    });
    let why = match near {
        _ if plan.disabled.iter().any(|server| server.name == name) => {
            format!("that server is off; `moongate enable {name}` switches it on")
        }
        Some(near) => format!("there is no such view or server; did you mean `{near}`?"),
        None if names.is_empty() => {
            "there is no such view or server; the config has none".to_owned()
        }
        None => format!(
            "there is no such view or server; the config has {}",
            names.join(", ")
        ),
    };
    Err(format!("--endpoint {word:?}: {why}"))
}

/// Returns true if `--endpoint` names an endpoint of the config's gateway, and not a whole URL.
pub(super) fn is_of_config(args: &ConnectArgs) -> bool {
    args.endpoint.as_deref().is_none_or(|word| !is_url(word))
}

fn is_name(word: &str) -> bool {
    moongate_config::legal_server_name(word).as_deref() == Some(word)
}

fn is_url(text: &str) -> bool {
    text.strip_prefix(moongate_listener::UNIX)
        .is_some_and(|path| !path.is_empty())
        || Url::parse(text)
            .is_ok_and(|url| matches!(url.scheme(), "http" | "https") && url.has_host())
}
