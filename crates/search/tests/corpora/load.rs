//! Corpora as `tests/search/setup.sh` leaves them: tools with their texts, and queries with the
//! tools that fit.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::{Path, PathBuf};

use moongate_search::{
    ArgumentText, RankingWeights, SearchIndex, ServerDocument, ToolDocument, argument_texts,
};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// Server of a corpus, with its tools.
#[derive(Default)]
pub(crate) struct CorpusServer {
    pub(crate) name: String,
    pub(crate) description: String,
    pub(crate) tools: Vec<CorpusTool>,
}

pub(crate) struct CorpusTool {
    /// Number among all tools of all corpora.
    pub(crate) id: usize,
    pub(crate) name: String,
    pub(crate) description: String,
    pub(crate) arguments: Vec<ArgumentText>,
}

/// Query with the tools that it asks for: each with all ids that count as it.
pub(crate) struct CorpusQuery {
    pub(crate) text: String,
    pub(crate) wanted: Vec<Vec<usize>>,
}

/// Both catalogues, and all sets of queries.
pub(crate) struct Corpora {
    pub(crate) live_mcp_bench: Vec<CorpusServer>,
    pub(crate) bfcl: Vec<CorpusServer>,
    pub(crate) steps: Vec<CorpusQuery>,
    pub(crate) tasks: Vec<CorpusQuery>,
    pub(crate) functions: Vec<CorpusQuery>,
    pub(crate) irrelevant: Vec<CorpusQuery>,
    pub(crate) typos: Vec<CorpusQuery>,
}

/// Builds the index of some catalogues.
pub(crate) fn index_of<'a>(
    servers: impl IntoIterator<Item = &'a CorpusServer>,
    weights: &RankingWeights,
) -> SearchIndex<usize> {
    let mut index = SearchIndex::with_weights(weights.clone());
    for server in servers {
        let exposed: Vec<String> = server
            .tools
            .iter()
            .map(|tool| format!("{}__{}", server.name, tool.name))
            .collect();
        let tools = server
            .tools
            .iter()
            .zip(&exposed)
            .map(|(tool, exposed_name)| ToolDocument {
                id: tool.id,
                exposed_name,
                own_name: &tool.name,
                description: &tool.description,
                arguments: &tool.arguments,
            });
        index.replace_server(
            ServerDocument {
                name: &server.name,
                title: "",
                description: &server.description,
            },
            tools,
        );
    }
    index
}

impl Corpora {
    /// Reads all, or says which line fetches them.
    pub(crate) fn load() -> Corpora {
        let (live_mcp_bench, ids) = read_live_mcp_bench();
        let (steps, tasks) = read_tasks(&ids);
        let first = live_mcp_bench.iter().map(|server| server.tools.len()).sum();
        let (bfcl, functions) = read_bfcl(first);
        let irrelevant = ["irrelevance", "live_irrelevance"].iter().flat_map(|set| {
            let rows: Vec<FunctionRow> = read_lines(&format!("bfcl/{set}.json"));
            rows.into_iter().map(|row| CorpusQuery {
                text: row.text(),
                wanted: Vec::new(),
            })
        });
        let irrelevant = irrelevant.collect();
        let typos = misspelled(&live_mcp_bench, &ids);
        Corpora {
            live_mcp_bench,
            bfcl,
            steps,
            tasks,
            functions,
            irrelevant,
            typos,
        }
    }
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/search")
}

fn read(file: &str) -> String {
    let missing =
        |e| panic!("{file}: {e}. The corpora are fetched by this line: tests/search/setup.sh");
    std::fs::read_to_string(folder().join(file)).unwrap_or_else(missing)
}

fn read_lines<T: DeserializeOwned>(file: &str) -> Vec<T> {
    read(file)
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

// Their embeddings are most of the file, and skipped unread.
#[derive(Deserialize)]
struct ServerRow {
    server_name: String,
    #[serde(default)]
    server_description: Option<String>,
    tools: Vec<ToolRow>,
}

#[derive(Deserialize)]
struct ToolRow {
    name: String,
    #[serde(default)]
    description: Option<String>,
    parameter: Value,
}

/// Ids of all tools with a name.
type IdsByName = HashMap<String, Vec<usize>>;

fn read_live_mcp_bench() -> (Vec<CorpusServer>, IdsByName) {
    let rows: Vec<ServerRow> = serde_json::from_str(&read("livemcpbench/tools.json")).unwrap();
    let mut ids = IdsByName::new();
    let mut next = 0;
    let mut tool = |row: ToolRow| {
        let argument = |(name, text): (&String, &Value)| {
            let text = text.as_str().unwrap_or_default();
            // `(string) Symbol of the stock`
            let text = text
                .split_once(')')
                .filter(|_| text.starts_with('('))
                .map_or(text, |(_, text)| text);
            ArgumentText {
                name: name.clone(),
                description: text.trim().to_owned(),
            }
        };
        let arguments = row
            .parameter
            .as_object()
            .into_iter()
            .flatten()
            .map(argument)
            .collect();
        ids.entry(row.name.clone()).or_default().push(next);
        next += 1;
        CorpusTool {
            id: next - 1,
            name: row.name,
            description: row.description.unwrap_or_default(),
            arguments,
        }
    };
    let server = |row: ServerRow| CorpusServer {
        name: row.server_name,
        description: row.server_description.unwrap_or_default(),
        tools: row.tools.into_iter().map(&mut tool).collect(),
    };
    let servers = rows.into_iter().map(server).collect();
    (servers, ids)
}

#[derive(Deserialize)]
struct TaskRow {
    #[serde(rename = "Question")]
    question: String,
    #[serde(rename = "Annotator Metadata")]
    metadata: TaskMetadata,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct TaskMetadata {
    steps: String,
    tools: String,
}

/// Reads steps, each with its tool, and whole tasks, each with all of its tools.
fn read_tasks(ids: &IdsByName) -> (Vec<CorpusQuery>, Vec<CorpusQuery>) {
    let rows: Vec<TaskRow> = serde_json::from_str(&read("livemcpbench/tasks.json")).unwrap();
    let mut steps = Vec::new();
    let mut tasks = Vec::new();
    for row in rows {
        let names = numbered_items(&row.metadata.tools);
        let texts = numbered_items(&row.metadata.steps);
        // Where the numbers differ, nothing says which step a tool is for.
        if texts.len() == names.len() {
            let known = texts
                .into_iter()
                .zip(&names)
                .filter_map(|(text, name)| Some((text, ids.get(name)?)));
            steps.extend(known.map(|(text, ids)| CorpusQuery {
                text,
                wanted: vec![ids.clone()],
            }));
        }
        let wanted: BTreeMap<&String, Vec<usize>> = names
            .iter()
            .filter_map(|name| Some((name, ids.get(name)?.clone())))
            .collect();
        if !wanted.is_empty() {
            tasks.push(CorpusQuery {
                text: row.question,
                wanted: wanted.into_values().collect(),
            });
        }
    }
    (steps, tasks)
}

/// Items of a list such as `1. first\n2. second`, where an item may have several lines.
fn numbered_items(list: &str) -> Vec<String> {
    let mut items: Vec<String> = Vec::new();
    for line in list.lines() {
        let number = line
            .trim_start()
            .split_once('.')
            .filter(|(number, _)| number.parse::<u32>().is_ok());
        match (number, items.last_mut()) {
            (Some((_, text)), _) => items.push(text.trim().to_owned()),
            (None, Some(item)) => *item += &format!(" {}", line.trim()),
            (None, None) => {}
        }
    }
    items
        .iter_mut()
        .for_each(|item| *item = item.trim().to_owned());
    items
}

#[derive(Deserialize)]
struct FunctionRow {
    question: Vec<Vec<Message>>,
    function: Vec<FunctionDefinition>,
}

#[derive(Deserialize)]
struct Message {
    role: String,
    content: String,
}

#[derive(Deserialize)]
struct FunctionDefinition {
    name: String,
    description: String,
    parameters: Value,
}

#[derive(Deserialize)]
struct AnswerRow {
    ground_truth: Vec<HashMap<String, Value>>,
}

impl FunctionRow {
    fn text(&self) -> String {
        let asked = self
            .question
            .iter()
            .flatten()
            .filter(|message| message.role == "user");
        asked
            .map(|message| &*message.content)
            .collect::<Vec<_>>()
            .join("\n")
    }
}

/// Reads all functions, each name and description once, and the requests with the function that
/// answers each.
fn read_bfcl(first: usize) -> (Vec<CorpusServer>, Vec<CorpusQuery>) {
    let mut server = CorpusServer {
        name: "bfcl".to_owned(),
        ..CorpusServer::default()
    };
    let mut known = HashSet::new();
    let mut ids = IdsByName::new();
    let mut questions = Vec::new();
    for set in ["live_multiple", "live_simple", "multiple", "simple_python"] {
        let rows: Vec<FunctionRow> = read_lines(&format!("bfcl/{set}.json"));
        let answers: Vec<AnswerRow> = read_lines(&format!("bfcl/answers/{set}.json"));
        assert_eq!(rows.len(), answers.len());
        for (row, answer) in rows.into_iter().zip(answers) {
            for function in &row.function {
                if !known.insert((function.name.clone(), function.description.clone())) {
                    continue;
                }
                let id = first + server.tools.len();
                ids.entry(function.name.clone()).or_default().push(id);
                server.tools.push(CorpusTool {
                    id,
                    name: function.name.clone(),
                    description: function.description.clone(),
                    arguments: argument_texts(&function.parameters.to_string()),
                });
            }
            questions.push((row.text(), answer));
        }
    }
    // Some functions are there under several descriptions, and each of them answers.
    let wanted = |answer: AnswerRow| {
        answer
            .ground_truth
            .iter()
            .flatten()
            .map(|(name, _)| ids[name].clone())
            .collect()
    };
    let queries = questions
        .into_iter()
        .map(|(text, answer)| CorpusQuery {
            text,
            wanted: wanted(answer),
        })
        .collect();
    (vec![server], queries)
}

/// Own names with one typo each: a letter left out, doubled, replaced, or changed with its
/// neighbour.
fn misspelled(servers: &[CorpusServer], ids: &IdsByName) -> Vec<CorpusQuery> {
    let names = servers
        .iter()
        .flat_map(|server| &server.tools)
        .map(|tool| &tool.name)
        .filter(|name| name.len() >= 7);
    let misspell = |(n, name): (usize, &String)| {
        let mut letters: Vec<char> = name.chars().collect();
        // Never the first letter: people get that one right.
        let at = 1 + n * 7 % (letters.len() - 2);
        match n % 4 {
            0 => drop(letters.remove(at)),
            1 => letters.insert(at, letters[at]),
            2 => letters[at] = if letters[at] == 'e' { 'a' } else { 'e' },
            _ => letters.swap(at, at + 1),
        }
        CorpusQuery {
            text: letters.into_iter().collect(),
            wanted: vec![ids[name].clone()],
        }
    };
    names.enumerate().map(misspell).collect()
}
