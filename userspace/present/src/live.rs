//! What is written again and again over itself while something goes on.
//!
//! Model: a [`LiveLine`] is one line of a terminal. Each text takes the place of the one before, by one write, so that
//! threads do not mix. What is no terminal gets only whole lines. A line that
//! cannot be written is no reason to stop what it tells of.
//! How long it still takes the callers know, or [`Parts`] that take about equally long say it.
//! What is lacking: several lines, and a thread of its own. Crates for progress bars bring these, and write to a terminal
//! that they choose; a controller's line goes to a writer that never blocks.

use std::{
    borrow::Borrow,
    fmt,
    io::{self, IsTerminal, Write},
    sync::{Mutex, PoisonError},
    time::Instant,
};

use crate::span;

/// Cells of a [`bar`].
const CELLS: usize = 24;

/// What its reader wants to see.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shown {
    /// Nothing.
    Nothing,
    /// Whole lines.
    Lines,
    /// The live line, and whole lines.
    Live,
}

impl Shown {
    /// The live line on a terminal, lines elsewhere; nothing if `quiet`.
    #[must_use]
    pub fn on(stream: &impl IsTerminal, quiet: bool) -> Self {
        match (quiet, stream.is_terminal()) {
            (true, _) => Self::Nothing,
            (false, true) => Self::Live,
            (false, false) => Self::Lines,
        }
    }
}

/// One line of a terminal.
pub struct LiveLine {
    shown: Shown,
    state: Mutex<State>,
}

struct State {
    to: Box<dyn Write + Send>,
    /// Something stands in the line.
    written: bool,
}

impl LiveLine {
    /// A line on standard error; nothing if `quiet`.
    #[must_use]
    pub fn stderr(quiet: bool) -> Self {
        let to = io::stderr();
        let shown = Shown::on(&to, quiet);
        Self::new(to, shown)
    }

    /// A line that is written to `to`.
    pub fn new(to: impl Write + Send + 'static, shown: Shown) -> Self {
        let to = Box::new(to);
        let state = Mutex::new(State { to, written: false });
        Self { shown, state }
    }

    /// Whether texts take each other's places.
    #[must_use]
    pub fn is_live(&self) -> bool {
        self.shown == Shown::Live
    }

    /// Whether nothing is written at all.
    #[must_use]
    pub fn is_silent(&self) -> bool {
        self.shown == Shown::Nothing
    }

    /// Writes a whole line, in the place of the text that stands there.
    pub fn say(&self, text: impl fmt::Display) {
        if self.shown != Shown::Nothing {
            self.clear();
            self.write(&format!("{text}\n"), false);
        }
    }

    /// Puts a text in the place of the one that stands there. It has no line breaks.
    pub fn show(&self, text: impl fmt::Display) {
        if self.is_live() {
            self.write(&format!("\r\x1b[K{text}"), true);
        }
    }

    /// Takes the text away.
    pub fn clear(&self) {
        self.leave("\r\x1b[K");
    }

    /// Lets the text stand, and goes to the next line.
    pub fn keep(&self) {
        self.leave("\n");
    }

    fn leave(&self, by: &str) {
        let written = self.state.lock().unwrap_or_else(PoisonError::into_inner).written;
        if written {
            self.write(by, false);
        }
    }

    fn write(&self, text: &str, written: bool) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.written = written;
        // There is nowhere to say that it failed.
        let _ = state
            .to
            .write_all(text.as_bytes())
            .and_then(|()| state.to.flush());
    }
}

/// How much of something is done: `share` is between 0 and 1, and the bar is full at 1 only.
#[must_use]
pub fn bar(share: f64) -> String {
    let full = ((share * CELLS as f64) as usize).min(CELLS);
    "█".repeat(full) + &"░".repeat(CELLS - full)
}

/// How far some work is: a bar, the parts that are done, and how long the others take, if that is known.
#[must_use]
pub fn progress(done: usize, of: usize, left: Option<f64>) -> String {
    let bar = bar(done as f64 / of.max(1) as f64);
    let left = left.map_or_else(String::new, |seconds| format!(", {} left", span(seconds)));
    format!("{bar} {done}/{of}{left}")
}

/// Work in parts that take about equally long, told on a line that lives; elsewhere nothing is said of it.
pub struct Parts<L: Borrow<LiveLine>> {
    line: L,
    of: usize,
    begun: Instant,
}

impl<L: Borrow<LiveLine>> Parts<L> {
    /// So many of them begin.
    pub fn new(line: L, of: usize) -> Self {
        Self {
            line,
            of,
            begun: Instant::now(),
        }
    }

    /// So many are done, and the next one is this.
    pub fn begin(&self, done: usize, what: impl fmt::Display) {
        let left = left(done, self.of, self.begun.elapsed().as_secs_f64());
        let progress = progress(done, self.of, left);
        self.line.borrow().show(format_args!("{progress} · {what}"));
    }

    /// Nothing is said until the next one begins.
    pub fn rest(&self) {
        self.line.borrow().clear();
    }
}

/// Whatever ended the work, what is said next has a line of its own.
impl<L: Borrow<LiveLine>> Drop for Parts<L> {
    fn drop(&mut self) {
        self.rest();
    }
}

/// Seconds that the other parts take, if they take as long as those that are done.
fn left(done: usize, of: usize, seconds: f64) -> Option<f64> {
    (done > 0).then(|| seconds / done as f64 * of.saturating_sub(done) as f64)
}

/// What a view that is shown again and again begins with: it takes the whole of a terminal, and follows itself elsewhere.
#[must_use]
pub fn clear_screen(out: &impl IsTerminal) -> &'static str {
    if out.is_terminal() { "\x1b[H\x1b[2J" } else { "" }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    /// What is written, for its test to read.
    #[derive(Clone, Default)]
    struct Paper(Arc<Mutex<Vec<u8>>>);

    impl Write for Paper {
        fn write(&mut self, text: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(text)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn written(shown: Shown, act: impl Fn(&LiveLine)) -> String {
        let paper = Paper::default();
        act(&LiveLine::new(paper.clone(), shown));
        String::from_utf8(paper.0.lock().unwrap().clone()).unwrap()
    }

    #[test]
    fn a_text_takes_the_place_of_the_one_before() {
        let act = |line: &LiveLine| {
            line.show(1);
            line.show("two");
            line.keep();
            line.keep();
        };
        assert_eq!(written(Shown::Live, act), "\r\x1b[K1\r\x1b[Ktwo\n");
        assert_eq!(written(Shown::Lines, act), "");
    }

    #[test]
    fn a_whole_line_is_for_every_reader() {
        let act = |line: &LiveLine| {
            line.show(1);
            line.say("two");
        };
        assert_eq!(written(Shown::Live, act), "\r\x1b[K1\r\x1b[Ktwo\n");
        assert_eq!(written(Shown::Lines, act), "two\n");
        assert_eq!(written(Shown::Nothing, act), "");
    }

    #[test]
    fn what_is_not_there_is_not_taken_away() {
        assert_eq!(written(Shown::Live, LiveLine::clear), "");
        let act = |line: &LiveLine| {
            line.show("x");
            line.clear();
            line.keep();
        };
        assert_eq!(written(Shown::Live, act), "\r\x1b[Kx\r\x1b[K");
    }

    #[test]
    fn what_is_left_takes_as_long_as_what_was_done() {
        assert_eq!(left(0, 9, 5.0), None);
        assert_eq!(left(3, 9, 5.0), Some(10.0));
        assert_eq!(left(9, 9, 5.0), Some(0.0));
        assert_eq!(left(10, 9, 5.0), Some(0.0));
        assert!(progress(3, 9, Some(10.0)).ends_with("░ 3/9, 10 s left"));
        assert!(progress(0, 9, None).ends_with("░ 0/9"));
    }

    #[test]
    fn parts_are_told_where_a_line_lives() {
        let act = |line: &LiveLine| Parts::new(line, 2).begin(0, "one");
        assert!(written(Shown::Live, act).ends_with("░ 0/2 · one\r\x1b[K"));
        assert_eq!(written(Shown::Lines, act), "");
    }

    #[test]
    fn a_bar_is_full_at_the_end_only() {
        let full = |share: f64| bar(share).chars().filter(|cell| *cell == '█').count();
        assert_eq!([0.0, 0.5, 0.999, 1.0, 1.5].map(full), [0, 12, 23, 24, 24]);
        assert_eq!(bar(0.3).chars().count(), CELLS);
    }
}
