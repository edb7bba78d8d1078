//! Codes of `moongate doctor`, each declared once.
//!
//! Owns code, severity, title, reason and remedy. Does not look for anything (the files next to
//! it). Invariant: the page of codes has exactly these, since it is made of them.

use moongate_api::FindingSeverity;

/// Facts about one code.
pub(crate) struct CodeInfo {
    /// Code, as people search for it.
    pub(crate) id: &'static str,
    pub(crate) severity: FindingSeverity,
    pub(crate) title: &'static str,
    /// Reason why it matters.
    pub(crate) why: &'static str,
    /// General remedy. A finding names the exact one.
    pub(crate) fix: &'static str,
}

macro_rules! codes {
    ($($name:ident $id:literal $severity:ident $title:literal $why:literal $fix:literal)*) => {
        /// Code of a finding.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub(crate) enum DoctorCode { $(#[doc = $title] $name),* }

        impl DoctorCode {
            /// List of every code.
            pub(crate) const ALL: &[DoctorCode] = &[$(DoctorCode::$name),*];

            /// Finds a code by its name.
            pub(crate) fn of_id(id: &str) -> Option<DoctorCode> {
                Self::ALL.iter().copied().find(|code| code.info().id == id)
            }

            /// Returns the facts about the code.
            pub(crate) fn info(self) -> CodeInfo {
                match self {
                    $(DoctorCode::$name => CodeInfo {
                        id: $id, severity: FindingSeverity::$severity, title: $title, why: $why,
                            fix: $fix,
                    }),*
                }
            }
        }
    };
}

// Findings of one severity come in this order.
codes! {
    NoConfig "MG-C01" Warning "No config was found"
        "Moongate then serves a demo instead of your servers."
        "`moongate add NAME URL` creates one; `--config PATH` names another."
    ConfigSyntax "MG-C02" Broken "A config file does not parse"
        "The gateway does not start, and a reload changes nothing."
        "Correct the line that is shown."
    UnknownKey "MG-C03" Broken "A key is unknown"
        "A misspelled key has no effect, so Moongate refuses it."
        "Use the suggested name; `moongate schema` prints all keys."
    UnsetReference "MG-C04" Broken "A variable or a file that the config refers to is missing"
        "The server that needs it cannot start."
        "Set the variable where the gateway starts, or give a default: `${NAME:-value}`."
    LiteralSecret "MG-C05" Warning "The config contains a secret"
        "Every copy of the file, such as a commit or a backup, contains it."
        "Write `${NAME}` or `${file:/path}`, as `moongate import --env-file FILE` does. For a key, \
         write its `hash`."
    OpenFile "MG-C06" Warning "Others can read or write the config"
        "Whoever can read it learns its secrets, and whoever can write it can start programs as \
         you."
        "`chmod 600 FILE`; `moongate doctor --fix` does it."
    UnpinnedPackage "MG-C07" Warning "A package has no version"
        "Each start runs the newest version, even a hijacked one."
        "Name the version that you reviewed. For packages from `moongate popular`, `moongate \
         doctor --fix` does it."
    ArchivedPackage "MG-C08" Warning "A package is archived"
        "Nobody fixes its security holes anymore."
        "Use its successor."
    SameServer "MG-C09" Warning "Two servers are the same"
        "Clients see each of its tools twice, and the server runs twice."
        "`moongate remove NAME` removes one of them."
    NeedsRestart "MG-C11" Warning "A changed setting needs a restart"
        "The running gateway keeps the old value."
        "Restart the gateway."
    OtherConfig "MG-C12" Warning "The running gateway has another config"
        "Findings about this config and about that gateway are mixed, so they may contradict each \
         other."
        "Pass the running gateway's config with `--config PATH`."
    InvalidConfig "MG-C13" Broken "A config value cannot be used"
        "The gateway does not start, or it runs without the server that the value belongs to."
        "Correct the line that is shown."
    DoubtfulSetting "MG-C14" Warning "A setting is probably not what you meant"
        "Moongate runs with it, but a client or a server may go without something."
        "Correct the line that is shown."
    UnmatchedRule "MG-C15" Warning "A rule matches nothing"
        "A misspelled pattern denies or allows nothing, although somebody relies on it."
        "Correct the pattern; `moongate tools --server NAME` shows the server's own names."
    PortTaken "MG-L01" Broken "Another program uses the port"
        "The gateway cannot listen there."
        "Stop that program, or set `gateway.listen` to another port."
    AdminUnreachable "MG-L02" Broken "The admin listener does not answer"
        "`moongate status`, `reload` and the page need it."
        "Set `gateway.admin`, or pass `--admin` and `--admin-key`."
    OpenWithoutKeys "MG-L03" Broken "Other machines can connect without a key"
        "Anybody on the network could call every tool, so Moongate refuses to start."
        "Add a key with `moongate key new NAME --write`, or listen on 127.0.0.1."
    HostNotAllowed "MG-L05" Warning "Clients on other machines cannot use a host name"
        "A request with an unknown `Host` is refused, so that no web page can reach the gateway."
        "Add the name to `gateway.allowed_hosts`, or set `gateway.public_url`."
    CommandNotFound "MG-E01" Broken "A server's program is missing"
        "The server cannot start. The gateway's PATH may differ from your shell's."
        "Install it, or set `command` to its full path."
    ContainerLocalhost "MG-E04" Warning "A server is on localhost, but this is a container"
        "In a container, localhost is the container itself."
        "Use `host.docker.internal`, or the name of the other container."
    StateNotWritable "MG-E05" Broken "The state cannot be written"
        "Sessions and lists are lost at each restart."
        "Correct the directory's owner, or set `gateway.state_dir`."
    Unreachable "MG-S01" Broken "A server cannot be reached"
        "Its tools fail or are missing."
        "Start the server, or correct `servers.NAME.url`. `moongate tools --server NAME` tries it \
         directly."
    LoginNeeded "MG-S02" Broken "A server needs a login"
        "It answers only requests with credentials. Moongate has none for it, or the login ended."
        "Run `moongate login NAME`, or add a header: `headers = { Authorization = \"Bearer \
         ${TOKEN}\" }`."
    LoginRefused "MG-S03" Broken "A server refuses the credentials"
        "The token is wrong or expired, or it lacks a permission."
        "Create a new token, and check the header in the config."
    ProgramEnds "MG-S04" Broken "A server's program does not stay up"
        "Its tools fail or are missing."
        "Correct what its last lines report, then run `moongate restart NAME`."
    SlowStart "MG-S05" Broken "A server does not answer the handshake"
        "It starts slowly, or it isn't an MCP server: a program that waits for other input never \
         answers."
        "Correct its `command` and `args`, or give it more time: `start_timeout = \"120s\"`."
    ItemsLeftOut "MG-S07" Warning "Items of a server are left out"
        "Clients could not use them, so they are not listed."
        "Report it to the server's author; the reason says what is wrong."
    ItemsChanged "MG-S08" Warning "Items of a server have another name or definition"
        "Not every client accepts every name and schema, so Moongate lists these items in a form \
         that all clients accept."
        "Use the listed names, or choose others with `servers.NAME.tools.rename`."
    LoginProblem "MG-S09" Warning "A login cannot be read, renewed or stored"
        "Calls fail once its token ends, or the login is lost with the gateway."
        "Do what the message says; `moongate login NAME` replaces a login."
    CompanyLogin "MG-S10" Warning "The company's login has a problem"
        "People may be unable to log in, or a role may match nobody."
        "Correct `auth.oauth` or `auth.roles`; `moongate logins` lists who is logged in."
    ClientElsewhere "MG-K01" Warning "A client's entry points elsewhere"
        "The client does not use this gateway."
        "`moongate connect CLIENT --write --force` replaces the entry."
    ClientWithoutKey "MG-K02" Broken "A client's entry has no key"
        "The config has keys, so the gateway refuses a client without one."
        "`moongate connect CLIENT --write --key NAME` makes a key and gives it to the client."
    ClientRepeats "MG-K03" Warning "A client also has the gateway's servers"
        "It starts them in addition to the gateway, so it sees their tools twice once it is \
         connected."
        "`moongate import CLIENT --take-over` replaces them with one entry for the gateway."
    ClientShape "MG-K04" Warning "A client cannot read its entry"
        "Clients spell the same settings differently, and ignore what they do not know."
        "`moongate connect CLIENT --write` writes it in the form that the client reads."
    ClientFactsOld "MG-K07" Warning "Moongate's facts about a client are old"
        "Clients change their files. An entry that was right may no longer be read."
        "Update Moongate, and check the client's documentation."
    ClientUnreadable "MG-K08" Warning "A client's file does not parse"
        "The client ignores it or does not start, and `moongate connect` cannot write its entry."
        "Correct the file, as the message says."
    ManyTools "MG-K09" Warning "A client accepts fewer tools than the gateway has"
        "The client leaves out the rest, or refuses all of them."
        "Use a view with fewer tools (`[views.NAME]`), `moongate disable SERVER TOOL`, or search \
         mode."
    LargeContext "MG-X01" Warning "The tools use a lot of context"
        "Every conversation starts with all tool definitions, and models choose less well among \
         many tools."
        "`moongate disable SERVER TOOL` switches tools off. Search mode (`discovery = \"search\"`) \
         lists a few tools."
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::path::Path;

    use super::*;

    /// Writes the page of the codes.
    fn page() -> String {
        let mut page =
            "# `moongate doctor` codes\n\n[`moongate doctor`](commands.md#doctor) prints only \
             what is wrong. It exits 1 if something is broken.\nThis page is generated \
             from the declaration of the codes.\n"
                .to_owned();
        for code in DoctorCode::ALL {
            let CodeInfo {
                id,
                severity,
                title,
                why,
                fix,
            } = code.info();
            page += &format!(
                "\n## {id}\n\n{title} ({}).\n{why}\n\nFix: {fix}\n",
                severity.name()
            );
        }
        page
    }

    #[test]
    fn the_page_of_codes_is_made_of_the_declaration() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/reference/codes.md");
        if std::env::var_os("UPDATE_EXPECTED").is_some() {
            std::fs::write(&path, page()).unwrap();
        }
        let written = std::fs::read_to_string(&path).unwrap_or_default();
        assert_eq!(page(), written, "UPDATE_EXPECTED=1 rewrites the page");
        let mut ids: Vec<&str> = DoctorCode::ALL.iter().map(|code| code.info().id).collect();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(
            ids.len(),
            DoctorCode::ALL.len(),
            "each code stands for one thing"
        );
    }
}
