//! `moongate undo`: takes back the last edit of the config. Owns its flags, and the list of past
//! edits.
//!
//! Does not keep the edits (`moongate_config::edit::EditHistory`). Invariant: the file gets the
//! exact bytes from before the edit, or stays as it is.

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use serde::Serialize;

use crate::cli::client::table::columns;
use crate::cli::config_edit::{EditArgs, show_edit};
use crate::cli::process::{BAD_CONFIG, print_message, report_unusable};
use crate::cli::running_record;
use crate::cli::table_format::TableFormat;
use moongate_config::edit::{EditAuthor, EditHistory, PastEdit};

/// Edit to take back.
#[derive(Clone, Debug, clap::Args)]
pub struct UndoArgs {
    /// List the edits that can be undone, newest first
    #[arg(long)]
    list: bool,
    /// Output format of the list
    #[arg(long, value_enum, default_value_t, requires = "list")]
    format: TableFormat,
    #[command(flatten)]
    edit: EditArgs,
}

/// Takes back the last edit. Returns exit code 1 if there is none, or if the file changed since.
pub async fn run(args: UndoArgs) -> anyhow::Result<ExitCode> {
    let options = args.edit.load_options();
    let history = match moongate_config::load(&options) {
        Ok(loaded) => EditHistory::of_plan(&loaded.plan),
        // Its past edits are where they are kept for most configs. The undo refuses files that
        // changed since.
        Err(problems) => {
            let code = report_unusable(&problems);
            let history =
                running_record::folder(&options.env).map(|folder| EditHistory::in_folder(&folder));
            match history.filter(|history| !history.edits(&options.paths).is_empty()) {
                Some(history) => Some(history),
                None => return Ok(code),
            }
        }
    };
    let Some(history) = history else {
        print_message(
            "error: past edits are kept in `gateway.state_dir`, but this config keeps no state",
        );
        return Ok(ExitCode::from(BAD_CONFIG));
    };
    if args.list {
        return print_list(&history.edits(&options.paths), args.format);
    }
    let (prepared, past) = match history.prepare_undo(&options) {
        Ok(undo) => undo,
        Err(error) => {
            print_message(&format!("error: {error}"));
            return Ok(ExitCode::FAILURE);
        }
    };
    show_edit(&prepared);
    if args.edit.is_dry_run() {
        return Ok(ExitCode::SUCCESS);
    }
    if let Err(error) = prepared.write() {
        print_message(&format!("error: {error}"));
        return Ok(ExitCode::FAILURE);
    }
    print_message(&format!("undone: {}", past.summary));
    if let Err(error) = history.forget(&past) {
        // The next undo refuses by itself: the file is no longer as that edit left it.
        print_message(&format!(
            "the list of past edits could not be written: {error}"
        ));
    }
    Ok(args.edit.report(&[]).await?.exit_code())
}

fn print_list(edits: &[PastEdit], format: TableFormat) -> anyhow::Result<ExitCode> {
    let text = match format {
        TableFormat::Json => {
            let edits = edits.iter().map(ListedEdit::of).collect();
            serde_json::to_string_pretty(&ListedEdits { edits })? + "\n"
        }
        TableFormat::Table if edits.is_empty() => String::new(),
        TableFormat::Table => columns(
            &["AT", "BY", "FILE", "EDIT"],
            &edits.iter().map(edit_row).collect::<Vec<_>>(),
        ),
    };
    std::io::stdout().write_all(text.as_bytes())?;
    if edits.is_empty() {
        print_message("no edits of this config are on record, so there is nothing to undo");
    }
    Ok(ExitCode::SUCCESS)
}

/// List of edits, as scripts read it.
#[derive(Serialize)]
struct ListedEdits<'a> {
    edits: Vec<ListedEdit<'a>>,
}

/// Edit that can be undone.
#[derive(Serialize)]
struct ListedEdit<'a> {
    at: &'a str,
    summary: &'a str,
    file: &'a Path,
    via: Option<&'a str>,
    by: Option<&'a str>,
}

impl<'a> ListedEdit<'a> {
    fn of(edit: &'a PastEdit) -> Self {
        let author = edit.author.as_ref();
        ListedEdit {
            at: &edit.at,
            summary: &edit.summary,
            file: &edit.file,
            via: author.map(EditAuthor::way),
            by: author.and_then(EditAuthor::operator),
        }
    }
}

fn edit_row(edit: &PastEdit) -> Vec<String> {
    vec![
        edit.at.clone(),
        author(edit),
        edit.file.display().to_string(),
        edit.summary.clone(),
    ]
}

/// Names the author of an edit in a word or two.
fn author(edit: &PastEdit) -> String {
    match &edit.author {
        None => "?".to_owned(),
        Some(EditAuthor::Api { by: Some(name) }) => name.clone(),
        Some(author) => author.way().to_owned(),
    }
}
