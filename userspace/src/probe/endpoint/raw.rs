//! The system calls of an endpoint: sending a message of several datagrams at once (UDP_SEGMENT, since 4.18), and
//! receiving with the kernel's stamp (SO_TIMESTAMPNS).
//!
//! The kernel stamps by CLOCK_REALTIME; the age of a stamp is the same by either clock, so it is converted by its age.

use std::{
    io,
    mem::{MaybeUninit, zeroed},
    net::{SocketAddr, UdpSocket},
    os::fd::AsRawFd as _,
};

use nix::sys::socket::{SockaddrLike as _, SockaddrStorage, setsockopt, sockopt};

use super::Sent;
use crate::probe::clock;

/// Asked for; without privilege the kernel grants what net.core.rmem_max allows.
const BUFFER: usize = 32 << 20;

/// A datagram that came.
pub(super) struct Datagram {
    /// Bytes of payload.
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

/// Sends a message that the kernel cuts into datagrams of `payload` bytes.
pub(super) fn send(socket: &UdpSocket, to: &SocketAddr, data: &[u8], payload: usize) -> io::Result<Sent> {
    let address = SockaddrStorage::from(*to);
    let mut control = [0_u64; 4];
    let mut vector = libc::iovec {
        iov_base: data.as_ptr().cast_mut().cast(),
        iov_len: data.len(),
    };
    // SAFETY: all zeros is a valid message header.
    let mut message: libc::msghdr = unsafe { zeroed() };
    message.msg_name = address.as_ptr().cast_mut().cast();
    message.msg_namelen = address.len();
    message.msg_iov = &raw mut vector;
    message.msg_iovlen = 1;
    if payload < data.len() {
        message.msg_control = control.as_mut_ptr().cast();
        // SAFETY: the macros compute lengths; the control buffer has room for one u16, and outlives the call.
        unsafe {
            message.msg_controllen = libc::CMSG_SPACE(size_of::<u16>() as u32) as usize;
            let header = libc::CMSG_FIRSTHDR(&raw const message);
            (*header).cmsg_level = libc::SOL_UDP;
            (*header).cmsg_type = libc::UDP_SEGMENT;
            (*header).cmsg_len = libc::CMSG_LEN(size_of::<u16>() as u32) as usize;
            libc::CMSG_DATA(header)
                .cast::<u16>()
                .write_unaligned(payload as u16);
        }
    }
    let at = clock::now();
    // SAFETY: the header points to an address, data and control that outlive the call, which reads them only.
    let sent = unsafe { libc::sendmsg(socket.as_raw_fd(), &raw const message, 0) };
    let returned = clock::now();
    if sent < 0 {
        let error = io::Error::last_os_error();
        // A full queue of a device is a loss, and is counted as one.
        if error.raw_os_error() != Some(libc::ENOBUFS) {
            return Err(error);
        }
    }
    Ok(Sent { at, returned })
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

/// Receives a datagram; `waits` for it, or returns at once if there is none.
pub(super) fn receive(socket: &UdpSocket, buffer: &mut [u8], waits: bool) -> io::Result<Datagram> {
    let mut control = [MaybeUninit::<u64>::uninit(); 16];
    // SAFETY: all zeros is a valid address and a valid message header.
    let (mut source, mut message): (libc::sockaddr_storage, libc::msghdr) = unsafe { (zeroed(), zeroed()) };
    let mut vector = libc::iovec {
        iov_base: buffer.as_mut_ptr().cast(),
        iov_len: buffer.len(),
    };
    message.msg_name = (&raw mut source).cast();
    message.msg_namelen = size_of_val(&source) as u32;
    message.msg_iov = &raw mut vector;
    message.msg_iovlen = 1;
    message.msg_control = control.as_mut_ptr().cast();
    message.msg_controllen = size_of_val(&control);
    let flags = if waits { 0 } else { libc::MSG_DONTWAIT };
    // SAFETY: the header points to buffers that outlive the call.
    let length = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut message, flags) };
    let (read, wall) = (clock::now(), clock::wall());
    if length < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel filled in the control messages of this header.
    let stamp = unsafe { stamp(&message) };
    Ok(Datagram {
        length: length.unsigned_abs(),
        arrival: stamp.map_or(read, |stamp| read.saturating_sub(wall.saturating_sub(stamp))),
        read,
        source,
        source_length: message.msg_namelen,
    })
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
