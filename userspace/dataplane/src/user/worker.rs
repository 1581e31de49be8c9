//! One of the pacer's threads.
//!
//! What it does with a packet that it reads, and with one whose time has come, its [`Course`] says: that of the user pacer's TAPs
//! ([`super::held::Tickets`]), or the switch's ([`crate::switch`]).
//!
//! It sleeps until shortly before the next departure (absolute times, recomputed each round), then polls: by
//! as much as sleeps on this machine usually end late ([`Oversleep`]), what it takes to have its code at hand again, and
//! the spin budget. It reads packets as they come and writes those that are due; between any two packets it looks at the
//! clock, so that neither side waits for a batch. Only queues that have something are read (`epoll`). It has real-time priority while it sleeps now and then ([`Turns`]).
//!
//! Who gets a packet is asleep, too, as a rule, and takes as long to wake up as this thread does at least: it tells the
//! programs the floor of that, so that they move departures ahead by it ([`perturb_common::lead`]).

use std::{
    io,
    os::fd::OwnedFd,
    sync::{Arc, atomic::Ordering, mpsc},
    time::Duration,
};

use nix::{
    sched::sched_getcpu,
    sys::{eventfd::EventFd, prctl},
};
use perturb_clock::{Priority, now, sleep_until};
use perturb_common::lead::WAIT;
use rustix::event::{
    Timespec,
    epoll::{self, Event, EventData, EventFlags},
};

use super::{
    figures::{Figures, Own},
    oversleep::Oversleep,
    queue::DepartureQueue,
    tap::Queue,
    turns::Turns,
};

/// Packets read in a row at most before others get their turn.
const BATCH: usize = 64;
/// Queues whose readiness is asked for at once.
const READY: usize = 64;
/// What stands for `wake` among the indices of TAPs.
pub(super) const WAKE: u64 = u64::MAX;
/// A thread that has slept runs slowly at first: it polls for so long more, ns,
const WARM: u64 = 30_000;
/// or for this part of the wait, if that is less.
const WARM_PART: u64 = 16;
/// Longest sleep: how soon the thread notices that it is to end.
const LONGEST_SLEEP: Duration = Duration::from_millis(500);

/// The place of an event.
const NOTHING: Event = Event {
    flags: EventFlags::empty(),
    data: EventData::new_u64(WAKE),
};

/// What others ask of a thread.
pub(super) enum Order {
    /// Serve one more queue.
    Add(Arc<Queue>),
    /// Let go of a TAP's queue and of what is held for it, then of the sender.
    Remove(u32, mpsc::Sender<()>),
    End,
}

/// What a thread does with packets.
pub(crate) trait Course: Send {
    /// One that waits.
    type Packet: Send;

    /// What is read next came so long before, ns: the thread was asleep, and takes so long to wake up at least.
    fn overslept(&mut self, _nanos: u64) {}

    /// Reads one, and lets it wait or go; whether there was one. What it lets wait it counts as held.
    fn read(&mut self, queue: &Arc<Queue>, held: &mut DepartureQueue<Self::Packet>) -> io::Result<bool>;

    /// The time of one has come: whether it went where it was to go.
    fn let_go(&mut self, packet: Self::Packet, held: &mut DepartureQueue<Self::Packet>) -> bool;

    /// The interface of the queue that it was read from.
    fn interface(packet: &Self::Packet) -> u32;

    /// Memory that it takes, bytes.
    fn memory(packet: &Self::Packet) -> u64;
}

/// A thread's own things.
pub(super) struct Worker<C: Course> {
    number: usize,
    orders: mpsc::Receiver<Order>,
    wake: Arc<EventFd>,
    ready: Arc<OwnedFd>,
    figures: Arc<Figures>,
    /// How long before a departure it polls, ns.
    spin: u64,
    oversleep: Oversleep,
    turns: Turns,
    /// Whether it may have real-time priority.
    real_time: bool,
    /// When it ran last, as far as it has looked.
    ran: u64,
    queues: Vec<Arc<Queue>>,
    held: DepartureQueue<C::Packet>,
    course: C,
}

impl<C: Course> Worker<C> {
    /// The thread of this number. The error is that of a kernel, or a seccomp filter, that refuses to wait as it does.
    pub(super) fn new(
        number: usize,
        orders: mpsc::Receiver<Order>,
        wake: Arc<EventFd>,
        ready: Arc<OwnedFd>,
        figures: Arc<Figures>,
        spin: u64,
        course: C,
    ) -> io::Result<Self> {
        epoll::wait(&ready, &mut [NOTHING; READY], Some(&Timespec::default()))?;
        Ok(Self {
            number,
            orders,
            wake,
            ready,
            figures,
            spin,
            oversleep: Oversleep::default(),
            turns: Turns::new(0),
            real_time: false,
            ran: 0,
            queues: Vec::new(),
            held: DepartureQueue::default(),
            course,
        })
    }

    /// Serves its queues until it is told to end.
    pub(super) fn run(mut self) {
        self.real_time = ask_for_priority();
        self.own().real_time.store(self.real_time, Ordering::Relaxed);
        self.turns = Turns::new(now());
        let mut events = [NOTHING; READY];
        loop {
            let count = self.wait(&mut events);
            for event in &events[..count] {
                // The structure is packed.
                let data = event.data;
                if data.u64() != WAKE {
                    self.read_some(data.u64());
                } else if !self.obey() {
                    return;
                }
            }
            self.write_due();
            self.take_turns();
        }
    }

    fn own(&self) -> &Own {
        self.figures.of(self.number)
    }

    /// Gives real-time priority up or takes it back, if it may have it, by how busy the thread is.
    fn take_turns(&mut self) {
        let now = now();
        if let Some(nap) = self.turns.nap(now).filter(|_| self.real_time) {
            sleep_until(now + nap);
            self.turns.slept(nap, now + nap);
        }
        // It fails on no kernel that has the other things.
        let processor = sched_getcpu().unwrap_or_default();
        let others = || self.figures.others(self.number, processor);
        let Some(window) = self.turns.window(now, others) else {
            return;
        };
        self.figures.window_ended(self.number, processor, window, now);
        if self.real_time && window.given_up {
            self.own().busy.fetch_add(1, Ordering::Relaxed);
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

    /// Reads a batch from a queue at most, so that the others get their turn.
    fn read_some(&mut self, interface: u64) {
        let find = |queue: &&Arc<Queue>| u64::from(queue.interface()) == interface;
        let Some(queue) = self.queues.iter().find(find).cloned() else {
            return;
        };
        for _ in 0..BATCH {
            if !self.read_one(&queue) {
                return;
            }
            self.write_due();
        }
    }

    /// Reads a packet; whether there was one.
    fn read_one(&mut self, queue: &Arc<Queue>) -> bool {
        match self.course.read(queue, &mut self.held) {
            Ok(any) => any,
            Err(error) => {
                if error.kind() != io::ErrorKind::Interrupted {
                    self.bury(queue);
                }
                false
            }
        }
    }

    /// Gives a TAP up that was deleted (`tun_chr_read_iter`: EBADFD): it would be ready for ever. What it holds is lost.
    fn bury(&mut self, queue: &Arc<Queue>) {
        // An error means that it is not waited for already.
        let _ = epoll::delete(&self.ready, queue.as_ref());
        self.forget(queue.interface());
        self.figures.bury(queue.interface());
    }

    /// Drops what is held for a TAP, and lets go of its queue.
    fn forget(&mut self, interface: u32) {
        let mut forgotten = 0;
        self.held.retain(|held| {
            let keep = C::interface(held) != interface;
            if !keep {
                self.figures.let_go(C::memory(held));
                forgotten += 1;
            }
            keep
        });
        self.figures.dropped.fetch_add(forgotten, Ordering::Relaxed);
        self.queues.retain(|queue| queue.interface() != interface);
    }

    /// Writes every packet whose time has come.
    fn write_due(&mut self) {
        while let Some(next) = self.held.next_departure() {
            let now = now();
            if self.own().stalls.look(self.ran, now, next) && self.turns.stopped(now) {
                self.set_priority(true);
            }
            self.ran = now;
            if next > now {
                return;
            }
            let Some((_, packet)) = self.held.pop_due(next) else {
                return;
            };
            self.figures.let_go(C::memory(&packet));
            if self.course.let_go(packet, &mut self.held) {
                self.own().release();
            } else {
                self.figures.dropped.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// Sleeps until there is something to do, or soon will be; how many events there are. One system call for both
    /// (`epoll_pwait2`, 5.11), for it is what a packet costs beside its two.
    fn wait(&mut self, events: &mut [Event; READY]) -> usize {
        let begin = now();
        let longest = LONGEST_SLEEP.as_nanos() as u64;
        let left = match self.held.next_departure() {
            Some(next) => next.saturating_sub(begin).min(longest),
            None => longest,
        };
        let warm = WARM.min(left / WARM_PART);
        let sleep = left.saturating_sub(self.spin + warm + self.oversleep.usual(left));
        let time = Timespec {
            tv_sec: 0,
            tv_nsec: sleep.cast_signed(),
        };
        // It has been allowed before, so that EINTR is what is left: the next round looks again.
        let ended = epoll::wait(&self.ready, events.as_mut_slice(), Some(&time));
        self.course.overslept(0);
        if sleep > 0 {
            let end = now();
            if ended.is_ok_and(|events| events > 0) {
                // What was there already has not waited for longer than the call took.
                let asleep = end.saturating_sub(begin);
                self.course.overslept(self.figures.wake_up(end).min(asleep));
            }
            self.turns.slept(end.saturating_sub(begin), end);
            if ended == Ok(0) {
                let late = end.saturating_sub(begin + sleep);
                self.oversleep.learn(left, late);
                if sleep > WAIT.0 {
                    self.figures.woke_up(late, end);
                }
            }
        }
        ended.unwrap_or_default()
    }

    /// Does what the other threads ask; `false` if it is to end.
    fn obey(&mut self) -> bool {
        let _ = self.wake.read();
        while let Ok(order) = self.orders.try_recv() {
            match order {
                Order::Add(queue) => self.queues.push(queue),
                Order::Remove(interface, done) => {
                    self.forget(interface);
                    drop(done);
                }
                Order::End => return false,
            }
        }
        true
    }
}

/// Real-time priority if this process may have it, and timers without slack.
fn ask_for_priority() -> bool {
    let _ = prctl::set_timerslack(1);
    perturb_clock::set_priority(Priority::RealTime)
}
