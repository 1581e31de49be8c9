//! `perturb top`: an emulation, watched and changed by keys.
//!
//! ```text
//! keys ──► input ──► model ──► view (a screen) or plain (lines)
//!                    │   ▲
//!        hand::act ◄─┘   └── hand::watch
//!            └──── perturb_serve::Client ────► the emulation's socket
//! ```

mod hand;
mod input;
mod knob;
mod model;
mod plain;
mod screen;
mod view;
mod words;

use std::{io, time::Duration};

use anyhow::bail;
use clap::Args;
use perturb_emulator::{runtime, signals::Signals};
use perturb_serve::{AskError, Client};
use tokio::sync::mpsc::unbounded_channel;

use self::{
    model::{Key, Model, Pressed},
    plain::Plain,
    screen::Screen,
};
use crate::cli::{exit::DONE, time};

/// Between two looks, if no time is given.
const LOOK: Duration = Duration::from_secs(1);

#[derive(Args, Debug)]
pub(crate) struct TopArgs {
    /// Its name, as `perturb status --json` has it; may be left out if there is one only.
    id: Option<String>,
    /// Look so often; every second if nothing is said.
    #[arg(long, value_name = "TIME", value_parser = time::within(time::PERIOD))]
    every: Option<Duration>,
    /// For screen readers and files: line by line, only what changed. Keys are typed as lines. So it is, too, where no cursor moves.
    #[arg(long)]
    plain: bool,
}

pub(crate) fn run(args: &TopArgs) -> anyhow::Result<u8> {
    let client = choose(args.id.as_deref())?;
    let every = args.every.unwrap_or(LOOK);
    let runtime = runtime()?;
    let ended = if args.plain || !screen::is_able(&io::stdout()) {
        runtime.block_on(follow(&client, every, Lines::default()))
    } else {
        let screen = Screen::open()?;
        runtime.block_on(follow(&client, every, screen))
    };
    // Whatever still reads keys is not waited for.
    runtime.shutdown_background();
    match ended? {
        Some(ended @ AskError::Ended(_)) => eprintln!("{ended}"),
        Some(error) => return Err(error.into()),
        None => {}
    }
    Ok(DONE)
}

/// The emulation that is meant.
fn choose(id: Option<&str>) -> anyhow::Result<Client> {
    let mut all = Client::all();
    let names = all.iter().map(Client::id).collect::<Vec<_>>().join(", ");
    match (id, all.len()) {
        (Some(id), _) => {
            let Some(place) = all.iter().position(|client| client.id() == id) else {
                bail!("no emulation {id} answers here; {}", those(&names));
            };
            Ok(all.swap_remove(place))
        }
        (None, 1) => Ok(all.swap_remove(0)),
        (None, 0) => bail!("no emulation answers here; {}", those(&names)),
        (None, several) => bail!("{several} emulations answer here; name one of {names}"),
    }
}

fn those(names: &str) -> String {
    if names.is_empty() {
        return "those of `apply` and `run` do, to root, and to the group that their --socket-group names"
            .into();
    }
    format!("these do: {names}")
}

/// Where a model is shown.
trait Shown {
    /// Where keys come from.
    fn listen(&self, to: tokio::sync::mpsc::UnboundedSender<Option<Key>>) -> anyhow::Result<()>;
    /// After a look.
    fn see(&mut self, model: &Model) -> anyhow::Result<()>;
    /// After a key, or what came of it.
    fn answer(&mut self, model: &Model, what: Answered) -> anyhow::Result<()>;
}

/// To what an answer is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answered {
    Key(Key),
    Change,
}

impl Shown for Screen {
    fn listen(&self, to: tokio::sync::mpsc::UnboundedSender<Option<Key>>) -> anyhow::Result<()> {
        screen::listen(to)
    }

    fn see(&mut self, model: &Model) -> anyhow::Result<()> {
        self.show(model)
    }

    fn answer(&mut self, model: &Model, _: Answered) -> anyhow::Result<()> {
        self.show(model)
    }
}

/// Lines on standard output.
#[derive(Default)]
struct Lines(Plain);

impl Shown for Lines {
    fn listen(&self, to: tokio::sync::mpsc::UnboundedSender<Option<Key>>) -> anyhow::Result<()> {
        screen::listen_to_lines(to)
    }

    fn see(&mut self, model: &Model) -> anyhow::Result<()> {
        for line in self.0.look(model) {
            println!("{line}");
        }
        Ok(())
    }

    fn answer(&mut self, model: &Model, what: Answered) -> anyhow::Result<()> {
        match what {
            Answered::Key(Key::Help) if model.help => {
                for line in plain::help() {
                    println!("{line}");
                }
            }
            Answered::Key(Key::Up | Key::Down | Key::First | Key::Last | Key::Left | Key::Right) => {
                println!("{}", plain::selected(model));
            }
            Answered::Key(_) => {}
            Answered::Change => {
                if let Some(said) = &model.said {
                    println!("{}", plain::said(said));
                }
            }
        }
        Ok(())
    }
}

/// Shows an emulation until it ends, or this is to end; why it ended, if it did.
async fn follow(client: &Client, every: Duration, mut shown: impl Shown) -> anyhow::Result<Option<AskError>> {
    let mut signals = Signals::listen()?;
    let (looks, mut looked) = unbounded_channel();
    let (ask, asked) = unbounded_channel();
    let (dones, mut done) = unbounded_channel();
    let (keys, mut pressed) = unbounded_channel();
    shown.listen(keys)?;
    let mut watching = std::pin::pin!(hand::watch(client, every, looks));
    let mut acting = std::pin::pin!(hand::act(client, asked, dones));
    let mut model = Model::default();
    shown.answer(&model, Answered::Change)?;
    loop {
        tokio::select! {
            _ = signals.next() => return Ok(None),
            ended = &mut watching => return Ok(Some(ended)),
            ended = &mut acting => return Ok(Some(ended)),
            Some(look) = looked.recv() => match look {
                Ok(seen) => {
                    if let Some(profile) = seen.profile {
                        model.profile = profile;
                    }
                    model.see(*seen.report, seen.time);
                    shown.see(&model)?;
                }
                Err(why) => {
                    model.blind = Some(format!("{why:#}"));
                    shown.see(&model)?;
                }
            },
            Some(done) = done.recv() => {
                model.hear(done);
                shown.answer(&model, Answered::Change)?;
            }
            Some(key) = pressed.recv() => {
                if let Some(key) = key {
                    match model.press(key) {
                        Pressed::Quit => return Ok(None),
                        // The other end lives as long as this loop.
                        Pressed::Ask(asked) => drop(ask.send(asked)),
                        Pressed::Shown => {}
                    }
                    shown.answer(&model, Answered::Key(key))?;
                } else {
                    shown.see(&model)?;
                }
            }
        }
    }
}
