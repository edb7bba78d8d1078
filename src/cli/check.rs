//! `moongate check`: validates the config. Owns the display of its problems.
//!
//! Does not define problems (`config`). Invariant: data goes to standard output, everything for
//! people to standard error.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use crate::cli::admin_client::AdminArgs;
use crate::cli::check_plan::{self, PlanFormat};
use crate::cli::check_servers;
use crate::cli::process::{
    BAD_CONFIG, CONFIG_VARIABLE, block_on, config_of_environment, config_paths, environment,
    is_config_flag_given, print_message, report_unusable,
};
use moongate_config::{LoadOptions, LoadedConfig};
use moongate_telemetry::logs;

/// Validate the config and print every problem with its location.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct CheckArgs {
    /// A config file; repeat the flag to let later files override earlier ones.
    #[arg(long, short, value_name = "PATH", env = CONFIG_VARIABLE)]
    pub config: Vec<PathBuf>,
    /// Print the config with all defaults, as JSON with masked secrets
    #[arg(long)]
    pub print: bool,
    /// Show what a reload, or the given config, would change in the running gateway; with
    /// --against, how two configs differ
    #[arg(long, conflicts_with = "print")]
    pub plan: bool,
    /// Connect to each server once, and show what it offers, which names change, and which patterns
    /// match nothing
    #[arg(long, conflicts_with_all = ["plan", "print"])]
    pub connect: bool,
    /// The config to compare with (repeatable); the new one is the argument, or --config
    #[arg(long, value_name = "OLD", requires = "plan")]
    pub against: Vec<PathBuf>,
    /// The config, like --config; with --against, the new one (repeatable)
    // Not for `clap` to refuse next to --config, which the variable fills as well.
    #[arg(value_name = "FILE")]
    pub new: Vec<PathBuf>,
    /// Output format of --plan
    #[arg(long, value_enum, default_value_t, requires = "plan")]
    pub format: PlanFormat,
    /// The running gateway to compare with
    #[command(flatten)]
    pub admin: AdminArgs,
}

/// Validates the config. Returns exit code 0 if it can be used, 2 if not, 1 if a server could not
/// be connected.
///
/// `revisions` are the protocol revisions that a server can be made to speak.
pub fn run(args: &CheckArgs, revisions: &[&str]) -> ExitCode {
    let env = environment();
    let given = if args.new.is_empty() {
        &args.config
    } else {
        &args.new
    };
    if !args.new.is_empty() && is_config_flag_given(&args.config) {
        print_message("error: give the config as an argument or with --config, not both");
        return ExitCode::from(BAD_CONFIG);
    }
    if args.plan && args.against.is_empty() {
        return plan_against_running(args, revisions);
    }
    let paths = config_paths(given, &env);
    if args.plan {
        return check_plan::plan_between(args.against.clone(), paths, revisions, args.format);
    }
    let result = moongate_config::load(&LoadOptions {
        paths,
        env,
        revisions,
        ..LoadOptions::default()
    });
    let loaded = match result {
        Ok(loaded) => loaded,
        Err(problems) => return report_unusable(&problems),
    };
    // A closed standard error leaves no way to report anything.
    let _ = write!(std::io::stderr(), "{}", report(&loaded));
    if args.connect {
        logs::start("error", false);
        return block_on(check_servers::run(loaded.plan));
    }
    if args.print
        && std::io::stdout()
            .write_all(loaded.print().as_bytes())
            .is_err()
    {
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

/// Prints what a reload, or the config of the command line, would change in the running gateway.
fn plan_against_running(args: &CheckArgs, revisions: &[&str]) -> ExitCode {
    // The variable names the config that runs, wherever this command is called.
    let running: Vec<PathBuf> = config_of_environment().into_iter().collect();
    let flag = Some(&args.config).filter(|config| is_config_flag_given(config));
    let candidate = Some(&args.new).filter(|new| !new.is_empty()).or(flag);
    block_on(async {
        let admin = args.admin.client(&running)?;
        match candidate {
            Some(files) => {
                check_plan::plan_of_candidate(&admin, files.clone(), revisions, args.format).await
            }
            None => check_plan::plan_of_running(&admin, args.format).await,
        }
    })
}

/// Returns the warnings, and a line with what is configured.
fn report(loaded: &LoadedConfig) -> String {
    let warnings = loaded.warnings.iter().chain(&loaded.advice);
    let mut out: String = warnings
        .map(|warning| warning.render("warning") + "\n")
        .collect();
    let sources: Vec<String> = loaded
        .sources
        .iter()
        .map(|path| path.display().to_string())
        .collect();
    let from = if sources.is_empty() {
        "no config file".to_owned()
    } else {
        sources.join(", ")
    };
    let plan = &loaded.plan;
    let counts = [
        counted(plan.servers.len(), "server"),
        counted(plan.views.len(), "view"),
        counted(plan.auth.keys.len(), "key"),
        counted(loaded.warnings.len() + loaded.advice.len(), "warning"),
    ];
    out += &format!("{from}: fine; {}\n", counts.join(", "));
    out
}

fn counted(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}
