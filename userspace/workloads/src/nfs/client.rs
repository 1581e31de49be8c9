//! An RPC client that keeps many calls under way on one connection.
//!
//! Model: every call gets a transaction identifier (XID) and waits for the reply with the same one;
//! replies may come in any order. On TCP, calls are collected and written together when the runtime
//! gets to it (NODELAY is set, so nothing waits in the kernel); a lost connection fails every
//! call under way. On UDP each call is its own datagram, sent again with the same XID after
//! `retransmit_after`, twice that, four times that and so on, until `timeout`; repetitions are
//! counted. The instant of a reply is taken when its bytes are read, before anybody is woken.
//! What is lacking: reconnecting, which is for the caller to decide, and RPCSEC_GSS.

mod mount;
mod tcp;
mod udp;

use std::{
    collections::HashMap,
    io,
    net::SocketAddr,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU32, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use bytes::Bytes;
use nfs3_types::xdr_codec::{self, Pack, Unpack};
use tokio::{sync::oneshot, task::AbortHandle};

pub use self::mount::{Export, MountError, Ports, mount, unmount};
pub use super::rpc::{Program, RecordError, Refusal};
use super::{
    procedure::Procedure,
    rpc::{self, Answer},
    xdr::XdrError,
};

/// Longest reply that is accepted: the largest READ of any server we know, and its header.
const REPLY_LIMIT: usize = (1 << 20) + 4096;

/// What carries the calls.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Default, strum::Display, serde::Serialize, serde::Deserialize,
)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "UPPERCASE")]
pub enum Transport {
    /// A byte stream with record marks.
    #[default]
    Tcp,
    /// Datagrams, sent again when no reply comes.
    Udp,
}

/// How to call.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Options {
    /// What carries the calls.
    pub transport: Transport,
    /// When a call is given up.
    pub timeout: Duration,
    /// When a datagram is sent again for the first time.
    pub retransmit_after: Duration,
    /// Whether to call from a port below 1024, as servers that export `secure` ask (needs root).
    pub reserved_ports: bool,
    /// User and group that AUTH_SYS claims.
    pub user: (u32, u32),
}

impl Default for Options {
    fn default() -> Self {
        Self {
            transport: Transport::Tcp,
            timeout: Duration::from_secs(20),
            // The initial time-out of Linux' own client on UDP (nfs(5), timeo=11).
            retransmit_after: Duration::from_millis(1_100),
            reserved_ports: false,
            user: (nix::unistd::getuid().as_raw(), nix::unistd::getgid().as_raw()),
        }
    }
}

/// A connection to a server. Clones share it.
#[derive(Clone)]
pub struct Client {
    shared: Arc<Shared>,
    // The last clone to go ends the tasks that read and write.
    _tasks: Arc<Tasks>,
}

/// A result, and when it came.
#[derive(Debug)]
pub struct Reply<R> {
    /// The decoded result.
    pub result: R,
    /// When its bytes were read.
    pub at: Instant,
    /// Length of the message.
    pub bytes: usize,
}

/// Why a call has no result.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// No connection could be made.
    #[error("cannot connect to {peer} over {transport:?}: {reason}")]
    Connect {
        /// The server.
        peer: SocketAddr,
        /// What it should have been.
        transport: Transport,
        /// The system's reason.
        reason: io::Error,
    },
    /// The connection went away with the call under way.
    #[error("the connection to {peer} was lost: {cause}")]
    Lost {
        /// The server.
        peer: SocketAddr,
        /// How it went.
        cause: Loss,
    },
    /// No reply came in time.
    #[error("{peer} did not answer within {after:?} (sent {sent} time(s))")]
    TimedOut {
        /// The server.
        peer: SocketAddr,
        /// How long it was waited for.
        after: Duration,
        /// How often the call was sent.
        sent: u32,
    },
    /// The server refused to execute it.
    #[error("{peer} refused the call: {refusal}")]
    Refused {
        /// The server.
        peer: SocketAddr,
        /// Its reason.
        refusal: Refusal,
    },
    /// The reply cannot be understood.
    #[error("the reply of {peer} to {what} cannot be decoded: {reason}")]
    Garbled {
        /// The server.
        peer: SocketAddr,
        /// What was called.
        what: &'static str,
        /// Where it fails.
        reason: xdr_codec::Error,
    },
    /// The reply has bytes after its end.
    #[error("the reply of {peer} to {what} has {bytes} bytes too many")]
    Trailing {
        /// The server.
        peer: SocketAddr,
        /// What was called.
        what: &'static str,
        bytes: usize,
    },
    /// The call is longer than a datagram.
    #[error("a call of {0} bytes does not fit into a datagram; use TCP")]
    TooLong(usize),
}

/// How a connection was lost.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Loss {
    /// The server closed it.
    #[error("closed by the server")]
    Closed,
    /// The system reported an error.
    #[error("{0}")]
    Io(Arc<io::Error>),
    /// The stream holds something else than RPC.
    #[error("{0}")]
    Record(#[from] RecordError),
}

struct Shared {
    peer: SocketAddr,
    options: Options,
    credentials: Vec<u8>,
    next_xid: AtomicU32,
    retransmissions: AtomicU64,
    pending: Mutex<Pending>,
    wire: Wire,
}

enum Wire {
    Tcp(tcp::Outgoing),
    Udp(tokio::net::UdpSocket),
}

#[derive(Default)]
struct Pending {
    calls: HashMap<u32, oneshot::Sender<Arrival>>,
    lost: Option<Loss>,
}

struct Arrival {
    at: Instant,
    message: Bytes,
    answer: Answer,
}

struct Tasks(Vec<AbortHandle>);

impl Drop for Tasks {
    fn drop(&mut self) {
        for task in &self.0 {
            task.abort();
        }
    }
}

impl Client {
    /// Connects. On UDP this only chooses the peer.
    pub async fn connect(peer: SocketAddr, options: &Options) -> Result<Self, CallError> {
        let connected = match options.transport {
            Transport::Tcp => tokio::time::timeout(options.timeout, tcp::connect(peer, options))
                .await
                .unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())),
            Transport::Udp => udp::connect(peer, options).await,
        };
        connected.map_err(|reason| CallError::Connect {
            peer,
            transport: options.transport,
            reason,
        })
    }

    /// The server's address.
    #[must_use]
    pub fn peer(&self) -> SocketAddr {
        self.shared.peer
    }

    /// How it calls.
    #[must_use]
    pub fn options(&self) -> &Options {
        &self.shared.options
    }

    /// How many datagrams were sent again.
    #[must_use]
    pub fn retransmissions(&self) -> u64 {
        self.shared.retransmissions.load(Ordering::Relaxed)
    }

    /// Whether the connection is gone; every further call fails at once.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.shared.pending().lost.is_some()
    }

    /// Calls a procedure of NFS.
    pub async fn nfs<R: Unpack>(
        &self,
        procedure: Procedure,
        arguments: &impl Pack,
    ) -> Result<Reply<R>, CallError> {
        self.call(rpc::NFS, procedure.number(), procedure.into(), arguments)
            .await
    }

    /// Calls any procedure; `what` names it in errors.
    pub async fn call<R: Unpack>(
        &self,
        program: Program,
        procedure: u32,
        what: &'static str,
        arguments: &impl Pack,
    ) -> Result<Reply<R>, CallError> {
        let shared = &self.shared;
        let peer = shared.peer;
        let xid = shared.next_xid.fetch_add(1, Ordering::Relaxed);
        let awaited = shared.expect(xid)?;
        let garbled = |reason| CallError::Garbled { peer, what, reason };
        let arrival = match &shared.wire {
            Wire::Tcp(outgoing) => {
                outgoing
                    .put(|out| {
                        rpc::put_call(out, xid, program, procedure, &shared.credentials);
                        arguments.pack(out).map(drop)
                    })
                    .map_err(garbled)?;
                let timeout = shared.options.timeout;
                match tokio::time::timeout(timeout, awaited).await {
                    Ok(arrival) => arrival?,
                    Err(_) => {
                        return Err(CallError::TimedOut {
                            peer,
                            after: timeout,
                            sent: 1,
                        });
                    }
                }
            }
            Wire::Udp(socket) => {
                let mut message = Vec::with_capacity(256 + arguments.packed_size());
                rpc::put_call(&mut message, xid, program, procedure, &shared.credentials);
                arguments.pack(&mut message).map_err(garbled)?;
                udp::exchange(shared, socket, &message, awaited).await?
            }
        };
        let body = match arrival.answer {
            Answer::Done { body } => body,
            Answer::Refused(refusal) => return Err(CallError::Refused { peer, refusal }),
        };
        let mut rest = &arrival.message[body..];
        let (result, _) = R::unpack(&mut rest).map_err(garbled)?;
        if !rest.is_empty() {
            return Err(CallError::Trailing {
                peer,
                what,
                bytes: rest.len(),
            });
        }
        Ok(Reply {
            result,
            at: arrival.at,
            bytes: arrival.message.len(),
        })
    }
}

/// A place in the table of calls under way; leaving it takes the call out.
struct Awaited<'a> {
    shared: &'a Shared,
    xid: u32,
    arrival: oneshot::Receiver<Arrival>,
}

impl Future for Awaited<'_> {
    type Output = Result<Arrival, CallError>;

    fn poll(
        mut self: std::pin::Pin<&mut Self>,
        context: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Self::Output> {
        let arrival = std::pin::Pin::new(&mut self.arrival).poll(context);
        // The sender is dropped unsent when the connection is lost.
        arrival.map(|arrival| arrival.map_err(|_| self.shared.loss()))
    }
}

impl Drop for Awaited<'_> {
    fn drop(&mut self) {
        self.shared.pending().calls.remove(&self.xid);
    }
}

impl Shared {
    fn new(peer: SocketAddr, options: &Options, wire: Wire) -> Self {
        let (uid, gid) = options.user;
        Self {
            peer,
            credentials: rpc::credentials("perturb", uid, gid),
            // A server remembers recent XIDs of an address; two runs must not use the same ones.
            next_xid: AtomicU32::new(fresh_xid()),
            retransmissions: AtomicU64::new(0),
            pending: Mutex::new(Pending::default()),
            options: options.clone(),
            wire,
        }
    }

    fn pending(&self) -> MutexGuard<'_, Pending> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn expect(&self, xid: u32) -> Result<Awaited<'_>, CallError> {
        let (sender, arrival) = oneshot::channel();
        let mut pending = self.pending();
        if let Some(cause) = pending.lost.clone() {
            return Err(CallError::Lost {
                peer: self.peer,
                cause,
            });
        }
        pending.calls.insert(xid, sender);
        drop(pending);
        Ok(Awaited {
            shared: self,
            xid,
            arrival,
        })
    }

    /// Hands a message to the call that waits for it. One that nobody waits for is a late or
    /// repeated reply and is dropped.
    fn arrived(&self, message: Bytes, at: Instant) -> Result<(), XdrError> {
        let (xid, answer) = rpc::reply(&message)?;
        let waiting = self.pending().calls.remove(&xid);
        if let Some(waiting) = waiting {
            // The caller may just have given up.
            let _ = waiting.send(Arrival { at, message, answer });
        }
        Ok(())
    }

    fn lose(&self, cause: Loss) {
        let mut pending = self.pending();
        pending.lost.get_or_insert(cause);
        pending.calls.clear();
    }

    fn loss(&self) -> CallError {
        let cause = self.pending().lost.clone().unwrap_or(Loss::Closed);
        CallError::Lost {
            peer: self.peer,
            cause,
        }
    }
}

fn fresh_xid() -> u32 {
    use std::hash::{BuildHasher as _, RandomState};
    RandomState::new().hash_one(std::process::id()) as u32
}
