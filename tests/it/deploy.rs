//! What the images and the unit take for granted. The images themselves: `deploy/build-and-try.sh`.

use std::path::Path;
use std::process::{Command, Output};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// `moongate check` in the environment of the images.
fn check(key: Option<&str>) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_moongate"));
    command
        .arg("check")
        .env_clear()
        .env("MOONGATE_CONFIG", root().join("config/docker.toml"));
    command
        .env("MOONGATE_GATEWAY__LISTEN", "0.0.0.0:8080")
        .env("MOONGATE_GATEWAY__ADMIN", "0.0.0.0:9090");
    command.envs(key.map(|key| ("MOONGATE_KEY", key)));
    command.output().unwrap()
}

#[test]
fn the_images_config_needs_nothing_but_a_key() {
    let output = check(Some("0123456789abcdef0123456789abcdef"));
    assert_eq!(output.status.code(), Some(0), "{output:?}");
}

#[test]
fn without_a_key_the_images_say_what_is_missing() {
    let output = check(None);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    let message = String::from_utf8(output.stderr).unwrap();
    assert!(message.contains("MOONGATE_KEY is not set"), "{message}");
}

#[test]
fn the_images_are_built_with_the_version_that_the_crate_asks_for() {
    let dockerfile = std::fs::read_to_string(root().join("Dockerfile")).unwrap();
    let expected = format!("ARG RUST={}", env!("CARGO_PKG_RUST_VERSION"));
    assert!(
        dockerfile.lines().any(|line| line == expected),
        "no line {expected:?}"
    );
}

/// What the builder is not given cannot be compiled in.
#[test]
fn the_images_build_has_every_file_that_the_sources_include() {
    let ignore = std::fs::read_to_string(root().join(".dockerignore")).unwrap();
    let given: Vec<&str> = ignore
        .lines()
        .filter_map(|line| line.strip_prefix('!'))
        .collect();
    let mut files = vec![root().join("src"), root().join("crates")];
    let mut included = 0;
    while let Some(path) = files.pop() {
        if path.is_dir() {
            files.extend(path.read_dir().unwrap().map(|entry| entry.unwrap().path()));
            continue;
        }
        let text = std::fs::read_to_string(&path).unwrap_or_default();
        for (_, rest) in ["include_str!(\"", "include_bytes!(\""]
            .iter()
            .flat_map(|start| text.match_indices(start))
            .map(|(i, start)| text.split_at(i + start.len()))
        {
            let target = path
                .with_file_name("")
                .join(rest.split('"').next().unwrap())
                .canonicalize()
                .unwrap();
            let target = target
                .strip_prefix(root().canonicalize().unwrap())
                .unwrap()
                .to_owned();
            assert!(
                given.iter().any(|given| target.starts_with(given)),
                "{} is not in .dockerignore",
                target.display()
            );
            included += 1;
        }
    }
    assert!(included > 0);
}

/// Copies a file or a folder.
fn copy(from: &Path, to: &Path) {
    if from.is_dir() {
        std::fs::create_dir_all(to).unwrap();
        for entry in from.read_dir().unwrap() {
            let entry = entry.unwrap();
            copy(&entry.path(), &to.join(entry.file_name()));
        }
    } else {
        std::fs::copy(from, to).unwrap();
    }
}

/// One `COPY` or `RUN` line of the Dockerfile: its word, and the rest of the line.
type Step = (String, String);

/// Steps of a stage of the Dockerfile. What prepares the machine and not the sources is left out.
fn steps(stage: &str) -> Vec<Step> {
    let dockerfile = std::fs::read_to_string(root().join("Dockerfile")).unwrap();
    let dockerfile = dockerfile.replace("\\\n", " ");
    let named = format!(" AS {stage}\n");
    let lines = dockerfile
        .split("\nFROM ")
        .find(|lines| lines.contains(&named))
        .unwrap();
    let steps = lines.lines().filter_map(|line| line.split_once(' '));
    let steps = steps.filter(|(word, rest)| {
        *word == "COPY" || *word == "RUN" && !rest.contains("$CARGO_HOME/config.toml")
    });
    steps
        .map(|(word, rest)| (word.to_owned(), rest.to_owned()))
        .collect()
}

/// Cargo's command in the Dockerfile.
const BUILD: &str = "cargo build --locked --profile dist";

/// Runs a `RUN` line in `dir`, with Cargo's own words: `metadata` instead of `build`, or a build
/// without optimization, which takes minutes less. Its program goes to a folder of its own, since
/// the tests run the other one; dependencies that are built already are used.
fn run(line: &str, dir: &Path, build: bool) {
    let commands: Vec<&str> = line
        .split_whitespace()
        .skip_while(|word| word.starts_with("--mount="))
        .collect();
    let wanted = if build {
        "cargo build --locked --offline"
    } else {
        "cargo metadata --locked --offline --no-deps"
    };
    let mut line = commands.join(" ").replace(BUILD, wanted);
    if !build {
        line = line.replace(" --bin moongate", " --format-version 1 >metadata.json");
    }
    let mut shell = Command::new("sh");
    shell.args(["-euc", &line]).current_dir(dir);
    shell
        .env("CARGO_TARGET_DIR", root().join("target/image"))
        .env("CARGO_BUILD_BUILD_DIR", root().join("target"));
    shell
        .env("CARGO_PROFILE_DEV_DEBUG", "0")
        .env("CARGO_INCREMENTAL", "0");
    let output = shell.output().unwrap();
    assert!(
        output.status.success(),
        "{line}\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

/// Copies what a `COPY` line names, from exactly what `.dockerignore` lets through.
fn copy_from_context(rest: &str, dir: &Path) {
    let ignore = std::fs::read_to_string(root().join(".dockerignore")).unwrap();
    let given: Vec<&str> = ignore
        .lines()
        .filter_map(|line| line.strip_prefix('!'))
        .collect();
    let words: Vec<&str> = rest.split_whitespace().collect();
    let (to, from) = words.split_last().unwrap();
    for name in from {
        assert!(
            given.iter().any(|given| name.starts_with(given)),
            "{name} is not in .dockerignore"
        );
        let to = if to.ends_with('/') {
            format!("{to}{}", name.rsplit('/').next().unwrap())
        } else {
            (*to).to_owned()
        };
        let to = dir.join(to);
        std::fs::create_dir_all(to.parent().unwrap()).unwrap();
        copy(&root().join(name), &to);
    }
}

/// Follows the Dockerfile's stages that make the binary, each in an empty folder. The second one's
/// is `dir`, which is looked at after each build.
fn follow_build_stages(dir: &Path, build: bool, look: impl Fn(&Path)) {
    let manifests = tempfile::tempdir().unwrap();
    for (word, rest) in steps("manifests") {
        match word.as_str() {
            "RUN" => run(&rest, manifests.path(), build),
            _ => copy_from_context(&rest, manifests.path()),
        }
    }
    let mut runs = 0;
    for (word, rest) in steps("build") {
        if word == "RUN" {
            assert!(rest.contains(BUILD), "{rest}");
            run(&rest, dir, build);
            look(dir);
            runs += 1;
        } else if rest == "--from=manifests /src ./" {
            copy(manifests.path(), dir);
        } else {
            copy_from_context(&rest, dir);
        }
    }
    assert_eq!(runs, 2, "the dependencies, and the program");
}

/// A list of crates in the Dockerfile would have to be kept.
#[test]
fn the_dockerfile_names_no_crate() {
    let dockerfile = std::fs::read_to_string(root().join("Dockerfile")).unwrap();
    for entry in root().join("crates").read_dir().unwrap() {
        let path = format!(
            "crates/{}",
            entry.unwrap().file_name().into_string().unwrap()
        );
        assert!(!dockerfile.contains(&path), "{path}");
    }
}

#[test]
fn the_images_build_has_every_crate_in_both_of_its_steps() {
    let crates = root().join("crates").read_dir().unwrap();
    let crates: Vec<String> = crates
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    let dir = tempfile::tempdir().unwrap();
    follow_build_stages(dir.path(), false, |dir| {
        let known = std::fs::read_to_string(dir.join("metadata.json")).unwrap();
        for name in &crates {
            assert!(
                known.contains(&format!("\"moongate-{name}\"")),
                "{name} is missing"
            );
        }
    });
}

#[test]
fn the_images_build_lines_build_the_program() {
    // Always the same folder: Cargo keeps what it built of each one that it knows.
    let dir = root().join("target/image/src");
    let _ = std::fs::remove_dir_all(&dir);
    std::fs::create_dir_all(&dir).unwrap();
    follow_build_stages(&dir, true, |_| ());
    let output = Command::new(root().join("target/image/debug/moongate"))
        .arg("--version")
        .output()
        .unwrap();
    // The stand-in of the first step says nothing.
    assert!(
        output.status.success() && output.stdout.starts_with(b"moongate "),
        "{output:?}"
    );
}
