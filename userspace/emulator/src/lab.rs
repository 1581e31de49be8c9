//! Private hosts: network namespaces joined by a wire or a switch, named h1, h2, …, and a command
//! that runs in the first of them.
//!
//! ```text
//! two hosts     h1:eth0 ═══ h2:eth0
//! more          hN:eth0 ═══ port N of a bridge in a namespace of its own
//! switched      hN:eth0 is a TAP that this process serves
//! elsewhere     hN is on another machine: see [`away`], or is one, or a container of one: see [`guest`]
//! ```
//!
//! Everything lives in namespaces that only this process and the command's processes refer to: when
//! they end, by whatever cause, the kernel removes it. Neighbor tables are filled in beforehand, so
//! no ARP disturbs a measurement, and IPv6 reports its multicast groups at once instead of some seconds later.

pub mod away;
mod emulated;
pub mod ends;
pub mod guest;
pub mod inside;
pub mod join;
pub mod lodge;
pub mod measured;
pub mod mpi;
mod numbers;
pub mod run;
pub mod tcp;
mod view;

use std::{convert::identity, fs, io, net::IpAddr, sync::Arc, time::Duration};

use anyhow::Context as _;
pub use emulated::emulate;
pub use perturb_dataplane::namespace::Namespace;
use perturb_dataplane::{
    ethtool::{self, Offload},
    netlink::{Netlink, NetlinkError, VethPair},
    steering::Steering,
    switch::{Switch, SwitchError},
    tunnels::TunnelsError,
    user::{Tap, TapError},
};
use perturb_profile::Profile;

pub use self::numbers::{MAX_HOSTS, addresses, all_addresses, hosts_file, name};
use self::{
    away::{Away, AwayError},
    ends::{Ends, Passages},
    lodge::Lodging,
    numbers::{PREFIXES, hardware_address, interface_index},
};
use crate::{
    conduct::{Pacer, PacerChoice, Pacing},
    own_namespace,
};

/// Interface of every host.
pub const INTERFACE: &str = "eth0";
/// Interface indices of the switch's ports begin above this.
const PORTS: u32 = 100;
/// Frames that may wait for the switch, which has no real-time priority as an ordinary user: room for them takes 512 KiB.
const QUEUE: u32 = 65_536;

/// Why private hosts could not be made.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// Which pacer it is could not be found out.
    #[error("{0:#}")]
    Pacer(anyhow::Error),
    /// A namespace.
    #[error("making a network namespace for {host}: {source}")]
    Namespace {
        /// For which host.
        host: String,
        /// Why.
        source: io::Error,
    },
    /// A device or address.
    #[error(transparent)]
    Netlink(#[from] NetlinkError),
    /// A TCP setting.
    #[error(transparent)]
    Tcp(#[from] tcp::TcpError),
    /// They cannot be made without root here.
    #[error(transparent)]
    Unavailable(#[from] own_namespace::Unavailable),
    /// A TAP.
    #[error(transparent)]
    Tap(#[from] TapError),
    /// What joins the TAPs.
    #[error(transparent)]
    Switch(#[from] SwitchError),
    /// A way to another machine.
    #[error(transparent)]
    Away(#[from] AwayError),
    /// What passes tunnels cannot be counted.
    #[error(transparent)]
    Tunnels(#[from] TunnelsError),
}

/// A private host.
pub struct Host {
    /// Its number, from 1.
    pub number: u32,
    /// Its namespace, or what stands in for it here.
    pub namespace: Namespace,
    /// What its tunnel takes one way, if it is on another machine.
    pub trip: Option<Duration>,
}

impl Host {
    /// Its name.
    #[must_use]
    pub fn name(&self) -> String {
        name(self.number)
    }

    /// Index of its interface, unique over all private hosts of a lab.
    #[must_use]
    pub fn index(&self) -> u32 {
        interface_index(self.number)
    }

    /// Names of the offloads that its interface has switched on.
    pub fn offloads(&self) -> anyhow::Result<Vec<&'static str>> {
        let all = [
            ("tx-checksum", Offload::TransmitChecksum),
            ("scatter-gather", Offload::ScatterGather),
            ("tso", Offload::TcpSegmentation),
            ("gso", Offload::Segmentation),
            ("gro", Offload::Receive),
        ];
        let mut on = Vec::new();
        for (name, offload) in all {
            let asked = self.namespace.enter(|| ethtool::is_on(INTERFACE, offload))?;
            if asked.with_context(|| format!("asking {INTERFACE} for {name}"))? {
                on.push(name);
            }
        }
        Ok(on)
    }

    /// Indices for the devices of the emulation.
    #[must_use]
    pub fn device_indices(&self) -> [u32; 4] {
        let first = self.index();
        [first + 1, first + 2, first + 3, first + 4]
    }

    /// Index of its tunnel, if it is on another machine.
    fn tunnel_index(&self) -> u32 {
        self.index() + 5
    }
}

/// Private hosts and what joins them.
pub struct Lab {
    /// The hosts, by number.
    pub hosts: Vec<Host>,
    /// How many there are, on all machines.
    pub count: u32,
    joint: Joint,
    /// Of tunnels to other machines, if there are any.
    ends: Option<Ends>,
}

/// What joins hosts.
enum Joint {
    Wire,
    Bridge {
        /// Where it is: it lives as long as this.
        _namespace: Namespace,
    },
    Switch(Arc<Switch>),
    /// The core of another machine does.
    Core,
}

impl Lab {
    /// Makes `count` hosts with a profile's TCP settings and MTU, joined as the pacer wants it, which is decided here.
    pub fn new(count: u32, profile: &Profile, pacing: &mut Pacing) -> Result<Self, LabError> {
        Self::spread(count, profile, pacing, &[])
    }

    /// The same, with hosts that are on other machines already.
    pub fn spread(
        count: u32,
        profile: &Profile,
        pacing: &mut Pacing,
        aways: &[Away],
    ) -> Result<Self, LabError> {
        let pacer = pacing.choice.decide().map_err(LabError::Pacer)?;
        pacing.choice = PacerChoice::Only(pacer);
        if pacer == Pacer::Switch {
            if !aways.is_empty() {
                return Err(AwayError::Switch.into());
            }
            own_namespace::enter()?;
        }
        let mut hosts = (1..=count).map(host).collect::<Result<Vec<_>, LabError>>()?;
        let joint = match (pacer, hosts.as_slice()) {
            (Pacer::Switch, _) => {
                let taps = hosts.iter().map(|host| {
                    let tap = tap(host, profile.mtu())?;
                    Ok((tap, hardware_address(host.number)))
                });
                let taps = taps.collect::<Result<_, LabError>>()?;
                Joint::Switch(Arc::new(Switch::new(taps, pacing.spin)?))
            }
            (_, [first, second]) => {
                wire(first, second, profile.mtu())?;
                Joint::Wire
            }
            _ => {
                let bridge = create("the switch".into())?;
                join(&hosts, &bridge, profile.mtu())?;
                Joint::Bridge { _namespace: bridge }
            }
        };
        let mut ends = None;
        for host in &mut hosts {
            if let Some(away) = aways.iter().find(|away| away.hosts.contains(&host.number)) {
                let ends = match &mut ends {
                    Some(ends) => ends,
                    none => none.insert(Ends::new(true)?),
                };
                away::stand_in(host, &away.way, profile.mtu(), ends)?;
                host.trip = Some(Duration::ZERO);
                continue;
            }
            configure(host, count)?;
            tcp::configure(host, &profile.tcp)?;
        }
        for away in aways {
            let there = |host: &&mut Host| away.hosts.contains(&host.number);
            let mut there: Vec<&mut Host> = hosts.iter_mut().filter(there).collect();
            let shown: Vec<&Host> = there.iter().map(|host| &**host).collect();
            let trip = away::trip(&shown, away, profile.mtu())?;
            log::info!(
                "{}: its tunnel takes {trip:?} each way, which come off latencies",
                away.machine
            );
            for host in &mut there {
                host.trip = Some(trip);
                away::bridge(host, profile.mtu())?;
            }
        }
        Ok(Self {
            hosts,
            count,
            joint,
            ends,
        })
    }

    /// Makes hosts that the core of another machine joins.
    pub(crate) fn lodged(lodging: &Lodging, profile: &Profile) -> Result<Self, LabError> {
        let hosts = lodging.hosts.iter().copied().map(host);
        let hosts = hosts.collect::<Result<Vec<_>, LabError>>()?;
        let mut ends = Ends::new(false)?;
        for host in &hosts {
            lodging.way.dig(host, INTERFACE, host.index(), profile.mtu())?;
            ends.count(host, INTERFACE, host.index())?;
            configure(host, lodging.count)?;
            tcp::configure(host, &profile.tcp)?;
        }
        Ok(Self {
            hosts,
            count: lodging.count,
            joint: Joint::Core,
            ends: Some(ends),
        })
    }

    /// By host: what the way to it takes already, one way.
    #[must_use]
    pub fn trips(&self) -> Vec<Duration> {
        let trips = self.hosts.iter().map(|host| host.trip.unwrap_or_default());
        trips.collect()
    }

    /// Those whose processes run here.
    pub(crate) fn here(&self) -> impl Iterator<Item = &Host> {
        self.hosts.iter().filter(|host| host.trip.is_none())
    }

    /// Lets nothing more into tunnels to other machines.
    pub(crate) fn close_tunnels(&mut self) -> Result<(), TunnelsError> {
        self.ends.as_mut().map_or(Ok(()), Ends::close)
    }

    /// What has passed this machine's ends of tunnels, once nothing is on its way any more: all ends are closed.
    pub(crate) async fn passed(&self) -> Result<Passages, TunnelsError> {
        match &self.ends {
            Some(ends) => ends.settled().await,
            None => Ok(Passages::new()),
        }
    }

    /// Deletes the hosts' interfaces. Sockets that the kernel closes for a process that has ended keep their namespace for
    /// minutes, and would send on when nobody counts any more.
    pub(crate) fn cut_off(&self) -> Result<(), LabError> {
        self.hosts.iter().try_for_each(|host| {
            let delete = |netlink: &mut Netlink| netlink.delete_link(host.index());
            inside(|| host.name(), &host.namespace, delete)
        })
    }

    /// What joins the hosts' TAPs, if they have such.
    pub(crate) fn switch(&self) -> Option<&Arc<Switch>> {
        match &self.joint {
            Joint::Switch(switch) => Some(switch),
            Joint::Wire | Joint::Bridge { .. } | Joint::Core => None,
        }
    }
}

/// So many of something in `parts` parts; the first ones have what is left over. Of no parts nothing.
pub fn evenly(all: u32, parts: u32) -> impl Iterator<Item = u32> {
    (0..parts).map(move |part| all / parts + u32::from(part < all % parts))
}

fn create(host: String) -> Result<Namespace, LabError> {
    Namespace::create().map_err(|source| LabError::Namespace { host, source })
}

/// A host without an interface.
fn host(number: u32) -> Result<Host, LabError> {
    let namespace = create(name(number))?;
    let quiet = namespace.enter(report_groups_at_once).and_then(identity);
    quiet.map_err(|source| LabError::Namespace {
        host: name(number),
        source,
    })?;
    Ok(Host {
        number,
        namespace,
        trip: None,
    })
}

/// Makes the interfaces to come report their IPv6 multicast groups within a tick (`mld_ifc_event` in the kernel), not
/// at random moments of the first second or two.
fn report_groups_at_once() -> io::Result<()> {
    for version in ["mldv1", "mldv2"] {
        let path = format!("/proc/sys/net/ipv6/conf/default/{version}_unsolicited_report_interval");
        match fs::write(path, "1") {
            // Without IPv6 there is nothing to report; in a container that may not write here they report when they like.
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::NotFound | io::ErrorKind::ReadOnlyFilesystem
                ) => {}
            done => done?,
        }
    }
    Ok(())
}

/// Runs netlink work inside a namespace.
fn inside<T: Send>(
    host: impl FnOnce() -> String,
    namespace: &Namespace,
    work: impl FnOnce(&mut Netlink) -> Result<T, NetlinkError> + Send,
) -> Result<T, LabError> {
    namespace
        .enter(|| work(&mut Netlink::open()?))
        .map_err(|source| LabError::Namespace { host: host(), source })?
        .map_err(LabError::from)
}

fn wire(first: &Host, second: &Host, mtu: u32) -> Result<(), LabError> {
    inside(
        || first.name(),
        &first.namespace,
        |netlink| {
            netlink.add_veth(&VethPair {
                far_namespace: Some(std::os::fd::AsFd::as_fd(&second.namespace)),
                indices: (first.index(), second.index()),
                mtu,
                ..VethPair::new(INTERFACE, INTERFACE)
            })
        },
    )
}

/// A host's interface, as a TAP.
fn tap(host: &Host, mtu: u32) -> Result<Tap, LabError> {
    let make = || {
        let mut netlink = Netlink::open()?;
        let tap = Tap::new(&mut netlink, INTERFACE, host.index(), INTERFACE, 1, None)?;
        netlink.set_mtu(INTERFACE, mtu)?;
        match netlink.set_queue_len(INTERFACE, QUEUE) {
            // Linux 6.1 has no room for so many: what is too much for the usual queue is dropped, and counted.
            Err(error) if error.is(libc::ERANGE) || error.is(libc::ENOMEM) => {}
            set => set?,
        }
        Ok(tap)
    };
    host.namespace.enter(make).map_err(|source| LabError::Namespace {
        host: host.name(),
        source,
    })?
}

fn join(hosts: &[Host], switch: &Namespace, mtu: u32) -> Result<(), LabError> {
    inside(
        || "the switch".into(),
        switch,
        |netlink| {
            const BRIDGE: &str = "switch";
            netlink.add_bridge(BRIDGE, mtu)?;
            netlink.set_quiet(BRIDGE)?;
            netlink.set_up(BRIDGE)?;
            let bridge = netlink.link(BRIDGE)?.map_or(0, |link| link.index);
            for host in hosts {
                let port = format!("port{}", host.number);
                netlink.add_veth(&VethPair {
                    far_namespace: Some(std::os::fd::AsFd::as_fd(&host.namespace)),
                    indices: (PORTS + host.number, host.index()),
                    mtu,
                    ..VethPair::new(&port, INTERFACE)
                })?;
                netlink.set_quiet(&port)?;
                netlink.set_controller(&port, bridge)?;
                netlink.set_up(&port)?;
            }
            Ok(())
        },
    )
}

fn configure(host: &Host, count: u32) -> Result<(), LabError> {
    inside(
        || host.name(),
        &host.namespace,
        |netlink| {
            netlink.set_up("lo")?;
            furnish(netlink, host.number, (INTERFACE, host.index()), count)
        },
    )
}

/// Gives an interface what a host of that number has: its addresses, and the other ones as neighbors.
fn furnish(
    netlink: &mut Netlink,
    number: u32,
    (name, index): (&str, u32),
    count: u32,
) -> Result<(), NetlinkError> {
    netlink.set_quiet(name)?;
    netlink.set_hardware_address(name, hardware_address(number))?;
    netlink.set_up(name)?;
    let (v4, v6) = addresses(number);
    netlink.add_address(index, IpAddr::V4(v4), PREFIXES.0)?;
    // Without IPv6, or where it is switched off, the host has IPv4 only.
    let lacks = |error: &NetlinkError| {
        [libc::EOPNOTSUPP, libc::EAFNOSUPPORT, libc::EACCES]
            .iter()
            .any(|&errno| error.is(errno))
    };
    let has_v6 = match netlink.add_address(index, IpAddr::V6(v6), PREFIXES.1) {
        Err(error) if lacks(&error) => false,
        added => added.map(|()| true)?,
    };
    for other in (1..=count).filter(|&other| other != number) {
        let (v4, v6) = addresses(other);
        netlink.add_neighbor(index, IpAddr::V4(v4), hardware_address(other))?;
        if has_v6 {
            netlink.add_neighbor(index, IpAddr::V6(v6), hardware_address(other))?;
        }
    }
    Ok(())
}

/// Has the host in whose namespace this is called receive its packets on these processors.
pub fn receive_on(processors: &[u32]) -> anyhow::Result<()> {
    Ok(Steering::here()?.assign(INTERFACE, processors)?)
}
