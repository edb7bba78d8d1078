//! Tests of secrets known by their look: URLs, prefixes, and words that people choose.

use super::*;

#[test]
fn of_a_url_only_what_proves_a_login_is_secret() {
    for (url, masked) in [
        (
            "https://mcp.context7.com/mcp?workspace=acme",
            "https://mcp.context7.com/mcp?workspace=***",
        ),
        (
            "https://mcp.example.com/v1/mcp/",
            "https://mcp.example.com/v1/mcp/",
        ),
        (
            "https://me:pw@x.example/mcp?a=1&b=${B}&c#frag",
            "https://***@x.example/mcp?a=***&b=${B}&***#***",
        ),
        (
            "https://actions.zapier.com/mcp/sk-ak-Qm3vT8yLz0Kp5RwX/sse",
            "https://actions.zapier.com/mcp/***/sse",
        ),
        (
            "https://mcp.zapier.com/api/mcp/s/NjQ2ZjE4YzctOWQyYi00ZjFl/mcp",
            "https://mcp.zapier.com/api/mcp/s/***/mcp",
        ),
        (
            "https://eu1.make.com/mcp/u/36e3ab12-7c55-4f0e-9a41-2f7be0d5c1aa/sse",
            "https://eu1.make.com/mcp/u/***/sse",
        ),
        (
            "https://mcp.pipedream.net/8b7d1234-90ab-4cde-8f01-23456789abcd/slack",
            "https://mcp.pipedream.net/***/slack",
        ),
        (
            "https://x.example/projects/8b7d1234-90ab-4cde-8f01-23456789abcd/mcp",
            "https://x.example/projects/8b7d1234-90ab-4cde-8f01-23456789abcd/mcp",
        ),
        (
            "git+https://github.com/a/b@9fceb02d0ae598e95dc970b74767f19372d61af8",
            "git+https://github.com/a/b@9fceb02d0ae598e95dc970b74767f19372d61af8",
        ),
        (
            "postgres://u:p@db:5432/app and https://b:c@d",
            "postgres://***@db:5432/app and https://***@d",
        ),
        (
            "https://h.example/${PATH_KEY}/mcp",
            "https://h.example/${PATH_KEY}/mcp",
        ),
        // A password with what ends a host elsewhere.
        ("postgres://u:pa/ss@h/d", "postgres://***@h/d"),
        ("postgres://u:1p?a#ss@h/d", "postgres://***@h/d"),
        ("https://h:8443/@scope/x", "https://h:8443/@scope/x"),
        ("https://h:${PORT}/@scope/x", "https://h:${PORT}/@scope/x"),
        ("https://[::1]:80/@scope/x", "https://[::1]:80/@scope/x"),
        (
            "https://a.example,https://u:p@b.example/x",
            "https://a.example,https://***@b.example/x",
        ),
        (
            "https://a.example/x?next=https://b.example/",
            "https://a.example/x?next=***",
        ),
    ] {
        assert_eq!(mask_secrets(url, "***"), masked);
    }
}

#[test]
fn base64_is_random_as_a_whole() {
    const KEY: &str = "kX9/pQ2vR7+tY4uW1zB6/nM3cL8dF5+gH0jK2sA=";
    for (text, masked) in [
        (format!("--cred {KEY}"), "--cred ***"),
        (format!("--cred={KEY}"), "--cred=***"),
        (
            format!("https://x.example/mcp/{KEY}/sse"),
            "https://x.example/mcp/***/sse",
        ),
        (format!("a,{KEY},b"), "a,***,b"),
    ] {
        assert_eq!(mask_secrets(&text, "***"), masked);
    }
    for plain in [
        "/usr/lib/c++/v1/x86_64-linux-gnu/13/include",
        "/Users/Ada/Documents/Projects2026/MyApp+V2/Src",
        "1.2.3+20130313144700.sha.5114f85",
        "https://x.example/a+b/C++/Q3",
        "A=b C=d",
        "mcp-server-git+ssh://host.example/Path",
    ] {
        assert_eq!(mask_secrets(plain, "***"), plain);
    }
}

#[test]
fn a_prefix_is_found_behind_what_only_looks_like_one() {
    for (text, masked) in [
        ("task-sk-0123456789abcdefABCDEF", "task-***"),
        ("eyJ.eyJhbGciOiJIUzI1NiJ9.zRWEvhYAunz3", "eyJ.***"),
    ] {
        assert_eq!(mask_secrets(text, "***"), masked);
    }
}

#[test]
fn a_text_that_begins_again_and_again_is_read_once() {
    // The time for the square of such a length is counted in hours.
    const LENGTH: usize = 4 << 20;
    for (part, is_secret) in [
        ("a://", false),
        ("a://u@", true),
        ("sk-", false),
        ("eyJ", true),
        ("eyJhbGciOiJI.", true),
        ("=", false),
        ("a=", false),
    ] {
        let text = part.repeat(LENGTH / part.len());
        assert_eq!(!secret_ranges(&text).is_empty(), is_secret, "{part}");
    }
}

#[test]
fn a_url_with_many_users_has_them_all_masked() {
    let url = format!("http://{}h.example/x", "a:b/@".repeat(100_000));
    let masked = format!("http://{}h.example/x", "***@".repeat(100_000));
    assert_eq!(mask_secrets(&url, "***"), masked);
}
