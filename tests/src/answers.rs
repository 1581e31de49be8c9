//! Requests and their answers over TCP, as redis and redis-benchmark exchange them.
//!
//! Model: a server of one thread answers each request at once. A client of one thread has `clients` connections, and on
//! each of them sends the next request when the answer to the last one is there.

use std::{
    io::{self, Read as _, Write as _},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags};

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

/// Streams whose readiness is asked for in one call, as servers of many clients do it.
struct Streams<'a> {
    streams: &'a [TcpStream],
    epoll: Epoll,
    events: Vec<EpollEvent>,
}

impl<'a> Streams<'a> {
    fn new(streams: &'a [TcpStream]) -> Result<Self> {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        for (at, stream) in streams.iter().enumerate() {
            epoll.add(stream, EpollEvent::new(EpollFlags::EPOLLIN, at as u64))?;
        }
        Ok(Self {
            streams,
            epoll,
            events: vec![EpollEvent::empty(); streams.len()],
        })
    }

    /// Those that can be read, each with its place, or none after a while.
    fn readable(&mut self) -> Result<impl Iterator<Item = (usize, &'a TcpStream)>> {
        let (streams, count) = (self.streams, self.epoll.wait(&mut self.events, PATIENCE)?);
        let ready = self.events[..count].iter().map(|event| event.data() as usize);
        Ok(ready.map(|at| (at, &streams[at])))
    }
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
    let mut streams = Streams::new(streams)?;
    while !over.load(Ordering::Relaxed) {
        for (_, stream) in streams.readable()? {
            read(stream)?;
            write(stream)?;
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
    let mut streams = Streams::new(streams)?;
    loop {
        for (at, stream) in streams.readable()? {
            read(stream)?;
            let now = clock::now();
            if now >= counts_from {
                times.push(now - asked[at]);
            }
            asked[at] = now;
            // What is still under way when the time is over is answered, and read by nobody.
            write(stream)?;
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
