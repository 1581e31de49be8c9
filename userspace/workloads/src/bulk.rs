//! Bulk TCP: a connection that sends as fast as its congestion control lets it, and what the kernel says of it meanwhile.

use std::{
    io::{self, Read as _, Write as _},
    mem,
    net::{SocketAddr, TcpListener, TcpStream},
    os::fd::{AsFd as _, AsRawFd as _},
    time::{Duration, Instant},
};

use nix::poll::{PollFd, PollFlags};
use socket2::{Domain, SockRef, Socket, Type};

use crate::collective::{accept_until, wait_until};

/// Bytes per system call.
const CHUNK: usize = 1 << 16;
/// How long a connection may take to be made.
const PATIENCE: Duration = Duration::from_secs(20);

/// What TCP says of a connection (`TCP_INFO`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// Since the flow began to send.
    pub at: Duration,
    /// Payload bytes that the other side has: acknowledged (`tcpi_bytes_acked`), or behind a gap (`tcpi_sacked`).
    pub delivered: u64,
    /// Smoothed round-trip time (`tcpi_rtt`).
    pub rtt: Duration,
    /// Shortest round-trip time (`tcpi_min_rtt`).
    pub min_rtt: Duration,
    /// Segments sent again (`tcpi_total_retrans`).
    pub retransmitted: u32,
}

/// The sending side.
#[derive(Debug)]
pub struct Flow(TcpStream);

/// Whether this kernel has a congestion control, which it may have to load as a module for that.
///
/// # Errors
/// If it cannot be asked.
pub fn is_available(control: &str) -> io::Result<bool> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    match socket.set_tcp_congestion(control.as_bytes()) {
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(false),
        // It is there: on private hosts this user may use it.
        Err(error) if error.raw_os_error() == Some(libc::EPERM) => Ok(true),
        done => done.map(|()| true),
    }
}

impl Flow {
    /// Connects from the calling thread's network namespace.
    ///
    /// # Errors
    /// If the kernel lacks the congestion control, or nobody answers within 20 s.
    pub fn connect(to: SocketAddr, control: &str) -> io::Result<Self> {
        let socket = Socket::new(Domain::for_address(to), Type::STREAM, None)?;
        socket.set_tcp_congestion(control.as_bytes())?;
        socket.connect_timeout(&to.into(), PATIENCE)?;
        Ok(Self(socket.into()))
    }

    /// Sends for so long, and gives `each` a sample every so often. What is not acknowledged in the end is thrown away.
    ///
    /// # Errors
    /// If the connection fails.
    pub fn send(
        mut self,
        start: Instant,
        length: Duration,
        every: Duration,
        mut each: impl FnMut(Sample),
    ) -> io::Result<()> {
        let stream = &mut self.0;
        stream.set_nonblocking(true)?;
        SockRef::from(&*stream).set_linger(Some(Duration::ZERO))?;
        let chunk = vec![0; CHUNK];
        let mut due = every;
        while due <= length {
            while start.elapsed() < due {
                wait_until(
                    start + due,
                    &mut [PollFd::new(stream.as_fd(), PollFlags::POLLOUT)],
                )?;
                match stream.write(&chunk) {
                    Err(error) if error.kind() != io::ErrorKind::WouldBlock => return Err(error),
                    _ => {}
                }
            }
            each(sample(stream, start.elapsed())?);
            due += every;
        }
        Ok(())
    }
}

/// Takes one connection and reads what comes, until the other side ends it.
///
/// # Errors
/// If nobody connects within 20 s.
pub fn drain(listener: &TcpListener) -> io::Result<()> {
    listener.set_nonblocking(true)?;
    let mut stream = accept_until(Instant::now() + PATIENCE, listener)?;
    stream.set_nonblocking(false)?;
    let mut chunk = vec![0; CHUNK];
    loop {
        match stream.read(&mut chunk) {
            Ok(0) => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return Ok(()),
            Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
            _ => {}
        }
    }
}

fn sample(stream: &TcpStream, at: Duration) -> io::Result<Sample> {
    // SAFETY: `tcp_info` consists of integers, for which zeros are values.
    let mut info: libc::tcp_info = unsafe { mem::zeroed() };
    let mut length = size_of_val(&info) as libc::socklen_t;
    // SAFETY: the kernel writes at most `length` bytes, which is the size of `info`.
    let done = unsafe {
        libc::getsockopt(
            stream.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            (&raw mut info).cast(),
            &raw mut length,
        )
    };
    if done != 0 {
        return Err(io::Error::last_os_error());
    }
    let micros = |time: u32| Duration::from_micros(time.into());
    Ok(Sample {
        at,
        delivered: info.tcpi_bytes_acked + u64::from(info.tcpi_sacked) * u64::from(info.tcpi_snd_mss),
        rtt: micros(info.tcpi_rtt),
        min_rtt: micros(info.tcpi_min_rtt),
        retransmitted: info.tcpi_total_retrans,
    })
}

#[cfg(test)]
mod tests {
    use std::{net::Ipv4Addr, thread};

    use super::*;

    #[test]
    fn a_kernel_says_what_it_lacks() {
        assert!(is_available("reno").unwrap());
        assert!(!is_available("nosuch").unwrap());
    }

    #[test]
    fn what_is_delivered_grows_from_sample_to_sample() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let to = listener.local_addr().unwrap();
        let sink = thread::spawn(move || drain(&listener));
        let flow = Flow::connect(to, "reno").unwrap();
        let mut samples = Vec::new();
        let millis = Duration::from_millis;
        let push = |sample| samples.push(sample);
        flow.send(Instant::now(), millis(105), millis(10), push).unwrap();
        sink.join().unwrap().unwrap();
        assert_eq!(samples.len(), 10);
        for (place, sample) in (1..).zip(&samples) {
            assert!(sample.at >= millis(10 * place), "{samples:?}");
            assert!(
                sample.min_rtt > Duration::ZERO && sample.min_rtt < millis(1000),
                "{samples:?}"
            );
        }
        assert!(
            samples.is_sorted_by(|one, next| one.delivered < next.delivered),
            "{samples:?}"
        );
    }
}
