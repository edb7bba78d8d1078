//! Static files of the page: styles, icon and scripts. Owns the table of files and their cache
//! tags.
//!
//! Does not serve them. Invariant: browsers get each file line by line as it is in the tree,
//! without comments and indentation.

/// File of the page.
pub struct PageAsset {
    path: &'static str,
    /// Media type.
    pub kind: &'static str,
    text: &'static str,
    hash: u64,
}

impl PageAsset {
    const fn new(path: &'static str, kind: &'static str, text: &'static str) -> Self {
        PageAsset {
            path,
            kind,
            text,
            hash: hash(text.as_bytes()),
        }
    }

    /// Returns the tag of the contents.
    pub fn tag(&self) -> String {
        format!("\"{:016x}\"", self.hash)
    }

    /// Returns what is sent: a fifth of the text is for readers of the tree. Each line keeps its
    /// number.
    pub fn sent(&self) -> String {
        let mut sent = String::with_capacity(self.text.len());
        for line in self.text.lines().map(str::trim_start) {
            let is_comment =
                line.starts_with("//") || (line.starts_with("/*") && line.ends_with("*/"));
            sent.push_str(if is_comment { "" } else { line });
            sent.push('\n');
        }
        sent
    }
}

/// Hashes bytes when the program compiles (FNV-1a). A change of one byte changes the tag.
const fn hash(bytes: &[u8]) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    let mut at = 0;
    while at < bytes.len() {
        hash = (hash ^ bytes[at] as u64).wrapping_mul(0x0000_0100_0000_01b3);
        at += 1;
    }
    hash
}

macro_rules! script {
    ($name:literal) => {
        PageAsset::new(
            concat!("js/", $name),
            "text/javascript; charset=utf-8",
            include_str!(concat!("assets/js/", $name)),
        )
    };
}

static ASSETS: [PageAsset; 19] = [
    PageAsset::new(
        "app.css",
        "text/css; charset=utf-8",
        include_str!("assets/app.css"),
    ),
    PageAsset::new("icon.svg", "image/svg+xml", include_str!("assets/icon.svg")),
    script!("theme.js"),
    script!("page.js"),
    script!("live.js"),
    script!("morph.js"),
    script!("dom.js"),
    script!("requests.js"),
    script!("forms.js"),
    script!("navigate.js"),
    script!("actions.js"),
    script!("keyboard.js"),
    script!("form.js"),
    script!("fill.js"),
    script!("result.js"),
    script!("arguments.js"),
    script!("try.js"),
    script!("try-view.js"),
    script!("signin.js"),
];

/// Finds a file by its path below `/assets/`.
pub fn find_asset(path: &str) -> Option<&'static PageAsset> {
    ASSETS.iter().find(|asset| asset.path == path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count_files(folder: &std::path::Path) -> usize {
        let files = std::fs::read_dir(folder)
            .unwrap()
            .map(|file| file.unwrap().path());
        files.filter(|path| path.is_file()).count()
    }

    #[test]
    fn each_file_in_the_tree_is_served_and_the_page_stays_light() {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/assets");
        assert_eq!(
            count_files(&folder) + count_files(&folder.join("js")),
            ASSETS.len()
        );
        assert!(ASSETS.iter().map(|asset| asset.sent().len()).sum::<usize>() <= 80_000);
        for PageAsset { path, text, .. } in &ASSETS {
            let lines = text.lines().count();
            assert!(
                lines <= 200 || *path == "app.css",
                "{path} has {lines} lines"
            );
            assert!(
                !text.contains("eval(") && !text.contains("://") || *path == "icon.svg",
                "{path}"
            );
            // The indent of a line would be a part of such a text.
            let spans_lines = text.lines().any(|line| line.matches('`').count() % 2 == 1);
            assert!(
                !spans_lines,
                "{path} has a template literal over several lines"
            );
        }
    }

    #[test]
    fn comments_and_indents_are_not_sent() {
        let text = "// Why.\n  a();\n  /** @param {any} x */\n  const b = (/** @type {any} */ x) \
                    => `  ${x}`; // tail\n";
        let sent = PageAsset::new("a.js", "text/javascript", text).sent();
        assert_eq!(
            sent,
            "\na();\n\nconst b = (/** @type {any} */ x) => `  ${x}`; // tail\n"
        );
    }
}
