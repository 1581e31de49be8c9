//! One side of a connection between two ranks.

use std::{
    io::{self, Read as _, Write as _},
    net::TcpStream,
    os::fd::{AsFd as _, AsRawFd as _},
};

use nix::poll::{PollFd, PollFlags};
use socket2::SockRef;

/// What messages consist of.
static ZEROS: [u8; 1 << 16] = [0; 1 << 16];

#[derive(Debug)]
pub(crate) struct Peer {
    stream: TcpStream,
    /// Bytes that the kernel has not taken yet.
    to_send: u64,
    /// The kernel has taken all, and has not yet said that all is transmitted.
    untransmitted: bool,
    /// Bytes that have arrived and were not waited for yet.
    pub(crate) received: u64,
    /// Nothing will arrive any more: the other side has done its last round.
    pub(crate) has_ended: bool,
}

impl Peer {
    pub(crate) fn new(stream: TcpStream) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        SockRef::from(&stream).set_tcp_notsent_lowat(1)?;
        Ok(Self {
            stream,
            to_send: 0,
            untransmitted: false,
            received: 0,
            has_ended: false,
        })
    }

    /// Whether a message is not yet transmitted.
    pub(crate) fn is_sending(&self) -> bool {
        self.to_send > 0 || self.untransmitted
    }

    /// What to wait for, if there is anything.
    pub(crate) fn interest(&self) -> Option<PollFd<'_>> {
        let mut events = PollFlags::empty();
        events.set(PollFlags::POLLIN, !self.has_ended);
        events.set(PollFlags::POLLOUT, self.is_sending());
        (!events.is_empty()).then(|| PollFd::new(self.stream.as_fd(), events))
    }

    /// Begins to send a message.
    pub(crate) fn begin(&mut self, message: u64) -> io::Result<()> {
        self.to_send += message;
        self.untransmitted = true;
        self.write()
    }

    /// Does what can be done.
    pub(crate) fn advance(&mut self, events: PollFlags, buffer: &mut [u8]) -> io::Result<()> {
        if events.intersects(PollFlags::POLLIN | PollFlags::POLLERR | PollFlags::POLLHUP) {
            self.read(buffer)?;
        }
        if events.contains(PollFlags::POLLOUT) {
            if self.to_send > 0 {
                self.write()?;
            } else {
                self.untransmitted = false;
            }
        }
        Ok(())
    }

    fn write(&mut self) -> io::Result<()> {
        while self.to_send > 0 {
            let part = ZEROS
                .len()
                .min(usize::try_from(self.to_send).unwrap_or(usize::MAX));
            match self.stream.write(&ZEROS[..part]) {
                Ok(written) => self.to_send -= written as u64,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn read(&mut self, buffer: &mut [u8]) -> io::Result<()> {
        loop {
            match self.stream.read(buffer) {
                Ok(0) => {
                    self.has_ended = true;
                    return Ok(());
                }
                Ok(read) => self.received += read as u64,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Bytes sent that the other side has not acknowledged.
    pub(crate) fn unacknowledged(&self) -> io::Result<u64> {
        let mut bytes: libc::c_int = 0;
        // SAFETY: TIOCOUTQ (SIOCOUTQ) writes an int.
        if unsafe { libc::ioctl(self.stream.as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) } != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(u64::from(bytes.unsigned_abs()))
    }
}
