//! The course of an emulation in the process that keeps it up: from its beginning to its end.

use std::{
    io::{self, IsTerminal as _},
    time::Duration,
};

use anyhow::bail;
use perturb_dataplane::{loader::Loader, maps::Maps};
use perturb_emulator::{
    keeper::Trouble,
    logs,
    registry::{
        Record,
        terms::{Before, Due},
    },
    running::Running,
    signals::Interrupts,
    status::Report,
};
use perturb_present::LiveLine;
use tokio::time::{MissedTickBehavior, interval};

use super::{enter::Enter, silence::Silence, update::set_fq};
use crate::voice::{self, Voice};

/// How often it looks whether other commands have changed its record, and whether a lost interface has come back.
const LOOK: Duration = Duration::from_millis(500);

/// What ends it.
enum End {
    /// A signal: Ctrl-C, `perturb clear`, the end of a session.
    Asked,
    /// The time that it was to last is over.
    Over,
    /// Nobody has confirmed it.
    Unconfirmed,
    /// Somebody has changed something, or it cannot go on.
    Trouble(Trouble),
}

/// What a foreground process listens to.
pub(super) struct Course {
    interrupts: Interrupts,
    line: LiveLine<Voice>,
    quiet: bool,
    verbose: bool,
}

impl Course {
    /// Signals are noticed from now on.
    pub(super) fn prepare(quiet: bool, verbose: bool) -> anyhow::Result<Self> {
        Ok(Self {
            interrupts: Interrupts::listen()?,
            line: LiveLine::new(Voice, !quiet && io::stderr().is_terminal()),
            quiet,
            verbose,
        })
    }

    /// Goes on until something ends it, and takes it down; how many packets were still held.
    pub(super) async fn run(mut self, mut running: Running) -> anyhow::Result<u64> {
        voice::begin();
        let logs = self
            .verbose
            .then(|| logs::follow_logs(running.emulation.programs()))
            .transpose()?;
        if !self.quiet {
            let record = &running.record;
            log::info!(
                "emulating on {} with the {} pacer; Ctrl-C or `perturb clear` ends it",
                names(record),
                record.pacer
            );
        }
        let end = self.go_on(&mut running).await;
        self.line.keep();
        voice::settle();
        drop(logs);
        let names = names(&running.record);
        let lost = match end {
            Ok(End::Trouble(_)) => lost(&mut running),
            _ => 0,
        };
        let held = running.take_down()?;
        match end? {
            End::Asked | End::Over => Ok(held),
            End::Unconfirmed => bail!("nobody has confirmed it: the emulation on {names} is undone"),
            End::Trouble(trouble) => bail!(
                "{trouble}: the emulation has ended, and traffic on {names} passes untouched; {} packets were lost that its \
                 profile does not drop{}",
                held + lost,
                hint(&trouble)
            ),
        }
    }

    async fn go_on(&mut self, running: &mut Running) -> anyhow::Result<End> {
        let mut enter = Enter::listen(&running.record)?;
        let mut silence = Silence::begin(running)?;
        let mut ticks = interval(LOOK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        loop {
            let due = running.record.terms.due();
            let (left, what) = due.unwrap_or((Duration::MAX, Due::End));
            tokio::select! {
                () = self.interrupts.received() => return Ok(End::Asked),
                () = tokio::time::sleep(left), if due.is_some() => {
                    // Who pressed Enter in time must not lose by another command that was busy then.
                    if what == Due::Confirm && enter.was_pressed() {
                        enter.confirm(running)?;
                    } else if let Some(end) = come_due(running, what)? {
                        return Ok(end);
                    }
                }
                trouble = running.keeper.trouble() => match trouble {
                    Trouble::Fault(fault) if fault.is_loss_of_interface() && running.record.terms.follow => {
                        log::info!(
                            "{fault}; waiting until there is an interface {} again",
                            fault.interface
                        );
                        running.lose(&fault)?;
                    }
                    trouble => return Ok(End::Trouble(trouble)),
                },
                () = enter.pressed() => enter.confirm(running)?,
                _ = ticks.tick() => {
                    running.refresh()?;
                    if enter.was_pressed() {
                        enter.confirm(running)?;
                    }
                    enter.look(&running.record);
                    running.regain()?;
                    if self.line.is_on()
                        && let Some(totals) = crate::cli::totals(&running.record)?
                    {
                        self.line.show(totals);
                    }
                    silence.look(running)?;
                }
            }
        }
    }
}

/// What is due now, unless another command has changed it meanwhile.
fn come_due(running: &mut Running, what: Due) -> anyhow::Result<Option<End>> {
    let is_due = |record: &Record| {
        let due = record.terms.due();
        due.is_some_and(|(left, due)| left.is_zero() && due == what)
    };
    if what == Due::End {
        running.refresh()?;
        return Ok(is_due(&running.record).then_some(End::Over));
    }
    // Under the registry's lock: it may be confirmed at this moment.
    let mut ended = Ok(None);
    running.amend(|record| {
        if is_due(record) {
            ended = match record.terms.confirm.take().and_then(|confirm| confirm.before) {
                Some(before) => go_back(record, before).map(|()| None),
                None => Ok(Some(End::Unconfirmed)),
            };
        }
    })?;
    ended
}

/// Puts the tables that were in force before in force again: they are in the other half of the maps.
fn go_back(record: &mut Record, before: Before) -> anyhow::Result<()> {
    let mut loader = Loader::resume(Maps::by_id(&record.maps)?, record.slots.clone())?;
    if let (Some(new), Some(old)) = (record.fq, before.fq) {
        // What the tables that go have stamped must be admitted, too, until they are gone.
        set_fq(record, new.widest(old))?;
    }
    loader.go_back(before.slots.clone())?;
    if let Some(old) = before.fq {
        set_fq(record, old)?;
    }
    record.profile = before.profile;
    record.classes = before.classes;
    record.servers = before.servers;
    record.slots = before.slots;
    record.fq = before.fq;
    record.held = before.held;
    record.updates += 1;
    record.terms.lease = before.lease;
    record.terms.ends = before.ends;
    record.terms.follow = before.follow;
    log::info!("nobody has confirmed the change: the profile before is in force again");
    Ok(())
}

fn names(record: &Record) -> String {
    let names: Vec<&str> = record
        .interfaces
        .iter()
        .map(|interface| interface.name.as_str())
        .collect();
    names.join(", ")
}

/// Packets that were lost and should not have been, those that are still held apart. What cannot be read any more is not
/// counted.
fn lost(running: &mut Running) -> u64 {
    match Report::settled(running) {
        Ok(Some(report)) => report.lost(),
        _ => 0,
    }
}

fn hint(trouble: &Trouble) -> &'static str {
    match trouble {
        Trouble::Fault(fault) if fault.is_loss_of_interface() => {
            "; with --follow perturb waits for an interface of that name"
        }
        _ => "",
    }
}
