//! The terminal while `top` has all of it, and what it can show.

use std::{
    env, io, panic,
    sync::atomic::{AtomicBool, Ordering},
    thread,
};

use anyhow::Context as _;
use ratatui::{
    DefaultTerminal,
    crossterm::event::{self, Event},
};
use tokio::sync::mpsc::UnboundedSender;

use super::{
    input,
    model::{Key, Model},
    view::{Look, draw},
};

/// The whole of it; dropping this gives it back as it was. So does a panic, before it is said.
pub(super) struct Screen {
    terminal: DefaultTerminal,
    look: Look,
}

/// Whether it is to be given back. A second time would put the cursor back, too, over what was said meanwhile.
static TAKEN: AtomicBool = AtomicBool::new(false);

fn give_back() {
    if TAKEN.swap(false, Ordering::Relaxed) {
        // A terminal that is gone needs nothing.
        let _ = ratatui::try_restore();
    }
}

/// Whether a program may move the cursor there.
pub(super) fn is_able(out: &impl io::IsTerminal) -> bool {
    let kind = env::var_os("TERM").unwrap_or_default();
    out.is_terminal() && !kind.is_empty() && kind != "dumb"
}

impl Screen {
    pub(super) fn open() -> anyhow::Result<Self> {
        let look = Look {
            coloured: env::var_os("NO_COLOR").is_none_or(|value| value.is_empty()),
            wide: is_utf8(|name| env::var(name).ok()),
        };
        TAKEN.store(true, Ordering::Relaxed);
        let taken = ratatui::try_init();
        // Its hook gives the terminal back, and then calls the one that says why.
        let hook = panic::take_hook();
        panic::set_hook(Box::new(move |cause| {
            TAKEN.store(false, Ordering::Relaxed);
            hook(cause);
        }));
        match taken {
            Ok(terminal) => Ok(Self { terminal, look }),
            Err(error) => {
                give_back();
                Err(error).context("taking the terminal; --plain needs only lines of it")
            }
        }
    }

    pub(super) fn show(&mut self, model: &Model) -> anyhow::Result<()> {
        let look = self.look;
        let drawn = self.terminal.draw(|frame| draw(frame, model, look));
        drawn.context("writing to the terminal")?;
        Ok(())
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        give_back();
    }
}

/// Whether the locale has letters beyond ASCII: the first of these variables that is set says so.
fn is_utf8(of: impl Fn(&str) -> Option<String>) -> bool {
    let set = |name: &&str| of(name).filter(|value| !value.is_empty());
    let locale = ["LC_ALL", "LC_CTYPE", "LANG"]
        .iter()
        .find_map(set)
        .unwrap_or_default();
    let locale = locale.to_uppercase();
    locale.contains("UTF-8") || locale.contains("UTF8")
}

/// What a terminal tells: a key; nothing if it is to be drawn again.
pub(super) fn listen(to: UnboundedSender<Option<Key>>) -> anyhow::Result<()> {
    let listen = move || {
        while let Ok(event) = event::read() {
            let told = match event {
                Event::Key(key) => input::of_event(&key).map(Some),
                Event::Resize(..) => Some(None),
                _ => None,
            };
            if told.is_some_and(|told| to.send(told).is_err()) {
                return;
            }
        }
        // Without a terminal there is nobody to show anything.
        let _ = to.send(Some(Key::Quit));
    };
    begin(listen)
}

/// What is typed, line by line.
pub(super) fn listen_to_lines(to: UnboundedSender<Option<Key>>) -> anyhow::Result<()> {
    let listen = move || {
        for line in io::stdin().lines().map_while(Result::ok) {
            for key in line.chars().filter_map(input::of_letter) {
                if to.send(Some(key)).is_err() {
                    return;
                }
            }
        }
        // Who types nothing more may still read.
    };
    begin(listen)
}

fn begin(listen: impl FnOnce() + Send + 'static) -> anyhow::Result<()> {
    let thread = thread::Builder::new().name("perturb-keys".into());
    thread
        .spawn(listen)
        .context("starting the thread that reads keys")?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::{
        env,
        process::{Command, Output},
        thread,
        time::{Duration, Instant},
    };

    use perturb_verdict::{installed, or_end};
    use tempfile::TempDir;

    use super::{Model, Screen, is_utf8};

    /// Says that this process is to panic while it has a screen.
    const PANICS: &str = "PERTURB_TEST_PANICS";

    /// What [`a_panic_leaves_the_terminal_as_it_was`] runs in a terminal; elsewhere it does nothing.
    #[test]
    fn panics() {
        if env::var_os(PANICS).is_some() {
            let mut screen = Screen::open().unwrap();
            screen.show(&Model::default()).unwrap();
            panic!("on purpose");
        }
    }

    #[test]
    fn a_panic_leaves_the_terminal_as_it_was() {
        or_end!(installed(&["tmux"]));
        let place = TempDir::with_prefix("perturb-tmux-").unwrap();
        let tmux = |words: &[&str]| -> Output {
            let mut tmux = Command::new("tmux");
            tmux.arg("-S")
                .arg(place.path().join("socket"))
                .args(["-f", "/dev/null"]);
            tmux.env_remove("TMUX")
                .env(PANICS, "yes")
                .args(words)
                .output()
                .unwrap()
        };
        let this = env::current_exe().unwrap();
        let line = format!(
            "{} --exact --nocapture top::screen::tests::panics; echo over=$?; stty -a; exec sleep 100",
            this.display()
        );
        let begun = tmux(&["new-session", "-d", "-x", "100", "-y", "60", "sh", "-c", &line]);
        let start = Instant::now();
        let mut shown = String::new();
        while !shown.contains("over=101") || !shown.contains("echoke") {
            assert!(start.elapsed() < Duration::from_secs(60), "{begun:?}: {shown}");
            thread::sleep(Duration::from_millis(50));
            shown = String::from_utf8_lossy(&tmux(&["capture-pane", "-p"]).stdout).into_owned();
        }
        let flags = tmux(&["display-message", "-p", "#{alternate_on} #{cursor_flag}"]);
        tmux(&["kill-server"]);
        assert_eq!(String::from_utf8_lossy(&flags.stdout).trim(), "0 1");
        let has = |word| shown.split_whitespace().any(|found| found == word);
        assert!(has("icanon") && has("echo"), "{shown}");
        // It is said where it is seen.
        assert!(shown.contains("on purpose"), "{shown}");
    }

    #[test]
    fn the_first_variable_that_is_set_names_the_locale() {
        let of = |set: &'static [(&str, &str)]| {
            is_utf8(|name| {
                set.iter()
                    .find(|(key, _)| *key == name)
                    .map(|(_, value)| (*value).into())
            })
        };
        assert!(of(&[("LANG", "de_DE.UTF-8")]) && of(&[("LC_ALL", "C.utf8"), ("LANG", "C")]));
        assert!(!of(&[("LC_ALL", "C"), ("LANG", "de_DE.UTF-8")]) && !of(&[]));
        assert!(of(&[("LC_ALL", ""), ("LC_CTYPE", "en_US.UTF-8")]));
    }
}
