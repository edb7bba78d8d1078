//! What the images and the unit take for granted. The images themselves: `deploy/build-and-try.sh`.

use std::path::Path;
use std::process::{Command, Output};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// `moongate check` in the environment of the images.
fn check(key: Option<&str>) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_moongate"));
    command.arg("check").env_clear().env("MOONGATE_CONFIG", root().join("config/docker.toml"));
    command.env("MOONGATE_GATEWAY__LISTEN", "0.0.0.0:8080").env("MOONGATE_GATEWAY__ADMIN", "0.0.0.0:9090");
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
    assert!(dockerfile.lines().any(|line| line == expected), "no line {expected:?}");
}

/// What the builder is not given cannot be compiled in.
#[test]
fn the_images_build_has_every_file_that_the_sources_include() {
    let ignore = std::fs::read_to_string(root().join(".dockerignore")).unwrap();
    let given: Vec<&str> = ignore.lines().filter_map(|line| line.strip_prefix('!')).collect();
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
            let target = path.with_file_name("").join(rest.split('"').next().unwrap()).canonicalize().unwrap();
            let target = target.strip_prefix(root().canonicalize().unwrap()).unwrap().to_owned();
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

fn metadata(dir: &Path) -> String {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--locked", "--offline", "--no-deps", "--format-version", "1", "--manifest-path"])
        .arg(dir.join("Cargo.toml"))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn the_images_build_has_every_crate_in_both_of_its_steps() {
    let crates: Vec<String> = root()
        .join("crates")
        .read_dir()
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    let ignore = std::fs::read_to_string(root().join(".dockerignore")).unwrap();
    let given: Vec<&str> = ignore.lines().filter_map(|line| line.strip_prefix('!')).collect();
    // The sources: exactly what the builder is given.
    let sources = tempfile::tempdir().unwrap();
    given.iter().for_each(|name| copy(&root().join(name), &sources.path().join(name)));
    // The layer of dependencies: the manifests that are copied by name, and empty sources.
    let dockerfile = std::fs::read_to_string(root().join("Dockerfile")).unwrap();
    let layer = tempfile::tempdir().unwrap();
    for folder in ["src", "benches/gateway"]
        .map(str::to_owned)
        .into_iter()
        .chain(crates.iter().map(|name| format!("crates/{name}/src")))
    {
        std::fs::create_dir_all(layer.path().join(folder)).unwrap();
    }
    for file in ["src/main.rs", "src/lib.rs", "benches/gateway/main.rs"] {
        std::fs::write(layer.path().join(file), "fn main() {}").unwrap();
    }
    for name in &crates {
        std::fs::write(layer.path().join(format!("crates/{name}/src/lib.rs")), "").unwrap();
    }
    let manifests = dockerfile.lines().filter_map(|line| {
        line.strip_prefix("COPY Cargo.toml ")
            .map(|rest| format!("Cargo.toml {rest}"))
            .or_else(|| line.strip_prefix("COPY crates/").map(|rest| format!("crates/{rest}")))
    });
    for line in manifests.filter(|line| line.contains("Cargo.toml")) {
        let mut words: Vec<&str> = line.split_whitespace().collect();
        words.pop();
        words.iter().for_each(|word| copy(&root().join(word), &layer.path().join(word)));
    }
    for dir in [sources.path(), layer.path()] {
        let known = metadata(dir);
        for name in &crates {
            assert!(known.contains(&format!("\"moongate-{name}\"")), "{name} is missing");
        }
    }
}
