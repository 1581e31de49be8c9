//! The system calls of an endpoint: sending a burst of messages, of several datagrams each (UDP_SEGMENT, since 4.18), by
//! one call, and receiving many with the kernel's stamps (SO_TIMESTAMPNS).
//!
//! The kernel stamps by CLOCK_REALTIME; the age of a stamp is the same by either clock, so it is converted by its age.

use std::{
    io,
    mem::zeroed,
    net::{SocketAddr, UdpSocket},
    os::fd::AsRawFd as _,
    ptr::null_mut,
};

use nix::sys::socket::{SockaddrLike as _, SockaddrStorage, setsockopt, sockopt};

use super::Sent;
use crate::probe::clock;

/// Asked for; without privilege the kernel grants what net.core.rmem_max allows.
const BUFFER: usize = 32 << 20;

/// A datagram that came.
pub(super) struct Datagram {
    /// Where its payload is in the [`Receiver`], and how many bytes of it there are.
    pub(super) place: usize,
    pub(super) length: usize,
    /// The kernel's stamp, CLOCK_MONOTONIC ns.
    pub(super) arrival: u64,
    /// When the program had it.
    pub(super) read: u64,
    source: libc::sockaddr_storage,
    source_length: libc::socklen_t,
}

/// Buffers that hold a burst, and stamps.
pub(super) fn prepare(socket: &UdpSocket) -> io::Result<()> {
    if setsockopt(socket, sockopt::RcvBufForce, &BUFFER).is_err() {
        setsockopt(socket, sockopt::RcvBuf, &BUFFER)?;
    }
    if setsockopt(socket, sockopt::SndBufForce, &BUFFER).is_err() {
        setsockopt(socket, sockopt::SndBuf, &BUFFER)?;
    }
    setsockopt(socket, sockopt::ReceiveTimestampns, &true)?;
    Ok(())
}

/// Sends messages of `message` bytes each, which the kernel cuts into datagrams of `payload` bytes; all by one system
/// call, so that calls are not what spaces them.
pub(super) fn send(
    socket: &UdpSocket,
    to: &SocketAddr,
    data: &[u8],
    (message, payload): (usize, usize),
) -> io::Result<Sent> {
    let address = SockaddrStorage::from(*to);
    let mut control = SegmentSize::new(payload);
    let mut vectors: Vec<libc::iovec> = data
        .chunks_exact(message)
        .map(|message| libc::iovec {
            iov_base: message.as_ptr().cast_mut().cast(),
            iov_len: message.len(),
        })
        .collect();
    let mut messages: Vec<libc::mmsghdr> = vectors
        .iter_mut()
        .map(|vector| {
            // SAFETY: all zeros is a valid message header.
            let mut header: libc::mmsghdr = unsafe { zeroed() };
            header.msg_hdr.msg_name = address.as_ptr().cast_mut().cast();
            header.msg_hdr.msg_namelen = address.len();
            header.msg_hdr.msg_iov = vector;
            header.msg_hdr.msg_iovlen = 1;
            if payload < message {
                header.msg_hdr.msg_control = (&raw mut control).cast();
                header.msg_hdr.msg_controllen = size_of_val(&control) as _;
            }
            header
        })
        .collect();
    let mut rest = messages.as_mut_slice();
    let at = clock::now();
    while !rest.is_empty() {
        let (first, count) = (rest.as_mut_ptr(), rest.len() as u32);
        // SAFETY: the headers point to an address, data and control that outlive the call.
        let sent = unsafe { libc::sendmmsg(socket.as_raw_fd(), first, count, 0) };
        let gone = match usize::try_from(sent) {
            Ok(sent) => sent,
            // A full queue of a device is a loss, and is counted as one.
            Err(_) if io::Error::last_os_error().raw_os_error() == Some(libc::ENOBUFS) => 1,
            Err(_) => return Err(io::Error::last_os_error()),
        };
        rest = &mut rest[gone..];
    }
    let returned = clock::now();
    Ok(Sent { at, returned })
}

/// The control message that has the kernel cut a message (UDP_SEGMENT).
#[repr(C)]
struct SegmentSize {
    header: libc::cmsghdr,
    size: u16,
    padding: [u16; 3],
}

impl SegmentSize {
    fn new(payload: usize) -> Self {
        // SAFETY: all zeros is a valid header; on targets where it has padding there is no other way to make one.
        let mut header: libc::cmsghdr = unsafe { zeroed() };
        header.cmsg_level = libc::SOL_UDP;
        header.cmsg_type = libc::UDP_SEGMENT;
        header.cmsg_len = (size_of::<libc::cmsghdr>() + size_of::<u16>()) as _;
        Self {
            header,
            size: payload as u16,
            padding: [0; 3],
        }
    }
}

/// Sends an answer to where a datagram came from.
pub(super) fn answer(socket: &UdpSocket, to: &Datagram, data: &[u8]) -> io::Result<()> {
    // SAFETY: address and data outlive the call, which reads them only.
    let sent = unsafe {
        libc::sendto(
            socket.as_raw_fd(),
            data.as_ptr().cast(),
            data.len(),
            0,
            (&raw const to.source).cast(),
            to.source_length,
        )
    };
    if sent < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

/// Datagrams received by one system call at most.
pub(super) const BATCH: usize = 32;
/// The largest datagram, and room for its control messages.
const LARGEST: usize = 64 << 10;
type Control = [u64; 16];

/// Memory to receive into.
pub(super) struct Receiver {
    payloads: Vec<u8>,
    controls: Vec<Control>,
    sources: Vec<libc::sockaddr_storage>,
}

impl Receiver {
    pub(super) fn new() -> Self {
        Self {
            payloads: vec![0; BATCH * LARGEST],
            controls: vec![Control::default(); BATCH],
            // SAFETY: all zeros is a valid address.
            sources: vec![unsafe { zeroed() }; BATCH],
        }
    }

    /// The payload of one that was received last.
    pub(super) fn payload(&self, datagram: &Datagram) -> &[u8] {
        &self.payloads[datagram.place..][..datagram.length]
    }

    /// Receives what has come, some datagrams at most; `waits` for the first, or fails at once if there is none.
    pub(super) fn receive(&mut self, socket: &UdpSocket, waits: bool) -> io::Result<Vec<Datagram>> {
        let mut vectors: Vec<libc::iovec> = self
            .payloads
            .chunks_exact_mut(LARGEST)
            .map(|payload| libc::iovec {
                iov_base: payload.as_mut_ptr().cast(),
                iov_len: LARGEST,
            })
            .collect();
        let places = vectors.iter_mut().zip(&mut self.controls).zip(&mut self.sources);
        let mut messages: Vec<libc::mmsghdr> = places
            .map(|((vector, control), source)| {
                // SAFETY: all zeros is a valid message header.
                let mut header: libc::mmsghdr = unsafe { zeroed() };
                header.msg_hdr.msg_name = (&raw mut *source).cast();
                header.msg_hdr.msg_namelen = size_of_val(source) as u32;
                header.msg_hdr.msg_iov = vector;
                header.msg_hdr.msg_iovlen = 1;
                header.msg_hdr.msg_control = (&raw mut *control).cast();
                header.msg_hdr.msg_controllen = size_of_val(control) as _;
                header
            })
            .collect();
        let flags = if waits {
            libc::MSG_WAITFORONE
        } else {
            libc::MSG_DONTWAIT
        };
        let (first, room) = (messages.as_mut_ptr(), messages.len() as u32);
        // SAFETY: the headers point to buffers that outlive the call.
        let count = unsafe { libc::recvmmsg(socket.as_raw_fd(), first, room, flags as _, null_mut()) };
        let (read, wall) = (clock::now(), clock::wall());
        let count = usize::try_from(count).map_err(|_| io::Error::last_os_error())?;
        let datagram = |(place, (header, source)): (usize, (&libc::mmsghdr, &libc::sockaddr_storage))| {
            // SAFETY: the kernel filled in the control messages of this header.
            let stamp = unsafe { stamp(&header.msg_hdr) };
            Datagram {
                place: place * LARGEST,
                length: header.msg_len as usize,
                arrival: stamp.map_or(read, |stamp| read.saturating_sub(wall.saturating_sub(stamp))),
                read,
                source: *source,
                source_length: header.msg_hdr.msg_namelen,
            }
        };
        let came = messages.iter().zip(&self.sources).take(count).enumerate();
        Ok(came.map(datagram).collect())
    }
}

/// The kernel's stamp, CLOCK_REALTIME ns.
///
/// # Safety
/// `message` must be as recvmsg left it, its control buffer alive.
unsafe fn stamp(message: &libc::msghdr) -> Option<u64> {
    // SAFETY: the caller's; the macros walk within `msg_controllen`.
    unsafe {
        let mut header = libc::CMSG_FIRSTHDR(message);
        while let Some(control) = header.as_ref() {
            if (control.cmsg_level, control.cmsg_type) == (libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS) {
                let time = libc::CMSG_DATA(control).cast::<libc::timespec>().read_unaligned();
                return Some(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64);
            }
            header = libc::CMSG_NXTHDR(message, control);
        }
    }
    None
}
