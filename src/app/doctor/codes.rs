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
        "Moongate then serves a demo, and none of your servers."
        "`moongate add NAME URL` begins one; `--config PATH` names another."
    ConfigSyntax "MG-C02" Broken "A config file does not parse"
        "The gateway does not start, and a reload changes nothing."
        "Correct the line that is shown."
    UnknownKey "MG-C03" Broken "A key is unknown"
        "A misspelled key has no effect, so Moongate refuses it."
        "Use the name that is suggested; `moongate schema` prints all keys."
    UnsetReference "MG-C04" Broken "A variable or a file that the config refers to is missing"
        "The server that needs it cannot start."
        "Set the variable where the gateway starts, or give a default: `${NAME:-value}`."
    LiteralSecret "MG-C05" Warning "A secret stands in the config"
        "Copies of the file, such as commits and backups, carry it along."
        "Write `${NAME}` or `${file:/path}`, as `moongate import --env-file FILE` does. A key is \
         written as its `hash`."
    OpenFile "MG-C06" Warning "Others can read or write the config"
        "A reader learns its secrets. A writer can start programs as you."
        "`chmod 600 FILE`; `moongate doctor --fix` does it."
    UnpinnedPackage "MG-C07" Warning "A package has no version"
        "Each start runs whatever version is newest, also a hijacked one."
        "Name the version that you looked at. For packages of `moongate popular`, `moongate doctor \
         --fix` \
         does it."
    ArchivedPackage "MG-C08" Warning "A package is archived"
        "Nobody repairs its security holes any more."
        "Use its successor."
    SameServer "MG-C09" Warning "Two servers are the same"
        "Clients see each of its tools twice, and it runs twice."
        "`moongate remove NAME` takes one of them out."
    NeedsRestart "MG-C11" Warning "A changed setting needs a restart"
        "The running gateway goes on with the old value."
        "Restart the gateway."
    OtherConfig "MG-C12" Warning "The running gateway has another config"
        "Findings about this config and about that gateway come together, and do not fit."
        "`--config PATH` names the config of the running gateway."
    InvalidConfig "MG-C13" Broken "A value of the config cannot be used"
        "The gateway does not start with it, or runs without the server that it belongs to."
        "Correct the line that is shown."
    DoubtfulSetting "MG-C14" Warning "A setting is probably not as meant"
        "Moongate runs with it, and somebody or something goes without."
        "Correct the line that is shown."
    UnmatchedRule "MG-C15" Warning "A rule matches nothing"
        "A misspelled pattern denies or allows nothing, and somebody counts on it."
        "Correct the pattern; `moongate tools --server NAME` shows the server's own names."
    PortTaken "MG-L01" Broken "Another program has the port"
        "The gateway cannot listen there."
        "End that program, or set `gateway.listen` to another port."
    AdminUnreachable "MG-L02" Broken "The admin listener does not answer"
        "`moongate status`, `reload` and the page need it."
        "Set `gateway.admin`, or give `--admin` and `--admin-key`."
    OpenWithoutKeys "MG-L03" Broken "Other machines can connect without a key"
        "Anybody in the network could call every tool, so Moongate refuses to start."
        "`moongate key new NAME --write` adds a key; or listen on 127.0.0.1."
    HostNotAllowed "MG-L05" Warning "Clients of other machines cannot use a name"
        "A request with an unknown `Host` is refused, so that no web page can reach the gateway."
        "Add the name to `gateway.allowed_hosts`, or set `gateway.public_url`."
    CommandNotFound "MG-E01" Broken "The program of a server is not there"
        "The server cannot start. The gateway's PATH may differ from your shell's."
        "Install it, or write its whole path as `command`."
    ContainerLocalhost "MG-E04" Warning "A server is on localhost, and this is a container"
        "In a container, localhost is the container itself."
        "Use `host.docker.internal`, or the name of the other container."
    StateNotWritable "MG-E05" Broken "The state cannot be written"
        "Sessions and lists are lost with each restart."
        "Correct the owner of the directory, or set `gateway.state_dir`."
    Unreachable "MG-S01" Broken "A server cannot be reached"
        "Its tools fail or are missing."
        "Start the server, or correct `servers.NAME.url`. `moongate tools --server NAME` tries it \
         directly."
    LoginNeeded "MG-S02" Broken "A server wants a login"
        "It answers only with credentials, and the config has none for it."
        "Add a header: `headers = { Authorization = \"Bearer ${TOKEN}\" }`."
    LoginRefused "MG-S03" Broken "A server refuses the credentials"
        "The token is wrong, has expired, or lacks a right."
        "Make a new token, and check the header that the config sends."
    ProgramEnds "MG-S04" Broken "The program of a server does not stay up"
        "Its tools fail or are missing."
        "Correct what its last lines name, then `moongate restart NAME`."
    SlowStart "MG-S05" Broken "A server does not answer its handshake"
        "It starts slowly, or it is no MCP server: a program that waits for something else never \
         answers."
        "Correct its `command` and `args`, or give it time: `start_timeout = \"120s\"`."
    ItemsLeftOut "MG-S07" Warning "Items of a server are left out"
        "Clients could not use them, so they are not listed."
        "Report it to the server's author; the reason names what is wrong."
    ItemsChanged "MG-S08" Warning "Items of a server have another name or definition"
        "Clients do not take every name and every schema, so Moongate lists them in a form that \
         clients take."
        "Use the listed names; `servers.NAME.tools.rename` gives an item a name of your choice."
    ClientElsewhere "MG-K01" Warning "A client's entry leads elsewhere"
        "The client does not use this gateway."
        "`moongate connect CLIENT --write --force` replaces the entry."
    ClientWithoutKey "MG-K02" Broken "A client's entry has no key"
        "The config has keys, so the gateway refuses a client without one."
        "`moongate connect CLIENT --write --key NAME` makes a key, and gives it to the client."
    ClientRepeats "MG-K03" Warning "A client has our servers a second time"
        "It starts them beside the gateway, and sees their tools twice once it is connected."
        "`moongate import CLIENT --take-over` replaces them by one entry to the gateway."
    ClientShape "MG-K04" Warning "A client cannot read its entry"
        "Clients spell the same settings differently, and ignore what they do not know."
        "`moongate connect CLIENT --write` writes it as the client wants it."
    ClientFactsOld "MG-K07" Warning "What Moongate knows of a client is old"
        "Clients change their files. An entry that was right may no longer be read."
        "Update Moongate, and look into the client's own documentation."
    ClientUnreadable "MG-K08" Warning "A client's file does not parse"
        "The client ignores it or does not start, and `moongate connect` cannot write its entry."
        "Correct the file, as the message says."
    ManyTools "MG-K09" Warning "A client takes fewer tools than there are"
        "The client leaves out the rest, or refuses all of them."
        "A view with fewer tools (`[views.NAME]`), `moongate disable SERVER TOOL`, or search mode."
    LargeContext "MG-X01" Warning "The tools cost much context"
        "Every conversation starts with all definitions, and models choose worse among many tools."
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
            "# Codes of `moongate doctor`\n\n[`moongate doctor`](commands.md#doctor) prints only \
             what is wrong. \
                        A code that is broken makes it exit 1.\nThis page is made of the codes' \
                        declaration.\n"
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
        assert_eq!(page(), written, "UPDATE_EXPECTED=1 writes the page anew");
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
