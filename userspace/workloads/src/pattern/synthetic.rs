//! Two processes and datagrams that are counted beforehand.
//!
//! Each datagram is one packet, and nothing else is sent between start and end. None is repeated: where one is lost the
//! program ends with [`MeshError::Silence`].

use std::{
    io,
    net::{SocketAddr, UdpSocket},
    os::fd::AsFd as _,
    thread,
    time::{Duration, Instant},
};

use nix::sys::socket::{setsockopt, sockopt};

use super::Outcome;
use crate::mesh::{MeshError, PATIENCE, socket};

/// What is exchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exchange {
    /// So many requests, each after the reply to the one before.
    Reads(u64),
    /// So many datagrams, at once.
    Burst(u64),
    /// So many datagrams, one per interval.
    Paced(u64, Duration),
}

/// Bytes of a datagram.
const SIZE: usize = 64;
/// Room for what comes faster than it is read, in bytes of kernel memory.
const ROOM: usize = 256 << 20;
/// Sleeping ends so long before the time, which is then waited for without sleeping.
const SPIN: Duration = Duration::from_micros(200);

const HELLO: u8 = 0;
const DATA: u8 = 1;
const END: u8 = 2;

/// A datagram: its kind, and its number.
struct Datagram(u8, u64);

fn endpoint(address: SocketAddr) -> Result<UdpSocket, MeshError> {
    let endpoint = socket("opening a socket", UdpSocket::bind(address))?;
    socket("setting a time-out", endpoint.set_read_timeout(Some(PATIENCE)))?;
    // Only root may have more than the machine's limit; the limit is enough for slow networks.
    if setsockopt(&endpoint.as_fd(), sockopt::RcvBufForce, &ROOM).is_err() {
        let set = setsockopt(&endpoint.as_fd(), sockopt::RcvBuf, &ROOM).map_err(io::Error::from);
        socket("enlarging a socket's buffer", set)?;
    }
    Ok(endpoint)
}

fn send(endpoint: &UdpSocket, Datagram(kind, number): Datagram) -> Result<(), MeshError> {
    let mut bytes = [0; SIZE];
    bytes[0] = kind;
    bytes[1..9].copy_from_slice(&number.to_le_bytes());
    socket("sending", endpoint.send(&bytes)).map(|_| ())
}

fn receive(endpoint: &UdpSocket) -> Result<Datagram, MeshError> {
    let mut bytes = [0; SIZE];
    match endpoint.recv(&mut bytes) {
        Ok(_) => {
            let mut number = [0; 8];
            number.copy_from_slice(&bytes[1..9]);
            Ok(Datagram(bytes[0], u64::from_le_bytes(number)))
        }
        Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
            Err(MeshError::Silence)
        }
        Err(source) => Err(MeshError::Socket {
            action: "receiving",
            source,
        }),
    }
}

/// The first process: it sends, or asks.
pub(super) fn first(exchange: Exchange, peer: SocketAddr) -> Result<Outcome, MeshError> {
    let any = if peer.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    let address = any.parse().map_err(|_| MeshError::Silence)?;
    let endpoint = endpoint(address)?;
    socket("naming the peer", endpoint.connect(peer))?;
    // The other one may not have begun; until it answers, a refusal is no error.
    socket(
        "setting a time-out",
        endpoint.set_read_timeout(Some(Duration::from_millis(20))),
    )?;
    let begun = Instant::now();
    loop {
        // Nobody listens yet, if this fails.
        let _ = send(&endpoint, Datagram(HELLO, 0));
        if receive(&endpoint).is_ok() {
            break;
        }
        if begun.elapsed() > PATIENCE {
            return Err(MeshError::Silence);
        }
        thread::sleep(Duration::from_millis(2));
    }
    // Answers to greetings that were repeated are still under way.
    thread::sleep(Duration::from_millis(20));
    while receive(&endpoint).is_ok() {}
    socket("setting a time-out", endpoint.set_read_timeout(Some(PATIENCE)))?;

    let start = Instant::now();
    let messages = match exchange {
        Exchange::Reads(count) => {
            for number in 0..count {
                send(&endpoint, Datagram(DATA, number))?;
                expect(&endpoint, number)?;
            }
            count
        }
        Exchange::Burst(count) => {
            for number in 0..count {
                send(&endpoint, Datagram(DATA, number))?;
            }
            expect(&endpoint, count)?;
            count
        }
        Exchange::Paced(count, interval) => {
            for number in 0..count {
                wait_until(start + interval.saturating_mul(u32::try_from(number).unwrap_or(u32::MAX)));
                send(&endpoint, Datagram(DATA, number))?;
            }
            expect(&endpoint, count)?;
            count
        }
    };
    let run_time_s = start.elapsed().as_secs_f64();
    send(&endpoint, Datagram(END, 0))?;
    Ok(Outcome {
        run_time_s,
        messages,
        remap: None,
    })
}

fn expect(endpoint: &UdpSocket, number: u64) -> Result<(), MeshError> {
    while receive(endpoint)?.1 != number {}
    Ok(())
}

fn wait_until(time: Instant) {
    let left = time.saturating_duration_since(Instant::now());
    thread::sleep(left.saturating_sub(SPIN));
    while Instant::now() < time {
        std::hint::spin_loop();
    }
}

/// The second process: it answers reads, or says that all has come.
pub(super) fn second(exchange: Exchange, address: SocketAddr) -> Result<(), MeshError> {
    let endpoint = endpoint(address)?;
    let mut bytes = [0; SIZE];
    let (_, peer) = socket("waiting for the first process", endpoint.recv_from(&mut bytes))?;
    socket("naming the peer", endpoint.connect(peer))?;
    send(&endpoint, Datagram(HELLO, u64::MAX))?;
    let mut seen = 0;
    loop {
        match (receive(&endpoint)?, exchange) {
            (Datagram(HELLO, _), _) => send(&endpoint, Datagram(HELLO, u64::MAX))?,
            (Datagram(END, _), _) => return Ok(()),
            (Datagram(_, number), Exchange::Reads(_)) => send(&endpoint, Datagram(DATA, number))?,
            (_, Exchange::Burst(count) | Exchange::Paced(count, _)) => {
                seen += 1;
                if seen == count {
                    send(&endpoint, Datagram(DATA, count))?;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_exchange_ends_and_a_paced_one_takes_its_time() {
        let interval = Duration::from_millis(2);
        let exchanges = [
            Exchange::Reads(50),
            Exchange::Burst(200),
            Exchange::Paced(25, interval),
        ];
        for exchange in exchanges {
            let free = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
            let other = thread::spawn(move || second(exchange, free));
            let outcome = first(exchange, free).unwrap();
            other.join().unwrap().unwrap();
            if let Exchange::Paced(count, interval) = exchange {
                assert_eq!(outcome.messages, count);
                assert!(outcome.run_time_s >= interval.as_secs_f64() * (count - 1) as f64);
            }
        }
    }
}
