//! Paths of endpoints: `/mcp` for the one of all servers, `/mcp/NAME` for the others.
//!
//! Owns how they are written and read. Does not know which endpoints there are
//! (`moongate_gateway`). Invariant: a path that was written is read as the same name.

/// Path of the endpoint of all servers.
const ROOT: &str = "/mcp";

/// Writes the path of an endpoint.
pub(super) fn endpoint_path(name: &str) -> String {
    if name.is_empty() {
        ROOT.to_owned()
    } else {
        format!("{ROOT}/{name}")
    }
}

/// Reads the name of an endpoint from its name or its path, as operators write either.
pub(super) fn endpoint_name(text: &str) -> &str {
    let text = text.trim();
    let below = text
        .strip_prefix(ROOT)
        .filter(|rest| rest.is_empty() || rest.starts_with('/'));
    below.unwrap_or(text).trim_matches('/')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_and_its_path_mean_the_same_endpoint() {
        for name in ["", "docs", "mcp"] {
            assert_eq!(endpoint_name(&endpoint_path(name)), name);
            assert_eq!(endpoint_name(&format!(" {name} ")), name);
        }
        assert_eq!(endpoint_name("/mcp/docs/"), "docs");
        assert_eq!(endpoint_name("/mcpdocs"), "mcpdocs");
    }
}
