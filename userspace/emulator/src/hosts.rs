//! Hosts and cgroups that classes name: they are looked up when a profile is put in force, and again and again.

use std::{
    collections::BTreeMap,
    io,
    net::{IpAddr, ToSocketAddrs as _},
    path::Path,
    sync::mpsc::{self, Receiver, TryRecvError},
    thread,
    time::{Duration, Instant},
};

use anyhow::Context as _;
use nix::{ifaddrs::getifaddrs, sys::socket::SockaddrStorage};
use perturb_containers::{Container, Lookup, Selector, choose, engines};
use perturb_profile::{Cgroup, Files, Group, Loaded, Prefix, Profile};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{
    cgroups,
    prepared::{Prepared, ProfileError},
    registry::Record,
    running::Running,
    tables::{Change, exchange},
    update::refuse_unsettled,
};

/// How often addresses are looked up.
const AGAIN: Duration = Duration::from_secs(10);

/// A host that classes name, or a cgroup.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NamedHost {
    /// Its addresses, as they were looked up last.
    #[schema(value_type = Vec<String>)]
    pub addresses: Vec<IpAddr>,
    /// The id of what is called `cgroup PATH`, if it is there: the inode of its directory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cgroup: Option<u64>,
    /// How often they have changed.
    pub changes: u64,
    /// How often they could not be looked up; then they stay.
    pub failures: u64,
}

impl NamedHost {
    /// Where it is, for messages.
    #[must_use]
    pub fn place(&self) -> String {
        match self.cgroup {
            Some(id) => format!("id {id}"),
            None if self.addresses.is_empty() => "nowhere".to_owned(),
            None => {
                let addresses: Vec<String> = self.addresses.iter().map(IpAddr::to_string).collect();
                addresses.join(", ")
            }
        }
    }
}

/// What a host or a cgroup is called in messages.
#[must_use]
pub fn title(name: &str) -> String {
    let what = if name.starts_with(Cgroup::CALLED) {
        ""
    } else {
        "host "
    };
    format!("{what}{name}")
}

/// The hosts by their names.
pub type Hosts = BTreeMap<String, NamedHost>;

/// What was looked up, by name: addresses, or a cgroup's id.
type Found = BTreeMap<String, io::Result<(Vec<IpAddr>, Option<u64>)>>;

/// The addresses of a host, in order, or the id of a cgroup.
fn look_up_again(name: &str) -> io::Result<(Vec<IpAddr>, Option<u64>)> {
    match name.strip_prefix(Cgroup::CALLED) {
        Some(path) => Ok((Vec::new(), Some(cgroups::id(path)?))),
        None => Ok((look_up(name)?, None)),
    }
}

/// The addresses of a host, in order.
fn look_up(name: &str) -> io::Result<Vec<IpAddr>> {
    if let Some(selector) = name.strip_prefix(Group::CONTAINER) {
        return of_containers(selector);
    }
    let mut addresses: Vec<IpAddr> = (name, 0).to_socket_addrs()?.map(|found| found.ip()).collect();
    addresses.sort_unstable();
    addresses.dedup();
    if addresses.is_empty() {
        return Err(io::ErrorKind::NotFound.into());
    }
    Ok(addresses)
}

/// All containers of this machine; what lets [`choose`] choose these is asked of them.
pub(crate) fn containers(selectors: &[Selector]) -> io::Result<Vec<Container>> {
    let ask = async || {
        let lookup = Lookup(selectors.to_vec());
        let (mut all, mut failed) = (Vec::new(), None);
        for engine in engines().map_err(io::Error::other)? {
            match engine.containers(&lookup).await {
                Ok(found) => all.extend(found),
                Err(error) => failed = Some(error),
            }
        }
        // What another engine has is no less there.
        failed
            .filter(|_| all.is_empty())
            .map_or(Ok(all), |error| Err(io::Error::other(error)))
    };
    let run = || -> io::Result<Vec<Container>> {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        runtime.enable_all().build()?.block_on(ask())
    };
    // Its runtime cannot begin within another one.
    let all = thread::scope(|scope| scope.spawn(run).join());
    all.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// The addresses of the containers that a group names, in order; of a label there may be none yet.
fn of_containers(selector: &str) -> io::Result<Vec<IpAddr>> {
    let selectors = [selector.parse::<Selector>().map_err(io::Error::other)?];
    let all = containers(&selectors)?;
    let chosen = choose(&selectors, &all).map_err(io::Error::other)?;
    let networks = chosen.iter().flat_map(|container| &container.networks);
    let mut addresses: Vec<IpAddr> = networks.flat_map(|one| one.addresses.iter().copied()).collect();
    addresses.sort_unstable();
    addresses.dedup();
    Ok(addresses)
}

/// The networks of the interfaces that groups name, as they are now.
///
/// # Errors
/// If one has none.
fn networks(profile: &Profile) -> Result<BTreeMap<String, Vec<Prefix>>, ProfileError> {
    let mut networks = BTreeMap::new();
    for name in profile.named_interfaces() {
        let lacks = |why| ProfileError::Interface {
            name: name.to_owned(),
            why,
        };
        let all = getifaddrs().map_err(|_| lacks("this machine's interfaces cannot be listed"))?;
        let mut known = false;
        let mut found: Vec<Prefix> = Vec::new();
        for one in all.filter(|one| one.interface_name == name) {
            known = true;
            found.extend(one.address.zip(one.netmask).and_then(network));
        }
        if found.is_empty() {
            return Err(lacks(if known {
                "give it an address, or write its network under `prefix`"
            } else {
                "there is no such interface; correct the name"
            }));
        }
        found.sort_unstable();
        found.dedup();
        networks.insert(name.to_owned(), found);
    }
    Ok(networks)
}

/// The network of an address, if others can be of it.
fn network((address, mask): (SockaddrStorage, SockaddrStorage)) -> Option<Prefix> {
    let (address, length) = match (address.as_sockaddr_in(), address.as_sockaddr_in6()) {
        (Some(address), _) => {
            let mask = mask.as_sockaddr_in()?.ip();
            (IpAddr::V4(address.ip()), mask.to_bits().count_ones())
        }
        (None, Some(address)) if !address.ip().is_unicast_link_local() => {
            let mask = mask.as_sockaddr_in6()?.ip();
            (IpAddr::V6(address.ip()), mask.to_bits().count_ones())
        }
        _ => return None,
    };
    Prefix::containing(address, u8::try_from(length).ok()?)
}

/// Looks up all hosts that classes and groups name and the profile does not know, the networks of interfaces, and cgroups.
///
/// # Errors
/// If a host has no address, or there are no cgroups at all.
pub fn find(profile: &Profile, files: &mut Files) -> Result<(), ProfileError> {
    for name in profile.named_hosts() {
        let addresses = look_up(&name).map_err(|error| ProfileError::Host {
            name: name.clone(),
            error,
        })?;
        files.hosts.insert(name, addresses);
    }
    files.networks = networks(profile)?;
    files.cgroups = cgroups::find(profile.named_cgroups()).map_err(ProfileError::Cgroups)?;
    Ok(())
}

/// Looks hosts up while an emulation goes on, on a thread of its own: a resolver may take long.
#[derive(Debug)]
pub(crate) struct Follower {
    next: Instant,
    asked: Option<Receiver<Found>>,
}

impl Follower {
    pub(crate) fn new() -> Self {
        Self {
            next: Instant::now() + AGAIN,
            asked: None,
        }
    }

    /// Asks if it is time, and puts what was answered in force.
    pub(crate) fn look(&mut self, running: &mut Running) -> anyhow::Result<()> {
        if let Some(asked) = &self.asked {
            match asked.try_recv() {
                Ok(found) => {
                    self.asked = None;
                    return take(running, &found);
                }
                Err(TryRecvError::Empty) => return Ok(()),
                Err(TryRecvError::Disconnected) => self.asked = None,
            }
        }
        let hosts = &running.record.in_force.hosts;
        if hosts.is_empty() || Instant::now() < self.next {
            return Ok(());
        }
        self.next = Instant::now() + AGAIN;
        let names: Vec<String> = hosts.keys().cloned().collect();
        let (tell, told) = mpsc::channel();
        let ask = move || {
            let found = names.into_iter().map(|name| {
                let found = look_up_again(&name);
                (name, found)
            });
            // Nobody waits for it any more if the emulation has ended.
            let _ = tell.send(found.collect());
        };
        thread::Builder::new()
            .name("perturb-names".into())
            .spawn(ask)
            .context("starting the thread that looks up hosts")?;
        self.asked = Some(told);
        Ok(())
    }
}

/// The hosts as they are then, and whether an address has changed, or a cgroup was made anew.
fn updated(before: &Hosts, found: &Found) -> (Hosts, bool) {
    let mut hosts = before.clone();
    let mut changed = false;
    for (name, host) in &mut hosts {
        match found.get(name) {
            Some(Ok((addresses, cgroup))) if *addresses != host.addresses || *cgroup != host.cgroup => {
                host.addresses.clone_from(addresses);
                host.cgroup = *cgroup;
                host.changes += 1;
                changed = true;
            }
            Some(Err(_)) => host.failures += 1,
            _ => {}
        }
    }
    (hosts, changed)
}

fn take(running: &mut Running, found: &Found) -> anyhow::Result<()> {
    let before = running.record.in_force.hosts.clone();
    if updated(&before, found).0 == before {
        return Ok(());
    }
    // If another command changes the registry at this moment, the next look-up will find the same.
    let noted = running.amend(|record, plane| {
        let (hosts, changed) = updated(&record.in_force.hosts, found);
        if changed {
            if refuse_unsettled(record).is_err() {
                return Ok(());
            }
            match again(record, &hosts) {
                Ok(prepared) => {
                    let updates = record.updates;
                    exchange(plane, record, Change::To(&prepared))?;
                    // The profile is the same.
                    record.updates = updates;
                }
                Err(error) => {
                    log::error!("the addresses of hosts, or cgroups, have changed, and cannot be put in force: {error:#}");
                    return Ok(());
                }
            }
        }
        record.in_force.hosts = hosts;
        Ok(())
    })?;
    if noted {
        tell(&before, &running.record.in_force.hosts, found);
    }
    Ok(())
}

/// What a cgroup is called among hosts.
pub(crate) fn called(cgroup: &Cgroup) -> String {
    format!("{}{cgroup}", Cgroup::CALLED)
}

/// The profile in force, with these addresses.
fn again(record: &Record, hosts: &Hosts) -> anyhow::Result<Prepared> {
    let profile = perturb_profile::parse(&record.in_force.profile).context("reading the profile in force")?;
    let directory = record.in_force.directory.as_deref().unwrap_or(Path::new("/"));
    let mut files = perturb_profile::files(&profile, directory)?;
    files.networks = networks(&profile)?;
    let cgroups = profile.named_cgroups().into_iter();
    let ids = cgroups.filter_map(|one| Some((one.clone(), hosts.get(&called(one))?.cgroup?)));
    files.cgroups.ids = ids.collect();
    files.cgroups.root_is_below = cgroups::root_is_below()?;
    files.hosts = hosts
        .iter()
        .map(|(name, host)| (name.clone(), host.addresses.clone()))
        .collect();
    Ok(Prepared::of_loaded(Loaded { profile, files })?.coarse_if(record.in_force.coarse))
}

fn tell(before: &Hosts, after: &Hosts, found: &Found) {
    for (name, host) in after {
        let Some(old) = before.get(name) else { continue };
        if host.changes != old.changes {
            log::info!("{} is {} now; it was {}", title(name), host.place(), old.place());
        }
        if let Some(Err(error)) = found.get(name)
            && old.failures == 0
        {
            log::warn!(
                "{} cannot be looked up: {error}; it stays {}",
                title(name),
                host.place()
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeMap, io};

    use super::{Hosts, NamedHost, look_up, updated};

    #[test]
    fn what_changes_and_what_fails_is_counted() {
        let host = |addresses: &[&str], changes, failures| NamedHost {
            addresses: addresses.iter().map(|address| address.parse().unwrap()).collect(),
            changes,
            failures,
            ..NamedHost::default()
        };
        let hosts = |a, b| Hosts::from([("a".to_owned(), a), ("b".to_owned(), b)]);
        let before = hosts(host(&["192.0.2.1"], 0, 0), host(&["192.0.2.2"], 3, 1));
        let same = ("a".to_owned(), Ok((vec!["192.0.2.1".parse().unwrap()], None)));
        let failed = ("b".to_owned(), Err(io::ErrorKind::NotFound.into()));
        let found = BTreeMap::from([same, failed]);
        let after = hosts(host(&["192.0.2.1"], 0, 0), host(&["192.0.2.2"], 3, 2));
        assert_eq!(updated(&before, &found), (after, false));
        let moved = ("a".to_owned(), Ok((vec!["2001:db8::1".parse().unwrap()], None)));
        let after = hosts(host(&["2001:db8::1"], 1, 0), host(&["192.0.2.2"], 3, 1));
        assert_eq!(updated(&before, &BTreeMap::from([moved])), (after, true));
        // A service that was not there, and was started; then again.
        for id in [7, 8] {
            let before = hosts(host(&[], 0, 0), NamedHost::default());
            let again = ("a".to_owned(), Ok((Vec::new(), Some(id))));
            let (after, changed) = updated(&before, &BTreeMap::from([again]));
            assert!(changed && after["a"].cgroup == Some(id) && after["a"].changes == 1);
        }
    }

    #[test]
    fn addresses_are_found_once_each() {
        let addresses = look_up("localhost").unwrap();
        assert!(
            addresses.iter().any(std::net::IpAddr::is_loopback),
            "{addresses:?}"
        );
        let mut once = addresses.clone();
        once.dedup();
        assert_eq!(once, addresses);
    }
}
