//! Requests and their answers over TCP, as redis and redis-benchmark exchange them.
//!
//! Model: a server of one thread answers each request at once. A client of one thread has `clients` connections, and on
//! each of them sends the next request when the answer to the last one is there.

use std::{
    io::{self, Read as _, Write as _},
    net::{SocketAddr, TcpListener, TcpStream},
    os::fd::AsFd as _,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::{
    bed::{Family, Host},
    clock,
};

/// Bytes of a request and of an answer: they fit one packet.
const MESSAGE: usize = 40;
/// How long a side waits before it looks whether all is over, ms.
const PATIENCE: u16 = 100;

/// How fast answers come.
#[derive(Clone, Copy, Debug)]
pub struct Rate {
    /// Answers per second.
    pub per_second: f64,
    /// Median time from a request to its answer, us.
    pub median_us: f64,
}

/// Exchanges requests and answers between hosts for `window`, after a fifth of it that is not counted.
pub fn rate(client: &Host, server: &Host, clients: usize, window: Duration) -> Result<Rate> {
    let listener = server.enter(|| TcpListener::bind(SocketAddr::new(server.address(Family::V4), 0)))??;
    let address = listener.local_addr()?;
    let mut near = Vec::new();
    let mut far = Vec::new();
    for _ in 0..clients {
        near.push(prepared(
            client
                .enter(|| TcpStream::connect(address))?
                .context("connecting")?,
        )?);
        far.push(prepared(listener.accept()?.0)?);
    }
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let answering = scope.spawn(|| answer(&far, &over));
        let asked = ask(&near, window);
        over.store(true, Ordering::Relaxed);
        let answered = answering
            .join()
            .map_err(|_| anyhow::anyhow!("the server panicked"))?;
        answered.and(asked)
    })
}

fn prepared(stream: TcpStream) -> io::Result<TcpStream> {
    stream.set_nodelay(true)?;
    stream.set_nonblocking(true)?;
    Ok(stream)
}

/// The streams that can be read, or none after a while.
fn readable(streams: &[TcpStream]) -> Result<Vec<usize>> {
    let mut polled: Vec<_> = streams
        .iter()
        .map(|stream| PollFd::new(stream.as_fd(), PollFlags::POLLIN))
        .collect();
    poll(&mut polled, PollTimeout::from(PATIENCE))?;
    let ready = |at: &usize| polled[*at].any() == Some(true);
    Ok((0..streams.len()).filter(ready).collect())
}

/// Reads a message; messages are written at once, and so they come.
fn read(mut stream: &TcpStream) -> Result<()> {
    let mut message = [0; MESSAGE];
    let length = stream.read(&mut message)?;
    ensure!(length == MESSAGE, "{length} bytes of a message of {MESSAGE}");
    Ok(())
}

fn write(mut stream: &TcpStream) -> Result<()> {
    let length = stream.write(&[0x55; MESSAGE])?;
    ensure!(
        length == MESSAGE,
        "{length} bytes of a message of {MESSAGE} were sent"
    );
    Ok(())
}

fn answer(streams: &[TcpStream], over: &AtomicBool) -> Result<()> {
    while !over.load(Ordering::Relaxed) {
        for at in readable(streams)? {
            read(&streams[at])?;
            write(&streams[at])?;
        }
    }
    Ok(())
}

fn ask(streams: &[TcpStream], window: Duration) -> Result<Rate> {
    let mut asked = Vec::new();
    for stream in streams {
        asked.push(clock::now());
        write(stream)?;
    }
    let counts_from = clock::now() + window.as_nanos() as u64 / 5;
    let end = counts_from + window.as_nanos() as u64;
    let mut times = Vec::new();
    loop {
        for at in readable(streams)? {
            read(&streams[at])?;
            let now = clock::now();
            if now >= counts_from {
                times.push(now - asked[at]);
            }
            asked[at] = now;
            // What is still under way when the time is over is answered, and read by nobody.
            write(&streams[at])?;
        }
        let now = clock::now();
        if now >= end {
            ensure!(!times.is_empty(), "no answer in {window:?}");
            times.sort_unstable();
            return Ok(Rate {
                per_second: times.len() as f64 * 1e9 / (now - counts_from) as f64,
                median_us: times[times.len() / 2] as f64 / 1e3,
            });
        }
    }
}
