//! Sealed JSON rows of people's logins.
//!
//! Owns their form on disk. Does not write them (`row_writes.rs`). Invariant: a row opens only in
//! the table and under the key that it was sealed for, so rows cannot be swapped.

use bytes::Bytes;
use moongate_oauth::{RootSecrets, SealRing};
use moongate_session::store::StoreTable;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Purpose of the row key.
const PURPOSE: &str = "broker rows";

/// Row codec.
pub(crate) struct RowCodec(SealRing);

impl RowCodec {
    /// Derives the row seals.
    pub(crate) fn new(secrets: &RootSecrets) -> Self {
        RowCodec(secrets.seal_ring(PURPOSE))
    }

    /// Seals a row for its table and key.
    pub(crate) fn encode(&self, table: StoreTable, key: &[u8], row: &impl Serialize) -> Bytes {
        let plain = serde_json::to_vec(row).expect("our rows are JSON");
        Bytes::from(self.0.seal(&row_name(table, key), &plain))
    }

    /// Opens a row. `None`: no secret opens it here, or it is a different kind of row.
    pub(crate) fn decode<T: DeserializeOwned>(
        &self,
        table: StoreTable,
        key: &[u8],
        sealed: &[u8],
    ) -> Option<T> {
        let sealed = str::from_utf8(sealed).ok()?;
        let plain = self.0.open(&row_name(table, key), sealed)?;
        serde_json::from_slice(&plain).ok()
    }

    /// Returns true if a row is sealed with the current secret.
    pub(crate) fn is_current(&self, sealed: &[u8]) -> bool {
        str::from_utf8(sealed).is_ok_and(|sealed| self.0.is_current(sealed))
    }
}

/// Returns the name to which a row is bound: its table, and its key in hexadecimal digits.
fn row_name(table: StoreTable, key: &[u8]) -> String {
    // Not the variant's name, which may change while stored rows remain.
    let mut name = match table {
        StoreTable::Logins => "logins ".to_owned(),
        StoreTable::People => "people ".to_owned(),
        _ => "keys ".to_owned(),
    };
    for byte in key {
        for digit in [byte >> 4, byte & 15] {
            name.extend(char::from_digit(u32::from(digit), 16));
        }
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOGINS: StoreTable = StoreTable::Logins;

    fn codec(secret: u8) -> RowCodec {
        RowCodec::new(&RootSecrets::of_bytes(&[secret; 32]))
    }

    #[test]
    fn a_row_opens_in_its_own_place_alone() {
        let codec = codec(7);
        let sealed = codec.encode(LOGINS, &[1; 16], &"row");
        let open = |table, key: &[u8]| codec.decode::<String>(table, key, &sealed);
        assert_eq!(open(LOGINS, &[1; 16]).as_deref(), Some("row"));
        for (table, key) in [
            (StoreTable::People, &[1; 16][..]),
            (StoreTable::BrokerKeys, &[1; 16]),
            (LOGINS, &[2; 16]),
            (LOGINS, &[1; 15]),
            (LOGINS, &[]),
        ] {
            assert_eq!(open(table, key), None, "{table:?} {key:?}");
        }
        let others = self::codec(8);
        assert_eq!(others.decode::<String>(LOGINS, &[1; 16], &sealed), None);
        assert!(codec.is_current(&sealed) && !others.is_current(&sealed));
    }

    #[test]
    fn a_damaged_row_or_one_of_another_form_is_none() {
        let codec = codec(7);
        let sealed = codec.encode(LOGINS, b"a", &"row");
        assert_eq!(codec.decode::<u32>(LOGINS, b"a", &sealed), None);
        for damaged in [&b""[..], b"\xff\xfe", b"row", &sealed[1..]] {
            assert_eq!(codec.decode::<String>(LOGINS, b"a", damaged), None);
            assert!(!codec.is_current(damaged));
        }
    }

    #[test]
    fn a_name_has_the_key_in_digits() {
        assert_eq!(row_name(LOGINS, &[0x0a, 0xf0]), "logins 0af0");
        assert_eq!(row_name(StoreTable::People, &[]), "people ");
        assert_eq!(row_name(StoreTable::BrokerKeys, b"a"), "keys 61");
    }
}
