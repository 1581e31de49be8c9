//! What a long-lived command says on standard error while it works. A thread of its own writes it, so that a terminal that
//! takes no more (Ctrl-S, a pipe that nobody reads) stops the messages and not the work.

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

/// Messages that may wait; more are not said.
const WAITING: usize = 256;

static VOICE: OnceLock<Option<SyncSender<String>>> = OnceLock::new();
static UNSAID: AtomicUsize = AtomicUsize::new(0);

/// Says `text` as it is, soon; not at all if too much waits to be said.
pub(crate) fn say(text: String) {
    let Some(voice) = VOICE.get_or_init(start) else {
        return;
    };
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
