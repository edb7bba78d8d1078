//! Last lines on stderr of a server's processes, for the status. Owns which process's lines are
//! shown. Does not read them (`transport::stderr`). Invariant: the lines of a dead process are
//! shown until its successor is ready.

use parking_lot::Mutex;

use moongate_transport::stderr::StderrTail;

/// Limit of lines that are shown.
const LINES_SHOWN: usize = 50;

/// Last lines of the processes of one server.
#[derive(Default)]
pub(crate) struct StderrHistory(Mutex<ProcessLines>);

#[derive(Default)]
struct ProcessLines {
    /// Lines of the previous process.
    previous: Vec<String>,
    current: StderrTail,
}

impl StderrHistory {
    /// Starts the lines of a process that is about to start.
    pub(crate) fn begin_process(&self) -> StderrTail {
        let mut lines = self.0.lock();
        let before = std::mem::take(&mut lines.current).lines();
        // A process without output explains less than the one before it.
        if !before.is_empty() {
            lines.previous = before;
        }
        lines.current.clone()
    }

    /// Shows the lines of a process that replaced another while both ran.
    pub(crate) fn switch_process(&self, current: StderrTail) {
        *self.0.lock() = ProcessLines {
            previous: Vec::new(),
            current,
        };
    }

    /// Forgets the lines of the previous process, because this one is ready.
    pub(crate) fn forget_previous(&self) {
        self.0.lock().previous = Vec::new();
    }

    /// Returns the lines, oldest first.
    pub(crate) fn lines(&self) -> Vec<String> {
        let lines = self.0.lock();
        let current = lines.current.lines();
        // Half of the room for each process, plus what the other does not need.
        let current_count = current.len().min(LINES_SHOWN / 2).max(
            LINES_SHOWN
                .saturating_sub(lines.previous.len())
                .min(current.len()),
        );
        let previous = lines.previous.iter().skip(
            lines
                .previous
                .len()
                .saturating_sub(LINES_SHOWN - current_count),
        );
        previous
            .chain(current.iter().skip(current.len() - current_count))
            .cloned()
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_have_room_until_the_new_one_is_ready() {
        for (previous, current, expected_dead, expected_live) in [
            (50, 50, 25, 25),
            (50, 3, 47, 3),
            (3, 50, 3, 47),
            (0, 50, 0, 50),
            (9, 9, 9, 9),
        ] {
            let words = StderrHistory::default();
            let first = words.begin_process();
            (0..previous).for_each(|n| first.push(format!("dead {n}")));
            let second = words.begin_process();
            (0..current).for_each(|n| second.push(format!("live {n}")));
            let lines = words.lines();
            let dead = lines.iter().filter(|line| line.starts_with("dead")).count();
            assert_eq!(dead, expected_dead, "{previous} and {current}");
            let live = lines.iter().filter(|line| line.starts_with("live")).count();
            assert_eq!(live, expected_live, "{previous} and {current}");
            assert_eq!(lines.last().unwrap(), &format!("live {}", current - 1));
            words.begin_process();
            words.forget_previous();
            assert!(words.lines().is_empty());
        }
    }
}
