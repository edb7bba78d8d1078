//! Texts that people have, and the servers in them.

#![allow(clippy::unwrap_used)]

#[path = "import/bridges.rs"]
mod bridges;
#[path = "import/same_servers.rs"]
mod same_servers;

use std::path::Path;

use moongate_clients::import::{ImportedServers, read_file, read_text};
use serde_json::{Value, json};

/// Servers as one JSON object.
fn settings(read: ImportedServers) -> Value {
    read.servers
        .into_iter()
        .map(|server| (server.name, Value::Object(server.settings)))
        .collect()
}

/// URLs and command lines, with the servers in them.
fn pasted_lines() -> [(&'static str, Value); 8] {
    let npx = json!({"command": "npx", "args": ["-y", "some-mcp@1"]});
    [
        (
            "https://mcp.deepwiki.com/mcp\n",
            json!({"deepwiki": {"url": "https://mcp.deepwiki.com/mcp"}}),
        ),
        ("npx -y some-mcp@1", json!({"some": npx})),
        (
            "$ npx -y \\\n  some-mcp@1\nuvx mcp-server-git",
            json!({"some": npx, "git": {"command": "uvx", "args": ["mcp-server-git"]}}),
        ),
        (
            "claude mcp add --transport http -s user sentry https://x.example/mcp \
             --header \"Authorization: Bearer k\"",
            json!({"sentry": {"url": "https://x.example/mcp",
                "headers": {"Authorization": "Bearer k"}}}),
        ),
        (
            "claude mcp add github -e TOKEN=t -- npx -y some-mcp@1",
            json!({"github": {"command": "npx", "args": ["-y", "some-mcp@1"],
                "env": {"TOKEN": "t"}}}),
        ),
        (
            "claude mcp add-json -s user x '{\"type\":\"http\",\"url\":\"http://a/mcp\"}'",
            json!({"x": {"url": "http://a/mcp", "type": "http"}}),
        ),
        (
            "codex mcp add x --url http://a/mcp --bearer-token-env-var KEY",
            json!({"x": {"url": "http://a/mcp", "headers": {"Authorization": "Bearer ${KEY}"}}}),
        ),
        (
            "gemini mcp add -t sse old http://a/sse",
            json!({"old": {"url": "http://a/sse", "type": "sse"}}),
        ),
    ]
}

/// Parts of files and of registries, with the servers in them.
fn pasted_documents() -> [(&'static str, Value); 7] {
    let npx = json!({"command": "npx", "args": ["-y", "some-mcp@1"]});
    [
        (
            "{\"x\": {\"command\": \"npx\", \"args\": [\"-y\", \"some-mcp@1\"]}}",
            json!({"x": npx}),
        ),
        (
            "{\"command\": \"npx\", \"args\": [\"-y\", \"some-mcp@1\"]}",
            json!({"some": npx}),
        ),
        (
            "{\"mcpServers\": {\"x\": {\"serverUrl\": \"http://a/mcp\"}}} ",
            json!({"x": {"url": "http://a/mcp"}}),
        ),
        (
            "[mcp_servers.x]\nurl = \"http://a/mcp\"\nbearer_token_env_var = \"K\"\n",
            json!({"x": {"url": "http://a/mcp", "headers": {"Authorization": "Bearer ${K}"}}}),
        ),
        (
            "extensions:\n  x:\n    type: stdio\n    cmd: run\n    args: [a]\n",
            json!({"x": {"command": "run", "args": ["a"], "type": "stdio"}}),
        ),
        (
            "{\"name\":\"io.github.ada/notes\",\"description\":\"\",\"packages\":[{\"registryType\":\"npm\",\"identifier\":\
             \"@ada/notes\",\"version\":\"1.2.0\",\"environmentVariables\":[{\"name\":\"NOTES_KEY\",\"isRequired\":true}]}]}",
            json!({"notes": {"command": "npx", "args": ["-y", "@ada/notes@1.2.0"],
                "env": {"NOTES_KEY": "${NOTES_KEY}"}}}),
        ),
        (
            "{\"server\":{\"name\":\"x/y\",\"title\":\"Y\",\"remotes\":[{\"type\":\"streamable-http\",\"url\":\"https://y.example/mcp\",\
             \"headers\":[{\"name\":\"Authorization\",\"value\":\"Bearer {token}\",\"isSecret\":true}]}]}}",
            json!({"y": {"title": "Y", "url": "https://y.example/mcp",
                "headers": {"Authorization": "Bearer ${TOKEN}"}}}),
        ),
    ]
}

#[test]
fn a_pasted_text_of_any_kind_is_understood() {
    for (text, expected) in pasted_lines().into_iter().chain(pasted_documents()) {
        let read = read_text(text).unwrap_or_else(|error| panic!("{text}: {error}"));
        assert!(
            read.servers.iter().all(|server| !server.is_broken),
            "{text}: {read:?}"
        );
        assert_eq!(settings(read), expected, "{text}");
    }
}

#[test]
fn holes_of_a_registry_s_templates_become_references() {
    let remote = json!({"type": "sse", "url": "https://{tenant-id}.{region}.example/{path}/{odd}",
        "variables": {"tenant-id": {"isRequired": true}, "region": {"default": "eu"},
            "path": {"value": "v1"}, "odd": {"default": "}${HOME}"}},
        "headers": [{"name": "X", "value": "{kind} {key}",
            "variables": {"kind": {"default": "Bearer"}}}]});
    let file = json!({"name": "a/x", "remotes": [remote]});
    let expected = json!({"type": "sse",
        "url": "https://${TENANT_ID}.${REGION:-eu}.example/v1/${ODD}",
        "headers": {"X": "${KIND:-Bearer} ${KEY}"}});
    assert_eq!(
        settings(read_text(&file.to_string()).unwrap())["x"],
        expected
    );
}

#[test]
fn runtime_arguments_and_forms_of_documents_are_understood() {
    let npx = json!({"command": "npx", "args": ["-y", "some-mcp@1"]});
    for (text, expected) in [
        (
            "{\"name\":\"x/y\",\"packages\":[{\"registryType\":\"oci\",\"identifier\":\"x/y\",\"version\":\"1\",\"runtimeHint\":\"podman\",\
             \"runtimeArguments\":[{\"type\":\"named\",\"name\":\"--mount\",\"value\":\"type=bind,src={from},dst={to}\"},\
             {\"type\":\"named\",\"name\":\"--rm\"}],\"packageArguments\":[{\"type\":\"positional\",\"valueHint\":\"dir\"}]}]}",
            json!({"y": {"command": "podman", "args":
                ["run", "-i", "--rm", "--mount", "type=bind,src=${FROM},dst=${TO}", "x/y:1",
                    "${DIR}"]}}),
        ),
        (
            "{\"name\":\"x/y\",\"packages\":[{\"registryType\":\"pypi\",\"identifier\":\"y\",\"version\":\"1\",\"runtimeHint\":\"pipx\",\
             \"runtimeArguments\":[{\"type\":\"named\",\"name\":\"--python\",\"value\":\"3.13\"}]}]}",
            json!({"y": {"command": "pipx", "args": ["run", "--python", "3.13", "y==1"]}}),
        ),
        (
            "```json\n{\"x\": {\"command\": \"npx\", \"args\": [\"-y\", \"some-mcp@1\"]}}\n```\n",
            json!({"x": npx}),
        ),
        ("```sh\nnpx -y some-mcp@1\n```", json!({"some": npx})),
        (
            "FOO=bar B_2='a b' npx -y some-mcp@1",
            json!({"some": {"command": "npx", "args": ["-y", "some-mcp@1"],
                "env": {"FOO": "bar", "B_2": "a b"}}}),
        ),
        (
            "code --add-mcp '{\"name\":\"x\",\"type\":\"http\",\"url\":\"http://a/mcp\"}'",
            json!({"x": {"url": "http://a/mcp", "type": "http"}}),
        ),
    ] {
        let read = read_text(text).unwrap_or_else(|error| panic!("{text}: {error}"));
        assert_eq!(settings(read), expected, "{text}");
    }
}

#[test]
fn flags_of_each_client_s_add_command_are_read_as_the_client_does() {
    let remote = json!({"x": {"url": "http://a/mcp"}});
    let program = json!({"x": {"command": "run", "env": {"A": "1", "B": "2"}}});
    let tools = json!({"x": {"url": "http://a/mcp", "tools": {"allow": ["t", "u", "v"]}}});
    for (line, expected) in [
        ("gemini mcp add --trust x http://a/mcp", &remote),
        ("gemini mcp add --trust true x http://a/mcp", &remote),
        (
            "gemini mcp add x http://a/mcp --trust --timeout 5000",
            &remote,
        ),
        (
            "gemini mcp add --description 'a b' --trust=false x http://a/mcp",
            &remote,
        ),
        (
            "gemini mcp add x http://a/mcp --include-tools t,u v --trust",
            &tools,
        ),
        ("claude mcp add x -e A=1 B=2 -- run", &program),
        ("claude mcp add -e A=1 --env B=2 x run", &program),
        ("codex mcp add --env A=1 --env B=2 x -- run", &program),
    ] {
        let read = read_text(line).unwrap_or_else(|error| panic!("{line}: {error}"));
        assert_eq!(settings(read), *expected, "{line}");
    }
    let headers = read_text("claude mcp add x http://a/mcp -H 'A: 1' 'B: 2'").unwrap();
    assert_eq!(
        settings(headers)["x"]["headers"],
        json!({"A": "1", "B": "2"})
    );
}

#[test]
fn a_pasted_command_is_named_after_what_it_runs() {
    for (line, name) in [
        ("python3 server.py", "server"),
        ("python3 -m mcp_server_git --repository /d", "git"),
        ("py C:\\tools\\notes.py", "notes"),
        ("uv run weather.py", "weather"),
        (
            "uv --directory /d run --with mcp mcp run weather.py",
            "weather",
        ),
        ("uv tool run mcp-foo", "foo"),
        ("uvx --from git+https://a.example/x mcp-foo", "foo"),
        ("deno run -A jsr:@x/mcp-foo", "foo"),
        ("deno run npm:foo-mcp@1", "foo"),
        ("pipx run mcp-foo==1", "foo"),
        ("bun x foo-mcp", "foo"),
        ("npm exec -- @x/foo-mcp", "foo"),
        ("pnpx foo-mcp", "foo"),
        ("cmd /c npx -y foo-mcp", "foo"),
        ("docker run -i -v /a:/b foo-mcp arg", "foo"),
        ("docker mcp gateway run", "docker"),
    ] {
        let read = read_text(line).unwrap_or_else(|error| panic!("{line}: {error}"));
        let names: Vec<&str> = read.servers.iter().map(|server| &*server.name).collect();
        assert_eq!(names, [name], "{line}");
    }
}

#[test]
fn other_texts_are_refused() {
    for (text, why) in [
        ("", "not a client's config"),
        ("hello there", "not a client's config"),
        ("{\"a\": 1}", "not a client's config"),
        ("[servers.x\nurl = 1", "TOML"),
        ("{\"mcpServers\": {", "JSON"),
        ("claude mcp list", "only with `add`"),
        ("npm install -g some-mcp", "`npm install` does not start"),
        ("docker pull x/y", "`docker pull` does not start"),
        ("claude mcp add --what x http://a", "--what"),
        ("claude mcp add only-a-name", "neither a URL"),
        (
            "gemini mcp add x http://a --timeout",
            "`--timeout` needs a value",
        ),
    ] {
        let error = read_text(text).unwrap_err().to_string();
        assert!(error.contains(why), "{text}: {error}");
    }
}

#[test]
fn a_client_s_file_without_servers_has_none() {
    for (path, text) in [
        (
            "/home/ada/.claude.json",
            r#"{"numStartups": 5, "projects": {"/x": {"mcpServers": {}}}, "name": "ada"}"#,
        ),
        (
            "/home/ada/.gemini/settings.json",
            r#"{"theme": "dark", "ui": {"a": 1}} // x"#,
        ),
        (
            "/home/ada/.codex/config.toml",
            "model = \"x\"\n[projects.\"/x\"]\ntrust_level = \"trusted\"\n",
        ),
        (
            "/home/ada/.config/goose/config.yaml",
            "GOOSE_MODEL: x\nextensions:\n  developer:\n    type: builtin\n    name: developer\n",
        ),
        ("/x/mcp.json", ""),
    ] {
        assert_eq!(
            settings(read_file(Path::new(path), text).unwrap()),
            json!({}),
            "{path}"
        );
    }
}

#[test]
fn dollar_signs_of_a_client_s_file_mean_themselves() {
    let entry = json!({ "command": "x", "args": ["c$$d", "${NOPE"],
        "env": { "P": "a$$b", "Q": "${Q}5$" } });
    let read = settings(read_text(&json!({ "mcpServers": { "x": entry } }).to_string()).unwrap());
    let ours = json!({ "command": "x", "args": ["c$$$$d", "$${NOPE"],
        "env": { "P": "a$$$$b", "Q": "${Q}5$" } });
    assert_eq!(read["x"], ours);
    let line = read_text("KEY='a$$b' npx x 'c$$d'")
        .unwrap()
        .servers
        .remove(0)
        .settings;
    assert_eq!(line["args"], json!(["x", "c$$$$d"]));
    assert_eq!(line["env"], json!({ "KEY": "a$$$$b" }));
    let registry = json!({ "name": "a/x", "title": "5$$",
        "remotes": [{ "type": "sse", "url": "https://a.example/$$" }] });
    let registry = settings(read_text(&registry.to_string()).unwrap());
    assert_eq!(
        registry["x"],
        json!({ "title": "5$$$$", "type": "sse", "url": "https://a.example/$$$$" })
    );
    // Our own format keeps its escape.
    let ours = settings(read_text("[servers.x]\ncommand = 'x'\nargs = ['a$$b']\n").unwrap());
    assert_eq!(ours["x"]["args"], json!(["a$$b"]));
}
