//! Distance between two names.
//!
//! Owns the limit beyond which two names are strangers. Does not know what has the names. Invariant: the work for one
//! pair is bounded, however long the names are.

/// Longest names that are compared, in bytes.
// A comparison takes the product of both lengths, and the caller chooses one of them.
const COMPARED_BYTES_MAX: usize = 128;
/// Shortest beginning that stands for a whole name.
const BEGINNING_MIN: usize = 3;

/// Returns the number of edits between two names, if it is small.
pub(super) fn few_edits(wanted: &str, name: &str) -> Option<usize> {
    let (wanted, name) = (cut(wanted).to_lowercase(), cut(name).to_lowercase());
    // One mistake in three letters, but never more than three: as for the keys of a config.
    let most = (wanted.len().min(name.len()) / 3).clamp(1, 3);
    if wanted.len() >= BEGINNING_MIN && name.starts_with(&wanted) {
        return Some(most);
    }
    Some(strsim::osa_distance(&wanted, &name)).filter(|edits| *edits <= most)
}

fn cut(name: &str) -> &str {
    &name[..name.floor_char_boundary(COMPARED_BYTES_MAX)]
}
