//! Lines of clients' files that a client takes and that mean nothing here. No server is lost for
//! one of them.

use super::*;

/// Entries of a shared format, each with what comes of it, and a part of the warning if there is
/// one.
const ENTRIES: [(&str, &str, &str); 27] = [
    (
        r#""url": "http://a.example/", "headers": {"Accept": "text/event-stream", "X": "1"}"#,
        "x=1",
        "headers.Accept",
    ),
    (
        r#""url": "http://a.example/", "headers": {"content-type": "application/json"}"#,
        "",
        "content-type",
    ),
    (
        r#""url": "http://a.example/", "headers": {"Content-Length": "0", "Host": "b"}"#,
        "",
        "Host",
    ),
    (
        r#""url": "http://a.example/", "headers": {"X": 1, "Y": true}"#,
        "x=1 y=true",
        "",
    ),
    (
        r#""url": "http://a.example/", "alwaysLoad": true"#,
        "",
        "alwaysLoad",
    ),
    (
        r#""url": "http://a.example/", "options": {"a": [1]}, "owner": "me", "stderr": "pipe""#,
        "",
        "options",
    ),
    (
        r#""url": "http://a.example/", "command": "", "args": [], "env": {}, "cwd": """#,
        "",
        "",
    ),
    (
        r#""url": "http://a.example/", "env": {"A": "b"}"#,
        "",
        "env",
    ),
    (
        r#""url": "http://a.example/", "oauth": {"clientId": "x"}"#,
        "",
        "oauth",
    ),
    (
        r#""url": "http://a.example/", "headersHelper": "rm -rf /""#,
        "",
        "headersHelper",
    ),
    (r#""url": "http://a.example/", "auth": "oauth""#, "", "auth"),
    (
        r#""url": "http://a.example/", "type": "streamable-http", "protocol": "http", "icon": "globe""#,
        "",
        "icon",
    ),
    (r#""url": "http://a.example/", "type": "weird""#, "", "type"),
    (
        r#""url": "http://a.example/", "command": "a", "type": "http""#,
        "",
        "command",
    ),
    (
        r#""url": "http://a.example/", "proxy": "system", "prefix": "a/b", "queue": "many""#,
        "",
        "prefix",
    ),
    (r#""command": "a", "timeout": 60"#, "a", "timeout"),
    (
        r#""command": "a", "timeout": "60", "connectTimeout": 5, "retry": true"#,
        "a",
        "timeout",
    ),
    (
        r#""command": "a", "env": {"T": 0.5, "P": 3000, "D": true, "N": null}"#,
        "a D=true P=3000 T=0.5",
        "",
    ),
    (
        r#""command": "a", "env": {"T": {"nested": 1}}"#,
        "a",
        "env.T",
    ),
    (
        r#""command": "a", "env": ["A=b", "C=d=e"]"#,
        "a A=b C=d=e",
        "",
    ),
    (r#""command": "a", "args": "-y 'b c'""#, "a -y b c", ""),
    (
        r#""command": "a", "args": ["b", null, 1.5, false]"#,
        "a b 1.5 false",
        "",
    ),
    (
        r#""command": "a", "args": ["--dir", "~/work"]"#,
        "a --dir ~/work",
        "",
    ),
    (
        r#""command": "a", "cwd": "~/work""#,
        "a in /home/u/work",
        "",
    ),
    (
        r#""command": "a", "url": "", "headers": {}, "transport": "stdio""#,
        "a",
        "",
    ),
    (r#""command": "a", "headers": {"X": "y"}"#, "a", "headers"),
    (
        r#""command": "a", "disabled": "false", "enabled": 1, "title": ["x"]"#,
        "a",
        "title",
    ),
];

/// What comes of a server, in one line.
fn outcome(server: &ServerSettings) -> String {
    match &server.connect {
        ConnectTarget::Http { headers, .. } => {
            let headers = headers
                .iter()
                .map(|(name, value)| format!("{name}={}", value.to_str().unwrap()));
            headers.collect::<Vec<_>>().join(" ")
        }
        ConnectTarget::Stdio {
            command,
            args,
            env,
            cwd,
        } => {
            let env = env.iter().map(|(name, value)| format!("{name}={value}"));
            let words = std::iter::once(command.clone())
                .chain(args.iter().cloned())
                .chain(env);
            let line = words.collect::<Vec<_>>().join(" ");
            cwd.as_ref()
                .map_or(line.clone(), |cwd| format!("{line} in {}", cwd.display()))
        }
        other => format!("{other:?}"),
    }
}

#[test]
fn no_harmless_line_costs_a_server() {
    for (entry, expected, warned) in ENTRIES {
        let text = format!("{{\"mcpServers\": {{\"a\": {{{entry}}}}}}}");
        let loaded = load_texts(&[("mcp.json", &text)], &[("HOME", "/home/u")]);
        let loaded = loaded.unwrap_or_else(|problems| panic!("{entry}: {problems}"));
        assert_eq!(
            loaded.plan.servers.iter().map(outcome).collect::<Vec<_>>(),
            [expected],
            "{entry}"
        );
        let warnings: Vec<&str> = loaded
            .warnings
            .iter()
            .map(|warning| warning.message.as_str())
            .collect();
        assert_eq!(
            warnings.is_empty(),
            warned.is_empty(),
            "{entry}: {warnings:?}"
        );
        assert!(warnings.join(" ").contains(warned), "{entry}: {warnings:?}");
    }
}

#[test]
fn in_our_own_format_a_line_that_means_nothing_stays_an_error() {
    for line in [
        "alwaysLoad = true",
        "timout = '5s'",
        "timeout = 60",
        "headers = { Accept = 'x' }",
        "oauth = {}",
    ] {
        let text = format!("[servers.a]\nurl = 'http://a.example/'\n{line}\n");
        let problems = load_texts(&[("moongate.toml", &text)], &[]).unwrap_err();
        assert_eq!(problems.errors.len(), 1, "{line}: {problems}");
    }
    let misspelt = load_texts(
        &[(
            "moongate.toml",
            "[servers.a]\nurl = 'http://a.example/'\ntimout = '5s'\n",
        )],
        &[],
    );
    assert_eq!(
        misspelt.unwrap_err().errors[0].fix,
        "did you mean `timeout`?"
    );
}

#[test]
fn what_may_restrict_tools_is_never_left_out() {
    for entry in [
        r#""onlyTheseTools": ["a"]"#,
        r#""toolRestrictions": {}"#,
        r#""tools": {"a": 5}"#,
        r#""disabled": "x""#,
    ] {
        let text = format!("{{\"mcpServers\": {{\"a\": {{\"command\": \"a\", {entry}}}}}}}");
        assert!(load_texts(&[("mcp.json", &text)], &[]).is_err(), "{entry}");
    }
    for both in [
        r#""disabled": true, "enabled": true"#,
        r#""disabled": false, "enabled": false"#,
    ] {
        let text = format!("{{\"mcpServers\": {{\"a\": {{\"command\": \"a\", {both}}}}}}}");
        assert!(
            load_texts(&[("mcp.json", &text)], &[])
                .unwrap()
                .plan
                .servers
                .is_empty(),
            "{both}"
        );
    }
}

#[test]
fn rules_in_forms_of_other_gateways_are_kept() {
    for (entry, denied, allowed) in [
        (
            r#""options": {"toolFilter": {"mode": "block", "list": ["rm"]}}"#,
            "rm",
            "*",
        ),
        (
            r#""options": {"toolFilter": {"mode": "allow", "list": ["ls"]}, "x": 1}"#,
            "",
            "ls",
        ),
        (
            r#""tools": {"rm": {"enabled": false}, "a-mv": {"enabled": false}, "ls": {"enabled": true}}"#,
            "a-mv,mv,rm",
            "*",
        ),
        (r#""tools": "ls,cat""#, "", "ls,cat"),
        (r#""tools": ["*"]"#, "", "*"),
    ] {
        let text = format!("{{\"mcpServers\": {{\"a\": {{\"command\": \"a\", {entry}}}}}}}");
        let plan = plan(&[("mcp.json", &text)], &[]);
        let tools = &plan.servers[0].presentation.tools;
        assert_eq!(tools.deny.patterns().join(","), denied, "{entry}");
        assert_eq!(tools.allow.patterns().join(","), allowed, "{entry}");
    }
}

#[test]
fn the_folder_of_a_project_is_the_one_above_the_editors() {
    let text = r#"{"mcpServers": {"a": {"command": "${workspaceFolder}/run", "args": ["${workspaceFolderBasename}"]}}}"#;
    for name in [".vscode/mcp.json", ".cursor/mcp.json"] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
        let plan = load(&[path], &[]).unwrap().plan;
        let base = folder.path().file_name().unwrap().to_str().unwrap();
        assert_eq!(
            outcome(&plan.servers[0]),
            format!("{}/run {base}", folder.path().display())
        );
    }
    let elsewhere = load_texts(&[("mcp.json", text)], &[])
        .unwrap_err()
        .to_string();
    assert!(elsewhere.contains("open in an editor"), "{elsewhere}");
}

#[test]
fn an_address_in_brackets_is_no_list() {
    let listen = |value: &str| {
        let loaded = load(&[], &[("MOONGATE_GATEWAY__LISTEN", value)]);
        loaded
            .unwrap_or_else(|problems| panic!("{value}: {problems}"))
            .plan
            .listen
    };
    assert_eq!(listen("[::1]:8080"), [address("[::1]:8080")]);
    assert_eq!(
        listen("[::1]:8080,127.0.0.1:8081"),
        [address("[::1]:8080"), address("127.0.0.1:8081")]
    );
    assert_eq!(
        listen(r#"["[::1]:8080", "127.0.0.1:8081"]"#),
        [address("[::1]:8080"), address("127.0.0.1:8081")]
    );
}
