//! Processes that are all connected with each other, and reach into each other's memory, as Split-C's do.
//!
//! Model: between any two processes there is one TCP connection. A message is its kind, a place, and a payload; each is a
//! segment of its own (MSG_EOR), so that a program's packets do not become fewer where the network is slow.
//!
//! A process has one thread, as a node of the thesis has one processor. Before it sends, and whenever it waits, it serves
//! what others ask for (reads, writes, swaps), until nothing more is there: the handlers of Active Messages come first, and
//! are called by polls, one of which stands before each send (Martin 1999, 2.2). So requests wait while a process computes,
//! and whoever is asked often enough does not go on with its own work: that makes locks live-lock.
//! It never waits for one connection alone, so that two processes that write to each other cannot block each other.
//! Who lives and says nothing is waited for without end, be it behind a partition: it may compute. Give the command a
//! time limit where that can happen.
//! Processes are numbered from 0. Memory consists of words of 64 bits.

mod process;
mod wire;

use std::{
    collections::VecDeque,
    io::{self, ErrorKind, Read as _, Write as _},
    net::{IpAddr, SocketAddr, TcpListener, TcpStream},
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use nix::{
    errno::Errno,
    poll::{PollFd, PollFlags, PollTimeout, poll},
};

pub(crate) use self::process::LONGEST;
use self::wire::{Kind, Link, Message, SHORT, words_of};
use crate::collective::{accept_until, patiently};

/// How long others may take to come; in patterns, how long nothing may happen.
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
    /// A process that has not come.
    #[error("process {peer} at {address} is not there: {source}; see what it says")]
    Absent {
        /// Which one, from 0.
        peer: usize,
        /// Where it should be.
        address: IpAddr,
        /// What was seen of it.
        source: io::Error,
    },
    /// A process has ended early.
    #[error("the connection with process {0} is lost: it has ended early")]
    Lost(usize),
    /// Nobody is left who could send what is waited for.
    #[error("all other processes have ended, and this one still waits for a message; see what they say")]
    Alone,
    /// Messages were lost.
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

impl Traffic {
    fn count(&mut self, kind: Kind, bytes: usize) {
        self.messages += 1;
        self.bytes += bytes as u64;
        if bytes > wire::HEADER + SHORT {
            self.bulk_messages += 1;
            self.bulk_bytes += bytes as u64;
        }
        self.reads += u64::from(matches!(kind, Kind::Read | Kind::Value));
    }
}

/// A process, connected with all others, for the program that it runs. Addresses are words of the memory that the program
/// asked for. What is this process' own is reached without messages.
#[derive(Debug)]
pub(crate) struct Process {
    rank: usize,
    links: Vec<Option<Link>>,
    memory: Vec<u64>,
    traffic: Traffic,
    /// Messages to each process.
    sent: Vec<u64>,
    /// What came for the program before it was waited for.
    kept: VecDeque<(Kind, Vec<u8>)>,
    posts: VecDeque<(usize, Vec<u8>)>,
    /// Gatherings so far: two that follow each other use different words.
    gathered: usize,
    buffer: Vec<u8>,
}

impl Process {
    /// Connects process `rank` with the others, whose addresses are given in order. Each may read and write `words` of
    /// the memory of each other one.
    pub(crate) fn connect(rank: usize, addresses: &[IpAddr], words: usize) -> Result<Self, MeshError> {
        Self::connect_within(PATIENCE, rank, addresses, words)
    }

    fn connect_within(
        patience: Duration,
        rank: usize,
        addresses: &[IpAddr],
        words: usize,
    ) -> Result<Self, MeshError> {
        let listener = TcpListener::bind(SocketAddr::new(addresses[rank], PORT))
            .and_then(|listener| listener.set_nonblocking(true).map(|()| listener));
        let listener = socket("listening for the others", listener)?;
        let deadline = Instant::now() + patience;
        let absent = |peer: usize| {
            let address = addresses[peer];
            move |source| MeshError::Absent {
                peer,
                address,
                source,
            }
        };
        let mut streams: Vec<Option<TcpStream>> = addresses.iter().map(|_| None).collect();
        for (peer, address) in addresses.iter().enumerate().take(rank) {
            let stream = patiently(SocketAddr::new(*address, PORT), left(deadline)).and_then(|mut stream| {
                stream.write_all(&(rank as u32).to_le_bytes())?;
                Ok(stream)
            });
            streams[peer] = Some(stream.map_err(absent(peer))?);
        }
        while let Some(missing) = (rank + 1..addresses.len()).find(|peer| streams[*peer].is_none()) {
            let mut stream = accept_until(deadline, &listener).map_err(absent(missing))?;
            let mut greeting = [0; 4];
            let greeted = stream
                .set_read_timeout(Some(
                    left(deadline).min(patience / 6).max(Duration::from_millis(1)),
                ))
                .and_then(|()| stream.read_exact(&mut greeting));
            // Who says nothing is not the one that is missing.
            if greeted.is_ok()
                && let Some(slot) = streams.get_mut(u32::from_le_bytes(greeting) as usize)
            {
                *slot = Some(stream);
            }
        }
        let links = streams
            .into_iter()
            .map(|stream| stream.map(Link::new).transpose());
        Ok(Self {
            rank,
            links: socket("preparing a connection", links.collect::<io::Result<_>>())?,
            memory: vec![0; words + 2 * addresses.len()],
            traffic: Traffic::default(),
            sent: vec![0; addresses.len()],
            kept: VecDeque::new(),
            posts: VecDeque::new(),
            gathered: 0,
            buffer: vec![0; GULP],
        })
    }

    /// Runs a program on this process.
    pub(crate) fn run<T, E: From<MeshError>>(
        mut self,
        program: impl FnOnce(&mut Self) -> Result<T, E>,
    ) -> Result<T, E> {
        let result = program(&mut self)?;
        // Nobody hangs up before all have come to the end.
        self.barrier()?;
        self.leave();
        Ok(result)
    }

    /// Hangs up, and takes in what still comes: unread bytes would have the kernel tell the others of an error.
    fn leave(&mut self) {
        for peer in self.others() {
            // Who is gone already needs no farewell.
            let _ = self.send(peer, Kind::Leave, 0, &[]);
        }
        self.links.iter().flatten().for_each(Link::leave);
        while self.links.iter().flatten().any(|link| !link.has_ended) {
            match self.serve(None) {
                Ok(_) | Err(MeshError::Lost(_)) => {}
                Err(_) => break,
            }
        }
    }

    /// Sends a message once all that others have asked for is served, and waits until the kernel has it.
    fn send(&mut self, to: usize, kind: Kind, at: usize, payload: &[u8]) -> Result<(), MeshError> {
        while self.serve(Some(Duration::ZERO))? {}
        self.put(to, kind, at, payload)?;
        while self.links[to].as_ref().is_some_and(|link| !link.is_flushed()) {
            self.serve(None)?;
        }
        Ok(())
    }

    /// Sends a message without waiting for the kernel.
    fn put(&mut self, to: usize, kind: Kind, at: usize, payload: &[u8]) -> Result<(), MeshError> {
        let Some(link) = &mut self.links[to] else {
            return Ok(());
        };
        #[cfg(test)]
        tests::overhead();
        let message = wire::encoded(kind, at, payload);
        self.traffic.count(kind, message.len());
        self.sent[to] += 1;
        link.send(message).map_err(|source| lost(to, "sending", source))
    }

    /// Waits so long for messages, or as long as it takes, and serves what is there then; whether anything was.
    fn serve(&mut self, patience: Option<Duration>) -> Result<bool, MeshError> {
        let links = self.links.iter().enumerate();
        let (peers, mut descriptors): (Vec<usize>, Vec<PollFd<'_>>) = links
            .filter_map(|(peer, link)| Some((peer, link.as_ref()?.interest()?)))
            .unzip();
        if patience.is_none() && descriptors.is_empty() {
            return Err(MeshError::Alone);
        }
        // Rounded up, so that the time has passed when poll gives up.
        let millis = patience.map(|patience| patience.as_micros().div_ceil(1000));
        let timeout = millis.map_or(PollTimeout::NONE, |millis| {
            PollTimeout::try_from(millis).unwrap_or(PollTimeout::MAX)
        });
        match poll(&mut descriptors, timeout) {
            Ok(0) | Err(Errno::EINTR) => return Ok(false),
            Ok(_) => {}
            Err(errno) => socket("waiting for the others", Err(errno.into()))?,
        }
        let events: Vec<PollFlags> = descriptors
            .iter()
            .map(|descriptor| descriptor.revents().unwrap_or(PollFlags::empty()))
            .collect();
        let mut messages = Vec::new();
        for (peer, events) in peers.into_iter().zip(events) {
            let Some(link) = &mut self.links[peer] else {
                continue;
            };
            if events.contains(PollFlags::POLLOUT) {
                link.flush().map_err(|source| lost(peer, "sending", source))?;
            }
            if events.intersects(PollFlags::POLLIN | PollFlags::POLLERR | PollFlags::POLLHUP) {
                link.receive(peer, &mut self.buffer, &mut messages)
                    .map_err(|source| lost(peer, "receiving", source))?;
                if link.has_ended && !link.has_left {
                    return Err(MeshError::Lost(peer));
                }
            }
        }
        let any = !messages.is_empty();
        messages
            .into_iter()
            .try_for_each(|message| self.handle(message))?;
        Ok(any)
    }

    /// Serves a message, or keeps what is for the program.
    fn handle(&mut self, message: Message) -> Result<(), MeshError> {
        #[cfg(test)]
        tests::overhead();
        let Message {
            from,
            kind,
            at,
            payload,
        } = message;
        let wrong = || MeshError::Unknown { from, kind, at };
        let place = at as usize;
        let words = |words: u64| {
            let end = usize::try_from(words)
                .ok()
                .and_then(|words| place.checked_add(words));
            end.map(|end| place..end)
        };
        let operand = |index: usize| words_of(&payload).nth(index).ok_or_else(wrong);
        match Kind::from_repr(kind).ok_or_else(wrong)? {
            Kind::Read => {
                let words = words(operand(0)?).and_then(|words| self.memory.get(words));
                let values = words.ok_or_else(wrong)?.iter();
                let values: Vec<u8> = values.flat_map(|word| word.to_le_bytes()).collect();
                self.put(from, Kind::Value, place, &values)?;
            }
            Kind::Write => {
                let words = words(payload.len() as u64 / 8).and_then(|words| self.memory.get_mut(words));
                for (word, value) in words.ok_or_else(wrong)?.iter_mut().zip(words_of(&payload)) {
                    *word = value;
                }
            }
            Kind::Swap => {
                let word = self.memory.get_mut(place).ok_or_else(wrong)?;
                let previous = swap(word, operand(0)?, operand(1)?);
                self.put(from, Kind::Previous, place, &previous.to_le_bytes())?;
            }
            Kind::Fence => self.put(from, Kind::Fenced, place, &[])?,
            Kind::Post => self.posts.push_back((from, payload)),
            Kind::Leave => {
                if let Some(link) = &mut self.links[from] {
                    link.has_left = true;
                }
            }
            kind => self.kept.push_back((kind, payload)),
        }
        Ok(())
    }
}

fn left(deadline: Instant) -> Duration {
    deadline.saturating_duration_since(Instant::now())
}

/// Puts `new` in the place of `old`, if that is what is there; what was there.
fn swap(word: &mut u64, old: u64, new: u64) -> u64 {
    let previous = *word;
    if previous == old {
        *word = new;
    }
    previous
}

/// An error on the connection with a peer.
fn lost(peer: usize, action: &'static str, source: io::Error) -> MeshError {
    match source.kind() {
        ErrorKind::BrokenPipe | ErrorKind::ConnectionReset => MeshError::Lost(peer),
        _ => MeshError::Socket { action, source },
    }
}

/// Runs processes on addresses of their own in the loopback network; what they made of it, in order.
#[cfg(test)]
pub(crate) fn on_loopback<T: Send>(size: usize, process: impl Fn(usize, &[IpAddr]) -> T + Sync) -> Vec<T> {
    use std::{
        sync::atomic::{AtomicU32, Ordering},
        thread,
    };
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
pub(crate) mod tests;
