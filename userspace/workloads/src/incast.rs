//! Synchronized reads over TCP: a client asks all servers at once for their piece of a block, and for the next block when
//! it has all pieces (Phanishayee et al., FAST 2008; Vasudevan et al., SIGCOMM 2009).
//!
//! Model. Each server is a connection; both its ends belong to the caller's process, which may have opened them in
//! different network namespaces, and one thread looks after all of them. A request is a few bytes, without content: the
//! server's end knows how long its piece is. What it lacks: a server's own time for a request.

use std::{
    io,
    net::{SocketAddr, TcpListener, TcpStream},
    time::{Duration, Instant},
};

use nix::poll::{PollFd, PollFlags};
use socket2::{Domain, Socket, Type};

use crate::collective::{Peer, accept_until, wait_until};

/// Length of a request, bytes.
const REQUEST: u64 = 4;
/// How long a connection may take to be made, and a server to be acknowledged.
const PATIENCE: Duration = Duration::from_secs(20);
/// How often it is looked whether everything is acknowledged.
const SETTLING: Duration = Duration::from_millis(1);

/// The client's end of a server's connection, and the server's.
#[derive(Debug)]
struct Pair {
    client: Peer,
    server: Peer,
    /// Bytes that are still to come.
    missing: u64,
    /// Bytes that the server sends when it is asked.
    piece: u64,
}

/// Why a block failed.
#[derive(Debug, thiserror::Error)]
pub enum IncastError {
    /// A connection.
    #[error("server {number}: {source}")]
    Connection {
        /// Of which server, from 1.
        number: usize,
        source: io::Error,
    },
    /// It takes too long.
    #[error("server {number}: {missing} bytes of its piece are missing after {} s", .waited.as_secs())]
    Late {
        /// Which server, from 1.
        number: usize,
        /// How much of its piece.
        missing: u64,
        /// Since when.
        waited: Duration,
    },
}

/// Where the client waits for servers.
#[derive(Debug)]
pub struct Door {
    listener: TcpListener,
    control: Option<String>,
}

/// A client and its servers.
#[derive(Debug)]
pub struct Incast {
    pairs: Vec<Pair>,
    buffer: Vec<u8>,
}

impl Door {
    /// In the calling thread's network namespace, with the congestion control of both ends; the kernel's if there is none.
    ///
    /// # Errors
    /// If the kernel lacks it, or the address is taken.
    pub fn open(address: SocketAddr, control: Option<&str>) -> io::Result<Self> {
        let socket = socket(address, control)?;
        socket.set_reuse_address(true)?;
        socket.bind(&address.into())?;
        socket.listen(128)?;
        let listener = TcpListener::from(socket);
        listener.set_nonblocking(true)?;
        Ok(Self {
            listener,
            control: control.map(str::to_owned),
        })
    }

    /// A server's end: a connection to this door from the calling thread's network namespace.
    ///
    /// # Errors
    /// If the client does not answer within 20 s.
    pub fn connect(&self) -> io::Result<TcpStream> {
        let address = self.listener.local_addr()?;
        // Before it connects: ECN is negotiated as the congestion control needs it.
        let socket = socket(address, self.control.as_deref())?;
        socket.connect_timeout(&address.into(), PATIENCE)?;
        Ok(socket.into())
    }

    /// The client's end of a connection.
    ///
    /// # Errors
    /// If there is none within 20 s.
    pub fn accept(&self) -> io::Result<TcpStream> {
        accept_until(Instant::now() + PATIENCE, &self.listener)
    }
}

fn socket(address: SocketAddr, control: Option<&str>) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
    // What a connection still has on its way must not meet the next ones.
    socket.set_linger(Some(Duration::ZERO))?;
    if let Some(control) = control {
        socket.set_tcp_congestion(control.as_bytes())?;
    }
    Ok(socket)
}

impl Incast {
    /// From the client's end and the server's of each connection.
    ///
    /// # Errors
    /// If a socket cannot be set up.
    pub fn new(ends: impl IntoIterator<Item = (TcpStream, TcpStream)>) -> io::Result<Self> {
        let pair = |(client, server)| -> io::Result<Pair> {
            Ok(Pair {
                client: Peer::new(client)?,
                server: Peer::new(server)?,
                missing: 0,
                piece: 0,
            })
        };
        Ok(Self {
            pairs: ends.into_iter().map(pair).collect::<io::Result<_>>()?,
            buffer: vec![0; 1 << 16],
        })
    }

    /// Reads a block, whose pieces the first servers have; from the first request until the last byte has come.
    ///
    /// # Errors
    /// If a connection fails, or it takes longer than `patience`.
    ///
    /// # Panics
    /// If there are more pieces than servers.
    pub fn block(&mut self, pieces: &[u64], patience: Duration) -> Result<Duration, IncastError> {
        let start = Instant::now();
        let pairs = &mut self.pairs[..pieces.len()];
        for (number, (pair, &piece)) in (1..).zip(pairs.iter_mut().zip(pieces)) {
            (pair.missing, pair.piece) = (piece, piece);
            let asked = pair.client.begin(REQUEST);
            asked.map_err(|source| IncastError::Connection { number, source })?;
        }
        while let Some(late) = pairs.iter().position(|pair| pair.missing > 0) {
            let waited = start.elapsed();
            if waited > patience {
                return Err(IncastError::Late {
                    number: late + 1,
                    missing: pairs[late].missing,
                    waited,
                });
            }
            progress(pairs, start + patience, &mut self.buffer)?;
        }
        Ok(start.elapsed())
    }

    /// Waits until everything that the servers have sent is acknowledged.
    ///
    /// # Errors
    /// If it is not within 20 s.
    pub fn settle(&self) -> io::Result<()> {
        let deadline = Instant::now() + PATIENCE;
        for pair in &self.pairs {
            while pair.server.unacknowledged()? > 0 {
                if Instant::now() > deadline {
                    return Err(io::ErrorKind::TimedOut.into());
                }
                std::thread::sleep(SETTLING);
            }
        }
        Ok(())
    }
}

/// Waits until something can be done on a connection whose piece is not complete, and does it.
fn progress(pairs: &mut [Pair], deadline: Instant, buffer: &mut [u8]) -> Result<(), IncastError> {
    let (ends, mut descriptors): (Vec<(usize, bool)>, Vec<PollFd<'_>>) = pairs
        .iter()
        .enumerate()
        .filter(|(_, pair)| pair.missing > 0)
        .flat_map(|(index, pair)| [(index, false, &pair.client), (index, true, &pair.server)])
        .filter_map(|(index, of_server, end)| Some(((index, of_server), end.interest()?)))
        .unzip();
    let failed = |index: usize| {
        move |source| IncastError::Connection {
            number: index + 1,
            source,
        }
    };
    let waited = wait_until(deadline, &mut descriptors);
    let events: Vec<PollFlags> = descriptors
        .iter()
        .map(|descriptor| descriptor.revents().unwrap_or(PollFlags::empty()))
        .collect();
    waited.map_err(failed(0))?;
    for ((index, of_server), events) in ends.into_iter().zip(events) {
        let pair = &mut pairs[index];
        if events.is_empty() {
            continue;
        }
        let done = if of_server {
            answer(pair, events, buffer)
        } else {
            take(pair, events, buffer)
        };
        done.map_err(failed(index))?;
    }
    Ok(())
}

/// A server: sends its piece if it is asked.
fn answer(pair: &mut Pair, events: PollFlags, buffer: &mut [u8]) -> io::Result<()> {
    pair.server.advance(events, buffer)?;
    if pair.server.received >= REQUEST {
        pair.server.received -= REQUEST;
        pair.server.begin(pair.piece)?;
    }
    Ok(())
}

/// The client: takes what has come.
fn take(pair: &mut Pair, events: PollFlags, buffer: &mut [u8]) -> io::Result<()> {
    pair.client.advance(events, buffer)?;
    pair.missing = pair
        .missing
        .saturating_sub(std::mem::take(&mut pair.client.received));
    if pair.client.has_ended && pair.missing > 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    fn connected(servers: usize) -> Incast {
        let door = Door::open((Ipv4Addr::LOCALHOST, 0).into(), Some("reno")).unwrap();
        let ends = (0..servers).map(|_| {
            let server = door.connect().unwrap();
            (door.accept().unwrap(), server)
        });
        Incast::new(ends.collect::<Vec<_>>()).unwrap()
    }

    #[test]
    fn blocks_follow_one_another() {
        let mut incast = connected(9);
        for pieces in [&[1_u64; 1][..], &[300_000; 9], &[7, 0, 70_000], &[1; 9]] {
            let took = incast.block(pieces, PATIENCE).unwrap();
            assert!(took < PATIENCE);
            incast.settle().unwrap();
            for pair in &incast.pairs {
                assert_eq!((pair.missing, pair.client.received), (0, 0), "nothing is left");
            }
        }
    }

    #[test]
    fn a_piece_that_does_not_come_is_an_error() {
        let mut incast = connected(2);
        let late = incast
            .block(&[1, 1 << 40], Duration::from_millis(30))
            .unwrap_err();
        assert!(matches!(late, IncastError::Late { number: 2, .. }), "{late}");
        let mut incast = connected(2);
        drop(incast.pairs.pop());
        let door = Door::open((Ipv4Addr::LOCALHOST, 0).into(), None).unwrap();
        let (server, client) = (door.connect().unwrap(), door.accept().unwrap());
        let ended = Door::open((Ipv4Addr::LOCALHOST, 0).into(), None).unwrap();
        drop(server);
        let other = ended.connect().unwrap();
        incast.pairs.push(Pair {
            client: Peer::new(client).unwrap(),
            server: Peer::new(other).unwrap(),
            missing: 0,
            piece: 0,
        });
        let gone = incast.block(&[1, 1], PATIENCE).unwrap_err();
        assert!(
            matches!(gone, IncastError::Connection { number: 2, .. }),
            "{gone}"
        );
    }

    #[test]
    fn a_congestion_control_that_is_lacking_is_not_found() {
        let error = Door::open((Ipv4Addr::LOCALHOST, 0).into(), Some("nosuch")).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ENOENT));
    }
}
