//! What `top` asks of an emulation: a look again and again, and one change after the other.

use std::time::{Duration, Instant};

use anyhow::Context as _;
use perturb_emulator::status::Report;
use perturb_serve::{AskError, Client};
use serde_json::Value;
use tokio::{
    sync::mpsc::{UnboundedReceiver, UnboundedSender},
    time::sleep,
};

use super::{
    knob::KNOBS,
    model::{Ask, Done},
};

/// What a look has found.
#[derive(Debug)]
pub(super) struct Seen {
    pub(super) report: Box<Report>,
    /// Since the look before.
    pub(super) time: Duration,
    /// The profile, if it is another one than before.
    pub(super) profile: Option<Value>,
}

/// Looks every `period`, until the emulation ends; why nothing was seen is told as well.
pub(super) async fn watch(
    client: &Client,
    period: Duration,
    to: UnboundedSender<anyhow::Result<Seen>>,
) -> AskError {
    let (mut last, mut updates) = (None::<Instant>, None);
    loop {
        let began = Instant::now();
        let looked = async {
            let report = client.status().await?;
            let now = Instant::now();
            let profile = if updates == Some(report.updates) {
                None
            } else {
                Some(read(&client.profile().await?).map_err(AskError::Failed)?)
            };
            updates = Some(report.updates);
            let time = now - last.replace(now).unwrap_or(now);
            let report = Box::new(report);
            Ok(Seen {
                report,
                time,
                profile,
            })
        };
        let seen = match looked.await {
            Err(ended @ AskError::Ended(_)) => return ended,
            looked => looked.map_err(anyhow::Error::from),
        };
        // Nobody hears it any more: whoever asked for it has ended this, too.
        let _ = to.send(seen);
        // Many servers take long to read: at most a tenth of the time goes into it.
        sleep(period.max(9 * began.elapsed())).await;
    }
}

/// A profile as a tree.
fn read(profile: &str) -> anyhow::Result<Value> {
    serde_saphyr::from_str(profile).context("reading the profile in force")
}

/// Does what is asked, in order, until the emulation ends.
pub(super) async fn act(
    client: &Client,
    mut asked: UnboundedReceiver<Ask>,
    to: UnboundedSender<Done>,
) -> AskError {
    let mut steps = Steps {
        client,
        undo: Vec::new(),
    };
    while let Some(ask) = asked.recv().await {
        let done = match steps.act(ask).await {
            Ok(done) => done,
            Err(ended @ AskError::Ended(_)) => return ended,
            Err(error) => Done {
                said: Err(for_keys(&error.to_string())),
                profile: None,
                paused: None,
            },
        };
        let _ = to.send(done);
    }
    // Keys come as long as there is somebody to press them.
    std::future::pending().await
}

/// A profile before a step, and after it.
struct Step {
    before: String,
    after: String,
    said: String,
}

struct Steps<'a> {
    client: &'a Client,
    undo: Vec<Step>,
}

impl Steps<'_> {
    async fn act(&mut self, ask: Ask) -> Result<Done, AskError> {
        match ask {
            Ask::Turn { server, knob, way } => {
                let Some(knob) = KNOBS.get(knob) else {
                    return Ok(refused("there is no such knob".into()));
                };
                // Others may have changed it since the last look.
                let before = self.client.profile().await?;
                let profile = read(&before).map_err(AskError::Failed)?;
                let turn = match knob.turn(&profile, &server, way) {
                    Ok(turn) => turn,
                    Err(why) => return Ok(refused(why)),
                };
                let after = self.client.patch(&turn.patch).await?;
                let done = changed(turn.said.clone(), &after)?;
                let said = turn.said;
                self.undo.push(Step { before, after, said });
                Ok(done)
            }
            Ask::Pause(paused) => {
                self.client.pause(paused).await?;
                let said = if paused {
                    "paused: traffic passes untouched; p goes on"
                } else {
                    "it emulates again"
                };
                Ok(Done {
                    said: Ok(said.into()),
                    profile: None,
                    paused: Some(paused),
                })
            }
            Ask::Undo => {
                let Some(step) = self.undo.last() else {
                    return Ok(refused("no step was made here that could be undone".into()));
                };
                if self.client.profile().await? != step.after {
                    self.undo.clear();
                    let why = "somebody else has changed the profile since, and that would be undone as well; \
                               what was done here before is no longer undone";
                    return Ok(refused(why.into()));
                }
                let now = self.client.put(step.before.clone()).await?;
                let done = changed(format!("undone: {}", step.said), &now)?;
                self.undo.pop();
                Ok(done)
            }
        }
    }
}

/// What a message says, without the place and the text of a profile that nobody sees here.
fn for_keys(message: &str) -> String {
    let digits = |c: char| c.is_ascii_digit();
    let is_quoted = |line: &&str| {
        line.trim_start_matches(|c| c == ' ' || digits(c))
            .starts_with('|')
    };
    let is_count = |line: &&str| [" error", " errors"].contains(&line.trim_start_matches(digits));
    let lines = message.lines().filter(|line| !is_quoted(line) && !is_count(line));
    let lines = lines.map(|line| {
        let place = line.strip_prefix("profile:");
        let rest = place.map(|place| place.trim_start_matches(|c| c == ':' || digits(c)));
        rest.unwrap_or(line).trim()
    });
    lines.collect::<Vec<_>>().join("\n")
}

fn refused(why: String) -> Done {
    Done {
        said: Err(why),
        profile: None,
        paused: None,
    }
}

fn changed(said: String, profile: &str) -> Result<Done, AskError> {
    let profile = Some(read(profile).map_err(AskError::Failed)?);
    Ok(Done {
        said: Ok(said),
        profile,
        paused: None,
    })
}

#[cfg(test)]
mod tests {
    use super::for_keys;

    #[test]
    fn a_message_for_keys_quotes_no_text() {
        let message = "profile:1:130: servers.up.loss: it is too much\n  1 | {\"version\":1}\n    |       ^^^\n  try less\n1 error";
        assert_eq!(for_keys(message), "servers.up.loss: it is too much\ntry less");
        assert_eq!(
            for_keys("another command changes it"),
            "another command changes it"
        );
    }
}
