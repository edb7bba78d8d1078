//! Choice of a config's servers by name, for commands about logins.
//!
//! Owns the words for a name that fits none. Does not load the config. Invariant: an error says
//! what would help.

use moongate_config::{Plan, nearest};
use moongate_upstream::{ConnectTarget, ServerSettings};

/// Number of names that an error lists.
const LISTED_MAX: usize = 10;

/// Finds an enabled server whose settings can be used. Fails with words for people.
pub(super) fn find_server<'a>(plan: &'a Plan, name: &str) -> Result<&'a ServerSettings, String> {
    let Some(server) = plan.servers.iter().find(|server| server.name == name) else {
        return Err(missing_server(plan, name));
    };
    match &server.connect {
        ConnectTarget::Misconfigured { reason } => Err(format!("{name} cannot be used: {reason}")),
        _ => Ok(server),
    }
}

fn missing_server(plan: &Plan, name: &str) -> String {
    if plan.disabled.iter().any(|server| server.name == name) {
        return format!("{name} is disabled: `moongate enable {name}` switches it on");
    }
    let names: Vec<&str> = plan.servers.iter().map(|it| it.name.as_str()).collect();
    let advice = match nearest(name, &names) {
        Some(near) => format!("did you mean `{near}`?"),
        None if names.is_empty() => {
            "the config has none, and `moongate add NAME URL` adds one".to_owned()
        }
        None => {
            let more = if names.len() > LISTED_MAX {
                ", ..."
            } else {
                ""
            };
            let listed = names.iter().take(LISTED_MAX);
            let listed: Vec<String> = listed.map(|name| format!("`{name}`")).collect();
            format!("the config has {}{more}", listed.join(", "))
        }
    };
    format!("there is no server {name:?}; {advice}")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::path::PathBuf;

    use moongate_config::LoadOptions;

    use super::*;

    fn error(servers: &str, name: &str) -> String {
        let file = PathBuf::from("moongate.toml");
        let options = LoadOptions {
            texts: BTreeMap::from([(file.clone(), servers.to_owned())]),
            ..LoadOptions::of_files(vec![file], BTreeMap::new())
        };
        let plan = moongate_config::load(&options).unwrap().plan;
        find_server(&plan, name).unwrap_err()
    }

    #[test]
    fn a_name_that_fits_none_gets_the_nearest_or_all() {
        let servers = "[servers.linear]\nurl = 'https://a.example/mcp'\n\
                       [servers.sentry]\nurl = 'https://b.example/mcp'\n\
                       [servers.off]\nurl = 'https://c.example/mcp'\nenabled = false\n\
                       [servers.broken]\nurl = '${NOT_SET_HERE}'\n";
        for (name, expected) in [
            ("linera", "did you mean `linear`?"),
            ("github", "the config has `broken`, `linear`, `sentry`"),
            ("off", "off is disabled: `moongate enable off`"),
            ("broken", "broken cannot be used: "),
        ] {
            let found = error(servers, name);
            assert!(found.contains(expected), "{name}: {found}");
        }
        let found = error("", "linear");
        assert!(found.contains("`moongate add NAME URL`"), "{found}");
    }
}
