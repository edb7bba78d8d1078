//! Plan of an edit: the next change of the tree that it needs.
//!
//! Owns the meaning of each action, on trees of values alone. Does not know any format or text.
//! Invariant: repeated changes end, since each makes the tree more like the intended one.

use serde_json::{Map, Value};

use crate::edit_action::{Edit, EditAction, PathStep};
use crate::error::EditError;

/// Makes edits on a tree alone.
pub(crate) fn apply_edits(edits: &[Edit], tree: &mut Value) -> Result<(), EditError> {
    for edit in edits {
        while let Some(change) = next_change(edit, tree)? {
            change
                .apply_to(tree)
                .ok_or_else(|| EditError::refuse("it leads nowhere"))?;
        }
    }
    Ok(())
}

/// Returns the value that a path leads to.
pub(crate) fn value_at<'t>(tree: &'t Value, path: &[PathStep]) -> Option<&'t Value> {
    let target = find(tree, path).ok()?;
    target.missing.is_empty().then_some(target.node)
}

/// Step of a resolved path.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum NodeStep {
    Key(String),
    Index(usize),
}

/// Change of one node. `at` leads to a node that exists.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Change {
    /// Adds an entry to the table at the path.
    Insert {
        at: Vec<NodeStep>,
        key: String,
        value: Value,
    },
    /// Adds an element to the list at the path.
    Append { at: Vec<NodeStep>, value: Value },
    /// Replaces the node at the path.
    Replace { at: Vec<NodeStep>, value: Value },
    /// Removes the node at the path from its container.
    Remove { at: Vec<NodeStep> },
}

impl Change {
    /// Returns the index in a list of what is removed.
    pub(crate) fn index(&self) -> Option<usize> {
        match self {
            Change::Remove { at } => match at.last()? {
                NodeStep::Index(index) => Some(*index),
                NodeStep::Key(_) => None,
            },
            _ => None,
        }
    }

    /// Applies the change to a tree.
    pub(crate) fn apply_to(&self, tree: &mut Value) -> Option<()> {
        match self {
            Change::Insert { at, key, value } => {
                node_mut(tree, at)?
                    .as_object_mut()?
                    .insert(key.clone(), value.clone());
            }
            Change::Append { at, value } => node_mut(tree, at)?.as_array_mut()?.push(value.clone()),
            Change::Replace { at, value } => *node_mut(tree, at)? = value.clone(),
            Change::Remove { at } => remove_node(tree, at)?,
        }
        Some(())
    }
}

/// Removes a node from its container.
pub(crate) fn remove_node(tree: &mut Value, at: &[NodeStep]) -> Option<()> {
    let (last, container) = at.split_last()?;
    match (node_mut(tree, container)?, last) {
        (Value::Object(table), NodeStep::Key(key)) => drop(table.shift_remove(key)?),
        (Value::Array(list), NodeStep::Index(index)) if *index < list.len() => {
            drop(list.remove(*index))
        }
        _ => return None,
    }
    Some(())
}

fn step_into<'a>(node: &'a Value, step: &NodeStep) -> Option<&'a Value> {
    match step {
        NodeStep::Key(key) => node.as_object()?.get(key),
        NodeStep::Index(index) => node.as_array()?.get(*index),
    }
}

fn node_mut<'a>(tree: &'a mut Value, at: &[NodeStep]) -> Option<&'a mut Value> {
    at.iter().try_fold(tree, |node, step| match step {
        NodeStep::Key(key) => node.as_object_mut()?.get_mut(key),
        NodeStep::Index(index) => node.as_array_mut()?.get_mut(*index),
    })
}

/// Returns the node at a path.
pub(crate) fn node<'a>(tree: &'a Value, at: &[NodeStep]) -> Option<&'a Value> {
    at.iter().try_fold(tree, step_into)
}

/// Node that an edit is for.
struct EditTarget<'t, 'e> {
    /// Path to the deepest node that exists.
    at: Vec<NodeStep>,
    node: &'t Value,
    /// Steps below it, which do not exist.
    missing: &'e [PathStep],
}

/// Finds the next change that an edit needs. `None` if the tree is as the edit asks.
pub(crate) fn next_change(edit: &Edit, tree: &Value) -> Result<Option<Change>, EditError> {
    if edit.path().is_empty() {
        return Err(EditError::refuse("the path is empty"));
    }
    let target = find(tree, edit.path())?;
    let exists = target.missing.is_empty();
    match edit.action() {
        EditAction::Set(value) if exists => match edit.path().last() {
            // The field that identifies an element is part of its value.
            Some(step @ PathStep::Item { .. }) => Ok(difference(
                target.at,
                target.node,
                &element(step, value.clone())?,
            )),
            _ => Ok(difference(target.at, target.node, value)),
        },
        EditAction::Set(value) => create(target, value.clone()).map(Some),
        // What is not there is removed already: an edit that is repeated changes nothing.
        EditAction::Remove => Ok(exists.then_some(Change::Remove { at: target.at })),
        EditAction::AddItem(text) if !exists || target.node.is_null() => {
            create(target, Value::Array(vec![text.as_str().into()])).map(Some)
        }
        EditAction::RemoveItem(_) if !exists || target.node.is_null() => Ok(None),
        EditAction::AddItem(text) => {
            let has = list_at(&target)?.iter().any(|item| item == text.as_str());
            Ok((!has).then(|| Change::Append {
                at: target.at,
                value: text.as_str().into(),
            }))
        }
        EditAction::RemoveItem(text) => {
            let found = list_at(&target)?
                .iter()
                .position(|item| item == text.as_str());
            Ok(found.map(|index| Change::Remove {
                at: child(&target.at, NodeStep::Index(index)),
            }))
        }
        EditAction::RemoveIfEmpty => {
            let is_empty = exists
                && (target.node == &Value::Array(vec![])
                    || target.node == &Value::Object(Map::new()));
            Ok(is_empty.then_some(Change::Remove { at: target.at }))
        }
    }
}

fn child(at: &[NodeStep], step: NodeStep) -> Vec<NodeStep> {
    at.iter().cloned().chain([step]).collect()
}

fn list_at<'t>(target: &EditTarget<'t, '_>) -> Result<&'t Vec<Value>, EditError> {
    target
        .node
        .as_array()
        .ok_or_else(|| EditError::refuse(format!("{} is not a list", path_text(&target.at))))
}

/// Follows the path as far as there are nodes.
fn find<'t, 'e>(tree: &'t Value, path: &'e [PathStep]) -> Result<EditTarget<'t, 'e>, EditError> {
    let mut target = EditTarget {
        at: Vec::new(),
        node: tree,
        missing: path,
    };
    while let Some((step, rest)) = target.missing.split_first() {
        let next = match (step, target.node) {
            // A null in YAML or JSON is an absent value.
            (_, Value::Null) => None,
            (PathStep::Key(key), Value::Object(table)) => table
                .get(key)
                .map(|node| (NodeStep::Key(key.clone()), node)),
            (PathStep::Item { field, value }, Value::Array(list)) => list
                .iter()
                .position(|item| item.get(field).is_some_and(|found| found == value.as_str()))
                .map(|index| (NodeStep::Index(index), &list[index])),
            // Refused and not replaced: somebody wrote that value, and it would be lost.
            (PathStep::Key(_), _) => {
                return Err(EditError::refuse(format!(
                    "{} is not a table",
                    path_text(&target.at)
                )));
            }
            (PathStep::Item { .. }, _) => {
                return Err(EditError::refuse(format!(
                    "{} is not a list",
                    path_text(&target.at)
                )));
            }
        };
        let Some((step, node)) = next else { break };
        target.at.push(step);
        target.node = node;
        target.missing = rest;
    }
    Ok(target)
}

/// Creates a value below the deepest node that exists.
fn create(target: EditTarget<'_, '_>, value: Value) -> Result<Change, EditError> {
    if target.node.is_null() {
        return Ok(Change::Replace {
            at: target.at,
            value: wrap(target.missing, value)?,
        });
    }
    let Some((first, rest)) = target.missing.split_first() else {
        return Ok(Change::Replace {
            at: target.at,
            value,
        });
    };
    let value = wrap(rest, value)?;
    Ok(match first {
        PathStep::Key(key) => Change::Insert {
            at: target.at,
            key: key.clone(),
            value,
        },
        PathStep::Item { .. } => Change::Append {
            at: target.at,
            value: element(first, value)?,
        },
    })
}

/// Wraps a value in the containers that its path names.
fn wrap(path: &[PathStep], value: Value) -> Result<Value, EditError> {
    path.iter().rev().try_fold(value, |value, step| match step {
        PathStep::Key(key) => Ok(Value::Object(Map::from_iter([(key.clone(), value)]))),
        PathStep::Item { .. } => Ok(Value::Array(vec![element(step, value)?])),
    })
}

/// Creates the element that a step names. The field that identifies it comes first, if the value
/// lacks it.
fn element(step: &PathStep, value: Value) -> Result<Value, EditError> {
    let (PathStep::Item { field, value: name }, Value::Object(table)) = (step, value) else {
        return Err(EditError::refuse(
            "a new element of that list must be a table",
        ));
    };
    // The identifying field comes first, as people write it: `name` before the rest.
    let mut element = Map::new();
    if !table.contains_key(field) {
        element.insert(field.clone(), name.as_str().into());
    }
    element.extend(table);
    // Such an element would not be found by its own path, and each repetition would add another.
    if element[field] != name.as_str() {
        return Err(EditError::refuse(format!(
            "the new element's {field} differs from the one in its path"
        )));
    }
    Ok(Value::Object(element))
}

/// Finds the first difference between a node and its new value. Small changes keep comments that
/// large ones lose.
fn difference(at: Vec<NodeStep>, node: &Value, wanted: &Value) -> Option<Change> {
    match (node, wanted) {
        (Value::Object(old), Value::Object(new)) => {
            let changed = new.iter().find_map(|(key, value)| match old.get(key) {
                Some(node) => difference(child(&at, NodeStep::Key(key.clone())), node, value),
                // Additions before removals: a table must not become empty in between, since YAML
                // writes an empty one in another form.
                None => Some(Change::Insert {
                    at: at.clone(),
                    key: key.clone(),
                    value: value.clone(),
                }),
            });
            changed.or_else(|| {
                let gone = old.keys().find(|key| !new.contains_key(*key))?;
                Some(Change::Remove {
                    at: child(&at, NodeStep::Key(gone.clone())),
                })
            })
        }
        (Value::Array(old), Value::Array(new)) => {
            let index =
                (0..old.len().max(new.len())).find(|index| old.get(*index) != new.get(*index))?;
            let item = child(&at, NodeStep::Index(index));
            match (old.get(index), new.get(index)) {
                (None, Some(value)) => Some(Change::Append {
                    at,
                    value: value.clone(),
                }),
                (Some(_), None) => Some(Change::Remove { at: item }),
                // An element that was taken out of the middle. Rewriting all later ones would lose
                // their comments.
                (Some(_), Some(value))
                    if old.get(index + 1) == Some(value) && old.len() > new.len() =>
                {
                    Some(Change::Remove { at: item })
                }
                (Some(node), Some(value)) => difference(item, node, value),
                (None, None) => None,
            }
        }
        _ => (node != wanted).then(|| Change::Replace {
            at,
            value: wanted.clone(),
        }),
    }
}

/// Writes a path for people.
pub(crate) fn path_text(at: &[NodeStep]) -> String {
    if at.is_empty() {
        return "the top of the file".to_owned();
    }
    let steps = at.iter().enumerate().map(|(n, step)| match step {
        NodeStep::Key(key) if n == 0 => key.clone(),
        NodeStep::Key(key) => format!(".{key}"),
        NodeStep::Index(index) => format!("[{index}]"),
    });
    steps.collect()
}
