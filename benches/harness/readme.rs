//! The tables in `benches/README.md`: each bench has the text between two marks.

use anyhow::{Context, Result};

const PATH: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/benches/README.md");

/// The whole page.
pub(crate) fn read() -> Result<String> {
    std::fs::read_to_string(PATH).with_context(|| format!("cannot read {PATH}"))
}

/// Puts `text` between the marks of `section`.
pub(crate) fn write(section: &str, text: &str) -> Result<()> {
    let readme = read()?;
    let (before, _, after) = split(&readme, section)?;
    let readme = format!("{before}\n\n{}\n\n{after}", text.trim());
    std::fs::write(PATH, readme).with_context(|| format!("cannot write {PATH}"))
}

/// The text before the marks of `section`, between them and after them; the marks belong to the
/// outer two.
pub(crate) fn split<'a>(readme: &'a str, section: &str) -> Result<(&'a str, &'a str, &'a str)> {
    let begin = format!("<!-- {section}: begin -->");
    let end = format!("<!-- {section}: end -->");
    let lacks = |mark: &str| format!("{PATH} lacks {mark}");
    let from = readme.find(&begin).with_context(|| lacks(&begin))? + begin.len();
    let to = readme.find(&end).with_context(|| lacks(&end))?;
    let between = readme
        .get(from..to)
        .with_context(|| format!("{PATH} has {end} first"))?;
    Ok((&readme[..from], between, &readme[to..]))
}

/// `2026-11-22 on 2 × Intel(R) Xeon(R) Processor, Linux 6.18.44`: today, on this machine.
pub(crate) fn date_and_machine() -> String {
    let read = |path| std::fs::read_to_string(path).unwrap_or_default();
    let cpus = read("/proc/cpuinfo");
    let model = cpus
        .lines()
        .find_map(|line| line.strip_prefix("model name"))
        .unwrap_or("unknown");
    let model = model.trim_start_matches([' ', '\t', ':']);
    let count = std::thread::available_parallelism().map_or(0, usize::from);
    let kernel = read("/proc/sys/kernel/osrelease");
    let now = jiff::Timestamp::now().to_string();
    let date = now.split('T').next().unwrap_or_default();
    format!("{date} on {count} × {model}, Linux {}", kernel.trim())
}
