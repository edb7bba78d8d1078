//! Arguments of meta-tools, as models send them.
//!
//! Owns the checks, and the words for what is wrong. Does not run tools. Invariant: each problem
//! names the argument and says what would be right.

use bytes::Bytes;

use crate::search_mode::meta_tools::MetaTool;
use moongate_jsonrpc::json::{ByteString, JsonObject, RawJson};

/// Most hits of a search.
pub(super) const LIMIT_MAX: usize = 20;
/// Hits of a search that names no limit.
pub(super) const LIMIT_DEFAULT: usize = 5;
/// Unknown members that a refusal names.
const STRAY_MAX: usize = 5;
/// Most tools that are described at once.
const NAMES_MAX: usize = 10;

/// Problem with the arguments, as a text for models.
#[derive(Debug, PartialEq)]
pub(super) struct ArgumentProblem(pub(super) String);

/// Arguments of one call of a meta-tool.
pub(super) struct MetaArguments {
    tool: MetaTool,
    members: JsonObject,
}

impl MetaArguments {
    /// Reads the arguments of a call. None at all are an empty object.
    pub(super) fn read(tool: MetaTool, raw: Option<&RawJson>) -> Result<Self, ArgumentProblem> {
        let object = object_text(raw)
            .ok()
            .map(|object| object.map_or(Some(JsonObject::new()), |raw| raw.as_object()));
        let empty = MetaArguments {
            tool,
            members: JsonObject::new(),
        };
        match object.flatten() {
            Some(members) => Ok(MetaArguments { tool, members }),
            None => {
                Err(empty.problem("The arguments must be one JSON object without duplicate keys."))
            }
        }
    }

    /// Names the members that the tool does not have, if there are any: "`a` is not an argument
    /// of call_tool".
    pub(super) fn stray_members(&self) -> Option<String> {
        let keys = self
            .members
            .iter()
            .map(|(key, _)| key.as_str())
            .filter(|key| self.member(key).is_some() && !self.tool.has_argument(key))
            .take(STRAY_MAX);
        let names: Vec<String> = keys
            .map(|key| format!("`{}`", moongate_search::summary(key)))
            .collect();
        let verb = if names.len() == 1 {
            "is not an argument"
        } else {
            "are not arguments"
        };
        (!names.is_empty())
            .then(|| format!("{} {verb} of {}", names.join(" and "), self.tool.name()))
    }

    /// Returns a text that must be there, without spaces around it.
    pub(super) fn text(&self, key: &str) -> Result<ByteString, ArgumentProblem> {
        // An empty text finds nothing. Its refusal shows how to call instead.
        self.optional_text(key)?
            .ok_or_else(|| self.problem(&format!("`{key}` is missing.")))
    }

    /// Returns a text without spaces around it, if it is there.
    pub(super) fn optional_text(&self, key: &str) -> Result<Option<ByteString>, ArgumentProblem> {
        let Some(raw) = self.member(key) else {
            return Ok(None);
        };
        let text = raw
            .as_text()
            .ok_or_else(|| self.problem(&format!("`{key}` must be a string.")))?;
        Ok(Some(trimmed(&text)).filter(|text| !text.is_empty()))
    }

    /// Returns the number of hits that are wanted.
    pub(super) fn limit(&self) -> Result<usize, ArgumentProblem> {
        let Some(raw) = self.member("limit") else {
            return Ok(LIMIT_DEFAULT);
        };
        // Some models write whole numbers as `5.0`, or as a text.
        let number = raw.as_text().map_or_else(
            || raw.parse_as().ok(),
            |text| text.trim().parse::<f64>().ok(),
        );
        let number = number.filter(|number| number.fract() == 0.0);
        match number {
            Some(number) if (1.0..=LIMIT_MAX as f64).contains(&number) => Ok(number as usize),
            _ => Err(self.problem(&format!(
                "`limit` must be an integer from 1 to {LIMIT_MAX}."
            ))),
        }
    }

    /// Returns true if whole definitions are wanted.
    pub(super) fn wants_full(&self) -> Result<bool, ArgumentProblem> {
        match self.optional_text("detail")?.as_deref() {
            None | Some("signature") => Ok(false),
            Some("full") => Ok(true),
            Some(_) => Err(self.problem("`detail` must be \"signature\" or \"full\".")),
        }
    }

    /// Returns the names of tools. A lone name needs no array, and an array may be a text.
    pub(super) fn names(&self) -> Result<Vec<ByteString>, ArgumentProblem> {
        let names = match self.member("names").map(|raw| (raw, raw.as_text())) {
            Some((_, Some(text))) => parse_text(&text)
                .as_ref()
                .and_then(text_array)
                .or(Some(vec![text])),
            Some((raw, None)) => text_array(raw),
            None => None,
        };
        match names {
            Some(names) if (1..=NAMES_MAX).contains(&names.len()) => {
                Ok(names.iter().map(trimmed).collect())
            }
            _ => Err(self.problem(&format!(
                "`names` must be an array of 1 to {NAMES_MAX} names of tools."
            ))),
        }
    }

    /// Returns the bytes of an object, if it is there. Models often write one as a string.
    pub(super) fn object(&self, key: &str) -> Result<Option<RawJson>, ArgumentProblem> {
        object_text(self.member(key)).map_err(|()| {
            self.problem(&format!(
                "`{key}` must be a JSON object, such as {{\"path\": \"a.txt\"}}."
            ))
        })
    }

    fn member(&self, key: &str) -> Option<&RawJson> {
        // Models write `null` for arguments that they leave out.
        self.members.get(key).filter(|raw| !raw.is_null())
    }

    pub(super) fn problem(&self, text: &str) -> ArgumentProblem {
        // Each problem repeats the signature, so that the model can correct its call without
        // another step.
        ArgumentProblem(format!(
            "{text}\nArguments of {}: {}",
            self.tool.name(),
            self.tool.signature()
        ))
    }
}

/// Returns an object's bytes: as they are, or out of a string that holds them.
fn object_text(raw: Option<&RawJson>) -> Result<Option<RawJson>, ()> {
    let Some(raw) = raw.filter(|raw| !raw.is_null()) else {
        return Ok(None);
    };
    if raw.is_object() {
        return Ok(Some(raw.clone()));
    }
    let text = raw.as_text().ok_or(())?;
    // Models send an empty text for a tool that takes no arguments.
    if text.trim().is_empty() {
        return Ok(None);
    }
    // Unwrapped once only. A text within this text is a mistake that the model should see.
    parse_text(&text)
        .filter(RawJson::is_object)
        .map(Some)
        .ok_or(())
}

/// Returns the JSON that a text holds.
fn parse_text(text: &str) -> Option<RawJson> {
    RawJson::parse(Bytes::copy_from_slice(text.as_bytes())).ok()
}

/// Returns the texts of an array that has nothing else.
fn text_array(raw: &RawJson) -> Option<Vec<ByteString>> {
    raw.as_array()?.iter().map(RawJson::as_text).collect()
}

fn trimmed(text: &ByteString) -> ByteString {
    ByteString::from(text.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(tool: MetaTool, json: &'static str) -> Result<MetaArguments, ArgumentProblem> {
        MetaArguments::read(tool, Some(&RawJson::literal(json)))
    }

    fn problem<T: std::fmt::Debug>(result: Result<T, ArgumentProblem>) -> String {
        result.unwrap_err().0
    }

    fn read_search(json: &'static str) -> MetaArguments {
        read(MetaTool::SearchTools, json).unwrap()
    }

    fn stray_members(json: &'static str) -> Option<String> {
        read(MetaTool::CallTool, json).unwrap().stray_members()
    }

    fn arguments_object(json: &'static str) -> Result<Option<RawJson>, ArgumentProblem> {
        read(MetaTool::CallTool, json).unwrap().object("arguments")
    }

    #[test]
    fn what_is_wrong_is_answered_with_what_is_right() {
        let signature =
            "\nArguments of search_tools: search_tools(query: string, server?: string, ";
        let missing = problem(read_search("{}").text("query"));
        assert!(
            missing.starts_with(&format!("`query` is missing.{signature}")),
            "{missing}"
        );
        assert!(
            problem(read_search(r#"{"query":" "}"#).text("query"))
                .starts_with("`query` is missing.")
        );
        assert!(
            problem(read_search(r#"{"query":7}"#).text("query"))
                .starts_with("`query` must be a string.")
        );
        for limit in [
            "0", "21", "-1", "2.5", "\"many\"", "\"21\"", "\"NaN\"", "[]", "1e99",
        ] {
            let json = format!(r#"{{"limit":{limit}}}"#);
            let arguments = read(MetaTool::SearchTools, json.leak()).unwrap();
            assert!(
                problem(arguments.limit()).starts_with("`limit` must be an integer from 1 to 20."),
                "{limit}"
            );
        }
        assert!(
            problem(read_search(r#"{"detail":"all"}"#).wants_full())
                .contains("\"signature\" or \"full\"")
        );
        for names in [
            "{}",
            r#"{"names":[]}"#,
            r#"{"names":[7]}"#,
            r#"{"names":{}}"#,
        ] {
            let arguments = read(MetaTool::DescribeTool, names).unwrap();
            assert!(
                problem(arguments.names()).contains("describe_tool(names: string[])"),
                "{names}"
            );
        }
        for raw in ["[]", "7", r#"{"a":1,"a":2}"#, r#""[]""#] {
            assert!(read(MetaTool::CallTool, raw).is_err(), "{raw}");
        }
    }

    #[test]
    fn slips_of_models_are_accepted() {
        let search = read(MetaTool::SearchTools, r#"{"limit":5.0,"server":null}"#).unwrap();
        assert_eq!(search.limit(), Ok(5));
        assert_eq!(search.optional_text("server"), Ok(None));
        let whole = read(MetaTool::SearchTools, r#""{\"query\":\"x\"}""#).unwrap();
        assert_eq!(whole.text("query").as_deref(), Ok("x"));
        let number = read(MetaTool::SearchTools, r#"{"limit":" 3","server":" "}"#).unwrap();
        assert_eq!(number.limit(), Ok(3));
        assert_eq!(number.optional_text("server"), Ok(None));
        for (names, read_as) in [
            (r#""a ""#, &["a"][..]),
            (r#""[\"a\", \" b\"]""#, &["a", "b"]),
            (r#"["a"]"#, &["a"]),
        ] {
            let arguments = read(
                MetaTool::DescribeTool,
                format!(r#"{{"names":{names}}}"#).leak(),
            )
            .unwrap();
            let named = arguments.names().unwrap();
            assert!(
                named
                    .iter()
                    .map(ByteString::as_str)
                    .eq(read_as.iter().copied()),
                "{names}"
            );
        }
        assert!(MetaArguments::read(MetaTool::ListServers, None).is_ok());
    }

    #[test]
    fn members_of_no_argument_are_named() {
        assert_eq!(
            stray_members(r#"{"name":"a","arguments":{},"args":null}"#),
            None
        );
        assert_eq!(
            stray_members(r#"{"name":"a","args":{}}"#).as_deref(),
            Some("`args` is not an argument of call_tool")
        );
        let two = stray_members(r#"{"name":"a","b\nc":1,"d":2}"#);
        assert_eq!(
            two.as_deref(),
            Some("`b c` and `d` are not arguments of call_tool")
        );
        let long = format!(r#"{{"name":"a","{}":1}}"#, "x".repeat(100_000));
        assert!(stray_members(long.leak()).is_some_and(|text| text.len() < 400));
    }

    #[test]
    fn objects_keep_their_bytes_and_may_be_strings() {
        assert_eq!(
            arguments_object(r#"{"arguments":{ "n":1.0 }}"#)
                .unwrap()
                .unwrap()
                .bytes(),
            r#"{ "n":1.0 }"#.as_bytes()
        );
        assert_eq!(
            arguments_object(r#"{"arguments":"{ \"n\":1.0 }"}"#)
                .unwrap()
                .unwrap()
                .bytes(),
            r#"{ "n":1.0 }"#.as_bytes()
        );
        for none in ["{}", r#"{"arguments":null}"#, r#"{"arguments":""}"#] {
            assert_eq!(arguments_object(none), Ok(None), "{none}");
        }
        for wrong in [
            r#"{"arguments":[]}"#,
            r#"{"arguments":"no"}"#,
            r#"{"arguments":7}"#,
            r#"{"arguments":"[1]"}"#,
        ] {
            assert!(
                problem(arguments_object(wrong)).starts_with("`arguments` must be a JSON object"),
                "{wrong}"
            );
        }
    }
}
