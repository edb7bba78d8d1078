//! Commands of the client that fail, and servers that they reach over HTTP.

use super::*;

#[tokio::test]
async fn failures_name_their_cause_and_have_exit_codes() {
    let failed = piped(&["call", "fail", "text=no luck"], &[]).await;
    assert_eq!(failed.code, Some(1));
    assert_eq!(failed.out, "no luck\n");
    assert!(
        failed.err.contains("the tool fail reports that it failed"),
        "{}",
        failed.err
    );
    let error = piped(&["call", "error", "code=-32050", "message=no"], &[]).await;
    assert_eq!(error.code, Some(1));
    assert_eq!(error.out, "");
    assert_eq!(error.err, "error: no (code -32050)\n");
    let unknown = piped(&["call", "ad", "a=1"], &[]).await;
    assert_eq!(unknown.code, Some(1));
    assert!(
        unknown.err.contains("did you mean \"add\"?"),
        "{}",
        unknown.err
    );
    let unknown = piped(&["call", "something", "{}"], &[]).await;
    assert!(
        unknown.err.contains("`moongate tools` shows"),
        "{}",
        unknown.err
    );
    let crashed = piped(&["call", "crash", "--timeout", "30s"], &[]).await;
    assert_eq!(crashed.code, Some(1));
    assert!(
        crashed.err.contains("exited with status 3") && !crashed.err.contains("gateway"),
        "{}",
        crashed.err
    );
    let hung = piped(&["call", "hang", "--timeout", "300ms"], &[]).await;
    assert_eq!(hung.code, Some(1));
    assert_eq!(
        hung.err,
        "error: moongate did not answer within 300ms (--timeout)\n"
    );
    assert_eq!(
        run(&["tools", "--", "/no/such/command"]).await.code,
        Some(1)
    );
    let ended = run(&["tools", "--", "sh", "-c", "echo some words >&2; exit 4"]).await;
    assert!(
        ended.err.contains("exited with status 4") && ended.err.contains("some words"),
        "{}",
        ended.err
    );
}

#[tokio::test]
async fn bad_usage_fails_before_a_server_is_started() {
    for (args, wrong) in [
        (&["call", "x", "{"][..], "not JSON"),
        (&["call", "x", "[1]"], "not an object"),
        (&["call", "x", "a=1", "b"], "KEY=VALUE"),
        (&["call", "x", "a=1", "a=2"], "twice"),
        (&["call", "x", "-"], "not JSON"),
        (&["call"], "required"),
        (&["tools", "--url", "nowhere"], "is not a URL"),
        (&["tools", "--url", "ftp://127.0.0.1/"], "http"),
        (&["tools", "--timeout", "5"], "has no unit"),
        (&["tools", "--protocol", "2020-01-01"], "2026-07-28"),
        (&["tools", "--format", "xml"], "table, json, prompt"),
        (&["call", "x", "--format", "table"], "text, json"),
        (
            &["tools", "--server", "a", "--", "b"],
            "cannot be used with",
        ),
        (
            &["tools", "--server", "a", "--url", "http://127.0.0.1/"],
            "cannot be used with",
        ),
        (
            &["tools", "--config", "a.toml"],
            "give its endpoint with --url",
        ),
        (&["nonsense"], "nonsense"),
    ] {
        let ran = run(args).await;
        assert_eq!(ran.code, Some(2), "{args:?}");
        assert_eq!(ran.out, "", "{args:?}");
        assert!(ran.err.contains(wrong), "{args:?}: {}", ran.err);
    }
}

#[tokio::test]
async fn a_direct_command_leaves_no_process_behind() {
    for interrupted in [false, true] {
        let dir = TempDir::new().unwrap();
        // It never answers, ends neither with its input nor when asked to, and has a child that
        // does the same.
        let stubborn =
            "trap '' TERM; sleep 300 & echo $! > child; echo $$ > leader; sleep 300; sleep 300";
        let limit = if interrupted { "50s" } else { "1s" };
        let child = command(
            &["tools", "--timeout", limit, "--", "sh", "-c", stubborn],
            dir.path(),
        )
        .spawn()
        .unwrap();
        let pid = pid_of(&child);
        let told = |name: &str| {
            std::fs::read_to_string(dir.path().join(name))
                .ok()?
                .trim()
                .parse()
                .ok()
        };
        while told("leader").is_none() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        if interrupted {
            kill_process(pid, Signal::INT).unwrap();
        }
        assert_eq!(end(child).await.code, Some(1));
        for name in ["leader", "child"] {
            let pid = Pid::from_raw(told(name).unwrap()).unwrap();
            // Whoever adopted it may take a moment to notice its end.
            let gone = async {
                while test_kill_process(pid).is_ok() {
                    tokio::task::yield_now().await
                }
            };
            timeout(Duration::from_secs(5), gone)
                .await
                .unwrap_or_else(|_| panic!("{name} is still there"));
        }
    }
}

#[tokio::test]
async fn a_closed_stdout_exits_with_success() {
    let dir = TempDir::new().unwrap();
    let mut child = command(
        &["call", "big", "bytes=3000000", "--", MOONGATE, "mock"],
        dir.path(),
    )
    .spawn()
    .unwrap();
    drop(child.stdout.take());
    let ran = end(child).await;
    assert_eq!(ran.code, Some(0));
    assert_eq!(ran.err, "");
}

#[tokio::test]
async fn servers_of_both_eras_are_reached_by_url() {
    for revision in [
        Revision::V2025_03_26,
        Revision::V2025_11_25,
        Revision::V2026_07_28,
    ] {
        let script = MockScript {
            revisions: vec![revision],
            ..MockScript::standard()
        };
        let mock = serve_http(script, "127.0.0.1:0".parse().unwrap())
            .await
            .unwrap();
        let called = run(&["call", "add", "a=1", "b=2.5", "--url", &mock.url]).await;
        assert_eq!(called.code, Some(0), "{}", called.err);
        assert_eq!(called.out, "3.5\n", "{}", called.err);
        // An argument that has to be sent as a header, too.
        let called = run(&["call", "region", r#"{"region":"eu"}"#, "--url", &mock.url]).await;
        assert_eq!(called.code, Some(0), "{}", called.err);
        assert_eq!(called.out, "eu\n", "{}", called.err);
        let called = run(&[
            "call",
            "counter",
            "--protocol",
            revision.date(),
            "--url",
            &mock.url,
        ])
        .await;
        assert_eq!(called.code, Some(0), "{}", called.err);
        let counters = mock.counters();
        assert_eq!(
            counters.deleted, counters.sessions,
            "every session was ended"
        );
        mock.stop().await;
    }
}

#[tokio::test]
async fn an_unreachable_gateway_is_one_clear_error() {
    let nobody = ReservedAddress::new();
    let ran = run(&[
        "tools",
        "--url",
        &format!("http://{}/mcp", nobody.address()),
    ])
    .await;
    assert_eq!(ran.code, Some(1));
    assert_eq!(ran.out, "");
    assert!(
        ran.err.contains("cannot connect") && ran.err.contains("start it with `moongate`"),
        "{}",
        ran.err
    );
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/mcp", silent.local_addr().unwrap());
    let ran = run(&["tools", "--timeout", "300ms", "--url", &url]).await;
    assert_eq!(ran.code, Some(1));
    assert!(
        ran.err.contains("did not answer within 300ms (--timeout)"),
        "{}",
        ran.err
    );
}

#[tokio::test]
async fn a_gateway_is_used_with_its_key() {
    let gateway = RunningGateway::start().await;
    let called = gateway.run(&["call", "std__add", "a=1", "b=2"]).await;
    assert_eq!(called.code, Some(0), "{}", called.err);
    assert_eq!(called.out, "3\n", "{}", called.err);
    let called = gateway.run(&["call", "std__progress", "steps=2"]).await;
    assert!(called.err.contains("progress 2/2"), "{}", called.err);
    let called = gateway
        .run(&["call", "std__echo", r#"{"z":1.0, "b":1e5}"#])
        .await;
    assert_eq!(called.out, "{\"z\":1.0, \"b\":1e5}\n");
    assert_eq!(
        gateway.run(&["read", "mock://item/7"]).await.out,
        "item 7\n"
    );
    assert_eq!(
        gateway.run(&["get", "std__greet", "name=Ada"]).await.out,
        "[user]\nPlease greet Ada warmly.\n"
    );
    let unknown = gateway.run(&["call", "add", "a=1", "b=2"]).await;
    assert_eq!(unknown.code, Some(1));
    assert!(
        unknown.err.contains("did you mean \"std__add\"?"),
        "{}",
        unknown.err
    );
    let crashed = gateway
        .run(&["call", "std__crash", "--timeout", "30s"])
        .await;
    assert_eq!(crashed.code, Some(1));
    assert!(crashed.out.contains("exited with status 3"), "{crashed:?}");

    let wrong = gateway.run(&["tools", "--key", "mg_wrong"]).await;
    assert_eq!(wrong.code, Some(1));
    assert_eq!(wrong.out, "");
    assert!(
        wrong.err.contains("HTTP status 401") && wrong.err.contains("MOONGATE_KEY"),
        "{}",
        wrong.err
    );
    let elsewhere = gateway.url.replace("/mcp", "/mcp/nothing");
    let ran = run(&["tools", "--key", KEY, "--url", &elsewhere]).await;
    assert!(
        ran.err.contains("404") && ran.err.contains("/mcp/NAME"),
        "{}",
        ran.err
    );
    let health = run(&["health", "--admin", &gateway.admin]).await;
    assert_eq!(health.code, Some(0), "{}", health.err);
    assert_eq!(health.out, "", "{}", health.err);
    let admin = gateway.admin.clone();
    gateway.stop().await;
    assert_eq!(run(&["health", "--admin", &admin]).await.code, Some(1));
}

#[tokio::test]
async fn a_tool_of_a_disconnected_server_is_reported_as_unavailable() {
    let gateway = RunningGateway::start().await;
    let ran = async |tool: &str| {
        let mut command = command(&["call", tool, "--url", &gateway.url], gateway.dir.path());
        command
            .env("MOONGATE_KEY", KEY)
            .env("MOONGATE_GATEWAY__ADMIN", &gateway.admin);
        end(command.spawn().unwrap()).await
    };
    let away = ran("off__echo").await;
    assert_eq!(away.code, Some(1), "{}", away.err);
    assert!(
        away.err
            .contains("the server \"off\" is unavailable (disabled)"),
        "{}",
        away.err
    );
    assert!(
        !away.err.contains("Unknown tool") && !away.err.contains("no tool"),
        "{}",
        away.err
    );
    let unknown = ran("std__nothing").await;
    assert!(unknown.err.contains("Unknown tool"), "{}", unknown.err);
    gateway.stop().await;
}

#[tokio::test]
async fn one_server_of_the_config_is_talked_to_directly() {
    let dir = TempDir::new().unwrap();
    let config = format!(
        "[servers.std]\ncommand = {MOONGATE:?}\nargs = [\"mock\"]\ntools = {{ deny = [\"*\"] }}\n\
         [servers.off]\ncommand = \"nothing\"\nenabled = false\n[servers.other]\nurl \
         = \"${{UNSET_VARIABLE}}\"\n"
    );
    std::fs::write(dir.path().join("moongate.toml"), config).unwrap();
    let called = run_in(
        dir.path(),
        &["call", "add", "a=1", "b=2", "--server", "std"],
    )
    .await;
    assert_eq!(called.code, Some(0), "{}", called.err);
    assert_eq!(called.out, "3\n", "{}", called.err);
    let called = run(&[
        "tools",
        "--server=std",
        "-c",
        dir.path().join("moongate.toml").to_str().unwrap(),
    ])
    .await;
    assert!(called.out.starts_with("TOOL"), "{}", called.err);
    for (name, wrong) in [
        ("off", "disabled"),
        ("nope", "--server"),
        ("other", "UNSET_VARIABLE"),
    ] {
        let ran = run_in(dir.path(), &["tools", "--server", name]).await;
        assert_eq!(ran.code, Some(2), "{name}");
        assert_eq!(ran.out, "", "{name}");
        assert!(ran.err.contains(wrong), "{}", ran.err);
    }
}

#[tokio::test]
async fn a_configured_user_agent_takes_the_place_of_ours() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/mcp", listener.local_addr().unwrap());
    let dir = TempDir::new().unwrap();
    let config = format!("[servers.a]\nurl = \"{url}\"\nheaders = {{ User-Agent = \"mine\" }}\n");
    std::fs::write(dir.path().join("moongate.toml"), config).unwrap();
    let heard = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut head = String::new();
        let mut piece = [0; 4096];
        while !head.contains("\r\n\r\n") {
            let read = stream.read(&mut piece).await.unwrap();
            head += std::str::from_utf8(&piece[..read]).unwrap();
        }
        stream
            .write_all(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
            .await
            .unwrap();
        head.to_ascii_lowercase()
    });
    let failed = run_in(dir.path(), &["tools", "--server", "a"]).await;
    let head = heard.await.unwrap();
    assert!(
        head.contains("user-agent: mine\r\n") && head.matches("user-agent").count() == 1,
        "{head}: {}",
        failed.err
    );
}
