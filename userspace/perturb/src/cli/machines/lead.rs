//! A crew led through its stages: reached, begun, timed, ended.

use std::{
    collections::BTreeMap,
    process::{self, ExitStatus},
    time::Duration,
};

use anyhow::{Context as _, bail};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use perturb_emulator::signals::Signals;
use perturb_machines::{Compared, Crew, Heard, Hosts, Order, Stage, Way, What};
use perturb_profile::{Loaded, Start};
use tokio::{process::Command, time::sleep};

use crate::voice;

/// From when all machines emulate until timelines begin: they are told when, by a change of the profile.
const LEAD: Duration = Duration::from_secs(5);
/// Until then they wait for this, 2500-01-01, in ns since 1970.
pub(super) const NEVER: u64 = 16_725_225_600_000_000_000;

/// A profile that changes from when it is put in force.
#[derive(Clone, Copy)]
pub(super) struct Changes {
    /// For how long; `None` is for ever.
    length: Option<Duration>,
}

impl Changes {
    pub(super) fn of(loaded: &Loaded, duration: Option<Duration>) -> Option<Self> {
        let profile = &loaded.profile;
        let changes = perturb_profile::explain(profile, &loaded.files).changes;
        if profile.timeline.start != Start::Apply || changes.is_empty() && profile.timeline.steps.is_empty() {
            return None;
        }
        let repeats = profile.timeline.repeat.is_some() || changes.iter().any(|change| change.repeats);
        let lengths = changes.iter().map(|change| Duration::from(change.length));
        let steps = profile.timeline.steps.iter().map(|step| step.at.into());
        let own = lengths.chain(steps).max().filter(|_| !repeats);
        Some(Self {
            length: own.into_iter().chain(duration).min(),
        })
    }

    /// How far apart they are at most on machines with these clocks.
    fn apart(self, clocks: &BTreeMap<String, Compared>, together: Duration) -> anyhow::Result<Duration> {
        let mut most = Duration::ZERO;
        for (host, clock) in clocks {
            let Ok(apart) = clock.apart(self.length) else {
                bail!(
                    "{host}: nobody keeps its clock, as chrony does, so what repeats for ever drifts apart; end it with --for"
                );
            };
            if apart > together {
                bail!(
                    "{host}: its clock is known to {:?}, and its timelines would be {apart:?} from the others', more than --together {together:?}{}",
                    clock.error,
                    if clock.is_kept {
                        ""
                    } else {
                        ": nobody keeps it, as chrony does"
                    }
                );
            }
            most = most.max(apart);
        }
        Ok(most)
    }
}

/// What is done on machines, and here meanwhile.
pub(super) struct Errand {
    pub(super) hosts: Hosts,
    pub(super) way: Way,
    /// What tells them to change the profile.
    pub(super) change: Vec<String>,
    /// Whether the others go on when one fails.
    pub(super) keep_going: bool,
    pub(super) together: Duration,
    pub(super) quiet: bool,
    /// For its time only; without one until a signal comes.
    pub(super) command: Option<process::Command>,
}

/// What has come of it.
pub(super) struct Done {
    /// How the command ended; nothing if it did not begin.
    pub(super) ended: Option<ExitStatus>,
    /// Machines that have failed.
    pub(super) failed: Vec<String>,
    /// What each has printed.
    pub(super) printed: BTreeMap<String, String>,
}

impl Errand {
    /// Leads them from the beginning to the end.
    ///
    /// # Errors
    /// When nothing was emulated, or, without a command, when one has failed and the others were not to go on.
    pub(super) async fn lead(self, order: &Order, changes: Option<Changes>) -> anyhow::Result<Done> {
        let mut signals = match self.command {
            Some(_) => Signals::listen_for_command()?,
            None => Signals::listen()?,
        };
        voice::begin();
        let mut led = Led::call(&self.way, all(&self.hosts, order));
        let begun = self.begin(&mut led, &mut signals, order, changes).await;
        let (mut ended, is_begun) = (None, matches!(begun, Ok(true)));
        let mut refused = begun.err();
        if is_begun {
            match self.command {
                Some(command) => match led.attend(command, &mut signals).await {
                    Ok(status) => ended = Some(status),
                    Err(error) => refused = Some(error),
                },
                None => tokio::select! {
                    () = led.until(Stage::Gone, self.keep_going) => {}
                    _ = signals.next() => {}
                },
            }
        }
        led.crew.end();
        led.until(Stage::Gone, true).await;
        let after = if is_begun {
            "the emulation has ended on all machines"
        } else {
            "nothing is applied on any machine"
        };
        if let Some(error) = refused {
            bail!("{error:#}; {after}");
        }
        let names = led.failed.join(", ");
        if led.failed.is_empty() {
            log::info!("cleared on all {} machines", self.hosts.names().count());
        } else if self.keep_going {
            log::warn!("failed on {names}");
        } else if ended.is_none() {
            bail!("failed on {names}: {after}");
        }
        Ok(Done {
            ended,
            failed: led.failed,
            printed: led.printed,
        })
    }

    /// Until all emulate, and their timelines have begun: whether they do.
    async fn begin(
        &self,
        led: &mut Led,
        signals: &mut Signals,
        order: &Order,
        changes: Option<Changes>,
    ) -> anyhow::Result<bool> {
        let (mut apart, mut start) = (Duration::ZERO, 0);
        let last = if changes.is_some() {
            Stage::Timed
        } else {
            Stage::Up
        };
        for stage in [Stage::Reached, Stage::Up, Stage::Timed] {
            tokio::select! {
                () = led.until(stage, self.keep_going) => {}
                _ = signals.next() => return Ok(false),
            }
            if !self.keep_going && !led.failed.is_empty() {
                return Ok(false);
            }
            match (stage, changes) {
                (Stage::Reached, _) => {
                    let within = changes.map(|changes| changes.apart(&led.clocks, self.together));
                    apart = within.transpose()?.unwrap_or_default();
                    led.crew.begin();
                }
                (Stage::Up, Some(_)) => {
                    start = perturb_clock::wall() + LEAD.as_nanos() as u64;
                    let order = Order {
                        words: self.change.clone(),
                        ..order.clone()
                    };
                    led.crew.time(order, start);
                }
                _ => {}
            }
            if stage == last {
                break;
            }
        }
        if changes.is_some() {
            let left = start.saturating_sub(perturb_clock::wall());
            if left == 0 {
                bail!(
                    "timelines would not begin together: to tell all machines when took longer than {} s",
                    LEAD.as_secs()
                );
            }
            if !led
                .stay(Duration::from_nanos(left), signals, self.keep_going)
                .await
            {
                return Ok(true);
            }
        }
        let names: Vec<&str> = led.crew.at(last).collect();
        if !names.is_empty() && !self.quiet {
            if changes.is_some() {
                log::info!("timelines have begun together, within {apart:?}");
            }
            log::info!("emulating on {}; Ctrl-C ends it", names.join(", "));
        }
        Ok(true)
    }
}

/// The same of each.
fn all(hosts: &Hosts, order: &Order) -> BTreeMap<String, Order> {
    hosts
        .names()
        .map(|host| (host.to_owned(), order.clone()))
        .collect()
}

/// A crew, those of it that have failed, and what it has printed.
pub(super) struct Led {
    pub(super) crew: Crew,
    pub(super) failed: Vec<String>,
    clocks: BTreeMap<String, Compared>,
    pub(super) printed: BTreeMap<String, String>,
}

impl Led {
    pub(super) fn call(way: &Way, orders: BTreeMap<String, Order>) -> Self {
        Self {
            crew: Crew::call(way, orders),
            failed: Vec::new(),
            clocks: BTreeMap::new(),
            printed: BTreeMap::new(),
        }
    }

    /// Has each of them do something that ends by itself.
    pub(super) async fn each(hosts: &Hosts, way: &Way, words: Vec<String>, patience: Duration) -> Self {
        let order = Order {
            words,
            profile: None,
            patience,
        };
        let mut led = Self::call(way, all(hosts, &order));
        led.crew.begin();
        led.until(Stage::Gone, true).await;
        led
    }

    /// Hears them while a command runs here; how it ended. What a terminal sends, it sends to the command, too.
    async fn attend(
        &mut self,
        command: process::Command,
        signals: &mut Signals,
    ) -> anyhow::Result<ExitStatus> {
        let program = command.get_program().display().to_string();
        let mut child = Command::from(command)
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("cannot run {program}"))?;
        loop {
            tokio::select! {
                status = child.wait() => return status.context("waiting for the command"),
                () = self.until(Stage::Gone, true), if !self.crew.are(Stage::Gone) => {}
                signal = signals.next() => {
                    if let (Some(pid), Signal::SIGTERM | Signal::SIGHUP) = (child.id(), signal) {
                        let _ = kill(Pid::from_raw(pid.cast_signed()), signal);
                    }
                }
            }
        }
    }

    /// Hears them for so long; whether all is as it was.
    async fn stay(&mut self, time: Duration, signals: &mut Signals, keep_going: bool) -> bool {
        tokio::select! {
            () = self.until(Stage::Gone, keep_going) => {}
            _ = signals.next() => return false,
            () = sleep(time) => {}
        }
        keep_going || self.crew.at(Stage::Gone).next().is_none()
    }

    /// Hears them until all are as far, or, unless it is to go on then, one has failed or ended. It says what they say.
    pub(super) async fn until(&mut self, stage: Stage, keep_going: bool) {
        while !self.crew.are(stage) {
            let Some(Heard { host, what }) = self.crew.next().await else {
                return;
            };
            match what {
                What::Reached(clock) => drop(self.clocks.insert(host, clock)),
                What::Up | What::Timed => {}
                What::Printed(line) => {
                    let printed = self.printed.entry(host).or_default();
                    printed.push_str(&line);
                    printed.push('\n');
                }
                What::Said(line) => {
                    let line = line.trim_start_matches("perturb: ");
                    match line.strip_prefix("warning: ") {
                        Some(line) => log::warn!("{host}: {line}"),
                        None => log::info!("{host}: {line}"),
                    }
                }
                What::Gone(done) => {
                    if let Err(failure) = done {
                        log::error!("{host}: {failure}");
                        self.failed.push(host);
                    }
                    if !keep_going {
                        return;
                    }
                }
            }
        }
    }
}
