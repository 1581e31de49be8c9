//! Links, addresses and qdiscs of the current network namespace, by synchronous rtnetlink. Here: the socket.

mod address;
mod link;
mod notices;
mod reach;
mod traffic;
mod tunnel;

use std::io;

use netlink_packet_core::{NLM_F_REQUEST, NetlinkBuffer, NetlinkHeader, NetlinkMessage, NetlinkPayload};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};

pub use self::{
    link::{Link, LinkDrops, VethPair, XdpMode},
    notices::{Heard, Notices},
    traffic::{BpfFilter, FqOptions, Hook, QdiscStats},
    tunnel::Tunnel,
};

/// What netlink would not do.
#[derive(Debug, thiserror::Error)]
#[error("{action}: {source}")]
pub struct NetlinkError {
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
