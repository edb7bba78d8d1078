//! Commands for a running gateway whose config somebody broke meanwhile, and plans of a candidate.

use serde_json::Value;

use crate::harness::user_home::UserHome;
use crate::harness::{lasting_port, until};

/// Config of a gateway with one server that is switched off later.
fn config() -> String {
    let listen = lasting_port();
    let admin = lasting_port();
    let program = env!("CARGO_BIN_EXE_moongate");
    format!(
        "[gateway]\nlisten = \"127.0.0.1:{listen}\"\nadmin = \"127.0.0.1:{admin}\"\n\n\
         [servers.a]\ncommand = {program:?}\nargs = [\"mock\"]\n[servers.a.tools]\ndeny = \
         [\"no_such_*\"]\n"
    )
}

#[tokio::test]
async fn a_broken_config_cuts_no_command_off_from_the_gateway_that_runs() {
    let home = UserHome::new();
    home.write("work/moongate.toml", &config());
    let _gateway = home.start(&["serve"]);
    until("the gateway is ready", || async {
        let status = home.run(&["status"]).await;
        (status.code == Some(0) && status.out.contains("ready")).then_some(())
    })
    .await;
    let edited = home.run(&["disable", "a", "echo"]).await;
    assert_eq!(edited.code, Some(0), "{edited:?}");
    let working = home.read("work/moongate.toml");
    home.write("work/moongate.toml", &format!("{working}[gateway\n"));
    let status = home.run(&["status"]).await;
    assert!(
        status.code == Some(0) && status.out.contains("ready"),
        "{status:?}"
    );
    let reload = home.run(&["reload"]).await;
    assert!(
        reload.code != Some(0) && reload.err.contains("moongate.toml"),
        "{reload:?}"
    );
    assert!(!reload.err.contains("with --admin"), "{reload:?}");
    let list = home.run(&["undo", "--list"]).await;
    assert!(
        list.code == Some(0) && list.out.contains("moongate.toml"),
        "{list:?}"
    );
    let undo = home.run(&["undo"]).await;
    assert!(
        undo.code == Some(1) && undo.err.contains("changed after the last edit"),
        "{undo:?}"
    );
    let looked = home.run(&["doctor", "--format", "json"]).await;
    let findings: Value = serde_json::from_str(&looked.out).unwrap();
    let codes: Vec<&str> = findings["findings"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|finding| finding["code"].as_str())
        .collect();
    assert!(
        codes.contains(&"MG-C02") && codes.contains(&"MG-C15"),
        "{looked:?}"
    );
    // Once the file is whole again, it is the one that says where the gateway is.
    home.write("work/moongate.toml", &working);
    assert_eq!(home.run(&["undo"]).await.code, Some(0));
}

#[tokio::test]
async fn a_candidate_is_planned_against_the_running_gateway() {
    let home = UserHome::new();
    let now = config();
    home.write("work/moongate.toml", &now);
    let _gateway = home.start(&["serve"]);
    until("the gateway is ready", || async {
        (home.run(&["status"]).await.code == Some(0)).then_some(())
    })
    .await;
    home.write(
        "work/new.toml",
        &format!("{now}[servers.b]\nurl = \"http://127.0.0.1:1/mcp\"\n"),
    );
    let plan = home.run(&["check", "new.toml", "--plan"]).await;
    assert!(
        plan.code == Some(0) && plan.out.contains("servers that are connected: b"),
        "{plan:?}"
    );
    home.write("work/new.toml", "[servers.b]\nurl = 5\n");
    assert_eq!(
        home.run(&["check", "new.toml", "--plan"]).await.code,
        Some(2)
    );
    let same = home.run(&["check", "moongate.toml", "--plan"]).await;
    assert!(same.out.contains("nothing is different"), "{same:?}");
    let away = UserHome::new();
    away.write("work/new.toml", &now);
    let nobody = away.run(&["check", "new.toml", "--plan"]).await;
    assert!(
        nobody.code == Some(1) && nobody.err.contains("cannot connect"),
        "{nobody:?}"
    );
}

#[tokio::test]
async fn the_config_variable_names_what_runs_and_never_the_candidate() {
    let home = UserHome::new();
    let now = config();
    home.write("other/moongate.toml", &now);
    home.write(
        "work/new.toml",
        &format!("{now}[servers.b]\nurl = \"http://127.0.0.1:1/mcp\"\n"),
    );
    let file = home.path("other/moongate.toml");
    let variable = [("MOONGATE_CONFIG", file.to_str().unwrap())];
    let _gateway = home.start(&["serve", "--config", "../other/moongate.toml"]);
    until("the gateway is ready", || async {
        (home.run_in(&["status"], &variable).await.code == Some(0)).then_some(())
    })
    .await;
    for args in [
        &["check", "--plan", "-c", "new.toml"][..],
        &["check", "new.toml", "--plan"],
    ] {
        let plan = home.run_in(args, &variable).await;
        assert!(
            plan.code == Some(0) && plan.out.contains("servers that are connected: b"),
            "{args:?}: {plan:?}"
        );
    }
    let reload = home.run_in(&["check", "--plan"], &variable).await;
    assert!(
        reload.code == Some(0) && reload.out.contains("nothing is different"),
        "{reload:?}"
    );
    let plain = home.run_in(&["check", "new.toml"], &variable).await;
    assert!(
        plain.code == Some(0) && plain.err.contains("new.toml: fine; 2 servers"),
        "{plain:?}"
    );
    let both = ["check", "new.toml", "-c", "third.toml"];
    let both = home.run_in(&both, &variable).await;
    assert!(
        both.code == Some(2) && both.err.contains("not both"),
        "{both:?}"
    );
}
