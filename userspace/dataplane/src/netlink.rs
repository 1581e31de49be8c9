//! Links, addresses and qdiscs of the current network namespace, by synchronous rtnetlink.

use std::{
    io,
    net::{IpAddr, Ipv4Addr},
    os::fd::{AsRawFd as _, BorrowedFd},
};

use netlink_packet_core::{
    DefaultNla, NLM_F_ACK, NLM_F_CREATE, NLM_F_DUMP, NLM_F_EXCL, NLM_F_REPLACE, NLM_F_REQUEST, NetlinkBuffer,
    NetlinkHeader, NetlinkMessage, NetlinkPayload,
};
use netlink_packet_route::{
    AddressFamily, RouteNetlinkMessage,
    address::{AddressAttribute, AddressHeaderFlags, AddressMessage},
    link::{
        AfSpecInet6, AfSpecUnspec, In6AddrGenMode, InfoData, InfoKind, InfoVeth, LinkAttribute, LinkFlags,
        LinkInfo, LinkLayerType, LinkMessage,
    },
    neighbour::{NeighbourAttribute, NeighbourMessage, NeighbourState},
    route::{
        RouteAddress, RouteAttribute, RouteHeader, RouteMessage, RouteMetric, RouteProtocol, RouteScope,
        RouteType,
    },
    tc::{TcAttribute, TcFilterBpfOption, TcHandle, TcMessage, TcOption},
};
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};

/// What netlink would not do.
#[derive(Debug, thiserror::Error)]
#[error("{action}: {source}")]
pub struct NetlinkError {
    /// What was asked for.
    pub action: String,
    /// The kernel's answer.
    pub source: io::Error,
}

impl NetlinkError {
    /// Whether the kernel's answer was this errno.
    #[must_use]
    pub fn is(&self, errno: i32) -> bool {
        self.source.raw_os_error() == Some(errno)
    }
}

type Result<T> = std::result::Result<T, NetlinkError>;

/// An interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    /// Its index in the namespace.
    pub index: u32,
    /// Its name.
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
    /// Largest number of segments in a super-packet that the near end transmits whole; `None`
    /// leaves the default.
    pub near_gso_max_segs: Option<u32>,
    /// Alias of both ends.
    pub alias: Option<&'a str>,
}

/// Options of sch_fq as a hold device wants them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FqOptions {
    /// Packets that it holds at most.
    pub limit: u32,
    /// log2 of the number of hash buckets.
    pub buckets_log: u32,
    /// Longest time that a packet may be held, µs.
    pub horizon_us: u32,
}

/// A place of filters at a clsact qdisc.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hook {
    /// What the interface receives.
    Ingress,
    /// What it sends.
    Egress,
}

impl Hook {
    fn parent(self) -> TcHandle {
        // TC_H_MIN_INGRESS and TC_H_MIN_EGRESS.
        let minor = match self {
            Self::Ingress => 0xfff2,
            Self::Egress => 0xfff3,
        };
        TcHandle { major: 0xffff, minor }
    }
}

/// A filter that is a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BpfFilter {
    /// The kernel's number of the program.
    pub program: u32,
    handle: TcHandle,
    info: u32,
}

/// Counters of a qdisc.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QdiscStats {
    /// Packets it holds now.
    pub backlog: u32,
    /// Packets it dropped.
    pub drops: u32,
}

/// A socket to the namespace in which it was opened.
pub struct Netlink {
    socket: Socket,
    sequence: u32,
}

impl Netlink {
    /// Opens a socket to the calling thread's namespace.
    pub fn open() -> Result<Self> {
        let open = || {
            let mut socket = Socket::new(NETLINK_ROUTE)?;
            socket.bind_auto()?;
            socket.connect(&SocketAddr::new(0, 0))?;
            Ok(socket)
        };
        open()
            .map(|socket| Self { socket, sequence: 0 })
            .map_err(|source| NetlinkError {
                action: "open a netlink socket".into(),
                source,
            })
    }

    /// The interface of a name.
    pub fn link(&mut self, name: &str) -> Result<Option<Link>> {
        Ok(self.links()?.into_iter().find(|link| link.name == name))
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

    /// Makes a veth pair; fails if a name or index is taken.
    pub fn add_veth(&mut self, pair: &VethPair<'_>) -> Result<()> {
        let mut peer = LinkMessage::default();
        peer.header.index = pair.indices.1;
        peer.attributes.push(LinkAttribute::IfName(pair.far.into()));
        peer.attributes.push(LinkAttribute::Mtu(pair.mtu));
        if let Some(namespace) = pair.far_namespace {
            peer.attributes
                .push(LinkAttribute::NetNsFd(namespace.as_raw_fd()));
        }
        let mut link = LinkMessage::default();
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

    /// Adds a permanent neighbor.
    pub fn add_neighbor(&mut self, index: u32, address: IpAddr, hardware: [u8; 6]) -> Result<()> {
        let mut message = NeighbourMessage::default();
        message.header.family = if address.is_ipv4() {
            AddressFamily::Inet
        } else {
            AddressFamily::Inet6
        };
        message.header.ifindex = index;
        message.header.state = NeighbourState::Permanent;
        message.header.kind = RouteType::Unicast;
        message
            .attributes
            .push(NeighbourAttribute::Destination(address.into()));
        message
            .attributes
            .push(NeighbourAttribute::LinkLayerAddress(hardware.to_vec()));
        let flags = NLM_F_CREATE | NLM_F_REPLACE | NLM_F_ACK;
        self.request(RouteNetlinkMessage::NewNeighbour(message), flags, || {
            format!("add the neighbor {address}")
        })?;
        Ok(())
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

    /// Gives an interface an address, ready at once (no duplicate address detection).
    pub fn add_address(&mut self, index: u32, address: IpAddr, prefix: u8) -> Result<()> {
        let mut message = AddressMessage::default();
        message.header.family = if address.is_ipv4() {
            AddressFamily::Inet
        } else {
            AddressFamily::Inet6
        };
        message.header.prefix_len = prefix;
        message.header.index = index;
        if address.is_ipv6() {
            message.header.flags = AddressHeaderFlags::Nodad;
        }
        message.attributes.push(AddressAttribute::Address(address));
        message.attributes.push(AddressAttribute::Local(address));
        let flags = NLM_F_CREATE | NLM_F_EXCL | NLM_F_ACK;
        self.request(RouteNetlinkMessage::NewAddress(message), flags, || {
            format!("add the address {address}")
        })?;
        Ok(())
    }

    /// Sets the least retransmission time-out of TCP towards an interface's own IPv4 network, ms.
    pub fn set_rto_min(&mut self, index: u32, own: Ipv4Addr, prefix: u8, millis: u32) -> Result<()> {
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
            RouteAttribute::Metrics(vec![RouteMetric::RtoMin(millis)]),
        ];
        let flags = NLM_F_CREATE | NLM_F_REPLACE | NLM_F_ACK;
        self.request(RouteNetlinkMessage::NewRoute(message), flags, || {
            format!("set the least retransmission time-out of the route to {network}/{prefix}")
        })?;
        Ok(())
    }

    /// Makes sch_fq the root qdisc of one of perturb's own devices, or changes its options.
    /// ENOENT: this kernel has no sch_fq.
    pub fn set_fq(&mut self, index: u32, options: FqOptions) -> Result<()> {
        let word =
            |kind: u16, value: u32| TcOption::Other(DefaultNla::new(kind, value.to_ne_bytes().to_vec()));
        let mut message = TcMessage::with_index(index.cast_signed());
        message.header.parent = TcHandle::ROOT;
        message.header.handle = TcHandle { major: 1, minor: 0 };
        message.attributes.push(TcAttribute::Kind("fq".into()));
        // TCA_FQ_* of linux/pkt_sched.h.
        message.attributes.push(TcAttribute::Options(vec![
            word(1, options.limit),
            word(2, options.limit),
            word(5, 0), // no pacing of its own
            word(8, options.buckets_log),
            word(10, u32::MAX), // a flow for every hash of a packet without socket
            word(13, 0),        // no timer slack
            word(14, options.horizon_us),
            TcOption::Other(DefaultNla::new(15, vec![1])),
        ]));
        let flags = NLM_F_CREATE | NLM_F_REPLACE | NLM_F_ACK;
        self.request(RouteNetlinkMessage::NewQueueDiscipline(message), flags, || {
            "set up sch_fq".into()
        })?;
        Ok(())
    }

    /// Removes the root qdisc of one of perturb's own devices and with it what it holds.
    pub fn delete_root_qdisc(&mut self, index: u32) -> Result<()> {
        let mut message = TcMessage::with_index(index.cast_signed());
        message.header.parent = TcHandle::ROOT;
        self.request(
            RouteNetlinkMessage::DelQueueDiscipline(message),
            NLM_F_ACK,
            || "remove a qdisc".into(),
        )?;
        Ok(())
    }

    /// Adds the clsact qdisc; `false` if there was one.
    pub fn add_clsact(&mut self, index: u32) -> Result<bool> {
        let flags = NLM_F_CREATE | NLM_F_EXCL | NLM_F_ACK;
        match self.request(
            RouteNetlinkMessage::NewQueueDiscipline(clsact(index)),
            flags,
            || "add the clsact qdisc".into(),
        ) {
            Ok(_) => Ok(true),
            Err(error) if error.is(libc::EEXIST) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Removes the clsact qdisc.
    pub fn delete_clsact(&mut self, index: u32) -> Result<()> {
        self.request(
            RouteNetlinkMessage::DelQueueDiscipline(clsact(index)),
            NLM_F_ACK,
            || "remove the clsact qdisc".into(),
        )?;
        Ok(())
    }

    /// Whether an interface has a clsact qdisc.
    pub fn has_clsact(&mut self, index: u32) -> Result<bool> {
        let message = RouteNetlinkMessage::GetQueueDiscipline(TcMessage::with_index(index.cast_signed()));
        let replies = self.request(message, NLM_F_DUMP, || "list qdiscs".into())?;
        let wanted = clsact(index);
        Ok(replies.iter().any(|reply| {
            // The dump may be of all interfaces.
            matches!(reply, RouteNetlinkMessage::NewQueueDiscipline(qdisc)
                if qdisc.header.index == wanted.header.index
                    && qdisc.header.parent == wanted.header.parent
                    && wanted.attributes.iter().all(|kind| qdisc.attributes.contains(kind)))
        }))
    }

    /// The bpf filters of a hook of an interface's clsact qdisc.
    pub fn bpf_filters(&mut self, index: u32, hook: Hook) -> Result<Vec<BpfFilter>> {
        let mut message = TcMessage::with_index(index.cast_signed());
        message.header.parent = hook.parent();
        let replies = self.request(RouteNetlinkMessage::GetTrafficFilter(message), NLM_F_DUMP, || {
            "list filters".into()
        })?;
        Ok(replies.into_iter().filter_map(bpf_filter).collect())
    }

    /// Removes a bpf filter.
    pub fn delete_filter(&mut self, index: u32, hook: Hook, filter: &BpfFilter) -> Result<()> {
        let mut message = TcMessage::with_index(index.cast_signed());
        message.header.parent = hook.parent();
        message.header.handle = filter.handle;
        message.header.info = filter.info;
        message.attributes.push(TcAttribute::Kind("bpf".into()));
        self.request(RouteNetlinkMessage::DelTrafficFilter(message), NLM_F_ACK, || {
            "remove a filter".into()
        })?;
        Ok(())
    }

    /// How many filters hang on an interface's clsact qdisc, both ways.
    pub fn clsact_filters(&mut self, index: u32) -> Result<usize> {
        let mut count = 0;
        for hook in [Hook::Ingress, Hook::Egress] {
            let mut message = TcMessage::with_index(index.cast_signed());
            message.header.parent = hook.parent();
            count += self
                .request(RouteNetlinkMessage::GetTrafficFilter(message), NLM_F_DUMP, || {
                    "list filters".into()
                })?
                .len();
        }
        Ok(count)
    }

    /// Counters of an interface's root qdisc.
    pub fn root_qdisc(&mut self, index: u32) -> Result<QdiscStats> {
        let message = RouteNetlinkMessage::GetQueueDiscipline(TcMessage::with_index(index.cast_signed()));
        let replies = self.request(message, NLM_F_DUMP, || "read qdisc counters".into())?;
        for reply in replies {
            let RouteNetlinkMessage::NewQueueDiscipline(qdisc) = reply else {
                continue;
            };
            if qdisc.header.index != index.cast_signed() || qdisc.header.parent != TcHandle::ROOT {
                continue;
            }
            for attribute in &qdisc.attributes {
                if let TcAttribute::Stats(stats) = attribute {
                    return Ok(QdiscStats {
                        backlog: stats.qlen,
                        drops: stats.drops,
                    });
                }
            }
        }
        Ok(QdiscStats::default())
    }

    fn request(
        &mut self,
        payload: RouteNetlinkMessage,
        flags: u16,
        action: impl FnOnce() -> String,
    ) -> Result<Vec<RouteNetlinkMessage>> {
        self.exchange(payload, flags).map_err(|source| NetlinkError {
            action: action(),
            source,
        })
    }

    fn exchange(&mut self, payload: RouteNetlinkMessage, flags: u16) -> io::Result<Vec<RouteNetlinkMessage>> {
        self.sequence = self.sequence.wrapping_add(1);
        let mut header = NetlinkHeader::default();
        header.flags = NLM_F_REQUEST | flags;
        header.sequence_number = self.sequence;
        let mut message = NetlinkMessage::new(header, NetlinkPayload::from(payload));
        message.finalize();
        let mut buffer = vec![0; message.buffer_len()];
        message.serialize(&mut buffer);
        self.socket.send(&buffer, 0)?;
        self.replies()
    }

    fn replies(&mut self) -> io::Result<Vec<RouteNetlinkMessage>> {
        let mut replies = Vec::new();
        loop {
            let (datagram, _) = self.socket.recv_from_full()?;
            let mut rest = datagram.as_slice();
            while rest.len() >= 16 {
                let invalid = |error| io::Error::new(io::ErrorKind::InvalidData, error);
                let length = NetlinkBuffer::new_checked(rest).map_err(invalid)?.length() as usize;
                let message =
                    NetlinkMessage::<RouteNetlinkMessage>::deserialize(&rest[..length]).map_err(invalid)?;
                rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
                if message.header.sequence_number != self.sequence {
                    continue;
                }
                match message.payload {
                    NetlinkPayload::Done(_) => return Ok(replies),
                    NetlinkPayload::Error(error) => {
                        return if error.code.is_none() {
                            Ok(replies)
                        } else {
                            Err(error.to_io())
                        };
                    }
                    NetlinkPayload::InnerMessage(inner) => replies.push(inner),
                    _ => {}
                }
            }
        }
    }
}

fn clsact(index: u32) -> TcMessage {
    let mut message = TcMessage::with_index(index.cast_signed());
    message.header.parent = TcHandle {
        major: 0xffff,
        minor: 0xfff1,
    };
    message.header.handle = TcHandle {
        major: 0xffff,
        minor: 0,
    };
    message.attributes.push(TcAttribute::Kind("clsact".into()));
    message
}

fn bpf_filter(reply: RouteNetlinkMessage) -> Option<BpfFilter> {
    let RouteNetlinkMessage::NewTrafficFilter(filter) = reply else {
        return None;
    };
    let options = filter.attributes.iter().find_map(|attribute| match attribute {
        TcAttribute::Options(options) => Some(options),
        _ => None,
    })?;
    let program = options.iter().find_map(|option| match option {
        TcOption::Bpf(TcFilterBpfOption::ProgId(id)) => Some(*id),
        _ => None,
    })?;
    Some(BpfFilter {
        program,
        handle: filter.header.handle,
        info: filter.header.info,
    })
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
    };
    for attribute in message.attributes {
        match attribute {
            LinkAttribute::IfName(name) => link.name = name,
            LinkAttribute::IfAlias(alias) => link.alias = Some(alias),
            LinkAttribute::Mtu(mtu) => link.mtu = mtu,
            LinkAttribute::Qdisc(qdisc) => link.qdisc = Some(qdisc),
            LinkAttribute::LinkInfo(infos) => {
                for info in infos {
                    if let LinkInfo::Kind(kind) = info {
                        link.kind = Some(kind.to_string());
                    }
                }
            }
            _ => {}
        }
    }
    link
}
