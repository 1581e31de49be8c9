//! Addresses of interfaces, and their neighbors.

use std::net::IpAddr;

use netlink_packet_core::{NLM_F_ACK, NLM_F_CREATE, NLM_F_EXCL, NLM_F_REPLACE};
use netlink_packet_route::{
    AddressFamily, RouteNetlinkMessage,
    address::{AddressAttribute, AddressHeaderFlags, AddressMessage},
    neighbour::{NeighbourAttribute, NeighbourMessage, NeighbourState},
    route::RouteType,
};

use super::{Netlink, Result};

impl Netlink {
    /// Adds a permanent neighbor.
    pub fn add_neighbor(&mut self, index: u32, address: IpAddr, hardware: [u8; 6]) -> Result<()> {
        let mut message = NeighbourMessage::default();
        message.header.family = family(address);
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

    /// Gives an interface an address, ready at once (no duplicate address detection).
    pub fn add_address(&mut self, index: u32, address: IpAddr, prefix: u8) -> Result<()> {
        let flags = NLM_F_CREATE | NLM_F_EXCL | NLM_F_ACK;
        let message = RouteNetlinkMessage::NewAddress(described(index, address, prefix));
        self.request(message, flags, || format!("add the address {address}"))?;
        Ok(())
    }

    /// Takes an address from an interface.
    pub fn remove_address(&mut self, index: u32, address: IpAddr, prefix: u8) -> Result<()> {
        let message = RouteNetlinkMessage::DelAddress(described(index, address, prefix));
        self.request(message, NLM_F_ACK, || format!("remove the address {address}"))?;
        Ok(())
    }
}

fn family(address: IpAddr) -> AddressFamily {
    if address.is_ipv4() {
        AddressFamily::Inet
    } else {
        AddressFamily::Inet6
    }
}

/// An address of an interface.
fn described(index: u32, address: IpAddr, prefix: u8) -> AddressMessage {
    let mut message = AddressMessage::default();
    message.header.family = family(address);
    message.header.prefix_len = prefix;
    message.header.index = index;
    if address.is_ipv6() {
        message.header.flags = AddressHeaderFlags::Nodad;
    }
    message.attributes.push(AddressAttribute::Address(address));
    message.attributes.push(AddressAttribute::Local(address));
    message
}
