//! The course of sessions on a machine in memory.

mod fake;

use std::{fs, path::Path, sync::Arc, time::Duration};

use anyhow::Context as _;
use nix::sys::signal::{SigHandler, Signal, raise, signal};
use perturb_dataplane::{
    namespace::Namespace,
    programs::Pacer,
    watch::{Change, Fault},
};
use tokio::{
    sync::{Mutex, MutexGuard},
    task::spawn_blocking,
    time::sleep,
};

use self::fake::{Fake, link};
use super::{End, OnSignal, OnTrouble, Outcome, Place, Session};
use crate::{
    conduct::{Conduct, Lease, PacerChoice, Pacing},
    prepared::Prepared,
    registry::{
        Record, Registry,
        terms::{Before, Confirm, after},
    },
    running::Running,
    setup::Target,
    signals::{Signals, is_ignored},
};

type Tested = anyhow::Result<()>;

/// A signal reaches every session of the process: one test at a time.
static TURN: Mutex<()> = Mutex::const_new(());
/// Longer than anything that a test waits for.
const LONG: Duration = Duration::from_secs(10);
const SHORT: Duration = Duration::from_millis(50);

/// A machine, and a directory of records.
struct Bed {
    machine: Fake,
    records: tempfile::TempDir,
    _turn: MutexGuard<'static, ()>,
}

fn conduct() -> Conduct {
    let pacing = Pacing {
        choice: PacerChoice::Only(Pacer::User),
        spin: perturb_dataplane::user::SpinBudget::default(),
    };
    Conduct {
        // The keeper looks every few milliseconds.
        lease: Lease::For(Duration::from_millis(20)),
        ..Conduct::of_hosts(pacing, false)
    }
}

fn prepared(name: &str) -> anyhow::Result<Prepared> {
    let text = format!("version: 1\nname: {name}\nlatency: 1ms\n");
    let profile = perturb_profile::parse(&text)?;
    Ok(Prepared::of(profile, &[])?)
}

fn deleted() -> Fault {
    Fault {
        interface: "eth0".into(),
        device: "eth0".into(),
        change: Change::Deleted,
    }
}

fn detached() -> Fault {
    Fault {
        device: "pthold7".into(),
        ..deleted()
    }
}

impl Bed {
    async fn new() -> anyhow::Result<Self> {
        Ok(Self {
            _turn: TURN.lock().await,
            machine: Fake::default(),
            records: tempfile::tempdir()?,
        })
    }

    fn place(&self) -> anyhow::Result<Place<'static>> {
        let registry = Registry::at(self.records.path(), Duration::ZERO)?;
        let target = Target {
            namespace: Namespace::current()?,
            link: link("eth0", 7),
            host: None,
            container: None,
            rank: 0,
            indices: [0; 4],
        };
        Ok(Place::Interfaces(Some(registry), vec![target]))
    }

    /// Begins an emulation of the profile `first`, and keeps it as long as `work` lasts, which gets what another thread or
    /// command would.
    async fn keep<T>(
        &self,
        conduct: Conduct,
        on_trouble: OnTrouble,
        work: impl AsyncFnOnce(super::Handle) -> T,
    ) -> anyhow::Result<Outcome<T>> {
        let mut signals = Signals::listen()?;
        let mut nobody = |_: &Record| ();
        let machine = Arc::new(self.machine.clone());
        let mut session = Session::on(machine, self.place()?, conduct, &mut signals, &mut nobody);
        session.core().put(&prepared("first")?)?;
        assert_eq!(self.recorded()?.len(), 1);
        let work = work(session.handle());
        let end = session.keep(work, OnSignal::End, on_trouble).await;
        let outcome = session.end(end)?;
        // Whatever has ended it: what it has done is known, and nothing is left.
        assert!(self.machine.is_down());
        assert!(self.recorded()?.is_empty());
        let done = self.machine.state().done.clone();
        assert_eq!(done[done.len() - 3..], ["detach", "settled", "close"]);
        assert!(matches!(&outcome.report, Ok(Some(report)) if report.balance.unaccounted == 0));
        Ok(outcome)
    }

    /// The records on disk.
    fn recorded(&self) -> anyhow::Result<Vec<String>> {
        let mut found = Vec::new();
        for entry in fs::read_dir(self.records.path())? {
            let path = entry?.path().join("record.json");
            if path.exists() {
                found.push(fs::read_to_string(path)?);
            }
        }
        Ok(found)
    }

    /// What another command does to the record.
    fn change(&self, change: impl FnOnce(&mut Record)) -> Tested {
        let _registry = Registry::at(self.records.path(), LONG)?;
        let text = self.recorded()?.concat();
        let mut record: Record = serde_json::from_str(&text)?;
        record.root = Path::new(self.records.path()).into();
        change(&mut record);
        Ok(record.write()?)
    }
}

#[tokio::test]
async fn work_is_done() -> Tested {
    let bed = Bed::new().await?;
    let outcome = bed
        .keep(conduct(), OnTrouble::End, async |_| {
            sleep(SHORT).await;
            7
        })
        .await?;
    assert!(matches!(outcome.end, End::Done(7)));
    assert!(outcome.faults().is_empty());
    Ok(())
}

#[tokio::test]
async fn a_signal_ends_it_and_the_balance_is_known() -> Tested {
    for name in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP] {
        let bed = Bed::new().await?;
        // Tests may run under `nohup`, and what was ignored from the start ends nothing.
        if is_ignored(name)? {
            // SAFETY: no handler of this process's is replaced, and the default one has no code here.
            unsafe { signal(name, SigHandler::SigDfl) }?;
        }
        bed.machine.state().unsettled = 3;
        bed.machine.state().dropped = 5;
        bed.machine.state().held = 4;
        let work = async |_| {
            sleep(SHORT).await;
            raise(name).map_err(anyhow::Error::from)?;
            sleep(LONG).await;
            anyhow::Ok(())
        };
        let outcome = bed.keep(conduct(), OnTrouble::End, work).await?;
        assert!(matches!(outcome.end, End::Asked), "{name}");
        assert_eq!(outcome.held, 0, "they have left");
        // What was dropped before the signal came is no less a fault.
        assert_eq!(outcome.faults().len(), 1, "{name}");
    }
    Ok(())
}

#[tokio::test]
async fn it_ends_when_its_time_is_over() -> Tested {
    let bed = Bed::new().await?;
    let conduct = Conduct {
        duration: Some(SHORT),
        ..conduct()
    };
    let outcome = bed
        .keep(conduct, OnTrouble::End, async |_| sleep(LONG).await)
        .await?;
    assert!(matches!(outcome.end, End::Over));
    Ok(())
}

#[tokio::test]
async fn another_command_may_put_its_end_off() -> Tested {
    let bed = Bed::new().await?;
    let brief = Conduct {
        duration: Some(Duration::from_millis(600)),
        ..conduct()
    };
    let work = async |_| {
        sleep(SHORT).await;
        bed.change(|record| record.terms.ends = Some(after(LONG)))?;
        sleep(Duration::from_millis(900)).await;
        anyhow::Ok(())
    };
    let outcome = bed.keep(brief, OnTrouble::End, work).await?;
    assert!(matches!(outcome.end, End::Done(Ok(()))));
    Ok(())
}

#[tokio::test]
async fn interference_ends_it_and_traffic_passes_at_once() -> Tested {
    let bed = Bed::new().await?;
    let work = async |_| {
        bed.machine.state().fault = Some(detached());
        sleep(LONG).await;
    };
    let outcome = bed.keep(conduct(), OnTrouble::End, work).await?;
    assert!(matches!(outcome.end, End::Trouble(_)));
    assert_eq!(bed.machine.state().lease, 0);
    Ok(())
}

#[tokio::test]
async fn a_command_may_go_on_without_emulation() -> Tested {
    let bed = Bed::new().await?;
    let work = async |_| {
        bed.machine.state().fault = Some(detached());
        sleep(4 * SHORT).await;
        assert_eq!(bed.machine.state().lease, 0);
        "done"
    };
    let outcome = bed.keep(conduct(), OnTrouble::GoOn, work).await?;
    assert!(matches!(outcome.end, End::Done("done")));
    assert!(outcome.trouble.is_some());
    Ok(())
}

/// What is asked of the session from another thread is done as if another command did it.
#[tokio::test]
async fn it_is_paused_resumed_and_changed_from_elsewhere() -> Tested {
    let bed = Bed::new().await?;
    let bed = &bed;
    let work = async |handle: super::Handle| {
        let ask = async |change: fn(&mut Running) -> anyhow::Result<bool>| {
            let handle = handle.clone();
            let asked = spawn_blocking(move || handle.ask(move |core| core.running().map(change))).await??;
            sleep(SHORT).await;
            asked.context("nothing is emulated")?
        };
        anyhow::ensure!(ask(|running| running.pause(true)).await?);
        assert_eq!(bed.machine.state().lease, 0);
        assert!(bed.recorded()?.concat().contains("\"paused\": true"));
        anyhow::ensure!(ask(|running| running.pause(false)).await?);
        assert!(bed.machine.state().lease > 0);
        anyhow::ensure!(ask(|running| running.change(&prepared("second")?)).await?);
        assert!(bed.recorded()?.concat().contains("name: second"));
        let busy = Registry::at(bed.records.path(), LONG)?;
        anyhow::ensure!(!ask(|running| running.change(&prepared("third")?)).await?);
        drop(busy);
        bed.change(|record| {
            record.terms.confirm = Some(Confirm {
                by: after(LONG),
                before: None,
            });
        })?;
        let refused = ask(|running| running.change(&prepared("third")?)).await;
        assert!(refused.is_err_and(|error| error.to_string().contains("not confirmed")));
        anyhow::Ok(())
    };
    let outcome = bed.keep(conduct(), OnTrouble::End, work).await?;
    assert!(matches!(outcome.end, End::Done(Ok(()))), "{:?}", outcome.end);
    Ok(())
}

#[tokio::test]
async fn what_nobody_confirms_is_undone() -> Tested {
    let unconfirmed = Conduct {
        confirm: Some(4 * SHORT),
        ..conduct()
    };
    let bed = Bed::new().await?;
    let missed = bed
        .keep(unconfirmed, OnTrouble::End, async |_| sleep(LONG).await)
        .await?;
    assert!(matches!(missed.end, End::Unconfirmed));
    drop(bed);

    let bed = Bed::new().await?;
    let work = async |handle: super::Handle| {
        handle.confirm();
        sleep(8 * SHORT).await;
        assert!(!bed.recorded()?.concat().contains("\"by\""));
        anyhow::Ok(())
    };
    let confirmed = bed.keep(unconfirmed, OnTrouble::End, work).await?;
    assert!(matches!(confirmed.end, End::Done(Ok(()))));
    Ok(())
}

#[tokio::test]
async fn a_change_that_nobody_confirms_goes_back() -> Tested {
    let bed = Bed::new().await?;
    let work = async |_| {
        bed.change(|record| {
            let before = Before {
                in_force: record.in_force.clone(),
                lease: record.terms.lease,
                ends: None,
                follow: false,
            };
            record.in_force.profile = "name: second".into();
            record.terms.confirm = Some(Confirm {
                by: after(Duration::from_millis(600)),
                before: Some(before),
            });
        })?;
        sleep(Duration::from_millis(300)).await;
        assert!(bed.recorded()?.concat().contains("second"));
        sleep(Duration::from_millis(900)).await;
        assert!(bed.machine.state().done.contains(&"go back"));
        assert!(bed.recorded()?.concat().contains("name: first"));
        anyhow::Ok(())
    };
    let outcome = bed.keep(conduct(), OnTrouble::End, work).await?;
    assert!(matches!(outcome.end, End::Done(Ok(()))));
    Ok(())
}

/// As `calibrate` does: a thread changes the profile and asks what went wrong, and `status` shows what is in force.
#[tokio::test]
async fn errands_of_another_thread_are_done_and_recorded() -> Tested {
    let bed = Bed::new().await?;
    let work = async |handle: super::Handle| {
        let errands = move || {
            let second = prepared("second")?;
            handle.ask(move |core| core.put(&second))??;
            handle.ask(|core| core.running().map(Running::settled))
        };
        spawn_blocking(errands).await
    };
    let keep = bed.keep(conduct(), OnTrouble::End, async |handle| {
        let settled = work(handle).await;
        let recorded = bed.recorded();
        bed.machine.state().dropped = 3;
        (settled, recorded)
    });
    let outcome = keep.await?;
    // What happens between the last errand and the end counts, too.
    assert_eq!(outcome.faults().len(), 1);
    let End::Done((settled, recorded)) = outcome.end else {
        anyhow::bail!("it ended by itself")
    };
    let report = settled??.and_then(|settled| settled.ok().flatten());
    let report = report.ok_or_else(|| anyhow::anyhow!("no report"))?;
    assert_eq!((report.updates, report.faults()), (1, Vec::new()));
    let recorded = recorded?.concat();
    assert!(recorded.contains("name: second") && !recorded.contains("name: first"));
    Ok(())
}

#[tokio::test]
async fn an_interface_that_goes_is_waited_for() -> Tested {
    let bed = Bed::new().await?;
    let follows = Conduct {
        follow: true,
        ..conduct()
    };
    let work = async |_| {
        bed.machine.state().fault = Some(deleted());
        sleep(Duration::from_millis(700)).await;
        assert!(bed.recorded()?.concat().contains("\"lost\": true"));
        bed.machine.state().back = Some(9);
        sleep(Duration::from_millis(700)).await;
        let recorded = bed.recorded()?.concat();
        assert!(recorded.contains("\"lost\": false") && recorded.contains("pthold9"));
        anyhow::Ok(())
    };
    let outcome = bed.keep(follows, OnTrouble::End, work).await?;
    assert!(matches!(outcome.end, End::Done(Ok(()))), "{:?}", outcome.end);
    Ok(())
}
