//! Has what a gateway runs put side by side in the binary, so that it holds less of it in memory.
//!
//! Owns the one argument for the linker. Does not know what stands in the script (`linker/record.sh` writes it).
//! Invariant: where the linker has no use for it, the build is the same without.

// This is how cargo is told.
#![allow(clippy::print_stdout)]

use std::path::{Path, PathBuf};
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=linker/order.ld");
    println!("cargo::rerun-if-env-changed=MOONGATE_ORDER");
    let variable = |name: &str| std::env::var(name).unwrap_or_default();
    let wanted = variable("PROFILE") == "release" && variable("MOONGATE_ORDER") != "off";
    if !wanted || variable("CARGO_CFG_TARGET_OS") != "linux" {
        return;
    }
    let argument = format!("-Wl,-T,{}/linker/order.ld", variable("CARGO_MANIFEST_DIR"));
    if is_understood(&argument, &PathBuf::from(variable("OUT_DIR"))) {
        println!("cargo::rustc-link-arg-bins={argument}");
    }
}

/// Whether the linker that the binary will be linked with takes the argument: some (mold) know no scripts.
fn is_understood(argument: &str, dir: &Path) -> bool {
    let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let source = dir.join("probe.rs");
    let (Some(rustc), Some(target)) = (variable("RUSTC"), variable("TARGET")) else { return false };
    if std::fs::write(&source, "fn main() {}\n").is_err() {
        return false;
    }
    let mut probe = Command::new(rustc);
    probe.arg(source).arg("-o").arg(dir.join("probe")).args(["--target", &target, "-C"]);
    probe.arg(format!("link-arg={argument}"));
    probe.args(variable("RUSTC_LINKER").map(|linker| format!("-Clinker={linker}")));
    // Cargo separates them so, since a flag may hold a space.
    probe.args(variable("CARGO_ENCODED_RUSTFLAGS").iter().flat_map(|flags| flags.split('\u{1f}')));
    probe.output().is_ok_and(|output| output.status.success())
}
