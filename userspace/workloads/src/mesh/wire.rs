//! Messages on a connection.

use std::{
    collections::VecDeque,
    io::{self, ErrorKind, Read as _},
    net::{Shutdown, TcpStream},
    os::fd::AsFd as _,
};

use nix::poll::{PollFd, PollFlags};
use socket2::SockRef;

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

/// A message that came.
#[derive(Debug)]
pub(super) struct Message {
    pub(super) from: usize,
    pub(super) kind: u8,
    pub(super) at: u32,
    pub(super) payload: Vec<u8>,
}

pub(super) fn encoded(kind: Kind, at: usize, payload: &[u8]) -> Vec<u8> {
    let mut message = Vec::with_capacity(HEADER + payload.len());
    message.push(kind as u8);
    message.extend((at as u32).to_le_bytes());
    message.extend((payload.len() as u32).to_le_bytes());
    message.extend(payload);
    message
}

/// The words of a payload.
pub(super) fn words_of(payload: &[u8]) -> impl Iterator<Item = u64> {
    payload
        .as_chunks::<8>()
        .0
        .iter()
        .map(|word| u64::from_le_bytes(*word))
}

/// A connection with a peer. Nothing here waits.
#[derive(Debug)]
pub(super) struct Link {
    stream: TcpStream,
    /// What came and is no whole message yet.
    incoming: Vec<u8>,
    outgoing: VecDeque<Vec<u8>>,
    /// Bytes of the first message there that the kernel has.
    taken: usize,
    /// It has said that nothing comes any more.
    pub(super) has_left: bool,
    /// Nothing comes any more.
    pub(super) has_ended: bool,
}

impl Link {
    pub(super) fn new(stream: TcpStream) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        Ok(Self {
            stream,
            incoming: Vec::new(),
            outgoing: VecDeque::new(),
            taken: 0,
            has_left: false,
            has_ended: false,
        })
    }

    /// What to wait for, if there is anything.
    pub(super) fn interest(&self) -> Option<PollFd<'_>> {
        let mut events = PollFlags::empty();
        events.set(PollFlags::POLLIN, !self.has_ended);
        events.set(PollFlags::POLLOUT, !self.is_flushed());
        (!events.is_empty()).then(|| PollFd::new(self.stream.as_fd(), events))
    }

    /// The kernel has all that was to be sent.
    pub(super) fn is_flushed(&self) -> bool {
        self.outgoing.is_empty()
    }

    /// Sends a message behind those that wait; what there is no room for now is left to [`flush`](Self::flush).
    pub(super) fn send(&mut self, message: Vec<u8>) -> io::Result<()> {
        self.outgoing.push_back(message);
        self.flush()
    }

    /// Sends what there is room for.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        let flags = libc::MSG_EOR | libc::MSG_NOSIGNAL;
        while let Some(first) = self.outgoing.front() {
            match SockRef::from(&self.stream).send_with_flags(&first[self.taken..], flags) {
                Ok(bytes) => {
                    self.taken += bytes;
                    if self.taken == first.len() {
                        self.outgoing.pop_front();
                        self.taken = 0;
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Takes in what is there, of this peer; whole messages go to `messages`.
    pub(super) fn receive(
        &mut self,
        from: usize,
        buffer: &mut [u8],
        messages: &mut Vec<Message>,
    ) -> io::Result<()> {
        match (&self.stream).read(buffer) {
            Ok(0) => self.has_ended = true,
            Ok(bytes) => self.incoming.extend_from_slice(&buffer[..bytes]),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
            Err(error) => {
                self.has_ended = true;
                return Err(error);
            }
        }
        let mut used = 0;
        while let Some((header, rest)) = self.incoming[used..].split_first_chunk::<HEADER>() {
            let word =
                |at: usize| u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
            let Some(payload) = rest.get(..word(5) as usize) else {
                break;
            };
            used += HEADER + payload.len();
            messages.push(Message {
                from,
                kind: header[0],
                at: word(1),
                payload: payload.to_vec(),
            });
        }
        self.incoming.drain(..used);
        Ok(())
    }

    /// Says that nothing more is sent.
    pub(super) fn leave(&self) {
        // One that is gone already has ended.
        let _ = self.stream.shutdown(Shutdown::Write);
    }
}
