//! Sockets: the calls that move bytes of a connected TCP socket, and those that change what a descriptor is.
//!
//! Descriptors that are no TCP sockets are remembered as such in a table, so that the many calls of read and
//! write on files cost a load more. Whatever makes a descriptor anew clears its entry.

use std::ffi::{c_int, c_uint, c_void};
use std::sync::atomic::{AtomicU8, Ordering};

use crate::preload::hook::hook;
use crate::preload::process::{Layer, layer};
use crate::preload::sys::{self, Errno};
use crate::preload::writer::{self, Start};
use crate::record::Event;

type Buffer = *mut c_void;

/// Descriptors that are remembered; those above are looked at each time.
const DESCRIPTORS: usize = 65_536;

static DESCRIPTOR: [AtomicU8; DESCRIPTORS] = [const { AtomicU8::new(UNKNOWN) }; DESCRIPTORS];

const UNKNOWN: u8 = 0;
const OTHER: u8 = 1;
const STREAM: u8 = 2;

/// MSG_PEEK and MSG_ERRQUEUE: nothing of the stream is taken.
const LOOKING: c_int = 0x2 | 0x2000;

fn entry(descriptor: c_int) -> Option<&'static AtomicU8> {
    DESCRIPTOR.get(usize::try_from(descriptor).ok()?)
}

/// After a fork or an exec nothing changes; a new descriptor is looked at again.
fn forget(descriptor: c_int) {
    if let Some(entry) = entry(descriptor) {
        entry.store(UNKNOWN, Ordering::Relaxed);
    }
}

/// Whether calls on a descriptor are traced. Announces a connection that is seen first.
fn is_traced(descriptor: c_int) -> bool {
    let entry = entry(descriptor);
    match entry.map_or(UNKNOWN, |entry| entry.load(Ordering::Relaxed)) {
        OTHER => return false,
        STREAM => return layer() != Layer::Mpi && writer::is_on(),
        _ => {}
    }
    if layer() == Layer::Mpi || !writer::is_on() {
        return false;
    }
    let _errno = Errno::save();
    let found = look(descriptor);
    if let Some(entry) = entry {
        match found {
            Found::Other => entry.store(OTHER, Ordering::Relaxed),
            Found::Stream => entry.store(STREAM, Ordering::Relaxed),
            Found::Unconnected => {}
        }
    }
    found == Found::Stream
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Found {
    Other,
    Unconnected,
    Stream,
}

fn look(descriptor: c_int) -> Found {
    const SO_PROTOCOL: c_int = 38;
    const SO_COOKIE: c_int = 57;
    const IPPROTO_TCP: c_int = 6;
    const IPPROTO_MPTCP: c_int = 262;
    let protocol = sys::socket_option::<c_int>(descriptor, SO_PROTOCOL);
    if !matches!(protocol, Some(IPPROTO_TCP | IPPROTO_MPTCP)) {
        return Found::Other;
    }
    let (Some(own), Some(peer), Some(cookie)) = (
        sys::socket_address(descriptor, false),
        sys::socket_address(descriptor, true),
        sys::socket_option::<u64>(descriptor, SO_COOKIE),
    ) else {
        return Found::Unconnected;
    };
    let cpu = writer::counted_cpu();
    let (Some((address, port)), Some((peer, peer_port))) = (internet(&own.bytes), internet(&peer.bytes))
    else {
        return Found::Other;
    };
    writer::write(
        Event::Local {
            port,
            descriptor,
            address,
            cookie,
        },
        cpu,
    );
    writer::write(
        Event::Remote {
            port: peer_port,
            descriptor,
            address: peer,
            cookie,
        },
        cpu,
    );
    Found::Stream
}

/// Address and port of a `sockaddr`; IPv4 as IPv6 writes it.
fn internet(address: &[u8; 128]) -> Option<([u64; 2], u16)> {
    const AF_INET: u16 = 2;
    const AF_INET6: u16 = 10;
    let port = u16::from_be_bytes([address[2], address[3]]);
    let mut found = [0; 16];
    match u16::from_ne_bytes([address[0], address[1]]) {
        AF_INET => {
            found[10..12].copy_from_slice(&[0xff; 2]);
            found[12..].copy_from_slice(&address[4..8]);
        }
        AF_INET6 => found.copy_from_slice(&address[8..24]),
        _ => return None,
    }
    let address = u128::from_be_bytes(found);
    Some(([(address >> 64) as u64, address as u64], port))
}

/// Which way bytes go.
#[derive(Clone, Copy)]
enum Way {
    Out,
    In,
}

/// Calls, and records what was moved.
fn moved(way: Way, descriptor: c_int, call: impl FnOnce() -> isize) -> isize {
    if !is_traced(descriptor) {
        return call();
    }
    let start = writer::start();
    let result = call();
    if result > 0 {
        record(way, descriptor, result as u64, start);
    }
    result
}

/// Bytes are sent when the call begins, for their receiver may have them before it ends, and taken when it ends.
fn record(way: Way, descriptor: c_int, bytes: u64, start: Start) {
    let _errno = Errno::save();
    let before = writer::counted(start.cpu_ns);
    let cpu_ns = writer::counted(writer::cpu_at_end());
    match way {
        Way::Out => {
            let event = Event::Sent {
                descriptor,
                bytes,
                before,
            };
            writer::write_at(event, cpu_ns, start.time_ns);
        }
        Way::In => {
            let event = Event::Taken {
                descriptor,
                bytes,
                before,
            };
            writer::write(event, cpu_ns);
        }
    }
}

fn taken(descriptor: c_int, flags: c_int, call: impl FnOnce() -> isize) -> isize {
    if flags & LOOKING == 0 {
        moved(Way::In, descriptor, call)
    } else {
        call()
    }
}

/// A `struct mmsghdr`: a message header of 56 bytes, and how much of it was moved.
#[repr(C)]
struct Batch {
    header: [u64; 7],
    length: c_uint,
}

/// Calls, and records the sum over a batch.
fn batch(way: Way, descriptor: c_int, messages: *const Batch, call: impl FnOnce() -> c_int) -> c_int {
    if !is_traced(descriptor) {
        return call();
    }
    let start = writer::start();
    let count = call();
    if count > 0 {
        // SAFETY: the call has filled in `count` messages of the caller's array.
        let messages = unsafe { std::slice::from_raw_parts(messages, count as usize) };
        let bytes = messages.iter().map(|message| u64::from(message.length)).sum();
        if bytes > 0 {
            record(way, descriptor, bytes, start);
        }
    }
    count
}

fn close_of(descriptor: c_int) {
    let known = entry(descriptor).map_or(OTHER, |entry| entry.swap(UNKNOWN, Ordering::Relaxed));
    if known == STREAM && writer::has_recorded() {
        let _errno = Errno::save();
        writer::write(Event::Closed { descriptor }, writer::counted_cpu());
    }
}

hook! {
    fn send(next, socket: c_int, data: Buffer, size: usize, flags: c_int) -> isize {
        moved(Way::Out, socket, || next(socket, data, size, flags))
    }
    fn sendto(
        next, socket: c_int, data: Buffer, size: usize, flags: c_int, to: Buffer, length: c_uint
    ) -> isize {
        moved(Way::Out, socket, || next(socket, data, size, flags, to, length))
    }
    fn sendmsg(next, socket: c_int, message: Buffer, flags: c_int) -> isize {
        moved(Way::Out, socket, || next(socket, message, flags))
    }
    fn sendmmsg(next, socket: c_int, messages: *mut Batch, count: c_uint, flags: c_int) -> c_int {
        batch(Way::Out, socket, messages, || next(socket, messages, count, flags))
    }
    fn write(next, descriptor: c_int, data: Buffer, size: usize) -> isize {
        moved(Way::Out, descriptor, || next(descriptor, data, size))
    }
    fn writev(next, descriptor: c_int, parts: Buffer, count: c_int) -> isize {
        moved(Way::Out, descriptor, || next(descriptor, parts, count))
    }
    fn sendfile(next, to: c_int, from: c_int, offset: Buffer, count: usize) -> isize {
        moved(Way::Out, to, || next(to, from, offset, count))
    }
    fn sendfile64(next, to: c_int, from: c_int, offset: Buffer, count: usize) -> isize {
        moved(Way::Out, to, || next(to, from, offset, count))
    }
    fn recv(next, socket: c_int, data: Buffer, size: usize, flags: c_int) -> isize {
        taken(socket, flags, || next(socket, data, size, flags))
    }
    fn __recv_chk(next, socket: c_int, data: Buffer, size: usize, room: usize, flags: c_int) -> isize {
        taken(socket, flags, || next(socket, data, size, room, flags))
    }
    fn recvfrom(
        next, socket: c_int, data: Buffer, size: usize, flags: c_int, from: Buffer, length: Buffer
    ) -> isize {
        taken(socket, flags, || next(socket, data, size, flags, from, length))
    }
    fn __recvfrom_chk(
        next, socket: c_int, data: Buffer, size: usize, room: usize, flags: c_int, from: Buffer, length: Buffer
    ) -> isize {
        taken(socket, flags, || next(socket, data, size, room, flags, from, length))
    }
    fn recvmsg(next, socket: c_int, message: Buffer, flags: c_int) -> isize {
        taken(socket, flags, || next(socket, message, flags))
    }
    fn recvmmsg(
        next, socket: c_int, messages: *mut Batch, count: c_uint, flags: c_int, timeout: Buffer
    ) -> c_int {
        if flags & LOOKING != 0 {
            return next(socket, messages, count, flags, timeout);
        }
        batch(Way::In, socket, messages, || next(socket, messages, count, flags, timeout))
    }
    fn read(next, descriptor: c_int, data: Buffer, size: usize) -> isize {
        taken(descriptor, 0, || next(descriptor, data, size))
    }
    fn __read_chk(next, descriptor: c_int, data: Buffer, size: usize, room: usize) -> isize {
        taken(descriptor, 0, || next(descriptor, data, size, room))
    }
    fn readv(next, descriptor: c_int, parts: Buffer, count: c_int) -> isize {
        taken(descriptor, 0, || next(descriptor, parts, count))
    }
    fn close(next, descriptor: c_int) -> c_int {
        // Before: another thread may be given the number as soon as it is free.
        if writer::is_on() {
            close_of(descriptor);
        }
        next(descriptor)
    }
    fn socket(next, domain: c_int, kind: c_int, protocol: c_int) -> c_int {
        made(next(domain, kind, protocol))
    }
    fn socketpair(next, domain: c_int, kind: c_int, protocol: c_int, pair: *mut [c_int; 2]) -> c_int {
        let code = next(domain, kind, protocol, pair);
        if code == 0 {
            // SAFETY: a call that succeeded has written both.
            unsafe { *pair }.into_iter().for_each(forget);
        }
        code
    }
    fn pipe(next, pair: *mut [c_int; 2]) -> c_int {
        let code = next(pair);
        if code == 0 {
            // SAFETY: a call that succeeded has written both.
            unsafe { *pair }.into_iter().for_each(forget);
        }
        code
    }
    fn accept(next, socket: c_int, address: Buffer, size: Buffer) -> c_int {
        made(next(socket, address, size))
    }
    fn accept4(next, socket: c_int, address: Buffer, size: Buffer, flags: c_int) -> c_int {
        made(next(socket, address, size, flags))
    }
    fn connect(next, socket: c_int, address: Buffer, size: c_uint) -> c_int {
        if writer::is_on() {
            forget(socket);
        }
        next(socket, address, size)
    }
    fn dup(next, descriptor: c_int) -> c_int {
        made(next(descriptor))
    }
    fn dup2(next, descriptor: c_int, copy: c_int) -> c_int {
        made(next(descriptor, copy))
    }
    fn dup3(next, descriptor: c_int, copy: c_int, flags: c_int) -> c_int {
        made(next(descriptor, copy, flags))
    }
}

/// A descriptor that a call gave.
fn made(descriptor: c_int) -> c_int {
    if descriptor >= 0 && writer::is_on() {
        forget(descriptor);
    }
    descriptor
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses() {
        let mut address = [0; 128];
        address[..8].copy_from_slice(&[2, 0, 0x1f, 0x90, 10, 77, 0, 1]);
        assert_eq!(internet(&address), Some(([0, 0xffff_0a4d_0001], 8080)));
        address[..2].copy_from_slice(&10_u16.to_ne_bytes());
        address[8..24].copy_from_slice(&[7; 16]);
        assert_eq!(internet(&address), Some(([0x0707_0707_0707_0707; 2], 8080)));
        address[0] = 1;
        assert_eq!(internet(&address), None);
    }
}
