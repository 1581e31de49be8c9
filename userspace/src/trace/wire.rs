//! Records on their way from `perturb trace --to`, on one machine, to `perturb trace --merge`, on perhaps another.
//!
//! ```text
//! greeting "perturb trace 1\n", then frames: kind (1 byte), length of the rest (4 bytes), the rest
//!   1 process   JSON: who writes the next ring; rings are numbered from 0 in this order
//!   2 records   ring (4 bytes), records of 56 bytes
//!   3 end       events lost (8 bytes)
//! ```
//!
//! Numbers are little-endian. What is sent are the records, not the lines made of them: only who has the records of
//! both ends of a connection can tell which bytes are which message.
//!
//! What it lacks: a secret. Whoever reaches the collector's port may send it a trace.

use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use perturb_trace::record::Record;

use super::serve::Address;
use super::spool::Writer;

const GREETING: &[u8; 16] = b"perturb trace 1\n";
const PROCESS: u8 = 1;
const RECORDS: u8 = 2;
const END: u8 = 3;
/// Bytes of a record.
const RECORD: usize = 56;
/// Longest rest of a frame: a ring's worth of records.
const LONGEST: usize = 4 + RECORD * perturb_trace::record::CAPACITY as usize;
/// How long a collector that does not listen yet is waited for.
const PATIENCE: Duration = Duration::from_secs(10);
/// Between two attempts.
const PAUSE: Duration = Duration::from_millis(50);

/// What a sender tells.
#[derive(Debug)]
pub(super) enum Frame {
    /// A process begins to write a ring.
    Process(Writer),
    /// Records of a ring.
    Records(u32, Vec<Record>),
    /// Nothing will follow.
    End {
        /// Events lost because the sender was too slow.
        lost: u64,
    },
}

/// Why a stream is no sender's.
#[derive(Debug, thiserror::Error)]
pub(super) enum FrameError {
    /// It broke, or ended before its end.
    #[error("the connection broke: {0}")]
    Io(#[from] io::Error),
    /// It does not begin as a sender does.
    #[error("it is no `perturb trace --to` of this version")]
    Greeting,
    /// Something that no sender sends.
    #[error("frame {kind} of {length} bytes is not understood")]
    Frame {
        /// Its kind.
        kind: u8,
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
            match connect(address) {
                Err(_) if start.elapsed() < PATIENCE => std::thread::sleep(PAUSE),
                connected => break connected?,
            }
        };
        let mut sender = Self { stream, broken: None };
        sender.write(GREETING);
        Ok(sender)
    }

    /// A process begins to write a ring.
    pub(super) fn process(&mut self, writer: &Writer) {
        match serde_json::to_vec(writer) {
            Ok(text) => self.frame(PROCESS, &text),
            Err(error) => self.broken = Some(error.into()),
        }
    }

    /// Records of a ring, at most a ring's worth.
    pub(super) fn records(&mut self, ring: u32, records: &[Record]) {
        let mut bytes = Vec::with_capacity(4 + RECORD * records.len());
        bytes.extend(ring.to_le_bytes());
        for record in records {
            bytes.extend(record.kind.to_le_bytes());
            bytes.extend(record.small.to_le_bytes());
            bytes.extend(record.thread.to_le_bytes());
            for word in [record.cpu_ns, record.time_ns].iter().chain(&record.words) {
                bytes.extend(word.to_le_bytes());
            }
        }
        self.frame(RECORDS, &bytes);
    }

    /// Nothing will follow; fails if anything was discarded.
    pub(super) fn end(mut self, lost: u64) -> io::Result<()> {
        self.frame(END, &lost.to_le_bytes());
        self.broken.map_or(Ok(()), Err)
    }

    fn frame(&mut self, kind: u8, rest: &[u8]) {
        let mut frame = Vec::with_capacity(5 + rest.len());
        frame.push(kind);
        frame.extend((rest.len() as u32).to_le_bytes());
        frame.extend(rest);
        self.write(&frame);
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

fn connect(address: &Address) -> io::Result<Box<dyn Write>> {
    Ok(match address {
        Address::Unix(path) => Box::new(UnixStream::connect(path)?),
        Address::Tcp(address) => {
            let stream = TcpStream::connect(address.as_str())?;
            stream.set_nodelay(true)?;
            Box::new(stream)
        }
    })
}

/// Where senders connect.
pub(super) enum Listener {
    Unix(std::os::unix::net::UnixListener),
    Tcp(TcpListener),
}

impl Listener {
    pub(super) fn bind(address: &Address) -> io::Result<Self> {
        Ok(match address {
            Address::Unix(path) => Self::Unix(super::serve::listen(path)?),
            Address::Tcp(address) => Self::Tcp(TcpListener::bind(address.as_str())?),
        })
    }

    /// The next connection.
    pub(super) fn accept(&self) -> io::Result<Box<dyn Read + Send>> {
        Ok(match self {
            Self::Unix(listener) => Box::new(listener.accept()?.0),
            Self::Tcp(listener) => Box::new(listener.accept()?.0),
        })
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
        let mut head = [0; 5];
        stream.read_exact(&mut head)?;
        let [kind, length @ ..] = head;
        let length = u32::from_le_bytes(length) as usize;
        let error = FrameError::Frame { kind, length };
        if length > LONGEST {
            return Err(error);
        }
        rest.resize(length, 0);
        stream.read_exact(&mut rest)?;
        let frame = frame(kind, &rest).ok_or(error)?;
        let is_end = matches!(frame, Frame::End { .. });
        each(frame);
        if is_end {
            return Ok(());
        }
    }
}

fn frame(kind: u8, rest: &[u8]) -> Option<Frame> {
    match kind {
        PROCESS => serde_json::from_slice(rest).ok().map(Frame::Process),
        RECORDS => {
            let (ring, records) = rest.split_first_chunk()?;
            let (records, []) = records.as_chunks::<RECORD>() else {
                return None;
            };
            let records = records.iter().filter_map(record).collect();
            Some(Frame::Records(u32::from_le_bytes(*ring), records))
        }
        END => Some(Frame::End {
            lost: u64::from_le_bytes(rest.try_into().ok()?),
        }),
        _ => None,
    }
}

fn record(bytes: &[u8; RECORD]) -> Option<Record> {
    let (head, words) = bytes.split_first_chunk::<8>()?;
    let mut words = words
        .as_chunks::<8>()
        .0
        .iter()
        .map(|word| u64::from_le_bytes(*word));
    let [a, b, c, d, thread @ ..] = *head;
    Some(Record {
        kind: u16::from_le_bytes([a, b]),
        small: u16::from_le_bytes([c, d]),
        thread: u32::from_le_bytes(thread),
        cpu_ns: words.next()?,
        time_ns: words.next()?,
        words: [words.next()?, words.next()?, words.next()?, words.next()?],
    })
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

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

    fn sent() -> (Vec<u8>, Writer, Record) {
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
        let record = Record {
            kind: 0x0102,
            small: 3,
            thread: 0x0405_0607,
            cpu_ns: 8,
            time_ns: u64::MAX - 9,
            words: [10, 11, 12, 13],
        };
        sender.write(GREETING);
        sender.process(&writer);
        sender.records(0, &[record, Record::default()]);
        sender.end(14).unwrap();
        let bytes = line.0.lock().unwrap().clone();
        (bytes, writer, record)
    }

    #[test]
    fn what_is_sent_is_received() {
        let (bytes, writer, record) = sent();
        let mut frames = Vec::new();
        receive(&bytes[..], |frame| frames.push(frame)).unwrap();
        let [
            Frame::Process(got),
            Frame::Records(0, records),
            Frame::End { lost: 14 },
        ] = &frames[..]
        else {
            panic!("{frames:?}")
        };
        assert_eq!((got, &records[..]), (&writer, &[record, Record::default()][..]));
    }

    #[test]
    fn what_is_cut_or_foreign_is_an_error() {
        let (bytes, ..) = sent();
        for length in 0..bytes.len() {
            let cut = receive(&bytes[..length], |_| ());
            assert!(matches!(cut, Err(FrameError::Io(_))), "{length}: {cut:?}");
        }
        let foreign = receive(&b"GET / HTTP/1.1\r\n\r\n"[..], |_| ());
        assert!(matches!(foreign, Err(FrameError::Greeting)));
        for rest in [
            &[9, 0, 0, 0, 0][..],
            &[2, 3, 0, 0, 0, 1, 2, 3],
            &[1, 1, 0, 0, 0, b'{'],
            &[2, 255, 255, 255, 255],
        ] {
            let wrong = receive(&[GREETING, rest].concat()[..], |_| ());
            assert!(
                matches!(wrong, Err(FrameError::Frame { .. })),
                "{rest:?}: {wrong:?}"
            );
        }
    }
}
