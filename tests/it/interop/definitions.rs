//! Definitions of items, as the official SDKs take them: directly, and through the gateway. What
//! all SDKs of an era take is listed byte for byte. What one of them refuses costs no list, and is
//! named.

use std::collections::{HashMap, HashSet};

use moongate_mock::{ContentPreset, MockHandle, MockScript};
use moongate_testing::McpClient;
use serde_json::{Value, json};

use super::harness::{SdkClient, SdkKind};
use super::mutated::{Definition, KINDS, good};
use crate::harness::{Era, Gateway, Setup, serve};

/// Definitions of one run, and servers that list them.
const COUNT: usize = 2000;
const SERVERS: usize = 40;

/// SDKs of each era, in their newest releases.
fn clients() -> [(Era, SdkClient); 6] {
    let typescript = |sdk| SdkClient::new(SdkKind::Typescript, sdk);
    let python = |sdk| SdkClient::new(SdkKind::Python, sdk);
    [
        (Era::Legacy, typescript("2025-11-25")),
        (Era::Legacy, python("2025-11-25")),
        (
            Era::Legacy,
            typescript("2026-07-28").at_revision("2025-11-25"),
        ),
        (Era::Legacy, python("2026-07-28").at_revision("2025-11-25")),
        (Era::Modern, typescript("2026-07-28")),
        (Era::Modern, python("2026-07-28")),
    ]
}

/// Lists that one SDK saw.
struct SdkLists {
    era: Era,
    name: String,
    /// Items that it takes from a server, by number.
    direct: HashMap<usize, Value>,
    /// Items of each endpoint, by kind.
    listed: HashMap<(String, String), Vec<Value>>,
}

impl SdkLists {
    async fn read(era: Era, client: SdkClient, file: &str, gateway: &Gateway) -> SdkLists {
        let paths: Vec<String> = (0..SERVERS)
            .map(|n| format!("/s{n}"))
            .chain(["/".to_owned()])
            .collect();
        let name = client.name();
        let mut lists = SdkLists {
            era,
            name,
            direct: HashMap::new(),
            listed: HashMap::new(),
        };
        for line in client
            .list_definitions(file, &gateway.url("/mcp"), &paths)
            .await
        {
            if let (Some(item), listed) = (line["item"].as_u64(), &line["listed"]) {
                if !listed.is_null() {
                    lists
                        .direct
                        .insert(usize::try_from(item).unwrap(), listed.clone());
                }
                continue;
            }
            let path = line["path"].as_str().unwrap();
            let kind = line["kind"].as_str().unwrap();
            let Some(items) = line["listed"].as_array() else {
                panic!(
                    "{} refuses {kind} at {path}: {}",
                    lists.name, line["refused"]
                );
            };
            lists
                .listed
                .insert((path.to_owned(), kind.to_owned()), items.clone());
        }
        assert_eq!(
            lists.listed.len(),
            paths.len() * KINDS.len(),
            "{}: all lists were read",
            lists.name
        );
        lists
    }

    fn find(&self, path: &str, kind: &str, key: &str, id: &str) -> Option<&Value> {
        self.listed[&(path.to_owned(), kind.to_owned())]
            .iter()
            .find(|item| item[key] == id)
    }
}

/// Servers that list the definitions, each its part of them beside good ones.
async fn serve_definitions(definitions: &[Definition]) -> Vec<MockHandle> {
    let mut servers = Vec::new();
    for part in definitions.chunks(COUNT / SERVERS) {
        let of = |kind: &str| -> Vec<Value> {
            let texts = part
                .iter()
                .filter(|item| item.kind == kind)
                .map(|item| json!(item.text));
            std::iter::once(good()[kind].clone()).chain(texts).collect()
        };
        let script = MockScript {
            preset: ContentPreset::Empty,
            tools: of("tools"),
            prompts: of("prompts"),
            resources: of("resources"),
            templates: of("resourceTemplates"),
            ..MockScript::default()
        };
        servers.push(serve(script).await);
    }
    servers
}

#[tokio::test]
async fn no_definition_costs_a_list_and_what_sdks_take_is_unchanged() {
    let definitions = Definition::generate(21, COUNT);
    let servers = serve_definitions(&definitions).await;
    let mut setup = Setup::new();
    for (n, server) in servers.iter().enumerate() {
        setup = setup.http(&format!("s{n}"), &server.url);
    }
    let gateway = setup.start().await;
    let names: Vec<String> = (0..SERVERS).map(|n| format!("s{n}")).collect();
    gateway
        .ready(&names.iter().map(String::as_str).collect::<Vec<_>>())
        .await;

    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("definitions.json");
    let items: Vec<Value> = definitions
        .iter()
        .map(|item| json!({"kind": item.kind, "text": item.text}))
        .collect();
    std::fs::write(&file, json!({"good": good(), "items": items}).to_string()).unwrap();
    let file = file.to_str().unwrap();
    let reads = clients().map(|(era, client)| SdkLists::read(era, client, file, &gateway));
    let seen = futures_util::future::join_all(reads).await;

    for era in [Era::Legacy, Era::Modern] {
        let of_era: Vec<&SdkLists> = seen.iter().filter(|lists| lists.era == era).collect();
        let is_taken = |n: &usize| of_era.iter().all(|lists| lists.direct.contains_key(n));
        let taken: HashSet<usize> = (0..COUNT).filter(is_taken).collect();
        assert!(
            (COUNT / 4..COUNT * 9 / 10).contains(&taken.len()),
            "both kinds are many: {}",
            taken.len()
        );
        check_names(&gateway, &definitions, &taken).await;
        // Null for an optional member is dropped in both eras, although the SDKs of one may take
        // it.
        let has_null = |n: &usize| definitions[*n].text.contains(":null");
        let unchanged: HashSet<usize> = taken.into_iter().filter(|n| !has_null(n)).collect();
        of_era
            .iter()
            .for_each(|lists| check_lists(lists, &definitions, &unchanged));
        check_bytes(&gateway, era, &definitions, &unchanged).await;
    }
}

/// Compares what all SDKs of an era take directly with what they see, and looks for the good item
/// of each list.
fn check_lists(lists: &SdkLists, definitions: &[Definition], taken: &HashSet<usize>) {
    for server in 0..SERVERS {
        for (kind, key) in KINDS {
            let is_good = |item: &Value| {
                item[key]
                    .as_str()
                    .is_some_and(|key| key.starts_with("good"))
            };
            let items = &lists.listed[&(format!("/s{server}"), kind.to_owned())];
            assert!(
                items.iter().any(is_good),
                "{}: {kind} of s{server}",
                lists.name
            );
        }
        let good = format!("s{server}__good");
        assert!(
            lists.find("/", "tools", "name", &good).is_some(),
            "{}: {good}",
            lists.name
        );
    }
    for (n, item) in definitions
        .iter()
        .enumerate()
        .filter(|(n, item)| taken.contains(n) && item.has_key())
    {
        let (kind, key) = KINDS
            .into_iter()
            .find(|(kind, _)| *kind == item.kind)
            .unwrap();
        let server = n / (COUNT / SERVERS);
        let direct = &lists.direct[&n];
        let found = lists.find(&format!("/s{server}"), kind, key, &item.id);
        assert_eq!(found, Some(direct), "{}: {}", lists.name, item.text);
        let mut renamed = direct.clone();
        if key == "name" {
            renamed[key] = json!(format!("s{server}__{}", item.id));
        }
        let found = lists.find("/", kind, key, renamed[key].as_str().unwrap());
        assert_eq!(found, Some(&renamed), "{}: {}", lists.name, item.text);
    }
}

/// Checks that what all SDKs of an era take has its server's bytes.
async fn check_bytes(
    gateway: &Gateway,
    era: Era,
    definitions: &[Definition],
    taken: &HashSet<usize>,
) {
    for server in 0..SERVERS {
        let client = McpClient::open(&gateway.url(&format!("/mcp/s{server}")), era).await;
        let mut all = String::new();
        for method in [
            "tools/list",
            "prompts/list",
            "resources/list",
            "resources/templates/list",
        ] {
            all.push_str(&client.request(method, json!({})).await.text_body());
        }
        let first = server * (COUNT / SERVERS);
        for n in (first..first + COUNT / SERVERS)
            .filter(|n| taken.contains(n) && definitions[*n].has_key())
        {
            assert!(
                all.contains(&definitions[n].text),
                "{era:?}: {}",
                definitions[n].text
            );
        }
    }
}

/// Checks that what an SDK refuses is named with a reason.
async fn check_names(gateway: &Gateway, definitions: &[Definition], taken: &HashSet<usize>) {
    let status = gateway.admin("/api/v1/status").await.json();
    let servers: HashMap<&str, &Value> = status["servers"]
        .as_array()
        .unwrap()
        .iter()
        .map(|server| (server["name"].as_str().unwrap(), server))
        .collect();
    for (n, item) in definitions
        .iter()
        .enumerate()
        .filter(|(n, item)| !taken.contains(n) && item.has_key())
    {
        let server = servers[format!("s{}", n / (COUNT / SERVERS)).as_str()];
        let named = format!("{} {}: ", item.kind, item.id);
        let is_named = |notes: &Value| {
            notes
                .as_array()
                .unwrap()
                .iter()
                .any(|note| note.as_str().unwrap().starts_with(&named))
        };
        assert!(
            is_named(&server["mended"]) || is_named(&server["left_out"]),
            "{}",
            item.text
        );
    }
}
