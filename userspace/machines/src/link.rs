//! The connection to one machine: a process of ssh or srun here, an agent at its other end.

use std::{io, process::ExitStatus, sync::Arc, time::Duration};

use perturb_clock::wall;
use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines},
    process::{Child, ChildStderr, ChildStdin, ChildStdout},
    sync::watch,
    time::{Instant, interval, sleep_until, timeout},
};

use crate::{
    compared::Compared,
    crew::What,
    way::Way,
    words::{Answer, Ask, BEAT, Greeting, Order},
};

/// Until a machine is reached.
const REACHED: Duration = Duration::from_secs(30);
/// Until an agent has taken down what it began; longer than its own patience.
const PATIENCE: Duration = Duration::from_secs(25);
/// What a process that has ended may still have to say.
const REST: Duration = Duration::from_millis(200);
/// Questions for its clock.
const QUESTIONS: usize = 10;
/// Lines of the client's that an error quotes.
const QUOTED: usize = 4;

/// Why a machine does not do what it was asked for.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Failure {
    /// The client, ssh or srun, does not start.
    #[error("`{0}` cannot be started: {1}")]
    Start(String, io::Error),
    /// No agent answers.
    #[error("not reached within {} s{}", REACHED.as_secs(), quoted(.0))]
    Unreached(Vec<String>),
    /// The connection has ended before an agent answered.
    #[error("no perturb answers there ({}){}; --perturb-path says what it is called there, and --push copies it", .0, quoted(.1))]
    NoAgent(ExitStatus, Vec<String>),
    /// Something else answers.
    #[error(
        "`{0}` is not what perturb says; --perturb-path says what it is called there, and what a login prints must not be on standard output"
    )]
    Foreign(String),
    /// Another perturb.
    #[error("perturb {theirs} is there, {ours} here; install the same on both, or let --push copy it")]
    Version {
        /// There.
        theirs: String,
        /// Here.
        ours: String,
    },
    /// It could not be copied.
    #[error("perturb cannot be copied there ({}){}", .0, quoted(.1))]
    Push(ExitStatus, Vec<String>),
    /// What is to be copied cannot be read here.
    #[error("perturb cannot be copied: {0}")]
    Own(io::Error),
    /// Nothing is heard any more.
    #[error("nothing was heard of it for {} s; what it emulates ends by itself", .0.as_secs_f64())]
    Silent(Duration),
    /// The connection has ended.
    #[error("the connection was cut{}; what it emulates ends by itself", quoted(.0))]
    Cut(Vec<String>),
    /// The command has failed, and said why.
    #[error("it failed{}", .0.map_or(String::new(), |code| format!(" with exit code {code}")))]
    Failed(Option<i32>),
}

fn quoted(said: &[String]) -> String {
    let last = &said[said.len().saturating_sub(QUOTED)..];
    if last.is_empty() {
        String::new()
    } else {
        format!(": {}", last.join(" / "))
    }
}

/// How far a crew wants its links to be.
#[derive(Debug, Clone)]
pub(crate) enum Phase {
    /// Reach the machine.
    Reach,
    /// Do what was ordered.
    Work,
    /// Do this, too: timelines begin at an instant of this machine's clock, ns.
    Time(Arc<Order>, u64),
    /// End it.
    End,
}

struct Link {
    child: Child,
    /// Nothing once the agent is to end.
    to: Option<ChildStdin>,
    from: Lines<BufReader<ChildStdout>>,
    messages: Lines<BufReader<ChildStderr>>,
    speaks: bool,
    /// What the client has said.
    said: Vec<String>,
}

impl Link {
    /// Starts `perturb machine` there.
    fn start(way: &Way, host: &str) -> Result<Self, Failure> {
        let mut child = way.start(host, &format!("exec {} machine", way.perturb))?;
        let streams = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let (Some(to), Some(from), Some(messages)) = streams else {
            return Err(Failure::Own(io::ErrorKind::BrokenPipe.into()));
        };
        Ok(Self {
            child,
            to: Some(to),
            from: BufReader::new(from).lines(),
            messages: BufReader::new(messages).lines(),
            speaks: true,
            said: Vec::new(),
        })
    }

    /// The same perturb's agent there; it is copied if it has to be and may be.
    async fn reach(way: &Way, host: &str) -> Result<Self, Failure> {
        let mut link = Self::start(way, host)?;
        match link.greet().await {
            Err(Failure::Version { .. } | Failure::NoAgent(..)) if way.push => {}
            greeted => return greeted.map(|()| link),
        }
        drop(link);
        let mut link = Self::start(&way.pushed(host).await?, host)?;
        link.greet().await.map(|()| link)
    }

    /// The next line of the agent's; nothing after the last one. It may be dropped and called again.
    async fn line(&mut self) -> Option<String> {
        loop {
            tokio::select! {
                line = self.from.next_line() => return line.ok().flatten(),
                line = self.messages.next_line(), if self.speaks => match line {
                    Ok(Some(line)) => self.said.push(line),
                    _ => self.speaks = false,
                },
            }
        }
    }

    /// How the client ended, and what it has said. A master connection may keep its streams open.
    async fn last_words(&mut self) -> (ExitStatus, Vec<String>) {
        let _ = timeout(REST, self.child.wait()).await;
        let _ = self.child.start_kill();
        let status = self.child.wait().await.unwrap_or_default();
        while let Ok(Ok(Some(line))) = timeout(REST, self.messages.next_line()).await {
            self.said.push(line);
        }
        (status, std::mem::take(&mut self.said))
    }

    async fn greet(&mut self) -> Result<(), Failure> {
        let Ok(line) = timeout(REACHED, self.line()).await else {
            return Err(Failure::Unreached(self.last_words().await.1));
        };
        let Some(line) = line else {
            let (status, said) = self.last_words().await;
            return Err(Failure::NoAgent(status, said));
        };
        match serde_json::from_str(&line) {
            Ok(Answer::Greeting(theirs)) if theirs == Greeting::ours() => Ok(()),
            Ok(Answer::Greeting(theirs)) => {
                let name = |one: &Greeting| format!("{} (ABI {})", one.version, one.abi);
                Err(Failure::Version {
                    theirs: name(&theirs),
                    ours: name(&Greeting::ours()),
                })
            }
            _ => Err(Failure::Foreign(line)),
        }
    }

    /// Compares its clock with this one: of several questions the one that took least.
    async fn compare(&mut self) -> Result<Compared, Failure> {
        let mut best: Option<Compared> = None;
        for _ in 0..QUESTIONS {
            let before = wall();
            self.say(&Ask::Time).await;
            let Ok(line) = timeout(REACHED, self.line()).await else {
                return Err(Failure::Silent(REACHED));
            };
            let after = wall();
            let Some(line) = line else {
                return Err(Failure::Cut(self.last_words().await.1));
            };
            let Ok(Answer::Time(said, is_kept)) = serde_json::from_str(&line) else {
                return Err(Failure::Foreign(line));
            };
            let compared = Compared::by(before, said, after, is_kept);
            if best.is_none_or(|best| compared.error < best.error) {
                best = Some(compared);
            }
        }
        best.ok_or(Failure::Silent(REACHED))
    }

    /// Says what may be larger than the connection takes at once: a profile.
    async fn ask(&mut self, ask: Ask) -> Result<(), Failure> {
        timeout(REACHED, self.say(&ask))
            .await
            .map_err(|_| Failure::Silent(REACHED))
    }

    /// Says it; whoever does not listen is noticed by its silence.
    async fn say(&mut self, ask: &Ask) {
        if let (Some(to), Ok(text)) = (&mut self.to, serde_json::to_string(ask)) {
            let _ = to.write_all(format!("{text}\n").as_bytes()).await;
            let _ = to.flush().await;
        }
    }
}

/// Waits until the crew wants the end, or is gone.
async fn is_to_end(phase: &mut watch::Receiver<Phase>) {
    let _ = phase.wait_for(|phase| matches!(phase, Phase::End)).await;
}

/// Reaches a machine, and has it do what is ordered until it is done, or is to end.
pub(crate) async fn tend(
    host: &str,
    way: &Way,
    order: &Order,
    mut phase: watch::Receiver<Phase>,
    tell: impl Fn(What),
) -> Result<(), Failure> {
    let mut link = tokio::select! {
        link = Link::reach(way, host) => link?,
        () = is_to_end(&mut phase) => return Ok(()),
    };
    let compared = link.compare().await?;
    tell(What::Reached(compared));
    // An error is the crew's end.
    let is_wanted = phase
        .wait_for(|phase| !matches!(phase, Phase::Reach))
        .await
        .is_ok_and(|phase| matches!(*phase, Phase::Work));
    if !is_wanted {
        return Ok(());
    }
    link.ask(Ask::Do(Box::new(order.clone()))).await?;
    let (mut beat, mut is_timed) = (interval(BEAT), false);
    let mut silent = Instant::now() + order.patience;
    loop {
        let is_ending = link.to.is_none();
        let wanted = async {
            let wanted = phase.wait_for(|phase| {
                matches!(phase, Phase::End) || matches!(phase, Phase::Time(..)) && !is_timed
            });
            wanted.await.map_or(Phase::End, |phase| phase.clone())
        };
        tokio::select! {
            line = link.line() => {
                let Some(line) = line else {
                    return Err(Failure::Cut(link.last_words().await.1));
                };
                if !is_ending {
                    silent = Instant::now() + order.patience;
                }
                match serde_json::from_str(&line) {
                    Ok(Answer::Up) => tell(What::Up),
                    Ok(Answer::Done(Some(0))) => tell(What::Timed),
                    Ok(Answer::Printed(line)) => tell(What::Printed(line)),
                    Ok(Answer::Said(line)) => tell(What::Said(line)),
                    Ok(Answer::Here) => {}
                    Ok(Answer::Ended(Some(0))) => return Ok(()),
                    // It had not begun.
                    Ok(Answer::Ended(None)) if is_ending => return Ok(()),
                    Ok(Answer::Done(code) | Answer::Ended(code)) => return Err(Failure::Failed(code)),
                    Ok(Answer::Greeting(_) | Answer::Time(..)) | Err(_) => return Err(Failure::Foreign(line)),
                }
            }
            wanted = wanted, if !is_ending => match wanted {
                Phase::Time(order, start) => {
                    is_timed = true;
                    let profile = order.profile.as_ref().map(|packed| packed.starting(compared.there(start)));
                    let order = Order { profile, ..(*order).clone() };
                    link.ask(Ask::Also(Box::new(order))).await?;
                }
                _ => {
                    link.to = None;
                    silent = Instant::now() + PATIENCE;
                }
            },
            () = sleep_until(silent) => {
                return Err(Failure::Silent(if is_ending { PATIENCE } else { order.patience }));
            }
            _ = beat.tick(), if !is_ending => {
                // A pipe that is full says what silence does.
                let _ = timeout(BEAT, link.say(&Ask::Stay)).await;
            }
        }
    }
}
