//! Names of methods that belong to extensions of the protocol.
//!
//! Owns the names that the protocol itself uses, in any revision and in either direction. Does not
//! decide who may use an extension (`gateway`). Invariant: no spelling that a lenient server may
//! take for a protocol method is an extension's.

/// Limit in bytes of an extension's method name.
const NAME_MAX: usize = 128;
/// Characters between the words of a name.
const SEPARATORS: &[u8] = b"/._-:$";

/// Methods of requests and notifications, in lower case and without separators.
const PROTOCOL_METHODS: [&str; 35] = [
    "completioncomplete",
    "elicitationcreate",
    "initialize",
    "initialized",
    "loggingsetlevel",
    "notificationscancelled",
    "notificationselicitationcomplete",
    "notificationsinitialized",
    "notificationsmessage",
    "notificationsprogress",
    "notificationspromptslistchanged",
    "notificationsresourceslistchanged",
    "notificationsresourcesupdated",
    "notificationsrootslistchanged",
    "notificationssubscriptionsacknowledged",
    "notificationstoolslistchanged",
    "ping",
    "promptsget",
    "promptslist",
    "resourceslist",
    "resourcesread",
    "resourcessubscribe",
    "resourcestemplateslist",
    "resourcesunsubscribe",
    "rootslist",
    "samplingcreatemessage",
    "serverdiscover",
    "subscriptionslisten",
    "tasks",
    "tasksstatus",
    "toolscall",
    "toolslist",
    "promptscall",
    "resourcesget",
    "toolsget",
];

/// Beginnings of protocol methods, in the same form. Task ids are translated, so nothing about
/// tasks passes unread. The JSON-RPC 2.0 specification, section 4, reserves `rpc.`: "Method names
/// that begin with the word rpc followed by a period character […] are reserved".
const PROTOCOL_BEGINNINGS: [&str; 3] = ["tasks", "notificationstasks", "rpc"];

/// Returns true if a method can only belong to an extension: no revision has it, in whatever
/// spelling.
pub fn extends_protocol(method: &str) -> bool {
    if method.len() > NAME_MAX || !method.bytes().all(is_readable) {
        return false;
    }
    let plain: String = method
        .chars()
        .filter(char::is_ascii_alphanumeric)
        .map(|letter| letter.to_ascii_lowercase())
        .collect();
    !plain.is_empty()
        && !PROTOCOL_METHODS.contains(&plain.as_str())
        && !PROTOCOL_BEGINNINGS
            .iter()
            .any(|beginning| plain.starts_with(beginning))
}

fn is_readable(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || SEPARATORS.contains(&byte)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ItemKind, TaskMethod};

    #[test]
    fn methods_of_extensions_are_those_that_no_revision_has() {
        for method in [
            "com.example/thing",
            "ui/open-link",
            "openai/x.y",
            "notifications/claude/channel",
            "tools/callMany",
            "x",
            "events:subscribe",
        ] {
            assert!(extends_protocol(method), "{method}");
        }
    }

    #[test]
    fn no_spelling_of_a_protocol_method_is_an_extension() {
        let listed = ItemKind::ALL.map(ItemKind::list_method);
        let tasks = TaskMethod::ALL.map(TaskMethod::name);
        let others = [
            "initialize",
            "ping",
            "tools/call",
            "logging/setLevel",
            "server/discover",
            "roots/list",
        ];
        for method in listed.into_iter().chain(tasks).chain(others) {
            let spellings = [
                method.to_owned(),
                method.to_ascii_uppercase(),
                method.replace('/', "."),
                method.replace('/', "//"),
                format!("/{method}"),
                format!("{method}/"),
                method.replace('/', "_"),
            ];
            assert!(
                spellings.iter().all(|spelling| !extends_protocol(spelling)),
                "{method}"
            );
        }
        assert!(!extends_protocol("tasks/delete") && !extends_protocol("notifications/tasks"));
        assert!(!extends_protocol("rpc.discover") && !extends_protocol("RPC.x"));
    }

    #[test]
    fn names_that_no_revision_could_have_are_no_extensions() {
        for method in [
            "",
            "/",
            "tools/c\u{0430}ll",
            "tools/call\u{200b}",
            "tools/call ",
            "a\nb",
            "\u{212a}ey/x",
        ] {
            assert!(!extends_protocol(method), "{method:?}");
        }
        assert!(
            extends_protocol(&"x".repeat(NAME_MAX)) && !extends_protocol(&"x".repeat(NAME_MAX + 1))
        );
    }
}
