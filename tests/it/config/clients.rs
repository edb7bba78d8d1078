//! Config files of real clients are read as they are: a fixture for each, and the servers that come
//! of it.

use super::start::load_at_start;
use super::*;

const ENV: [(&str, &str); 17] = [
    ("A_TOKEN", "a"),
    ("API_KEY", "key"),
    ("DOCS_KEY", "dk"),
    ("DOCS_TOKEN", "dt"),
    ("DOCS_USER", "du"),
    ("EVENTS_KEY", "ek"),
    ("EVERYTHING_KEY", "evk"),
    ("FILES_DIR", "/files"),
    ("FIRST_TOKEN", "ft"),
    ("GH_PAT", "pat"),
    ("GITHUB_TOKEN", "gt"),
    ("HOME", "/home/u"),
    ("LOCAL_KEY", "lk"),
    ("REMOTE_KEY", "rk"),
    ("SECOND_DIR", "/second"),
    ("SQLITE_KEY", "sk"),
    ("TOKEN", "t"),
];

fn fixture(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/config/clients")
        .join(path)
}

/// The program or address of a server, with its variables or headers.
fn target_line(target: &ConnectTarget) -> String {
    match target {
        ConnectTarget::Stdio {
            command,
            args,
            env,
            cwd,
        } => {
            let env: Vec<String> = env
                .iter()
                .map(|(name, value)| format!("{name}={value} "))
                .collect();
            let cwd = cwd
                .as_ref()
                .map(|cwd| format!(" in {}", cwd.display()))
                .unwrap_or_default();
            let args: Vec<String> = args.iter().map(|arg| format!(" {arg}")).collect();
            format!("{}{command}{}{cwd}", env.concat(), args.concat())
        }
        ConnectTarget::Http {
            url,
            transport,
            headers,
            ..
        } => {
            let header = |(name, value): &(http::HeaderName, http::HeaderValue)| {
                format!(" {name}:{}", value.to_str().unwrap())
            };
            let headers: Vec<String> = headers.iter().map(header).collect();
            format!("{transport:?} {url}{}", headers.concat())
        }
        other => format!("{other:?}"),
    }
}

/// One line for each server: what it is, and what of it is not the default.
fn lines(plan: &Plan) -> Vec<String> {
    let default = load(&[], &[]).unwrap().plan;
    let one = ServerSettings::new(
        "x",
        ConnectTarget::Misconfigured {
            reason: String::new(),
        },
    );
    let mut lines: Vec<String> = plan
        .servers
        .iter()
        .map(|server| {
            let mut line = format!("{}: {}", server.name, target_line(&server.connect));
            for (what, globs, usual) in [
                (
                    "allow",
                    &server.presentation.tools.allow,
                    &one.presentation.tools.allow,
                ),
                (
                    "deny",
                    &server.presentation.tools.deny,
                    &one.presentation.tools.deny,
                ),
            ] {
                if globs != usual {
                    line += &format!(" {what} {}", globs.patterns().join(","));
                }
            }
            for (what, time, usual) in [
                ("timeout", server.live.timeout.0, one.live.timeout.0),
                (
                    "start",
                    server.live.start_timeout.0,
                    one.live.start_timeout.0,
                ),
                (
                    "connect",
                    server.live.connect_timeout.0,
                    one.live.connect_timeout.0,
                ),
            ] {
                if time != usual {
                    line += &format!(" {what} {time:?}");
                }
            }
            line + &server
                .presentation
                .title
                .as_ref()
                .map(|title| format!(" ({title})"))
                .unwrap_or_default()
        })
        .collect();
    lines.extend(
        plan.disabled
            .iter()
            .map(|server| format!("{}: off", server.name)),
    );
    assert_eq!(
        plan.limits, default.limits,
        "nothing of the client's is taken for ours"
    );
    lines
}

/// The servers and the warnings of a client's file.
#[track_caller]
fn read(path: &str) -> (Vec<String>, Vec<String>) {
    let loaded = load(&[fixture(path)], &ENV).unwrap_or_else(|problems| panic!("{problems}"));
    (
        lines(&loaded.plan),
        loaded
            .warnings
            .into_iter()
            .map(|warning| warning.message)
            .collect(),
    )
}

/// A test for each client: its file, the servers, and how many warnings there are.
macro_rules! clients {
    ($($name:ident: $path:literal, $warnings:literal, [$($line:literal),* $(,)?];)*) => {
        $(#[test]
        fn $name() {
            let (servers, warnings) = read($path);
            assert_eq!(servers, [$($line),*]);
            assert_eq!(warnings.len(), $warnings, "{warnings:?}");
        })*
    };
}

clients! {
    claude_code: "claude-code/.claude.json", 1, [
        "docs: Auto https://docs.example/mcp authorization:Bearer dt",
        "files: mcp-files /data",
    ];
    claude_desktop: "claude-desktop/claude_desktop_config.json", 3, [
        "My-Files: PRICE=5$ npx -y @scope/files C:\\Users\\u",
        "scope-search: uvx mcp-search",
    ];
    cursor: "cursor/.cursor/mcp.json", 0, [
        "local: MODE=$MODE node /home/u/server.js",
        "remote: Auto https://remote.example/mcp x-key:rk",
    ];
    windsurf: "windsurf/mcp_config.json", 0, [
        "github: Auto https://github.example/mcp/ authorization:Bearer gt deny \
         delete_repo,fork_repo",
    ];
    vs_code: "vscode/mcp.json", 4, [
        "Remote-API: Auto https://api.example/eu/mcp authorization:Bearer key",
        "local: npx -y local@1.0.0",
    ];
    vs_code_settings: "vscode-settings/settings.json", 2, ["fetch: TOKEN=t uvx mcp-server-fetch"];
    visual_studio: "visual-studio/.mcp.json", 0, ["github: Auto https://github.example/mcp/"];
    codex: "codex/config.toml", 1, [
        "docs: Auto https://docs.example/mcp authorization:Bearer dt x-team:a x-user:du allow \
         search,read deny read timeout 45s start 2.5s",
        "local: A=1 LOCAL_TOKEN= npx -y local start 20s",
        "off: off",
    ];
    zed: "zed/settings.json", 2, [
        "new: A=1 new-server --x",
        "old: B=2 old-server --y",
        "remote: Auto https://zed.example/mcp x:1",
    ];
    goose: "goose/config.yaml", 2, [
        "github: GITHUB_TOKEN=gt MODE=fast PORT=8080 npx -y github-server timeout 300s (GitHub)",
        "docs: off",
    ];
    continue_dev: "continue/config.yaml", 1, [
        "SQLite: KEY=sk uvx mcp-server-sqlite --db-path ./test.db",
        "docs: Auto https://docs.example/mcp authorization:Bearer abc connect 5s",
    ];
    gemini: "gemini/.gemini/settings.json", 1, [
        "first: Auto https://first.example/mcp authorization:Bearer ft allow a,b deny b \
         timeout 30s",
        "second: second /second /second in ./x",
        "third: off",
    ];
    qwen: "qwen/.qwen/settings.json", 1, ["docs: Auto https://docs.example/mcp timeout 1.5s"];
    opencode: "opencode/opencode.json", 1, [
        "local: KEY=lk npx -y local --token=hidden deny delete_* timeout 5s",
        "remote: Auto https://remote.example/mcp authorization:Bearer rk",
        "off: off",
    ];
    kilo: "kilo/kilo.json", 0, ["docs: Auto https://docs.example/mcp timeout 10s"];
    crush: "crush/crush.json", 1, [
        "events: Sse https://events.example/sse key:ek",
        "files: NODE_ENV=production node server.js deny write timeout 120s",
        "github: Auto https://github.example/mcp/ authorization:Bearer pat",
    ];
    cline: "cline/cline_mcp_settings.json", 2, ["github-com-scope-server: \
        node a.js", "remote: off"];
    roo: "roo/.roo/mcp.json", 1, [
        "files: npx -y files /files deny write timeout 90s",
        "remote: Auto https://remote.example/mcp",
    ];
    amazon_q: "amazon-q/.amazonq/mcp.json", 0, [
        "files: A=1 files",
        "remote: Auto https://remote.example/mcp deny drop",
    ];
    lm_studio: "lm-studio/mcp.json", 0, [
        "hf-mcp-server: Auto https://hf.example/mcp authorization:Bearer abc",
        "local: local a",
    ];
    junie: "junie/.junie/mcp/mcp.json", 0, ["docs: A=b npx -y docs@2.1.0"];
    jetbrains: "jetbrains/mcp.json", 0, ["docs: Auto https://docs.example/mcp \
        x:1", "sh: npx -y shell tool"];
    warp: "warp/.mcp.json", 2, [
        "Files-and-folders: npx -y files in /data",
        "remote: Auto https://remote.example/mcp",
    ];
    amp: "amp/settings.json", 1, [
        "browser: npx -y browser@0.1 allow open_*,close deny close",
        "remote: Auto https://remote.example/mcp authorization:Bearer rk",
    ];
    trae: "trae/.trae/mcp.json", 2, ["Sequential-Thinking: npx -y thinking"];
    trae_cli: "trae-cli/trae_cli.yaml", 1, ["local: /usr/bin/local a deny drop_*"];
    void: "void/mcp.json", 0, ["docs: Auto https://docs.example/mcp", "x: A=1 x"];
    boltai: "boltai/.boltai/mcp.json", 0, ["sqlite: uvx mcp-server-sqlite@2025.4.25 --db-path \
        ~/a.db"];
    five_ire: "5ire/mcp.json", 1, ["files: npx -y files (Files of mine)", "off: off"];
    witsy: "witsy/settings.json", 1, ["1-2: npx -y files", "3-4: off", "c: off"];
    librechat: "librechat/librechat.yaml", 1, [
        "everything: KEY=evk npx -y everything timeout 30s start 10s",
        "remote: Auto https://remote.example/mcp x-team:a",
    ];
    copilot_cli: "copilot-cli/mcp-config.json", 0, [
        "all: Auto https://all.example/mcp",
        "local: local allow read_*,list",
    ];
    kiro: "kiro/.kiro/settings/mcp.json", 2, ["aws-docs: LOG=x uvx docs@latest deny write"];
    factory: "factory/.factory/mcp.json", 0, ["linear: Auto https://linear.example/mcp"];
    vibe: "vibe/config.toml", 1, [
        "docs: Auto https://docs.example/mcp authorization:Bearer dk timeout 20s",
        "fetch: uvx mcp-server-fetch",
    ];
    antigravity: "antigravity/mcp_config.json", 0, ["docs: Auto https://docs.example/mcp x:1"];
    cherry_studio: "cherry-studio/mcp.json", 1, ["x1: Sse https://time.example/sse deny set"];
    bare_map: "bare-map/mcp.json", 0, ["files: files", "weather: Auto https://weather.example/mcp"];
}

#[test]
fn unsupported_keys_of_clients_are_one_warning_and_lost_servers_another() {
    let (_, warnings) = read("zed/settings.json");
    let [settings, lost] = &warnings[..] else {
        panic!("{warnings:?}")
    };
    for word in [
        "`theme`",
        "`telemetry`",
        "are settings of Zed and have no effect here",
    ] {
        assert!(settings.contains(word), "{word}: {settings}");
    }
    assert_eq!(lost, "`mcp-server-extension` only works in Zed");
}

#[test]
fn inputs_become_variables_and_their_names_are_reported() {
    let (_, warnings) = read("vscode/mcp.json");
    assert!(
        warnings
            .iter()
            .any(|warning| warning.ends_with("variables: API_KEY, REGION")),
        "{warnings:?}"
    );
    let unset = load(&[fixture("vscode/mcp.json")], &[]).unwrap_err();
    assert!(
        unset
            .to_string()
            .contains("the environment variable API_KEY is not set"),
        "{unset}"
    );
}

#[test]
fn a_number_without_its_client_s_unit_is_left_out_with_a_warning() {
    let text = r#"{ "mcpServers": { "a": { "command": "a", "timeout": 60 } } }"#;
    let loaded =
        load_texts(&[("a.json", text)], &[]).unwrap_or_else(|problems| panic!("{problems}"));
    assert_eq!(lines(&loaded.plan), ["a: a"]);
    assert!(
        loaded.warnings[0]
            .message
            .contains("a number without a unit"),
        "{:?}",
        loaded.warnings
    );
}

#[test]
fn only_the_client_s_own_references_are_replaced() {
    let env = [("HOME", "/home/u")];
    let own = "[servers.a]\ncommand = 'sh'\nargs = ['-c', 'echo $HOME %HOME% {env:HOME}']\n";
    assert_eq!(
        lines(&plan(&[("a.toml", own)], &env)),
        ["a: sh -c echo $HOME %HOME% {env:HOME}"]
    );
    let shared = r#"{ "mcpServers": { "a": { "command": "sh", "args": ["-c", "echo $HOME {env:HOME} ${HOME}"] } } }"#;
    assert_eq!(
        lines(&plan(&[("a.json", shared)], &env)),
        ["a: sh -c echo $HOME {env:HOME} /home/u"]
    );
    let command = r#"{ "mcp": { "a": { "type": "http", "url": "https://a.example/", "headers": { "K": "$(rm -rf x)" } } } }"#;
    assert!(
        load_texts(&[("crush.json", command)], &[]).is_err(),
        "nothing is run"
    );
}

#[test]
fn one_entry_that_is_not_understood_costs_that_server() {
    let text = r#"{ "mcpServers": { "good": { "command": "a" }, "odd": { "command": "b", "onlyTheseTools": ["x"] } } }"#;
    let loaded = load_at_start(text, "mcp.json").unwrap_or_else(|problems| panic!("{problems}"));
    let [good, odd] = &loaded.plan.servers[..] else {
        panic!("{:?}", loaded.plan.servers)
    };
    assert!(matches!(good.connect, ConnectTarget::Stdio { .. }));
    let ConnectTarget::Misconfigured { reason } = &odd.connect else {
        panic!("{odd:?}")
    };
    assert!(reason.contains("onlyTheseTools"), "{reason}");
}

#[test]
fn secrets_in_clients_files_are_covered() {
    let text = "{ \"mcp\": { \"a\": { \"type\": \"local\", \"command\": [\"x\", \"--token=leaked-1\"],\n\
        \"environment\": { \"K\": \"leaked-2\" }, \"onlyTools\": 1 } }, \"x\": {} }";
    let problems = load_texts(&[("opencode.json", text)], &[])
        .unwrap_err()
        .to_string();
    assert!(
        problems.contains("onlyTools") && !problems.contains("leaked"),
        "{problems}"
    );
}
