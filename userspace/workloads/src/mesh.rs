//! Processes that are all connected with each other, and reach into each other's memory, as Split-C's do.
//!
//! Model: between any two processes there is one TCP connection. A message is its kind, a place, and a payload; each is a
//! segment of its own (MSG_EOR), so that a program's packets do not become fewer where the network is slow. A thread for
//! each peer serves at once what asks for service (reads, writes, swaps), as the handlers of active messages
//! do, and hands the rest on to the program. It never waits for anything but its connection, so that two processes that
//! write to each other cannot block each other.
//! Processes are numbered from 0. Memory consists of words of 64 bits.

mod process;
mod wire;

use std::{
    io::{self, Read as _, Write as _},
    net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
        mpsc::{Sender, channel},
    },
    thread,
    time::Duration,
};

pub(crate) use self::process::{LONGEST, Process};
use self::wire::{Kind, Link, Message, SHORT, words_of};
use crate::collective::patiently;

/// How long nothing may happen.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);
/// The port of all processes.
const PORT: u16 = 7700;
/// Bytes that are read at once.
const GULP: usize = 64 << 10;

/// Why processes could not work together.
#[derive(Debug, thiserror::Error)]
pub enum MeshError {
    /// A socket.
    #[error("{action}: {source}")]
    Socket {
        /// What was tried.
        action: &'static str,
        /// Why it failed.
        source: io::Error,
    },
    /// A process has ended early.
    #[error("the connection with process {0} is lost: it has ended early")]
    Lost(usize),
    /// The others are gone, or messages were lost.
    #[error("nothing has come from the other processes for {} s", PATIENCE.as_secs())]
    Silence,
    /// A message that no process sends.
    #[error("process {from} sent a message that this one does not understand (kind {kind}, place {at})")]
    Unknown {
        /// Its sender, from 0.
        from: usize,
        /// The kind.
        kind: u8,
        /// The place.
        at: u32,
    },
}

pub(crate) fn socket<T>(action: &'static str, result: io::Result<T>) -> Result<T, MeshError> {
    result.map_err(|source| MeshError::Socket { action, source })
}

pub(crate) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // What is protected is whole after any panic: a queue of whole messages.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What a process has sent, and how often it waited for all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Traffic {
    /// Messages, answers to others included.
    pub(crate) messages: u64,
    /// Their bytes, headers included, without those of TCP.
    pub(crate) bytes: u64,
    /// Those with more than six words.
    pub(crate) bulk_messages: u64,
    /// Their bytes.
    pub(crate) bulk_bytes: u64,
    /// Questions for values, and answers to them.
    pub(crate) reads: u64,
    /// Barriers.
    pub(crate) barriers: u64,
    /// Locks of others that were asked for in vain.
    pub(crate) failed_locks: u64,
}

#[derive(Debug, Default)]
struct Counters {
    messages: AtomicU64,
    bytes: AtomicU64,
    bulk_messages: AtomicU64,
    bulk_bytes: AtomicU64,
    reads: AtomicU64,
}

/// A process' connections with all others, and its memory.
#[derive(Debug)]
pub(crate) struct Mesh {
    rank: usize,
    links: Vec<Option<Link>>,
    memory: Vec<AtomicU64>,
    counters: Counters,
}

impl Mesh {
    /// Connects process `rank` with the others, whose addresses are given in order. Each may read and write `words` of
    /// the memory of each other one.
    pub(crate) fn connect(rank: usize, addresses: &[IpAddr], words: usize) -> Result<Self, MeshError> {
        let own = SocketAddr::new(addresses[rank], PORT);
        let listener = socket("listening for the others", TcpListener::bind(own))?;
        let mut streams: Vec<Option<TcpStream>> = addresses.iter().map(|_| None).collect();
        for (peer, address) in addresses.iter().enumerate().take(rank) {
            let stream = patiently(SocketAddr::new(*address, PORT), PATIENCE);
            let mut stream = socket("connecting with another process", stream)?;
            socket("greeting", stream.write_all(&(rank as u32).to_le_bytes()))?;
            streams[peer] = Some(stream);
        }
        for _ in rank + 1..addresses.len() {
            let (mut stream, _) = socket("waiting for the others", listener.accept())?;
            let mut greeting = [0; 4];
            socket("reading a greeting", stream.read_exact(&mut greeting))?;
            let peer = u32::from_le_bytes(greeting) as usize;
            if let Some(slot) = streams.get_mut(peer) {
                *slot = Some(stream);
            }
        }
        let links = streams
            .into_iter()
            .map(|stream| stream.map(Link::new).transpose());
        let links = socket("preparing a connection", links.collect::<io::Result<_>>())?;
        let words = words + 2 * addresses.len();
        Ok(Self {
            rank,
            links,
            memory: std::iter::repeat_with(AtomicU64::default).take(words).collect(),
            counters: Counters::default(),
        })
    }

    fn size(&self) -> usize {
        self.links.len()
    }

    fn traffic(&self) -> Traffic {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Traffic {
            messages: of(&self.counters.messages),
            bytes: of(&self.counters.bytes),
            bulk_messages: of(&self.counters.bulk_messages),
            bulk_bytes: of(&self.counters.bulk_bytes),
            reads: of(&self.counters.reads),
            ..Traffic::default()
        }
    }

    fn count(&self, kind: Kind, bytes: usize) {
        let add = |counter: &AtomicU64, much: usize| {
            counter.fetch_add(much as u64, Ordering::Relaxed);
        };
        add(&self.counters.messages, 1);
        add(&self.counters.bytes, bytes);
        if bytes > wire::HEADER + SHORT {
            add(&self.counters.bulk_messages, 1);
            add(&self.counters.bulk_bytes, bytes);
        }
        if matches!(kind, Kind::Read | Kind::Value) {
            add(&self.counters.reads, 1);
        }
    }

    /// Sends a message, and waits until the kernel has it.
    fn send(&self, to: usize, kind: Kind, at: usize, payload: &[u8]) -> Result<(), MeshError> {
        let Some(link) = self.links.get(to).and_then(Option::as_ref) else {
            return Ok(());
        };
        let message = wire::encoded(kind, at, payload);
        self.count(kind, message.len());
        link.send(message).map_err(|source| lost(to, "sending", source))
    }

    /// Runs a program on these connections, with threads that serve the others.
    pub(crate) fn run<T, E: From<MeshError>>(
        &self,
        program: impl FnOnce(&mut Process<'_>) -> Result<T, E>,
    ) -> Result<T, E> {
        let (sender, receiver) = channel();
        thread::scope(|scope| {
            for (peer, link) in self.links.iter().enumerate() {
                let Some(link) = link else { continue };
                let sender = sender.clone();
                scope.spawn(move || self.serve(peer, link, &sender));
            }
            let mut farewell = Farewell {
                links: &self.links,
                side: Shutdown::Both,
            };
            let mut process = Process::new(self, receiver);
            let result = program(&mut process)?;
            // Nobody hangs up before all have come to the end.
            process.barrier()?;
            for peer in process.others() {
                // Who is gone already needs no farewell.
                let _ = self.send(peer, Kind::Leave, 0, &[]);
            }
            farewell.side = Shutdown::Write;
            Ok(result)
        })
    }

    /// Takes in what a peer sends until it hangs up.
    fn serve(&self, from: usize, link: &Link, sender: &Sender<Result<Message, MeshError>>) {
        let (mut buffer, mut gulp, mut left) = (Vec::new(), vec![0; GULP], false);
        // The program may have ended; then nobody wants to know.
        let say = |result| drop(sender.send(result));
        loop {
            let mut used = 0;
            while let Some((message, bytes)) = wire::decoded(&buffer[used..]) {
                used += bytes;
                match Kind::from_repr(message.kind) {
                    Some(Kind::Leave) => left = true,
                    kind => match kind.map(|kind| self.handle(from, link, kind, message)) {
                        Some(Ok(None)) => {}
                        Some(Ok(Some(message))) => say(Ok(message)),
                        Some(Err(error)) => return say(Err(error)),
                        None => {
                            let (kind, at) = (message.kind, message.at);
                            return say(Err(MeshError::Unknown { from, kind, at }));
                        }
                    },
                }
            }
            buffer.drain(..used);
            match link.receive(&mut gulp) {
                Ok(0) | Err(_) if left => return,
                Ok(0) | Err(_) => return say(Err(MeshError::Lost(from))),
                Ok(bytes) => buffer.extend_from_slice(&gulp[..bytes]),
            }
        }
    }

    /// Serves a message; gives back what is for the program.
    fn handle(
        &self,
        from: usize,
        link: &Link,
        kind: Kind,
        message: wire::Raw<'_>,
    ) -> Result<Option<Message>, MeshError> {
        let wrong = || MeshError::Unknown {
            from,
            kind: message.kind,
            at: message.at,
        };
        let (at, payload) = (message.at as usize, message.payload);
        let memory = |words: usize| self.memory.get(at..at.saturating_add(words)).ok_or_else(wrong);
        let answer = |kind: Kind, payload: &[u8]| {
            let answer = wire::encoded(kind, at, payload);
            self.count(kind, answer.len());
            link.offer(answer)
                .map_err(|source| lost(from, "answering", source))
        };
        let operand = |index: usize| words_of(payload).nth(index).ok_or_else(wrong);
        match kind {
            Kind::Read => {
                let words = memory(operand(0)? as usize)?;
                let values: Vec<u8> = words
                    .iter()
                    .flat_map(|word| word.load(Ordering::Acquire).to_le_bytes())
                    .collect();
                answer(Kind::Value, &values)?;
            }
            Kind::Write => {
                for (word, value) in memory(payload.len() / 8)?.iter().zip(words_of(payload)) {
                    word.store(value, Ordering::Release);
                }
            }
            Kind::Swap => {
                let previous = swap(&memory(1)?[0], operand(0)?, operand(1)?);
                answer(Kind::Previous, &previous.to_le_bytes())?;
            }
            Kind::Fence => answer(Kind::Fenced, &[])?,
            kind => {
                return Ok(Some(Message {
                    from,
                    kind,
                    payload: payload.to_vec(),
                }));
            }
        }
        Ok(None)
    }
}

/// Ends the connections, and with them the threads that serve; also when the program fails, or panics.
struct Farewell<'mesh> {
    links: &'mesh [Option<Link>],
    side: Shutdown,
}

impl Drop for Farewell<'_> {
    fn drop(&mut self) {
        for link in self.links.iter().flatten() {
            link.close(self.side);
        }
    }
}

/// Puts `new` in the place of `old`, if that is what is there; what was there.
fn swap(word: &AtomicU64, old: u64, new: u64) -> u64 {
    word.compare_exchange(old, new, Ordering::AcqRel, Ordering::Acquire)
        .unwrap_or_else(|previous| previous)
}

/// An error on the connection with a peer.
fn lost(peer: usize, action: &'static str, source: io::Error) -> MeshError {
    match source.kind() {
        io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => MeshError::Lost(peer),
        _ => MeshError::Socket { action, source },
    }
}

/// Runs processes on addresses of their own in the loopback network; what they made of it, in order.
#[cfg(test)]
pub(crate) fn on_loopback<T: Send>(size: usize, process: impl Fn(usize, &[IpAddr]) -> T + Sync) -> Vec<T> {
    use std::sync::atomic::AtomicU32;
    static NETWORK: AtomicU32 = AtomicU32::new(0);
    // Another test program may run at the same time.
    let network = std::process::id().wrapping_mul(97) + NETWORK.fetch_add(1, Ordering::Relaxed);
    let [high, low] = ((network % (64 << 8)) as u16 + (64 << 8)).to_be_bytes();
    let addresses: Vec<IpAddr> = (1..=size)
        .map(|host| IpAddr::from([127, high, low, host as u8]))
        .collect();
    thread::scope(|scope| {
        let start = |rank| {
            let (addresses, process) = (&addresses, &process);
            scope.spawn(move || process(rank, addresses))
        };
        let processes: Vec<_> = (0..size).map(start).collect();
        processes
            .into_iter()
            .map(|process| process.join().unwrap())
            .collect()
    })
}

#[cfg(test)]
mod tests;
