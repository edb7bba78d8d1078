//! Packages of this build's binary, installed and used as their users do. `tests/packages/` has the
//! scripts.
//!
//! `tests/packages/setup.sh` and `setup_debian.sh` install the tools. Only Linux has all of them.
#![cfg(target_os = "linux")]

use std::path::{Path, PathBuf};
use std::process::Command;

const MOONGATE: &str = env!("CARGO_BIN_EXE_moongate");

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Folder of the tools, and of everything that the scripts write.
fn home() -> PathBuf {
    let home = root().join("target/packages");
    for (file, setup) in [
        ("npm/.stamp", "setup.sh"),
        ("debian.stamp", "setup_debian.sh"),
    ] {
        assert!(
            home.join(file).is_file(),
            "the tools are missing: run tests/packages/{setup}"
        );
    }
    home
}

/// Runs a command. Fails with all that it printed unless it succeeds.
fn succeed(command: &mut Command) {
    let output = command.current_dir(root()).output().unwrap();
    let said = [output.stdout, output.stderr]
        .map(|text| String::from_utf8_lossy(&text).into_owned())
        .concat();
    assert!(
        output.status.success() && !said.contains("\nFAIL"),
        "{command:?}: {}\n{said}",
        output.status
    );
}

/// Runs a script with the binary and a folder for its files.
fn try_package(script: &str) {
    let work = home().join("work").join(script);
    succeed(
        Command::new(root().join("tests/packages").join(script))
            .arg(MOONGATE)
            .arg(work),
    );
}

#[test]
fn packing_gives_the_same_bytes_everywhere_or_refuses() {
    home();
    succeed(Command::new("python3").args([
        "-m",
        "unittest",
        "discover",
        "-s",
        "tests/packages",
        "-p",
        "*_test.py",
    ]));
}

#[test]
fn the_npm_launcher_picks_a_package_that_fits() {
    home();
    succeed(Command::new("node").args(["--test", "tests/packages/launcher.test.mjs"]));
}

#[test]
fn npx_runs_the_packages_of_a_registry() {
    try_package("npm.sh");
}

#[test]
fn uvx_runs_the_wheel() {
    try_package("wheel.sh");
}

#[test]
fn the_deb_installs_upgrades_and_goes_without_a_trace() {
    try_package("deb.sh");
}

#[test]
fn the_install_script_checks_what_it_installs() {
    try_package("install_script.sh");
}

#[test]
fn the_formula_and_binstall_name_the_archives() {
    try_package("formula.py");
}

#[test]
fn the_workflows_pass_zizmor() {
    home();
    succeed(&mut Command::new(
        root().join("tests/packages/workflows.sh"),
    ));
}
