//! Which interface leads where: addresses and routes.

use std::net::IpAddr;

use netlink_packet_core::NLM_F_DUMP;
use netlink_packet_route::{
    AddressFamily, RouteNetlinkMessage,
    address::{AddressAttribute, AddressMessage},
    route::{RouteAddress, RouteAttribute, RouteHeader, RouteMessage, RouteType},
};

use super::{Netlink, Result};

const FAMILIES: [AddressFamily; 2] = [AddressFamily::Inet, AddressFamily::Inet6];

impl Netlink {
    /// The addresses of interfaces, with their indices.
    pub fn addresses(&mut self) -> Result<Vec<(u32, IpAddr)>> {
        let message = RouteNetlinkMessage::GetAddress(AddressMessage::default());
        let replies = self.request(message, NLM_F_DUMP, || "list addresses".into())?;
        let address = |reply| {
            let RouteNetlinkMessage::NewAddress(message) = reply else {
                return None;
            };
            let own = message.attributes.iter().find_map(|attribute| match attribute {
                AddressAttribute::Local(address) => Some(*address),
                _ => None,
            });
            // IPv6 has no address of its own beside the interface's, unless there is a peer.
            let other = message.attributes.iter().find_map(|attribute| match attribute {
                AddressAttribute::Address(address) => Some(*address),
                _ => None,
            });
            Some((message.header.index, own.or(other)?))
        };
        Ok(replies.into_iter().filter_map(address).collect())
    }

    /// The interface that the default route leads to, by index: IPv4's, or else IPv6's; of several the one of least metric.
    pub fn default_route(&mut self) -> Result<Option<u32>> {
        for family in FAMILIES {
            let best = self
                .of_family(family)?
                .into_iter()
                .filter_map(default_route)
                .min();
            if let Some((_, index)) = best {
                return Ok(Some(index));
            }
        }
        Ok(None)
    }

    /// Where all routes of all tables lead: a network, and the length of its prefix, bits.
    pub fn routes(&mut self) -> Result<Vec<(IpAddr, u8)>> {
        let mut routes = Vec::new();
        for family in FAMILIES {
            routes.extend(self.of_family(family)?.into_iter().filter_map(destination));
        }
        Ok(routes)
    }

    /// All routes of IPv4, or of IPv6.
    fn of_family(&mut self, family: AddressFamily) -> Result<Vec<RouteNetlinkMessage>> {
        let mut message = RouteMessage::default();
        message.header.address_family = family;
        let message = RouteNetlinkMessage::GetRoute(message);
        self.request(message, NLM_F_DUMP, || "list routes".into())
    }
}

/// Where a route leads, unless it is a default route.
fn destination(reply: RouteNetlinkMessage) -> Option<(IpAddr, u8)> {
    let RouteNetlinkMessage::NewRoute(message) = reply else {
        return None;
    };
    let network = message
        .attributes
        .into_iter()
        .find_map(|attribute| match attribute {
            RouteAttribute::Destination(RouteAddress::Inet(address)) => Some(address.into()),
            RouteAttribute::Destination(RouteAddress::Inet6(address)) => Some(address.into()),
            _ => None,
        });
    Some((network?, message.header.destination_prefix_length))
}

/// The metric and the interface of a route, if it is a default route of the main table.
fn default_route(reply: RouteNetlinkMessage) -> Option<(u32, u32)> {
    let RouteNetlinkMessage::NewRoute(message) = reply else {
        return None;
    };
    let header = message.header;
    if header.destination_prefix_length != 0
        || header.table != RouteHeader::RT_TABLE_MAIN
        || header.kind != RouteType::Unicast
    {
        return None;
    }
    let (mut metric, mut index) = (0, None);
    for attribute in message.attributes {
        match attribute {
            RouteAttribute::Priority(priority) => metric = priority,
            RouteAttribute::Oif(interface) => index = Some(interface),
            _ => {}
        }
    }
    Some((metric, index?))
}
