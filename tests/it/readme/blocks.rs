//! The fenced blocks of all documents are true: configs pass `moongate check`, files of clients
//! have servers, and command lines parse.
//!
//! The words behind a block's language say what it is: without one, a block of TOML, YAML or JSON
//! is a config of ours.

use std::path::Path;
use std::process::Command;

use clap::CommandFactory as _;
use clap::error::ErrorKind;
use moongate::cli::CommandLine;
use moongate_config::{parse_servers, split_command};
use serde_json::Value;

use super::{FencedBlock, MOONGATE, blocks_of, read};

/// Words behind a language: a client's file, and files of other programs, which tests of their own
/// read.
const ROLES: [&str; 4] = ["client", "prometheus", "kubernetes", "traefik"];

/// The documents for users, by path.
fn documents() -> Vec<(String, String)> {
    fn add(dir: &str, found: &mut Vec<String>) {
        for entry in std::fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join(dir)).unwrap() {
            let entry = entry.unwrap();
            let path = format!("{dir}/{}", entry.file_name().to_str().unwrap());
            match entry.file_type().unwrap().is_dir() {
                true => add(&path, found),
                false if path.ends_with(".md") => found.push(path),
                false => {}
            }
        }
    }
    let mut paths = vec!["README.md".to_owned(), "CONTRIBUTING.md".to_owned()];
    ["docs", "examples", "deploy", "config"]
        .into_iter()
        .for_each(|dir| add(dir, &mut paths));
    assert!(
        paths.len() > 60,
        "the documents were found: {}",
        paths.len()
    );
    paths
        .into_iter()
        .map(|path| (read(&path), path))
        .map(|(text, path)| (path, text))
        .collect()
}

/// The blocks of all documents, each with its document.
fn blocks() -> Vec<(String, FencedBlock)> {
    let of = |(path, text): (String, String)| {
        blocks_of(&text)
            .into_iter()
            .map(move |block| (path.clone(), block))
    };
    documents().into_iter().flat_map(of).collect()
}

/// Language and role of a block.
fn kind(block: &FencedBlock) -> (&str, Option<&str>) {
    let mut words = block.language.split_whitespace();
    (words.next().unwrap_or_default(), words.next())
}

fn is_data(block: &FencedBlock) -> bool {
    ["toml", "yaml", "yml", "json", "jsonc"].contains(&kind(block).0)
}

/// Problem that `moongate check` finds in a config. `None`: nothing.
fn refusal(extension: &str, text: &str) -> Option<String> {
    let dir = tempfile::tempdir().unwrap();
    let pair = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let path = dir.path().join("moongate").with_extension(extension);
    for (name, pem) in [
        ("cert.pem", pair.cert.pem()),
        ("key.pem", pair.signing_key.serialize_pem()),
        ("company-ca.pem", pair.cert.pem()),
        ("moongate.env", "NAME=value\n".to_owned()),
    ] {
        std::fs::write(dir.path().join(name), pem).unwrap();
    }
    std::fs::write(&path, text).unwrap();
    let mut check = Command::new(MOONGATE);
    // Certificates of the gateway are looked for where it was started.
    check
        .args(["check", "--config"])
        .arg(&path)
        .current_dir(dir.path())
        .env_clear();
    let output = check
        .env("HOME", dir.path())
        .env("PROXY_PASSWORD", "p")
        .env("WAREHOUSE_SECRET", "s")
        .env("ENTRA_SECRET", "s")
        .output()
        .unwrap();
    (!output.status.success()).then(|| String::from_utf8(output.stderr).unwrap())
}

#[test]
fn every_block_with_a_config_passes_the_check() {
    let mut problems = Vec::new();
    let mut checked = 0;
    for (path, block) in blocks()
        .iter()
        .filter(|(_, block)| is_data(block) && kind(block).1.is_none())
    {
        checked += 1;
        let extension = kind(block).0;
        problems.extend(
            refusal(extension, &block.text).map(|why| format!("{path}:\n{}\n{why}", block.text)),
        );
    }
    assert!(checked >= 15, "configs were found: {checked}");
    assert!(problems.is_empty(), "{}", problems.join("\n---\n"));
}

#[test]
fn every_block_with_a_client_s_file_has_servers() {
    let mut checked = 0;
    for (path, block) in blocks().iter().filter(|(_, block)| is_data(block)) {
        let (language, Some(role)) = kind(block) else {
            continue;
        };
        assert!(
            ROLES.contains(&role),
            "{path}: the word {role:?} behind {language} says nothing"
        );
        if role == "client" {
            let file = Path::new("client").with_extension(language);
            let read = parse_servers(&file, &block.text)
                .unwrap_or_else(|why| panic!("{path}: {why}\n{}", block.text));
            let usable =
                !read.servers.is_empty() && read.servers.iter().all(|server| !server.is_broken);
            assert!(usable, "{path}: {:?}\n{}", read.servers, block.text);
            checked += 1;
        }
    }
    assert!(checked > 50, "files of clients were found: {checked}");
}

/// The documents of all YAML blocks of a role.
fn yaml_documents(role: &str) -> Vec<Value> {
    let blocks = blocks()
        .into_iter()
        .map(|(_, block)| block)
        .filter(|block| kind(block) == ("yaml", Some(role)));
    let parse =
        |text: &str| serde_saphyr::from_str(text).unwrap_or_else(|why| panic!("{why}\n{text}"));
    blocks
        .flat_map(|block| block.text.split("\n---\n").map(parse).collect::<Vec<_>>())
        .collect()
}

/// No cluster is here. What can be compared without one: names, ports, and the config.
#[test]
fn manifests_of_kubernetes_fit_together_and_their_config_passes_the_check() {
    let manifests = yaml_documents("kubernetes");
    let of = |kind: &str| {
        manifests
            .iter()
            .find(|manifest| manifest["kind"] == kind)
            .unwrap()
    };
    let config = of("ConfigMap")["data"]["moongate.toml"].as_str().unwrap();
    let secret = "${file:/run/secrets/moongate/github}";
    assert!(
        config.contains(secret) && of("Secret")["stringData"]["github"].is_string(),
        "{config}"
    );
    assert_eq!(refusal("toml", &config.replace(secret, "token")), None);
    let pod = &of("Deployment")["spec"]["template"];
    let container = &pod["spec"]["containers"][0];
    let list = |value: &Value, key: &str| -> Vec<String> {
        value
            .as_array()
            .unwrap()
            .iter()
            .map(|item| item[key].as_str().unwrap().to_owned())
            .collect()
    };
    assert_eq!(
        list(&container["volumeMounts"], "name"),
        list(&pod["spec"]["volumes"], "name")
    );
    let places = [
        "/etc/moongate",
        "/run/secrets/moongate",
        "/var/lib/moongate",
        "/tmp",
    ];
    assert_eq!(list(&container["volumeMounts"], "mountPath"), places);
    let ports = serde_json::json!([
        { "name": "mcp", "containerPort": 8080 },
        { "name": "admin", "containerPort": 9090 },
    ]);
    assert_eq!(container["ports"], ports);
    for (probe, path) in [("livenessProbe", "/livez"), ("readinessProbe", "/readyz")] {
        assert_eq!(
            container[probe]["httpGet"],
            serde_json::json!({ "path": path, "port": "admin" })
        );
    }
    for (kind, selector) in [
        ("Service", "/spec/selector"),
        ("NetworkPolicy", "/spec/podSelector/matchLabels"),
    ] {
        assert_eq!(
            of(kind).pointer(selector),
            Some(&pod["metadata"]["labels"]),
            "{kind}"
        );
    }
}

#[test]
fn files_of_traefik_name_each_other() {
    let files = yaml_documents("traefik");
    let [fixed, routes] = &files[..] else {
        panic!("two files: {files:?}")
    };
    let router = &routes["http"]["routers"]["moongate"];
    assert!(
        fixed["entryPoints"][router["entryPoints"][0].as_str().unwrap()].is_object(),
        "{fixed}"
    );
    let service = &routes["http"]["services"][router["service"].as_str().unwrap()];
    assert_eq!(
        service["loadBalancer"]["servers"][0]["url"],
        "http://127.0.0.1:8080"
    );
}

#[test]
fn a_block_that_is_wrong_is_found() {
    assert_eq!(
        refusal("toml", "[servers.a]\nurl = \"https://a.example/mcp\"\n"),
        None
    );
    let wrong = refusal(
        "toml",
        "[servers.a]\nurl = \"https://a.example/mcp\"\ntimeuot = \"1s\"\n",
    )
    .unwrap();
    assert!(wrong.contains("timeuot"), "{wrong}");
    assert!(refusal("json", "{").is_some());
}

// === command lines ===

/// Words after which another command begins, or a file follows.
const OPERATORS: [&str; 8] = ["|", "||", "&&", "&", ">", ">>", ";", "#"];

/// The command lines of ours in a script, without the program.
fn own_commands(script: &str) -> Vec<Vec<String>> {
    let joined = script.replace("\\\n", " ");
    let mut lines: Vec<String> = joined.lines().map(str::to_owned).collect();
    let mut found = Vec::new();
    while let Some(mut line) = lines.pop() {
        // `$(...)` is a command by itself, and a word of the line around it.
        while let Some((start, length)) = line
            .rfind("$(")
            .and_then(|at| Some((at, line[at..].find(')')?)))
        {
            lines.push(line[start + 2..start + length].to_owned());
            line.replace_range(start..=start + length, "X");
        }
        let words = split_command(line.trim_start_matches(['(', ' ']));
        for command in words.split(|word| OPERATORS.contains(&word.as_str())) {
            let is_assignment = |word: &String| {
                word.split_once('=')
                    .is_some_and(|(name, _)| is_variable(name))
            };
            let command: Vec<&String> = command
                .iter()
                .skip_while(|word| is_assignment(word))
                .collect();
            let command = match command.as_slice() {
                [docker, compose, exec, _, rest @ ..]
                    if [*docker, *compose, *exec] == ["docker", "compose", "exec"] =>
                {
                    rest
                }
                all => all,
            };
            if let [program, args @ ..] = command
                && *program == "moongate"
            {
                found.push(args.iter().map(|word| (*word).clone()).collect());
            }
        }
    }
    found
}

fn is_variable(name: &str) -> bool {
    !name.is_empty() && name.chars().all(|c| c.is_ascii_uppercase() || c == '_')
}

/// Problem of a command line, and its kind. `None`: nothing.
fn usage_error(args: &[String]) -> Option<(ErrorKind, String)> {
    let words = std::iter::once("moongate").chain(args.iter().map(String::as_str));
    let error = CommandLine::command().try_get_matches_from(words).err()?;
    let is_answer = matches!(
        error.kind(),
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion
    );
    (!is_answer).then(|| (error.kind(), error.to_string()))
}

/// Problem of a command that a sentence names. It may lack arguments, and words in capitals stand
/// for others.
fn naming_error(args: &[String]) -> Option<(ErrorKind, String)> {
    let stands_for_others = |word: &String| word.chars().all(|c| c.is_ascii_uppercase());
    let is_wrong = |kind| match kind {
        ErrorKind::InvalidSubcommand => !args.first().is_some_and(stands_for_others),
        kind => kind == ErrorKind::UnknownArgument,
    };
    usage_error(args).filter(|(kind, _)| is_wrong(*kind))
}

/// The text of a document between backquotes, without its blocks.
fn inline_code(text: &str) -> Vec<String> {
    let outside: Vec<&str> = text.split("```").step_by(2).collect();
    let joined = outside.join("\n");
    // A span may go on in the next line, but not in the next paragraph.
    let spans = joined
        .split("\n\n")
        .flat_map(|paragraph| paragraph.split('`').skip(1).step_by(2));
    spans.map(|span| span.replace('\n', " ")).collect()
}

#[test]
fn every_command_line_of_a_document_parses() {
    let mut problems = Vec::new();
    let mut checked = 0;
    for (path, text) in documents() {
        let scripts = blocks_of(&text)
            .into_iter()
            .filter(|block| ["sh", "console"].contains(&kind(block).0));
        // Brackets and dots stand for words that a reader chooses.
        let is_whole = |span: &String| {
            span.starts_with("moongate ") && !span.contains(['[', '<', '…']) && !span.contains("..")
        };
        let spans = inline_code(&text).into_iter().filter(is_whole);
        let of = |scripts: Vec<String>| {
            scripts
                .iter()
                .flat_map(|script| own_commands(script))
                .collect::<Vec<_>>()
        };
        let whole = of(scripts.map(|block| block.text).collect());
        let named = of(spans.collect());
        checked += whole.len() + named.len();
        let wrong = whole
            .iter()
            .filter_map(|args| Some((args, usage_error(args)?)));
        let wrong = wrong.chain(
            named
                .iter()
                .filter_map(|args| Some((args, naming_error(args)?))),
        );
        problems.extend(
            wrong.map(|(args, (_, why))| format!("{path}: moongate {}\n{why}", args.join(" "))),
        );
    }
    assert!(checked > 150, "command lines were found: {checked}");
    assert!(problems.is_empty(), "{}", problems.join("\n---\n"));
}

#[test]
fn command_lines_are_found_in_scripts() {
    let script = "moongate check\nKEY=$(cat a) moongate call x a=1 --url http://h > out\n\
                  docker compose exec g moongate status\n(umask 077; echo \"K=$(moongate key new \
                  s)\" > f)\n\
                  docker run moongate check\nmoongate tools \\\n  --frob | cat\n";
    let mut found: Vec<String> = own_commands(script)
        .into_iter()
        .map(|args| args.join(" "))
        .collect();
    found.sort();
    assert_eq!(
        found,
        [
            "call x a=1 --url http://h",
            "check",
            "key new s",
            "status",
            "tools --frob"
        ]
    );
    let wrong: Vec<bool> = found
        .iter()
        .map(|line| usage_error(&split_command(line)).is_some())
        .collect();
    assert_eq!(wrong, [false, false, false, false, true]);
    for (line, is_named_well) in [
        ("chekc", false),
        ("check --nope", false),
        ("COMMAND --help", true),
        ("key new", true),
        ("completions SHELL", true),
    ] {
        let args = split_command(line);
        assert!(usage_error(&args).is_some(), "{line}");
        assert_eq!(naming_error(&args).is_none(), is_named_well, "{line}");
    }
}
