//! What is written again and again over itself while something goes on.
//!
//! Model: a [`LiveLine`] is one line of a terminal. Each text takes the place of the one before, by one write, so that
//! threads do not mix. What is no terminal gets nothing: its reader wants whole lines, which the caller has. A line that
//! cannot be written is no reason to stop what it tells of.
//! What is lacking: several lines, times (the callers know better than a rate how long their work takes), and a thread of
//! its own. Crates for progress bars bring these, and write to a terminal that they choose; a controller's line goes to
//! a writer that never blocks.

use std::{
    fmt,
    io::{self, IsTerminal, Stderr, Write},
    sync::{Mutex, PoisonError},
};

/// Cells of a [`bar`].
const CELLS: usize = 24;

/// One line of a terminal.
#[derive(Debug)]
pub struct LiveLine<W> {
    on: bool,
    state: Mutex<State<W>>,
}

#[derive(Debug)]
struct State<W> {
    to: W,
    /// Something stands in the line.
    written: bool,
}

impl LiveLine<Stderr> {
    /// A line on standard error, if that is a terminal; nothing if `quiet`.
    #[must_use]
    pub fn stderr(quiet: bool) -> Self {
        let to = io::stderr();
        let on = !quiet && to.is_terminal();
        Self::new(to, on)
    }
}

impl<W: Write> LiveLine<W> {
    /// A line that is written to `to` if it is `on`.
    pub fn new(to: W, on: bool) -> Self {
        let state = State { to, written: false };
        Self {
            on,
            state: Mutex::new(state),
        }
    }

    /// Whether anything is shown.
    pub fn is_on(&self) -> bool {
        self.on
    }

    /// Puts a text in the place of the one that stands there. It has no line breaks.
    pub fn show(&self, text: impl fmt::Display) {
        if self.on {
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

/// What a view that is shown again and again begins with: it takes the whole of a terminal, and follows itself elsewhere.
#[must_use]
pub fn clear_screen(out: &impl IsTerminal) -> &'static str {
    if out.is_terminal() { "\x1b[H\x1b[2J" } else { "" }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(on: bool, act: impl Fn(&LiveLine<Vec<u8>>)) -> String {
        let line = LiveLine::new(Vec::new(), on);
        act(&line);
        String::from_utf8(line.state.into_inner().unwrap().to).unwrap()
    }

    #[test]
    fn a_text_takes_the_place_of_the_one_before() {
        let act = |line: &LiveLine<Vec<u8>>| {
            line.show(1);
            line.show("two");
            line.keep();
            line.keep();
        };
        assert_eq!(written(true, act), "\r\x1b[K1\r\x1b[Ktwo\n");
        assert_eq!(written(false, act), "");
    }

    #[test]
    fn what_is_not_there_is_not_taken_away() {
        assert_eq!(written(true, LiveLine::clear), "");
        let act = |line: &LiveLine<Vec<u8>>| {
            line.show("x");
            line.clear();
            line.keep();
        };
        assert_eq!(written(true, act), "\r\x1b[Kx\r\x1b[K");
    }

    #[test]
    fn a_bar_is_full_at_the_end_only() {
        let full = |share: f64| bar(share).chars().filter(|cell| *cell == '█').count();
        assert_eq!([0.0, 0.5, 0.999, 1.0, 1.5].map(full), [0, 12, 23, 24, 24]);
        assert_eq!(bar(0.3).chars().count(), CELLS);
    }
}
