//! Formatting of texts and numbers.
//!
//! Owns how foreign text is made visible, and how numbers are written. Does not do layout.
//! Invariant: server text cannot hide or reorder what is next to it.

use std::fmt::Write as _;

use maud::{Markup, Render, html};

use moongate_telemetry::plain_text::is_invisible;

/// Foreign text. Characters that a reader cannot see are written out.
pub(super) struct VisibleText<'a>(pub(super) &'a str);

impl Render for VisibleText<'_> {
    fn render_to(&self, out: &mut String) {
        show_invisible(self.0).render_to(out);
    }
}

/// Writes out the characters that a reader cannot see.
pub(super) fn show_invisible(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for character in text.chars() {
        if is_invisible(character) {
            // Fails never: a `String` takes all.
            let _ = write!(shown, "⟨U+{:04X}⟩", u32::from(character));
        } else {
            shown.push(character);
        }
    }
    shown
}

/// Foreign text with the words between backticks as code.
pub(super) struct WithCode<'a>(pub(super) &'a str);

impl Render for WithCode<'_> {
    fn render(&self) -> Markup {
        html! {
            @for (n, part) in self.0.split('`').enumerate() {
                @if n % 2 == 1 { code { (VisibleText(part)) } } @else { (VisibleText(part)) }
            }
        }
    }
}

/// Writes an estimate with two significant digits.
pub(super) fn estimate(number: u64) -> String {
    if number == 0 {
        return "0".to_owned();
    }
    let mut unit = 1;
    while number / unit >= 100 {
        unit *= 10;
    }
    format!("≈ {}", grouped((number + unit / 2) / unit * unit))
}

/// Writes a number with its thousands apart.
pub(super) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (n, digit) in digits.chars().enumerate() {
        if n > 0 && (digits.len() - n).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Writes a time in milliseconds as people read it.
pub(super) fn duration(ms: f64) -> String {
    match ms {
        ms if ms < 10.0 => format!("{ms:.1} ms"),
        ms if ms < 1000.0 => format!("{ms:.0} ms"),
        ms if ms < 60_000.0 => format!("{:.1} s", ms / 1000.0),
        ms => seconds((ms / 1000.0) as u64),
    }
}

/// Writes whole seconds, in at most two units.
pub(super) fn seconds(seconds: u64) -> String {
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => two_units(seconds, 60, ("m", "s")),
        3600..86_400 => two_units(seconds / 60, 60, ("h", "m")),
        _ => two_units(seconds / 3600, 24, ("d", "h")),
    }
}

fn two_units(number: u64, size: u64, (large, small): (&str, &str)) -> String {
    let rest = number % size;
    let small = if rest > 0 {
        format!(" {rest} {small}")
    } else {
        String::new()
    };
    format!("{} {large}{small}", number / size)
}

/// Writes a size.
pub(super) fn size(bytes: u64) -> String {
    match bytes {
        0..1000 => format!("{bytes} B"),
        1000..1_000_000 => format!("{:.1} kB", bytes as f64 / 1e3),
        _ => format!("{:.1} MB", bytes as f64 / 1e6),
    }
}

/// Writes a count with its noun.
pub(super) fn count(number: u64, one: &str, many: &str) -> String {
    format!(
        "{} {}",
        grouped(number),
        if number == 1 { one } else { many }
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invisible_characters_are_written_out() {
        assert_eq!(
            show_invisible("a\u{202e}b\u{0}c\u{200b}d\u{e0041}"),
            "a⟨U+202E⟩b⟨U+0000⟩c⟨U+200B⟩d⟨U+E0041⟩"
        );
        assert_eq!(
            show_invisible("zwei\nZeilen\tund ü 漢字"),
            "zwei\nZeilen\tund ü 漢字"
        );
        assert_eq!(
            VisibleText("<b>&\"\u{2066}").render().into_string(),
            "&lt;b&gt;&amp;&quot;⟨U+2066⟩"
        );
    }

    #[test]
    fn numbers_are_short() {
        assert_eq!(
            [0, 42, 314, 6849, 31_400].map(estimate),
            ["0", "≈ 42", "≈ 310", "≈ 6,800", "≈ 31,000"]
        );
        assert_eq!(
            [0.31, 212.4, 3100.0, 125_000.0].map(duration),
            ["0.3 ms", "212 ms", "3.1 s", "2 m 5 s"]
        );
        assert_eq!([412, 2140].map(size), ["412 B", "2.1 kB"]);
        assert_eq!(seconds(90_000), "1 d 1 h");
        assert_eq!(count(1, "tool", "tools"), "1 tool");
        assert_eq!(count(1200, "tool", "tools"), "1,200 tools");
    }
}
