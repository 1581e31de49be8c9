//! TCP and UDP: the rate at which data arrives.
//!
//! Model: `flows` connections send as much as they can from one host to another. After a warm-up, in which
//! slow start ends, the bytes that the receiver's applications read in a window are counted: goodput. Over UDP the
//! senders send full packets without pause, and what is lost is lost: nothing slows them down but their own system calls,
//! and a socket buffer that is larger than what any delay here holds.

use std::{
    io::{Read as _, Write as _},
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket},
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    thread,
    time::Duration,
};

use anyhow::{Context as _, Result};
use nix::sys::socket::{setsockopt, sockopt};

use crate::bed::{Family, Host};

/// What is transferred.
#[derive(Clone, Debug)]
pub struct Transfer {
    /// Connections at once.
    pub flows: usize,
    /// Not counted.
    pub warm_up: Duration,
    /// Counted.
    pub window: Duration,
    /// Congestion control.
    pub congestion_control: &'static str,
}

impl Default for Transfer {
    fn default() -> Self {
        Self {
            flows: 1,
            warm_up: Duration::from_secs(2),
            window: Duration::from_secs(3),
            congestion_control: "cubic",
        }
    }
}

/// Goodput of a transfer, bit/s, headers not counted.
pub fn goodput(from: &Host, to: &Host, transfer: &Transfer) -> Result<f64> {
    let listener = to.enter(|| TcpListener::bind(SocketAddr::new(to.address(Family::V4), 0)))??;
    let address = listener.local_addr()?;
    let connect = || from.enter(|| TcpStream::connect(address));
    let mut pairs = Vec::new();
    for _ in 0..transfer.flows {
        let out = connect()?.context("connecting")?;
        setsockopt(&out, sockopt::TcpCongestion, &transfer.congestion_control.into())
            .with_context(|| format!("no {} here", transfer.congestion_control))?;
        out.set_write_timeout(Some(Duration::from_millis(200)))?;
        let (into, _) = listener.accept()?;
        into.set_read_timeout(Some(Duration::from_millis(200)))?;
        pairs.push((out, into));
    }
    let received = AtomicU64::new(0);
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        for (out, into) in &pairs {
            let (mut out, mut into) = (out, into);
            let (over, received) = (&over, &received);
            scope.spawn(move || {
                let block = vec![0x55; 128 << 10];
                // A time-out is no error: the other side is slow, and `over` is looked at.
                while !over.load(Ordering::Relaxed) {
                    let _ = out.write(&block);
                }
            });
            scope.spawn(move || {
                let mut block = vec![0; 256 << 10];
                while !over.load(Ordering::Relaxed) {
                    if let Ok(length) = into.read(&mut block) {
                        received.fetch_add(length as u64, Ordering::Relaxed);
                    }
                }
            });
        }
        thread::sleep(transfer.warm_up);
        let (start, before) = (crate::clock::now(), received.load(Ordering::Relaxed));
        thread::sleep(transfer.window);
        let (end, after) = (crate::clock::now(), received.load(Ordering::Relaxed));
        over.store(true, Ordering::Relaxed);
        for (out, _) in &pairs {
            // Held data would keep the sockets, and the namespace, for a while.
            let _ = out.shutdown(std::net::Shutdown::Both);
        }
        Ok((after - before) as f64 * 8e9 / (end - start) as f64)
    })
}

/// What is sent over UDP.
#[derive(Clone, Copy, Debug)]
pub struct Blast {
    /// Senders at once.
    pub flows: usize,
    /// Not counted.
    pub warm_up: Duration,
    /// Counted.
    pub window: Duration,
}

impl Default for Blast {
    fn default() -> Self {
        Self {
            flows: 1,
            warm_up: Duration::from_millis(500),
            window: Duration::from_secs(3),
        }
    }
}

/// UDP payload of a full packet at MTU 1500, bytes.
const DATAGRAM: usize = 1472;
/// Socket buffers: what a sender may have under way, and a receiver unread.
const BUFFER: usize = 64 << 20;

/// Payload received in the window, bit/s.
pub fn received(from: &Host, to: &Host, blast: &Blast) -> Result<f64> {
    let mut pairs = Vec::new();
    for _ in 0..blast.flows {
        let into = to.enter(|| UdpSocket::bind(SocketAddr::new(to.address(Family::V4), 0)))??;
        let out = from.enter(|| UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)))??;
        out.connect(into.local_addr()?)?;
        setsockopt(&out, sockopt::SndBufForce, &BUFFER)?;
        setsockopt(&into, sockopt::RcvBufForce, &BUFFER)?;
        into.set_read_timeout(Some(Duration::from_millis(100)))?;
        out.set_write_timeout(Some(Duration::from_millis(100)))?;
        pairs.push((out, into));
    }
    let received = AtomicU64::new(0);
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        for (out, into) in &pairs {
            let (over, received) = (&over, &received);
            scope.spawn(move || {
                let block = [0x55; DATAGRAM];
                // Whatever is refused is lost, as on the way.
                while !over.load(Ordering::Relaxed) {
                    let _ = out.send(&block);
                }
            });
            scope.spawn(move || {
                let mut block = [0; DATAGRAM];
                while !over.load(Ordering::Relaxed) {
                    if let Ok(length) = into.recv(&mut block) {
                        received.fetch_add(length as u64, Ordering::Relaxed);
                    }
                }
            });
        }
        thread::sleep(blast.warm_up);
        let (start, before) = (crate::clock::now(), received.load(Ordering::Relaxed));
        thread::sleep(blast.window);
        let (end, after) = (crate::clock::now(), received.load(Ordering::Relaxed));
        over.store(true, Ordering::Relaxed);
        Ok((after - before) as f64 * 8e9 / (end - start) as f64)
    })
}

/// TCP payload of a full wire packet on Ethernet with MTU 1500 and time stamps (RFC 7323), bytes.
pub const PAYLOAD: f64 = 1448.0;
/// Its length on the wire as perturb counts it: with the Ethernet header, without preamble, checksum and gap.
pub const FRAME: f64 = 1514.0;

/// The goodput that a wire rate allows, bit/s.
#[must_use]
pub fn goodput_of(rate: f64) -> f64 {
    rate * PAYLOAD / FRAME
}
