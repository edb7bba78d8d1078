//! Every client revision against every server revision, over stdio, TCP and Streamable HTTP, and
//! both eras over every other link, those with TLS too: each feature of the protocol through a
//! gateway with several servers.
//!
//! One test is one cell of the matrix; it runs every feature and names each that fails.

mod input_requests;
mod cell;
mod changes;
mod driven_tasks;
mod during;
mod edges;
mod eras;
mod extensions;
mod lists;
mod rig;
mod rounds;
mod task_news;
mod tasks;
mod tools;

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;

use cell::{MatrixCell, OVER_SSE};
use rig::ServerTransport;

/// No feature takes longer than this.
const FEATURE: Duration = Duration::from_secs(60);

type PairFeature = fn(Arc<MatrixCell>) -> BoxFuture<'static, ()>;

macro_rules! features {
    ($($module:ident: $($name:ident),+;)+) => {
        &[$($((stringify!($name), |cell| Box::pin($module::$name(cell)))),+),+]
    };
}

const FEATURES: &[(&str, PairFeature)] = features! {
    edges: opening, ending, ping, unknown_method, ids_come_back_as_they_are, batches,
        headers_must_agree,
        a_second_stream_replaces_the_first, an_endpoint_of_its_own;
    tools: tools_list, arguments_byte_for_byte, both_servers_are_called_by_their_names,
        unknown_tool,
        tool_error_is_a_result, rpc_errors_pass, unknown_members_survive, large_results,
        meta_passes_and_nothing_leaks, mirrored_arguments;
    lists: pages_become_one, resources, links_lead_back, templates, unknown_resource, prompts,
        completion;
    extensions: extensions_are_announced, what_a_client_declares_reaches_its_servers,
        pages_of_apps_are_read_from_their_servers;
    during: progress, logging, cancellation, calls_side_by_side;
    changes: list_changed, resource_updates, one_of_two_listeners_goes,
        nobody_subscribes_to_what_is_not_there;
    input_requests: elicitation, elicitation_by_url, a_page_that_is_done, two_questions, sampling,
        roots,
        questions_outside_of_tools,
        who_cannot_be_asked_is_not, a_refused_question_is_not_left_open, a_client_may_decline,
        two_ask_at_once, a_connection_for_each_session;
    rounds: state_is_good_for_its_own_request_only, what_is_missing_is_asked_again,
        what_is_no_answer_is_refused,
        questions_at_once_are_one_round, a_page_that_is_demanded, sampling_with_tools;
    tasks: a_task_from_its_call_to_its_end, tools_say_what_may_be_a_task, tasks_are_announced,
        what_a_task_asks,
        how_tasks_fail, tasks_are_cancelled, handles_lead_nowhere_else;
    driven_tasks: who_declares_no_tasks_gets_none, what_must_be_a_task_is_driven,
        a_driven_task_asks, a_call_that_is_no_task;
    task_news: tasks_are_listed, states_of_tasks_are_told, what_servers_tell_of_tasks;
    tasks: tasks_on_an_endpoint_of_its_own;
};

/// What says something about Streamable HTTP alone, or needs two calls of one id to be told apart.
const STREAMABLE: [&str; 10] = [
    "opening",
    "extensions_are_announced",
    "tasks_are_announced",
    "ending",
    "ids_come_back_as_they_are",
    "batches",
    "headers_must_agree",
    "a_second_stream_replaces_the_first",
    "an_endpoint_of_its_own",
    "calls_side_by_side",
];

/// Runs every feature in one cell.
async fn run(client: &'static str, server: &'static str, transport: ServerTransport) {
    let cell = Arc::new(MatrixCell::start(client, server, transport).await);
    let mut failed = Vec::new();
    let over_sse = client.ends_with(OVER_SSE);
    for (name, feature) in FEATURES
        .iter()
        .filter(|(name, _)| !over_sse || !STREAMABLE.contains(name))
    {
        let running = tokio::spawn(tokio::time::timeout(FEATURE, feature(cell.clone())));
        match running.await {
            Ok(Ok(())) => {}
            Ok(Err(_)) => failed.push(format!("{name}: not over after {FEATURE:?}")),
            Err(panic) => {
                let reason = panic.into_panic();
                let text = reason.downcast_ref::<String>().map(String::as_str);
                let text = text
                    .or(reason.downcast_ref::<&str>().copied())
                    .unwrap_or("it panicked");
                failed.push(format!("{name}: {text}"));
            }
        }
    }
    let cell = Arc::into_inner(cell).expect("every feature is over");
    cell.rig.stop().await;
    assert!(
        failed.is_empty(),
        "{} of {} fail:\n{}",
        failed.len(),
        FEATURES.len(),
        failed.join("\n")
    );
}

/// Whether every revision that the gateway speaks is named.
const fn all_named(named: &[&str]) -> bool {
    named.len() == moongate_protocol::SUPPORTED.len()
}

macro_rules! matrix {
    ($($client:ident = $date:literal),+) => {
        /// What the matrix names, to be compared with what the gateway speaks.
        const NAMED: &[&str] = &[$($date),+];
        const _: () = assert!(all_named(NAMED), "a revision is missing in the matrix");
        $(mod $client {
            use super::{ServerTransport, run};
            servers!($date);
        })+
    };
}

macro_rules! servers {
    ($client:literal) => {
        servers!($client; s2024_11_05 = "2024-11-05", s2025_03_26 = "2025-03-26",
            s2025_06_18 = "2025-06-18",
            s2025_11_25 = "2025-11-25", s2026_07_28 = "2026-07-28");
    };
    ($client:literal; $($server:ident = $date:literal),+) => {
        $(mod $server {
            use super::{ServerTransport, run};

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn stdio() {
                run($client, $date, ServerTransport::Stdio).await;
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn http() {
                run($client, $date, ServerTransport::Http).await;
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn tcp() {
                run($client, $date, ServerTransport::Tcp).await;
            }
        })+

        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn s2024_11_05_over_sse() {
            run($client, "2024-11-05", ServerTransport::Sse).await;
        }
    };
}

/// A client of 2024-11-05 on the HTTP transport of its revision.
mod c2024_11_05_over_sse {
    use super::{ServerTransport, run};
    servers!("2024-11-05 over HTTP+SSE");
}

matrix!(
    c2024_11_05 = "2024-11-05",
    c2025_03_26 = "2025-03-26",
    c2025_06_18 = "2025-06-18",
    c2025_11_25 = "2025-11-25",
    c2026_07_28 = "2026-07-28"
);

/// The links that differ from others only in what is below the messages: both eras.
mod links {
    use super::{ServerTransport, run};

    const LEGACY: &str = "2025-11-25";
    const MODERN: &str = "2026-07-28";

    macro_rules! links {
        ($($link:ident = $transport:ident),+) => {
            $(mod $link {
                use super::{LEGACY, MODERN, ServerTransport, run};

                pairing!($transport: legacy_legacy = LEGACY, LEGACY);
                pairing!($transport: legacy_modern = LEGACY, MODERN);
                pairing!($transport: modern_legacy = MODERN, LEGACY);
                pairing!($transport: modern_modern = MODERN, MODERN);
            })+
        };
    }

    macro_rules! pairing {
        ($transport:ident: $name:ident = $client:ident, $server:ident) => {
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                run($client, $server, ServerTransport::$transport).await;
            }
        };
    }

    links!(
        unix = Unix,
        websocket = WebSocket,
        websocket_tls = WebSocketTls,
        http_tls = HttpTls
    );
}

#[test]
fn the_matrix_names_what_the_gateway_speaks() {
    assert_eq!(NAMED, moongate_protocol::SUPPORTED);
}
