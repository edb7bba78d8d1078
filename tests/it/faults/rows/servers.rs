//! Faults of servers: F1–F40.

use crate::faults::fault_row::{FaultRow, row};

/// All of them, in order.
pub(super) const SERVERS: &[FaultRow] = &[
    row(
        "F1",
        "a child crashes in the middle of calls",
        "each open call fails at once, and its error says how the child ended; the next call gets \
         a new child; no tool call runs twice",
        &[
            "a_crash_fails_every_open_call_and_none_runs_twice",
            "a_crash_is_explained_and_the_server_restarted",
        ],
        "",
    ),
    row(
        "F2",
        "a child exits at startup, again and again",
        "the pauses between attempts grow up to a cap; the status shows the reason and the child's \
         last words",
        &[
            "a_crash_loop_is_slowed_down",
            "a_child_that_dies_at_start_is_explained_and_backed_off",
            "a_loop_of_crashes_keeps_its_tools_listed_and_leaves_others_alone",
        ],
        "",
    ),
    row(
        "F3",
        "the command is missing or cannot be run",
        "the error names the command, but not its environment; other servers keep working; the \
         server is parked",
        &["a_missing_program_is_named_with_its_path_and_parked"],
        "",
    ),
    row(
        "F4",
        "a call hangs",
        "it ends at its deadline with an error that names the setting, and its server is told that \
         it is cancelled",
        &[
            "f04_a_call_that_hangs_ends_at_its_deadline_and_is_cancelled",
            "a_hanging_call_times_out_with_the_settings_name_and_is_cancelled",
            "a_hanging_call_over_http_times_out_and_is_cancelled",
        ],
        "",
    ),
    row(
        "F5",
        "a server never responds to its first message",
        "the attempt ends after `start_timeout`; the server is stopped, and tried again later",
        &["a_child_that_never_answers_initialize_is_killed_after_start_timeout"],
        "",
    ),
    row(
        "F6",
        "endless progress, and no result",
        "the call ends at its deadline, which progress does not extend, and its server is told \
         that it is cancelled",
        &["f06_progress_for_ever_does_not_move_the_deadline"],
        "",
    ),
    row(
        "F7",
        "a response arrives after the deadline",
        "it is dropped and counted, and nobody else gets it",
        &[
            "f07_a_response_after_the_deadline_is_dropped_and_counted",
            "a_response_after_the_timeout_is_dropped",
        ],
        "",
    ),
    row(
        "F8",
        "responses with unknown, duplicate, null or retyped ids",
        "the first response whose id equals the request's counts, even as `\"7\"` or `7.0`; all \
         others are dropped and counted",
        &[
            "f08_responses_with_wrong_ids_end_no_call",
            "responses_with_unknown_ids_end_no_other_call",
            "a_second_response_is_dropped",
            "ids_of_another_json_type_end_their_call",
        ],
        "",
    ),
    row(
        "F9",
        "a server's request has the same id as a call",
        "both are answered, even if a stateless server may not ask",
        &["f09_a_servers_request_under_a_clients_id_is_another_request"],
        "",
    ),
    row(
        "F10",
        "lines on stdout that aren't messages",
        "they are skipped and counted, and one a minute is logged",
        &[
            "f10_lines_that_are_no_messages_are_skipped",
            "stray_lines_on_stdout_break_nothing_and_are_counted",
        ],
        "",
    ),
    row(
        "F11",
        "an endless line, or one longer than allowed",
        "it is discarded as it arrives; the call that it answers fails with an error that names \
         the limit; memory stays within the limit",
        &[
            "f11_a_line_without_end_is_thrown_away",
            "f11_an_answer_that_is_too_long_fails_its_call",
            "an_over_large_line_fails_its_own_call_wherever_its_id_stands",
        ],
        "",
    ),
    row(
        "F12",
        "odd text: marks, CR, lone surrogates; bytes that aren't text",
        "valid JSON passes byte for byte; bytes that are not UTF-8 become U+FFFD, and are counted",
        &["f12_odd_text_passes_and_invalid_utf8_is_replaced"],
        "",
    ),
    row(
        "F13",
        "one byte per write, a hundred messages per write",
        "the same messages in the same order",
        &[
            "f13_writes_of_one_byte_are_put_together",
            "f13_many_messages_in_one_write_keep_their_order",
            "output_in_pieces_is_put_together",
        ],
        "",
    ),
    row(
        "F14",
        "a flood on stderr",
        "it is always read, but little of it is logged",
        &[
            "f14_a_flood_on_stderr_blocks_nobody_and_fills_no_log",
            "a_flood_on_stderr_blocks_nobody_and_its_end_is_kept",
        ],
        "",
    ),
    row(
        "F15",
        "a server closes its output or its input and keeps running",
        "it is killed with all its processes, and restarted",
        &[
            "f15_a_server_that_closes_its_output_is_restarted",
            "f15_a_server_that_closes_its_input_is_restarted",
        ],
        "",
    ),
    row(
        "F16",
        "a server stops reading",
        "its own calls end at their deadlines, and nobody else waits",
        &["f16_a_server_that_stops_reading_fails_only_its_own_calls"],
        "",
    ),
    row(
        "F17",
        "processes that ignore SIGTERM, hold the output open, or moved to another session",
        "they end with their server",
        &[
            "f17_processes_that_a_server_left_behind_are_killed_with_it",
            "a_stop_leaves_no_process_behind",
            "a_wrapper_takes_what_it_wrapped_along",
        ],
        "",
    ),
    row(
        "F18",
        "the gateway is killed",
        "the guard ends its children",
        &["a_killed_gateway_leaves_no_process_behind"],
        "",
    ),
    row(
        "F19",
        "a server speaks no revision that we know, or another era than before",
        "it is left out with the reason, or opened in the other era",
        &[
            "a_server_of_no_revision_of_ours_is_left_out_and_says_why",
            "a_server_that_changes_its_era_is_opened_in_the_new_one",
        ],
        "",
    ),
    row(
        "F20",
        "a flood of notifications",
        "what nobody reads in time is dropped and counted, changes are combined, and calls \
         continue",
        &[
            "f20_a_flood_of_notifications_delays_nobody",
            "a_flood_of_progress_that_nobody_reads_ends_in_the_answer",
        ],
        "",
    ),
    row(
        "F21",
        "lists that are too long, too deep, malformed or have duplicates",
        "items that cannot be exposed are left out with a reason, and the rest is listed; no \
         schema reference is resolved",
        &[
            "f21_a_list_that_is_too_long_or_odd_costs_its_own_items",
            "a_bad_schema_costs_that_tool_only_and_is_reported",
        ],
        "",
    ),
    row(
        "F22",
        "cursors that repeat, loop or never end; an empty cursor",
        "the list ends, and contains each item once",
        &[
            "f22_cursors_that_lead_nowhere_end",
            "a_cursor_that_leads_nowhere_ends_and_nothing_is_listed_twice",
        ],
        "",
    ),
    row(
        "F23",
        "a server announces changes while its lists are being fetched",
        "the lists are fetched a few times, and the last result is correct",
        &[
            "f23_a_storm_of_list_changes_causes_a_few_list_requests",
            "a_storm_of_list_changes_causes_a_few_list_requests",
        ],
        "",
    ),
    row(
        "F24",
        "a server loses its session",
        "one new session is opened; a call that provably never ran is sent again",
        &[
            "a_session_lost_by_404_is_replaced_and_the_call_runs_once",
            "many_calls_at_once_open_one_new_session",
            "a_session_lost_by_400_or_by_an_error_over_200_costs_one_call_at_most",
        ],
        "",
    ),
    row(
        "F25",
        "401 or 403",
        "the error names the server; its challenge is not passed on; if it refuses everything, its \
         state says so and it is parked",
        &[
            "expired_credentials_show_in_the_state_and_a_single_refused_call_does_not",
            "a_server_with_a_permanent_failure_is_parked",
            "a_failing_server_is_a_readable_result_over_http_200",
        ],
        "",
    ),
    row(
        "F26",
        "429 with `Retry-After`: seconds, a date, too long, nonsense",
        "the server is left alone for that long, up to a cap; an unreadable value is ignored",
        &[
            "seconds_and_dates_are_both_read",
            "past_and_unreadable_values_are_ignored",
            "retry_after_delays_the_next_attempt",
            "retry_after_is_honoured_up_to_a_cap",
        ],
        "",
    ),
    row(
        "F27",
        "500, 502, 503",
        "one clear error for each call",
        &[
            "a_failing_server_is_a_readable_result_over_http_200",
            "a_server_that_answers_nonsense_at_first_says_so_in_its_status_and_recovers",
            "the_retry_budget_adds_at_most_a_tenth_of_calls",
        ],
        "",
    ),
    row(
        "F28",
        "a connection is reset before, in or after its events",
        "the call fails and is not sent again; a stream with ids is resumed, and no event arrives \
         twice",
        &[
            "f28_a_connection_that_is_reset_fails_its_call_only",
            "a_resumed_stream_delivers_each_event_once",
            "a_stream_that_ends_or_breaks_without_an_answer_fails_its_call_only",
        ],
        "",
    ),
    row(
        "F29",
        "a slow or silent body",
        "the call ends at its deadline",
        &[
            "f29_headers_and_then_nothing_end_at_the_deadline",
            "f29_a_body_that_drips_ends_at_the_deadline",
        ],
        "",
    ),
    row(
        "F30",
        "a TLS handshake that stalls",
        "for a server, the attempt ends at `connect_timeout`, and another follows; for a client, \
         the connection closes at `limits.read_timeout`",
        &[
            "f30_a_servers_handshake_that_stalls_ends_at_its_limit_and_heals",
            "a_handshake_that_never_ends_holds_up_nobody",
        ],
        "",
    ),
    row(
        "F31",
        "bodies that lie about length, chunks, compression or size",
        "the call gets an error; gzip, deflate and br are decoded, and nothing is read past the \
         limit, decoded or not",
        &[
            "f31_a_body_that_ends_too_early_fails_its_call",
            "f31_malformed_chunks_fail_their_call",
            "f31_a_compressed_body_is_decoded_to_the_limit",
            "f31_a_body_over_the_limit_is_not_read_on",
        ],
        "",
    ),
    row(
        "F32",
        "redirects",
        "307 and 308 are followed within the origin, and no others are; the error says where the \
         redirect led",
        &[
            "f32_no_redirect_leaves_the_origin",
            "redirects_are_followed_within_the_origin_and_nowhere_else",
        ],
        "",
    ),
    row(
        "F33",
        "untrusted certificates, names that do not resolve",
        "the error says which",
        &[
            "f33_a_name_that_does_not_resolve_is_explained",
            "a_certificate_that_is_not_trusted_is_refused_and_explained",
        ],
        "",
    ),
    row(
        "F34",
        "unexpected responses: pages, 202, nothing",
        "the error says what arrived; the body is not logged",
        &["f34_a_response_of_another_kind_is_named_in_the_error"],
        "",
    ),
    row(
        "F35",
        "event streams in every notation, events of any size",
        "they are read according to the standard; an event over the limit fails its call",
        &[
            "f35_events_in_every_spelling_and_of_any_size",
            "f35_an_event_that_never_ends_is_cut_at_the_limit",
            "f35_the_last_event_needs_its_empty_line",
            "every_encoding_of_sse_events_is_understood",
            "an_over_long_event_fails_its_call_only",
            "a_foreign_type_is_not_taken_for_a_message_whatever_its_bytes_are",
        ],
        "",
    ),
    row(
        "F36",
        "HTTP+SSE: an endpoint that never arrives, arrives twice, or is elsewhere",
        "there is a deadline; the first endpoint counts; only the configured origin is allowed",
        &[
            "f36_an_endpoint_that_never_comes_or_comes_twice",
            "an_endpoint_at_another_origin_is_refused",
        ],
        "",
    ),
    row(
        "F37",
        "a response on a stream that isn't the call's",
        "nobody gets it, and it is counted",
        &["f37_a_response_on_another_stream_is_dropped"],
        "",
    ),
    row(
        "F38",
        "a response under another id, in a batch, or with both result and error",
        "the call fails at once, and its error says so",
        &[
            "f38_an_answer_that_is_not_the_calls_own_fails_it",
            "f38_a_malformed_answer_on_a_pipe_fails_its_call_at_once",
        ],
        "",
    ),
    row(
        "F39",
        "a TCP server that accepts and closes; frames that arrive in pieces or run together",
        "the server is treated like a crashed child; pieces are put together; an invalid message \
         fails the call that it answers",
        &[
            "f39_a_server_that_accepts_and_closes_is_one_that_crashed",
            "f39_frames_in_pieces_are_put_together",
            "f39_frames_that_run_into_each_other_cost_their_own_call",
        ],
        "",
    ),
    row(
        "F40",
        "all servers are down, or one is slow to list",
        "lists are answered from what is known, and nobody waits",
        &[
            "a_failing_server_delays_no_other_server_and_is_explained",
            "without_servers_every_list_is_empty_and_no_error",
        ],
        "",
    ),
];
