//! Paths of endpoints.
//!
//! Owns the reading of a path as an endpoint's name. Does not look the endpoint up. Invariant: a
//! path that is read here means the same to the routes, and any other is left to them.

/// Returns the endpoint that a path names: `/mcp` or `/mcp/{name}`, with or without a slash at the
/// end, as the routes do.
pub(super) fn endpoint_name(path: &str) -> Option<&str> {
    let rest = path.strip_prefix("/mcp")?;
    if rest.is_empty() || rest == "/" {
        return Some("");
    }
    let name = rest.strip_prefix('/')?;
    let name = name.strip_suffix('/').unwrap_or(name);
    let plain = name
        .bytes()
        .all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_');
    (plain && !name.is_empty()).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::endpoint_name;

    #[test]
    fn paths_name_endpoints_as_the_routes_do() {
        for (path, name) in [
            ("/mcp", ""),
            ("/mcp/", ""),
            ("/mcp/a", "a"),
            ("/mcp/a-b_1/", "a-b_1"),
        ] {
            assert_eq!(endpoint_name(path), Some(name), "{path}");
        }
        for path in [
            "/",
            "/mcpx",
            "/mcp/a/b",
            "/mcp//",
            "/mcp///",
            "/mcp/a//",
            "/mcp//a",
            "/mcp/.well-known/x",
        ] {
            assert_eq!(endpoint_name(path), None, "{path}");
        }
        for path in ["/mcp/a%20b", "/MCP", "/metrics"] {
            assert_eq!(endpoint_name(path), None, "{path}");
        }
    }
}
