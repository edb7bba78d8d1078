//! Faults of clients: F41–F52.

use crate::faults::fault_row::{FaultRow, row};

/// All of them, in order.
pub(super) const CLIENTS: &[FaultRow] = &[
    row(
        "F41",
        "a client disconnects in the middle of a call",
        "stateless: the call is cancelled; with a session: it continues until the client cancels \
         it explicitly",
        &[
            "f41_a_disconnect_cancels_the_call_where_the_revision_says_so",
            "a_modern_disconnect_cancels_the_call",
            "a_legacy_disconnect_does_not_cancel_the_call",
        ],
        "",
    ),
    row(
        "F42",
        "a client stops reading",
        "its stream is bounded, and nobody else is delayed",
        &[
            "a_client_that_does_not_read_delays_no_other_client",
            "a_stalled_reader_delays_no_other_client",
        ],
        "",
    ),
    row(
        "F43",
        "10,000 idle streams",
        "they are kept open, each is notified of changes, and new calls are served",
        &[
            "f43_hundreds_of_idle_streams_are_held_and_calls_go_on",
            "idle_streams_are_held_and_calls_go_on",
        ],
        "that many streams: `benches/` measures those (`--parts memory`)",
    ),
    row(
        "F44",
        "two open calls with the same id",
        "each gets its own response, or the second gets a 400",
        &[
            "f44_equal_ids_at_once_get_their_own_answers",
            "equal_ids_at_once_get_their_own_answers",
        ],
        "",
    ),
    row(
        "F45",
        "batches in revisions without batches, and very long ones",
        "400, and nothing in them runs",
        &[
            "invalid_client_messages_are_refused_and_the_session_goes_on",
            "batches_are_refused_where_there_are_none_and_where_they_are_too_long",
        ],
        "",
    ),
    row(
        "F46",
        "bodies that are too large, too deep, or malformed",
        "413 or 400; the session continues; numbers and text pass unchanged",
        &[
            "a_body_over_the_limit_is_a_413_that_names_it",
            "a_malformed_body_is_one_error_over_400_and_the_session_lives_on",
            "arguments_pass_byte_for_byte",
            "bodies_that_are_too_large_or_no_json_are_refused",
        ],
        "",
    ),
    row(
        "F47",
        "wrong HTTP methods, types, paths and versions",
        "a 400 that says what is wrong, a 405 with `Allow`, or a 404; the client can continue",
        &["f47_unsupported_http_requests_get_their_status"],
        "",
    ),
    row(
        "F48",
        "session ids that are missing, forged or expired",
        "a request without one is served alone, others get a 404; no session is created",
        &[
            "after_a_restart_an_old_session_is_a_404_and_initialize_works",
            "a_session_answers_its_own_key_only",
            "an_invalid_session_id_creates_no_session",
            "requests_without_a_session_id_are_served_alone",
        ],
        "",
    ),
    row(
        "F49",
        "unknown notifications, responses to nothing, with and without a session",
        "they get a 202 and are ignored, or get a 400; nothing reaches a server",
        &["f49_notifications_and_stray_responses_reach_no_server"],
        "",
    ),
    row(
        "F50",
        "sessions that are opened and abandoned",
        "they expire; in a full table, a session of the same key makes room",
        &[
            "idle_sessions_expire_and_free_everything",
            "a_full_table_makes_room_among_the_same_keys_sessions_only",
            "abandoned_sessions_are_evicted_and_expire",
        ],
        "",
    ),
    row(
        "F51",
        "cancellations: before, after, twice, of another client's call",
        "they affect nothing but the client's own open call",
        &[
            "f51_a_cancellation_that_comes_at_any_time_ends_its_own_call_only",
            "a_legacy_client_cancels_with_a_notification",
        ],
        "",
    ),
    row(
        "F52",
        "pipelined requests, keep-alive after an error, two lengths, a PROXY header",
        "responses come in order, or a 400 and the connection closes; nothing hidden behind \
         another request runs",
        &[
            "f52_requests_in_a_row_are_answered_in_their_order",
            "f52_a_connection_goes_on_after_an_error_or_is_closed",
            "f52_smuggled_requests_are_refused_and_do_not_run",
            "a_malformed_body_leaves_the_connection_usable",
        ],
        "",
    ),
];
