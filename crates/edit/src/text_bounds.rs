//! Bounds of a text, checked before a parser that calls itself sees it.
//!
//! Owns the measures of nesting, and of what aliases of YAML repeat. Does not report syntax errors:
//! the parsers do that. Invariant: nothing here calls itself, so no text can exhaust the stack.

use std::collections::HashMap;

use granit_parser::{Event as YamlEvent, Parser, StrInput};
use jsonc_parser::Scanner;
use jsonc_parser::tokens::Token;
use toml_parser::Source;
use toml_parser::parser::{Event as TomlEvent, EventKind, RecursionGuard, parse_document};

use crate::format::Format;

/// Limit of nesting. The readers of all formats call themselves, and would run out of stack.
pub(crate) const DEPTH_MAX: usize = 128;
/// Brackets of TOML within each other. Its parser calls itself, and needs a bound before this one
/// can count keys.
const TOML_BRACKETS_MAX: u32 = 80;
/// Bytes that aliases may repeat in any text. In a larger text they may repeat as much as the text
/// has.
const REPEATED_MIN: usize = 32 * 1024;

/// Bound that a text exceeds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TextBound {
    /// Tables and lists within each other.
    Nesting,
    /// Text that aliases repeat.
    Aliases,
}

impl TextBound {
    /// Describes the problem.
    pub fn message(self) -> &'static str {
        match self {
            TextBound::Nesting => "nested too deeply",
            TextBound::Aliases => "aliases repeat more text than the file has",
        }
    }
}

/// Finds the first bound that a text exceeds, with its byte. `depth` is the limit of nesting.
///
/// A text that does not parse has no bound beyond its first error.
pub fn exceeded_bound(format: Format, text: &str, depth: usize) -> Option<(usize, TextBound)> {
    match format {
        Format::Toml => deep_toml(text, depth).map(|at| (at, TextBound::Nesting)),
        Format::Json => deep_json(text, depth).map(|at| (at, TextBound::Nesting)),
        Format::Yaml => YamlMeter {
            text,
            depth,
            open: Vec::new(),
            anchors: HashMap::new(),
            repeated: 0,
        }
        .measure(),
    }
}

fn deep_json(text: &str, depth_max: usize) -> Option<usize> {
    let mut scanner = Scanner::new(text);
    let mut depth = 0_usize;
    while let Ok(Some(token)) = scanner.scan() {
        match token {
            Token::OpenBrace | Token::OpenBracket => depth += 1,
            Token::CloseBrace | Token::CloseBracket => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth > depth_max {
            return Some(scanner.token_start());
        }
    }
    None
}

fn deep_toml(text: &str, depth_max: usize) -> Option<usize> {
    let tokens = Source::new(text).lex().into_vec();
    let mut meter = TomlMeter {
        depth_max,
        header: 0,
        key: 0,
        is_header: false,
        open: Vec::new(),
        found: None,
    };
    parse_document(
        &tokens,
        &mut RecursionGuard::new(&mut |event: TomlEvent| meter.add(event), TOML_BRACKETS_MAX),
        &mut (),
    );
    meter.found
}

/// Depth of the current position in TOML. A dotted key is a table for each of its names, in headers
/// and braces, too.
struct TomlMeter {
    depth_max: usize,
    /// Names of the last header.
    header: usize,
    /// Names of the current key.
    key: usize,
    is_header: bool,
    /// Levels that each open bracket added.
    open: Vec<usize>,
    found: Option<usize>,
}

impl TomlMeter {
    fn add(&mut self, event: TomlEvent) {
        match event.kind() {
            EventKind::StdTableOpen | EventKind::ArrayTableOpen => {
                self.is_header = true;
                (self.header, self.key) = (0, 0);
                self.open.clear();
            }
            EventKind::StdTableClose | EventKind::ArrayTableClose => self.is_header = false,
            EventKind::SimpleKey if self.is_header => self.header += 1,
            EventKind::SimpleKey => self.key += 1,
            EventKind::ArrayOpen | EventKind::InlineTableOpen => {
                self.open.push(self.key + 1);
                self.key = 0;
            }
            EventKind::ArrayClose | EventKind::InlineTableClose => {
                self.open.pop();
                self.key = 0;
            }
            EventKind::ValueSep => self.key = 0,
            EventKind::Newline if self.open.is_empty() => self.key = 0,
            _ => return,
        }
        if self.header + self.open.iter().sum::<usize>() + self.key > self.depth_max {
            self.found.get_or_insert(event.span().start());
        }
    }
}

/// Size and height of a value of YAML, with what its aliases repeat.
#[derive(Clone, Copy, Default)]
struct YamlExtent {
    bytes: usize,
    height: usize,
}

/// Value of YAML that is not closed yet.
struct OpenValue {
    anchor: usize,
    extent: YamlExtent,
}

struct YamlMeter<'a> {
    text: &'a str,
    depth: usize,
    open: Vec<OpenValue>,
    anchors: HashMap<usize, YamlExtent>,
    repeated: usize,
}

impl YamlMeter<'_> {
    fn measure(mut self) -> Option<(usize, TextBound)> {
        let mut events: Parser<'_, StrInput<'_>> = Parser::new_from_str(self.text);
        while let Some(Ok((event, span))) = events.next_event() {
            let exceeded = match event {
                YamlEvent::SequenceStart(_, anchor, _) | YamlEvent::MappingStart(_, anchor, _) => {
                    self.open.push(OpenValue {
                        anchor,
                        extent: YamlExtent::default(),
                    });
                    (self.open.len() > self.depth).then_some(TextBound::Nesting)
                }
                YamlEvent::SequenceEnd | YamlEvent::MappingEnd => {
                    self.close();
                    None
                }
                YamlEvent::Scalar(text, _, anchor, _) => {
                    self.add(
                        anchor,
                        YamlExtent {
                            bytes: text.len() + 1,
                            height: 0,
                        },
                    );
                    None
                }
                YamlEvent::Alias(anchor) => self.repeat(anchor),
                YamlEvent::StreamEnd => return None,
                _ => None,
            };
            if let Some(bound) = exceeded {
                return Some((span.byte_range().unwrap_or(0..0).start, bound));
            }
        }
        None
    }

    fn close(&mut self) {
        let Some(OpenValue { anchor, extent }) = self.open.pop() else {
            return;
        };
        self.add(
            anchor,
            YamlExtent {
                bytes: extent.bytes.saturating_add(1),
                height: extent.height + 1,
            },
        );
    }

    /// Adds a value to the one around it.
    fn add(&mut self, anchor: usize, extent: YamlExtent) {
        if anchor != 0 {
            self.anchors.insert(anchor, extent);
        }
        if let Some(around) = self.open.last_mut() {
            around.extent.bytes = around.extent.bytes.saturating_add(extent.bytes);
            around.extent.height = around.extent.height.max(extent.height);
        }
    }

    fn repeat(&mut self, anchor: usize) -> Option<TextBound> {
        // An alias inside its own anchor has no extent yet. The parser refuses it.
        let extent = self.anchors.get(&anchor).copied().unwrap_or_default();
        self.repeated = self.repeated.saturating_add(extent.bytes);
        self.add(0, extent);
        if self.open.len() + extent.height > self.depth {
            return Some(TextBound::Nesting);
        }
        (self.repeated > self.text.len().max(REPEATED_MIN)).then_some(TextBound::Aliases)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bound(format: Format, text: &str) -> Option<TextBound> {
        exceeded_bound(format, text, 32).map(|(_, bound)| bound)
    }

    fn dotted_key(levels: usize) -> String {
        ["a"].repeat(levels).join(".")
    }

    #[test]
    fn every_way_to_nest_is_counted() {
        let deepest = format!("{} = 1\n", dotted_key(32));
        assert_eq!(bound(Format::Toml, &deepest), None);
        // Each part is within its own limit, and only their sum is not.
        let dotted = format!(
            "[{}]\n{} = [{{ {} = 1 }}]\n",
            dotted_key(12),
            dotted_key(12),
            dotted_key(12)
        );
        let braces = format!(
            "a = {}1{}\n",
            "{ a.a.a.a.a.a.a.a.a = ".repeat(70),
            "}".repeat(70)
        );
        for text in [
            format!("{} = 1\n", dotted_key(33)),
            format!("[{}]\n", dotted_key(33)),
            dotted,
            braces,
        ] {
            assert_eq!(
                bound(Format::Toml, &text),
                Some(TextBound::Nesting),
                "{text}"
            );
        }
        let wide: String = (0..100)
            .map(|n| format!("k{n}.b = {{ c = [1, 2], d.e = 1 }}\n"))
            .collect();
        assert_eq!(bound(Format::Toml, &wide), None);
        for (open, close) in [("[", "]"), ("{\"a\":", "}")] {
            for (depth, expected) in [(32, None), (33, Some(TextBound::Nesting))] {
                let text = format!("{}1{}", open.repeat(depth), close.repeat(depth));
                assert_eq!(bound(Format::Json, &text), expected);
            }
            assert_eq!(
                bound(Format::Json, &open.repeat(500_000)),
                Some(TextBound::Nesting)
            );
        }
        assert_eq!(
            bound(
                Format::Json,
                &format!("{{\"a\": '{}' /* {} */}}", "[".repeat(40), "{".repeat(40))
            ),
            None
        );
        let brackets = format!("{}{}", "[".repeat(100), "]".repeat(100));
        for text in [
            brackets,
            format!("{}1\n", "- ".repeat(1_000)),
            "a: &a [[[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]]]\n\
             b: [[[[[[[[[[[[[[[[[[*a]]]]]]]]]]]]]]]]]]"
                .to_owned(),
        ] {
            assert_eq!(
                bound(Format::Yaml, &text),
                Some(TextBound::Nesting),
                "{}",
                &text[..20]
            );
        }
    }

    #[test]
    fn aliases_repeat_what_servers_share_and_no_more() {
        let shared: String = (0..50)
            .map(|n| format!("  s{n}: {{<<: *base, env: *env}}\n"))
            .collect();
        let text = format!(
            "x-env: &env {{A: one, B: two}}\nx-base: &base \
             {{command: node, args: [a, b]}}\nservers:\n{shared}"
        );
        assert_eq!(bound(Format::Yaml, &text), None);
        let bomb = "a: &a [x, x, x, x, x, x, x, x, x, x]\nb: &b [*a, *a, *a, *a, *a, *a, *a, *a, \
                    *a, *a]\n\
                    c: &c [*b, *b, *b, *b, *b, *b, *b, *b, *b, *b]\nd: &d [*c, *c, *c, *c, *c, *c, \
                    *c, *c, *c, *c]\n\
                    e: [*d, *d, *d, *d, *d, *d, *d, *d, *d, *d]\n";
        assert_eq!(bound(Format::Yaml, bomb), Some(TextBound::Aliases));
        // One long text many times is as large as many short ones.
        let long = format!(
            "a: &a {}\nb: [{}]\n",
            "x".repeat(20_000),
            "*a, ".repeat(1_000)
        );
        assert_eq!(bound(Format::Yaml, &long), Some(TextBound::Aliases));
        assert_eq!(
            bound(Format::Yaml, "a: &a [*a]\n"),
            None,
            "the parser says that it is circular"
        );
    }
}
