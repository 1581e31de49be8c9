//! A container, and where its emulation stands.

use std::time::{Duration, Instant};

use super::process::Process;

/// After a failure, until the next try: from the first to the last. The engine has said by then whether the container has ended.
const PAUSES: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(30));

/// A container that is emulated, or was or is to be.
pub(super) struct Member {
    pub(super) name: String,
    /// The process that its namespace is known by.
    pub(super) pid: u32,
    pub(super) state: State,
    /// How often in a row it failed.
    pub(super) failures: u32,
}

pub(super) enum State {
    /// Its process sets it up.
    Begins(Process, Place),
    /// It is emulated.
    Up(Process, Place),
    /// Its process was asked to end.
    Ends(Process),
    /// It did not work, for this reason; it is tried again then.
    Waits(Instant, String),
}

/// Where it is emulated.
pub(super) struct Place {
    pub(super) inode: u64,
    pub(super) interface: String,
    pub(super) others: Vec<String>,
}

impl Member {
    pub(super) fn place(&self) -> Option<&Place> {
        match &self.state {
            State::Begins(_, place) | State::Up(_, place) => Some(place),
            State::Ends(_) | State::Waits(..) => None,
        }
    }

    pub(super) fn process(&self) -> Option<&Process> {
        match &self.state {
            State::Begins(process, _) | State::Up(process, _) | State::Ends(process) => Some(process),
            State::Waits(..) => None,
        }
    }

    pub(super) fn stop(&mut self) {
        let state = std::mem::replace(&mut self.state, State::Waits(Instant::now(), String::new()));
        self.state = match state {
            State::Begins(process, _) | State::Up(process, _) => {
                process.stop();
                State::Ends(process)
            }
            other => other,
        };
    }

    pub(super) fn fails(&mut self, said: String) {
        let (first, longest) = PAUSES;
        let pause = longest.min(first * 2_u32.saturating_pow(self.failures.min(10)));
        self.failures += 1;
        self.state = State::Waits(Instant::now() + pause, said);
    }
}
