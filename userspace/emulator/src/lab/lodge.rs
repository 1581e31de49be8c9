//! `perturb lodge`: on another machine, the hosts that a core has there.
//!
//! Processes of private hosts are in a PID namespace of their own, as those of the core's hosts; whatever ends this process, the kernel
//! removes all of it. Hosts that are there already get an interface for the time: see [`guest`].

use std::{env, io, path::PathBuf, process::ExitStatus, time::Duration};

use anyhow::{Context as _, anyhow, ensure};
use perturb_profile::Profile;
use serde::{Deserialize, Serialize};
use tokio::time::{sleep, timeout};

use super::{
    Lab,
    away::Way,
    ends::{Ends, Passages},
    guest::{self, Kind},
    join::first_process,
    run::spawn,
};
use crate::{own_namespace::may_load_programs, signals::Signals};

/// Hosts that are to be had here.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Lodging {
    /// Their numbers.
    pub hosts: Vec<u32>,
    /// What they are.
    pub kind: Kind,
    /// How many there are in all.
    pub count: u32,
    /// The way to the core.
    pub way: Way,
}

/// Where they are.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Lodged {
    /// The process that has them.
    pub process: u32,
    /// This program.
    pub program: PathBuf,
    /// For each of them the process whose namespaces its commands get; none if they are private.
    pub within: Vec<u32>,
}

/// The first process of the hosts' PID namespace has one child, which does nothing.
const NOTHING: [&str; 2] = ["sleep", "infinity"];
/// How long it may take to begin, and how often it is looked for.
const BEGUN: Duration = Duration::from_secs(10);
const LOOK: Duration = Duration::from_millis(10);

/// Makes the hosts, tells where they are, and keeps them until a signal comes. What has passed their tunnels then.
///
/// # Errors
/// If they cannot be made, or their first process ends.
pub async fn lodge(
    lodging: &Lodging,
    profile: &Profile,
    tell: impl FnOnce(&Lodged) -> anyhow::Result<()>,
) -> anyhow::Result<Passages> {
    ensure!(
        may_load_programs(),
        "hosts of another machine's network need root here: --perturb-path 'sudo -n perturb'"
    );
    let mut signals = Signals::listen()?;
    lodging.way.must_fit(profile.mtu())?;
    let tell = |within| {
        tell(&Lodged {
            process: std::process::id(),
            program: env::current_exe().context("finding this program")?,
            within,
        })
    };
    match lodging.kind {
        Kind::Private => keep_hosts(lodging, profile, &mut signals, tell).await,
        Kind::Machine | Kind::Containers(_) => keep_guests(lodging, profile, &mut signals, tell).await,
    }
}

/// With private hosts.
async fn keep_hosts(
    lodging: &Lodging,
    profile: &Profile,
    signals: &mut Signals,
    tell: impl FnOnce(Vec<u32>) -> anyhow::Result<()>,
) -> anyhow::Result<Passages> {
    let mut lab = Lab::lodged(lodging, profile)?;
    let mut child = spawn(&lab, &[], NOTHING.map(Into::into).into(), None, |_| {})?;
    // Whoever enters the namespaces looks for their first process.
    let begun = timeout(BEGUN, async {
        while first_process(std::process::id()).is_err() {
            sleep(LOOK).await;
        }
    });
    tokio::select! {
        begun = begun => begun.context("the hosts' first process does not begin")?,
        ended = child.wait() => return Err(ended_early(ended)),
    }
    tell(Vec::new())?;
    tokio::select! {
        _ = signals.next() => {}
        ended = child.wait() => return Err(ended_early(ended)),
    }
    child.kill().await.context("ending the hosts' processes")?;
    lab.close_tunnels()?;
    let passed = lab.passed().await?;
    lab.cut_off()?;
    Ok(passed)
}

fn ended_early(ended: io::Result<ExitStatus>) -> anyhow::Error {
    match ended {
        Ok(status) => anyhow!("the hosts' first process has ended ({status})"),
        Err(error) => anyhow::Error::new(error).context("waiting for the hosts' first process"),
    }
}

/// The same with this machine, or containers of it.
async fn keep_guests(
    lodging: &Lodging,
    profile: &Profile,
    signals: &mut Signals,
    tell: impl FnOnce(Vec<u32>) -> anyhow::Result<()>,
) -> anyhow::Result<Passages> {
    let mut ends = Ends::new(false)?;
    let mut guests = guest::welcome(lodging, profile, &mut ends)?;
    tell(guests.iter().map(|guest| guest.process).collect())?;
    tokio::select! {
        _ = signals.next() => {}
        gone = guest::gone(&mut guests) => return Err(gone),
    }
    ends.close()?;
    Ok(ends.settled().await?)
}
