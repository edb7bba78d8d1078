//! Tests of the index: what may be seen, in which order, and at what cost.

use super::*;
use crate::document::ArgumentText;

/// Tools of servers `s0`, `s1`, ... with words that overlap. The id is the server and the tool.
type ToolId = (usize, usize);

const VERBS: [&str; 7] = [
    "create", "delete", "list", "search", "send", "read", "convert",
];
const NOUNS: [&str; 9] = [
    "issue",
    "file",
    "repository",
    "message",
    "calendar",
    "image",
    "table",
    "weather",
    "order",
];

fn pick<'a>(words: &[&'a str], n: usize) -> &'a str {
    words[n % words.len()]
}

fn put_server(index: &mut SearchIndex<ToolId>, server: usize, keep: impl Fn(&ToolId) -> bool) {
    let name = format!("s{server}");
    let texts: Vec<_> = (0..12)
        .map(|tool| ((server, tool), tool_texts(server, tool)))
        .filter(|(id, _)| keep(id))
        .collect();
    let tools =
        texts.iter().map(
            |(id, (own_name, exposed_name, description, arguments))| ToolDocument {
                id: *id,
                exposed_name,
                own_name,
                description,
                arguments,
            },
        );
    let description = format!("Server for {}s", pick(&NOUNS, server));
    index.replace_server(
        ServerDocument {
            name: &name,
            title: "",
            description: &description,
        },
        tools,
    );
}

/// Own name, exposed name, description and arguments of a tool.
fn tool_texts(server: usize, tool: usize) -> (String, String, String, Vec<ArgumentText>) {
    let n = server * 31 + tool * 17;
    let own = format!("{}_{}", pick(&VERBS, n), pick(&NOUNS, n / 3));
    let exposed = format!("s{server}__{own}_{tool}");
    let description = format!(
        "Can {} a {} of {}.",
        pick(&VERBS, n + tool),
        pick(&NOUNS, n / 2),
        pick(&NOUNS, n / 5)
    );
    let argument = ArgumentText {
        name: format!("{}_id", pick(&NOUNS, n)),
        description: "Key of it".to_owned(),
    };
    (own, exposed, description, vec![argument])
}

fn index_of(servers: usize, keep: impl Fn(&ToolId) -> bool) -> SearchIndex<ToolId> {
    let mut index = SearchIndex::default();
    (0..servers).for_each(|server| put_server(&mut index, server, &keep));
    index
}

const QUERIES: [&str; 8] = [
    "create an issue",
    "remove a picture",
    "serach the calender",
    "send message weather",
    "list_file",
    "s2__read_order_3",
    "nothing of this kind",
    "",
];

#[test]
fn hidden_tools_change_nothing() {
    let whole = index_of(9, |_| true);
    for rule in [2, 3, 5, 7] {
        let visible_only = index_of(9, |id| is_visible(id, rule));
        for query in QUERIES {
            assert_eq!(
                whole.search(query, |id| is_visible(id, rule), 20),
                visible_only.search(query, |_| true, 20),
                "{query}"
            );
        }
    }
}

fn is_visible(id: &ToolId, rule: usize) -> bool {
    (id.0 * 5 + id.1) % rule == 1 && id.0 != 4
}

#[test]
fn replacing_a_server_equals_building_anew() {
    let mut index = index_of(5, |id| id.0 != 2 || id.1 % 2 == 0);
    let before = index.clone();
    put_server(&mut index, 2, |_| true);
    index.remove_server("s0");
    index.remove_server("unknown");
    let rebuilt = index_of(5, |id| id.0 != 0);
    for query in QUERIES {
        let hits = index.search(query, |_| true, 10);
        // An empty server of `rebuilt` has no tools, like a missing one.
        assert_eq!(hits, rebuilt.search(query, |_| true, 10), "{query}");
    }
    assert!(
        before
            .search("s0__create_issue_0", |_| true, 1)
            .iter()
            .all(|hit| hit.id.0 == 0),
        "a copy stays as it was"
    );
}

#[test]
fn names_come_first_and_ties_go_by_name() {
    let mut index = SearchIndex::default();
    index.replace_server(
        untitled_server("b"),
        [
            tool_document(1, "b__ping", "ping", "Answers."),
            tool_document(2, "b__echo", "echo", "Ping ping."),
        ],
    );
    index.replace_server(
        untitled_server("a"),
        [
            tool_document(3, "a__ping", "ping", "Answers."),
            tool_document(4, "ping", "pong", "Other."),
        ],
    );
    assert_eq!(found_ids(&index, "ping"), [4, 3, 1, 2]);
    assert_eq!(found_ids(&index, " B__Ping "), [1, 2, 3]);
    assert_eq!(index.search("ping", |_| true, 2).len(), 2);
    assert_eq!(index.search("ping", |_| true, 0).len(), 0);
}

fn tool_document<'a, Id>(
    id: Id,
    exposed_name: &'a str,
    own_name: &'a str,
    description: &'a str,
) -> ToolDocument<'a, Id> {
    ToolDocument {
        id,
        exposed_name,
        own_name,
        description,
        arguments: &[],
    }
}

fn untitled_server(name: &str) -> ServerDocument<'_> {
    ServerDocument {
        name,
        ..ServerDocument::default()
    }
}

fn found_ids(index: &SearchIndex<i32>, query: &str) -> Vec<i32> {
    index
        .search(query, |_| true, 10)
        .iter()
        .map(|hit| hit.id)
        .collect()
}

#[test]
fn hits_say_which_words_they_have() {
    let index = index_of(6, |_| true);
    let hit = index
        .search("please delete Pictures xyzzy", |_| true, 1)
        .remove(0);
    assert_eq!(hit.matched_words, ["delete", "pictures"]);
    assert!(hit.score > 0.15 && hit.score <= 1.0, "{hit:?}");
}

#[test]
fn nothing_comes_where_nothing_fits() {
    let index = index_of(6, |_| true);
    assert!(
        index
            .search("quantum zebra violin xylophone server", |_| true, 5)
            .is_empty()
    );
    assert!(index.search("", |_| true, 5).is_empty());
    assert!(index.search("create", |_| false, 5).is_empty());
    assert!(
        SearchIndex::<u32>::default()
            .search("create", |_| true, 5)
            .is_empty()
    );
}

#[test]
fn other_words_for_the_same_are_found_in_a_small_catalogue() {
    let mut index = SearchIndex::default();
    let tools = [
        ("create_issue", "Create a new issue"),
        ("delete_all", "Delete all issues"),
        ("read_issue", "Read one issue"),
        ("sample", "Answers with a text"),
    ];
    index.replace_server(
        untitled_server("shop"),
        tools.map(|(name, description)| tool_document(name, name, name, description)),
    );
    for (query, first) in [
        ("remove", "delete_all"),
        ("delete everything", "delete_all"),
        ("remove everything", "delete_all"),
        ("erase them all", "delete_all"),
        ("post a ticket", "create_issue"),
        ("file a bug", "create_issue"),
        ("get the ticket", "read_issue"),
    ] {
        assert_eq!(
            index.search(query, |_| true, 5).first().map(|hit| hit.id),
            Some(first),
            "{query}"
        );
    }
    for query in [
        "book a flight",
        "play some music",
        "weather tomorrow",
        "remove the stain from a carpet",
    ] {
        assert_eq!(index.search(query, |_| true, 5), [], "{query}");
    }
}

#[test]
fn long_queries_are_cut() {
    let index = index_of(6, |_| true);
    let query = (0..100_000)
        .map(|n| format!("word{n} "))
        .collect::<String>()
        + "issue";
    assert!(
        index.search(&query, |_| true, 5).is_empty(),
        "the last word is beyond the bound"
    );
    assert!(
        !index
            .search(&format!("issue {query}"), |_| true, 5)
            .iter()
            .any(|hit| hit.matched_words.len() > 64)
    );
}
