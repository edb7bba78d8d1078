//! Browser of the user.
//!
//! Owns the system's command that opens an address. Does not choose the address. Invariant: the
//! address is one argument that no shell reads, and leads to a web page.

use std::io;
use std::process::Stdio;
use std::time::Duration;

use tokio::process::Command;

/// Longest time that the system's command is waited for. Some wait for the browser itself.
const OPENING_TIMEOUT: Duration = Duration::from_secs(10);

/// Opens a web page in the user's browser.
///
/// Fails with an address other than `http://` and `https://`, which could start any program.
pub async fn open(url: &str) -> io::Result<()> {
    let (program, arguments) = command_of(std::env::consts::OS, url)?;
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()?;
    let Ok(ended) = tokio::time::timeout(OPENING_TIMEOUT, child.wait()).await else {
        // What still runs is the browser itself.
        return Ok(());
    };
    if ended?.success() {
        Ok(())
    } else {
        Err(io::Error::other(format!("{program} failed")))
    }
}

/// Returns the program of a system that opens a web page, and its arguments.
fn command_of<'a>(system: &str, url: &'a str) -> io::Result<(&'static str, Vec<&'a str>)> {
    if !is_web_page(url) {
        let message = "only http:// and https:// addresses are opened";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
    }
    Ok(match system {
        // `cmd /C start` would read `&` in the address as the start of another command.
        "windows" => ("rundll32", vec!["url.dll,FileProtocolHandler", url]),
        "macos" => ("open", vec![url]),
        _ => ("xdg-open", vec![url]),
    })
}

/// True for an address of a web page without characters that no URL has.
fn is_web_page(url: &str) -> bool {
    let Some((scheme, rest)) = url.split_once("://") else {
        return false;
    };
    let is_plain = url
        .bytes()
        .all(|byte| byte.is_ascii_graphic() && !matches!(byte, b'"' | b'<' | b'>' | b'\\'));
    is_plain
        && !rest.is_empty()
        && ["http", "https"]
            .iter()
            .any(|web| scheme.eq_ignore_ascii_case(web))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn an_address_is_one_argument_and_no_shell_reads_it() {
        let url = "http://127.0.0.1:9090/?a=1&calc.exe";
        for (system, program) in [
            ("windows", "rundll32"),
            ("macos", "open"),
            ("linux", "xdg-open"),
            ("freebsd", "xdg-open"),
        ] {
            let (started, arguments) = command_of(system, url).unwrap();
            assert_eq!(started, program);
            assert_eq!(arguments.last(), Some(&url), "{system}");
        }
    }

    #[tokio::test]
    async fn only_web_pages_are_opened() {
        for url in [
            "",
            "calc.exe",
            "file:///etc/passwd",
            "ms-settings://x",
            "javascript:alert(1)",
            "-x http://a",
            "http://",
            "http://a/ b",
            "http://a/\"b",
            "http://a\\b",
        ] {
            let error = open(url).await.unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{url}");
        }
        assert!(is_web_page("HTTPS://gate.example/a?b=c&d#e"));
    }
}
