//! Files that change: what is read again, when, and what is not.

use std::path::Path;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::harness::{Era, McpClient, Process, Setup, alive, legacy, only, until};

/// The program with its admin listener on a port that is known, and a server `a`.
async fn start(extra: impl FnOnce(Setup) -> Setup) -> Process {
    let setup = Setup::new()
        .stdio("a", &only(legacy(), &["echo"]))
        .with("gateway", "reload = { interval = \"100ms\" }");
    let process = extra(setup).spawn().await;
    listed(&process).await;
    process
}

/// Waits until what the server lists is in the catalogue.
async fn listed(process: &Process) {
    let series = "moongate_catalog_items{kind=\"tools\",mcp_server=\"a\"} ";
    let some = || async {
        let metrics = get(process, "/metrics").await;
        metrics
            .lines()
            .find_map(|line| line.strip_prefix(series))
            .filter(|n| *n != "0")
            .map(|_| ())
    };
    until("a is listed", some).await;
}

async fn get(process: &Process, path: &str) -> String {
    process.admin(path).await.text_body()
}

async fn server(process: &Process) -> Value {
    let status: Value = serde_json::from_str(&get(process, "/api/v1/status").await).unwrap();
    status["servers"]
        .as_array()
        .unwrap()
        .iter()
        .find(|s| s["name"] == "a")
        .cloned()
        .unwrap_or_default()
}

async fn ready(process: &Process) -> u32 {
    let pid = || async {
        let server = server(process).await;
        server["pid"]
            .as_u64()
            .filter(|_| server["state"] == "ready")
    };
    u32::try_from(until("a is ready", pid).await).unwrap()
}

async fn reloads(process: &Process, outcome: &str) -> f64 {
    let series = format!("moongate_config_reloads_total{{outcome=\"{outcome}\"}} ");
    let metrics = get(process, "/metrics").await;
    metrics
        .lines()
        .find_map(|line| line.strip_prefix(&series))
        .map_or(0.0, |n| n.parse().unwrap())
}

async fn reloaded(process: &Process, outcome: &str, times: f64) {
    let look = || async { (reloads(process, outcome).await >= times).then_some(()) };
    until(
        &format!("{outcome}, {times} times:\n{}", process.log()),
        look,
    )
    .await;
}

async fn tools(process: &Process) -> Vec<String> {
    McpClient::open(&process.mcp(), Era::Modern)
        .await
        .tools()
        .await
}

fn config(process: &Process) -> std::path::PathBuf {
    process.dir.path().join("moongate.toml")
}

/// Writes a file in the way of editors: beside it, and then in its place.
fn replace(path: &Path, text: &str) {
    let beside = path.with_extension("new");
    std::fs::write(&beside, text).unwrap();
    std::fs::rename(beside, path).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_changes_is_read_again_and_a_bad_one_changes_nothing() {
    let process = start(|setup| setup).await;
    let pid = ready(&process).await;
    let good = std::fs::read_to_string(config(&process)).unwrap();
    let certificate = |cert: &str| {
        good.replace(
            "[gateway]\n",
            &format!("[gateway]\ntls = {{ cert = {cert:?}, key = \"/k\" }}\n"),
        )
    };
    let bad = [
        ("no TOML", format!("{good}\n[[[")),
        (
            "an unknown key",
            format!("{good}\n[gatewayy]\nlisten = 1\n"),
        ),
        (
            "a wrong value",
            format!("{good}\n[limits]\nbody = \"much\"\n"),
        ),
        (
            "two views of one server's name",
            format!("{good}\n[views.a]\n"),
        ),
        ("half of it", good[..good.len() / 2 - 3].to_owned()),
        (
            "two servers of one name",
            format!("{good}\n[servers.a]\nurl = \"http://127.0.0.1:1/mcp\"\n"),
        ),
        (
            "a certificate that is not there",
            certificate("/nonexistent/cert.pem"),
        ),
        ("a certificate that cannot be read", certificate("/")),
    ];
    for (n, (what, text)) in bad.into_iter().enumerate() {
        replace(&config(&process), &text);
        reloaded(&process, "refused", n as f64 + 1.0).await;
        assert_eq!(tools(&process).await, ["a__echo"], "{what}");
        assert!(
            get(&process, "/metrics")
                .await
                .contains("moongate_config_reload_failed 1"),
            "{what}"
        );
    }
    assert!(
        process.log().contains("moongate.toml:"),
        "each with its place: {}",
        process.log()
    );
    assert!(
        process.log().contains("did you mean `gateway`?"),
        "{}",
        process.log()
    );
    replace(
        &config(&process),
        &format!("{good}\n[limits]\nbody = \"1MiB\"\n"),
    );
    reloaded(&process, "applied", 1.0).await;
    assert!(
        get(&process, "/metrics")
            .await
            .contains("moongate_config_reload_failed 0")
    );
    assert_eq!(ready(&process).await, pid, "the server was not touched");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_in_any_format_is_refused_or_applied_as_a_whole() {
    for (name, good, bad) in [
        (
            "c.yaml",
            "gateway: {listen: '127.0.0.1:0', admin: '127.0.0.1:0', reload: {interval: 100ms}}\nservers: {}\n",
            [
                "a: [\n",
                "gateway: {listen: '127.0.0.1:0', no_such_key: 1}\n",
            ],
        ),
        (
            "c.json",
            r#"{"gateway":{"listen":"127.0.0.1:0","admin":"127.0.0.1:0","reload":{"interval":"100ms"}}}"#,
            ["{", r#"{"gateway":{"no_such_key":1}}"#],
        ),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join(name);
        std::fs::write(&file, good).unwrap();
        let process = Process::of(&file, dir).await;
        for (n, bad) in (1..).zip(bad) {
            replace(&process.dir.path().join(name), bad);
            reloaded(&process, "refused", f64::from(n)).await;
        }
        assert!(process.log().contains(name), "{}", process.log());
        replace(
            &process.dir.path().join(name),
            &good.replace("100ms", "110ms"),
        );
        reloaded(&process, "applied", 1.0).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_is_still_written_is_not_complained_of() {
    let process = start(|setup| setup).await;
    let pid = ready(&process).await;
    let good = std::fs::read_to_string(config(&process)).unwrap();
    // Truncated and written on, as a slow writer does, never at rest for as long as a config that
    // is meant.
    let next = format!("{good}\n[servers.b]\ncommand = \"/nonexistent/program\"\n");
    std::fs::write(config(&process), "").unwrap();
    for end in 1..=8 {
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        std::fs::write(config(&process), &next[..next.len() * end / 8]).unwrap();
    }
    reloaded(&process, "applied", 1.0).await;
    assert_eq!(reloads(&process, "refused").await, 0.0, "{}", process.log());
    assert_eq!(
        ready(&process).await,
        pid,
        "an empty file would have taken it away"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_moved_link_and_a_new_secret_are_seen() {
    // As Kubernetes mounts a ConfigMap: the file is a link through a directory that is a link,
    // which is moved.
    let setup = Setup::new().stdio("a", &only(legacy(), &["echo"]));
    let key = setup.path("key");
    std::fs::write(&key, "key-number-1-0123456789\n").unwrap();
    let setup = setup
        .with("gateway", "reload = { interval = \"100ms\" }")
        .with(
            "auth.keys.1",
            &format!("name = \"one\"\nkey = \"${{file:{}}}\"", key.display()),
        );
    let process = setup.spawn().await;
    // The kubelet makes such folders writable for everybody.
    let everybody = std::os::unix::fs::PermissionsExt::from_mode(0o777);
    std::fs::set_permissions(process.dir.path(), everybody).unwrap();
    let pid = ready(&process).await;
    let dir = process.dir.path();
    let text = std::fs::read_to_string(config(&process)).unwrap();
    for (version, text) in [
        ("v1", text.clone()),
        ("v2", format!("{text}\n[servers.a.tools]\nallow = []\n")),
    ] {
        std::fs::create_dir(dir.join(version)).unwrap();
        std::fs::write(dir.join(version).join("moongate.toml"), text).unwrap();
    }
    let link = |to: &str| {
        std::os::unix::fs::symlink(to, dir.join("..tmp")).unwrap();
        std::fs::rename(dir.join("..tmp"), dir.join("..data")).unwrap();
    };
    link("v1");
    std::os::unix::fs::symlink("..data/moongate.toml", dir.join("linked")).unwrap();
    std::fs::rename(dir.join("linked"), config(&process)).unwrap();
    link("v2");
    reloaded(&process, "applied", 1.0).await;
    let client =
        McpClient::with_key(&process.mcp(), Era::Modern, Some("key-number-1-0123456789")).await;
    assert!(client.tools().await.is_empty());
    assert_eq!(ready(&process).await, pid);
    replace(&key, "key-number-2-0123456789\n");
    reloaded(&process, "applied", 2.0).await;
    assert_eq!(
        client.request_as(1, "tools/list", json!({})).await.status,
        401
    );
    let client =
        McpClient::with_key(&process.mcp(), Era::Modern, Some("key-number-2-0123456789")).await;
    assert!(client.tools().await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hundred_hangups_while_calls_run() {
    let process = start(|setup| setup.with("gateway", "reload = { watch = false }")).await;
    let pid = ready(&process).await;
    let client = McpClient::open(&process.mcp(), Era::Legacy).await;
    let good = std::fs::read_to_string(config(&process)).unwrap();
    for n in 0..100 {
        let text = match n % 3 {
            0 => format!("{good}\n[limits]\nbody = \"{n}MiB\"\n"),
            1 => format!("{good}\n[limits]\nbody = {{\n"),
            _ => good.clone(),
        };
        std::fs::write(config(&process), text.replace("\"0MiB\"", "\"1MiB\"")).unwrap();
        process.signal(Signal::HUP);
        client.call("a__echo", json!({"n": n})).await.text();
    }
    replace(
        &config(&process),
        &format!("{good}\n[servers.a.tools]\nrename = {{ echo = \"last\" }}\n"),
    );
    process.signal(Signal::HUP);
    until("the last one holds", || async {
        (client.tools().await == ["a__last"]).then_some(())
    })
    .await;
    assert_eq!(ready(&process).await, pid);
    assert!(alive(process.pid()));
    // Who asks while one is read shares the next.
    let before = reloads(&process, "unchanged").await;
    let url = format!("{}/api/v1/reload", process.admin_url().await);
    let asking = (0..100).map(|_| {
        let url = url.clone();
        tokio::spawn(async move {
            crate::harness::HttpClient::new()
                .send("POST", &url, &[], "")
                .await
                .status
        })
    });
    for asked in asking.collect::<Vec<_>>() {
        assert_eq!(asked.await.unwrap(), 200);
    }
    let reloads = reloads(&process, "unchanged").await - before;
    assert!((1.0..100.0).contains(&reloads), "{reloads}");
}

#[tokio::test(flavor = "multi_thread")]
async fn file_watching_and_hangup_can_be_switched_off() {
    let mut process = start(|setup| {
        setup.with(
            "gateway",
            "reload = { watch = false, signal = false, interval = \"100ms\" }",
        )
    })
    .await;
    let good = std::fs::read_to_string(config(&process)).unwrap();
    replace(
        &config(&process),
        &format!("{good}\n[limits]\nbody = \"1MiB\"\n"),
    );
    // What is asked for is done all the same: before that, nobody looked.
    let url = format!("{}/api/v1/reload", process.admin_url().await);
    assert_eq!(
        crate::harness::HttpClient::new()
            .send("POST", &url, &[], "")
            .await
            .status,
        200
    );
    assert_eq!(reloads(&process, "applied").await, 1.0);
    assert_eq!(reloads(&process, "refused").await, 0.0);
    process.signal(Signal::HUP);
    assert!(
        !process.ended().await.success(),
        "the signal ends it, as it ends any program"
    );
}

/// Runs `moongate check --plan`; gives its exit code, output and errors.
async fn check_plan(args: Vec<String>) -> (Option<i32>, String, String) {
    let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_moongate"));
    let output = command
        .arg("check")
        .arg("--plan")
        .args(args)
        .output()
        .await
        .unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (
        output.status.code(),
        text(&output.stdout),
        text(&output.stderr),
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plan_shows_the_tools_that_each_key_gains_or_loses() {
    let keys = "name = \"one\"\nkey = \"key-number-1-0123456789\"\ntools = [\"a__echo\"]";
    let process = start(|setup| {
        setup
            .stdio("a", &only(legacy(), &["echo", "more"]))
            .with("auth.keys.1", keys)
            .with("gateway", "reload = { watch = false }")
    })
    .await;
    let old = process.dir.path().join("old.toml");
    std::fs::copy(config(&process), &old).unwrap();
    let text = std::fs::read_to_string(&old).unwrap();
    let text = text.replace("[\"a__echo\"]", "[\"a__m*\"]")
        + "\n[servers.b]\ncommand = \"/nonexistent/program\"\n";
    std::fs::write(config(&process), &text).unwrap();
    until("its tools are known", || async {
        get(&process, "/metrics")
            .await
            .contains("mcp_server=\"a\"} 2")
            .then_some(())
    })
    .await;
    let address = process.admin_url().await.replace("http://", "");
    let (code, said, err) = check_plan(vec![
        "--admin".into(),
        address.clone(),
        "--format".into(),
        "json".into(),
    ])
    .await;
    assert_eq!(code, Some(0), "{said}{err}");
    let plan: Value = serde_json::from_str(&said).unwrap();
    assert_eq!(plan["changes"]["added"], json!(["b"]));
    assert_eq!(plan["changes"]["settings"], json!(["auth.keys"]));
    assert_eq!(
        plan["keys"],
        json!([{"key": "one", "gains": ["a__more"], "loses": ["a__echo"]}])
    );
    let (_, said, _) = check_plan(vec!["--admin".into(), address.clone()]).await;
    assert!(
        said.contains("key one gains 1:\n  + a__more")
            && said.contains("key one loses 1:\n  - a__echo"),
        "{said}"
    );
    // Nothing was changed by asking.
    assert_eq!(reloads(&process, "applied").await, 0.0);
    let path = |path: &Path| path.to_str().unwrap().to_owned();
    let (code, said, err) = check_plan(vec![
        "--against".into(),
        path(&old),
        path(&config(&process)),
    ])
    .await;
    assert_eq!(code, Some(0), "{err}");
    assert!(
        said.contains("servers that are connected: b") && said.contains("key one: "),
        "{said}"
    );
    std::fs::write(config(&process), "gateway = 7").unwrap();
    assert_eq!(check_plan(vec!["--admin".into(), address]).await.0, Some(2));
    assert_eq!(
        check_plan(vec![
            "--against".into(),
            path(&old),
            path(&config(&process))
        ])
        .await
        .0,
        Some(2)
    );
}
