//! Notices of a namespace: a link, a qdisc or a filter has changed.

use std::{
    collections::BTreeSet,
    io,
    os::fd::{AsFd, BorrowedFd},
};

use netlink_packet_core::{NetlinkBuffer, NetlinkMessage, NetlinkPayload};
use netlink_packet_route::{RouteNetlinkMessage, link::LinkAttribute};
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};

use super::{NetlinkError, Result};

/// `RTNLGRP_LINK` and `RTNLGRP_TC` of linux/rtnetlink.h.
const GROUPS: [u32; 2] = [1, 4];

/// A socket that hears of changes in the namespace in which it was opened.
pub struct Notices {
    socket: Socket,
}

/// What was heard since the last time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Heard {
    /// Whether anything was.
    pub any: bool,
    /// Indices of interfaces that left for another namespace (`IFLA_NEW_NETNSID`, 4.15).
    pub moved: BTreeSet<u32>,
}

impl Notices {
    /// Listens to the calling thread's namespace.
    pub fn open() -> Result<Self> {
        let open = || {
            let mut socket = Socket::new(NETLINK_ROUTE)?;
            socket.set_non_blocking(true)?;
            socket.bind(&SocketAddr::new(0, 0))?;
            for group in GROUPS {
                socket.add_membership(group)?;
            }
            Ok(Self { socket })
        };
        open().map_err(|source| NetlinkError {
            action: "listen for changes of interfaces".into(),
            source,
        })
    }

    /// Takes what has come, without waiting.
    pub fn take(&self) -> Result<Heard> {
        let mut heard = Heard::default();
        loop {
            match self.socket.recv_from_full() {
                Ok((datagram, _)) => {
                    heard.any = true;
                    heard.moved.extend(moved(&datagram));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(heard),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // More came than the socket could keep: something has changed.
                Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => heard.any = true,
                Err(source) => {
                    return Err(NetlinkError {
                        action: "hear of changes of interfaces".into(),
                        source,
                    });
                }
            }
        }
    }
}

impl AsFd for Notices {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// The interfaces that left for another namespace. What cannot be read is of a kind that is of no interest here.
fn moved(mut rest: &[u8]) -> Vec<u32> {
    let mut moved = Vec::new();
    while let Ok(buffer) = NetlinkBuffer::new_checked(rest) {
        let length = buffer.length() as usize;
        let message = rest
            .get(..length)
            .and_then(|bytes| NetlinkMessage::<RouteNetlinkMessage>::deserialize(bytes).ok());
        if let Some(NetlinkPayload::InnerMessage(RouteNetlinkMessage::DelLink(link))) =
            message.map(|message| message.payload)
            && link
                .attributes
                .iter()
                .any(|attribute| matches!(attribute, LinkAttribute::NewNetnsId(_)))
        {
            moved.push(link.header.index);
        }
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    moved
}
