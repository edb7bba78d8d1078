//! Notices under the bar: what an operator should know in every view.
//!
//! Owns their order and their words. Does not find problems (`moongate_config`,
//! `moongate_gateway`). Invariant: at most two are shown, the most severe first.

use maud::{Markup, html};
use moongate_api::ConfigState;

use super::text::{VisibleText, count};

/// Notices that are shown at once.
const SHOWN_MAX: usize = 2;

/// Facts that notices are made of.
pub struct NoticeFacts {
    /// Config, as the API describes it.
    pub config: ConfigState,
    /// Findings about views and keys.
    pub findings: Vec<String>,
    /// True if the reader may act.
    pub may_act: bool,
}

impl NoticeFacts {
    /// Renders the most severe ones.
    pub fn draw(&self) -> Markup {
        let all = [
            self.refused(),
            self.findings(),
            self.waiting(),
            self.viewing(),
            self.read_only(),
        ];
        html! {
            div id="notices" data-part="/parts/notices" data-on="config list snapshot" {
                @for (class, words) in all.into_iter().flatten().take(SHOWN_MAX) {
                    p class=(class) { (words) } }
            }
        }
    }

    fn refused(&self) -> Option<(&'static str, Markup)> {
        let problem = FirstProblem::read(self.config.reload.message.as_deref()?);
        let words = html! {
            b { "The config on disk was refused" } ": " (VisibleText(&problem.message))
            @if let Some(location) = problem.location { " (" code { (VisibleText(location)) } ")" }
            @if problem.total > 1 {
                ", and " (count(problem.total as u64 - 1, "more problem", "more problems")) }
            ". Nothing changed: the gateway still runs the config \
             from " (clock(&self.config.in_use_since)) "."
            @if let Some(fix) = problem.fix {
                " Fix: " (VisibleText(fix)) @if !fix.ends_with(['.', '?', '!']) { "." } }
        };
        Some(("banner red", words))
    }

    fn findings(&self) -> Option<(&'static str, Markup)> {
        let first = self.findings.first()?;
        let words = html! {
            (VisibleText(first))
            @if self.findings.len() > 1 {
                " · and " (count(self.findings.len() as u64 - 1, "more problem", "more problems")) }
        };
        Some(("banner orange", words))
    }

    fn waiting(&self) -> Option<(&'static str, Markup)> {
        let keys = &self.config.needs_restart;
        let words = html! {
            b { (count(keys.len() as u64, "change needs", "changes need")) " a gateway restart" }
            ": "
            code { (keys.join(", ")) } ". Until then, the old values stay in effect."
        };
        (!keys.is_empty()).then_some(("banner orange", words))
    }

    fn viewing(&self) -> Option<(&'static str, Markup)> {
        (!self.may_act).then(|| {
            (
                "banner",
                html! { "You can only view. To make changes, sign in with a key that has the role \
                “operate”." },
            )
        })
    }

    fn read_only(&self) -> Option<(&'static str, Markup)> {
        let files = &self.config.files;
        let why = match self.config.edit {
            false => "admin.edit is false",
            // One file that can be written is enough for most changes. The cards say which cannot.
            true if !files.is_empty() && files.iter().all(|file| !file.writable) => files
                .iter()
                .filter_map(|file| file.why_not.as_deref())
                .find(|why| !why.is_empty())?,
            true => return None,
        };
        Some((
            "banner",
            html! { "The config is read-only here: " (VisibleText(why)) "." },
        ))
    }
}

/// First problem of a refused config, as its message has it.
struct FirstProblem<'a> {
    message: String,
    location: Option<&'a str>,
    fix: Option<&'a str>,
    total: usize,
}

impl<'a> FirstProblem<'a> {
    /// Reads the text that `ConfigProblem::render` wrote. Text of another form is the message as a
    /// whole.
    fn read(text: &'a str) -> Self {
        let errors: Vec<usize> = text
            .match_indices("error: ")
            .map(|(at, _)| at)
            .filter(|at| starts_line(text, *at))
            .collect();
        let Some(start) = errors.first() else {
            return FirstProblem {
                message: text.trim().to_owned(),
                location: None,
                fix: None,
                total: 1,
            };
        };
        let one = &text[*start..errors.get(1).copied().unwrap_or(text.len())];
        FirstProblem {
            message: text_after(one, "error: ")
                .unwrap_or_default()
                .trim_end_matches('.')
                .to_owned(),
            location: text_after(one, "--> "),
            fix: text_after(one, " = fix: ").map(|fix| fix.trim_end_matches('.')),
            total: errors.len(),
        }
    }
}

/// Returns the rest of the first line that has a mark.
fn text_after<'a>(problem: &'a str, mark: &str) -> Option<&'a str> {
    let (_, rest) = problem.lines().find_map(|line| line.split_once(mark))?;
    Some(rest.trim())
}

fn starts_line(text: &str, at: usize) -> bool {
    at == 0 || text[..at].ends_with('\n')
}

/// Renders hours and minutes of a timestamp. The whole of it is in the title.
fn clock(at: &str) -> Markup {
    let time = at
        .split_once('T')
        .and_then(|(_, time)| time.get(..5))
        .unwrap_or(at);
    html! { time datetime=(at) title=(at) { (time) " UTC" } }
}

#[cfg(test)]
mod tests {
    use moongate_api::{ConfigFile, LastReload};

    use super::*;

    fn config(message: Option<&str>, edit: bool) -> ConfigState {
        let reload = LastReload {
            message: message.map(str::to_owned),
            ..LastReload::default()
        };
        ConfigState {
            reload,
            in_use_since: "2026-11-23T14:02:11Z".to_owned(),
            edit,
            ..ConfigState::default()
        }
    }

    fn drawn(facts: &NoticeFacts) -> String {
        facts.draw().into_string()
    }

    #[test]
    fn the_most_severe_two_are_shown() {
        let message = "warning: w\n\nerror: unknown key `tmeout`.\n --> /etc/m.toml:14:3\n  |\n14 \
                       | tmeout = 1\n  = fix: write `timeout`\n\nerror: b\n\n2 problems in the \
                       config\n";
        let mut facts = NoticeFacts {
            config: ConfigState {
                needs_restart: ["gateway.listen", "admin.streams"]
                    .map(str::to_owned)
                    .to_vec(),
                ..config(Some(message), false)
            },
            findings: vec!["views.a: <b> fits nothing".to_owned()],
            may_act: false,
        };
        let html = drawn(&facts);
        assert_eq!(html.matches("class=\"banner").count(), 2, "{html}");
        for part in [
            "unknown key `tmeout` (<code>/etc/m.toml:14:3</code>), and 1 more problem.",
            "14:02 UTC",
            "Fix: write `timeout`.",
        ] {
            assert!(html.contains(part), "{part} in {html}");
        }
        assert!(
            html.contains("&lt;b&gt; fits nothing") && !html.contains("restart"),
            "{html}"
        );
        facts.config.reload.message = None;
        facts.findings.clear();
        let html = drawn(&facts);
        assert!(
            html.contains("2 changes need a gateway restart") && html.contains("only view"),
            "{html}"
        );
        facts.config.needs_restart.clear();
        facts.may_act = true;
        assert!(drawn(&facts).contains("read-only here: admin.edit is false"));
        facts.config.edit = true;
        assert!(!drawn(&facts).contains("banner"));
        let why_not = Some("it is mounted read-only".to_owned());
        facts.config.files = vec![ConfigFile {
            why_not,
            ..ConfigFile::default()
        }];
        assert!(drawn(&facts).contains("mounted read-only"));
    }

    #[test]
    fn a_question_ends_with_its_own_mark() {
        let message =
            "error: unknown key `gatway`\n --> m.toml:1:1\n  = fix: did you mean `gateway`?\n";
        let facts = NoticeFacts {
            config: config(Some(message), true),
            findings: Vec::new(),
            may_act: true,
        };
        let html = drawn(&facts);
        assert!(html.contains("Fix: did you mean `gateway`?<"), "{html}");
    }

    #[test]
    fn a_refusal_in_other_words_is_shown_whole() {
        let problem = FirstProblem::read("the config could not be read\n");
        assert_eq!(problem.message, "the config could not be read");
        assert_eq!(problem.location, None);
        assert_eq!(problem.total, 1);
    }
}
