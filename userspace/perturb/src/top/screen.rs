//! The terminal while `top` has all of it, and what it can show.

use std::{env, io, thread};

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
        let terminal = ratatui::try_init().context("taking the terminal; --plain needs only lines of it")?;
        Ok(Self { terminal, look })
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
        // A terminal that is gone needs nothing.
        let _ = ratatui::try_restore();
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
    use super::is_utf8;

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
