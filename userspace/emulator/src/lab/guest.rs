//! Hosts that are there already: a machine itself, or running containers of it, in the network of another machine, the core.
//!
//! ```text
//! perturb0 ══ eth0 ── bridge ── tunnel0 ══ VXLAN over UDP ══ the core
//!             '---- an anteroom ----'
//! ```
//!
//! The anteroom is a namespace that only this process refers to, made as a stand-in at the core is. When it goes, by whatever cause, the
//! kernel deletes perturb0 with it. Nothing else in the guest's namespace is touched.

use std::{
    io,
    net::IpAddr,
    os::fd::{AsFd as _, OwnedFd},
    path::PathBuf,
    process,
    time::Duration,
};

use anyhow::{Context as _, bail, ensure};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use perturb_containers::{Network, Selector, State, choose};
use perturb_dataplane::netlink::{Netlink, NetlinkError, VethPair};
use perturb_profile::{Profile, Tcp};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use serde::{Deserialize, Serialize};
use tokio::time::sleep;

use super::{
    Host, INTERFACE, Namespace, PREFIXES, addresses, away, ends::Ends, furnish, inside, lodge::Lodging,
};
use crate::hosts;

/// A guest's interface.
pub(super) const DOOR: &str = "perturb0";
/// How often it is looked whether the guests are still there.
const LOOK: Duration = Duration::from_millis(500);

/// What the hosts of a machine are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Kind {
    /// Namespaces made for the purpose.
    Private,
    /// The machine itself.
    Machine,
    /// Running containers of these names.
    Containers(Vec<String>),
}

/// Who is to be a guest.
struct Invited {
    called: String,
    process: u32,
    ends: Option<OwnedFd>,
    namespace: Namespace,
}

/// A machine or a container that is a host now, until this is dropped.
pub(super) struct Guest {
    called: String,
    /// A process that has its namespaces.
    pub(super) process: u32,
    /// A pidfd of that, unless it is this one.
    ends: Option<OwnedFd>,
    anteroom: Host,
    /// In the anteroom.
    netlink: Netlink,
}

/// Gives this machine, or containers of it, the interfaces by which they are hosts.
///
/// # Errors
/// If a container does not run, or a namespace has what would be in the way.
pub(super) fn welcome(lodging: &Lodging, profile: &Profile, ends: &mut Ends) -> anyhow::Result<Vec<Guest>> {
    let invited = match &lodging.kind {
        Kind::Private => Vec::new(),
        Kind::Machine => vec![Invited {
            called: "this machine".to_owned(),
            process: process::id(),
            ends: None,
            namespace: Namespace::current().context("opening this machine's network namespace")?,
        }],
        Kind::Containers(names) => containers(names)?,
    };
    ensure!(
        invited.len() == lodging.hosts.len(),
        "{} hosts cannot be {} guests",
        lodging.hosts.len(),
        invited.len()
    );
    let pairs = invited.into_iter().zip(lodging.hosts.iter().copied());
    let guests = pairs.map(|(invited, number)| Guest::new(invited, number, lodging, profile.mtu(), ends));
    let guests = guests.collect::<Result<Vec<_>, _>>()?;
    if profile.tcp != Tcp::default() {
        let called: Vec<&str> = guests.iter().map(|guest| guest.called.as_str()).collect();
        log::warn!(
            "the profile's `tcp` is for private hosts: it is not set on {}",
            called.join(", ")
        );
    }
    Ok(guests)
}

/// Ends when one of them is not there any more; says which, and why.
pub(super) async fn gone(guests: &mut [Guest]) -> anyhow::Error {
    loop {
        for guest in &mut *guests {
            if let Err(why) = guest.is_there() {
                return why;
            }
        }
        sleep(LOOK).await;
    }
}

impl Guest {
    fn new(
        invited: Invited,
        number: u32,
        lodging: &Lodging,
        mtu: u32,
        tunnels: &mut Ends,
    ) -> anyhow::Result<Self> {
        let Invited {
            called,
            process,
            ends,
            namespace,
        } = invited;
        let far = (process == process::id()).then_some(lodging.way.far);
        let taken = inside(|| called.clone(), &namespace, |netlink| taken(netlink, far))?;
        if let Some(taken) = taken {
            bail!("{called} has {taken}");
        }
        let anteroom = super::host(number)?;
        let netlink = anteroom.namespace.enter(Netlink::open)??;
        inside(
            || anteroom.name(),
            &anteroom.namespace,
            |netlink| {
                netlink.add_veth(&VethPair {
                    far_namespace: Some(namespace.as_fd()),
                    indices: (anteroom.index(), 0),
                    mtu,
                    ..VethPair::new(INTERFACE, DOOR)
                })
            },
        )?;
        // From here on it is deleted if something fails.
        let guest = Self {
            called,
            process,
            ends,
            anteroom,
            netlink,
        };
        away::stand_in(&guest.anteroom, &lodging.way, mtu, tunnels)?;
        away::bridge(&guest.anteroom, mtu)?;
        inside(
            || guest.called.clone(),
            &namespace,
            |netlink| {
                let door = netlink.link(DOOR)?.map_or(0, |link| link.index);
                furnish(netlink, number, (DOOR, door), lodging.count)
            },
        )?;
        Ok(guest)
    }

    fn is_there(&mut self) -> anyhow::Result<()> {
        if let Some(ends) = &self.ends {
            ensure!(!has_ended(ends)?, "{} has ended", self.called);
        }
        let near = self.netlink.link_at(self.anteroom.index())?;
        ensure!(near.is_some(), "{DOOR} of {} was deleted", self.called);
        Ok(())
    }
}

impl Drop for Guest {
    /// The kernel would do it, but some time after the anteroom has gone; who comes next needs the name.
    fn drop(&mut self) {
        if let Err(error) = self.netlink.delete_link(self.anteroom.index()) {
            log::debug!("{DOOR} of {}: {error}", self.called);
        }
    }
}

/// The containers of these names.
fn containers(names: &[String]) -> anyhow::Result<Vec<Invited>> {
    let selectors: Vec<Selector> = names.iter().map(|name| name.parse()).collect::<Result<_, _>>()?;
    let all = hosts::containers(&selectors)?;
    let mut invited: Vec<Invited> = Vec::new();
    for selector in &selectors {
        let meant = all.iter().find(|container| selector.matches(container));
        match meant.map(|container| (&container.state, &container.network)) {
            Some((State::Other(state), _)) => bail!("the container {selector} is {state}: start it first"),
            Some((_, Network::Host)) => {
                bail!("the container {selector} uses this machine's own network: write `machine` in --hosts")
            }
            _ => {}
        }
        for container in choose(std::slice::from_ref(selector), &all)? {
            let called = format!("the container {}", container.name);
            let process = container.pid().with_context(|| format!("{called} has ended"))?;
            let one = of_process(called, process)?;
            let inode = one.namespace.inode()?;
            for other in &invited {
                ensure!(
                    other.namespace.inode()? != inode,
                    "{} and {} have one network: name one of them",
                    other.called,
                    one.called
                );
            }
            invited.push(one);
        }
    }
    Ok(invited)
}

fn of_process(called: String, process: u32) -> anyhow::Result<Invited> {
    let ends = opened(process).with_context(|| format!("opening the first process of {called}"))?;
    let path = PathBuf::from(format!("/proc/{process}/ns/net"));
    let namespace = Namespace::open(&path).with_context(|| format!("opening the network of {called}"))?;
    // Its number was not given to another one meanwhile.
    ensure!(!has_ended(&ends)?, "{called} has ended");
    Ok(Invited {
        called,
        process,
        ends: Some(ends),
        namespace,
    })
}

/// A handle of a process.
pub(super) fn opened(process: u32) -> io::Result<OwnedFd> {
    let pid = Pid::from_raw(process.cast_signed()).ok_or(io::ErrorKind::InvalidInput)?;
    Ok(pidfd_open(pid, PidfdFlags::empty())?)
}

/// Whether the process of a handle has ended.
fn has_ended(process: &OwnedFd) -> nix::Result<bool> {
    let mut polled = [PollFd::new(process.as_fd(), PollFlags::POLLIN)];
    Ok(poll(&mut polled, PollTimeout::ZERO)? > 0)
}

/// What is in the way in a namespace, and what is to be done about it. `far`: where the tunnel from there leads.
fn taken(netlink: &mut Netlink, far: Option<IpAddr>) -> Result<Option<String>, NetlinkError> {
    if netlink.link(DOOR)?.is_some() {
        return Ok(Some(format!(
            "an interface {DOOR} already: end the `perturb run` whose host it is, or delete it (`ip link delete {DOOR}`)"
        )));
    }
    let own = netlink
        .addresses()?
        .into_iter()
        .map(|(_, address)| (address, None));
    let routes = netlink.routes()?;
    let routes = routes
        .into_iter()
        .map(|(network, length)| (network, Some(length)));
    let found = own
        .chain(far.map(|address| (address, None)))
        .chain(routes)
        .find(|&(address, length)| is_of_hosts(address, length));
    Ok(found.map(|(address, length)| {
        let what = match length {
            Some(length) => format!("a route to {address}/{length}"),
            None if Some(address) == far => format!("its way to the core over {address}"),
            None => format!("the address {address}"),
        };
        let (v4, v6) = addresses(0);
        format!(
            "{what}, and {v4}/{} and {v6}/{} are to be the hosts': take it away, or write a number in --hosts for private hosts",
            PREFIXES.0, PREFIXES.1
        )
    }))
}

/// Whether an address, or a network of a prefix of this length, is of the hosts' networks.
fn is_of_hosts(address: IpAddr, length: Option<u8>) -> bool {
    let (v4, v6) = addresses(0);
    match address {
        IpAddr::V4(address) => {
            let shift = 32 - PREFIXES.0;
            length.is_none_or(|length| length >= PREFIXES.0)
                && address.to_bits() >> shift == v4.to_bits() >> shift
        }
        IpAddr::V6(address) => {
            let shift = 128 - PREFIXES.1;
            length.is_none_or(|length| length >= PREFIXES.1)
                && address.to_bits() >> shift == v6.to_bits() >> shift
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_of_the_hosts_networks() {
        let is = |text: &str, length| is_of_hosts(text.parse().unwrap(), length);
        assert!(is("10.77.0.9", None) && is("fd77::9", None));
        assert!(is("10.77.0.0", Some(24)) && is("10.77.0.128", Some(25)) && is("fd77::", Some(64)));
        assert!(!is("10.77.1.9", None) && !is("fd77:0:0:1::", Some(64)));
        // What is wider stays beside it: the longer prefix counts.
        assert!(!is("10.77.0.0", Some(16)) && !is("fd77::", Some(48)));
    }
}
