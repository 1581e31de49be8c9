//! TCP: round trips of small messages, and the rate of a long transfer.
//!
//! Model: the receiver of a transfer notes the clock each time it has read; the rate is that of the second half, so
//! that slow start does not count. Bytes are payload; what a segment has on the wire beside it is the caller's affair.

use std::{
    io::{self, Read as _, Write as _},
    net::{SocketAddr, TcpListener, TcpStream},
    os::fd::AsFd as _,
    thread,
    time::Duration,
};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::clock;

/// Longest wait for the other end.
const PATIENCE: Duration = Duration::from_secs(10);
/// Bytes of a small message.
const SMALL: usize = 64;

/// What one connection showed.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Transfer {
    /// Round trips of small messages, microseconds.
    pub round_trips_us: Vec<f64>,
    /// Time per byte of payload over the second half of the transfer, ns; absent if there was none.
    pub byte_ns: Option<f64>,
}

/// The serving end: echoes `trips` small messages, then reads to the end. Nanoseconds per byte of the second half.
pub(crate) fn serve(listener: &TcpListener, trips: u32, bytes: usize) -> io::Result<Option<f64>> {
    let mut waiting = [PollFd::new(listener.as_fd(), PollFlags::POLLIN)];
    let patience = PollTimeout::try_from(PATIENCE).map_err(io::Error::other)?;
    if poll(&mut waiting, patience)? == 0 {
        return Err(io::ErrorKind::TimedOut.into());
    }
    let (mut stream, _) = listener.accept()?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut small = [0; SMALL];
    for _ in 0..trips {
        stream.read_exact(&mut small)?;
        stream.write_all(&small)?;
    }
    let mut buffer = vec![0; 256 << 10];
    let (mut total, mut half) = (0, None);
    let mut last = (0, 0);
    loop {
        let read = stream.read(&mut buffer)?;
        if read == 0 {
            break;
        }
        total += read;
        last = (clock::now(), total);
        if half.is_none() && total >= bytes / 2 {
            half = Some(last);
        }
    }
    let Some((start, from)) = half else {
        return Ok(None);
    };
    Ok((last.1 > from).then(|| (last.0 - start) as f64 / (last.1 - from) as f64))
}

/// The asking end: `trips` round trips, then `bytes` of payload.
pub(crate) fn ask(to: SocketAddr, trips: u32, bytes: usize) -> io::Result<Vec<f64>> {
    let mut stream = TcpStream::connect_timeout(&to, PATIENCE)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut small = [0; SMALL];
    let mut times = Vec::with_capacity(trips as usize);
    for _ in 0..trips {
        let start = clock::now();
        stream.write_all(&small)?;
        stream.read_exact(&mut small)?;
        times.push((clock::now() - start) as f64 / 1e3);
    }
    let chunk = vec![0; (64 << 10).min(bytes.max(1))];
    let mut left = bytes;
    while left > 0 {
        let length = left.min(chunk.len());
        stream.write_all(&chunk[..length])?;
        left -= length;
    }
    stream.shutdown(std::net::Shutdown::Write)?;
    Ok(times)
}

/// Both ends in this process: the listener's host serves, `enter` runs the asking end where it belongs.
pub(crate) fn transfer(
    listener: &TcpListener,
    (trips, bytes): (u32, usize),
    enter: impl FnOnce(SocketAddr) -> io::Result<Vec<f64>>,
) -> io::Result<Transfer> {
    let to = listener.local_addr()?;
    thread::scope(|scope| {
        let server = thread::Builder::new()
            .name("probe-tcp".into())
            .spawn_scoped(scope, || serve(listener, trips, bytes))?;
        let round_trips_us = enter(to)?;
        let byte_ns = server
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        Ok(Transfer {
            round_trips_us,
            byte_ns,
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transfer_over_loopback() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let seen = transfer(&listener, (5, 1 << 20), |to| ask(to, 5, 1 << 20)).unwrap();
        assert_eq!(seen.round_trips_us.len(), 5);
        assert!(seen.byte_ns.unwrap() > 0.0);
    }

    #[test]
    fn nobody_listens() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let to = listener.local_addr().unwrap();
        drop(listener);
        assert!(ask(to, 1, 0).is_err());
    }
}
