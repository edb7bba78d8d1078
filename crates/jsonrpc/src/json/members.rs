//! Members of an object as the fields of a type.
//!
//! Owns the passage from spans to serde. Does not know the types. Invariant: a member that no field
//! is for is not read, so its size costs nothing.

use serde::Deserialize;
use serde::de::value::MapDeserializer;
use serde::de::{DeserializeOwned, Deserializer, IntoDeserializer, Visitor};
use serde::forward_to_deserialize_any;

use super::{JsonObject, RawJson};

impl JsonObject {
    /// Reads the members that a type has fields for. Returns the type's default if one of them does
    /// not fit: fields that others may write wrongly are read with [`or_default`].
    pub fn read_members<T: DeserializeOwned + Default>(&self) -> T {
        let members = self.iter().map(|(key, value)| (key.as_str(), value));
        let members = MapDeserializer::<_, serde_json::Error>::new(members);
        T::deserialize(members).unwrap_or_default()
    }
}

/// Reads a field that others write: a value of another type counts as a missing one.
pub fn or_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: DeserializeOwned + Default,
{
    let value = RawJson::deserialize(deserializer)?;
    Ok(value.parse_as().unwrap_or_default())
}

/// Reads a field whose value may be `null`, which an `Option` would take for a missing one.
pub fn or_null<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<RawJson>, D::Error> {
    RawJson::deserialize(deserializer).map(Some)
}

/// Value of one member.
pub struct MemberValue<'de>(&'de RawJson);

impl<'de> IntoDeserializer<'de, serde_json::Error> for &'de RawJson {
    type Deserializer = MemberValue<'de>;

    fn into_deserializer(self) -> MemberValue<'de> {
        MemberValue(self)
    }
}

impl<'de> Deserializer<'de> for MemberValue<'de> {
    type Error = serde_json::Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Self::Error> {
        serde_json::Deserializer::from_slice(self.0.bytes()).deserialize_any(visitor)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Self::Error> {
        serde_json::Deserializer::from_slice(self.0.bytes()).deserialize_option(visitor)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Self::Error> {
        // `RawValue` is one, by its name.
        serde_json::Deserializer::from_slice(self.0.bytes())
            .deserialize_newtype_struct(name, visitor)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Self::Error> {
        serde_json::Deserializer::from_slice(self.0.bytes())
            .deserialize_enum(name, variants, visitor)
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Self::Error> {
        visitor.visit_unit()
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf
        unit unit_struct seq tuple tuple_struct map struct identifier
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Default, PartialEq, Deserialize)]
    #[serde(rename_all = "camelCase", default)]
    struct TestFields {
        #[serde(deserialize_with = "or_default")]
        mime_type: Option<String>,
        #[serde(deserialize_with = "or_default")]
        size: u64,
        #[serde(deserialize_with = "or_null")]
        data: Option<RawJson>,
        schema: JsonObject,
        plain: Option<u8>,
    }

    fn read(json: &'static str) -> TestFields {
        RawJson::literal(json).as_object().unwrap().read_members()
    }

    #[test]
    fn fields_are_read_and_others_are_not() {
        let fields = read(
            r#"{"x":{"deep":[1]},"mimeType":"a\n","size":7,"data":1.0,"schema":{"b": 2},"plain":3}"#,
        );
        let expected = TestFields {
            mime_type: Some("a\n".to_owned()),
            size: 7,
            data: Some(RawJson::literal("1.0")),
            schema: JsonObject::new().with("b", RawJson::literal("2")),
            plain: Some(3),
        };
        assert_eq!(fields, expected);
        assert_eq!(read("{}"), TestFields::default());
    }

    #[test]
    fn a_wrong_value_counts_as_missing_where_the_field_says_so() {
        let fields = read(r#"{"mimeType":7,"size":"7","data":null,"schema":{},"plain":null}"#);
        let expected = TestFields {
            data: Some(RawJson::NULL),
            ..TestFields::default()
        };
        assert_eq!(fields, expected);
        let strict = read(r#"{"size":7,"plain":"3"}"#);
        assert_eq!(strict, TestFields::default());
    }

    #[test]
    fn a_changed_object_is_read_as_it_is_now() {
        let object = JsonObject::new().with("size", RawJson::number(9));
        let fields: TestFields = object.read_members();
        assert_eq!(fields.size, 9);
    }
}
