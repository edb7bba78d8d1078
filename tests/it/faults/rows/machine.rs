//! Faults of the gateway itself, of its machine and of what it depends on: F53–F64.

use crate::faults::fault_row::{FaultRow, row};

/// All of them, in order.
pub(super) const MACHINE: &[FaultRow] = &[
    row(
        "F53",
        "SIGTERM with open calls and streams",
        "calls finish, streams are closed, children stop, exit code 0; a second signal ends the \
         gateway at once",
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
        "a reload with a bad config, an incomplete one, an unusable certificate, or a hundred \
         reloads at once",
        "nothing changes, each problem is reported with its location, and \
         `moongate_config_reload_failed` is set; a good reload touches only what changed",
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
        "the state can be opened again",
        &[
            "twenty_kills_while_it_writes_leave_the_state_whole",
            "kills_under_load_lose_nothing_that_was_answered_and_no_session",
        ],
        "",
    ),
    row(
        "F56",
        "file descriptors run out",
        "connections without a request make room; if there are none, accepting pauses and recovers",
        &[
            "out_of_descriptors_connections_without_a_request_make_room",
            "a_line_a_minute_tells_of_all_failures",
        ],
        "",
    ),
    row(
        "F57",
        "the disk is full or not writable",
        "calls continue, failures are counted, and waiting changes are written once there is \
         space; with `state = \"embedded\"`, the gateway does not start if it cannot use the place",
        &[
            "f57_a_full_disk_fails_only_persistence_until_there_is_room",
            "a_state_that_cannot_be_kept_is_a_warning_or_the_reason_not_to_start",
        ],
        "",
    ),
    row(
        "F58",
        "the clock jumps",
        "no timeout changes, because all use the monotonic clock",
        &["the_clock_on_the_wall_ends_nothing"],
        "",
    ),
    row(
        "F59",
        "the memory limit",
        "messages reserve their bytes before they are stored, and whatever exceeds the limit is \
         refused",
        &[
            "bodies_that_begin_together_stay_within_the_memory_limit",
            "results_that_nobody_reads_stay_within_the_memory_limit",
            "requests_are_shed_over_the_memory_limit",
        ],
        "",
    ),
    row(
        "F60",
        "no CPU time",
        "health checks are answered, and no server is stopped for being slow",
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
        "a token issuer is down",
        "",
        &[],
        "there are no issued tokens yet: clients use keys from the config",
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
        "two processes share one port: every call of a stateless client is answered, and with its \
         own response",
        &["processes_on_one_port_are_replaced_in_turn_and_no_call_is_lost_or_anothers"],
        "sessions, which belong to one process until there is a shared store",
    ),
];
