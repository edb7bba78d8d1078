//! A question to the user, on a terminal: the fields of a form one by one, or a page to open.
//!
//! Invariant: nothing is sent before the user said yes to the whole, and whatever the server wrote is shown without
//! control characters.

mod field;

use std::io::{BufRead, Write};

use crate::json::{Object, Raw, Text};
use crate::model::{AskKind, Question};

use super::output::clean;
use super::schema;

use field::Field;

/// Why there is no answer.
#[derive(Debug, PartialEq)]
enum Stop {
    /// The user said no.
    Decline,
    /// The input ended, or the terminal is gone.
    Cancel,
}

impl From<std::io::Error> for Stop {
    fn from(_: std::io::Error) -> Self {
        Stop::Cancel
    }
}

/// An answer without contents.
pub(super) fn answer(action: &'static str) -> Object {
    Object::new().with("action", Raw::string(action))
}

/// Asks the user; gives the result for the server.
pub(super) fn ask(input: &mut impl BufRead, output: &mut impl Write, server: &str, question: &Question) -> Object {
    let mut terminal = Terminal { input, output };
    let asked = match question.kind {
        AskKind::ElicitUrl => terminal.page(server, &question.params).map(|()| answer("accept")),
        _ => terminal.form(server, &question.params).map(|form| answer("accept").with("content", form.raw())),
    };
    match asked {
        Ok(accepted) => accepted,
        Err(Stop::Decline) => answer("decline"),
        Err(Stop::Cancel) => answer("cancel"),
    }
}

struct Terminal<'a, I, O> {
    input: &'a mut I,
    output: &'a mut O,
}

impl<I: BufRead, O: Write> Terminal<'_, I, O> {
    fn form(&mut self, server: &str, params: &Object) -> Result<Object, Stop> {
        self.open(server, params)?;
        let schema = params.object("requestedSchema").unwrap_or_default();
        let required = schema::texts(schema.get("required"));
        let mut form = Object::new();
        for (name, raw) in schema.object("properties").unwrap_or_default().iter() {
            let field = Field::read(name, &raw.as_object().unwrap_or_default(), required.contains(name));
            if let Some(value) = self.field(&field)? {
                form.set(name.clone(), value);
            }
        }
        match self.yes("Send this?", true)? {
            true => Ok(form),
            false => Err(Stop::Decline),
        }
    }

    fn page(&mut self, server: &str, params: &Object) -> Result<(), Stop> {
        self.open(server, params)?;
        let text = params.text("url").unwrap_or_else(|| Text::literal(""));
        // The parsed form shows look-alike letters of a host as what they are.
        let url = url::Url::parse(&text).map_err(|_| Stop::Cancel)?;
        writeln!(self.output, "  {url}")?;
        match self.yes("Will you open this page, on your own?", false)? {
            true => Ok(()),
            false => Err(Stop::Decline),
        }
    }

    fn open(&mut self, server: &str, params: &Object) -> Result<(), Stop> {
        let message = params.text("message").unwrap_or_else(|| Text::literal(""));
        Ok(writeln!(self.output, "{} asks (Ctrl-D cancels): {}", clean(server), clean(&message))?)
    }

    /// Asks until the answer fits; nothing for a field that may stay empty.
    fn field(&mut self, field: &Field) -> Result<Option<Raw>, Stop> {
        write!(self.output, "{}", clean(&field.intro()))?;
        loop {
            let line = self.line(&field.prompt())?;
            match field.parse(&line) {
                Ok(value) => return Ok(value),
                Err(wrong) => writeln!(self.output, "  {}", clean(&wrong))?,
            }
        }
    }

    fn yes(&mut self, question: &str, default: bool) -> Result<bool, Stop> {
        let choice = if default { "[Y/n]" } else { "[y/N]" };
        loop {
            let line = self.line(&format!("{question} {choice} "))?;
            match line.to_lowercase().as_str() {
                "" => return Ok(default),
                "y" | "yes" => return Ok(true),
                "n" | "no" => return Ok(false),
                _ => {}
            }
        }
    }

    fn line(&mut self, prompt: &str) -> Result<String, Stop> {
        write!(self.output, "{}", clean(prompt))?;
        self.output.flush()?;
        let mut line = String::new();
        if self.input.read_line(&mut line)? == 0 {
            writeln!(self.output)?;
            return Err(Stop::Cancel);
        }
        Ok(line.trim().to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(kind: AskKind, params: &'static str, typed: &str) -> (String, String) {
        let params = Raw::literal(params).as_object().unwrap();
        let question = Question { kind, method: Text::literal("elicitation/create"), params };
        let mut shown = Vec::new();
        let answer = ask(&mut typed.as_bytes(), &mut shown, "shop", &question);
        (String::from_utf8(answer.bytes().to_vec()).unwrap(), String::from_utf8(shown).unwrap())
    }

    const FORM: &str = r#"{"message":"Who\u001b are you?","requestedSchema":{"type":"object","properties":{
        "name":{"type":"string","title":"Your name","description":"In full","minLength":2},
        "age":{"type":"integer","minimum":0,"maximum":150},
        "size":{"type":"string","enum":["s","m"],"enumNames":["Small","Medium"],"default":"m"},
        "news":{"type":"boolean","default":false}},"required":["name"]}}"#;

    #[test]
    fn fields_are_asked_one_by_one_until_they_fit() {
        let (answer, shown) = asked(AskKind::ElicitForm, FORM, "\nA\nAda\nold\n-1\n36\n1\ny\n\n");
        assert_eq!(answer, r#"{"action":"accept","content":{"name":"Ada","age":36,"size":"s","news":true}}"#);
        assert!(shown.starts_with("shop asks (Ctrl-D cancels): Who\u{fffd} are you?\n"), "{shown}");
        assert!(shown.contains("Your name") && shown.contains("In full") && shown.contains("1) Small"), "{shown}");
    }

    #[test]
    fn empty_lines_take_defaults_and_leave_out_the_rest() {
        let (answer, _) = asked(AskKind::ElicitForm, FORM, "Ada\n\n\n\nyes\n");
        assert_eq!(answer, r#"{"action":"accept","content":{"name":"Ada","size":"m","news":false}}"#);
    }

    #[test]
    fn no_is_a_refusal_and_the_end_of_input_is_none() {
        assert_eq!(asked(AskKind::ElicitForm, FORM, "Ada\n\n\n\nn\n").0, r#"{"action":"decline"}"#);
        assert_eq!(asked(AskKind::ElicitForm, FORM, "Ada\n").0, r#"{"action":"cancel"}"#);
        assert_eq!(asked(AskKind::ElicitForm, "{}", "\n").0, r#"{"action":"accept","content":{}}"#);
    }

    #[test]
    fn a_page_is_shown_and_opened_by_nobody_else() {
        const PAGE: &str = r#"{"mode":"url","message":"Sign in","url":"https://exämple.com/a?b=c"}"#;
        let (answer, shown) = asked(AskKind::ElicitUrl, PAGE, "y\n");
        assert_eq!(answer, r#"{"action":"accept"}"#);
        assert!(shown.contains("  https://xn--exmple-cua.com/a?b=c\n"), "{shown}");
        assert_eq!(asked(AskKind::ElicitUrl, PAGE, "\n").0, r#"{"action":"decline"}"#);
        assert_eq!(asked(AskKind::ElicitUrl, PAGE, "").0, r#"{"action":"cancel"}"#);
        assert_eq!(asked(AskKind::ElicitUrl, r#"{"url":"no"}"#, "y\n").0, r#"{"action":"cancel"}"#);
    }
}
