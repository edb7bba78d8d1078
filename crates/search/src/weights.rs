//! Weights of the ranking: six fields of text, and how fast repeated words stop counting.
//!
//! Owns the numbers. Does not apply them (`ranking.rs`). Invariant: a change of a number goes with
//! a new run of `tests/corpora.rs`, which has the gates.

/// Field of a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TextField {
    /// Name at its server.
    OwnName,
    /// Title and description.
    Description,
    /// Names of arguments.
    ArgumentNames,
    /// Descriptions of arguments.
    ArgumentTexts,
    /// Name and title of the server.
    ServerName,
    /// Description of the server.
    ServerDescription,
}

impl TextField {
    /// Fields in the order of their weights.
    pub const ALL: [TextField; 6] = [
        TextField::OwnName,
        TextField::Description,
        TextField::ArgumentNames,
        TextField::ArgumentTexts,
        TextField::ServerName,
        TextField::ServerDescription,
    ];
}

/// Fields that each tool has for itself. The rest belongs to its server.
pub(crate) const TOOL_FIELDS: usize = 4;
/// Fields that all tools of a server share.
pub(crate) const SERVER_FIELDS: usize = 2;

/// Weight of a field, as BM25F has it.
#[derive(Clone, Copy, Debug)]
pub struct FieldWeight {
    /// Worth of a word in this field.
    pub weight: f32,
    /// Penalty for texts longer than the average: none at 0, in proportion at 1. BM25 calls it b.
    pub length_penalty: f32,
}

impl FieldWeight {
    fn new(weight: f32, length_penalty: f32) -> FieldWeight {
        FieldWeight {
            weight,
            length_penalty,
        }
    }
}

/// Numbers of the ranking.
#[derive(Clone, Debug)]
pub struct RankingWeights {
    /// Weights by `TextField`.
    pub fields: [FieldWeight; 6],
    /// Count of a word at which it is worth half. BM25 calls it k1.
    pub saturation: f32,
    /// Worth of a synonym, as a share of the word itself.
    pub synonym: f32,
    /// Worth of a word with a similar spelling, times its similarity.
    pub nearest: f32,
    /// Share of the best possible score that the first hit needs, or nothing fits.
    pub floor: f32,
}

impl Default for RankingWeights {
    fn default() -> RankingWeights {
        RankingWeights {
            fields: [
                FieldWeight::new(2.0, 0.3),
                FieldWeight::new(1.0, 0.5),
                FieldWeight::new(0.5, 0.3),
                FieldWeight::new(0.3, 0.5),
                FieldWeight::new(2.0, 0.1),
                FieldWeight::new(0.2, 0.5),
            ],
            saturation: 0.9,
            synonym: 0.4,
            nearest: 1.0,
            floor: 0.15,
        }
    }
}

impl RankingWeights {
    /// Returns these weights without one field.
    pub fn without(mut self, field: TextField) -> RankingWeights {
        self.fields[field as usize].weight = 0.0;
        self
    }
}
