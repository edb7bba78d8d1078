//! `moongate check --connect`: the offer of a config's servers, and what of the config does not fit
//! it. Owns connecting each server once, without any listener.
//!
//! Does not judge the config itself (`check.rs`). Invariant: everything that was started has ended.

use std::io::Write;
use std::process::ExitCode;

use crate::app::GatewayApp;
use crate::cli::notes::{self, ServerNotes};
use moongate_config::Plan;
use moongate_gateway::{FindingTopic, Gateway, Snapshot};
use moongate_model::{ItemKind, UpstreamState};
use moongate_session::store::StoreSettings;
use moongate_telemetry::logs;

/// Connects the servers and reports on them. Returns exit code 1 if a server could not be
/// connected.
pub(super) async fn run(plan: Plan) -> anyhow::Result<ExitCode> {
    let app = start_without_listeners(plan).await?;
    app.gateway.until_settled().await;
    let (text, is_fine) = report(&app.gateway);
    app.stop().await;
    std::io::stdout().write_all(text.as_bytes())?;
    Ok(if is_fine {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// Starts the servers of a plan to inspect them.
pub(super) async fn start_without_listeners(mut plan: Plan) -> anyhow::Result<GatewayApp> {
    // No listener: the gateway in service may hold these addresses.
    plan.listen.clear();
    plan.admin = None;
    // Without a store: cached lists would hide what the servers offer now, and this run must leave
    // no trace.
    plan.state = StoreSettings::default();
    let program = std::env::current_exe().ok();
    GatewayApp::start(plan, program.as_deref()).await
}

fn report(gateway: &Gateway) -> (String, bool) {
    let snapshot = gateway.snapshot();
    let members = gateway.servers();
    let mut text = String::new();
    let mut is_fine = true;
    for member in &members {
        let status = member.status();
        let items = member.lists();
        let counts = [
            (ItemKind::Tools, "tool"),
            (ItemKind::Resources, "resource"),
            (ItemKind::Prompts, "prompt"),
        ];
        let counts = counts
            .map(|(kind, what)| counted(items.get(kind).items.len(), what))
            .join(", ");
        // The servers' reasons may quote credentials or span lines.
        let reason = logs::one_line(&logs::redact(&status.reason));
        let is_ready = status.state == UpstreamState::Ready;
        is_fine &= is_ready;
        let what = if is_ready { counts } else { reason };
        text += &format!(
            "{}: {}; {what}\n",
            member.settings.name,
            status.state.name()
        );
    }
    let left_out: Vec<Vec<String>> = members
        .iter()
        .map(|member| left_out_items(&snapshot, &member.settings.name))
        .collect();
    let of_members = members
        .iter()
        .zip(&left_out)
        .flat_map(|(member, left_out)| {
            let server = Some(member.settings.name.as_str());
            let left_out = ServerNotes {
                server,
                what: "left out",
                texts: left_out.iter().map(String::as_str).collect(),
            };
            let received = FindingTopic::ALL.map(|topic| ServerNotes {
                server,
                what: topic_title(topic),
                texts: snapshot.findings_about(server, topic),
            });
            std::iter::once(left_out).chain(received)
        });
    let topic = FindingTopic::Filter;
    let of_none = ServerNotes {
        server: None,
        what: topic_title(topic),
        texts: snapshot.findings_about(None, topic),
    };
    text += &notes::lines(of_members.chain([of_none]));
    (text, is_fine)
}

/// Returns a number of things, each of which has this name.
fn counted(number: usize, name: &str) -> String {
    match number {
        1 => format!("1 {name}"),
        number => format!("{number} {name}s"),
    }
}

/// Returns the items of a server that are left out, each with the reason.
fn left_out_items(snapshot: &Snapshot, server: &str) -> Vec<String> {
    let left_out = snapshot
        .excluded
        .iter()
        .filter(|left_out| left_out.server == server);
    left_out
        .map(|left_out| format!("{}: {}", left_out.item, left_out.reason))
        .collect()
}

/// Returns the title of a topic, which precedes its notes.
pub(super) fn topic_title(topic: FindingTopic) -> &'static str {
    match topic {
        FindingTopic::Name => "name",
        FindingTopic::Filter => "matches nothing",
        FindingTopic::Schema => "schema",
        FindingTopic::Mended => "mended",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_thing_is_singular() {
        let found = [0, 1, 2].map(|number| counted(number, "tool"));
        assert_eq!(found, ["0 tools", "1 tool", "2 tools"]);
    }
}
