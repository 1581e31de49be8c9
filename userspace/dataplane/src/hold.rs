//! Hold devices: where packets wait. One set per emulated interface, in the interface's namespace.
//!
//! ```text
//! fq       near (mq, sch_fq for each queue, perturb_stamp at egress) ═══ far (perturb_release at ingress)
//! user     TAP (perturb_steer chooses a queue, whose thread reads, waits, and writes back; perturb_release at ingress)
//! splitter near (no offloads: the kernel cuts and checksums) ═══ far (perturb_release at ingress)
//! ```
//!
//! A flow has one queue of the hold device and one processor at each far end, by its hash ([`crate::steering`]): whichever
//! processor lets its packets go, they keep their order.

use std::{io::Write as _, os::fd::AsFd as _, sync::Arc};

use crate::{
    attach::{AttachError, Attached, Clsact, Side, discard_the_rest},
    ethtool::{self, Offload},
    netlink::{FqOptions, Netlink, NetlinkError, VethPair},
    programs::{LoadError, Program, Programs},
    steering::{Steering, SteeringError},
    user::{Tap, TapError, UserPacer, UserPacerError},
};

/// Queues of an fq hold device: one for each processor, but no more.
const MAX_QUEUES: u32 = 64;

/// Why a hold device could not be made.
#[derive(Debug, thiserror::Error)]
pub enum HoldError {
    /// A device or qdisc.
    #[error(transparent)]
    Netlink(#[from] NetlinkError),
    /// A program.
    #[error(transparent)]
    Attach(#[from] AttachError),
    /// A TAP.
    #[error(transparent)]
    Tap(#[from] TapError),
    /// The pacer's thread.
    #[error(transparent)]
    Pacer(#[from] UserPacerError),
    /// Its packets could not be assigned to processors.
    #[error(transparent)]
    Steering(#[from] SteeringError),
    /// The program that spreads flows over a TAP's queues.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// The kernel has no sch_fq.
    #[error("this kernel has no sch_fq (CONFIG_NET_SCH_FQ; module sch_fq)")]
    NoFq,
    /// Offloads could not be switched off.
    #[error("switching off {offload:?} of {device}: {source}")]
    Offload {
        /// Which device.
        device: String,
        /// Which offload.
        offload: Offload,
        source: std::io::Error,
    },
    /// A TAP was asked for without the threads that serve it.
    #[error("the user pacer does not run")]
    NoPacer,
    /// A device vanished while it was set up.
    #[error("{0} has vanished while it was set up")]
    Vanished(String),
}

/// Keeps the packets of one interface until their departures. Dropping it removes its device, and with
/// it what it holds.
pub trait Hold: Send + Sync {
    /// Where captured packets are sent to: an interface index.
    fn entrance(&self) -> u32;

    /// Where they come out: the interface that carries `perturb_release`.
    fn exit(&self) -> u32;
}

/// Names and interface indices of the devices that one emulated interface gets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceNames {
    /// Where packets wait, near and far end (the TAP has only one).
    pub hold: [String; 2],
    /// Where super-packets are cut.
    pub split: [String; 2],
    /// Interface indices in the order above; 0 lets the kernel choose.
    pub indices: [u32; 4],
    /// Alias of all of them.
    pub alias: String,
}

impl DeviceNames {
    /// All names.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        self.hold.iter().chain(&self.split).map(String::as_str)
    }
}

/// A veth pair with `perturb_release` at its far end; dropping it deletes the pair, and with it
/// what is held in it.
pub struct Pair {
    /// Index of the near end: where packets are sent to.
    pub near: u32,
    /// Index of the far end: where they come out.
    pub far: u32,
    attached: Vec<Attached>,
}

impl Pair {
    fn new(
        programs: &mut Programs,
        netlink: &mut Netlink,
        steering: &Steering,
        pair: &VethPair<'_>,
    ) -> Result<Self, HoldError> {
        netlink.add_veth(pair)?;
        let index = |netlink: &mut Netlink, name: &str| match netlink.link(name)? {
            Some(link) => Ok(link.index),
            None => Err(HoldError::Vanished(name.into())),
        };
        let near = index(netlink, pair.near)?;
        let mut made = Self {
            near,
            far: 0,
            attached: Vec::new(),
        };
        made.far = index(netlink, pair.far)?;
        steering.apply(pair.far)?;
        netlink.set_quiet(pair.near)?;
        netlink.set_quiet(pair.far)?;
        Clsact::ensure(netlink, made.far)?.forget();
        made.attached.push(Attached::new(
            programs,
            Program::Release,
            pair.far,
            Side::Ingress,
        )?);
        discard_the_rest(programs, netlink, pair.far)?;
        Ok(made)
    }
}

impl Hold for Pair {
    fn entrance(&self) -> u32 {
        self.near
    }

    fn exit(&self) -> u32 {
        self.far
    }
}

/// A TAP that the user pacer serves.
struct TapHold {
    pacer: Arc<UserPacer>,
    index: u32,
    release: Option<Attached>,
}

impl Hold for TapHold {
    fn entrance(&self) -> u32 {
        self.index
    }

    fn exit(&self) -> u32 {
        self.index
    }
}

impl Drop for TapHold {
    fn drop(&mut self) {
        drop(self.release.take());
        self.pacer.remove(self.index);
    }
}

/// A TAP under the user pacer.
pub fn user(
    programs: &mut Programs,
    netlink: &mut Netlink,
    names: &DeviceNames,
    pacer: &Arc<UserPacer>,
) -> Result<Box<dyn Hold>, HoldError> {
    let name = &names.hold[0];
    let tap = Tap::new(
        netlink,
        name,
        names.indices[0],
        &names.alias,
        pacer.queues(),
        Some(programs.steering()?.as_fd()),
    )?;
    let index = tap.index();
    Clsact::ensure(netlink, index)?.forget();
    let release = Attached::new(programs, Program::Release, name, Side::Ingress)?;
    netlink.set_up(name)?;
    pacer.add(tap)?;
    Ok(Box::new(TapHold {
        pacer: Arc::clone(pacer),
        index,
        release: Some(release),
    }))
}

impl Drop for Pair {
    fn drop(&mut self) {
        self.attached.clear();
        // Deleting one end deletes both, with their qdiscs and filters.
        if let Err(error) = Netlink::open().and_then(|mut netlink| netlink.delete_link(self.near)) {
            let _ = writeln!(
                std::io::stderr(),
                "perturb: {error}; delete it with `ip link delete`, if it is still there"
            );
        }
    }
}

/// A veth pair with sch_fq.
pub fn fq(
    programs: &mut Programs,
    netlink: &mut Netlink,
    names: &DeviceNames,
    options: FqOptions,
) -> Result<Box<dyn Hold>, HoldError> {
    let [near, far] = &names.hold;
    let steering = Steering::here()?;
    let queues = steering.processors().min(MAX_QUEUES);
    let mut pair = Pair::new(
        programs,
        netlink,
        &steering,
        &VethPair {
            indices: (names.indices[0], names.indices[1]),
            queues,
            alias: Some(&names.alias),
            // Super-packets pass whole whatever the interface's own MTU.
            ..VethPair::new(near, far)
        },
    )?;
    set_fq(netlink, pair.near, queues, options)?;
    Clsact::ensure(netlink, pair.near)?.forget();
    pair.attached
        .push(Attached::new(programs, Program::Stamp, near, Side::Egress)?);
    netlink.set_up(far)?;
    netlink.set_up(near)?;
    Ok(Box::new(pair))
}

/// Sets the options of a hold device's sch_fq, also while it holds packets.
pub fn set_fq(netlink: &mut Netlink, near: u32, queues: u32, options: FqOptions) -> Result<(), HoldError> {
    match netlink.set_fq(near, queues, options) {
        Err(error) if error.is(libc::ENOENT) => Err(HoldError::NoFq),
        other => Ok(other?),
    }
}

/// A veth pair that cuts super-packets: its near end can neither segment nor checksum, so the kernel
/// does both on the way in.
pub fn splitter(
    programs: &mut Programs,
    netlink: &mut Netlink,
    names: &DeviceNames,
) -> Result<Pair, HoldError> {
    let [near, far] = &names.split;
    let pair = Pair::new(
        programs,
        netlink,
        &Steering::here()?,
        &VethPair {
            indices: (names.indices[2], names.indices[3]),
            queues: 1,
            near_gso_max_segs: Some(1),
            alias: Some(&names.alias),
            ..VethPair::new(near, far)
        },
    )?;
    for offload in [
        Offload::TcpSegmentation,
        Offload::Segmentation,
        Offload::TransmitChecksum,
    ] {
        ethtool::set(near, offload, false).map_err(|source| HoldError::Offload {
            device: near.clone(),
            offload,
            source,
        })?;
    }
    netlink.set_up(far)?;
    netlink.set_up(near)?;
    Ok(pair)
}

/// Whether this kernel has sch_fq: asked of a veth pair in a namespace that ends with the answer.
pub fn has_fq() -> std::io::Result<bool> {
    let namespace = crate::namespace::Namespace::create()?;
    namespace.enter(|| {
        let probe = || -> Result<bool, NetlinkError> {
            let mut netlink = Netlink::open()?;
            netlink.add_veth(&VethPair {
                queues: 1,
                ..VethPair::new("probe", "peer")
            })?;
            let Some(link) = netlink.link("probe")? else {
                return Ok(false);
            };
            let options = FqOptions {
                buckets_log: 10,
                horizon_us: 1_000_000,
            };
            match netlink.set_fq(link.index, link.queues, options) {
                Ok(()) => Ok(true),
                Err(error) if error.is(libc::ENOENT) => Ok(false),
                Err(error) => Err(error),
            }
        };
        probe().map_err(|error| error.source)
    })?
}
