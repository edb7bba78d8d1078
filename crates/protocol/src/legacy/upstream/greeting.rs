//! Form of `initialize` that a legacy server takes: its revision, and the members that are declared
//! in it.
//!
//! Owns the members of each form. Does not send it (`handshake.rs`) or choose the next one
//! (`negotiate.rs`). Invariant: a form has no member that its revision does not know, apart from
//! the extensions of the first one.

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};

use crate::client_capabilities::read_client_capabilities;
use crate::legacy::profile::{NEWEST, PROFILES, Profile, profile};
use crate::v2026_07_28;
use moongate_jsonrpc::json::{ByteString, JsonObject, RawJson};

/// Members that `initialize` declares.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum DeclaredMembers {
    /// Those of the revision, and extensions.
    Extended,
    /// Those of the revision.
    Exact,
    /// None: the server can ask for nothing.
    Nothing,
}

/// Form of `initialize`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(into = "StoredGreeting")]
pub struct LegacyGreeting {
    revision: &'static str,
    declares: DeclaredMembers,
}

/// Form of `initialize` in the state.
#[derive(Serialize, Deserialize)]
struct StoredGreeting {
    revision: String,
    declares: DeclaredMembers,
}

impl From<LegacyGreeting> for StoredGreeting {
    fn from(greeting: LegacyGreeting) -> Self {
        StoredGreeting {
            revision: greeting.revision.to_owned(),
            declares: greeting.declares,
        }
    }
}

// By hand, since the derived one would borrow the revision from the text.
impl<'de> Deserialize<'de> for LegacyGreeting {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let StoredGreeting { revision, declares } = StoredGreeting::deserialize(deserializer)?;
        Ok(LegacyGreeting {
            revision: profile(&revision)
                .ok_or_else(|| D::Error::custom(format_args!("unknown revision {revision:?}")))?
                .name,
            declares,
        })
    }
}

impl LegacyGreeting {
    /// Returns the form to try first. `forced`: the revision that the config names.
    pub(crate) fn first(forced: Option<&str>) -> Self {
        match forced.and_then(profile) {
            // Extensions are declared in `initialize` of the newest legacy revision only: clients
            // of it have them.
            Some(forced) if forced.name != NEWEST.name => LegacyGreeting::exact(forced),
            _ => LegacyGreeting {
                revision: NEWEST.name,
                declares: DeclaredMembers::Extended,
            },
        }
    }

    fn exact(profile: &'static Profile) -> Self {
        LegacyGreeting {
            revision: profile.name,
            declares: DeclaredMembers::Exact,
        }
    }

    /// Returns the forms to try after the first one, newest first. `forced`: the only revision.
    pub(crate) fn later(forced: Option<&str>) -> Vec<Self> {
        let allowed = PROFILES
            .iter()
            .rev()
            .filter(|profile| forced.is_none_or(|forced| forced == profile.name));
        let exact: Vec<_> = allowed.map(LegacyGreeting::exact).collect();
        // The newest and the oldest: a server that minds more than the members minds unknown
        // revisions.
        let ends = [exact.first(), exact.last()].into_iter().flatten();
        let mut bare: Vec<_> = ends
            .map(|end| LegacyGreeting {
                declares: DeclaredMembers::Nothing,
                ..*end
            })
            .collect();
        bare.dedup();
        exact.into_iter().chain(bare).collect()
    }

    /// Returns the form with exactly the members of this revision. `None` if it has no
    /// `initialize`.
    pub(crate) fn of_revision(name: &str) -> Option<Self> {
        profile(name).map(LegacyGreeting::exact)
    }

    /// Returns the requested revision.
    pub(crate) fn revision(self) -> &'static str {
        self.revision
    }

    /// True if nothing is declared, so that the server can ask for nothing.
    pub(crate) fn is_bare(self) -> bool {
        self.declares == DeclaredMembers::Nothing
    }

    /// Returns the capabilities in this form.
    pub(crate) fn capabilities(self, all: &RawJson) -> RawJson {
        match self.declares {
            // A client's own tasks are not declared: the server would ask for their states outside
            // any call (2025-11-25/basic/utilities/tasks.mdx, Client Capabilities).
            DeclaredMembers::Extended => v2026_07_28::tasks::set_declared(all, false),
            DeclaredMembers::Exact => self.exact_capabilities(all),
            DeclaredMembers::Nothing => RawJson::literal("{}"),
        }
    }

    fn exact_capabilities(self, all: &RawJson) -> RawJson {
        let all = all.as_object().unwrap_or_default();
        let declared = read_client_capabilities(&all);
        let mut exact = JsonObject::new();
        for known in self.profile().capabilities {
            let Some(mut value) = all.get_object(known.name) else {
                continue;
            };
            value.retain(|member| known.members.contains(&member));
            // Without modes, the member means forms.
            if known.name == "elicitation" && known.members.is_empty() && !declared.elicit_form {
                continue;
            }
            exact.set(ByteString::literal(known.name), value.to_raw());
        }
        exact.to_raw()
    }

    /// Returns the client's info in this form.
    pub(crate) fn client_info(self, info: &RawJson) -> RawJson {
        match (self.declares, info.as_object()) {
            (DeclaredMembers::Exact | DeclaredMembers::Nothing, Some(mut info)) => {
                info.retain(|member| self.profile().client_info.contains(&member));
                info.to_raw()
            }
            _ => info.clone(),
        }
    }

    fn profile(self) -> &'static Profile {
        profile(self.revision).unwrap_or(NEWEST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(greeting: LegacyGreeting, all: &'static str) -> String {
        String::from_utf8(
            greeting
                .capabilities(&RawJson::literal(all))
                .bytes()
                .to_vec(),
        )
        .unwrap()
    }

    /// All capabilities of a client.
    const ALL: &str = concat!(
        r#"{"sampling":{"context":{},"tools":{}},"elicitation":{"form":{},"url":{}},"roots":{"listChanged":true},"#,
        r#""tasks":{"list":{}},"extensions":{"x":{}},"other":{}}"#
    );

    fn written_for(revision: &str) -> String {
        written(LegacyGreeting::of_revision(revision).unwrap(), ALL)
    }

    /// Returns a client's info as it is written in a revision.
    fn info_for(revision: &str) -> String {
        let info = RawJson::literal(
            r#"{"name":"a","title":"A","version":"1","websiteUrl":"x:","other":1}"#,
        );
        let greeting = LegacyGreeting::of_revision(revision).unwrap();
        String::from_utf8(greeting.client_info(&info).bytes().to_vec()).unwrap()
    }

    #[test]
    fn each_revision_declares_the_members_that_it_has() {
        let roots = r#""roots":{"listChanged":true}"#;
        assert_eq!(
            written_for("2024-11-05"),
            format!(r#"{{{roots},"sampling":{{}}}}"#)
        );
        assert_eq!(written_for("2025-03-26"), written_for("2024-11-05"));
        assert_eq!(
            written_for("2025-06-18"),
            format!(r#"{{{roots},"sampling":{{}},"elicitation":{{}}}}"#)
        );
        let modes = r#""sampling":{"context":{},"tools":{}},"elicitation":{"form":{},"url":{}}"#;
        assert_eq!(written_for("2025-11-25"), format!("{{{roots},{modes}}}"));
        let only_url = r#"{"elicitation":{"url":{}}}"#;
        assert_eq!(
            written(LegacyGreeting::of_revision("2025-06-18").unwrap(), only_url),
            "{}"
        );
        assert_eq!(
            written(*LegacyGreeting::later(None).last().unwrap(), ALL),
            "{}"
        );
        assert!(written(LegacyGreeting::first(None), ALL).contains("extensions"));
    }

    #[test]
    fn a_client_names_itself_with_the_members_of_the_revision() {
        assert_eq!(info_for("2024-11-05"), r#"{"name":"a","version":"1"}"#);
        assert_eq!(
            info_for("2025-06-18"),
            r#"{"name":"a","title":"A","version":"1"}"#
        );
        assert!(
            info_for("2025-11-25").contains("websiteUrl")
                && !info_for("2025-11-25").contains("other")
        );
    }

    #[test]
    fn forms_go_down_from_the_newest_revision_and_are_stored() {
        let revisions: Vec<_> = LegacyGreeting::later(None)
            .iter()
            .map(|greeting| greeting.revision())
            .collect();
        let down = ["2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"];
        assert_eq!(revisions, [&down[..], &[down[0], down[3]]].concat());
        let forced = LegacyGreeting::later(Some("2025-06-18"));
        assert!(
            forced.len() == 2
                && forced
                    .iter()
                    .all(|greeting| greeting.revision() == "2025-06-18"),
            "{forced:?}"
        );
        for greeting in [
            LegacyGreeting::first(None),
            LegacyGreeting::first(Some("2024-11-05")),
        ] {
            let stored = serde_json::to_string(&greeting).unwrap();
            assert_eq!(
                serde_json::from_str::<LegacyGreeting>(&stored).unwrap(),
                greeting,
                "{stored}"
            );
        }
        assert!(
            serde_json::from_str::<LegacyGreeting>(
                r#"{"revision":"2026-07-28","declares":"exact"}"#
            )
            .is_err()
        );
    }
}
