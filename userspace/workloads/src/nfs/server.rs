//! An NFS version 3 server in memory: the embedded default, and the queueing model made flesh.
//!
//! Model: TCP and UDP at the same port number, NFS and mount on both, no port mapper, no privileges.
//! Calls of a connection are executed in the order of their coming; replies leave when the service
//! model says. Memory is bounded: by the file system's capacity, a limit of connections, a limit of
//! calls under way, and a limit of a record's length.
//! What is lacking: permission checks (every caller may do everything: listen on loopback or in a
//! namespace of your own), hard links, devices, locking.

mod dispatch;
mod memory;
mod procedures;
mod service;
mod work;

use std::{
    collections::BTreeMap,
    hash::{BuildHasher as _, RandomState},
    io,
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{
        TcpListener, TcpStream, UdpSocket,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::{OwnedSemaphorePermit, Semaphore, mpsc},
    task::{AbortHandle, JoinSet},
};

pub use self::service::{Cache, Disks, Distribution, Service, ServiceModel};
use self::{dispatch::Dispatcher, procedures::TRANSFER_LIMIT};
use super::{client::Transport, procedure::Procedure, rpc, rpc::Records};
use crate::timer::Timer;

/// Longest call: the largest WRITE and its header.
const CALL_LIMIT: usize = TRANSFER_LIMIT as usize + 4096;
/// Connections at a time.
const CONNECTIONS: usize = 4096;
/// Calls of one connection, or of all datagrams, that wait for their service time.
const UNDER_WAY: usize = 8192;
/// Largest payload of a UDP datagram.
const DATAGRAM_LIMIT: usize = 65_507;

/// What to serve and how.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Config {
    /// Where to listen; port 0 takes a free one.
    pub listen: SocketAddr,
    /// The path that may be mounted.
    pub export: String,
    /// Memory for files, in bytes.
    pub capacity: u64,
    /// Whether every change is refused.
    pub read_only: bool,
    /// What requests cost.
    pub service: ServiceModel,
}

/// What a server has been asked so far.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Tally {
    /// Calls executed, by procedure.
    pub calls: BTreeMap<Procedure, u64>,
    /// Calls that failed with an NFS status.
    pub failures: u64,
    /// Repeated datagrams that were answered from memory.
    pub repeated: u64,
    /// READs by size, in KiB rounded up; the last counts all beyond.
    pub read_kib: Vec<u64>,
    /// WRITEs by size, likewise.
    pub write_kib: Vec<u64>,
}

/// Why a server cannot start.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The address cannot be listened on.
    #[error("cannot listen on {address} over {transport:?}: {reason}; choose another with --listen")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The transport that failed.
        transport: Transport,
        /// The system's reason.
        reason: io::Error,
    },
    /// There is no timer for the service times.
    #[error("cannot make a timer: {0}")]
    Timer(io::Error),
}

/// A server that runs until it is dropped.
pub struct Server {
    address: SocketAddr,
    dispatcher: Arc<Dispatcher>,
    tasks: Vec<AbortHandle>,
}

impl Server {
    /// Starts serving on the current runtime.
    pub async fn start(config: &Config) -> Result<Self, ServeError> {
        let failed = |transport, address| {
            move |reason| ServeError::Listen {
                address,
                transport,
                reason,
            }
        };
        let (listener, datagrams) =
            bind(config.listen)
                .await
                .map_err(|(transport, reason)| ServeError::Listen {
                    address: config.listen,
                    transport,
                    reason,
                })?;
        let address = listener
            .local_addr()
            .map_err(failed(Transport::Tcp, config.listen))?;
        let instance = RandomState::new().hash_one(address);
        let dispatcher = Arc::new(Dispatcher::new(config, instance));
        let timer = Timer::start().map_err(ServeError::Timer)?;
        let tasks = vec![
            tokio::spawn(accept(listener, Arc::clone(&dispatcher), timer.clone())).abort_handle(),
            tokio::spawn(answer_datagrams(
                Arc::new(datagrams),
                Arc::clone(&dispatcher),
                timer,
            ))
            .abort_handle(),
        ];
        Ok(Self {
            address,
            dispatcher,
            tasks,
        })
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Files, directories and links that it holds, the root among them.
    #[must_use]
    pub fn objects(&self) -> u64 {
        self.dispatcher.objects()
    }

    /// Sets the capacity, in bytes; below what is used, every write that needs memory fails.
    pub fn set_capacity(&self, bytes: u64) {
        self.dispatcher.set_capacity(bytes);
    }

    /// What it has been asked so far.
    #[must_use]
    pub fn tally(&self) -> Tally {
        self.dispatcher.tally()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}

/// A port that is free for both transports.
async fn bind(address: SocketAddr) -> Result<(TcpListener, UdpSocket), (Transport, io::Error)> {
    // A free TCP port may be taken on UDP; then another one is tried.
    let tries = if address.port() == 0 { 16 } else { 1 };
    let mut last = None;
    for _ in 0..tries {
        let listener = TcpListener::bind(address)
            .await
            .map_err(|error| (Transport::Tcp, error))?;
        let chosen = listener.local_addr().map_err(|error| (Transport::Tcp, error))?;
        match UdpSocket::bind(chosen).await {
            Ok(datagrams) => return Ok((listener, datagrams)),
            Err(error) => last = Some(error),
        }
    }
    Err((
        Transport::Udp,
        last.unwrap_or_else(|| io::ErrorKind::AddrInUse.into()),
    ))
}

async fn accept(listener: TcpListener, dispatcher: Arc<Dispatcher>, timer: Timer) {
    let room = Arc::new(Semaphore::new(CONNECTIONS));
    // Dropping the set, with this task, ends every connection.
    let mut connections = JoinSet::new();
    loop {
        let Ok(permit) = Arc::clone(&room).acquire_owned().await else {
            return;
        };
        match listener.accept().await {
            Ok((stream, peer)) => {
                let (dispatcher, timer) = (Arc::clone(&dispatcher), timer.clone());
                connections.spawn(async move {
                    // A broken connection is its client's matter; nothing else is affected.
                    let _ = converse(stream, peer, dispatcher, timer).await;
                    drop(permit);
                });
            }
            // Out of descriptors, or the peer left meanwhile: go on when there may be room.
            Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
        }
        while connections.try_join_next().is_some() {}
    }
}

async fn converse(
    stream: TcpStream,
    peer: SocketAddr,
    dispatcher: Arc<Dispatcher>,
    timer: Timer,
) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let (incoming, outgoing) = stream.into_split();
    if dispatcher.is_instant() {
        converse_at_once(incoming, outgoing, peer, &dispatcher).await
    } else {
        converse_in_time(incoming, outgoing, peer, &dispatcher, timer).await
    }
}

async fn converse_at_once(
    mut incoming: OwnedReadHalf,
    mut outgoing: OwnedWriteHalf,
    peer: SocketAddr,
    dispatcher: &Dispatcher,
) -> io::Result<()> {
    let mut records = Records::new(CALL_LIMIT);
    let mut out = Vec::new();
    while incoming.read_buf(&mut records.stream).await? > 0 {
        while let Some(message) = records.next().map_err(io::Error::other)? {
            let start = rpc::begin_record(&mut out);
            dispatcher
                .handle(&message, peer, Transport::Tcp, &mut out)
                .map_err(io::Error::other)?;
            rpc::end_record(&mut out, start);
            if out.len() > 256 * 1024 {
                outgoing.write_all(&out).await?;
                out.clear();
            }
        }
        outgoing.write_all(&out).await?;
        out.clear();
        records.stream.reserve(32 * 1024);
    }
    Ok(())
}

async fn converse_in_time(
    mut incoming: OwnedReadHalf,
    mut outgoing: OwnedWriteHalf,
    peer: SocketAddr,
    dispatcher: &Dispatcher,
    timer: Timer,
) -> io::Result<()> {
    let (ready, mut due) = mpsc::unbounded_channel::<(Vec<u8>, OwnedSemaphorePermit)>();
    let room = Arc::new(Semaphore::new(UNDER_WAY));
    let mut waiting = JoinSet::new();
    waiting.spawn(async move {
        while let Some((mut bytes, permit)) = due.recv().await {
            drop(permit);
            while let Ok((more, permit)) = due.try_recv() {
                drop(permit);
                bytes.extend_from_slice(&more);
            }
            if outgoing.write_all(&bytes).await.is_err() {
                return;
            }
        }
    });
    let mut records = Records::new(CALL_LIMIT);
    while incoming.read_buf(&mut records.stream).await? > 0 {
        while let Some(message) = records.next().map_err(io::Error::other)? {
            let mut out = Vec::new();
            let start = rpc::begin_record(&mut out);
            let at = dispatcher
                .handle(&message, peer, Transport::Tcp, &mut out)
                .map_err(io::Error::other)?;
            rpc::end_record(&mut out, start);
            let Ok(permit) = Arc::clone(&room).acquire_owned().await else {
                return Ok(());
            };
            let (ready, timer) = (ready.clone(), timer.clone());
            waiting.spawn(async move {
                timer.until(at.unwrap_or_else(Instant::now)).await;
                // The writer is gone when the connection is.
                let _ = ready.send((out, permit));
            });
            // After a burnt time the reply is due now, and may be on the way before the next call is taken.
            tokio::task::yield_now().await;
        }
        while waiting.try_join_next().is_some() {}
        records.stream.reserve(32 * 1024);
    }
    Ok(())
}

async fn answer_datagrams(socket: Arc<UdpSocket>, dispatcher: Arc<Dispatcher>, timer: Timer) {
    let room = Arc::new(Semaphore::new(UNDER_WAY));
    let mut waiting = JoinSet::new();
    let mut buffer = vec![0; DATAGRAM_LIMIT];
    loop {
        // An error belongs to an earlier reply that found nobody; go on.
        let Ok((length, peer)) = socket.recv_from(&mut buffer).await else {
            continue;
        };
        let mut out = Vec::new();
        let Ok(at) = dispatcher.handle(&buffer[..length], peer, Transport::Udp, &mut out) else {
            continue;
        };
        match at {
            // Lost replies are asked for again.
            None => drop(socket.send_to(&out, peer).await),
            Some(at) => {
                let Ok(permit) = Arc::clone(&room).acquire_owned().await else {
                    return;
                };
                let (socket, timer) = (Arc::clone(&socket), timer.clone());
                waiting.spawn(async move {
                    timer.until(at).await;
                    let _ = socket.send_to(&out, peer).await;
                    drop(permit);
                });
            }
        }
        while waiting.try_join_next().is_some() {}
    }
}
