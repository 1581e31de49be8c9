//! The all-to-all remap of Moritz and Frank 2001, 5.1: every process sends values to others, again and again.
//!
//! Model. A process has one *processor*, a FIFO server in logical time as in the simulation of the mesh: sending takes it
//! for `send` (o_s), a message that has come for `receive` (o_r), a request's handler for both. It is waited for, not
//! burnt: any number of processes may share this machine's processors, and a wake-up that is late delays no later one.
//!
//! ```text
//! synchronous    request, reply, next                              an iteration: 2 (o_s + L + o_r) and contention
//! asynchronous   messages one after the other                      o_s + o_r
//! long           B bytes in parts, G apart; the next message once  o_s + (B - 1) G + (B - 1 - a) G and contention
//!                this one is there and what came has been taken
//! ```
//!
//! Messages are datagrams, so that nothing crosses the network but what is counted; barriers go over TCP. Who sends which
//! value to whom follows from the seed, so every process knows what has to come: a value that is wrong, comes twice, or
//! comes to another process than its own ends the program, and so does one that is missing at the end.
//!
//! What it lacks: back-pressure. A send never waits for the network, except that a long message waits for its own arrival.

mod ledger;
mod mapping;
#[cfg(test)]
mod tests;

use std::{
    io,
    net::{IpAddr, SocketAddr, UdpSocket},
    os::fd::{AsFd as _, AsRawFd as _},
    sync::{
        Mutex,
        atomic::{AtomicBool, Ordering},
        mpsc::{Receiver, Sender, channel},
    },
    thread,
    time::{Duration, Instant},
};

use nix::sys::socket::{MsgFlags, recv, setsockopt, sockopt};
use perturb_stats::SplitMix64;

pub use self::mapping::Mapping;

use self::ledger::{Beginning, Ledger, Sort};
use super::{Outcome, PatternError};
use crate::mesh::{self, MeshError, PATIENCE, locked, socket};

/// How values travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// A request, and its reply, before the next.
    Synchronous,
    /// One after the other, without waiting.
    Asynchronous,
    /// Long messages in parts; the next one when this one is there.
    Long,
}

/// A remap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Remap {
    pub style: Style,
    /// To whom.
    pub mapping: Mapping,
    /// Of the random mapping: at most so far away in number, modulo that of the processes (EM3D's span).
    pub span: Option<u32>,
    /// Messages that each process sends (replies aside).
    pub iterations: u32,
    /// Bytes of a message, at least [`HEADER`].
    pub message: u64,
    /// o_s.
    pub send: Duration,
    /// o_r; of long messages it is hidden by what arrives meanwhile.
    pub receive: Duration,
    /// G, of long messages.
    pub per_byte: Duration,
    /// Of the random mapping.
    pub seed: u64,
}

/// What a remap measured, means over the processes.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub struct Remapped {
    /// Messages that each process sent.
    pub iterations: u32,
    /// From one message of a process to its next: a cycle, T_c of long messages.
    pub interval_us: f64,
    /// From a request to its reply, or from a long message's first byte to the news of its arrival.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub round_trip_us: Option<f64>,
    /// Values that came where they should, of all processes.
    pub values: u64,
}

/// The data port of all processes.
const PORT: u16 = 7702;
/// Bytes that a datagram begins with.
pub const HEADER: u64 = 20;
/// Bytes of a part of a long message; an input queue of Alewife holds as many.
pub(super) const PART: u64 = 256;
/// a: bytes of a long message that come before it is taken.
pub(super) const INTERRUPT: u64 = 8;
/// Room for what comes faster than it is taken, in bytes of kernel memory.
const ROOM: usize = 8 << 20;
/// Between two looks whether all is done.
const LOOK: Duration = Duration::from_millis(20);

impl Remap {
    /// The value that it sends.
    fn value(&self, from: usize, number: u32) -> u64 {
        SplitMix64::new(((number as u64) << 16 | from as u64) ^ !self.seed).bits()
    }

    /// Parts of a message.
    fn parts(&self) -> u32 {
        match self.style {
            Style::Long => u32::try_from(self.message.div_ceil(PART)).unwrap_or(u32::MAX),
            Style::Synchronous | Style::Asynchronous => 1,
        }
    }

    /// G for so many bytes.
    fn transfer(&self, bytes: u64) -> Duration {
        self.per_byte
            .saturating_mul(u32::try_from(bytes).unwrap_or(u32::MAX))
    }
}

/// What the receiving thread tells the sending one.
enum News {
    /// The reply to the last message is there, and taken.
    Reply(Instant),
    /// A long message is there, and not taken.
    Long,
    /// All that had to come has come, and is taken.
    Complete(Instant),
    Failed(PatternError),
}

/// A process of the remap.
struct Process<'r> {
    remap: &'r Remap,
    rank: usize,
    peers: Vec<SocketAddr>,
    socket: UdpSocket,
    /// When the processor is free.
    free: Mutex<Instant>,
    /// The sending thread has ended.
    done: AtomicBool,
    /// How long nothing may happen.
    patience: Duration,
}

/// Runs process `rank` of a remap between hosts with these addresses.
pub(super) fn run(remap: &Remap, rank: usize, addresses: &[IpAddr]) -> Result<Outcome, PatternError> {
    run_within(PATIENCE, remap, rank, addresses)
}

fn run_within(
    patience: Duration,
    remap: &Remap,
    rank: usize,
    addresses: &[IpAddr],
) -> Result<Outcome, PatternError> {
    if remap.mapping == Mapping::Perfect && !addresses.len().is_multiple_of(2) {
        return Err(PatternError::NoNeighbor);
    }
    if remap.style != Style::Long {
        for peer in addresses.iter().filter(|peer| **peer != addresses[rank]) {
            let most = socket("asking for the MTU", room(SocketAddr::new(*peer, PORT)))?;
            let message = remap.message;
            if message > most {
                return Err(PatternError::TooLong { message, most });
            }
        }
    }
    let own = SocketAddr::new(addresses[rank], PORT);
    let endpoint = endpoint(own, LOOK)?;
    mesh::Process::connect(rank, addresses, 0)?.run(|mesh| {
        let process = Process {
            remap,
            rank,
            peers: addresses
                .iter()
                .map(|address| SocketAddr::new(*address, PORT))
                .collect(),
            socket: endpoint,
            free: Mutex::new(Instant::now()),
            done: AtomicBool::new(false),
            patience,
        };
        mesh.barrier()?;
        let start = Instant::now();
        let (interval, round_trip, values) = process.run()?;
        mesh.barrier()?;
        let run_time_s = start.elapsed().as_secs_f64();
        let mut total = |figure: f64| {
            let all = mesh.gather(figure.to_bits())?;
            Ok::<f64, MeshError>(all.into_iter().map(f64::from_bits).sum())
        };
        let count = addresses.len() as f64;
        let interval_us = total(interval.as_secs_f64() * 1e6)? / count;
        let round_trip_us = total(round_trip.as_secs_f64() * 1e6)? / count;
        let values = total(values as f64)?;
        Ok(Outcome {
            run_time_s,
            messages: remap.iterations.into(),
            remap: Some(Remapped {
                iterations: remap.iterations,
                interval_us,
                round_trip_us: (remap.style != Style::Asynchronous).then_some(round_trip_us),
                values: values.round() as u64,
            }),
        })
    })
}

/// Bytes of the largest datagram that goes to a peer in one packet; IPv4 has none above 65507.
fn room(peer: SocketAddr) -> io::Result<u64> {
    let (any, level, name, headers) = match peer {
        SocketAddr::V4(_) => (IpAddr::from([0; 4]), libc::IPPROTO_IP, libc::IP_MTU, 20 + 8),
        SocketAddr::V6(_) => (IpAddr::from([0; 16]), libc::IPPROTO_IPV6, libc::IPV6_MTU, 40 + 8),
    };
    let probe = UdpSocket::bind((any, 0))?;
    probe.connect(peer)?;
    let (mut mtu, mut size): (libc::c_int, _) = (0, size_of::<libc::c_int>() as libc::socklen_t);
    // SAFETY: IP_MTU and IPV6_MTU write an int, as large as `size` says.
    let done = unsafe {
        libc::getsockopt(
            probe.as_raw_fd(),
            level,
            name,
            (&raw mut mtu).cast(),
            &raw mut size,
        )
    };
    if done != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(u64::from(mtu.unsigned_abs()).saturating_sub(headers).min(65_507))
}

/// A socket with room for what comes faster than it is taken, and a time-out.
pub(super) fn endpoint(own: SocketAddr, patience: Duration) -> Result<UdpSocket, PatternError> {
    let endpoint = socket("opening a socket", UdpSocket::bind(own))?;
    let room = setsockopt(&endpoint.as_fd(), sockopt::RcvBufForce, &ROOM)
        .or_else(|_| setsockopt(&endpoint.as_fd(), sockopt::RcvBuf, &ROOM));
    socket("enlarging a socket's buffer", room.map_err(Into::into))?;
    socket("setting a time-out", endpoint.set_read_timeout(Some(patience)))?;
    Ok(endpoint)
}

impl Process<'_> {
    /// Sends all, and takes all that comes: the mean interval and round trip, and how many values came.
    fn run(&self) -> Result<(Duration, Duration, u64), PatternError> {
        let mut ledger = Ledger::of(self.remap, self.rank, self.peers.len());
        let (to, news) = channel();
        thread::scope(|scope| {
            let ledger = &mut ledger;
            scope.spawn(move || {
                if let Err(error) = self.receive(ledger, &to) {
                    // The sending thread may have failed before.
                    let _ = to.send(News::Failed(error));
                }
            });
            let sent = self.send_all(&news);
            self.done.store(true, Ordering::Relaxed);
            sent
        })
        .map(|(interval, round_trip)| (interval, round_trip, ledger.values))
    }

    /// Takes the processor from `arrival` or when it is free, and waits for the end.
    fn occupy(&self, arrival: Instant, time: Duration) -> Instant {
        let end = {
            let mut free = locked(&self.free);
            *free = (*free).max(arrival) + time;
            *free
        };
        until(end);
        end
    }

    fn send_all(&self, news: &Receiver<News>) -> Result<(Duration, Duration), PatternError> {
        let Remap {
            style, iterations, ..
        } = *self.remap;
        let start = Instant::now();
        let (mut at, mut round_trips) = (start, Duration::ZERO);
        let mut inbox = Told {
            news,
            patience: self.patience,
            longs: 0,
            complete: None,
        };
        for number in 0..iterations {
            let Some(to) = self.remap.destination(self.rank, number, self.peers.len()) else {
                break;
            };
            match style {
                Style::Synchronous => {
                    let sent = self.occupy(at, self.remap.send);
                    self.send(Sort::Value, to, number, 0, self.remap.message)?;
                    at = inbox.reply()?;
                    round_trips += at.saturating_duration_since(sent);
                }
                Style::Asynchronous => {
                    at = self.occupy(at, self.remap.send);
                    self.send(Sort::Value, to, number, 0, self.remap.message)?;
                }
                Style::Long => {
                    let sent = at + self.remap.send;
                    at = self.send_long(to, number, sent)?;
                    let there = inbox.reply()?;
                    round_trips += there.saturating_duration_since(sent);
                    at = self.take(at.max(there), &mut inbox.longs);
                }
            }
        }
        let sent_all = at;
        while inbox.complete.is_none() {
            inbox.next()?;
            at = self.take(at, &mut inbox.longs);
        }
        let count = iterations.max(1);
        let end = match style {
            // The messages of others go on.
            Style::Synchronous | Style::Long => sent_all,
            Style::Asynchronous => inbox.complete.map_or(at, |complete| complete.max(at)),
        };
        Ok((end.saturating_duration_since(start) / count, round_trips / count))
    }

    /// Takes long messages that have come, one after the other.
    fn take(&self, mut at: Instant, longs: &mut u32) -> Instant {
        for _ in 0..std::mem::take(longs) {
            at += self
                .remap
                .transfer(self.remap.message.saturating_sub(1 + INTERRUPT));
        }
        until(at);
        at
    }

    /// Sends a long message's parts from `start` on; when the last byte has left.
    fn send_long(&self, to: usize, number: u32, start: Instant) -> Result<Instant, PatternError> {
        let (message, parts) = (self.remap.message, self.remap.parts());
        for part in 0..parts {
            let before = u64::from(part) * PART;
            until(start + self.remap.transfer(before));
            let bytes = (message - before).clamp(HEADER, PART);
            self.send(Sort::Value, to, number, parts - 1 - part, bytes)?;
        }
        Ok(start + self.remap.transfer(message - 1))
    }

    fn send(&self, sort: Sort, to: usize, number: u32, part: u32, bytes: u64) -> Result<(), PatternError> {
        let owner = if sort == Sort::Value { self.rank } else { to };
        let mut datagram = vec![0; bytes as usize];
        Beginning {
            sort,
            from: self.rank as u16,
            part,
            number,
            value: self.remap.value(owner, number),
        }
        .put(&mut datagram);
        socket("sending", self.socket.send_to(&datagram, self.peers[to]))?;
        Ok(())
    }

    /// Takes what comes, until the sending thread is done: it waits for all that has to come, but not for ever.
    fn receive(&self, ledger: &mut Ledger, news: &Sender<News>) -> Result<(), PatternError> {
        let mut datagram = vec![0; 65_536];
        let start = Instant::now();
        let mut told = false;
        while !self.done.load(Ordering::Relaxed) {
            if !told && ledger.missing.is_empty() {
                told = true;
                let _ = news.send(News::Complete(*locked(&self.free)));
            }
            // What is there already came while the processor was not free.
            let waiting = recv(self.socket.as_raw_fd(), &mut datagram, MsgFlags::MSG_DONTWAIT);
            let (length, arrival) = match waiting {
                Ok(length) => (length, start),
                Err(_) => match self.socket.recv(&mut datagram) {
                    Ok(length) => (length, Instant::now()),
                    Err(_) => continue,
                },
            };
            let Some(came) = Beginning::of(&datagram[..length]) else {
                continue;
            };
            self.came(came, arrival, ledger, news)?;
        }
        Ok(())
    }

    fn came(
        &self,
        came: Beginning,
        arrival: Instant,
        ledger: &mut Ledger,
        news: &Sender<News>,
    ) -> Result<(), PatternError> {
        let Remap {
            style,
            send,
            receive,
            message,
            ..
        } = *self.remap;
        let from = usize::from(came.from);
        match (came.sort, style) {
            (Sort::Reply, _) => {
                if came.value != self.remap.value(self.rank, came.number) {
                    return Err(PatternError::Misplaced {
                        from,
                        number: came.number,
                    });
                }
                let taken = match style {
                    Style::Synchronous => self.occupy(arrival, receive),
                    _ => Instant::now(),
                };
                let _ = news.send(News::Reply(taken));
            }
            (Sort::Value, Style::Synchronous) => {
                ledger.came(self.remap, came)?;
                self.occupy(arrival, receive + send);
                self.send(Sort::Reply, from, came.number, 0, message)?;
            }
            (Sort::Value, Style::Asynchronous) => {
                ledger.came(self.remap, came)?;
                self.occupy(arrival, receive);
            }
            (Sort::Value, Style::Long) => {
                if ledger.came(self.remap, came)? {
                    self.send(Sort::Reply, from, came.number, 0, HEADER)?;
                    let _ = news.send(News::Long);
                }
            }
        }
        Ok(())
    }
}

/// What the sending thread has been told.
struct Told<'n> {
    news: &'n Receiver<News>,
    patience: Duration,
    /// Long messages that are there and not taken.
    longs: u32,
    complete: Option<Instant>,
}

impl Told<'_> {
    /// Waits for the next news; a reply, if it is one.
    fn next(&mut self) -> Result<Option<Instant>, PatternError> {
        let news = self.news.recv_timeout(self.patience);
        match news.map_err(|_| MeshError::Silence)? {
            News::Reply(at) => return Ok(Some(at)),
            News::Long => self.longs += 1,
            News::Complete(at) => self.complete = Some(at),
            News::Failed(error) => return Err(error),
        }
        Ok(None)
    }

    fn reply(&mut self) -> Result<Instant, PatternError> {
        loop {
            if let Some(at) = self.next()? {
                return Ok(at);
            }
        }
    }
}

fn until(time: Instant) {
    thread::sleep(time.saturating_duration_since(Instant::now()));
}
