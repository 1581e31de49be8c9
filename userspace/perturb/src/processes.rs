//! A program of one process on each private host.
//!
//! The first process starts the others by `perturb on`, as mpirun does with its agent.

use std::{
    env,
    net::{IpAddr, ToSocketAddrs as _},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, ensure};
use serde::Serialize;

use crate::cli::exit::DONE;

/// How long the others may take to end once this process has failed.
const LAST_WORDS: Duration = Duration::from_secs(5);
/// Between two looks whether they have ended.
const LOOK: Duration = Duration::from_millis(10);

/// Runs process `rank` of this very command, or, without it, the first, which starts the others and prints what came of
/// all. Of so many hosts `wanted` take part. The exit code.
pub(crate) fn run<T: Serialize>(
    rank: Option<usize>,
    wanted: impl Fn(usize) -> usize,
    process: impl FnOnce(usize, &[IpAddr]) -> anyhow::Result<Option<T>>,
) -> anyhow::Result<u8> {
    let hosts = env::var("PERTURB_HOSTS").unwrap_or_default();
    let hosts: Vec<&str> = hosts.split_whitespace().collect();
    ensure!(
        hosts.len() >= 2,
        "there are no private hosts here; run it inside `perturb run PROFILE -- …`"
    );
    let hosts = &hosts[..wanted(hosts.len()).min(hosts.len())];
    let addresses = hosts
        .iter()
        .map(|host| address(host))
        .collect::<anyhow::Result<Vec<_>>>()?;
    let others = match rank {
        None => Some(Others::start(hosts)?),
        Some(_) => None,
    };
    let outcome = process(rank.unwrap_or(0), &addresses);
    if let Some(others) = others {
        let outcome = others.wait_after(outcome)?;
        println!("{}", serde_json::to_string(&outcome)?);
    } else {
        outcome?;
    }
    Ok(DONE)
}

/// IPv4 where there is one: a host's first address by its number.
fn address(host: &str) -> anyhow::Result<IpAddr> {
    let found: Vec<IpAddr> = (host, 0)
        .to_socket_addrs()
        .with_context(|| format!("finding {host}"))?
        .map(|address| address.ip())
        .collect();
    let v4 = found.iter().find(|address| address.is_ipv4());
    v4.or(found.first())
        .copied()
        .with_context(|| format!("{host} has no address"))
}

/// The processes on the other hosts; they end with this one's PID namespace at the latest.
struct Others(Vec<Child>);

impl Others {
    /// Starts this command on each host but the first.
    fn start(hosts: &[&str]) -> anyhow::Result<Self> {
        let program = env::current_exe().context("finding this executable")?;
        let arguments: Vec<_> = env::args_os().skip(1).collect();
        let start = |(rank, host): (usize, &&str)| {
            let mut process = Command::new(&program);
            process
                .args(["on", host, "--"])
                .arg(&program)
                .args(&arguments)
                .args(["--rank", &rank.to_string()])
                .stdin(Stdio::null())
                .stdout(Stdio::null());
            process
                .spawn()
                .with_context(|| format!("starting a process on {host}"))
        };
        let others = hosts.iter().enumerate().skip(1).map(start);
        Ok(Self(others.collect::<anyhow::Result<_>>()?))
    }

    /// Waits for them. If this process has failed, one of them may be the cause: they get time to say so, for they end
    /// with this one.
    fn wait_after<T>(mut self, outcome: anyhow::Result<T>) -> anyhow::Result<T> {
        if outcome.is_err() {
            let start = Instant::now();
            while self
                .0
                .iter_mut()
                .any(|other| matches!(other.try_wait(), Ok(None)))
                && start.elapsed() < LAST_WORDS
            {
                thread::sleep(LOOK);
            }
            return outcome;
        }
        for mut child in self.0 {
            let status = child.wait().context("waiting for the other processes")?;
            ensure!(status.success(), "another process ended with {status}");
        }
        outcome
    }
}

#[cfg(test)]
mod tests {
    use anyhow::{anyhow, bail};

    use super::*;

    #[test]
    fn who_failed_first_can_say_so() -> anyhow::Result<()> {
        let folder = tempfile::tempdir()?;
        let said = folder.path().join("said");
        let mut script = Command::new("sh");
        script
            .args(["-c", "sleep 0.5; echo fault > \"$0\"; exit 1"])
            .arg(&said);
        let failed: anyhow::Result<()> = Others(vec![script.spawn()?]).wait_after(Err(anyhow!("lost")));
        let Err(error) = failed else {
            bail!("it did not fail");
        };
        ensure!(error.to_string() == "lost", "{error}");
        ensure!(said.exists(), "this process did not wait");
        Ok(())
    }
}
