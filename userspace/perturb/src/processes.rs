//! A program of one process on each private host.
//!
//! The first process starts the others by `perturb on`, as mpirun does with its agent.

use std::{
    env,
    net::{IpAddr, ToSocketAddrs as _},
    process::{Child, Command, Stdio},
};

use anyhow::{Context as _, ensure};
use serde::Serialize;

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
    let outcome = process(rank.unwrap_or(0), &addresses)?;
    if let Some(others) = others {
        others.wait()?;
        println!("{}", serde_json::to_string(&outcome)?);
    }
    Ok(0)
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

    fn wait(self) -> anyhow::Result<()> {
        for mut child in self.0 {
            let status = child.wait().context("waiting for the other processes")?;
            ensure!(status.success(), "another process ended with {status}");
        }
        Ok(())
    }
}
