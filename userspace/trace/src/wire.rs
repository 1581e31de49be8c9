//! Records on their way from `perturb trace --to`, on one machine, to `perturb trace --merge`, on perhaps another.
//!
//! ```text
//! greeting "perturb trace 3\n", then frames: length of the rest (4 bytes, little-endian), a `Frame` (postcard)
//! ```
//!
//! What is sent are the records, not the lines made of them: only who has the records of
//! both ends of a connection can tell which bytes are which message.
//!
//! What it lacks: a secret. Whoever reaches the collector's port may send it a trace.

use std::io::{self, Read, Write};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::address::Address;
use crate::record::{CAPACITY, Record};
use crate::spool::Writer;

const GREETING: &[u8; 16] = b"perturb trace 3\n";
/// Longest frame: a ring's worth of records, none of which is longer than 100 bytes.
const LONGEST: usize = 100 * (CAPACITY as usize + 1);
/// How long a collector that does not listen yet is waited for.
const PATIENCE: Duration = Duration::from_secs(10);
/// Between two attempts.
const PAUSE: Duration = Duration::from_millis(50);

/// What a sender tells.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Frame {
    /// A process begins to write a ring.
    Process(Writer),
    /// Records of a ring, at most a ring's worth. Rings are numbered from 0 in the order of their processes.
    Records(u32, Vec<Record>),
    /// Nothing will follow.
    End {
        /// Events lost because the sender was too slow.
        lost: u64,
    },
}

/// Why a stream is no sender's.
#[derive(Debug, thiserror::Error)]
pub enum FrameError {
    /// It broke, or ended before its end.
    #[error("the connection broke: {0}")]
    Io(#[from] io::Error),
    /// It does not begin as a sender does.
    #[error("it is no `perturb trace --to` of this version")]
    Greeting,
    /// Something that no sender sends.
    #[error("a frame of {length} bytes is not understood")]
    Frame {
        /// Its length.
        length: usize,
    },
}

/// The sending side. A connection that breaks does not disturb the traced program: what follows is discarded, and
/// [`Sender::end`] says so.
pub(super) struct Sender {
    stream: Box<dyn Write>,
    broken: Option<io::Error>,
}

impl Sender {
    /// Connects.
    pub(super) fn connect(address: &Address) -> io::Result<Self> {
        let start = Instant::now();
        let stream = loop {
            match address.connect() {
                Err(_) if start.elapsed() < PATIENCE => std::thread::sleep(PAUSE),
                connected => break connected?,
            }
        };
        let mut sender = Self {
            stream: Box::new(stream),
            broken: None,
        };
        sender.write(GREETING);
        Ok(sender)
    }

    /// Sends a frame.
    pub(super) fn send(&mut self, frame: &Frame) {
        match postcard::to_extend(frame, vec![0; 4]) {
            Ok(mut bytes) => {
                let length = bytes.len() as u32 - 4;
                bytes[..4].copy_from_slice(&length.to_le_bytes());
                self.write(&bytes);
            }
            Err(error) => self.broken = Some(io::Error::other(error)),
        }
    }

    /// Nothing will follow; fails if anything was discarded.
    pub(super) fn end(mut self, lost: u64) -> io::Result<()> {
        self.send(&Frame::End { lost });
        self.broken.map_or(Ok(()), Err)
    }

    fn write(&mut self, bytes: &[u8]) {
        if self.broken.is_none() {
            self.broken = self
                .stream
                .write_all(bytes)
                .and_then(|()| self.stream.flush())
                .err();
        }
    }
}

/// Reads what a sender sends and gives each frame away, up to its end.
///
/// # Errors
/// When the stream breaks or is no sender's.
pub(super) fn receive(mut stream: impl Read, mut each: impl FnMut(Frame)) -> Result<(), FrameError> {
    let mut greeting = [0; GREETING.len()];
    stream.read_exact(&mut greeting)?;
    if greeting != *GREETING {
        return Err(FrameError::Greeting);
    }
    let mut rest = Vec::new();
    loop {
        let mut length = [0; 4];
        stream.read_exact(&mut length)?;
        let length = u32::from_le_bytes(length) as usize;
        if length > LONGEST {
            return Err(FrameError::Frame { length });
        }
        rest.resize(length, 0);
        stream.read_exact(&mut rest)?;
        let frame = postcard::from_bytes(&rest).map_err(|_| FrameError::Frame { length })?;
        let is_end = matches!(frame, Frame::End { .. });
        each(frame);
        if is_end {
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;
    use crate::record::Event;

    /// What a sender has written.
    #[derive(Clone, Default)]
    struct Line(Arc<Mutex<Vec<u8>>>);

    impl Write for Line {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn sent() -> (Vec<u8>, [Frame; 3]) {
        let line = Line::default();
        let mut sender = Sender {
            stream: Box::new(line.clone()),
            broken: None,
        };
        let writer = Writer {
            machine: 0,
            pid: 7,
            pid_namespace: 8,
            net_namespace: u64::MAX,
            cost_ns: 9,
            name: "a \"b\"".into(),
            host: "h1".into(),
        };
        let record = |event| Record {
            thread: u32::MAX,
            cpu_ns: u64::MAX,
            time_ns: u64::MAX - 9,
            event,
        };
        // The longest there is.
        let remote = Event::Remote {
            port: u16::MAX,
            descriptor: i32::MIN,
            address: [u64::MAX; 2],
            cookie: u64::MAX,
        };
        let mut records = vec![record(remote); CAPACITY as usize];
        records[0] = record(Event::Exit);
        sender.write(GREETING);
        let frames = [
            Frame::Process(writer),
            Frame::Records(0, records),
            Frame::End { lost: 14 },
        ];
        sender.send(&frames[0]);
        sender.send(&frames[1]);
        sender.end(14).unwrap();
        let bytes = line.0.lock().unwrap().clone();
        (bytes, frames)
    }

    #[test]
    fn what_is_sent_is_received() {
        let (bytes, frames) = sent();
        let mut received = Vec::new();
        receive(&bytes[..], |frame| received.push(frame)).unwrap();
        assert_eq!(received, frames);
    }

    #[test]
    fn what_is_cut_or_foreign_is_an_error() {
        let (bytes, ..) = sent();
        for length in (0..200).chain(bytes.len() - 20..bytes.len()) {
            let cut = receive(&bytes[..length], |_| ());
            assert!(matches!(cut, Err(FrameError::Io(_))), "{length}: {cut:?}");
        }
        let foreign = receive(&b"GET / HTTP/1.1\r\n\r\n"[..], |_| ());
        assert!(matches!(foreign, Err(FrameError::Greeting)));
        for rest in [
            &[0, 0, 0, 0][..],
            &[1, 0, 0, 0, 9],
            &[3, 0, 0, 0, 1, 0, 2],
            &[255, 255, 255, 255],
        ] {
            let wrong = receive(&[GREETING, rest].concat()[..], |_| ());
            assert!(
                matches!(wrong, Err(FrameError::Frame { .. })),
                "{rest:?}: {wrong:?}"
            );
        }
    }
}
