//! VXLAN devices (RFC 7348) with one far end, which carry a link over UDP.

use std::{
    net::IpAddr,
    os::fd::{AsRawFd as _, BorrowedFd},
};

use netlink_packet_core::{NLM_F_ACK, NLM_F_CREATE, NLM_F_EXCL};
use netlink_packet_route::{
    RouteNetlinkMessage,
    link::{InfoData, InfoKind, InfoVxlan, LinkAttribute, LinkInfo, LinkMessage, VxlanDf},
};

use super::{Netlink, Result};

/// A tunnel to be made.
#[derive(Clone, Copy, Debug)]
pub struct Tunnel<'a> {
    /// Name of the device.
    pub name: &'a str,
    /// Its interface index; 0 lets the kernel choose.
    pub index: u32,
    /// The namespace that gets it. What it carries goes over the namespace of the socket that makes it.
    pub namespace: BorrowedFd<'a>,
    /// VNI, 24 bits; the same at both ends.
    pub id: u32,
    /// This end's address, and the other's, of the same family.
    pub ends: (IpAddr, IpAddr),
    /// UDP port of both ends.
    pub port: u16,
    /// Its MTU, bytes.
    pub mtu: u32,
}

impl Netlink {
    /// Makes one end of a tunnel.
    ///
    /// # Errors
    /// If the kernel has no VXLAN (`EOPNOTSUPP`), or another device has this id or port (`EEXIST`, `EADDRINUSE`).
    pub fn add_tunnel(&mut self, tunnel: &Tunnel<'_>) -> Result<()> {
        let (local, remote) = match tunnel.ends {
            (IpAddr::V4(local), IpAddr::V4(remote)) => (InfoVxlan::Local(local), InfoVxlan::Group(remote)),
            (local, remote) => (InfoVxlan::Local6(to_v6(local)), InfoVxlan::Group6(to_v6(remote))),
        };
        let data = vec![
            InfoVxlan::Id(tunnel.id),
            local,
            remote,
            InfoVxlan::Port(tunnel.port),
            // What does not fit is dropped, and not cut (VXLAN_DF_SET).
            InfoVxlan::Df(VxlanDf::Set),
            // There is one far end: nothing is to be learned.
            InfoVxlan::Learning(false),
        ];
        let mut link = LinkMessage::default();
        link.header.index = tunnel.index;
        link.attributes.extend([
            LinkAttribute::IfName(tunnel.name.into()),
            LinkAttribute::Mtu(tunnel.mtu),
            LinkAttribute::NetNsFd(tunnel.namespace.as_raw_fd()),
            LinkAttribute::LinkInfo(vec![
                LinkInfo::Kind(InfoKind::Vxlan),
                LinkInfo::Data(InfoData::Vxlan(data)),
            ]),
        ]);
        let flags = NLM_F_CREATE | NLM_F_EXCL | NLM_F_ACK;
        self.request(RouteNetlinkMessage::NewLink(link), flags, || {
            format!("make the tunnel to {} (VXLAN)", tunnel.ends.1)
        })?;
        Ok(())
    }
}

fn to_v6(address: IpAddr) -> std::net::Ipv6Addr {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped(),
        IpAddr::V6(address) => address,
    }
}
