//! Input request on a terminal: the fields of a form one by one, or a page to open. Owns the
//! dialogue with the user.
//!
//! Does not open pages. Invariant: nothing is sent before the user agreed to the whole. A server's
//! text is shown without control characters.

mod field;

use std::io::{BufRead, Write};

use moongate_form::{FieldKind, read_form};
use moongate_jsonrpc::json::{ByteString, JsonObject, RawJson};
use moongate_model::{ElicitationAction, InputKind, InputRequest, ShownQuestion};

use super::output::without_control_characters;

use field::FieldPrompt;

/// End of a form without a response.
#[derive(Debug, PartialEq)]
enum FormAborted {
    /// User declined.
    Decline,
    /// Input ended, or the terminal was closed.
    Cancel,
}

impl From<std::io::Error> for FormAborted {
    fn from(_: std::io::Error) -> Self {
        FormAborted::Cancel
    }
}

/// Asks the user. Returns the result for the server.
pub(super) fn prompt_user(
    input: &mut impl BufRead,
    output: &mut impl Write,
    server: &str,
    question: &InputRequest,
) -> JsonObject {
    let mut terminal = FormTerminal { input, output };
    let shown = question.shown();
    let asked = match question.kind {
        InputKind::ElicitUrl => terminal.page(server, &shown).map(|()| None),
        _ => terminal
            .form(server, &shown)
            .map(|form| Some(form.to_raw())),
    };
    match asked {
        Ok(content) => ElicitationAction::Accept.result(content),
        Err(FormAborted::Decline) => ElicitationAction::Decline.result(None),
        Err(FormAborted::Cancel) => ElicitationAction::Cancel.result(None),
    }
}

struct FormTerminal<'a, I, O> {
    input: &'a mut I,
    output: &'a mut O,
}

impl<I: BufRead, O: Write> FormTerminal<'_, I, O> {
    fn form(&mut self, server: &str, asked: &ShownQuestion) -> Result<JsonObject, FormAborted> {
        self.open(server, &asked.message)?;
        let mut form = JsonObject::new();
        if let FieldKind::Object { fields, .. } = read_form(&asked.requested_schema).kind {
            for field in fields {
                let name = ByteString::from(&*field.name);
                if let Some(value) = self.field(&FieldPrompt::new(field))? {
                    form.set(name, value);
                }
            }
        }
        match self.confirm("Send this?", true)? {
            true => Ok(form),
            false => Err(FormAborted::Decline),
        }
    }

    fn page(&mut self, server: &str, asked: &ShownQuestion) -> Result<(), FormAborted> {
        self.open(server, &asked.message)?;
        // The parsed URL shows look-alike letters of a host in punycode.
        let url = url::Url::parse(&asked.url).map_err(|_| FormAborted::Cancel)?;
        // 2025-11-25/client/elicitation.mdx: clients "MUST show the full URL to the user for
        // examination before consent", and "MUST NOT open the URL without explicit consent from the
        // user".
        writeln!(self.output, "  {url}")?;
        // No page is opened by default: the server chose the URL.
        match self.confirm("Will you open this page yourself?", false)? {
            true => Ok(()),
            false => Err(FormAborted::Decline),
        }
    }

    fn open(&mut self, server: &str, message: &str) -> Result<(), FormAborted> {
        Ok(writeln!(
            self.output,
            "{} asks (Ctrl-D cancels): {}",
            without_control_characters(server),
            without_control_characters(message)
        )?)
    }

    /// Asks until the answer fits. Returns `None` for a field that stays empty.
    fn field(&mut self, field: &FieldPrompt) -> Result<Option<RawJson>, FormAborted> {
        write!(
            self.output,
            "{}",
            without_control_characters(&field.intro())
        )?;
        loop {
            let line = self.line(&field.prompt())?;
            match field.parse(&line) {
                Ok(value) => return Ok(value),
                Err(wrong) => writeln!(self.output, "  {}", without_control_characters(&wrong))?,
            }
        }
    }

    fn confirm(&mut self, question: &str, default: bool) -> Result<bool, FormAborted> {
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

    fn line(&mut self, prompt: &str) -> Result<String, FormAborted> {
        write!(self.output, "{}", without_control_characters(prompt))?;
        self.output.flush()?;
        let mut line = String::new();
        // End of input, such as Ctrl-D.
        if self.input.read_line(&mut line)? == 0 {
            writeln!(self.output)?;
            return Err(FormAborted::Cancel);
        }
        Ok(line.trim().to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(kind: InputKind, params: &'static str, typed: &str) -> (String, String) {
        let params = RawJson::literal(params).as_object().unwrap();
        let question = InputRequest {
            kind,
            method: ByteString::literal("elicitation/create"),
            params,
            progress: None,
        };
        let mut shown = Vec::new();
        let answer = prompt_user(&mut typed.as_bytes(), &mut shown, "shop", &question);
        (
            String::from_utf8(answer.bytes().to_vec()).unwrap(),
            String::from_utf8(shown).unwrap(),
        )
    }

    const FORM: &str = r#"{"message":"Who\u001b are you?","requestedSchema":{"type":"object","properties":{
        "name":{"type":"string","title":"Your name","description":"In full","minLength":2},
        "age":{"type":"integer","minimum":0,"maximum":150},
        "size":{"type":"string","enum":["s","m"],"enumNames":["Small","Medium"],"default":"m"},
        "news":{"type":"boolean","default":false}},"required":["name"]}}"#;

    #[test]
    fn fields_are_asked_one_by_one_until_they_fit() {
        let (answer, shown) = asked(
            InputKind::ElicitForm,
            FORM,
            "\nA\nAda\nold\n-1\n36\n1\ny\n\n",
        );
        assert_eq!(
            answer,
            r#"{"action":"accept","content":{"name":"Ada","age":36,"size":"s","news":true}}"#
        );
        assert!(
            shown.starts_with("shop asks (Ctrl-D cancels): Who\u{fffd} are you?\n"),
            "{shown}"
        );
        assert!(
            shown.contains("Your name") && shown.contains("In full") && shown.contains("1) Small"),
            "{shown}"
        );
    }

    #[test]
    fn empty_lines_take_defaults_and_leave_out_the_rest() {
        let (answer, _) = asked(InputKind::ElicitForm, FORM, "Ada\n\n\n\nyes\n");
        assert_eq!(
            answer,
            r#"{"action":"accept","content":{"name":"Ada","size":"m","news":false}}"#
        );
    }

    #[test]
    fn no_is_a_refusal_and_the_end_of_input_is_none() {
        assert_eq!(
            asked(InputKind::ElicitForm, FORM, "Ada\n\n\n\nn\n").0,
            r#"{"action":"decline"}"#
        );
        assert_eq!(
            asked(InputKind::ElicitForm, FORM, "Ada\n").0,
            r#"{"action":"cancel"}"#
        );
        assert_eq!(
            asked(InputKind::ElicitForm, "{}", "\n").0,
            r#"{"action":"accept","content":{}}"#
        );
    }

    #[test]
    fn a_page_is_shown_and_opened_by_nobody_else() {
        const PAGE: &str =
            r#"{"mode":"url","message":"Sign in","url":"https://exämple.com/a?b=c"}"#;
        let (answer, shown) = asked(InputKind::ElicitUrl, PAGE, "y\n");
        assert_eq!(answer, r#"{"action":"accept"}"#);
        assert!(
            shown.contains("  https://xn--exmple-cua.com/a?b=c\n"),
            "{shown}"
        );
        assert_eq!(
            asked(InputKind::ElicitUrl, PAGE, "\n").0,
            r#"{"action":"decline"}"#
        );
        assert_eq!(
            asked(InputKind::ElicitUrl, PAGE, "").0,
            r#"{"action":"cancel"}"#
        );
        assert_eq!(
            asked(InputKind::ElicitUrl, r#"{"url":"no"}"#, "y\n").0,
            r#"{"action":"cancel"}"#
        );
    }
}
