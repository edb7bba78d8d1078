//! Properties of edits: random texts with comments in them, and random servers and tools.
//!
//! Texts are written in the styles that people use. Values are those of configs, with odd
//! characters.

use moongate_edit::{Edit, EditAction, Format, PathStep, edit};
use proptest::prelude::*;
use serde_json::{Map, Value, json};

const FORMATS: [Format; 3] = [Format::Toml, Format::Json, Format::Yaml];

/// Text of a config under construction, with a number for each comment.
struct TextWriter {
    format: Format,
    out: String,
    comments: usize,
    /// Says of each place whether it has a comment.
    noise: Vec<bool>,
    at: usize,
}

impl TextWriter {
    fn chance(&mut self) -> bool {
        self.at += 1;
        self.noise[self.at % self.noise.len()]
    }

    fn comment(&mut self) -> String {
        self.comments += 1;
        let mark = if self.format == Format::Json {
            "//"
        } else {
            "#"
        };
        format!("{mark} comment {} # \"", self.comments)
    }

    fn line(&mut self, indent: usize, text: &str) {
        let pad = " ".repeat(indent);
        if self.chance() {
            let comment = self.comment();
            self.out += &format!("{pad}{comment}\n");
        }
        let behind = if self.chance() {
            format!(" {}", self.comment())
        } else {
            String::new()
        };
        self.out += &format!("{pad}{text}{behind}\n");
        if self.chance() && self.format != Format::Json {
            self.out += "\n";
        }
    }
}

fn quoted(text: &str) -> String {
    Value::from(text).to_string()
}

/// Server of a random config.
#[derive(Clone, Debug)]
struct TestServer {
    name: String,
    url: String,
    /// `None` if it has no rules.
    deny: Option<Vec<String>>,
    multiline: bool,
    trailing: bool,
}

fn list(writer: &mut TextWriter, indent: usize, server: &TestServer, head: &str, tail: &str) {
    let Some(deny) = &server.deny else { return };
    if !server.multiline {
        let items: Vec<String> = deny.iter().map(|item| quoted(item)).collect();
        return writer.line(indent, &format!("{head}[{}]{tail}", items.join(", ")));
    }
    writer.line(indent, &format!("{head}["));
    for (n, item) in deny.iter().enumerate() {
        let comma = if n + 1 < deny.len() || server.trailing {
            ","
        } else {
            ""
        };
        writer.line(indent + 2, &format!("{}{comma}", quoted(item)));
    }
    writer.line(indent, &format!("]{tail}"));
}

fn write_toml(writer: &mut TextWriter, servers: &[TestServer], style: u8) {
    if style == 1 {
        writer.line(0, "[servers]");
    }
    for server in servers {
        let name = if server.name.is_ascii() {
            server.name.clone()
        } else {
            quoted(&server.name)
        };
        match style {
            0 => {
                writer.line(0, &format!("[servers.{name}]"));
                writer.line(0, &format!("url = {}", quoted(&server.url)));
                list(writer, 0, server, "tools.deny = ", "");
            }
            1 => writer.line(0, &format!("{name} = {{ url = {} }}", quoted(&server.url))),
            _ => {
                writer.line(0, &format!("[servers.{name}]"));
                writer.line(0, &format!("url = {}", quoted(&server.url)));
                if server.deny.is_some() {
                    writer.line(0, &format!("[servers.{name}.tools]"));
                    list(writer, 0, server, "deny = ", "");
                }
            }
        }
    }
}

fn write_json(writer: &mut TextWriter, servers: &[TestServer], style: u8) {
    writer.line(0, "{");
    writer.line(2, "\"servers\": {");
    for (n, server) in servers.iter().enumerate() {
        let comma = if n + 1 < servers.len() || server.trailing {
            ","
        } else {
            ""
        };
        let name = quoted(&server.name);
        if style == 0 {
            writer.line(
                4,
                &format!("{name}: {{ \"url\": {} }}{comma}", quoted(&server.url)),
            );
            continue;
        }
        writer.line(4, &format!("{name}: {{"));
        let more = if server.deny.is_some() || server.trailing {
            ","
        } else {
            ""
        };
        writer.line(6, &format!("\"url\": {}{more}", quoted(&server.url)));
        if server.deny.is_some() {
            writer.line(6, "\"tools\": {");
            list(writer, 8, server, "\"deny\": ", "");
            writer.line(6, "}");
        }
        writer.line(4, &format!("}}{comma}"));
    }
    writer.line(2, "}");
    writer.line(0, "}");
}

fn write_yaml(writer: &mut TextWriter, servers: &[TestServer], style: u8) {
    writer.line(0, "servers:");
    for server in servers {
        let name = quoted(&server.name);
        if style == 0 {
            writer.line(2, &format!("{name}: {{url: {}}}", quoted(&server.url)));
            continue;
        }
        writer.line(2, &format!("{name}:"));
        writer.line(4, &format!("url: {}", quoted(&server.url)));
        let Some(deny) = &server.deny else { continue };
        writer.line(4, "tools:");
        if style == 1 {
            list(writer, 6, server, "deny: ", "");
            continue;
        }
        writer.line(6, "deny:");
        for item in deny {
            writer.line(
                if server.trailing { 8 } else { 6 },
                &format!("- {}", quoted(item)),
            );
        }
    }
}

/// Random text.
#[derive(Clone, Debug)]
struct TestText {
    format: Format,
    text: String,
    servers: Vec<TestServer>,
    comments: usize,
}

fn any_server() -> impl Strategy<Value = TestServer> {
    let deny = proptest::option::of(proptest::collection::vec("[a-z*_]{1,6}", 1..4));
    (
        "[a-z]{1,5}|[a-zé]{2}",
        "[ -~é\\n]{0,8}",
        deny,
        any::<bool>(),
        any::<bool>(),
    )
        .prop_map(|(name, url, deny, multiline, trailing)| TestServer {
            name,
            url,
            deny,
            multiline,
            trailing,
        })
}

fn any_text() -> impl Strategy<Value = TestText> {
    let servers = proptest::collection::vec(any_server(), 1..4);
    let noise = proptest::collection::vec(any::<bool>(), 13);
    (0..3_usize, servers, noise, 0..3_u8, any::<[bool; 3]>()).prop_map(
        |(format, mut servers, noise, style, [crlf, mark, end])| {
            let format = FORMATS[format];
            servers.sort_by(|one, two| one.name.cmp(&two.name));
            servers.dedup_by(|one, two| one.name == two.name);
            let mut writer = TextWriter {
                format,
                out: String::new(),
                comments: 0,
                noise,
                at: 0,
            };
            match format {
                Format::Toml => write_toml(&mut writer, &servers, style),
                Format::Json => write_json(&mut writer, &servers, style),
                Format::Yaml => write_yaml(&mut writer, &servers, style),
            }
            let mut text = writer.out;
            if !end {
                text.truncate(text.trim_end().len());
            }
            if crlf {
                text = text.replace('\n', "\r\n");
            }
            if mark {
                text.insert(0, '\u{feff}');
            }
            TestText {
                format,
                text,
                servers,
                comments: writer.comments,
            }
        },
    )
}

/// Value of a server, with what configs have in them.
fn any_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        "[ -~é\\n\\t]{0,12}".prop_map(Value::from),
        any::<i32>().prop_map(Value::from),
        any::<bool>().prop_map(Value::from),
        // Eighths: the test's own readers round others.
        (-9000..9000_i32).prop_map(|eighths| Value::from(f64::from(eighths) / 8.0)),
        proptest::sample::select(vec![
            "yes",
            "null",
            "1",
            "0x1",
            "~",
            "a: b",
            "- a",
            "#",
            "'",
            "2026-01-01",
            ""
        ])
        .prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 12, 3, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..3).prop_map(Value::Array),
            proptest::collection::vec(("[a-z A-Z.:\"é-]{1,6}", inner), 0..3)
                .prop_map(|entries| Value::Object(Map::from_iter(entries))),
        ]
    })
}

fn at(keys: &[&str]) -> Vec<PathStep> {
    keys.iter().map(|key| PathStep::from(*key)).collect()
}

fn tree(format: Format, text: &str) -> Value {
    let text = text.trim_start_matches('\u{feff}');
    match format {
        Format::Toml => toml::from_str(text).unwrap(),
        Format::Json => {
            jsonc_parser::parse_to_serde_value(text, &jsonc_parser::ParseOptions::default())
                .unwrap()
                .unwrap()
        }
        Format::Yaml => serde_saphyr::from_str(text).unwrap(),
    }
}

/// Numbers of the comments in a text, in their order.
fn comments(text: &str) -> Vec<usize> {
    let numbers = text.split(" comment ").skip(1);
    numbers
        .map(|rest| rest.split(' ').next().unwrap().parse().unwrap())
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn a_tool_that_is_switched_off_and_on_leaves_no_trace(text in any_text(),
        pick in any::<proptest::sample::Index>()) {
        let name = pick.get(&text.servers).name.clone();
        let deny = ["servers", &name, "tools", "deny"];
        let off = [Edit::new(at(&deny), EditAction::AddItem("switched off".to_owned()))];
        let after = edit(text.format, &text.text, &off).unwrap();
        prop_assert_eq!(comments(&after), (1..=text.comments).collect::<Vec<_>>());
        let mut wanted = tree(text.format, &text.text);
        let server = wanted["servers"][&name].as_object_mut().unwrap();
        let tools = server.entry("tools").or_insert_with(|| json!({}));
        let list = tools.as_object_mut().unwrap().entry("deny").or_insert_with(|| json!([]));
        list.as_array_mut().unwrap().push("switched off".into());
        prop_assert_eq!(tree(text.format, &after), wanted);
        let on = [
            Edit::new(at(&deny), EditAction::RemoveItem("switched off".to_owned())),
            Edit::new(at(&deny), EditAction::RemoveIfEmpty),
            Edit::new(at(&deny[..3]), EditAction::RemoveIfEmpty),
        ];
        prop_assert_eq!(edit(text.format, &after, &on).unwrap(), text.text);
    }

    #[test]
    fn a_server_that_is_added_and_removed_leaves_no_trace(text in any_text(), value in any_value(),
        name in "[A-Z. é]{0,3}[A-Z]") {
        let value = json!({ "command": "x", "more": value });
        let path = at(&["servers", &name]);
        let after = edit(text.format, &text.text,
            &[Edit::new(path.clone(), EditAction::Set(value.clone()))]).unwrap();
        prop_assert_eq!(comments(&after), (1..=text.comments).collect::<Vec<_>>());
        let mut wanted = tree(text.format, &text.text);
        wanted["servers"][&name] = value;
        prop_assert_eq!(tree(text.format, &after), wanted);
        prop_assert_eq!(edit(text.format, &after, &[Edit::new(path, EditAction::Remove)]).unwrap(),
            text.text);
    }

    #[test]
    fn a_server_that_is_removed_takes_only_its_own_comments(text in any_text(),
        pick in any::<proptest::sample::Index>()) {
        let index = pick.index(text.servers.len());
        let name = &text.servers[index].name;
        let after = edit(text.format, &text.text,
            &[Edit::new(at(&["servers", name]), EditAction::Remove)]).unwrap();
        let mut wanted = tree(text.format, &text.text);
        wanted["servers"].as_object_mut().unwrap().shift_remove(name);
        let mut found = tree(text.format, &after);
        if text.servers.len() == 1 && found.get("servers").is_none() {
            // TOML has no place for an empty table.
            found["servers"] = json!({});
        }
        prop_assert_eq!(found, wanted);
        // The rest is a part of the old text, in one piece before and one behind.
        let all = comments(&text.text);
        let left = comments(&after);
        let before = all.iter().zip(&left).take_while(|(one, two)| one == two).count();
        prop_assert!(all.ends_with(&left[before..]), "{:?} of {:?}", left, all);
    }

    #[test]
    fn a_value_that_is_set_is_read_back(text in any_text(), value in any_value(),
        pick in any::<proptest::sample::Index>()) {
        let name = &pick.get(&text.servers).name;
        let path = at(&["servers", name, "url"]);
        let after = edit(text.format, &text.text,
            &[Edit::new(path, EditAction::Set(value.clone()))]).unwrap();
        let mut wanted = tree(text.format, &text.text);
        wanted["servers"][name]["url"] = value;
        prop_assert_eq!(tree(text.format, &after), wanted);
        prop_assert_eq!(comments(&after), (1..=text.comments).collect::<Vec<_>>());
    }

    #[test]
    fn any_text_is_edited_or_refused(format in 0..3_usize, text in "[a-c\\[\\]{}:,=#\"'.\\n \
        &*|>/-]{0,60}") {
        let edits = [
            Edit::new(at(&["a", "b"]), EditAction::AddItem("x".to_owned())),
            Edit::new(at(&["c"]), EditAction::Set(json!({ "d": [1] }))),
            Edit::new(at(&["a"]), EditAction::Remove),
        ];
        for one in &edits {
            let _ = edit(FORMATS[format], &text, std::slice::from_ref(one));
        }
    }
}
