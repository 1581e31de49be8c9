//! Interfaces and their routes.

use std::{
    fmt,
    net::Ipv4Addr,
    os::fd::{AsRawFd as _, BorrowedFd},
};

use netlink_packet_core::{NLM_F_ACK, NLM_F_CREATE, NLM_F_DUMP, NLM_F_EXCL, NLM_F_REPLACE};
use netlink_packet_route::{
    AddressFamily, RouteNetlinkMessage,
    link::{
        AfSpecInet6, AfSpecUnspec, In6AddrGenMode, InfoData, InfoGeneve, InfoGre, InfoGre6, InfoKind,
        InfoMacSec, InfoVeth, InfoVxlan, LinkAttribute, LinkFlags, LinkInfo, LinkLayerType, LinkMessage,
        LinkXdp, MacSecOffload, XdpAttached,
    },
    route::{
        RouteAddress, RouteAttribute, RouteHeader, RouteMessage, RouteMetric, RouteProtocol, RouteScope,
        RouteType,
    },
};

use super::{Netlink, Result};

/// Number of a route's metric (linux/rtnetlink.h).
const RTAX_RTO_MIN: u32 = 13;

/// An interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    /// Its index in the namespace.
    pub index: u32,
    pub name: String,
    /// Its alias: perturb's devices carry the name of the emulation they belong to.
    pub alias: Option<String>,
    /// Largest packet above the link layer, bytes.
    pub mtu: u32,
    /// Whether frames have an Ethernet header (Ethernet, loopback).
    pub ethernet: bool,
    /// Whether it is the loopback device.
    pub loopback: bool,
    /// Whether it is up.
    pub up: bool,
    /// Its root qdisc.
    pub qdisc: Option<String>,
    /// Its driver's kind (`veth`, `bridge`), for virtual devices.
    pub kind: Option<String>,
    /// Its transmit queues.
    pub queues: u32,
    /// The interface that it runs over, which may be in another namespace.
    pub lower: Option<u32>,
    /// Whether it is a tunnel whose far end each packet brings along.
    pub external: bool,
    /// Whether it is a MACsec device for which the hardware below encrypts.
    pub offloads_macsec: bool,
    /// Where its XDP program runs, if it has one.
    pub xdp: Option<XdpMode>,
    /// Whether it is a port of a hardware switch.
    pub switch_port: bool,
    /// Packets that it has carried, both ways.
    pub packets: u64,
}

/// Where an XDP program runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum XdpMode {
    /// In the driver.
    Driver,
    /// In the stack (`xdpgeneric`).
    Generic,
    /// In the hardware.
    Hardware,
    /// Several.
    Several,
}

impl fmt::Display for XdpMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Driver => "in the driver",
            Self::Generic => "generic",
            Self::Hardware => "in the hardware",
            Self::Several => "several of them",
        })
    }
}

/// Packets that an interface dropped since it was made (`rtnl_link_stats64`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkDrops {
    /// Not transmitted: a TAP's ring, or the backlog of the processor behind a veth, was full.
    pub transmit: u64,
    /// Received, and not taken.
    pub receive: u64,
}

/// A veth pair to be made.
#[derive(Clone, Copy, Debug)]
pub struct VethPair<'a> {
    /// Name of the near end.
    pub near: &'a str,
    /// Name of the far end.
    pub far: &'a str,
    /// Namespace of the far end, if another.
    pub far_namespace: Option<BorrowedFd<'a>>,
    /// Interface indices; 0 lets the kernel choose.
    pub indices: (u32, u32),
    /// MTU of both.
    pub mtu: u32,
    /// Transmit and receive queues of both; 0 leaves the default.
    pub queues: u32,
    /// Largest number of segments in a super-packet that the near end transmits whole; `None`
    /// leaves the default.
    pub near_gso_max_segs: Option<u32>,
    /// Alias of both ends.
    pub alias: Option<&'a str>,
}

impl<'a> VethPair<'a> {
    /// Both ends in this namespace, with the largest MTU, and all else as the kernel has it.
    #[must_use]
    pub const fn new(near: &'a str, far: &'a str) -> Self {
        Self {
            near,
            far,
            far_namespace: None,
            indices: (0, 0),
            mtu: 65_535,
            queues: 0,
            near_gso_max_segs: None,
            alias: None,
        }
    }
}

impl Netlink {
    /// The interface of a name.
    pub fn link(&mut self, name: &str) -> Result<Option<Link>> {
        Ok(self.links()?.into_iter().find(|link| link.name == name))
    }

    /// The interface of an index.
    pub fn link_at(&mut self, index: u32) -> Result<Option<Link>> {
        let mut message = LinkMessage::default();
        message.header.index = index;
        let replies = self.request(RouteNetlinkMessage::GetLink(message), NLM_F_ACK, || {
            format!("read the interface with index {index}")
        });
        match replies {
            Ok(replies) => Ok(replies.into_iter().find_map(|reply| match reply {
                RouteNetlinkMessage::NewLink(link) => Some(describe(link)),
                _ => None,
            })),
            Err(error) if error.is(libc::ENODEV) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// All interfaces.
    pub fn links(&mut self) -> Result<Vec<Link>> {
        let message = RouteNetlinkMessage::GetLink(LinkMessage::default());
        let replies = self.request(message, NLM_F_DUMP, || "list interfaces".into())?;
        Ok(replies
            .into_iter()
            .filter_map(|reply| match reply {
                RouteNetlinkMessage::NewLink(link) => Some(describe(link)),
                _ => None,
            })
            .collect())
    }

    /// What an interface has dropped.
    pub fn drops(&mut self, index: u32) -> Result<LinkDrops> {
        let mut link = LinkMessage::default();
        link.header.index = index;
        // The acknowledgement ends the answer.
        let replies = self.request(RouteNetlinkMessage::GetLink(link), NLM_F_ACK, || {
            format!("read the counters of the interface with index {index}")
        })?;
        let attributes = replies.into_iter().filter_map(|reply| match reply {
            RouteNetlinkMessage::NewLink(link) => Some(link.attributes),
            _ => None,
        });
        Ok(attributes
            .flatten()
            .find_map(|attribute| match attribute {
                LinkAttribute::Stats64(stats) => Some(LinkDrops {
                    transmit: stats.tx_dropped,
                    receive: stats.rx_dropped,
                }),
                _ => None,
            })
            .unwrap_or_default())
    }

    /// Makes a veth pair; fails if a name or index is taken.
    pub fn add_veth(&mut self, pair: &VethPair<'_>) -> Result<()> {
        let mut peer = LinkMessage::default();
        peer.header.index = pair.indices.1;
        peer.attributes.push(LinkAttribute::IfName(pair.far.into()));
        let mut link = LinkMessage::default();
        peer.attributes.push(LinkAttribute::Mtu(pair.mtu));
        for end in [&mut peer, &mut link] {
            if pair.queues != 0 {
                end.attributes.push(LinkAttribute::NumTxQueues(pair.queues));
                end.attributes.push(LinkAttribute::NumRxQueues(pair.queues));
            }
        }
        if let Some(namespace) = pair.far_namespace {
            peer.attributes
                .push(LinkAttribute::NetNsFd(namespace.as_raw_fd()));
        }
        link.header.index = pair.indices.0;
        link.attributes.push(LinkAttribute::IfName(pair.near.into()));
        link.attributes.push(LinkAttribute::Mtu(pair.mtu));
        if let Some(segments) = pair.near_gso_max_segs {
            link.attributes.push(LinkAttribute::GsoMaxSegs(segments));
        }
        link.attributes.push(LinkAttribute::LinkInfo(vec![
            LinkInfo::Kind(InfoKind::Veth),
            LinkInfo::Data(InfoData::Veth(InfoVeth::Peer(peer))),
        ]));
        let flags = NLM_F_CREATE | NLM_F_EXCL | NLM_F_ACK;
        self.request(RouteNetlinkMessage::NewLink(link), flags, || {
            format!("make the veth pair {}, {}", pair.near, pair.far)
        })?;
        if let Some(alias) = pair.alias {
            self.set_alias(pair.near, alias)?;
            if pair.far_namespace.is_none() {
                self.set_alias(pair.far, alias)?;
            }
        }
        Ok(())
    }

    /// Makes a bridge.
    pub fn add_bridge(&mut self, name: &str, mtu: u32) -> Result<()> {
        let mut link = LinkMessage::default();
        link.attributes.push(LinkAttribute::IfName(name.into()));
        link.attributes.push(LinkAttribute::Mtu(mtu));
        link.attributes
            .push(LinkAttribute::LinkInfo(vec![LinkInfo::Kind(InfoKind::Bridge)]));
        let flags = NLM_F_CREATE | NLM_F_EXCL | NLM_F_ACK;
        self.request(RouteNetlinkMessage::NewLink(link), flags, || {
            format!("make the bridge {name}")
        })?;
        Ok(())
    }

    /// Sets an alias.
    pub fn set_alias(&mut self, name: &str, alias: &str) -> Result<()> {
        self.set(name, vec![LinkAttribute::IfAlias(alias.into())], || {
            format!("name the owner of {name}")
        })
    }

    /// Brings an interface up.
    pub fn set_up(&mut self, name: &str) -> Result<()> {
        let mut link = LinkMessage::default();
        link.attributes.push(LinkAttribute::IfName(name.into()));
        link.header.flags = LinkFlags::Up;
        link.header.change_mask = LinkFlags::Up;
        self.request(RouteNetlinkMessage::SetLink(link), NLM_F_ACK, || {
            format!("bring {name} up")
        })?;
        Ok(())
    }

    /// Puts an interface under a bridge.
    pub fn set_controller(&mut self, name: &str, bridge: u32) -> Result<()> {
        self.set(name, vec![LinkAttribute::Controller(bridge)], || {
            format!("put {name} under a bridge")
        })
    }

    /// Sets the length of the transmit queue, packets.
    pub fn set_queue_len(&mut self, name: &str, packets: u32) -> Result<()> {
        self.set(name, vec![LinkAttribute::TxQueueLen(packets)], || {
            format!("set the queue length of {name}")
        })
    }

    /// Sets the hardware address.
    pub fn set_hardware_address(&mut self, name: &str, address: [u8; 6]) -> Result<()> {
        self.set(name, vec![LinkAttribute::Address(address.to_vec())], || {
            format!("set the hardware address of {name}")
        })
    }

    /// Sets the MTU.
    pub fn set_mtu(&mut self, name: &str, mtu: u32) -> Result<()> {
        self.set(name, vec![LinkAttribute::Mtu(mtu)], || {
            format!("set the MTU of {name}")
        })
    }

    /// Keeps IPv6 from giving an interface an address, so that it says nothing by itself.
    pub fn set_quiet(&mut self, name: &str) -> Result<()> {
        let spec = AfSpecUnspec::Inet6(vec![AfSpecInet6::AddrGenMode(In6AddrGenMode::None)]);
        match self.set(name, vec![LinkAttribute::AfSpecUnspec(vec![spec])], || {
            format!("keep {name} quiet")
        }) {
            // A kernel without IPv6 is quiet enough.
            Err(error) if error.is(libc::EAFNOSUPPORT) => Ok(()),
            other => other,
        }
    }

    fn set(
        &mut self,
        name: &str,
        attributes: Vec<LinkAttribute>,
        action: impl FnOnce() -> String,
    ) -> Result<()> {
        let mut link = LinkMessage::default();
        link.attributes.push(LinkAttribute::IfName(name.into()));
        link.attributes.extend(attributes);
        self.request(RouteNetlinkMessage::SetLink(link), NLM_F_ACK, action)?;
        Ok(())
    }

    /// Deletes an interface; one that is gone already is no error.
    pub fn delete_link(&mut self, index: u32) -> Result<()> {
        let mut link = LinkMessage::default();
        link.header.index = index;
        let done = self.request(RouteNetlinkMessage::DelLink(link), NLM_F_ACK, || {
            format!("delete the interface with index {index}")
        });
        match done {
            Err(error) if error.is(libc::ENODEV) => Ok(()),
            other => other.map(|_| ()),
        }
    }

    /// Sets TCP's metrics of the route to an interface's own IPv4 network: least time-out, ms, and immediate ACKs.
    pub fn set_tcp_metrics(
        &mut self,
        index: u32,
        (own, prefix): (Ipv4Addr, u8),
        rto_min: Option<u32>,
        quickack: Option<bool>,
    ) -> Result<()> {
        // TCP looks at a locked metric only (`tcp_rto_min`).
        let least = rto_min.map(|ms| [RouteMetric::Lock(1 << RTAX_RTO_MIN), RouteMetric::RtoMin(ms)]);
        let metrics = least.into_iter().flatten();
        let metrics = metrics.chain(quickack.map(|on| RouteMetric::QuickAck(on.into())));
        let mut message = RouteMessage::default();
        message.header.address_family = AddressFamily::Inet;
        message.header.destination_prefix_length = prefix;
        message.header.table = RouteHeader::RT_TABLE_MAIN;
        message.header.protocol = RouteProtocol::Kernel;
        message.header.scope = RouteScope::Link;
        message.header.kind = RouteType::Unicast;
        let network =
            Ipv4Addr::from_bits(own.to_bits() & u32::MAX.checked_shl(32 - u32::from(prefix)).unwrap_or(0));
        message.attributes = vec![
            RouteAttribute::Destination(RouteAddress::Inet(network)),
            RouteAttribute::PrefSource(RouteAddress::Inet(own)),
            RouteAttribute::Oif(index),
            RouteAttribute::Metrics(metrics.collect()),
        ];
        let flags = NLM_F_CREATE | NLM_F_REPLACE | NLM_F_ACK;
        let what = || format!("set TCP's metrics of the route to {network}/{prefix}");
        self.request(RouteNetlinkMessage::NewRoute(message), flags, what)
            .map(|_| ())
    }
}

fn describe(message: LinkMessage) -> Link {
    let mut link = Link {
        index: message.header.index,
        name: String::new(),
        alias: None,
        mtu: 0,
        ethernet: matches!(
            message.header.link_layer_type,
            LinkLayerType::Ether | LinkLayerType::Loopback
        ),
        loopback: message.header.link_layer_type == LinkLayerType::Loopback,
        up: message.header.flags.contains(LinkFlags::Up),
        qdisc: None,
        kind: None,
        queues: 1,
        lower: None,
        external: false,
        offloads_macsec: false,
        xdp: None,
        switch_port: false,
        packets: 0,
    };
    for attribute in message.attributes {
        match attribute {
            LinkAttribute::IfName(name) => link.name = name,
            LinkAttribute::IfAlias(alias) => link.alias = Some(alias),
            LinkAttribute::Mtu(mtu) => link.mtu = mtu,
            LinkAttribute::Qdisc(qdisc) => link.qdisc = Some(qdisc),
            LinkAttribute::NumTxQueues(queues) => link.queues = queues,
            LinkAttribute::Link(lower) => link.lower = Some(lower),
            LinkAttribute::PhysSwitchId(_) => link.switch_port = true,
            LinkAttribute::Stats64(stats) => link.packets = stats.rx_packets + stats.tx_packets,
            LinkAttribute::Xdp(infos) => link.xdp = infos.iter().find_map(xdp),
            LinkAttribute::LinkInfo(infos) => {
                for info in infos {
                    match info {
                        LinkInfo::Kind(kind) => link.kind = Some(kind.to_string()),
                        LinkInfo::Data(data) => {
                            link.external = is_external(&data);
                            link.offloads_macsec = offloads_macsec(&data);
                        }
                        _ => {}
                    }
                }
            }
            _ => {}
        }
    }
    link
}

/// Whether a tunnel takes the far end from each packet's `metadata_dst`.
fn is_external(data: &InfoData) -> bool {
    match data {
        InfoData::Vxlan(infos) => infos.contains(&InfoVxlan::CollectMetadata(true)),
        InfoData::Geneve(infos) => infos.contains(&InfoGeneve::CollectMetadata),
        InfoData::GreTap(infos) | InfoData::ErSpan(infos) => infos.contains(&InfoGre::CollectMetadata),
        InfoData::GreTap6(infos) | InfoData::Ip6ErSpan(infos) => infos.contains(&InfoGre6::CollectMetadata),
        // What has no Ethernet header cannot be emulated in any case.
        _ => false,
    }
}

fn offloads_macsec(data: &InfoData) -> bool {
    let InfoData::MacSec(infos) = data else {
        return false;
    };
    let is_on =
        |info: &InfoMacSec| matches!(info, InfoMacSec::Offload(offload) if *offload != MacSecOffload::Off);
    infos.iter().any(is_on)
}

fn xdp(info: &LinkXdp) -> Option<XdpMode> {
    let LinkXdp::Attached(attached) = info else {
        return None;
    };
    match attached {
        XdpAttached::Driver => Some(XdpMode::Driver),
        XdpAttached::SocketBuffer => Some(XdpMode::Generic),
        XdpAttached::Hardware => Some(XdpMode::Hardware),
        XdpAttached::Multiple => Some(XdpMode::Several),
        _ => None,
    }
}
