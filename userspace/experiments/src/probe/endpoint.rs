//! A UDP socket that measures: it sends trains and requests, and notes and answers what comes.
//!
//! A thread reads the socket. It notes each datagram with the kernel's stamp of its arrival, and answers requests at
//! once. Datagrams of a train carry its number, so that a late one disturbs no other train.

use std::{
    collections::BTreeMap,
    io,
    net::{SocketAddr, UdpSocket},
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use serde::{Deserialize, Serialize};

mod raw;
#[cfg(test)]
mod tests;

use super::{
    clock::{self, Priority},
    message::{HEADER, Kind, Message},
};
use crate::machine;

/// How often the receiving thread looks whether it is to end.
const LOOK: Duration = Duration::from_millis(50);
/// How long before the first datagram of a train: time to sleep until it is due.
const LEAD: u64 = 1_000_000;
/// Messages handed to the kernel by one call, at most.
pub(crate) const PER_CALL: u32 = 64;
/// Trains remembered whose receipts nobody took; those of which nothing has come for longest are forgotten first.
const MAX_TRAINS: usize = 256;

/// Datagrams to be sent, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Train {
    /// How many messages.
    pub messages: u32,
    /// Datagrams of each message, handed to the kernel together.
    pub segments: u32,
    /// UDP payload of each datagram, bytes; at least [`HEADER`].
    pub payload: usize,
    /// How many messages leave together, handed to the kernel by one call if they are at most [`PER_CALL`].
    pub burst: u32,
    /// From the start of a burst to the start of the next.
    pub interval_ns: u64,
}

impl Train {
    /// How many datagrams it consists of.
    #[must_use]
    pub fn datagrams(&self) -> usize {
        self.messages as usize * self.segments as usize
    }

    /// How long it takes to hand it to the kernel, if that does not take longer than the intervals.
    #[must_use]
    pub fn duration(&self) -> Duration {
        let bursts = u64::from(self.messages.div_ceil(self.burst));
        Duration::from_nanos(self.interval_ns.saturating_mul(bursts))
    }
}

/// When a message was sent, by the sender's clock. The time of a call that sends several is divided among them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sent {
    /// Before the system call, ns; within it, of a message that is not a burst's first.
    pub at: u64,
    /// After it, ns; within it, of one that is not a burst's last.
    pub returned: u64,
}

/// When a datagram came, by the receiver's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Receipt {
    /// Its number in the train.
    pub number: u32,
    /// The kernel's stamp, ns.
    pub arrival: u64,
    /// When the program had it, ns.
    pub read: u64,
    /// Of a request: when the answer had been sent. Of an answer: the request's turnaround at the other host. ns.
    pub turnaround: u64,
    /// Of an answer: what the other host noted of the request.
    pub there: Option<There>,
}

/// What the host that answers a request notes of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct There {
    /// When the request came, by that host's clock, ns.
    pub arrival: u64,
    /// How many datagrams of its train had come before it, 255 if more.
    pub before: u8,
}

/// A request (or several, the last of which is answered) and its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RoundTrip {
    /// The first message.
    pub first: Sent,
    /// The one that was answered.
    pub last: Sent,
    /// The answer.
    pub answer: Receipt,
}

struct Shared {
    stop: AtomicBool,
    attentive: AtomicBool,
    rest_ns: AtomicU64,
    trains: AtomicU32,
    receipts: Mutex<BTreeMap<u32, Vec<Receipt>>>,
    arrived: Condvar,
}

impl Shared {
    fn receipts(&self) -> MutexGuard<'_, BTreeMap<u32, Vec<Receipt>>> {
        // Receipts are whole after every statement.
        self.receipts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A socket with its receiving thread.
pub struct Endpoint {
    socket: UdpSocket,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Endpoint {
    /// Begins to receive.
    pub fn start(socket: UdpSocket) -> io::Result<Self> {
        raw::prepare(&socket)?;
        socket.set_read_timeout(Some(LOOK))?;
        let shared = Arc::new(Shared {
            stop: AtomicBool::new(false),
            attentive: AtomicBool::new(false),
            rest_ns: AtomicU64::new(0),
            // Trains of an earlier process at the same port must not be taken for ours.
            trains: AtomicU32::new((clock::now() >> 10) as u32),
            receipts: Mutex::default(),
            arrived: Condvar::new(),
        });
        let (reader, theirs) = (socket.try_clone()?, Arc::clone(&shared));
        let thread = thread::Builder::new().name("probe".into()).spawn(move || {
            prefer();
            receive(&reader, &theirs);
        })?;
        Ok(Self {
            socket,
            shared,
            thread: Some(thread),
        })
    }

    /// Where it is.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    /// Whether the receiving thread polls, as LogP's receiver does, instead of being woken up: that takes a processor,
    /// so it is for machines with several, and for short.
    pub fn set_attentive(&self, attentive: bool) {
        self.shared.attentive.store(attentive, Ordering::Relaxed);
    }

    /// How long the receiving thread rests before it looks what else has come. While it rests, datagrams wait in the
    /// socket with the kernel's stamps, and a sender on the same processor is not interrupted for each.
    pub fn set_rest(&self, rest: Duration) {
        self.shared
            .rest_ns
            .store(rest.as_nanos() as u64, Ordering::Relaxed);
        if let Some(thread) = &self.thread {
            thread.thread().unpark();
        }
    }

    /// A number for a train from here.
    #[must_use]
    pub fn number(&self) -> u32 {
        self.shared.trains.fetch_add(1, Ordering::Relaxed)
    }

    /// Sends a train; returns when the last message has been handed to the kernel.
    pub fn send(&self, to: SocketAddr, number: u32, train: &Train) -> io::Result<Vec<Sent>> {
        let payload = train.payload.max(HEADER);
        let message = payload * train.segments as usize;
        let together = train.burst.clamp(1, PER_CALL);
        let mut buffer = vec![0; message * together.min(train.messages) as usize];
        let mut sent = Vec::with_capacity(train.messages as usize);
        let mut due = clock::now() + LEAD;
        let mut next = 0;
        while next < train.messages {
            let place = next % train.burst.max(1);
            let count = together
                .min(train.burst.max(1) - place)
                .min(train.messages - next);
            let data = &mut buffer[..message * count as usize];
            for (datagram, segment) in data.chunks_exact_mut(payload).zip(0..) {
                header(Kind::Train, number, next * train.segments + segment, 0).write(datagram);
            }
            if place == 0 {
                clock::sleep_until(due);
                due += train.interval_ns;
            }
            let call = raw::send(&self.socket, &to, data, (message, payload))?;
            sent.extend(shares(call, count));
            next += count;
        }
        Ok(sent)
    }

    /// What came of a train, in the order of arrival; waits for `expected` datagrams until a time has passed.
    #[must_use]
    pub fn take(&self, number: u32, expected: usize, patience: Duration) -> Vec<Receipt> {
        let waiting = |receipts: &mut BTreeMap<u32, Vec<Receipt>>| {
            receipts.get(&number).is_none_or(|train| train.len() < expected)
        };
        let (mut receipts, _) = self
            .shared
            .arrived
            .wait_timeout_while(self.shared.receipts(), patience, waiting)
            .unwrap_or_else(PoisonError::into_inner);
        receipts.remove(&number).unwrap_or_default()
    }

    /// PRTT(n, d, s): n messages of s bytes, a computation of d after each but the last, whose answer (of s bytes, too)
    /// ends it. `None` if no answer came in time.
    pub fn round_trip(
        &self,
        to: SocketAddr,
        (messages, delay_ns, payload): (u32, u64, usize),
        patience: Duration,
    ) -> io::Result<Option<RoundTrip>> {
        let mut buffer = vec![0; payload.max(HEADER)];
        let train = self.number();
        let answer = buffer.len() as u16;
        let mut sent = Vec::with_capacity(messages as usize);
        for number in 0..messages {
            let last = number + 1 == messages;
            let kind = if last { Kind::Request } else { Kind::Train };
            header(kind, train, number, answer).write(&mut buffer);
            let times = raw::send(&self.socket, &to, &buffer, (buffer.len(), buffer.len()))?;
            sent.push(times);
            if !last && delay_ns > 0 {
                clock::spin_until(times.returned + delay_ns);
            }
        }
        let answers = self.take(train, 1, patience);
        Ok(match (sent.first(), sent.last(), answers.first()) {
            (Some(&first), Some(&last), Some(&answer)) => Some(RoundTrip { first, last, answer }),
            _ => None,
        })
    }

    /// Sends `count` requests of `payload` bytes by one call, numbered from `first` on; each is answered by the smallest
    /// datagram.
    pub fn ask(
        &self,
        to: SocketAddr,
        (train, first): (u32, u32),
        count: u32,
        payload: usize,
    ) -> io::Result<Vec<Sent>> {
        let payload = payload.max(HEADER);
        let mut buffer = vec![0; payload * count as usize];
        for (request, number) in buffer.chunks_exact_mut(payload).zip(first..) {
            header(Kind::Request, train, number, HEADER as u16).write(request);
        }
        let call = raw::send(&self.socket, &to, &buffer, (payload, payload))?;
        Ok(shares(call, count).collect())
    }

    /// The LogP signature's experiment: `messages` requests with a computation of `delay_ns` after each, at most
    /// `window` of them unanswered at any time. When it began and when the last computation ended, ns; `None` if an
    /// answer did not come in time.
    pub fn issue(
        &self,
        to: SocketAddr,
        (messages, delay_ns, payload): (u32, u64, usize),
        window: u32,
        work: clock::Work,
        patience: Duration,
    ) -> io::Result<Option<(u64, u64)>> {
        let mut buffer = vec![0; payload.max(HEADER)];
        let train = self.number();
        let answer = buffer.len() as u16;
        let start = clock::now();
        let mut end = start;
        for number in 0..messages {
            if number >= window && !self.answered(train, (number + 1 - window) as usize, patience) {
                let _ = self.take(train, 0, Duration::ZERO);
                return Ok(None);
            }
            header(Kind::Request, train, number, answer).write(&mut buffer);
            end = raw::send(&self.socket, &to, &buffer, (buffer.len(), buffer.len()))?.returned;
            if delay_ns > 0 {
                work.compute(delay_ns);
                end = clock::now();
            }
        }
        let answers = self.take(train, messages as usize, patience);
        Ok((answers.len() == messages as usize).then_some((start, end)))
    }

    /// What has come of a train so far.
    #[must_use]
    pub fn look(&self, train: u32) -> Vec<Receipt> {
        self.shared.receipts().get(&train).cloned().unwrap_or_default()
    }

    fn answered(&self, train: u32, count: usize, patience: Duration) -> bool {
        let have = |receipts: &BTreeMap<u32, Vec<Receipt>>| {
            receipts.get(&train).is_some_and(|got| got.len() >= count)
        };
        let (receipts, _) = self
            .shared
            .arrived
            .wait_timeout_while(self.shared.receipts(), patience, |receipts| !have(receipts))
            .unwrap_or_else(PoisonError::into_inner);
        have(&receipts)
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // A receiver that panicked has said so.
            let _ = thread.join();
        }
    }
}

fn header(kind: Kind, train: u32, number: u32, answer: u16) -> Message {
    Message {
        kind,
        before: 0,
        answer,
        train,
        number,
        arrival: 0,
        turnaround: 0,
    }
}

/// What each of the messages has of a call that sent them all.
fn shares(call: Sent, count: u32) -> impl Iterator<Item = Sent> {
    let at = move |place: u32| call.at + (call.returned - call.at) * u64::from(place) / u64::from(count);
    (0..count).map(move |place| Sent {
        at: at(place),
        returned: at(place + 1),
    })
}

/// Prefers the calling thread to other programs'; without the right to that it measures the same with more noise.
fn prefer() {
    if !clock::set_priority(Priority::RealTime) {
        clock::set_priority(Priority::Ordinary);
    }
}

/// The receiving thread.
fn receive(socket: &UdpSocket, shared: &Shared) {
    let mut receiver = raw::Receiver::new();
    let mut answer = vec![0; 64 << 10];
    let shares_processor = machine::processors() == 1;
    let mut attentive = false;
    while !shared.stop.load(Ordering::Relaxed) {
        if shared.attentive.load(Ordering::Relaxed) != attentive {
            attentive = !attentive;
            if shares_processor {
                // Who polls takes a sender's only processor, but for a sender that may take it back.
                if attentive {
                    clock::set_priority(Priority::Idle);
                } else {
                    prefer();
                }
            }
        }
        // A time-out, or an ICMP error that an answer brought about: there is nothing to note.
        let Ok(datagrams) = receiver.receive(socket, !attentive) else {
            continue;
        };
        note(shared, socket, &receiver, &datagrams, &mut answer);
        let rest = shared.rest_ns.load(Ordering::Relaxed);
        if rest > 0 {
            // Shorter if the rest is changed meanwhile.
            thread::park_timeout(Duration::from_nanos(rest));
            while let Ok(datagrams) = receiver.receive(socket, false) {
                note(shared, socket, &receiver, &datagrams, &mut answer);
            }
        }
    }
}

/// Answers the requests among what came, and notes all of it.
fn note(
    shared: &Shared,
    socket: &UdpSocket,
    receiver: &raw::Receiver,
    datagrams: &[raw::Datagram],
    answer: &mut [u8],
) {
    let mut noted: Vec<(u32, Receipt)> = Vec::with_capacity(datagrams.len());
    for datagram in datagrams {
        let Some(message) = Message::read(receiver.payload(datagram)) else {
            continue;
        };
        let turnaround = if message.kind == Kind::Request {
            let earlier = shared.receipts().get(&message.train).map_or(0, Vec::len);
            let now = noted.iter().filter(|(train, _)| *train == message.train).count();
            let before = u8::try_from(earlier + now).unwrap_or(u8::MAX);
            reply(socket, datagram, &Message { before, ..message }, answer)
        } else {
            message.turnaround
        };
        let receipt = Receipt {
            number: message.number,
            arrival: datagram.arrival,
            read: datagram.read,
            turnaround,
            there: (message.kind == Kind::Answer).then_some(There {
                arrival: message.arrival,
                before: message.before,
            }),
        };
        noted.push((message.train, receipt));
    }
    let mut receipts = shared.receipts();
    while receipts.len() > MAX_TRAINS
        && let Some(silent) = receipts
            .iter()
            .min_by_key(|(_, train)| train.last().map(|last| last.read))
            .map(|(number, _)| *number)
    {
        receipts.remove(&silent);
    }
    for (train, receipt) in noted {
        receipts.entry(train).or_default().push(receipt);
    }
    drop(receipts);
    shared.arrived.notify_all();
}

/// Answers a request; how long that took since it arrived, ns.
fn reply(socket: &UdpSocket, request: &raw::Datagram, message: &Message, buffer: &mut [u8]) -> u64 {
    let length = usize::from(message.answer).clamp(HEADER, buffer.len());
    let answer = Message {
        kind: Kind::Answer,
        arrival: request.arrival,
        turnaround: clock::now().saturating_sub(request.arrival),
        ..*message
    };
    answer.write(buffer);
    // An answer that cannot be sent is one that does not come.
    let _ = raw::answer(socket, request, &buffer[..length]);
    clock::now().saturating_sub(request.arrival)
}
