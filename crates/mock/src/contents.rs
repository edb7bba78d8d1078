//! Contents of a mock server: the definitions of its tools, resources, templates and prompts.
//!
//! Owns the lists. Does not own the behaviour behind them. Invariant: a definition that the script
//! gives as text leaves as that text; a built-in one has only members that the revision knows.

use serde_json::{Value, json};

use super::{
    revision::Revision,
    script::{ContentPreset, GeneratedTools, MockScript},
};

/// Entry of a list.
#[derive(Debug, Clone)]
pub(super) struct ListItem {
    /// Name or URI, empty if the definition has none.
    pub(super) key: String,
    /// Definition of the entry.
    pub(super) def: ItemDefinition,
    /// Definition at 2026-07-28, if it differs there, sent as written.
    pub(super) modern: Option<String>,
}

/// Definition of an item.
#[derive(Debug, Clone)]
pub(super) enum ItemDefinition {
    /// Built-in definition, encoded for each revision.
    BuiltIn(Value),
    /// Definition of the script, sent as written.
    Verbatim(String),
}

impl ListItem {
    fn built_in(key: &str, def: Value) -> Self {
        let key = def[key].as_str().unwrap_or_default().to_owned();
        Self {
            key,
            def: ItemDefinition::BuiltIn(def),
            modern: None,
        }
    }

    /// Reads an entry of the script: an object, or a string of JSON.
    pub(super) fn from_script(key: &str, value: &Value) -> Self {
        let text = value
            .as_str()
            .map_or_else(|| value.to_string(), str::to_owned);
        let name = serde_json::from_str::<Value>(&text)
            .ok()
            .and_then(|v| v[key].as_str().map(str::to_owned));
        Self {
            key: name.unwrap_or_default(),
            def: ItemDefinition::Verbatim(text),
            modern: None,
        }
    }

    /// Tool with a name and no arguments.
    pub(super) fn tool(name: &str, description: &str) -> Self {
        Self::built_in("name", tool(name, description, json!({})))
    }

    /// Prompt with a name and no arguments.
    pub(super) fn prompt(name: &str, description: &str) -> Self {
        Self::built_in("name", json!({"name": name, "description": description}))
    }

    /// Encodes the definition for this revision.
    pub(super) fn encode(&self, revision: Revision) -> String {
        if let Some(text) = self.modern.as_ref().filter(|_| revision.is_modern()) {
            return text.clone();
        }
        let value = match &self.def {
            ItemDefinition::Verbatim(text) => return text.clone(),
            ItemDefinition::BuiltIn(value) => value,
        };
        let mut value = value.clone();
        if let Some(object) = value.as_object_mut() {
            object.retain(|k, _| match k.as_str() {
                "title" | "outputSchema" | "_meta" => revision >= Revision::V2025_06_18,
                "annotations" => revision >= Revision::V2025_03_26,
                "icons" => revision >= Revision::V2025_11_25,
                _ => true,
            });
        }
        value.to_string()
    }

    /// Definition as a value. Null if it is not JSON.
    pub(super) fn value(&self) -> Value {
        match &self.def {
            ItemDefinition::BuiltIn(value) => value.clone(),
            ItemDefinition::Verbatim(text) => serde_json::from_str(text).unwrap_or_default(),
        }
    }
}

/// Lists of tools, resources, templates and prompts.
#[derive(Debug, Clone, Default)]
pub(super) struct MockContents {
    pub(super) tools: Vec<ListItem>,
    pub(super) resources: Vec<ListItem>,
    pub(super) templates: Vec<ListItem>,
    pub(super) prompts: Vec<ListItem>,
}

impl MockContents {
    pub(super) fn of(script: &MockScript) -> Self {
        let mut all = match script.preset {
            ContentPreset::Empty => Self::default(),
            ContentPreset::Standard => standard(),
            ContentPreset::Demo => demo(),
        };
        for family in &script.generate {
            all.tools
                .extend((0..family.count).map(|n| generated(family, n)));
        }
        all.tools.extend(
            script
                .tools
                .iter()
                .map(|v| ListItem::from_script("name", v)),
        );
        for modern in script
            .modern_tools
            .iter()
            .map(|v| ListItem::from_script("name", v))
        {
            let ItemDefinition::Verbatim(text) = modern.def else {
                continue;
            };
            all.tools
                .iter_mut()
                .filter(|tool| tool.key == modern.key)
                .for_each(|tool| tool.modern = Some(text.clone()));
        }
        all.resources.extend(
            script
                .resources
                .iter()
                .map(|v| ListItem::from_script("uri", v)),
        );
        all.templates.extend(
            script
                .templates
                .iter()
                .map(|v| ListItem::from_script("uriTemplate", v)),
        );
        all.prompts.extend(
            script
                .prompts
                .iter()
                .map(|v| ListItem::from_script("name", v)),
        );
        all
    }
}

fn tool(name: &str, description: &str, properties: Value) -> Value {
    let required: Vec<&String> =
        // An argument with a default may be left out, so it is not required.
        properties.as_object().into_iter().flatten().filter(|(_,
            v)| v["default"].is_null()).map(|(k, _)| k).collect();
    let mut schema = json!({"type": "object", "properties": properties});
    if !required.is_empty() {
        schema["required"] = json!(required);
    }
    json!({"name": name, "description": description, "inputSchema": schema})
}

fn generated(family: &GeneratedTools, n: u32) -> ListItem {
    let name = family.name.replace("{n}", &n.to_string());
    let mut text = format!("Generated tool number {n}. ");
    while text.len() < family.describe as usize {
        text.push_str("It does what the others do. ");
    }
    let mut property = json!({"type": "string", "default": ""});
    for level in 0..family.depth {
        property = json!({"type": "object", "properties": {format!("level_{level}"): property},
            "default": {}});
    }
    ListItem::built_in("name", tool(&name, &text, json!({"value": property})))
}

/// Adds a default to a schema, so that the value may be left out.
fn with_default(schema: &Value, value: Value) -> Value {
    let mut schema = schema.clone();
    schema["default"] = value;
    schema
}

/// Tools that answer, notify or send input requests.
fn well_behaved_tools() -> Vec<Value> {
    [answering_tools(), asking_tools(), failing_tools()].concat()
}

/// Tools that answer, perhaps after notifications.
fn answering_tools() -> Vec<Value> {
    let text = json!({"type": "string"});
    let int = json!({"type": "integer", "minimum": 0});
    let number = json!({"type": "number"});
    let mut echo = tool(
        "echo",
        "Returns its arguments, exactly as they were written.",
        json!({}),
    );
    echo["title"] = json!("Echo");
    echo["inputSchema"]["additionalProperties"] = json!(true);
    echo["annotations"] = json!({"readOnlyHint": true, "idempotentHint": true});
    let mut add = tool(
        "add",
        "Adds two numbers.",
        json!({"a": number, "b": number}),
    );
    add["annotations"] = json!({"readOnlyHint": true, "idempotentHint": true});
    add["outputSchema"] =
        json!({"type": "object", "properties": {"sum": {"type": "number"}}, "required": ["sum"]});
    vec![
        echo,
        add,
        tool("sleep", "Answers after a while.", json!({"ms": int})),
        tool(
            "progress",
            "Reports its progress.",
            json!({"steps": with_default(&int, json!(3)), "ms": with_default(&int, json!(1))}),
        ),
        tool(
            "log",
            "Writes a log message.",
            json!({"level": with_default(&text, json!("info")),
                "text": with_default(&text, json!(""))}),
        ),
    ]
}

/// Tools that send input requests.
fn asking_tools() -> Vec<Value> {
    let text = json!({"type": "string"});
    vec![
        tool(
            "elicit",
            "Asks the user for a name.",
            json!({"message": with_default(&text, json!("What is your name?"))}),
        ),
        tool(
            "elicit_url",
            "Asks the user to open a page.",
            json!({"url": with_default(&text, json!("https://example.com/"))}),
        ),
        tool(
            "ask_mixed",
            "Asks the user for a name and the model for a greeting, both at once.",
            json!({}),
        ),
        tool(
            "needs_page",
            "Demands that the user reads a page first.",
            json!({"done": {"type": "boolean"}}),
        ),
        tool(
            "sample_tools",
            "Asks the client's model, which may call a tool.",
            json!({}),
        ),
        tool(
            "elicit_twice",
            "Asks the user two questions, one after the other.",
            json!({}),
        ),
        tool(
            "sample",
            "Asks the client's model.",
            json!({"prompt": with_default(&text, json!("Say hello."))}),
        ),
        tool("roots", "Asks for the client's roots.", json!({})),
    ]
}

/// Tools whose answer is an error.
fn failing_tools() -> Vec<Value> {
    let text = json!({"type": "string"});
    vec![
        tool(
            "fail",
            "Fails: a result that is an error.",
            json!({"text": with_default(&text, json!("it failed"))}),
        ),
        tool(
            "error",
            "Answers with a JSON-RPC error.",
            json!({"code": with_default(&json!({"type": "integer"}), json!(-32000)),
                "message": with_default(&text, json!("an error"))}),
        ),
    ]
}

/// Tools that change the server, report on it, or misbehave.
fn rough_tools() -> Vec<Value> {
    let text = json!({"type": "string"});
    let int = json!({"type": "integer", "minimum": 0});
    let region = json!({"type": "string", "x-mcp-header": "Region"});
    vec![
        tool(
            "crash",
            "Takes the server down in the middle of the call.",
            json!({}),
        ),
        tool("hang", "Never answers.", json!({})),
        tool(
            "big",
            "Returns so many bytes of text.",
            json!({"bytes": int}),
        ),
        tool(
            "garbage",
            "Writes lines to stdout that are not messages, then answers.",
            json!({}),
        ),
        tool(
            "counter",
            "Counts its calls: in the session, or in all where there are no sessions.",
            json!({}),
        ),
        tool(
            "whoami",
            "Tells what the server knows about its caller.",
            json!({}),
        ),
        tool(
            "change",
            "Adds a tool, and says that the list changed.",
            json!({}),
        ),
        tool(
            "touch",
            "Says that a resource changed.",
            json!({"uri": with_default(&text, json!("mock://watched"))}),
        ),
        tool(
            "link",
            "Returns a link to a resource, and a resource.",
            json!({"uri": with_default(&text, json!("mock://static/text"))}),
        ),
        tool("env", "Returns the environment of the server.", json!({})),
        tool(
            "region",
            "Returns its region, which clients also send as a header.",
            json!({"region": region}),
        ),
        tool(
            "mock_counters",
            "Returns what the server has seen.",
            json!({}),
        ),
        tool(
            "grandchild",
            "Starts a process that ignores SIGTERM.",
            json!({"hold": with_default(&json!({"type": "boolean"}), json!(false))}),
        ),
    ]
}

fn standard() -> MockContents {
    MockContents {
        tools: well_behaved_tools()
            .into_iter()
            .chain(rough_tools())
            .map(|t| ListItem::built_in("name", t))
            .collect(),
        resources: [
            json!({"uri": "mock://static/text", "name": "text", "description": "Some text.",
                "mimeType": "text/plain"}),
            json!({"uri": "mock://static/blob", "name": "blob", "description": "Some bytes.",
                "mimeType": "application/octet-stream"}),
            json!({"uri": "mock://private", "name": "private", "description": "Asks who reads \
                it.", "mimeType": "application/json"}),
            json!({"uri": "mock://watched", "name": "watched",
                "description": "Changes when touched.", "mimeType": "text/plain"}),
        ]
        .into_iter()
        .map(|r| ListItem::built_in("uri", r))
        .collect(),
        templates: vec![ListItem::built_in(
            "uriTemplate",
            json!({"uriTemplate": "mock://item/{id}", "name": "item",
                "description": "An item by its id.", "mimeType": "text/plain"}),
        )],
        prompts: [
            json!({"name": "greet", "title": "Greeting", "description": "Greets someone.",
                "arguments": [{"name": "name", "description": "Whom to greet.",
                    "required": true}]}),
            json!({"name": "interview", "description": "Asks the user first."}),
            json!({"name": "plain", "description": "A prompt without arguments."}),
        ]
        .into_iter()
        .map(|p| ListItem::built_in("name", p))
        .collect(),
    }
}

fn demo() -> MockContents {
    let text = json!({"type": "string"});
    let number = json!({"type": "number"});
    let mut tools = [
        tool(
            "echo",
            "Repeat what you send. Useful to see that calls arrive.",
            json!({"text": text}),
        ),
        tool(
            "add",
            "Add two numbers and return the sum.",
            json!({"a": number, "b": number}),
        ),
        tool("now", "Tell the current date and time (UTC).", json!({})),
        tool(
            "ask_name",
            "Ask the user for their name, then greet them. Shows elicitation.",
            json!({}),
        ),
    ];
    // A client may skip its confirmation for a tool that only reads, so the first try is smooth.
    for tool in &mut tools {
        tool["annotations"] = json!({"readOnlyHint": true, "openWorldHint": false});
    }
    let about = json!({"uri": "demo://about", "name": "about",
        "description": "What this demonstration is.", "mimeType": "text/plain"});
    let tour = json!({"name": "tour", "description": "A guided tour of the demonstration.",
        "arguments": [{"name": "language", "description": "The language to \
            answer in.", "required": false}]});
    MockContents {
        tools: tools
            .into_iter()
            .map(|t| ListItem::built_in("name", t))
            .collect(),
        resources: vec![ListItem::built_in("uri", about)],
        templates: Vec::new(),
        prompts: vec![ListItem::built_in("name", tour)],
    }
}
