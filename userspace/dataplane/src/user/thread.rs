//! The thread that keeps the time.
//!
//! It sleeps until shortly before the next departure (absolute times, recomputed each round), then polls: by
//! as much as sleeps on this machine usually end late ([`Oversleep`]), what it takes to have its code at hand again, and
//! the spin budget. It reads
//! packets as they come and writes those that are due; between any two packets it looks at the clock, so that
//! neither side waits for a batch. Only TAPs that have something are read (`epoll`): the cost of a round does
//! not grow with their number. It has real-time priority while it sleeps now and then ([`Turns`]).
//!
//! Who gets a packet is asleep, too, as a rule, and takes as long to wake up as this thread does at least: it tells the
//! programs the floor of that, so that they move departures ahead by it ([`perturb_common::lead`]).

use std::{
    io::{self, Write as _},
    os::fd::AsFd as _,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
        mpsc,
    },
    thread::{Builder, JoinHandle},
    time::Duration,
};

use nix::{
    poll::{PollFd, PollFlags, ppoll},
    sys::{
        epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout},
        eventfd::{EfdFlags, EventFd},
        prctl,
        time::TimeSpec,
    },
};
use perturb_clock::{Priority, now, sleep_until};
use perturb_common::{
    abi::{SLOTS, Ticket},
    lead::{Lead, WAIT},
    units::{MonoNanos, Nanos},
};

use super::{
    oversleep::Oversleep,
    queue::DepartureQueue,
    tap::Tap,
    turns::{Stalls, Turns},
};

/// virtio_net header of a TAP (`TUNSETVNETHDRSZ`'s default).
const HEADER: usize = 10;
/// A packet of at most this size lies in one buffer of its own.
const SMALL: usize = 2048;
/// The rest of a packet of at most this size is copied into a buffer of its size.
const MEDIUM: usize = 16 * 1024;
/// The rest of the largest packet: IP's 64 KiB and headers.
const LARGE: usize = 68 * 1024;
/// Packets held at most: slots must not be used twice.
const MAX_PACKETS: usize = SLOTS as usize - 4096;
/// Packets read in a row at most before others get their turn.
const BATCH: usize = 64;
/// Large buffers kept for reuse.
const SPARE_BUFFERS: usize = 1024;
/// TAPs whose readiness is asked for at once.
const READY: usize = 64;
/// What stands for `wake` among the indices of TAPs.
const WAKE: u64 = u64::MAX;
/// A thread that has slept runs slowly at first: it polls for so long more, ns,
const WARM: u64 = 30_000;
/// or for this part of the wait, if that is less.
const WARM_PART: u64 = 16;
/// Longest sleep: how soon the thread notices that it is to end.
const LONGEST_SLEEP: Duration = Duration::from_millis(500);

/// How long before a departure the thread stops sleeping and polls: processor time for accuracy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SpinBudget(pub Duration);

/// Who is told every 50 ms or so what it takes at least to wake up a thread that sleeps, ns; 0 while the pacer is busy,
/// as those are then who get its packets.
pub type TellWakeUp = Box<dyn FnMut(u64) + Send>;

/// Why the pacer could not be started, or could not serve a TAP.
#[derive(Debug, thiserror::Error)]
#[error("the user pacer: {0}")]
pub struct UserPacerError(#[from] io::Error);

/// What the pacer has done, and what it holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UserPacerStats {
    /// Packets that wait now.
    pub held_packets: u64,
    /// Memory that they take, bytes.
    pub held_bytes: u64,
    /// Packets dropped because the limit was reached, or because the TAP would not take them back.
    pub dropped: u64,
    /// Whether the thread may have real-time priority.
    pub real_time: bool,
    /// How often it gave that up because it was busy: the kernel stops busy real-time threads for 50 ms of each second.
    pub busy: u64,
    /// How often it was kept from running for more than 5 ms while a packet was due.
    pub stalls: u64,
    /// For how long in all, ns.
    pub stalled: u64,
    /// The longest of them, ns.
    pub longest_stall: u64,
}

#[derive(Debug, Default)]
struct Shared {
    held_packets: AtomicU64,
    held_bytes: AtomicU64,
    dropped: AtomicU64,
    real_time: AtomicBool,
    busy: AtomicU64,
    stalls: Stalls,
    /// Index of the first TAP that could not be read any more; 0: none.
    dead: AtomicU32,
    /// Memory that held packets may take, bytes.
    limit: AtomicU64,
}

enum Order {
    Add(Arc<Tap>),
    Remove(u32, mpsc::Sender<()>),
    End,
}

/// The pacer: a thread that serves TAPs.
pub struct UserPacer {
    orders: Mutex<mpsc::Sender<Order>>,
    wake: Arc<EventFd>,
    ready: Arc<Epoll>,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl UserPacer {
    /// Starts the thread; `limit` is the memory that held packets may take, bytes.
    pub fn start(spin: SpinBudget, limit: u64, tell: TellWakeUp) -> Result<Self, UserPacerError> {
        let (sender, receiver) = mpsc::channel();
        let wake = Arc::new(
            EventFd::from_flags(EfdFlags::EFD_NONBLOCK | EfdFlags::EFD_CLOEXEC).map_err(io::Error::from)?,
        );
        let ready = Arc::new(Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).map_err(io::Error::from)?);
        ready
            .add(wake.as_fd(), EpollEvent::new(EpollFlags::EPOLLIN, WAKE))
            .map_err(io::Error::from)?;
        let shared = Arc::new(Shared::default());
        shared.limit.store(limit, Ordering::Relaxed);
        let spin = u64::try_from(spin.0.as_nanos()).unwrap_or(u64::MAX);
        let mut worker = Worker {
            orders: receiver,
            wake: Arc::clone(&wake),
            shared: Arc::clone(&shared),
            spin,
            oversleep: Oversleep::default(),
            turns: Turns::new(0),
            real_time: false,
            ran: 0,
            wake_up: Lead::default(),
            tell,
            ready: Arc::clone(&ready),
            taps: Vec::new(),
            queue: DepartureQueue::default(),
            bytes: 0,
            scratch: vec![0; LARGE],
            small: vec![0; SMALL],
            spare: Vec::new(),
        };
        let thread = Builder::new()
            .name("perturb-pacer".into())
            .spawn(move || worker.run())?;
        Ok(Self {
            orders: Mutex::new(sender),
            wake,
            ready,
            shared,
            thread: Some(thread),
        })
    }

    /// Serves one more TAP; its index.
    pub fn add(&self, tap: Tap) -> Result<u32, UserPacerError> {
        let index = tap.index();
        let event = EpollEvent::new(EpollFlags::EPOLLIN, index.into());
        self.ready.add(tap.as_fd(), event).map_err(io::Error::from)?;
        self.order(Order::Add(Arc::new(tap)));
        Ok(index)
    }

    /// Lets go of a TAP and of what is held for it; the device is gone when this returns.
    pub fn remove(&self, index: u32) {
        let (done, wait) = mpsc::channel();
        self.order(Order::Remove(index, done));
        // An error means that the thread has ended, and the TAP with it.
        let _ = wait.recv();
    }

    /// What it has done so far.
    #[must_use]
    pub fn stats(&self) -> UserPacerStats {
        let (stalls, stalled, longest_stall) = self.shared.stalls.sums();
        UserPacerStats {
            held_packets: self.shared.held_packets.load(Ordering::Relaxed),
            held_bytes: self.shared.held_bytes.load(Ordering::Relaxed),
            dropped: self.shared.dropped.load(Ordering::Relaxed),
            real_time: self.shared.real_time.load(Ordering::Relaxed),
            busy: self.shared.busy.load(Ordering::Relaxed),
            stalls,
            stalled,
            longest_stall,
        }
    }

    /// Changes the memory that held packets may take, bytes.
    pub fn set_limit(&self, limit: u64) {
        self.shared.limit.store(limit, Ordering::Relaxed);
    }

    /// The index of a TAP that cannot be read any more, if there is one: somebody has deleted the device.
    #[must_use]
    pub fn dead(&self) -> Option<u32> {
        Some(self.shared.dead.load(Ordering::Relaxed)).filter(|&index| index != 0)
    }

    fn order(&self, order: Order) {
        // The thread ends only on `End`; a send can fail only after that.
        let _ = self
            .orders
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .send(order);
        let _ = self.wake.write(1);
    }
}

impl Drop for UserPacer {
    fn drop(&mut self) {
        self.order(Order::End);
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            let _ = writeln!(io::stderr(), "perturb: the pacer's thread has panicked");
        }
    }
}

struct Held {
    tap: Arc<Tap>,
    head: Box<[u8]>,
    tail: Tail,
}

enum Tail {
    None,
    Exact(Box<[u8]>),
    /// A reusable buffer and how much of it is used.
    Pooled(Vec<u8>, usize),
}

impl Tail {
    fn bytes(&self) -> &[u8] {
        match self {
            Self::None => &[],
            Self::Exact(bytes) => bytes,
            Self::Pooled(buffer, used) => &buffer[..*used],
        }
    }
}

impl Held {
    fn memory(&self) -> u64 {
        let tail = match &self.tail {
            Tail::None => 0,
            Tail::Exact(bytes) => bytes.len(),
            Tail::Pooled(buffer, _) => buffer.len(),
        };
        (self.head.len() + tail + size_of::<Self>()) as u64
    }
}

struct Worker {
    orders: mpsc::Receiver<Order>,
    wake: Arc<EventFd>,
    shared: Arc<Shared>,
    spin: u64,
    oversleep: Oversleep,
    turns: Turns,
    /// Whether it may have real-time priority.
    real_time: bool,
    /// When it ran last, as far as it has looked.
    ran: u64,
    /// The floor of what its wake-ups take.
    wake_up: Lead,
    tell: TellWakeUp,
    ready: Arc<Epoll>,
    taps: Vec<Arc<Tap>>,
    queue: DepartureQueue<Held>,
    bytes: u64,
    scratch: Vec<u8>,
    small: Vec<u8>,
    spare: Vec<Vec<u8>>,
}

impl Worker {
    fn run(&mut self) {
        self.real_time = ask_for_priority();
        self.shared.real_time.store(self.real_time, Ordering::Relaxed);
        self.turns = Turns::new(now());
        let mut events = [EpollEvent::empty(); READY];
        loop {
            // EINTR and the like: the next round looks again.
            let count = self
                .ready
                .wait(&mut events, EpollTimeout::ZERO)
                .unwrap_or_default();
            for event in &events[..count] {
                if event.data() != WAKE {
                    self.read_some(event.data());
                } else if !self.obey() {
                    return;
                }
            }
            self.write_due();
            self.publish();
            if count == 0 {
                self.sleep();
            }
            self.take_turns();
        }
    }

    /// Gives real-time priority up or takes it back, if it may have it, by how busy the thread is.
    fn take_turns(&mut self) {
        let now = now();
        if let Some(nap) = self.turns.nap(now).filter(|_| self.real_time) {
            sleep_until(now + nap);
            self.turns.slept(nap, now + nap);
        }
        let Some(window) = self.turns.window(now) else {
            return;
        };
        let floor = self.wake_up.at(MonoNanos(now)).0;
        (self.tell)(if window.busy { 0 } else { floor });
        if self.real_time && window.given_up {
            self.shared.busy.fetch_add(1, Ordering::Relaxed);
        }
        if let Some(real_time) = window.real_time {
            self.set_priority(real_time);
        }
    }

    fn set_priority(&self, real_time: bool) {
        if self.real_time {
            let priority = if real_time {
                Priority::RealTime
            } else {
                Priority::Favored
            };
            perturb_clock::set_priority(priority);
        }
    }

    /// Reads a batch from a TAP at most, so that the others get their turn.
    fn read_some(&mut self, index: u64) {
        let find = |tap: &&Arc<Tap>| u64::from(tap.index()) == index;
        let Some(tap) = self.taps.iter().find(find).cloned() else {
            return;
        };
        for _ in 0..BATCH {
            if !self.read_one(&tap) {
                return;
            }
            self.write_due();
        }
    }

    /// Reads a packet; whether there was one.
    fn read_one(&mut self, tap: &Arc<Tap>) -> bool {
        let length = match tap.receive(&mut self.small, &mut self.scratch) {
            Ok(Some(length)) => length,
            Ok(None) => return false,
            Err(error) => {
                if error.kind() != io::ErrorKind::Interrupted {
                    self.bury(tap);
                }
                return false;
            }
        };
        let Some(departure) = departure(&self.small[..length.min(SMALL)]) else {
            self.shared.dropped.fetch_add(1, Ordering::Relaxed);
            return true;
        };
        let rest = length.saturating_sub(SMALL);
        if self.bytes + length as u64 > self.shared.limit.load(Ordering::Relaxed)
            || self.queue.len() >= MAX_PACKETS
        {
            self.shared.dropped.fetch_add(1, Ordering::Relaxed);
            return true;
        }
        let tail = if rest == 0 {
            Tail::None
        } else if rest <= MEDIUM {
            Tail::Exact(self.scratch[..rest].into())
        } else {
            let next = self.spare.pop().unwrap_or_else(|| vec![0; LARGE]);
            Tail::Pooled(std::mem::replace(&mut self.scratch, next), rest)
        };
        let held = Held {
            tap: Arc::clone(tap),
            head: self.small[..length.min(SMALL)].into(),
            tail,
        };
        self.bytes += held.memory();
        self.queue.push(departure, held);
        true
    }

    /// Gives a TAP up that was deleted (`tun_chr_read_iter`: EBADFD): it would be ready for ever. What it holds is lost.
    fn bury(&mut self, tap: &Arc<Tap>) {
        // An error means that it is not waited for already.
        let _ = self.ready.delete(tap.as_fd());
        let held = self.queue.len();
        self.forget(tap.index());
        let lost = held - self.queue.len();
        self.shared.dropped.fetch_add(lost as u64, Ordering::Relaxed);
        let _ = self
            .shared
            .dead
            .compare_exchange(0, tap.index(), Ordering::Relaxed, Ordering::Relaxed);
        self.publish();
    }

    /// Lets go of what is held for a TAP, and of the TAP.
    fn forget(&mut self, index: u32) {
        self.queue.retain(|held| held.tap.index() != index);
        self.bytes = self.queue.iter().map(Held::memory).sum();
        self.taps.retain(|tap| tap.index() != index);
    }

    /// Writes every packet whose time has come.
    fn write_due(&mut self) {
        while let Some(next) = self.queue.next_departure() {
            let now = now();
            if self.shared.stalls.look(self.ran, now, next) && self.turns.stopped(now) {
                self.set_priority(true);
            }
            self.ran = now;
            if next > now {
                return;
            }
            let Some((_, held)) = self.queue.pop_due(next) else {
                return;
            };
            self.bytes -= held.memory();
            if held.tap.send(&held.head, held.tail.bytes()).is_err() {
                // EIO while the device is down.
                self.shared.dropped.fetch_add(1, Ordering::Relaxed);
            }
            if let Tail::Pooled(buffer, _) = held.tail
                && self.spare.len() < SPARE_BUFFERS
            {
                self.spare.push(buffer);
            }
        }
    }

    fn publish(&self) {
        self.shared
            .held_packets
            .store(self.queue.len() as u64, Ordering::Relaxed);
        self.shared.held_bytes.store(self.bytes, Ordering::Relaxed);
    }

    /// Sleeps until there is something to do, or soon will be.
    fn sleep(&mut self) {
        let begin = now();
        let longest = LONGEST_SLEEP.as_nanos() as u64;
        let left = match self.queue.next_departure() {
            Some(next) => next.saturating_sub(begin).min(longest),
            None => longest,
        };
        let warm = WARM.min(left / WARM_PART);
        let sleep = left.saturating_sub(self.spin + warm + self.oversleep.usual(left));
        if sleep == 0 {
            return;
        }
        let mut ready = [PollFd::new(self.ready.0.as_fd(), PollFlags::POLLIN)];
        let time = TimeSpec::from_duration(Duration::from_nanos(sleep));
        // EINTR and the like: the next round looks again.
        let ended = ppoll(&mut ready, Some(time), None);
        let end = now();
        self.turns.slept(end.saturating_sub(begin), end);
        if ended == Ok(0) {
            let late = end.saturating_sub(begin + sleep);
            self.oversleep.learn(left, late);
            if sleep > WAIT.0 {
                self.wake_up = self.wake_up.follow(Nanos(late), MonoNanos(end));
            }
        }
    }

    /// Does what the other threads ask; `false` if it is to end.
    fn obey(&mut self) -> bool {
        let _ = self.wake.read();
        while let Ok(order) = self.orders.try_recv() {
            match order {
                Order::Add(tap) => self.taps.push(tap),
                Order::Remove(index, done) => {
                    self.forget(index);
                    self.publish();
                    drop(done);
                }
                Order::End => return false,
            }
        }
        true
    }
}

/// The departure time in a packet as it comes out of a TAP; `None` if it has none.
fn departure(packet: &[u8]) -> Option<u64> {
    let ticket = packet.get(HEADER..HEADER + 12)?;
    let (departure, token) = ticket.split_at_checked(8)?;
    let ticket = Ticket {
        departure: u64::from_ne_bytes(departure.try_into().ok()?),
        token: u32::from_ne_bytes(token.try_into().ok()?),
    };
    ticket.open().map(|_| ticket.departure)
}

/// Real-time priority if this process may have it, and timers without slack.
fn ask_for_priority() -> bool {
    let _ = prctl::set_timerslack(1);
    perturb_clock::set_priority(Priority::RealTime)
}
