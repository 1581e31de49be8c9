//! What this program says on standard error: the messages of its crates, by way of [`log`].
//!
//! A long-lived command [begins] a thread that writes them, so that a terminal that takes no more (Ctrl-S, a pipe that
//! nobody reads) stops the messages and not the work.
//!
//! [begins]: begin

use std::{
    io::{self, Write as _},
    sync::{
        OnceLock,
        atomic::{AtomicUsize, Ordering},
        mpsc::{SyncSender, sync_channel},
    },
    thread,
    time::{Duration, Instant},
};

use log::{Level, LevelFilter, Log, Metadata, Record};
use perturb_emulator::privileges;
use perturb_serve::{Event, Events};

/// Messages that may wait; more are not said.
const WAITING: usize = 256;

static VOICE: OnceLock<Option<SyncSender<String>>> = OnceLock::new();
static EVENTS: OnceLock<Events> = OnceLock::new();
static UNSAID: AtomicUsize = AtomicUsize::new(0);

/// From now on messages wait for nobody.
pub(crate) fn begin() {
    VOICE.get_or_init(start);
}

/// Where its messages can be heard, too.
pub(crate) fn events() -> Events {
    EVENTS.get_or_init(perturb_serve::events).clone()
}

/// Says `text` as it is: soon, or not at all if too much waits to be said; at once before [`begin`].
fn say(text: String) {
    let Some(voice) = VOICE.get() else {
        // There is nowhere to say that it failed.
        let _ = io::stderr().lock().write_all(text.as_bytes());
        return;
    };
    let Some(voice) = voice else { return };
    UNSAID.fetch_add(1, Ordering::Relaxed);
    if voice.try_send(text).is_err() {
        UNSAID.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Standard error as a writer that never blocks: each write is said as a whole or not at all.
#[derive(Debug)]
pub(crate) struct Voice;

impl io::Write for Voice {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        say(String::from_utf8_lossy(text).into_owned());
        Ok(text.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Waits until everything is said, but not for long.
pub(crate) fn settle() {
    const PATIENCE: Duration = Duration::from_millis(200);
    let start = Instant::now();
    while UNSAID.load(Ordering::Relaxed) != 0 && start.elapsed() < PATIENCE {
        thread::sleep(Duration::from_millis(1));
    }
}

fn start() -> Option<SyncSender<String>> {
    let (voice, said) = sync_channel::<String>(WAITING);
    let speak = move || {
        // The threads of a controller have what it needs, and no more. Whoever has less cannot give up more.
        let _ = privileges::keep_needed();
        for text in said {
            // Nobody can be told that nobody can be told.
            let _ = io::stderr().write_all(text.as_bytes());
            UNSAID.fetch_sub(1, Ordering::Relaxed);
        }
    };
    thread::Builder::new()
        .name("perturb-voice".into())
        .spawn(speak)
        .ok()?;
    Some(voice)
}

/// From now on the messages of perturb's crates are said; other crates' are for their developers.
pub(crate) fn listen() {
    if log::set_logger(&Messages).is_ok() {
        log::set_max_level(LevelFilter::Info);
    }
}

struct Messages;

impl Log for Messages {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.level() <= Level::Info && metadata.target().starts_with("perturb")
    }

    fn log(&self, record: &Record<'_>) {
        if self.enabled(record.metadata()) {
            let what = if record.level() == Level::Warn {
                "warning: "
            } else {
                ""
            };
            if let Some(events) = EVENTS.get() {
                // An error: nobody listens.
                let _ = events.send(Event::now(record.level(), record.args().to_string()));
            }
            say(format!("perturb: {what}{}\n", record.args()));
        }
    }

    fn flush(&self) {
        settle();
    }
}
