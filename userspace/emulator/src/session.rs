//! The course of an emulation in the process that keeps it up, from its beginning to its end: the one place where signals are
//! handled, where the record is looked at, and where an emulation is taken down.
//!
//! ```text
//! open ──► put (begins, or changes) ──► keep (until the work is done, or something ends it) ──► end (settles, takes down)
//!            ▲                            │
//!            └──── errands of a Handle ◄──┘
//! ```
//!
//! What it lacks: a word on the terminal (messages go to [`log`]), and exit codes.

#[cfg(test)]
mod tests;

use std::{
    future::Future,
    mem,
    pin::pin,
    sync::{Arc, mpsc},
    time::Duration,
};

use anyhow::Context as _;
use nix::unistd::Pid;
use tokio::{
    sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel},
    time::{MissedTickBehavior, interval, sleep},
};

use crate::{
    conduct::Conduct,
    hosts::Follower,
    keeper::Trouble,
    kernel::Kernel,
    lab::{self, Lab},
    logs::{LogFollower, follow_logs},
    prepared::Prepared,
    registry::{
        Record, Registry,
        terms::{Due, Terms},
    },
    running::Running,
    seam::Machine,
    setup::{Target, set_up},
    signals::Signals,
    silence::Silence,
    status::{Fault, Report},
};

/// How often it looks whether other commands have changed its record, and whether a lost interface has come back.
const LOOK: Duration = Duration::from_millis(500);

/// Where an emulation is.
pub enum Place<'a> {
    /// On interfaces of this namespace. The registry stays locked until it has begun.
    Interfaces(Option<Registry>, Vec<Target>),
    /// Between private hosts.
    Hosts(&'a Lab),
}

/// What a signal does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnSignal {
    /// It ends the emulation.
    End,
    /// A command's stage gets it.
    Pass(Pid),
}

/// What somebody else's interference does, or the loss of the lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnTrouble {
    /// It ends the emulation.
    End,
    /// The work goes on without it.
    GoOn,
}

/// What ended it.
#[derive(Debug)]
pub enum End<T> {
    /// The work is done.
    Done(T),
    /// A signal: Ctrl-C, `perturb clear`, the end of a session.
    Asked,
    /// The time that it was to last is over.
    Over,
    /// Nobody has confirmed it.
    Unconfirmed,
    /// Somebody has changed something, or it cannot go on.
    Trouble(Trouble),
}

/// How it ended.
#[derive(Debug)]
pub struct Outcome<T> {
    /// What ended it.
    pub end: End<T>,
    /// What it had done, once traffic rested; nothing if it had not begun or was gone.
    pub report: anyhow::Result<Option<Report>>,
    /// Packets that were still held on interfaces, and are lost.
    pub held: u64,
    /// What the work went on in spite of.
    pub trouble: Option<Trouble>,
}

impl<T> Outcome<T> {
    /// What speaks against whatever was measured meanwhile, as far as that is known.
    pub fn faults(&self) -> Vec<Fault> {
        match &self.report {
            Ok(Some(report)) => report.faults(),
            _ => Vec::new(),
        }
    }
}

/// An emulation, and what its process listens to. Dropping it takes the emulation down.
pub struct Session<'a> {
    core: Core<'a>,
    signals: &'a mut Signals,
    witness: &'a mut dyn FnMut(&Record),
    handle: Handle,
    errands: UnboundedReceiver<Errand>,
}

/// What errands may do with the emulation.
pub struct Core<'a> {
    machine: Arc<dyn Machine>,
    place: Place<'a>,
    conduct: Conduct,
    running: Option<Running>,
    silence: Option<Silence>,
    follower: Follower,
    logs: Option<LogFollower>,
    /// It is to be confirmed, and that could not be noted in the record yet.
    confirms: bool,
    trouble: Option<Trouble>,
}

type Errand = Box<dyn FnOnce(&mut Core<'_>) + Send>;

/// From another thread to the session.
#[derive(Clone)]
pub struct Handle(UnboundedSender<Errand>);

impl Handle {
    /// Has the session do something while it is [kept](Session::keep), and waits for what comes of it.
    ///
    /// # Errors
    /// When the session has ended.
    pub fn ask<T: Send + 'static>(
        &self,
        what: impl FnOnce(&mut Core<'_>) -> T + Send + 'static,
    ) -> anyhow::Result<T> {
        let (tell, told) = mpsc::channel();
        // Nobody waits any more if the thread that asked has ended.
        let errand = move |core: &mut Core<'_>| drop(tell.send(what(core)));
        let sent = self.0.send(Box::new(errand)).ok();
        sent.and_then(|()| told.recv().ok())
            .context("the emulation's session has ended")
    }

    /// Keeps what waits to be confirmed, at the next occasion.
    pub fn confirm(&self) {
        // A session that has ended has nothing to confirm.
        let _ = self.0.send(Box::new(|core| core.confirms = true));
    }
}

impl<'a> Session<'a> {
    /// Nothing is emulated yet. `witness` is shown the record now and then, about twice a second.
    pub fn open(
        place: Place<'a>,
        conduct: Conduct,
        signals: &'a mut Signals,
        witness: &'a mut dyn FnMut(&Record),
    ) -> Self {
        Self::on(Arc::new(Kernel), place, conduct, signals, witness)
    }

    fn on(
        machine: Arc<dyn Machine>,
        place: Place<'a>,
        conduct: Conduct,
        signals: &'a mut Signals,
        witness: &'a mut dyn FnMut(&Record),
    ) -> Self {
        let (handle, errands) = unbounded_channel();
        Self {
            core: Core {
                machine,
                place,
                conduct,
                running: None,
                silence: None,
                follower: Follower::new(),
                logs: None,
                confirms: false,
                trouble: None,
            },
            signals,
            witness,
            handle: Handle(handle),
            errands,
        }
    }

    /// The emulation.
    pub fn core(&mut self) -> &mut Core<'a> {
        &mut self.core
    }

    /// For other threads.
    #[must_use]
    pub fn handle(&self) -> Handle {
        self.handle.clone()
    }

    /// Keeps the emulation up until the work is done, or something ends it. Errors end it, too: give them to [`Self::end`].
    pub async fn keep<T>(
        &mut self,
        work: impl Future<Output = T>,
        on_signal: OnSignal,
        on_trouble: OnTrouble,
    ) -> anyhow::Result<End<T>> {
        let mut work = pin!(work);
        let mut ticks = interval(LOOK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        loop {
            let due = self.core.terms().and_then(Terms::due);
            let (left, what) = due.unwrap_or((Duration::MAX, Due::End));
            tokio::select! {
                done = &mut work => return Ok(End::Done(done)),
                signal = self.signals.next() => match on_signal {
                    OnSignal::End => return Ok(End::Asked),
                    OnSignal::Pass(pid) => lab::inside::pass_on(pid.as_raw(), signal as i32),
                },
                () = sleep(left), if due.is_some() => {
                    // Who has confirmed in time, on another thread, must not lose by this one's being late.
                    while let Ok(errand) = self.errands.try_recv() {
                        errand(&mut self.core);
                    }
                    if let Some(end) = self.core.come_due(what)? {
                        return Ok(end);
                    }
                }
                trouble = self.core.meets_trouble() => {
                    if let Some(trouble) = self.core.get_over(trouble, on_trouble)? {
                        return Ok(End::Trouble(trouble));
                    }
                }
                Some(errand) = self.errands.recv() => {
                    errand(&mut self.core);
                    self.core.confirm_if_asked()?;
                }
                _ = ticks.tick() => {
                    self.core.look()?;
                    if let Some(running) = &self.core.running {
                        (self.witness)(&running.record);
                    }
                }
            }
        }
    }

    /// Takes the emulation down, whatever has ended it: what it has done is known then, once its traffic rests.
    pub fn end<T>(self, end: anyhow::Result<End<T>>) -> anyhow::Result<Outcome<T>> {
        let mut core = self.core;
        // Whatever waits for an answer learns that there is none.
        drop(self.errands);
        let trouble = core.trouble.take();
        let taken = core.take_down();
        match (end, taken) {
            (Ok(end), Ok((report, held))) => Ok(Outcome {
                end,
                report,
                held,
                trouble,
            }),
            (Err(error), taken) => {
                if let Err(further) = taken {
                    log::error!("{further:#}");
                }
                Err(error)
            }
            (Ok(_), Err(error)) => Err(error),
        }
    }
}

impl Core<'_> {
    /// Puts a profile in force: begins the emulation, or changes it.
    pub fn put(&mut self, prepared: &Prepared) -> anyhow::Result<()> {
        if let Some(running) = &mut self.running {
            return running.put(prepared);
        }
        let mut running = match &mut self.place {
            Place::Hosts(lab) => lab::emulate(lab, prepared, self.conduct)?,
            Place::Interfaces(registry, targets) => {
                let first = targets.first().context("no interface named")?;
                let registry = registry.take().context("the registry is not locked")?;
                let id = format!("{}-{}", first.namespace.inode()?, first.link.index);
                self.machine.keep_needed()?;
                let targets = mem::take(targets);
                set_up(&self.machine, &registry, &id, prepared, targets, self.conduct)?
            }
        };
        if let Place::Interfaces(..) = &self.place {
            self.silence = Some(Silence::begin(&running)?);
        }
        if self.conduct.verbose
            && let Some(programs) = running.plane.programs()
        {
            self.logs = Some(follow_logs(programs)?);
        }
        self.running = Some(running);
        Ok(())
    }

    /// Ends the emulation of private hosts, which may begin again.
    pub fn clear(&mut self) -> anyhow::Result<()> {
        self.logs = None;
        self.running.take().map_or(Ok(()), Running::abandon)
    }

    /// The emulation, if it has begun.
    pub fn running(&mut self) -> Option<&mut Running> {
        self.running.as_mut()
    }

    fn terms(&self) -> Option<&Terms> {
        self.running.as_ref().map(|running| &running.record.terms)
    }

    /// The next trouble; never, if there was one that the work has gone on in spite of.
    async fn meets_trouble(&mut self) -> Trouble {
        match &mut self.running {
            Some(running) if self.trouble.is_none() => running.keeper.trouble().await,
            _ => std::future::pending().await,
        }
    }

    /// The trouble, unless the emulation or the work goes on.
    fn get_over(&mut self, trouble: Trouble, on_trouble: OnTrouble) -> anyhow::Result<Option<Trouble>> {
        let Some(running) = &mut self.running else {
            return Ok(Some(trouble));
        };
        match trouble {
            Trouble::Fault(fault) if fault.is_loss_of_interface() && running.record.terms.follow => {
                log::info!(
                    "{fault}; waiting until there is an interface {} again",
                    fault.interface
                );
                running.lose(&fault)?;
                Ok(None)
            }
            trouble if on_trouble == OnTrouble::GoOn => {
                log::error!("{trouble}; nothing is emulated from now on");
                self.trouble = Some(trouble);
                Ok(None)
            }
            trouble => Ok(Some(trouble)),
        }
    }

    /// What is due now, unless another command has changed it meanwhile.
    fn come_due<T>(&mut self, what: Due) -> anyhow::Result<Option<End<T>>> {
        // Who has confirmed in time must not lose by another command that was busy then.
        if what == Due::Confirm && self.confirms {
            self.confirm_if_asked()?;
            return Ok(None);
        }
        let Some(running) = &mut self.running else {
            return Ok(None);
        };
        let is_due = |record: &Record| {
            let due = record.terms.due();
            due.is_some_and(|(left, due)| left.is_zero() && due == what)
        };
        match what {
            Due::End => {
                running.refresh()?;
                Ok(is_due(&running.record).then_some(End::Over))
            }
            Due::Confirm => Ok(running.undo(is_due)?.then_some(End::Unconfirmed)),
        }
    }

    /// Keeps what waits to be confirmed, if that was asked for here. A change of an emulation that runs already was given
    /// elsewhere: whoever confirms here may know nothing of it.
    fn confirm_if_asked(&mut self) -> anyhow::Result<()> {
        let (Some(running), true) = (&mut self.running, self.confirms) else {
            return Ok(());
        };
        let mut waited = false;
        // If another command changes the registry at this moment, it is to be tried again.
        self.confirms = !running.amend(|record, _| {
            waited = record.terms.waits_here();
            if waited {
                record.terms.confirm = None;
            }
            Ok(())
        })?;
        if waited {
            log::info!("confirmed");
        }
        Ok(())
    }

    /// Looks at the record, and for interfaces that have come back.
    fn look(&mut self) -> anyhow::Result<()> {
        let (Some(running), Place::Interfaces(..)) = (&mut self.running, &self.place) else {
            // No other command changes the record of private hosts.
            return Ok(());
        };
        running.refresh()?;
        self.confirm_if_asked()?;
        if let Some(running) = &mut self.running {
            running.regain()?;
            self.follower.look(running)?;
            if let Some(silence) = &mut self.silence {
                silence.look(running)?;
            }
        }
        Ok(())
    }

    /// Takes it down: what it has done, once traffic rests, and what was still held.
    fn take_down(&mut self) -> anyhow::Result<(anyhow::Result<Option<Report>>, u64)> {
        let Some(mut running) = self.running.take() else {
            return Ok((Ok(None), 0));
        };
        let drained = match &self.place {
            // Others' packets leave at their time.
            Place::Interfaces(..) => running.drain(),
            // The hosts' processes are gone: nobody waits for what is still held.
            Place::Hosts(_) => Ok(0),
        };
        let report = running.settled();
        self.logs = None;
        let abandoned = running.abandon();
        let held = drained?;
        abandoned?;
        Ok((report, held))
    }
}
