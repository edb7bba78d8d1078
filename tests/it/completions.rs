//! Words for TAB in a shell, and the address of the page.

use std::path::Path;
use std::process::Command;

use crate::harness::{HttpClient, JSON, Setup, legacy, only, serve};

const PROGRAM: &str = env!("CARGO_BIN_EXE_moongate");

/// Runs a script of a shell with the program on the path.
async fn run(shell: &str, args: &[&str], script: String, dir: &Path) -> String {
    let program = Path::new(PROGRAM).parent().unwrap().display().to_string();
    let mut command = Command::new(shell);
    command
        .args(args)
        .arg(script)
        .current_dir(dir)
        .env("HOME", dir)
        .env_remove("MOONGATE_CONFIG");
    command.env(
        "PATH",
        format!("{program}:{}", std::env::var("PATH").unwrap()),
    );
    let output = tokio::task::spawn_blocking(move || command.output())
        .await
        .unwrap();
    let output = output.unwrap_or_else(|error| {
        panic!("{shell}: {error}; tests/shells/setup.sh installs the shells")
    });
    assert!(output.stderr.is_empty(), "{shell}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// Completes a line in bash, as TAB does.
async fn bash(line: &[&str], dir: &Path) -> Vec<String> {
    let words: Vec<String> = line.iter().map(|word| format!("'{word}'")).collect();
    let script = format!(
        "source <(moongate completions bash); COMP_WORDS=(moongate {}); COMP_CWORD={}; _moongate; \
         printf '%s\\n' \"${{COMPREPLY[@]}}\"",
        words.join(" "),
        line.len()
    );
    let out = run("bash", &["--norc", "-c"], script, dir).await;
    out.lines()
        .filter(|line| !line.is_empty())
        .map(str::to_owned)
        .collect()
}

/// Completes a line in zsh. What zsh would offer is printed instead.
async fn zsh(line: &[&str], dir: &Path) -> Vec<String> {
    let words: Vec<String> = line.iter().map(|word| format!("'{word}'")).collect();
    let script = format!(
        "autoload -U compinit; compinit -u -D; source <(moongate completions zsh); \
         compadd() {{ shift; print -rl -- \"$@\" }}; _files() {{ print files }}; \
         words=(moongate {}); CURRENT={}; _moongate",
        words.join(" "),
        line.len() + 1
    );
    run("zsh", &["-f", "-c"], script, dir)
        .await
        .lines()
        .map(str::to_owned)
        .collect()
}

/// Completes a line in fish.
async fn fish(line: &str, dir: &Path) -> Vec<String> {
    let script = format!("moongate completions fish | source; complete -C 'moongate {line}'");
    run("fish", &["--no-config", "-c"], script, dir)
        .await
        .lines()
        .map(str::to_owned)
        .collect()
}

#[tokio::test]
async fn tab_offers_the_servers_of_the_running_gateway() {
    let server = serve(only(legacy(), &["echo", "fail"])).await;
    let gateway = Setup::new()
        .http("first", &server.url)
        .http("second", &server.url)
        .start()
        .await;
    gateway.ready(&["first", "second"]).await;
    let admin = gateway.app.admin.unwrap().to_string();
    let dir = tempfile::tempdir().unwrap();
    assert_eq!(
        bash(&["restart", "--admin", &admin, ""], dir.path()).await,
        ["first", "second"]
    );
    assert_eq!(
        bash(&["restart", "--admin", &admin, "s"], dir.path()).await,
        ["second"]
    );
    assert_eq!(
        bash(&["disable", "--admin", &admin, "first", ""], dir.path()).await,
        ["echo", "fail"]
    );
    assert_eq!(
        bash(
            &["explain", "--admin", &admin, "ci", "first__e"],
            dir.path()
        )
        .await,
        ["first__echo"]
    );
    assert_eq!(bash(&["compl"], dir.path()).await, ["completions"]);
    let config = format!("[gateway]\nadmin = \"{admin}\"\n");
    std::fs::write(dir.path().join("moongate.toml"), config).unwrap();
    assert_eq!(
        bash(&["restart", ""], dir.path()).await,
        ["first", "second"]
    );
}

#[tokio::test]
async fn zsh_and_fish_offer_names_and_files_only_where_there_is_no_name() {
    let server = serve(only(legacy(), &["echo"])).await;
    let gateway = Setup::new()
        .http("first", &server.url)
        .http("second", &server.url)
        .start()
        .await;
    gateway.ready(&["first", "second"]).await;
    let dir = tempfile::tempdir().unwrap();
    let config = format!("[gateway]\nadmin = \"{}\"\n", gateway.app.admin.unwrap());
    std::fs::write(dir.path().join("moongate.toml"), config).unwrap();
    assert_eq!(zsh(&["restart", ""], dir.path()).await, ["first", "second"]);
    assert_eq!(zsh(&["restart", "s"], dir.path()).await, ["second"]);
    assert_eq!(zsh(&["connect", "curs"], dir.path()).await, ["cursor"]);
    assert_eq!(zsh(&["check", ""], dir.path()).await, ["files"]);
    assert_eq!(fish("restart ", dir.path()).await, ["first", "second"]);
    assert_eq!(fish("restart s", dir.path()).await, ["second"]);
    assert_eq!(fish("connect curs", dir.path()).await, ["cursor"]);
    assert_eq!(fish("check ", dir.path()).await, ["moongate.toml"]);
}

/// Packages install the scripts as files, which the shells read at the first TAB.
#[tokio::test]
async fn zsh_and_fish_complete_at_the_first_tab_from_a_file() {
    let dir = tempfile::tempdir().unwrap();
    let script = "moongate completions zsh > _moongate; fpath=($PWD $fpath); \
                  autoload -U compinit; compinit -u -D; compadd() { shift; print -rl -- \"$@\" }; \
                  words=(moongate compl); CURRENT=2; _moongate";
    let found = run("zsh", &["-f", "-c"], script.to_owned(), dir.path()).await;
    assert_eq!(found, "completions\n");
    let script = "moongate completions fish > moongate.fish; set -p fish_complete_path $PWD; \
                  complete -C 'moongate compl'";
    let found = run(
        "fish",
        &["--no-config", "-c"],
        script.to_owned(),
        dir.path(),
    )
    .await;
    assert_eq!(found, "completions\n");
}

#[tokio::test]
async fn without_a_gateway_there_is_silence_and_clients_are_known() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(
        dir.path().join("moongate.toml"),
        "[gateway]\nadmin = \"127.0.0.1:2\"\n[views.work]\n",
    )
    .unwrap();
    assert!(bash(&["restart", ""], dir.path()).await.is_empty());
    assert_eq!(bash(&["connect", "curs"], dir.path()).await, ["cursor"]);
    assert_eq!(bash(&["add", "deep"], dir.path()).await, ["deepwiki"]);
    assert_eq!(
        bash(&["explain", "--endpoint", ""], dir.path()).await,
        ["work"]
    );
}

#[tokio::test]
async fn the_address_of_the_page_is_printed() {
    let gateway = Setup::new().start().await;
    let admin = gateway.app.admin.unwrap();
    let dir = tempfile::tempdir().unwrap();
    let out = run(
        "sh",
        &["-c"],
        format!("moongate open --print --admin {admin}"),
        dir.path(),
    )
    .await;
    assert_eq!(out, format!("http://{admin}/\n"));
    let keys = "name = \"o\"\nkey = \"operator-key-0123456789\"\nrole = \"operate\"";
    let guarded = Setup::new().with("admin.keys.1", keys).start().await;
    let admin = guarded.app.admin.unwrap();
    let script =
        format!("MOONGATE_ADMIN_KEY=operator-key-0123456789 moongate open --print --admin {admin}");
    let out = run("sh", &["-c"], script, dir.path()).await;
    let ticket = out
        .trim_end()
        .strip_prefix(&format!("http://{admin}/signin#t="))
        .unwrap_or_else(|| panic!("{out}"));
    let proof = serde_json::json!({ "ticket": ticket }).to_string();
    let url = format!("http://{admin}/api/v1/signin");
    assert_eq!(
        HttpClient::new()
            .send("POST", &url, &[JSON], proof)
            .await
            .status,
        200
    );
    let out = run(
        "sh",
        &["-c"],
        format!("moongate open --print --admin {admin} 2>&1"),
        dir.path(),
    )
    .await;
    assert!(
        out.contains("MOONGATE_ADMIN_KEY") && out.ends_with(&format!("http://{admin}/\n")),
        "{out}"
    );
    let refused = "moongate open --print --admin unix:/x 2>&1; echo $?".to_owned();
    let out = run("sh", &["-c"], refused, dir.path()).await;
    assert!(
        out.contains("a browser cannot open a Unix socket") && out.trim_end().ends_with('1'),
        "{out}"
    );
}
