//! What the pacer's threads share: the limit of what they hold, the floor of wake-ups, and what `perturb status` shows.

use std::sync::{
    Mutex,
    atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering},
};

use perturb_common::{
    abi::SLOTS,
    lead::Lead,
    units::{MonoNanos, Nanos},
};

use super::turns::{Stalls, Window};

/// Packets held at most: slots must not be used twice.
const MAX_PACKETS: u64 = SLOTS as u64 - 4096;
/// The place of the number of packets in the word of what is held: below it are bytes, up to 256 GiB, and in it
/// 67 million packets: the switch holds as many as the profile's limit of memory allows.
const PACKETS: u32 = 38;

/// Who is told every 50 ms or so what it takes at least to wake up a thread that sleeps, ns; 0 while the pacer is busy,
/// as those are then who get its packets.
pub type TellWakeUp = Box<dyn FnMut(u64) + Send>;

/// What the pacer has done, and what it holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UserPacerStats {
    /// Packets that wait now.
    pub held_packets: u64,
    /// Memory that they take, bytes.
    pub held_bytes: u64,
    /// Packets dropped because the limit was reached, or because the TAP would not take them back.
    pub dropped: u64,
    /// Whether the threads may have real-time priority.
    pub real_time: bool,
    /// What each thread has done.
    pub threads: Vec<ThreadStats>,
}

/// What a thread of the pacer has done, or all of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ThreadStats {
    /// Packets that it let go.
    pub released: u64,
    /// How often it gave real-time priority up because it was busy: the kernel stops busy real-time threads for 50 ms of
    /// each second.
    pub busy: u64,
    /// How often it was kept from running for more than 5 ms while a packet was due.
    pub stalls: u64,
    /// For how long in all, ns.
    pub stalled: u64,
    /// The longest of them, ns.
    pub longest_stall: u64,
}

impl UserPacerStats {
    /// What all threads have done.
    #[must_use]
    pub fn sum(&self) -> ThreadStats {
        let add = |sum: ThreadStats, thread: &ThreadStats| ThreadStats {
            released: sum.released + thread.released,
            busy: sum.busy + thread.busy,
            stalls: sum.stalls + thread.stalls,
            stalled: sum.stalled + thread.stalled,
            longest_stall: sum.longest_stall.max(thread.longest_stall),
        };
        self.threads.iter().fold(ThreadStats::default(), add)
    }
}

/// What a thread notes of itself; in cache lines of its own.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(super) struct Own {
    pub(super) real_time: AtomicBool,
    pub(super) released: AtomicU64,
    pub(super) busy: AtomicU64,
    pub(super) stalls: Stalls,
    /// Whether its processor is hardly free at present.
    working: AtomicBool,
    /// The share of a processor, percent, that it took with real-time priority in its last window,
    used: AtomicU64,
    /// and which one.
    processor: AtomicUsize,
}

impl Own {
    /// Counts a packet that left; only the thread itself writes.
    pub(super) fn release(&self) {
        let released = self.released.load(Ordering::Relaxed);
        self.released.store(released + 1, Ordering::Relaxed);
    }

    fn stats(&self) -> ThreadStats {
        let (stalls, stalled, longest_stall) = self.stalls.sums();
        ThreadStats {
            released: self.released.load(Ordering::Relaxed),
            busy: self.busy.load(Ordering::Relaxed),
            stalls,
            stalled,
            longest_stall,
        }
    }
}

/// Shared by all threads.
pub(crate) struct Figures {
    /// Memory that held packets may take, bytes.
    limit: AtomicU64,
    /// Packets that wait (from bit [`PACKETS`]) and the memory that they take: one word, so that the limit is taken from at once.
    held: AtomicU64,
    pub(crate) dropped: AtomicU64,
    /// Index of the first TAP that could not be read any more; 0: none.
    dead: AtomicU32,
    /// A [`Lead`]: the floor of what the threads' wake-ups take.
    wake_up: AtomicU64,
    tell: Mutex<TellWakeUp>,
    threads: Box<[Own]>,
}

impl Figures {
    /// For so many threads.
    pub(super) fn new(threads: usize, limit: u64, tell: TellWakeUp) -> Self {
        Self {
            limit: AtomicU64::new(limit),
            held: AtomicU64::default(),
            dropped: AtomicU64::default(),
            dead: AtomicU32::default(),
            wake_up: AtomicU64::new(Lead::default().0),
            tell: Mutex::new(tell),
            threads: (0..threads).map(|_| Own::default()).collect(),
        }
    }

    /// How many threads there are.
    pub(crate) fn threads(&self) -> usize {
        self.threads.len()
    }

    /// What a thread notes of itself.
    pub(super) fn of(&self, thread: usize) -> &Own {
        &self.threads[thread]
    }

    /// Memory that held packets may take, bytes.
    pub(crate) fn limit(&self) -> u64 {
        self.limit.load(Ordering::Relaxed)
    }

    pub(super) fn set_limit(&self, limit: u64) {
        self.limit.store(limit, Ordering::Relaxed);
    }

    /// Counts a packet that is to be held and takes so much memory; `false` if the limit does not allow it.
    pub(crate) fn admit(&self, memory: u64) -> bool {
        let packet = (1 << PACKETS) + memory;
        let held = self.held.fetch_add(packet, Ordering::Relaxed) + packet;
        let fits = held >> PACKETS <= MAX_PACKETS && bytes(held) <= self.limit();
        if !fits {
            self.held.fetch_sub(packet, Ordering::Relaxed);
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
        fits
    }

    /// Counts a packet that is held and takes so much memory, where the programs have looked at the limit.
    pub(crate) fn hold(&self, memory: u64) {
        self.held.fetch_add((1 << PACKETS) + memory, Ordering::Relaxed);
    }

    /// Counts a packet that took so much memory and is no longer held.
    pub(crate) fn let_go(&self, memory: u64) {
        self.held.fetch_sub((1 << PACKETS) + memory, Ordering::Relaxed);
    }

    /// A TAP cannot be read any more.
    pub(super) fn bury(&self, interface: u32) {
        // Another one is dead already: one is enough to end the emulation.
        let _ = self
            .dead
            .compare_exchange(0, interface, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// The index of a TAP that cannot be read any more, if there is one.
    pub(super) fn dead(&self) -> Option<u32> {
        Some(self.dead.load(Ordering::Relaxed)).filter(|&index| index != 0)
    }

    /// A sleep ended so late, now.
    pub(super) fn woke_up(&self, late: u64, now: u64) {
        let lead = Lead(self.wake_up.load(Ordering::Relaxed));
        let learned = lead.follow(Nanos(late), MonoNanos(now));
        if learned != lead {
            // Of threads that race one teaches: a stale lesson must not undo a fresh one.
            let _ = self
                .wake_up
                .compare_exchange(lead.0, learned.0, Ordering::Relaxed, Ordering::Relaxed);
        }
    }

    /// What a wake-up takes at least, ns.
    pub(super) fn wake_up(&self, now: u64) -> u64 {
        Lead(self.wake_up.load(Ordering::Relaxed)).at(MonoNanos(now)).0
    }

    /// The share of this processor, percent, that the other threads took with real-time priority in their last windows.
    pub(super) fn others(&self, thread: usize, processor: usize) -> u64 {
        let other = |(number, own): (usize, &Own)| {
            let here = number != thread && own.processor.load(Ordering::Relaxed) == processor;
            here.then(|| own.used.load(Ordering::Relaxed))
        };
        self.threads.iter().enumerate().filter_map(other).sum()
    }

    /// A thread's window ended on this processor.
    pub(super) fn window_ended(&self, thread: usize, processor: usize, window: Window, now: u64) {
        let own = self.of(thread);
        own.used.store(window.used, Ordering::Relaxed);
        own.processor.store(processor, Ordering::Relaxed);
        self.tell(thread, window.busy, now);
    }

    /// Tells the floor of wake-ups, or 0 if a thread is busy; this one says whether it is.
    fn tell(&self, thread: usize, working: bool, now: u64) {
        self.of(thread).working.store(working, Ordering::Relaxed);
        let busy = self
            .threads
            .iter()
            .any(|thread| thread.working.load(Ordering::Relaxed));
        let floor = self.wake_up(now);
        // Who finds another thread telling does not wait: that one may be kept from running, and knows as much.
        if let Ok(mut tell) = self.tell.try_lock() {
            tell(if busy { 0 } else { floor });
        }
    }

    pub(super) fn stats(&self) -> UserPacerStats {
        let held = self.held.load(Ordering::Relaxed);
        UserPacerStats {
            held_packets: held >> PACKETS,
            held_bytes: bytes(held),
            dropped: self.dropped.load(Ordering::Relaxed),
            real_time: self
                .threads
                .iter()
                .all(|thread| thread.real_time.load(Ordering::Relaxed)),
            threads: self.threads.iter().map(Own::stats).collect(),
        }
    }
}

fn bytes(held: u64) -> u64 {
    held & ((1 << PACKETS) - 1)
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    fn figures(threads: usize, limit: u64) -> (Figures, Arc<Mutex<Vec<u64>>>) {
        let told = Arc::new(Mutex::new(Vec::new()));
        let list = Arc::clone(&told);
        let figures = Figures::new(
            threads,
            limit,
            Box::new(move |nanos| list.lock().unwrap().push(nanos)),
        );
        (figures, told)
    }

    #[test]
    fn threads_take_from_one_limit() {
        const THREADS: usize = 4;
        const TRIES: u64 = 10_000;
        let (figures, _) = figures(THREADS, 1_000);
        let most = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    for _ in 0..TRIES {
                        if figures.admit(300) {
                            most.fetch_add(300, Ordering::SeqCst);
                            assert!(most.load(Ordering::SeqCst) <= 1_000);
                            most.fetch_sub(300, Ordering::SeqCst);
                            figures.let_go(300);
                        }
                    }
                });
            }
        });
        let stats = figures.stats();
        assert_eq!((stats.held_packets, stats.held_bytes), (0, 0));
        assert!(stats.dropped < THREADS as u64 * TRIES);
    }

    #[test]
    fn no_more_packets_than_slots() {
        let (figures, _) = figures(1, u64::MAX);
        for _ in 0..MAX_PACKETS {
            assert!(figures.admit(1));
        }
        assert!(!figures.admit(1));
        assert_eq!(figures.stats().dropped, 1);
        assert_eq!(figures.stats().held_packets, MAX_PACKETS);
        figures.let_go(1);
        assert!(figures.admit(1));
    }

    #[test]
    fn a_busy_thread_speaks_for_all() {
        let (figures, told) = figures(2, 0);
        let mut now = 1 << 40;
        for _ in 0..1_000 {
            now += 1_000_000;
            figures.woke_up(30_000, now);
        }
        figures.tell(0, false, now);
        figures.tell(1, true, now);
        figures.tell(0, false, now);
        figures.tell(1, false, now);
        let told = told.lock().unwrap();
        assert!((20_000..=30_000).contains(&told[0]), "{told:?}");
        assert_eq!(told[1..], [0, 0, told[0]]);
    }

    #[test]
    fn threads_on_one_processor_count_together() {
        let (figures, _) = figures(4, 0);
        for (thread, processor, used) in [(0, 5, 10), (1, 5, 20), (2, 6, 40), (3, 5, 30)] {
            let window = Window {
                busy: false,
                used,
                given_up: false,
                real_time: None,
            };
            figures.window_ended(thread, processor, window, 1 << 40);
        }
        assert_eq!(figures.others(0, 5), 50);
        assert_eq!(figures.others(2, 6), 0);
        assert_eq!(figures.others(2, 5), 60);
    }

    #[test]
    fn the_sum_is_of_all_threads() {
        let (figures, _) = figures(3, 0);
        for thread in 0..3 {
            figures.of(thread).release();
        }
        figures.of(2).release();
        let stats = figures.stats();
        assert_eq!(stats.sum().released, 4);
        assert_eq!(stats.threads[2].released, 2);
        assert!(!stats.real_time);
    }
}
