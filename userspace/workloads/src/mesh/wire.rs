//! Messages on a connection.

use std::{
    collections::VecDeque,
    io::{self, ErrorKind},
    net::{Shutdown, TcpStream},
    os::fd::AsFd as _,
    sync::{
        Mutex,
        atomic::{AtomicBool, Ordering},
    },
};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use socket2::SockRef;

use super::{PATIENCE, locked};

/// What a message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::FromRepr)]
#[repr(u8)]
pub(super) enum Kind {
    /// Asks for so many words of memory.
    Read = 1,
    /// They.
    Value,
    /// Words for the memory; nobody waits.
    Write,
    /// Changes a word if it is what the sender takes it to be, and asks for what was there.
    Swap,
    /// What was there.
    Previous,
    /// Something that the program itself takes in.
    Post,
    /// Asks whether all writes before have come.
    Fence,
    /// They have.
    Fenced,
    /// A process has come to the barrier.
    Arrive,
    /// All have.
    Release,
    /// The last message.
    Leave,
}

/// Bytes before the payload: kind, place, size.
pub(super) const HEADER: usize = 9;
/// The largest payload of a short message: six words, as those of the Active Messages that the thesis used.
pub(super) const SHORT: usize = 6 * 8;

/// A message that came for the program.
#[derive(Debug)]
pub(super) struct Message {
    pub(super) from: usize,
    pub(super) kind: Kind,
    pub(super) payload: Vec<u8>,
}

/// A message as it lies in a buffer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Raw<'buffer> {
    pub(super) kind: u8,
    pub(super) at: u32,
    pub(super) payload: &'buffer [u8],
}

pub(super) fn encoded(kind: Kind, at: usize, payload: &[u8]) -> Vec<u8> {
    let mut message = Vec::with_capacity(HEADER + payload.len());
    message.push(kind as u8);
    message.extend((at as u32).to_le_bytes());
    message.extend((payload.len() as u32).to_le_bytes());
    message.extend(payload);
    message
}

/// The message at the beginning of a buffer and its bytes there, if it is whole.
pub(super) fn decoded(buffer: &[u8]) -> Option<(Raw<'_>, usize)> {
    let (header, rest) = buffer.split_first_chunk::<HEADER>()?;
    let word = |at: usize| u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
    let payload = rest.get(..word(5) as usize)?;
    let (kind, at) = (header[0], word(1));
    Some((Raw { kind, at, payload }, HEADER + payload.len()))
}

/// The words of a payload.
pub(super) fn words_of(payload: &[u8]) -> impl Iterator<Item = u64> {
    payload
        .as_chunks::<8>()
        .0
        .iter()
        .map(|word| u64::from_le_bytes(*word))
}

/// A connection with a peer. Program and server send on it, and neither waits while it holds the lock.
#[derive(Debug)]
pub(super) struct Link {
    stream: TcpStream,
    outgoing: Mutex<Outgoing>,
    /// The server has left something unsent.
    unsent: AtomicBool,
}

#[derive(Debug, Default)]
struct Outgoing {
    messages: VecDeque<Vec<u8>>,
    /// Bytes of the first one that the kernel has.
    taken: usize,
}

impl Link {
    pub(super) fn new(stream: TcpStream) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        Ok(Self {
            stream,
            outgoing: Mutex::default(),
            unsent: AtomicBool::new(false),
        })
    }

    /// Gives a message to the kernel, and waits for room there.
    pub(super) fn send(&self, message: Vec<u8>) -> io::Result<()> {
        let mut sent = self.push(message)?;
        while !sent {
            self.wait(PollFlags::POLLOUT)?;
            sent = self.flush(&mut locked(&self.outgoing))?;
        }
        Ok(())
    }

    /// Gives a message to the kernel if there is room; else [`receive`](Self::receive) does it later.
    pub(super) fn offer(&self, message: Vec<u8>) -> io::Result<()> {
        if !self.push(message)? {
            self.unsent.store(true, Ordering::Release);
        }
        Ok(())
    }

    fn push(&self, message: Vec<u8>) -> io::Result<bool> {
        let mut outgoing = locked(&self.outgoing);
        outgoing.messages.push_back(message);
        self.flush(&mut outgoing)
    }

    /// Sends what there is room for; whether that was all.
    fn flush(&self, outgoing: &mut Outgoing) -> io::Result<bool> {
        let flags = libc::MSG_DONTWAIT | libc::MSG_EOR | libc::MSG_NOSIGNAL;
        while let Some(first) = outgoing.messages.front() {
            match SockRef::from(&self.stream).send_with_flags(&first[outgoing.taken..], flags) {
                Ok(bytes) => {
                    outgoing.taken += bytes;
                    if outgoing.taken == first.len() {
                        outgoing.messages.pop_front();
                        outgoing.taken = 0;
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    /// Waits for bytes, and meanwhile sends what [`offer`](Self::offer) has left; 0 bytes at the end.
    pub(super) fn receive(&self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.unsent.load(Ordering::Acquire) {
            let ready = self.wait(PollFlags::POLLIN | PollFlags::POLLOUT)?;
            if ready.contains(PollFlags::POLLOUT) && self.flush(&mut locked(&self.outgoing))? {
                self.unsent.store(false, Ordering::Release);
            }
            if ready.intersects(PollFlags::POLLIN | PollFlags::POLLHUP) {
                break;
            }
        }
        loop {
            match io::Read::read(&mut &self.stream, buffer) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                result => return result,
            }
        }
    }

    fn wait(&self, events: PollFlags) -> io::Result<PollFlags> {
        let patience = PollTimeout::try_from(PATIENCE).map_err(|_| ErrorKind::InvalidInput)?;
        let mut descriptors = [PollFd::new(self.stream.as_fd(), events)];
        match poll(&mut descriptors, patience) {
            Ok(0) => Err(ErrorKind::TimedOut.into()),
            Ok(_) => Ok(descriptors[0].revents().unwrap_or(PollFlags::empty())),
            Err(nix::errno::Errno::EINTR) => Ok(PollFlags::empty()),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Ends the connection; the server's thread ends with it.
    pub(super) fn close(&self, side: Shutdown) {
        // One that is gone already has ended.
        let _ = self.stream.shutdown(side);
    }
}
