//! Repairs of `moongate doctor --fix`: each cures its finding and leaves the rest alone.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use super::{ADMIN, codes, config, doctor, doctor_text};

/// Writes the files of four clients: another gateway, a wrong member, a server that the gateway
/// has, and no JSON.
fn write_client_entries(dir: &Path) {
    let entry = |path: &str, text: &str| {
        let path = dir.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
    entry(
        ".cursor/mcp.json",
        r#"{"mcpServers":{"moongate":{"url":"http://elsewhere.example/mcp"}}}"#,
    );
    entry(
        ".codeium/windsurf/mcp_config.json",
        r#"{"mcpServers":{"moongate":{"url":"http://127.0.0.1:1/mcp"}}}"#,
    );
    let mine = r#""mine":{"url":"http://127.0.0.1:9/mcp"},"off":{"url":"http://127.0.0.1:9/mcp","disabled":true}"#;
    entry(
        ".kiro/settings/mcp.json",
        &format!("{{\"mcpServers\":{{{mine}}}}}"),
    );
    entry(".factory/mcp.json", "{ \"mcpServers\": { ");
}

#[tokio::test]
async fn a_repair_cures_its_finding_and_clients_are_judged() {
    let dir = tempfile::tempdir().unwrap();
    let (_, findings) = doctor(dir.path(), &[], &[("MOONGATE_GATEWAY__ADMIN", ADMIN)]).await;
    assert!(codes(&findings).contains("MG-C01"), "{findings:#?}");
    let file = dir.path().join("moongate.toml");
    let text = config(
        "[servers.a]\nurl = \"http://127.0.0.1:9/mcp\"\nheaders = \
         { Authorization = \"Bearer s3cr3t\" }\n",
    );
    std::fs::write(&file, text).unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o644)).unwrap();
    let (_, findings) = doctor(dir.path(), &["--fix", "--yes"], &[]).await;
    assert!(!codes(&findings).contains("MG-C06"), "{findings:#?}");
    assert_eq!(
        std::fs::metadata(&file).unwrap().permissions().mode() & 0o777,
        0o600
    );
    for (name, part) in [("aa", "did you mean `a`?"), ("nosuch", "the config has a")] {
        let (exit, out, said) = doctor_text(dir.path(), &[name]).await;
        assert!(
            exit == 2 && out.is_empty() && said.contains(part),
            "{name}: {exit} {out} {said}"
        );
    }
    write_client_entries(dir.path());
    let (_, findings) = doctor(dir.path(), &[], &[]).await;
    let of = |code: &str| {
        findings
            .iter()
            .find(|finding| finding["code"] == code)
            .unwrap_or_else(|| panic!("{code}: {findings:#?}"))
    };
    assert!(
        of("MG-K01")["fix"]
            .as_str()
            .unwrap()
            .starts_with("moongate connect cursor")
    );
    assert!(
        of("MG-K04")["message"]
            .as_str()
            .unwrap()
            .contains("`serverUrl`"),
        "{findings:#?}"
    );
    assert_eq!(of("MG-K03")["fix"], "moongate import kiro --take-over");
    assert!(
        of("MG-K03")["message"].as_str().unwrap().ends_with(": a"),
        "{findings:#?}"
    );
    assert!(
        of("MG-K08")["place"]
            .as_str()
            .unwrap()
            .contains(".factory/mcp.json:1"),
        "{findings:#?}"
    );
    // A mistake in the table of the addresses leaves them unknown, and then no entry is foreign.
    std::fs::write(&file, config("typo = 1\n")).unwrap();
    let (_, findings) = doctor(dir.path(), &[], &[]).await;
    assert!(
        codes(&findings).contains("MG-C03") && !codes(&findings).contains("MG-K01"),
        "{findings:#?}"
    );
    let (exit, findings) = doctor(dir.path(), &["a"], &[]).await;
    assert!(
        exit == 1 && codes(&findings).contains("MG-C03"),
        "a broken config costs each server: {findings:#?}"
    );
}

#[tokio::test]
async fn a_repair_for_one_server_leaves_the_rest_alone() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("moongate.toml");
    let servers = "[servers.a]\nurl = \"http://127.0.0.1:9/mcp\"\n[servers.b]\nurl \
                   = \"http://127.0.0.1:9/mcp\"\n\
                   headers = { Authorization = \"Bearer s3cr3t-value-0123456789\" }\n";
    std::fs::write(&file, config(servers)).unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o644)).unwrap();
    let mode = || std::fs::metadata(&file).unwrap().permissions().mode() & 0o777;
    let (_, all) = doctor(dir.path(), &[], &[]).await;
    assert!(
        codes(&all).contains("MG-C06"),
        "there is something to repair: {all:?}"
    );
    let (_, findings) = doctor(dir.path(), &["a", "--fix", "--yes"], &[]).await;
    assert!(
        findings.iter().all(|finding| finding["server"] == "a"),
        "{findings:?}"
    );
    assert_eq!(mode(), 0o644, "the file is no matter of that server alone");
    doctor(dir.path(), &["--fix", "--yes"], &[]).await;
    assert_eq!(mode(), 0o600);
}

#[tokio::test]
async fn a_package_of_the_table_gets_its_version_and_a_writable_file_is_closed() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("moongate.toml");
    let text =
        config("[servers.clock] # mine\ncommand = \"uvx\"\nargs = [\"mcp-server-time\"] # why\n");
    std::fs::write(&file, &text).unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o666)).unwrap();
    let env = [("PATH", "")];
    let (_, findings) = doctor(dir.path(), &[], &env).await;
    for code in ["MG-C06", "MG-C07"] {
        let found = findings
            .iter()
            .find(|finding| finding["code"] == code)
            .unwrap();
        assert_eq!(found["can_fix"], true, "{found}");
    }
    let run = async |args: &[&str]| doctor_text(dir.path(), args).await.2;
    let (_, out, said) = doctor_text(dir.path(), &["clock", "--fix"]).await;
    assert!(
        out.contains("MG-C07") && said.contains("nobody can confirm it here: `--fix --yes`"),
        "{out}{said}"
    );
    assert_eq!(
        std::fs::read_to_string(&file).unwrap(),
        text,
        "nothing is repaired unasked"
    );
    let said = run(&["clock", "--fix", "--yes"]).await;
    assert!(
        said.contains("- args = [\"mcp-server-time\"] # why\n+ args = [\"mcp-server-time@20"),
        "{said}"
    );
    let repaired = std::fs::read_to_string(&file).unwrap();
    assert!(
        repaired.contains("[servers.clock] # mine\n") && repaired.contains("] # why\n"),
        "{repaired}"
    );
    let said = run(&["--fix", "--yes"]).await;
    assert!(said.contains("chmod 600"), "{said}");
    assert_eq!(
        std::fs::metadata(&file).unwrap().permissions().mode() & 0o777,
        0o600
    );
    let (_, findings) = doctor(dir.path(), &[], &env).await;
    assert!(
        codes(&findings).is_disjoint(&["MG-C06", "MG-C07"].map(str::to_owned).into()),
        "{findings:#?}"
    );
}
