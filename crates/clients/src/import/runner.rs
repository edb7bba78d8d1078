//! Programs that run a package, an image or a script.
//!
//! Owns their names, and the words that may precede what they run. Does not start them. Invariant:
//! every reader of commands knows the same programs.

use RunnerKind::{
    DenoModule, Image, NodePackage, NodeScript, PythonPackage, PythonScript, WindowsShell,
};

/// Endings of programs on Windows.
const ENDINGS: [&str; 4] = [".exe", ".cmd", ".ps1", ".bat"];
/// Flags with a value of npm and its like.
const NPM_FLAGS: &[&str] = &[
    "-p",
    "--package",
    "-w",
    "--workspace",
    "-C",
    "--dir",
    "-F",
    "--filter",
    "--cwd",
    "--prefix",
    "--registry",
    "--cache",
    "--userconfig",
];
/// Flags with a value of uv and pipx.
const UV_FLAGS: &[&str] = &[
    "-p",
    "--python",
    "--from",
    "--spec",
    "--with",
    "--with-editable",
    "--with-requirements",
    "--directory",
    "--project",
    "--package",
    "--extra",
    "--group",
    "--index",
    "--index-url",
    "--default-index",
    "--extra-index-url",
    "--cache-dir",
    "--config-file",
    "--env-file",
    "--pip-args",
];
/// Flags with a value of docker and podman.
const IMAGE_FLAGS: &[&str] = &[
    "-e",
    "--env",
    "--env-file",
    "-v",
    "--volume",
    "--mount",
    "--name",
    "-p",
    "--publish",
    "--network",
    "--net",
    "-w",
    "--workdir",
    "-u",
    "--user",
    "--entrypoint",
    "--platform",
    "--pull",
    "--add-host",
    "-l",
    "--label",
    "-m",
    "--memory",
    "--cpus",
    "--gpus",
    "-h",
    "--hostname",
    "--security-opt",
    "--cap-add",
    "--cap-drop",
    "-c",
    "--context",
    "-H",
    "--host",
    "-f",
    "--file",
    "--project-name",
    "--profile",
];
/// Words of docker and podman before an image, a container or a service.
const IMAGE_WORDS: &[&str] = &[
    "run",
    "exec",
    "start",
    "container",
    "compose",
    "mcp",
    "gateway",
];
/// Flags with a value of Node.js and its like.
const NODE_FLAGS: &[&str] = &[
    "-e",
    "--eval",
    "-r",
    "--require",
    "--import",
    "--loader",
    "--experimental-loader",
    "-C",
    "--conditions",
    "--tsconfig",
    "-P",
    "--project",
];
const DENO_FLAGS: &[&str] = &["-c", "--config", "--import-map", "--cert"];
const PYTHON_FLAGS: &[&str] = &["-c", "-W", "-X"];

/// Limit of runners that start each other. A pasted line may have nothing else.
const CHAINED_MAX: usize = 4;

/// All known runners.
const RUNNERS: [RunnerProgram; 22] = [
    RunnerProgram::new("npx", NodePackage, &[], NPM_FLAGS),
    RunnerProgram::new("pnpx", NodePackage, &[], NPM_FLAGS),
    RunnerProgram::new("bunx", NodePackage, &[], NPM_FLAGS),
    RunnerProgram::new(
        "npm",
        NodePackage,
        &["exec", "x", "run", "run-script", "start"],
        NPM_FLAGS,
    )
    .with_required_word(),
    RunnerProgram::new(
        "pnpm",
        NodePackage,
        &["dlx", "exec", "run", "start"],
        NPM_FLAGS,
    ),
    RunnerProgram::new(
        "yarn",
        NodePackage,
        &["dlx", "exec", "run", "start", "node"],
        NPM_FLAGS,
    ),
    RunnerProgram::new("bun", NodePackage, &["x", "run"], NPM_FLAGS),
    RunnerProgram::new(
        "deno",
        DenoModule,
        &["run", "task", "serve", "x"],
        DENO_FLAGS,
    ),
    RunnerProgram::new("uvx", PythonPackage, &[], UV_FLAGS),
    RunnerProgram::new("uv", PythonPackage, &["run", "tool"], UV_FLAGS).with_required_word(),
    RunnerProgram::new("pipx", PythonPackage, &["run"], UV_FLAGS).with_required_word(),
    RunnerProgram::new("docker", Image, IMAGE_WORDS, IMAGE_FLAGS).with_required_word(),
    RunnerProgram::new("podman", Image, IMAGE_WORDS, IMAGE_FLAGS).with_required_word(),
    RunnerProgram::new("node", NodeScript, &[], NODE_FLAGS),
    RunnerProgram::new("tsx", NodeScript, &["watch"], NODE_FLAGS),
    RunnerProgram::new("ts-node", NodeScript, &[], NODE_FLAGS),
    RunnerProgram::new("python", PythonScript, &[], PYTHON_FLAGS),
    RunnerProgram::new("pythonw", PythonScript, &[], PYTHON_FLAGS),
    RunnerProgram::new("py", PythonScript, &[], PYTHON_FLAGS),
    // The SDK for Python and FastMCP start a server's file.
    RunnerProgram::new("mcp", PythonScript, &["run"], &[]).with_required_word(),
    RunnerProgram::new("fastmcp", PythonScript, &["run"], UV_FLAGS).with_required_word(),
    RunnerProgram::new("cmd", WindowsShell, &[], &[]),
];

/// Kind of what a program runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RunnerKind {
    /// Package from npm's registry.
    NodePackage,
    /// File of JavaScript or TypeScript.
    NodeScript,
    /// Package or file, for Deno.
    DenoModule,
    /// Package from PyPI.
    PythonPackage,
    /// File or module of Python.
    PythonScript,
    /// Container image.
    Image,
    /// Another command.
    WindowsShell,
}

/// Program that runs what its arguments name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RunnerProgram {
    name: &'static str,
    kind: RunnerKind,
    /// Words before the name of what it runs.
    subcommands: &'static [&'static str],
    /// True if it runs nothing without one of them.
    needs_subcommand: bool,
    /// Flags that take the next word as their value.
    value_flags: &'static [&'static str],
}

impl RunnerProgram {
    const fn new(
        name: &'static str,
        kind: RunnerKind,
        subcommands: &'static [&'static str],
        value_flags: &'static [&'static str],
    ) -> Self {
        RunnerProgram {
            name,
            kind,
            subcommands,
            needs_subcommand: false,
            value_flags,
        }
    }

    const fn with_required_word(self) -> Self {
        RunnerProgram {
            needs_subcommand: true,
            ..self
        }
    }

    /// Finds the runner that a command starts, wherever it is installed.
    pub(super) fn find(command: &str) -> Option<Self> {
        let name = program_name(command);
        let plain = name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
        RUNNERS.into_iter().find(|runner| {
            // `python3` and `python3.12` are Python, too.
            let name = match runner.kind {
                PythonScript => plain,
                _ => name,
            };
            runner.name.eq_ignore_ascii_case(name)
        })
    }

    /// True if its arguments name a package or an image, which may have a version.
    pub(super) fn runs_packages(self) -> bool {
        matches!(self.kind, NodePackage | DenoModule | PythonPackage | Image)
    }

    /// True if it runs JavaScript on this machine. In a container, a URL may mean another place.
    pub(super) fn runs_node_here(self) -> bool {
        matches!(self.kind, NodePackage | NodeScript)
    }

    /// True if these arguments can start a server. `npm install` starts none.
    pub(super) fn starts_server(self, args: &[&str]) -> bool {
        let has_subcommand = || {
            let mut words = self.words(args);
            words.any(|(_, _, is_subcommand)| is_subcommand)
        };
        !self.needs_subcommand || has_subcommand()
    }

    /// Finds the package, the image or the script that these arguments name.
    pub(super) fn target<'a>(self, args: &[&'a str]) -> Option<&'a str> {
        let mut runner = self;
        let mut rest = args;
        let mut found = None;
        for _ in 0..CHAINED_MAX {
            let Some((at, word)) = runner.first_target(rest) else {
                break;
            };
            found = Some(word);
            rest = &rest[at + 1..];
            let Some(inner) = runner.chained(word, rest) else {
                break;
            };
            runner = inner;
        }
        found
    }

    /// Finds the first word that may be what it runs, and the word's index.
    fn first_target<'a>(self, args: &[&'a str]) -> Option<(usize, &'a str)> {
        let words = self.plain_words(args);
        let image = words
            .iter()
            .filter(|_| self.kind == Image)
            .find(|(_, word)| looks_like_image(word));
        image.or(words.first()).copied()
    }

    /// Returns the runner that it starts: `uv run python server.py`, `cmd /c npx x`.
    fn chained(self, word: &str, args: &[&str]) -> Option<Self> {
        // `@scope/node` is a package.
        let is_program = self.kind != Image && !word.contains('/');
        RunnerProgram::find(word).filter(|inner| is_program && inner.starts_server(args))
    }

    /// Returns the words that are neither flags, nor their values, nor subcommands, each with its
    /// index.
    fn plain_words<'a>(self, args: &[&'a str]) -> Vec<(usize, &'a str)> {
        let words = self.words(args);
        let plain = words.filter(|(_, _, is_subcommand)| !is_subcommand);
        plain.map(|(at, word, _)| (at, word)).collect()
    }

    /// Returns the words that are neither flags nor their values, each with its index, and true if
    /// it is a subcommand. Those come first, and a package manager has one: in `npm exec x`, `x` is
    /// the package.
    fn words<'a>(self, args: &[&'a str]) -> impl Iterator<Item = (usize, &'a str, bool)> {
        let most = match self.kind {
            NodePackage => 1,
            _ => usize::MAX,
        };
        let mut is_value = false;
        let mut subcommands = Some(0);
        args.iter().enumerate().filter_map(move |(at, word)| {
            let is_flag =
                word.starts_with('-') || self.kind == WindowsShell && word.starts_with('/');
            let is_plain = !is_value && !is_flag;
            is_value = !is_value && self.value_flags.contains(word);
            if !is_plain {
                return None;
            }
            subcommands = subcommands
                .filter(|count| *count < most && self.subcommands.contains(word))
                .map(|count| count + 1);
            Some((at, *word, subcommands.is_some()))
        })
    }
}

/// True for a word such as `ghcr.io/owner/name:1`. The value of an unknown flag has no slash, is a
/// path, or has an equals sign.
fn looks_like_image(word: &str) -> bool {
    word.contains('/') && !word.starts_with(['/', '.']) && !word.contains('=')
}

/// Name of a program, without its folder and its ending.
pub(super) fn program_name(word: &str) -> &str {
    let name = word.rsplit(['/', '\\']).next().unwrap_or(word);
    ENDINGS
        .iter()
        .find_map(|ending| {
            let start = name.len().checked_sub(ending.len())?;
            let end = name.get(start..)?;
            end.eq_ignore_ascii_case(ending).then(|| &name[..start])
        })
        .unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_what_the_runner_runs() {
        for (line, target) in [
            ("npx -y -p x@1 y", Some("y")),
            ("NPX.CMD -y x", Some("x")),
            ("/usr/bin/python3.12 -W error -m x", Some("x")),
            ("py -3 x.py", Some("x.py")),
            (
                "uv --directory /d run --with mcp mcp run x.py",
                Some("x.py"),
            ),
            ("uv tool run x", Some("x")),
            ("uv run python -m x", Some("x")),
            ("uvx --from git+https://a.example/x y", Some("y")),
            ("pipx run --spec=x==1 x run", Some("x")),
            ("bun x y run", Some("y")),
            ("npm exec -- x", Some("x")),
            ("npx tsx x.ts", Some("x.ts")),
            ("npx @x/mcp y", Some("@x/mcp")),
            ("npx mcp x", Some("mcp")),
            ("cmd /c npx -y x", Some("x")),
            ("deno run -A --config d.json jsr:@x/y", Some("jsr:@x/y")),
            ("docker run -i --rm -v /a:/b x arg", Some("x")),
            ("docker run --log-driver none x/y arg/b", Some("x/y")),
            ("docker run -i node", Some("node")),
            ("docker mcp gateway run", None),
            ("npx -y", None),
        ] {
            let mut words = line.split(' ');
            let runner = words.next().and_then(RunnerProgram::find).unwrap();
            assert_eq!(runner.target(&words.collect::<Vec<_>>()), target, "{line}");
        }
        let chain = ["cmd"; 1000];
        assert_eq!(
            RunnerProgram::find("cmd").unwrap().target(&chain),
            Some("cmd")
        );
        assert_eq!(RunnerProgram::find("my-npx"), None);
        assert_eq!(RunnerProgram::find("node22"), None);
    }

    #[test]
    fn commands_of_a_package_manager_start_no_server() {
        let npm = RunnerProgram::find("npm").unwrap();
        assert!(npm.starts_server(&["exec", "x"]));
        assert!(!npm.starts_server(&["install", "x"]));
        assert!(RunnerProgram::find("npx").unwrap().starts_server(&["x"]));
    }
}
