//! Programs that download a server before they run it.
//!
//! Owns their names. Does not start them. Invariant: a command is known by its own name, wherever
//! it is installed.

use crate::settings::ConnectTarget;
use moongate_transport::child_environment::ProgramKind;

/// Programs that download what they run.
const INSTALLERS: [&str; 14] = [
    "npx", "npm", "pnpm", "pnpx", "yarn", "bunx", "bun", "uvx", "uv", "pipx", "pip", "deno",
    "docker", "podman",
];
/// Shells that only start another program: `cmd /c npx ...`.
const WRAPPERS: [&str; 2] = ["cmd", "env"];

/// Returns the program that downloads the server, if one does.
pub(crate) fn of(target: &ConnectTarget) -> Option<&'static str> {
    let ConnectTarget::Stdio { command, args, .. } = target else {
        return None;
    };
    let wrapped = WRAPPERS.contains(&base_name(command).as_str());
    let words = std::iter::once(command).chain(args.iter().filter(|_| wrapped).take(2));
    words.into_iter().find_map(|word| {
        INSTALLERS
            .into_iter()
            .find(|known| base_name(word) == *known)
    })
}

/// Returns what the program needs of the environment.
pub(crate) fn program_kind(target: &ConnectTarget) -> ProgramKind {
    match of(target) {
        // Containers have their own environment.
        Some("docker" | "podman") | None => ProgramKind::Other,
        Some(_) => ProgramKind::PackageTool,
    }
}

/// Returns the name of a program without its folder and its ending.
fn base_name(command: &str) -> String {
    let name = command
        .rsplit(['/', '\\'])
        .next()
        .unwrap_or(command)
        .to_ascii_lowercase();
    let endings = [".exe", ".cmd", ".bat"];
    endings
        .iter()
        .find_map(|ending| name.strip_suffix(ending))
        .unwrap_or(&name)
        .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn installer_of(command: &str, args: &[&str]) -> Option<&'static str> {
        of(&ConnectTarget::Stdio {
            command: command.to_owned(),
            args: args.iter().map(|arg| (*arg).to_owned()).collect(),
            env: Vec::new(),
            cwd: None,
        })
    }

    #[test]
    fn programs_are_known_by_their_name() {
        assert_eq!(installer_of("npx", &["-y", "x"]), Some("npx"));
        assert_eq!(installer_of("/usr/bin/uvx", &[]), Some("uvx"));
        assert_eq!(
            installer_of(r"C:\Program Files\nodejs\NPX.CMD", &[]),
            Some("npx")
        );
        assert_eq!(installer_of("cmd", &["/c", "npx", "-y"]), Some("npx"));
        assert_eq!(installer_of("node", &["npx"]), None);
        assert_eq!(installer_of("my-npx-server", &[]), None);
    }
}
