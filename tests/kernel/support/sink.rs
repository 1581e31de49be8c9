//! A packet socket: at the far end of the test's hold device it sees what was really sent there.

use std::{
    io,
    os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd},
    time::{Duration, Instant},
};

/// A packet socket on an interface.
pub(crate) struct Sink(OwnedFd);

impl Sink {
    /// On an interface of the current namespace.
    pub(crate) fn new(index: u32) -> io::Result<Self> {
        let protocol = (libc::ETH_P_ALL as u16).to_be();
        let kind = libc::SOCK_RAW | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
        // SAFETY: no pointers; the result is checked, and owned by nobody else.
        let socket = unsafe {
            match libc::socket(libc::AF_PACKET, kind, i32::from(protocol)) {
                -1 => return Err(io::Error::last_os_error()),
                fd => OwnedFd::from_raw_fd(fd),
            }
        };
        // SAFETY: all-zero bytes are a valid address.
        let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_protocol = protocol;
        address.sll_ifindex = index.cast_signed();
        // SAFETY: the address is of the length given.
        let bound = unsafe {
            libc::bind(
                socket.as_raw_fd(),
                (&raw const address).cast(),
                size_of_val(&address) as u32,
            )
        };
        if bound == 0 {
            Ok(Self(socket))
        } else {
            Err(io::Error::last_os_error())
        }
    }

    /// Sends a frame out of the interface.
    pub(crate) fn send(&self, frame: &[u8]) -> io::Result<()> {
        // SAFETY: the buffer is of the length given.
        let sent = unsafe { libc::send(self.0.as_raw_fd(), frame.as_ptr().cast(), frame.len(), 0) };
        if sent == -1 {
            Err(io::Error::last_os_error())
        } else {
            Ok(())
        }
    }

    /// The next frame, if there is one.
    pub(crate) fn try_next(&self) -> Option<Vec<u8>> {
        let mut frame = vec![0; 65_600];
        // SAFETY: the buffer is of the length given.
        let len = unsafe { libc::recv(self.0.as_raw_fd(), frame.as_mut_ptr().cast(), frame.len(), 0) };
        frame.truncate(usize::try_from(len).ok()?);
        Some(frame)
    }

    /// The next frame, waiting up to a second for it.
    pub(crate) fn next(&self) -> Option<Vec<u8>> {
        let deadline = Instant::now() + Duration::from_secs(1);
        loop {
            if let Some(frame) = self.try_next() {
                return Some(frame);
            }
            if Instant::now() > deadline {
                return None;
            }
            std::thread::sleep(Duration::from_micros(200));
        }
    }

    /// Forgets what has arrived.
    pub(crate) fn drain(&self) {
        while self.try_next().is_some() {}
    }
}
