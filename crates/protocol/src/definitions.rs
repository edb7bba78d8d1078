//! Definitions of items, checked as the schemas of the official SDKs check them.
//!
//! Owns what is mended, what is left out, and the reasons. Does not list (`gateway`), and does not
//! wrap schemas for legacy clients. Invariant: a definition that all SDKs of an era take as it is
//! keeps its bytes in that era.
//!
//! An SDK that refuses one item refuses the whole list, with the items of all servers. The rules
//! are those of the TypeScript SDKs 1.32 and 2.4 and of the Python SDKs 1.30 and 2.3. Checks take
//! linear time, and see only a few levels of an item. What they read deeper is bounded by
//! [`output_schema::SCHEMA_MAX`].

mod common_member;
mod flags;
mod icons;
mod mend_notes;
mod output_schema;
mod pattern;
mod prompt;
mod readable;
mod resource;
mod schema_root;
mod timestamp;
mod tool;
mod values;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use mend_notes::MendNotes;
use moongate_jsonrpc::json::{JsonObject, RawJson, ValueChange};
use moongate_model::ItemKind;

/// Remark on what concerns only clients of the legacy era.
pub const LEGACY_ONLY: &str = "for clients before 2026-07-28";

/// Definition that can be listed.
#[derive(Debug)]
pub struct CheckedDefinition {
    /// Definition that clients of both eras take, as far as both need the same. `None`: the
    /// server's own.
    pub mended: Option<Arc<JsonObject>>,
    /// Reasons of its mends.
    pub mends: Vec<String>,
    /// Form for clients of the legacy era.
    pub legacy: LegacyForm,
}

/// Form of a definition for clients of the legacy era, whose SDKs take less.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LegacyForm {
    /// Same form as for others.
    Same,
    /// Mended.
    Mended(Arc<LegacyMend>),
    /// Left out, for this reason.
    LeftOut(String),
}

/// Mend of a definition for clients of the legacy era.
#[derive(Debug, PartialEq, Eq)]
pub struct LegacyMend {
    /// Reasons.
    pub reasons: Vec<String>,
    /// Change of a tool's output schema. Judging a schema takes long, so lists only apply it.
    output: ValueChange,
}

impl LegacyMend {
    /// Returns a definition as legacy clients take it. `listed` is checked, and perhaps named or
    /// described otherwise.
    pub fn apply(&self, kind: ItemKind, listed: &RawJson) -> Option<RawJson> {
        let mut item = listed.as_object()?;
        if kind == ItemKind::Tools {
            tool::mend_for_legacy(&mut item, &self.output).ok()?;
        }
        Some(item.to_raw())
    }
}

/// Checks the definition of an item. Fails with the reason if it cannot be listed for anybody.
pub fn check_definition(
    kind: ItemKind,
    item: &Arc<JsonObject>,
) -> Result<CheckedDefinition, String> {
    let mut notes = MendNotes::default();
    let mut mended = match readable::replace_lone_surrogates(&item.bytes())? {
        None => (**item).clone(),
        Some(text) => {
            notes.add("", "has an unpaired surrogate: replaced by U+FFFD");
            RawJson::parse(text.into())
                .ok()
                .and_then(|raw| raw.as_object())
                .ok_or("it cannot be read")?
        }
    };
    let key = kind.item_key();
    if mended.get_string(key).is_none_or(|name| name.is_empty()) {
        return Err(format!("it has no {key}"));
    }
    match kind {
        ItemKind::Tools => tool::mend(&mut mended, &mut notes)?,
        ItemKind::Prompts => prompt::mend(&mut mended, &mut notes)?,
        ItemKind::Resources | ItemKind::Templates => resource::mend(kind, &mut mended, &mut notes),
    }
    let legacy = legacy_form(kind, &mended);
    let mended = (!notes.is_empty()).then(|| Arc::new(mended));
    Ok(CheckedDefinition {
        mended,
        mends: notes.into_texts(),
        legacy,
    })
}

fn legacy_form(kind: ItemKind, item: &JsonObject) -> LegacyForm {
    let mut notes = MendNotes::default();
    let result = match kind {
        ItemKind::Tools => tool::check_for_legacy(item, &mut notes),
        ItemKind::Resources => resource::check_for_legacy(item).map(|()| ValueChange::Keep),
        ItemKind::Prompts | ItemKind::Templates => Ok(ValueChange::Keep),
    };
    match result {
        Err(reason) => LegacyForm::LeftOut(reason),
        Ok(_) if notes.is_empty() => LegacyForm::Same,
        Ok(output) => LegacyForm::Mended(Arc::new(LegacyMend {
            reasons: notes.into_texts(),
            output,
        })),
    }
}
