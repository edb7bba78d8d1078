//! Faults of lists: what is too long, odd, endless or always changing. F21–F23.

use std::time::Duration;

use moongate_mock::{CursorMode, GeneratedTools, ListRules, MockScript};
use serde_json::json;

use super::plain;
use crate::faults::rig::RowSetup;
use crate::harness::{ERAS, until};

#[tokio::test]
async fn f21_a_list_that_is_too_long_or_odd_costs_its_own_items() {
    let deep = format!("{}1{}", r#"{"x":"#.repeat(5000), "}".repeat(5000));
    let fault = |mut script: MockScript| {
        script
            .tools
            .push(json!(r#"{"name": "none", "inputSchema": null}"#));
        script.tools.push(json!(format!(
            r#"{{"name": "deep", "inputSchema": {deep}}}"#
        )));
        let cyclic = r##"{"type":"object","properties":{"a":{"$ref":"#"},"b":{"$ref":"http://127.0.0.1:1/schema"}}}"##;
        script.tools.push(json!(format!(
            r#"{{"name": "cyclic", "inputSchema": {cyclic}}}"#
        )));
        script.tools.push(json!(
            r#"{"name": "cyclic", "inputSchema": {"type": "object"}}"#
        ));
        // What is behind the limit is left out.
        let many = (0..10_500)
            .map(|n| json!({"name": format!("t{n}"), "inputSchema": {"type": "object"}}));
        script.tools.extend(many);
        script
    };
    let setting = RowSetup::new(
        "F21",
        "f21_a_list_that_is_too_long_or_odd_costs_its_own_items",
    );
    let rig = setting
        .http_servers(&["odd"], fault, "")
        .await
        .start()
        .await;
    rig.each(async |bad, user| {
        let status = rig.status(&bad.name).await;
        assert!(
            status["left_out"].to_string().contains("tools deep: "),
            "{}",
            status["left_out"]
        );
        assert_eq!(
            user.call(bad, "cyclic", json!({"n": 1})).await.text(),
            r#"{"n":1}"#
        );
    })
    .await;
    for era in ERAS {
        let user = rig.user(era).await;
        let names = user.request("tools/list", json!({})).await.names();
        user.leave().await;
        let of = |bad: &str| {
            names
                .iter()
                .filter(|name| name.starts_with(&format!("{bad}__")))
                .count()
        };
        assert!(
            (9000..=10_000).contains(&of("old_web")),
            "{}",
            of("old_web")
        );
        let mut unique = names.clone();
        unique.sort_unstable();
        unique.dedup();
        assert_eq!(unique.len(), names.len());
        assert!(names.contains(&"ok__echo".to_owned()));
    }
    rig.end().await;
}

#[tokio::test]
async fn f22_cursors_that_lead_nowhere_end() {
    for cursor in [CursorMode::Loop, CursorMode::Endless] {
        let fault = |mut script: MockScript| {
            script.generate.push(GeneratedTools {
                count: 30,
                name: "t{n}".to_owned(),
                depth: 0,
                describe: 0,
            });
            MockScript {
                list: ListRules {
                    page_size: 7,
                    cursor,
                    ..ListRules::default()
                },
                ..script
            }
        };
        let setting = RowSetup::new("F22", "f22_cursors_that_lead_nowhere_end");
        let rig = setting
            .http_servers(&["odd"], fault, "")
            .await
            .start()
            .await;
        rig.each(async |bad, user| {
            let names = user.request("tools/list", json!({})).await.names();
            let own = names
                .iter()
                .filter(|name| name.starts_with(&format!("{}__", bad.name)))
                .count();
            assert_eq!(own, 32, "each once: {names:?}");
            let lists = rig.got(bad, "tools/list");
            assert!(lists <= 2100, "{cursor:?}: {lists}");
        })
        .await;
        rig.end().await;
    }
}

#[tokio::test]
async fn f23_a_storm_of_list_changes_causes_a_few_list_requests() {
    let setting = RowSetup::new(
        "F23",
        "f23_a_storm_of_list_changes_causes_a_few_list_requests",
    );
    let rig = setting
        .http_servers(&["odd"], plain, "")
        .await
        .start()
        .await;
    rig.each(async |bad, user| {
        let mock = rig.web(bad).unwrap();
        until("the gateway listens", || {
            std::future::ready((mock.listeners() > 0).then_some(()))
        })
        .await;
        let before = rig.got(bad, "tools/list");
        for round in 0..40 {
            let fresh = format!("fresh_{round}");
            mock.change_tools_and_notify(&["odd", "echo", &fresh].map(crate::harness::tool));
            for _ in 0..5 {
                mock.notify_list("tools");
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let last = format!("{}__fresh_39", bad.name);
        let listed = async || {
            let names = user.request("tools/list", json!({})).await.names();
            names.contains(&last).then_some(())
        };
        until("the last list is there", listed).await;
        let lists = rig.got(bad, "tools/list") - before;
        assert!(lists <= 60, "240 notices cost {lists} lists");
    })
    .await;
    rig.end().await;
}
