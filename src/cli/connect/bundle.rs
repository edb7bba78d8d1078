//! Bundle that installs Moongate in Claude Desktop: a ZIP archive with a manifest and this program.
//!
//! Owns its contents. Does not know the manifest (`moongate-clients`) or the archive's format
//! (`zip_archive`). Invariant: an existing file is replaced only as a whole, and only by a bundle
//! that is complete.

use std::fs::File;
use std::path::Path;

use anyhow::{Context, ensure};

use super::zip_archive::{FileKind, ZipArchive};
use crate::cli::process::print_message;
use moongate_clients::{ClientProfile, ConnectRequest, bundle_manifest, bundle_program};
use moongate_platform::Platform;

/// Client that installs bundles.
const CLIENT: &str = "claude-desktop";

/// Writes a bundle. Refuses other clients.
pub(super) fn write(
    profiles: &[&ClientProfile],
    request: &ConnectRequest,
    path: &Path,
) -> anyhow::Result<()> {
    ensure!(
        matches!(profiles, [profile] if profile.id == CLIENT),
        "--bundle: only Claude Desktop installs bundles: `moongate connect {CLIENT} --bundle PATH`"
    );
    ensure!(
        request.url.starts_with("http"),
        "--bundle: the gateway listens on {} only; name its URL with --endpoint",
        request.url
    );
    let manifest = bundle_manifest(
        &request.name,
        &request.url,
        env!("CARGO_PKG_VERSION"),
        Platform::CURRENT,
    );
    // Written next to it first: an interrupted write must not leave half a bundle under its name.
    let mut part = path
        .file_name()
        .context("--bundle: the path names no file")?
        .to_owned();
    part.push(".part");
    let part = path.with_file_name(part);
    let program = std::env::current_exe().context("the path of this program is unknown")?;
    let written = archive(&part, &format!("{manifest:#}\n"), &program)
        .and_then(|()| std::fs::rename(&part, path).map_err(Into::into));
    if let Err(error) = written {
        // What is half written is of no use to anybody.
        let _ = std::fs::remove_file(&part);
        return Err(error.context(format!("cannot write {}", path.display())));
    }
    print_message(&format!(
        "written to {}: open it with Claude Desktop, which asks for the address and the key",
        path.display()
    ));
    Ok(())
}

fn archive(path: &Path, manifest: &str, program: &Path) -> anyhow::Result<()> {
    let mut archive = ZipArchive::new(File::create(path)?);
    archive.add("manifest.json", FileKind::Text, &mut manifest.as_bytes())?;
    let mut program = File::open(program).with_context(|| program.display().to_string())?;
    archive.add(
        &bundle_program(Platform::CURRENT),
        FileKind::Program,
        &mut program,
    )?;
    archive.finish()?.sync_all()?;
    Ok(())
}
