//! `moongate check --connect`: what the servers of a config offer, and what of the config does not fit them.
//!
//! Owns connecting each server once, without listening anywhere. Does not judge the config itself (`check`). Invariant:
//! nothing that was started is left behind.

use std::io::Write;
use std::process::ExitCode;

use crate::app::App;
use crate::cli::notes::{self, Notes};
use crate::config::Plan;
use crate::gateway::{Gateway, Topic};
use crate::model::Kind;
use crate::store::StoreSettings;
use crate::telemetry::logs;
use crate::upstream::State;

/// Connects the servers and tells about them. Exit code 1: one of them could not be connected.
pub(super) async fn run(mut plan: Plan) -> anyhow::Result<ExitCode> {
    plan.listen.clear();
    plan.admin = None;
    // What an earlier run knew is not asked for, and this one is not remembered.
    plan.state = StoreSettings { file: None, required: false, homeless: false, fleeting: false };
    let program = std::env::current_exe().ok();
    let app = App::start(plan, program.as_deref()).await?;
    app.gateway.settled().await;
    let (text, is_fine) = report(&app.gateway);
    app.stop().await;
    std::io::stdout().write_all(text.as_bytes())?;
    Ok(if is_fine { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn report(gateway: &Gateway) -> (String, bool) {
    let (snapshot, members) = (gateway.snapshot(), gateway.servers());
    let (mut text, mut is_fine) = (String::new(), true);
    for member in &members {
        let (status, items) = (member.status(), member.items());
        let count = |kind: Kind| items.get(kind).items.len();
        let counts = [(Kind::Tools, "tools"), (Kind::Resources, "resources"), (Kind::Prompts, "prompts")];
        let counts = counts.map(|(kind, what)| format!("{} {what}", count(kind))).join(", ");
        let reason = logs::one_line(&logs::redact(&status.reason));
        let is_ready = status.state == State::Ready;
        is_fine &= is_ready;
        let what = if is_ready { counts } else { reason };
        text += &format!("{}: {}; {what}\n", member.settings.name, status.state.name());
    }
    let left_out = |name: &str| -> Vec<String> {
        let of_server = snapshot.left_out.iter().filter(|left_out| left_out.server == name);
        of_server.map(|left_out| format!("{}: {}", left_out.item, left_out.reason)).collect()
    };
    let left_out: Vec<Vec<String>> = members.iter().map(|member| left_out(&member.settings.name)).collect();
    let of_members = members.iter().zip(&left_out).flat_map(|(member, left_out)| {
        let server = Some(member.settings.name.as_str());
        let left_out = Notes { server, what: "left out", texts: left_out.iter().map(String::as_str).collect() };
        let told = Topic::ALL.map(|topic| Notes { server, what: what(topic), texts: snapshot.told(server, topic) });
        std::iter::once(left_out).chain(told)
    });
    let topic = Topic::Filter;
    let beside = Notes { server: None, what: what(topic), texts: snapshot.told(None, topic) };
    text += &notes::lines(of_members.chain([beside]));
    (text, is_fine)
}

/// How a topic is called in front of a note.
pub(super) fn what(topic: Topic) -> &'static str {
    match topic {
        Topic::Name => "name",
        Topic::Filter => "matches nothing",
        Topic::Schema => "schema",
    }
}
