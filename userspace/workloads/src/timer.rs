//! Waiting for an instant more exactly than the runtime's own timers, which count milliseconds.
//!
//! Model: one timerfd (kernel high-resolution timer) serves all sleepers of a [`Timer`]: they wait in
//! a heap by deadline, and the descriptor is armed for the earliest. A sleeper wakes late by the time
//! the kernel takes to schedule the thread, never early, and lateness does not accumulate, because
//! every deadline is an instant and not a duration.

use std::{
    cmp::Reverse,
    collections::BinaryHeap,
    io,
    os::fd::{AsFd, AsRawFd, RawFd},
    sync::{Arc, Mutex, PoisonError, Weak},
    time::{Duration, Instant},
};

use nix::sys::{
    time::TimeSpec,
    timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags},
};
use tokio::{
    io::{Interest, unix::AsyncFd},
    sync::oneshot,
};

/// A clock to wait on. Clones share it; the last one to go ends its task.
#[derive(Clone)]
pub(crate) struct Timer(Arc<Shared>);

struct Shared {
    descriptor: AsyncFd<Descriptor>,
    sleepers: Mutex<Sleepers>,
}

#[derive(Default)]
struct Sleepers {
    heap: BinaryHeap<Reverse<Sleeper>>,
    /// Breaks ties, so that equal deadlines wake in the order of asking.
    asked: u64,
}

struct Sleeper {
    at: Instant,
    order: u64,
    wake: oneshot::Sender<()>,
}

struct Descriptor(TimerFd);

impl Timer {
    /// Starts the timer on the current runtime, whose I/O driver must be enabled.
    pub(crate) fn start() -> io::Result<Self> {
        let descriptor = TimerFd::new(
            ClockId::CLOCK_MONOTONIC,
            TimerFlags::TFD_CLOEXEC | TimerFlags::TFD_NONBLOCK,
        )?;
        // SAFETY: `Descriptor` owns the timerfd, and nothing closes or replaces it before it is dropped.
        let descriptor =
            unsafe { AsyncFd::register_with_interest(Descriptor(descriptor), Interest::READABLE) }?;
        let shared = Arc::new(Shared {
            descriptor,
            sleepers: Mutex::new(Sleepers::default()),
        });
        tokio::spawn(wake_sleepers(Arc::downgrade(&shared)));
        Ok(Self(shared))
    }

    /// Returns at `deadline`, or at once if it has passed.
    pub(crate) async fn until(&self, deadline: Instant) {
        if deadline <= Instant::now() {
            return;
        }
        let (wake, woken) = oneshot::channel();
        {
            let mut sleepers = self.0.sleepers.lock().unwrap_or_else(PoisonError::into_inner);
            let order = sleepers.asked;
            sleepers.asked += 1;
            let earliest = sleepers
                .heap
                .peek()
                .is_none_or(|Reverse(first)| deadline < first.at);
            sleepers.heap.push(Reverse(Sleeper {
                at: deadline,
                order,
                wake,
            }));
            if earliest {
                self.0.arm(deadline);
            }
        }
        // The sender is dropped unsent only when the runtime shuts down.
        let _ = woken.await;
    }
}

impl Shared {
    fn arm(&self, deadline: Instant) {
        // A zero time-out would disarm the descriptor.
        let wait = deadline
            .saturating_duration_since(Instant::now())
            .max(Duration::from_nanos(1));
        let expiration = Expiration::OneShot(TimeSpec::from_duration(wait));
        // timerfd_settime fails for a bad descriptor or time only (timerfd_create(2)); both are ours.
        let set = self
            .descriptor
            .get_ref()
            .0
            .set(expiration, TimerSetTimeFlags::empty());
        debug_assert!(set.is_ok(), "{set:?}");
    }

    fn wake_due(&self) {
        let mut sleepers = self.sleepers.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        while sleepers.heap.peek().is_some_and(|Reverse(first)| first.at <= now) {
            if let Some(Reverse(due)) = sleepers.heap.pop() {
                // The sleeper may have been dropped; nobody misses the news then.
                let _ = due.wake.send(());
            }
        }
        if let Some(Reverse(next)) = sleepers.heap.peek() {
            self.arm(next.at);
        }
    }
}

async fn wake_sleepers(shared: Weak<Shared>) {
    // Between two expirations only the sleepers keep the timer alive, so look for its end now and then.
    while let Some(timer) = shared.upgrade() {
        let ready = timer.descriptor.readable();
        if let Ok(Ok(mut ready)) = tokio::time::timeout(Duration::from_millis(200), ready).await {
            // The count of expirations does not matter, only that the descriptor is drained.
            let _ = timer.descriptor.get_ref().0.wait();
            ready.clear_ready();
            timer.wake_due();
        }
    }
}

impl AsRawFd for Descriptor {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_fd().as_raw_fd()
    }
}

impl PartialEq for Sleeper {
    fn eq(&self, other: &Self) -> bool {
        (self.at, self.order) == (other.at, other.order)
    }
}

impl Eq for Sleeper {}

impl PartialOrd for Sleeper {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Sleeper {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.order).cmp(&(other.at, other.order))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn wakes_in_order_and_never_early() {
        let timer = Timer::start().unwrap();
        let start = Instant::now();
        let sleepers = [3_000_u64, 500, 1_500, 500].map(|micros| {
            let timer = timer.clone();
            let deadline = start + Duration::from_micros(micros);
            tokio::spawn(async move {
                timer.until(deadline).await;
                (deadline, Instant::now())
            })
        });
        for sleeper in sleepers {
            let (deadline, woken) = sleeper.await.unwrap();
            assert!(woken >= deadline);
        }
    }

    #[tokio::test]
    async fn half_of_the_wakes_are_within_a_millisecond() {
        // The runtime's own timer would be late by 1 ms in the mean. Sample size 200, quantile 0.5.
        let timer = Timer::start().unwrap();
        let mut late = Vec::new();
        for _ in 0..200 {
            let deadline = Instant::now() + Duration::from_micros(300);
            timer.until(deadline).await;
            late.push(deadline.elapsed());
        }
        late.sort();
        assert!(late[100] < Duration::from_millis(1), "{:?}", late[100]);
    }
}
