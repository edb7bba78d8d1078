//! The program.

use clap::{Parser, Subcommand};
use moongate::cli::mock::{MockArgs, run};

#[derive(Parser)]
#[command(name = "moongate", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Mock(MockArgs),
}

#[tokio::main]
async fn main() {
    let Command::Mock(args) = Cli::parse().command;
    let code = run(args).await.unwrap_or_else(|e| {
        eprintln!("error: {e:#}");
        1
    });
    std::process::exit(code);
}
