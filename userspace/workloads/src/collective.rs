//! Rounds of messages over TCP: Alltoall_A and Alltoall_B of PlogPT (Nomura, Matsuba and Ishikawa, CLUSTER 2007, fig. 13),
//! incast, and any other [`Step`]s.
//!
//! Model. Each rank is a thread of its own, joined to every other one by one TCP connection, as MPI libraries have it.
//! A message is a number of bytes, without a header: both sides know how many. `isend` hands the message to the
//! kernel; it is complete when the kernel has *transmitted* its last byte for the first time (`TCP_NOTSENT_LOWAT`), not
//! when the socket buffer took it (the next message would compete with it) nor when it is acknowledged (a delayed
//! acknowledgment would hold the next one up). Whatever arrives is read at once, posted for or not. In step i = 1, 2, …
//! rank r's partner is r xor i:
//!
//! ```text
//! A        each step: irecv, isend; wait for both
//! B        irecv from all; each step: isend, wait for it; at the end wait for all receives
//! incast   every rank sends to rank 0, which waits for all
//! ```
//!
//! A round begins at an instant that all ranks are told beforehand, so that no packet is needed to synchronize them,
//! and ends when the last rank has completed its last wait. What it lacks: ranks beyond this machine.

mod peer;

use std::{
    io,
    net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    os::fd::AsFd as _,
    time::{Duration, Instant},
};

use nix::{
    errno::Errno,
    poll::{PollFd, PollFlags, PollTimeout, poll},
};
pub(crate) use peer::Peer;

/// Port on which every rank waits for those of higher number.
const PORT: u16 = 7117;
/// How long a rank waits for the others when connections are made.
const PATIENCE: Duration = Duration::from_secs(20);
/// How often a rank looks whether everything is acknowledged.
const SETTLING: Duration = Duration::from_millis(1);
/// Size of the messages that measure the latency.
const PING: u64 = 4;

/// A pattern of messages among all ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Algorithm {
    /// Fig. 13 A: a step waits for its send and its receive.
    AlltoallA,
    /// Fig. 13 B: a step waits for its send only.
    AlltoallB,
    /// All send to rank 0 at once.
    Incast,
}

impl Algorithm {
    /// Its name on the command line and in results.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::AlltoallA => "alltoall-a",
            Self::AlltoallB => "alltoall-b",
            Self::Incast => "incast",
        }
    }
}

impl Algorithm {
    /// What a rank of so many does.
    #[must_use]
    pub fn steps(self, rank: usize, ranks: usize, message: u64) -> Vec<Step> {
        let sends = |to| [Step::Send { to, bytes: message }, Step::Sent(to)];
        let receives = |from| Step::Received { from, bytes: message };
        let partners = partners(rank, ranks).into_iter();
        match self {
            Self::AlltoallA => partners
                .flat_map(|partner| sends(partner).into_iter().chain([receives(partner)]))
                .collect(),
            Self::AlltoallB => partners
                .clone()
                .flat_map(sends)
                .chain(partners.map(receives))
                .collect(),
            Self::Incast if rank == 0 => (1..ranks).map(receives).collect(),
            Self::Incast => sends(0).to_vec(),
        }
    }
}

/// What a rank does in a round, one after another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Begins to send a message.
    Send {
        /// The rank that it is for.
        to: usize,
        /// Its size.
        bytes: u64,
    },
    /// Waits until all that was sent to this rank is transmitted.
    Sent(usize),
    /// Waits for bytes beyond those that were waited for before.
    Received {
        /// Their sender.
        from: usize,
        /// How many.
        bytes: u64,
    },
    /// Computes, and looks after no message meanwhile.
    Compute(Duration),
}

/// Why a collective failed.
#[derive(Debug, thiserror::Error)]
pub enum CollectiveError {
    /// A rank's own socket.
    #[error("rank {rank}: {what}: {source}")]
    Socket {
        rank: usize,
        what: &'static str,
        source: io::Error,
    },
    /// A connection between two ranks.
    #[error("rank {rank}, connection with rank {peer}: {source}")]
    Connection {
        /// Who noticed.
        rank: usize,
        /// The other side.
        peer: usize,
        source: io::Error,
    },
    /// It takes too long.
    #[error(
        "rank {rank} still waits after {} s: {received} of {expected} bytes have arrived from rank {peer}",
        .waited.as_secs()
    )]
    Late {
        /// Who waits.
        rank: usize,
        /// For whom.
        peer: usize,
        /// What has arrived.
        received: u64,
        /// What should have.
        expected: u64,
        /// Since when.
        waited: Duration,
    },
}

/// A rank that waits to be connected.
#[derive(Debug)]
pub struct Listening {
    rank: usize,
    listener: TcpListener,
}

/// A rank, connected to all others.
#[derive(Debug)]
pub struct Rank {
    rank: usize,
    /// By rank; none for itself.
    peers: Vec<Option<Peer>>,
    buffer: Vec<u8>,
}

impl Listening {
    /// A rank in the calling thread's network namespace.
    pub fn new(rank: usize) -> Result<Self, CollectiveError> {
        let listener =
            TcpListener::bind((Ipv4Addr::UNSPECIFIED, PORT)).map_err(|source| CollectiveError::Socket {
                rank,
                what: "listening",
                source,
            })?;
        Ok(Self { rank, listener })
    }

    /// Connects to the ranks of lower number, which may not listen yet, and waits for those of higher number.
    pub fn connect(self, addresses: &[IpAddr]) -> Result<Rank, CollectiveError> {
        let Self { rank, listener } = self;
        let connection = |peer| move |source| CollectiveError::Connection { rank, peer, source };
        let socket = |source| CollectiveError::Socket {
            rank,
            what: "accepting",
            source,
        };
        let mut peers: Vec<Option<Peer>> = addresses.iter().map(|_| None).collect();
        for (peer, &address) in addresses.iter().enumerate().take(rank) {
            let stream = patiently(SocketAddr::new(address, PORT), PATIENCE).map_err(connection(peer))?;
            peers[peer] = Some(Peer::new(stream).map_err(connection(peer))?);
        }
        let deadline = Instant::now() + PATIENCE;
        listener.set_nonblocking(true).map_err(socket)?;
        while let Some(missing) = (rank + 1..addresses.len()).find(|&peer| peers[peer].is_none()) {
            let stream = accept_until(deadline, &listener).map_err(connection(missing))?;
            let from = stream.peer_addr().map_err(connection(missing))?;
            if let Some(peer) = addresses.iter().position(|&address| address == from.ip()) {
                peers[peer] = Some(Peer::new(stream).map_err(connection(peer))?);
            }
        }
        Ok(Rank {
            rank,
            peers,
            buffer: vec![0; 1 << 16],
        })
    }
}

/// Connects to a process that may not listen yet.
pub(crate) fn patiently(address: SocketAddr, patience: Duration) -> io::Result<TcpStream> {
    let begun = Instant::now();
    loop {
        let left = patience.saturating_sub(begun.elapsed()).max(SETTLING);
        match TcpStream::connect_timeout(&address, left) {
            Err(_) if begun.elapsed() < patience => std::thread::sleep(SETTLING),
            connected => return connected,
        }
    }
}

/// A connection that somebody opens until a deadline; the listener does not block.
pub(crate) fn accept_until(deadline: Instant, listener: &TcpListener) -> io::Result<TcpStream> {
    loop {
        wait_until(deadline, &mut [PollFd::new(listener.as_fd(), PollFlags::POLLIN)])?;
        match listener.accept() {
            Ok((stream, _)) => return Ok(stream),
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => return Err(error),
            Err(_) if Instant::now() < deadline => {}
            Err(_) => return Err(io::ErrorKind::TimedOut.into()),
        }
    }
}

/// Waits for events or a deadline.
pub(crate) fn wait_until(deadline: Instant, descriptors: &mut [PollFd<'_>]) -> io::Result<()> {
    let left = deadline.saturating_duration_since(Instant::now());
    // Rounded up, so that the deadline has passed when poll gives up.
    let millis = u16::try_from(left.as_millis() + 1).unwrap_or(u16::MAX);
    match poll(descriptors, PollTimeout::from(millis)) {
        Ok(_) | Err(Errno::EINTR) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

impl Rank {
    /// Its part of one round, from `start` on; when it was complete.
    pub fn round(
        &mut self,
        steps: &[Step],
        start: Instant,
        patience: Duration,
    ) -> Result<Instant, CollectiveError> {
        // Wakes at the instant and not up to 50 us later, the default slack; without it, just later.
        let _ = nix::sys::prctl::set_timerslack(1);
        std::thread::sleep(start.saturating_duration_since(Instant::now()));
        let deadline = start + patience;
        for &step in steps {
            match step {
                Step::Send { to, bytes } => self.isend(to, bytes)?,
                Step::Sent(to) => self.wait_sent(to, deadline, patience)?,
                Step::Received { from, bytes } => self.wait_received(from, bytes, deadline, patience)?,
                Step::Compute(time) => std::thread::sleep(time),
            }
        }
        Ok(Instant::now())
    }

    /// Waits until everything sent is acknowledged, so that no retransmission reaches into the next round; reads what
    /// still arrives.
    pub fn settle(&mut self, patience: Duration) -> Result<(), CollectiveError> {
        let deadline = Instant::now() + patience;
        for index in 0..self.peers.len() {
            while let Some(peer) = &self.peers[index] {
                let unacknowledged = peer
                    .unacknowledged()
                    .map_err(|source| self.failure(index, source))?;
                if unacknowledged == 0 {
                    break;
                }
                if Instant::now() > deadline {
                    return Err(self.late(index, 0, patience));
                }
                std::thread::sleep(SETTLING);
            }
        }
        Ok(())
    }

    /// Round-trip times of small messages to another rank, which calls [`Rank::pong`].
    pub fn ping(&mut self, peer: usize, count: usize) -> Result<Vec<Duration>, CollectiveError> {
        let mut times = Vec::with_capacity(count);
        for _ in 0..count {
            let start = Instant::now();
            self.isend(peer, PING)?;
            self.wait_received(peer, PING, start + PATIENCE, PATIENCE)?;
            times.push(start.elapsed());
        }
        Ok(times)
    }

    /// The other side of [`Rank::ping`].
    pub fn pong(&mut self, peer: usize, count: usize) -> Result<(), CollectiveError> {
        for _ in 0..count {
            self.wait_received(peer, PING, Instant::now() + PATIENCE, PATIENCE)?;
            self.isend(peer, PING)?;
        }
        Ok(())
    }

    fn failure(&self, peer: usize, source: io::Error) -> CollectiveError {
        CollectiveError::Connection {
            rank: self.rank,
            peer,
            source,
        }
    }

    fn late(&self, peer: usize, expected: u64, waited: Duration) -> CollectiveError {
        let received = self.peers[peer].as_ref().map_or(0, |peer| peer.received);
        CollectiveError::Late {
            rank: self.rank,
            peer,
            received,
            expected,
            waited,
        }
    }

    fn isend(&mut self, to: usize, message: u64) -> Result<(), CollectiveError> {
        let Some(peer) = &mut self.peers[to] else {
            return Ok(());
        };
        let begun = peer.begin(message);
        begun.map_err(|source| self.failure(to, source))
    }

    fn wait_sent(&mut self, to: usize, deadline: Instant, patience: Duration) -> Result<(), CollectiveError> {
        while self.peers[to].as_ref().is_some_and(Peer::is_sending) {
            self.progress(to, 0, deadline, patience)?;
        }
        Ok(())
    }

    /// Takes a message that has arrived, or waits for it.
    fn wait_received(
        &mut self,
        from: usize,
        message: u64,
        deadline: Instant,
        patience: Duration,
    ) -> Result<(), CollectiveError> {
        loop {
            match &mut self.peers[from] {
                Some(peer) if peer.received < message && peer.has_ended => {
                    return Err(self.failure(from, io::ErrorKind::UnexpectedEof.into()));
                }
                Some(peer) if peer.received < message => {}
                Some(peer) => {
                    peer.received -= message;
                    return Ok(());
                }
                None => return Ok(()),
            }
            self.progress(from, message, deadline, patience)?;
        }
    }

    /// Waits until something can be done, and does it.
    fn progress(
        &mut self,
        awaited: usize,
        expected: u64,
        deadline: Instant,
        patience: Duration,
    ) -> Result<(), CollectiveError> {
        if Instant::now() > deadline {
            return Err(self.late(awaited, expected, patience));
        }
        let (indices, mut descriptors): (Vec<usize>, Vec<PollFd<'_>>) = self
            .peers
            .iter()
            .enumerate()
            .filter_map(|(index, peer)| Some((index, peer.as_ref()?.interest()?)))
            .unzip();
        let waited = wait_until(deadline, &mut descriptors);
        let events: Vec<PollFlags> = descriptors
            .iter()
            .map(|descriptor| descriptor.revents().unwrap_or(PollFlags::empty()))
            .collect();
        waited.map_err(|source| self.failure(awaited, source))?;
        for (index, events) in indices.into_iter().zip(events) {
            if let Some(peer) = &mut self.peers[index] {
                let done = peer.advance(events, &mut self.buffer);
                done.map_err(|source| self.failure(index, source))?;
            }
        }
        Ok(())
    }
}

/// Fig. 13's partners, `rank xor i` for rising i; those beyond the last rank are left out.
fn partners(rank: usize, ranks: usize) -> Vec<usize> {
    (1..ranks.next_power_of_two())
        .map(|step| rank ^ step)
        .filter(|&partner| partner < ranks)
        .collect()
}

#[cfg(test)]
mod tests;
