//! `perturb lodge`: on another machine, the hosts that a core has there.
//!
//! Their processes are in a PID namespace of their own, as those of the core's hosts; whatever ends this process, the kernel removes
//! all of it.

use std::{env, path::PathBuf, time::Duration};

use anyhow::{Context as _, ensure};
use perturb_profile::Profile;
use serde::{Deserialize, Serialize};
use tokio::time::{sleep, timeout};

use super::{Lab, away::Way, join::first_process, run::spawn};
use crate::{
    own_namespace::may_load_programs,
    signals::Signals,
    status::{self, Fault, Place},
};

/// Hosts that are to be had here.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Lodging {
    /// Their numbers.
    pub hosts: Vec<u32>,
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
}

/// The first process of the hosts' PID namespace has one child, which does nothing.
const NOTHING: [&str; 2] = ["sleep", "infinity"];
/// How long it may take to begin, and how often it is looked for.
const BEGUN: Duration = Duration::from_secs(10);
const LOOK: Duration = Duration::from_millis(10);

/// Makes the hosts, tells where they are, and keeps them until a signal comes.
///
/// # Errors
/// If they cannot be made, or their first process ends.
pub async fn lodge(
    lodging: &Lodging,
    profile: &Profile,
    tell: impl FnOnce(&Lodged) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    ensure!(
        may_load_programs(),
        "hosts of another machine's network need root here: --perturb-path 'sudo -n perturb'"
    );
    let mut signals = Signals::listen()?;
    lodging.way.must_fit(profile.mtu())?;
    let lab = Lab::lodged(lodging, profile)?;
    let mut child = spawn(&lab, &[], NOTHING.map(Into::into).into(), None, |_| {})?;
    // Whoever enters the namespaces looks for their first process.
    let begun = timeout(BEGUN, async {
        while first_process(std::process::id()).is_err() {
            sleep(LOOK).await;
        }
    });
    begun.await.context("the hosts' first process does not begin")?;
    tell(&Lodged {
        process: std::process::id(),
        program: env::current_exe().context("finding this program")?,
    })?;
    tokio::select! {
        _ = signals.next() => {}
        ended = child.wait() => {
            let status = ended.context("waiting for the hosts' first process")?;
            anyhow::bail!("the hosts' first process has ended ({status})");
        }
    }
    child.kill().await.context("ending the hosts' processes")?;
    let dropped = lab.tunnel_drops()?;
    if dropped > 0 {
        status::warn(&[Fault {
            place: Place::Tunnel,
            packets: dropped,
        }]);
    }
    Ok(())
}
