//! Output of client commands: lists, results, progress.

use super::*;

#[tokio::test]
async fn lists_are_tables() {
    let tools = piped(&["tools"], &[]).await;
    assert_eq!(tools.code, Some(0));
    assert_eq!(tools.err, "");
    let lines: Vec<&str> = tools.out.lines().collect();
    assert_eq!(lines[0], "TOOL           ARGUMENTS         DESCRIPTION");
    assert_eq!(
        lines[2],
        "add            a b               Adds two numbers."
    );
    assert_eq!(
        lines[4],
        "progress       [steps] [ms]      Reports its progress."
    );

    let resources = piped(&["resources"], &[]).await;
    assert!(
        resources.out.starts_with("RESOURCE            TYPE "),
        "{}",
        resources.out
    );
    assert!(resources.out.contains(
        "\n\nTEMPLATE          TYPE        NAME  DESCRIPTION\nmock://item/{id}  text/plain"
    ));

    let prompts = piped(&["prompts"], &["--revision", "2024-11-05"]).await;
    assert!(
        prompts.out.starts_with(
            "PROMPT     ARGUMENTS  DESCRIPTION\ngreet      name       Greets someone.\n"
        )
    );
}

#[tokio::test]
async fn lists_are_sections_of_a_prompt() {
    let tools = piped(&["tools", "--format", "prompt"], &["--demo"]).await;
    assert_eq!(tools.code, Some(0));
    assert!(tools.out.starts_with("# Tools\n"), "{}", tools.out);
    assert!(tools.out.contains(
        "## add\n\nAdd two numbers and return the sum.\n\nArguments:\n\n- `a` (number, required)\n"
    ));
    let prompts = piped(&["prompts", "--format=prompt"], &["--demo"]).await;
    assert!(
        prompts
            .out
            .contains("- `language` (optional): The language to answer in.\n"),
        "{}",
        prompts.out
    );
}

#[tokio::test]
async fn an_empty_list_exits_with_success() {
    let dir = TempDir::new().unwrap();
    let script = odd_script(dir.path());
    let prompts = piped(&["prompts"], &[&script]).await;
    assert_eq!(prompts.code, Some(0));
    assert_eq!(prompts.out, "");
    assert_eq!(prompts.err, "moongate has no prompts\n");
    let resources = piped(&["resources", "--format", "json"], &[&script]).await;
    assert_eq!(
        resources.out,
        "{\"resources\":[],\"resourceTemplates\":[]}\n"
    );
    assert_eq!(resources.err, "");
}

#[tokio::test]
async fn json_is_what_the_server_wrote() {
    let dir = TempDir::new().unwrap();
    let script = odd_script(dir.path());
    let tools = piped(&["tools", "--format", "json"], &[&script]).await;
    assert_eq!(tools.out, format!("{{\"tools\":[{ODD_TOOL}]}}\n"));
    for revision in ["2025-06-18", "2026-07-28"] {
        let called = piped(
            &["call", "odd", "--format", "json"],
            &[&script, "--revision", revision],
        )
        .await;
        assert_eq!(called.out, format!("{ODD_ANSWER}\n"), "{revision}");
    }
    let called = piped(&["call", "odd"], &[&script]).await;
    assert_eq!(called.out, "ab\n");
    let echoed = piped(&["call", "echo", r#"{"z":1.0, "b":1e5,"c":"\u00e9"}"#], &[]).await;
    assert_eq!(echoed.out, "{\"z\":1.0, \"b\":1e5,\"c\":\"\\u00e9\"}\n");
}

#[tokio::test]
async fn pairs_are_typed_by_the_schema() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("script.json");
    let script = MockScript {
        tools: vec![ODD_TOOL.into()],
        ..MockScript::default()
    };
    std::fs::write(&path, serde_json::to_string(&script).unwrap()).unwrap();
    let script = path.to_str().unwrap();
    let pairs = [
        "n=1.50",
        "i=7",
        "b=true",
        r#"o={"k": 1}"#,
        "s=5",
        "more=x=y",
        "raw:=[1]",
    ];
    let called = piped(&[&["call", "odd"], &pairs[..]].concat(), &[script]).await;
    let echoed = r#"{"n":1.50,"i":7,"b":true,"o":{"k": 1},"s":"5","more":"x=y","raw":[1]}"#;
    assert_eq!(called.code, Some(0), "{}", called.err);
    assert_eq!(called.out, format!("{echoed}\n"), "{}", called.err);
    for (pair, wrong) in [
        ("n=x", "of type number"),
        ("i=1.5", "of type integer"),
        ("b=1", "of type boolean"),
    ] {
        let called = piped(&["call", "odd", pair], &[script]).await;
        assert_eq!(called.code, Some(2), "{pair}");
        assert_eq!(called.out, "", "{pair}");
        assert!(called.err.contains(wrong), "{}", called.err);
    }
}

#[tokio::test]
async fn arguments_come_from_stdin() {
    let dir = TempDir::new().unwrap();
    let mut command = command(&["call", "add", "-", "--", MOONGATE, "mock"], dir.path());
    let mut child = command.stdin(Stdio::piped()).spawn().unwrap();
    child
        .stdin
        .take()
        .unwrap()
        .write_all(b"{\"a\": 1,\n \"b\": 2}\n")
        .await
        .unwrap();
    assert_eq!(end(child).await.out, "3\n");
}

#[tokio::test]
async fn resources_and_prompts_are_text() {
    assert_eq!(
        piped(&["read", "mock://static/text"], &[]).await.out,
        "Hello, wörld.\nA second line.\n"
    );
    let blob = piped(&["read", "mock://static/blob"], &[]).await;
    assert_eq!(
        blob.out,
        "[blob: application/octet-stream, 256 bytes, mock://static/blob]\n"
    );
    let raw = piped(
        &["read", "mock://item/7", "--format", "json"],
        &["--revision", "2025-11-25"],
    )
    .await;
    assert_eq!(
        raw.out,
        "{\"contents\":[{\"uri\":\"mock://item/7\",\"mimeType\":\"text/plain\",\"text\":\"item 7\"}]}\n"
    );
    assert_eq!(
        piped(&["get", "greet", "name=5"], &[]).await.out,
        "[user]\nPlease greet 5 warmly.\n"
    );
    assert_eq!(
        piped(&["get", "plain"], &[]).await.out,
        "[user]\nThis is the prompt plain.\n"
    );
    let missing = piped(&["read", "mock://nothing"], &[]).await;
    assert_eq!(missing.code, Some(1));
    assert_eq!(missing.out, "");
    assert!(
        missing.err.starts_with("error: Resource not found"),
        "{}",
        missing.err
    );
    assert_eq!(piped(&["get", "greet"], &[]).await.code, Some(1));
}

#[tokio::test]
async fn progress_and_logs_go_to_stderr() {
    for revision in Revision::ALL.map(Revision::date) {
        let mock = ["--revision", revision];
        let called = piped(&["call", "progress", "steps=2"], &mock).await;
        assert_eq!(called.code, Some(0), "{revision}");
        assert_eq!(called.out, "2 steps\n", "{revision}");
        assert!(
            called.err.contains("progress 2/2"),
            "{revision}: {}",
            called.err
        );
        let called = piped(&["call", "log", "text=hey", "level=error"], &mock).await;
        assert_eq!(called.out, "logged\n", "{revision}");
        assert_eq!(called.err, "error (mock): hey\n", "{revision}");
        let called = piped(&["call", "log", "text=hey", "level=debug"], &mock).await;
        assert_eq!(called.out, "logged\n", "{revision}");
        assert_eq!(called.err, "", "{revision}");
    }
}

#[tokio::test]
async fn an_elicitation_without_a_terminal_is_declined() {
    let called = piped(&["call", "elicit"], &[]).await;
    assert_eq!(called.code, Some(1));
    assert_eq!(called.out, "");
    assert!(called.err.contains("requires a terminal"), "{}", called.err);
    let called = piped(&["call", "elicit"], &["--revision", "2025-06-18"]).await;
    assert_eq!(called.code, Some(1));
    assert!(called.out.contains("did not declare"), "{}", called.out);
    let called = piped(&["call", "sample"], &[]).await;
    assert!(called.err.contains("it needs sampling"), "{}", called.err);
}
