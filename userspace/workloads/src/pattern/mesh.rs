//! Processes that are all connected with each other, and their barrier.
//!
//! Model: between any two processes there is one TCP connection without delay of small segments. A message is its kind,
//! a number, and so many bytes of nothing. A thread for each peer takes messages in, serves what asks for service (reads,
//! locks, thefts) at once, as Split-C's handlers do, and hands on the rest.
//! Processes are numbered from 0.

use std::{
    collections::VecDeque,
    io::{Read as _, Write as _},
    net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
        mpsc::{Receiver, RecvTimeoutError, Sender, channel},
    },
    thread,
};

use super::{PATIENCE, PatternError, socket};
use crate::collective::patiently;

/// What a message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::FromRepr)]
#[repr(u8)]
pub(super) enum Kind {
    /// Asks for a value.
    Read = 1,
    /// The value.
    Value,
    /// Data that nobody waits for.
    Write,
    /// Asks whether all writes before have come.
    Fence,
    /// They have.
    Fenced,
    /// A process has come to the barrier.
    Arrive,
    /// All have.
    Release,
    /// Asks for a lock.
    Lock,
    /// Whether it was granted.
    Locked,
    /// Takes a task; the lock is held.
    Steal,
    /// Whether there was one.
    Stolen,
    /// Gives the lock back.
    Unlock,
}

/// A message that came.
#[derive(Clone, Copy, Debug)]
pub(super) struct Message {
    pub(super) kind: Kind,
    pub(super) number: u32,
}

/// Bytes of a value that is read.
pub(super) const VALUE: usize = 32;
const HEADER: usize = 9;

/// What other processes may ask of this one.
#[derive(Debug, Default)]
pub(super) struct Shared {
    /// Tasks of this process.
    pub(super) tasks: Mutex<VecDeque<u32>>,
    /// Who holds the lock of the tasks.
    pub(super) holder: Mutex<Option<usize>>,
    sent: AtomicU64,
}

pub(super) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // What is protected is whole after any panic: single words and queues.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A process' connections with all others.
#[derive(Debug)]
pub(super) struct Mesh {
    rank: usize,
    streams: Vec<Option<Mutex<TcpStream>>>,
    pub(super) shared: Shared,
}

/// What came, besides what was served.
pub(super) struct Inbox {
    receiver: Receiver<Result<Message, PatternError>>,
    kept: VecDeque<Message>,
}

impl Mesh {
    /// Connects process `rank` with the others, whose addresses are given in order.
    pub(super) fn connect(rank: usize, addresses: &[IpAddr], port: u16) -> Result<Self, PatternError> {
        let own = SocketAddr::new(addresses[rank], port);
        let listener = socket("listening for the others", TcpListener::bind(own))?;
        let mut streams: Vec<Option<Mutex<TcpStream>>> = addresses.iter().map(|_| None).collect();
        for (peer, address) in addresses.iter().enumerate().take(rank) {
            let stream = patiently(SocketAddr::new(*address, port), PATIENCE);
            let mut stream = socket("connecting with another process", stream)?;
            socket("greeting", stream.write_all(&(rank as u32).to_le_bytes()))?;
            streams[peer] = Some(Mutex::new(stream));
        }
        for _ in rank + 1..addresses.len() {
            let (mut stream, _) = socket("waiting for the others", listener.accept())?;
            let mut greeting = [0; 4];
            socket("reading a greeting", stream.read_exact(&mut greeting))?;
            let peer = u32::from_le_bytes(greeting) as usize;
            if let Some(slot) = streams.get_mut(peer) {
                *slot = Some(Mutex::new(stream));
            }
        }
        for stream in streams.iter().flatten() {
            socket("asking for undelayed segments", locked(stream).set_nodelay(true))?;
        }
        Ok(Self {
            rank,
            streams,
            shared: Shared::default(),
        })
    }

    /// This process' number.
    pub(super) fn rank(&self) -> usize {
        self.rank
    }

    /// How many processes there are.
    pub(super) fn size(&self) -> usize {
        self.streams.len()
    }

    /// Messages sent so far.
    pub(super) fn sent(&self) -> u64 {
        self.shared.sent.load(Ordering::Relaxed)
    }

    /// Sends a message with `bytes` of payload.
    pub(super) fn send(&self, to: usize, kind: Kind, number: u32, bytes: usize) -> Result<(), PatternError> {
        let Some(stream) = self.streams.get(to).and_then(Option::as_ref) else {
            return Ok(());
        };
        let mut message = vec![0; HEADER + bytes];
        message[0] = kind as u8;
        message[1..5].copy_from_slice(&number.to_le_bytes());
        message[5..9].copy_from_slice(&(bytes as u32).to_le_bytes());
        self.shared.sent.fetch_add(1, Ordering::Relaxed);
        socket("sending", locked(stream).write_all(&message))
    }

    /// Runs a program on these connections, with threads that serve the others.
    pub(super) fn run<T>(
        &self,
        program: impl FnOnce(&Self, &mut Inbox) -> Result<T, PatternError>,
    ) -> Result<T, PatternError> {
        let (sender, receiver) = channel();
        thread::scope(|scope| {
            for (peer, stream) in self.streams.iter().enumerate() {
                let Some(stream) = stream else { continue };
                let reader = socket("sharing a connection", locked(stream).try_clone())?;
                let sender = sender.clone();
                scope.spawn(move || self.serve(peer, reader, &sender));
            }
            let mut inbox = Inbox {
                receiver,
                kept: VecDeque::new(),
            };
            let result = program(self, &mut inbox);
            for stream in self.streams.iter().flatten() {
                // Its thread ends with the connection; one that is gone already has ended.
                let _ = locked(stream).shutdown(Shutdown::Both);
            }
            result
        })
    }

    fn serve(&self, from: usize, mut stream: TcpStream, sender: &Sender<Result<Message, PatternError>>) {
        let mut payload = Vec::new();
        loop {
            let mut header = [0; HEADER];
            if stream.read_exact(&mut header).is_err() {
                return;
            }
            let word =
                |at: usize| u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
            let (number, bytes) = (word(1), word(5) as usize);
            payload.resize(bytes, 0);
            if stream.read_exact(&mut payload).is_err() {
                return;
            }
            let served = match Kind::from_repr(header[0]) {
                None => Err(PatternError::Unknown {
                    from,
                    kind: header[0],
                }),
                Some(Kind::Write) => Ok(()),
                Some(Kind::Read) => self.send(from, Kind::Value, number, VALUE),
                Some(Kind::Fence) => self.send(from, Kind::Fenced, number, 0),
                Some(Kind::Lock) => self.send(from, Kind::Locked, self.grant(from).into(), 0),
                Some(Kind::Steal) => {
                    let task = locked(&self.shared.tasks).pop_front();
                    self.send(from, Kind::Stolen, task.map_or(0, |_| 1), 0)
                }
                Some(Kind::Unlock) => {
                    self.unlock(from);
                    Ok(())
                }
                // The program may have ended.
                Some(kind) => {
                    let _ = sender.send(Ok(Message { kind, number }));
                    Ok(())
                }
            };
            if let Err(error) = served {
                let _ = sender.send(Err(error));
                return;
            }
        }
    }

    /// Grants the lock of this process' tasks, if it is free.
    pub(super) fn grant(&self, to: usize) -> bool {
        let mut holder = locked(&self.shared.holder);
        let free = holder.is_none();
        if free {
            *holder = Some(to);
        }
        free
    }

    /// Takes the lock back.
    pub(super) fn unlock(&self, from: usize) {
        let mut holder = locked(&self.shared.holder);
        if *holder == Some(from) {
            *holder = None;
        }
    }

    /// Waits until all processes are here.
    pub(super) fn barrier(&self, inbox: &mut Inbox) -> Result<(), PatternError> {
        if self.rank != 0 {
            self.send(0, Kind::Arrive, 0, 0)?;
            return inbox.wait(Kind::Release).map(|_| ());
        }
        for _ in 1..self.size() {
            inbox.wait(Kind::Arrive)?;
        }
        (1..self.size()).try_for_each(|peer| self.send(peer, Kind::Release, 0, 0))
    }

    /// Waits until all writes have come.
    pub(super) fn fence(&self, inbox: &mut Inbox) -> Result<(), PatternError> {
        let others = || (0..self.size()).filter(|peer| *peer != self.rank);
        for peer in others() {
            self.send(peer, Kind::Fence, 0, 0)?;
        }
        others().try_for_each(|_| inbox.wait(Kind::Fenced).map(|_| ()))
    }
}

impl Inbox {
    /// The next message of a kind.
    pub(super) fn wait(&mut self, kind: Kind) -> Result<Message, PatternError> {
        if let Some(place) = self.kept.iter().position(|message| message.kind == kind)
            && let Some(message) = self.kept.remove(place)
        {
            return Ok(message);
        }
        loop {
            match self.receiver.recv_timeout(PATIENCE) {
                Ok(Ok(message)) if message.kind == kind => return Ok(message),
                Ok(Ok(message)) => self.kept.push_back(message),
                Ok(Err(error)) => return Err(error),
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                    return Err(PatternError::Silence);
                }
            }
        }
    }
}
