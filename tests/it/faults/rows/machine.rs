//! Faults of the gateway itself, of its machine and of what it depends on: F53–F64.

use crate::faults::fault_row::{FaultRow, row};

/// All of them, in order.
pub(super) const MACHINE: &[FaultRow] = &[
    row(
        "F53",
        "SIGTERM with calls and streams",
        "calls end, streams are closed, children stop, exit 0; a second signal ends it at once",
        &[
            "a_stop_lets_open_calls_end_and_ends_streams",
            "a_second_signal_ends_it_at_once_and_leaves_nothing_either",
            "a_stop_drains_and_leaves_nothing_behind",
            "a_signal_that_comes_twice_at_once_drains",
        ],
        "",
    ),
    row(
        "F54",
        "a reload with a bad config, half of one, a certificate that cannot be used, a hundred \
         at once",
        "nothing changes, each problem is told with its place, and `moongate_config_reload_failed` \
         says so; what is good touches only what it changes",
        &[
            "a_file_that_changes_is_read_again_and_a_bad_one_changes_nothing",
            "a_file_in_any_format_is_refused_or_applied_as_a_whole",
            "a_file_that_is_still_written_is_not_complained_of",
            "a_hundred_hangups_while_calls_run",
            "a_hangup_takes_a_new_certificate_and_leaves_connections_and_a_bad_one_alone",
            "one_server_of_five_changes_and_four_are_not_touched",
            "a_call_that_runs_ends_on_the_server_that_it_began_at",
        ],
        "",
    ),
    row(
        "F55",
        "the gateway is killed while it writes its state",
        "the state opens again",
        &[
            "twenty_kills_while_it_writes_leave_the_state_whole",
            "kills_under_load_lose_nothing_that_was_answered_and_no_session",
        ],
        "",
    ),
    row(
        "F56",
        "no descriptors are left",
        "connections without a request make room; without any, accepting pauses and recovers",
        &[
            "out_of_descriptors_connections_without_a_request_make_room",
            "a_line_a_minute_tells_of_all_failures",
        ],
        "",
    ),
    row(
        "F57",
        "the disk is full or cannot be written",
        "calls go on, failures are counted, and what waits is written once there is room; with \
         `state = \"embedded\"` a place that cannot be used is the reason not to start",
        &[
            "f57_a_full_disk_fails_only_persistence_until_there_is_room",
            "a_state_that_cannot_be_kept_is_a_warning_or_the_reason_not_to_start",
        ],
        "",
    ),
    row(
        "F58",
        "the clock jumps",
        "no timeout moves: they all take the monotonic clock",
        &["the_clock_on_the_wall_ends_nothing"],
        "",
    ),
    row(
        "F59",
        "a limit of memory",
        "messages take their bytes from it before they are stored, and what is over it is refused",
        &[
            "bodies_that_begin_together_stay_within_the_memory_limit",
            "results_that_nobody_reads_stay_within_the_memory_limit",
            "requests_are_shed_over_the_memory_limit",
        ],
        "",
    ),
    row(
        "F60",
        "no CPU",
        "health is answered, and no server is ended for being slow",
        &["f60_a_starved_gateway_answers_and_ends_nobody"],
        "",
    ),
    row(
        "F61",
        "a shared store is down",
        "",
        &[],
        "there is no shared store yet: state is one process's own file",
    ),
    row(
        "F62",
        "an issuer of tokens is down",
        "",
        &[],
        "there are no tokens of issuers yet: clients show keys of the config",
    ),
    row(
        "F63",
        "a panic in a handler",
        "that request fails, and nothing else",
        &["a_panic_is_answered_and_counted"],
        "",
    ),
    row(
        "F64",
        "replicas are replaced one by one",
        "two processes on one port: every call of a stateless client is answered, and with its own \
         answer",
        &["processes_on_one_port_are_replaced_in_turn_and_no_call_is_lost_or_anothers"],
        "sessions, which are their own process's until there is a shared store",
    ),
];
