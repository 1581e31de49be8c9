//! Waiting for an instant more exactly than the runtime's own timers, which count milliseconds.
//!
//! Model: one timerfd (kernel high-resolution timer) serves all sleepers of a [`Timer`]: they wait in
//! a heap by deadline, and the descriptor is armed for the earliest. A sleeper wakes late by the time
//! the kernel takes to schedule the thread, never early, and lateness does not accumulate, because
//! every deadline is an instant and not a duration.

use std::{
    collections::BTreeMap,
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

/// By deadline, and in the order of asking.
#[derive(Default)]
struct Sleepers {
    waiting: BTreeMap<(Instant, u64), oneshot::Sender<()>>,
    asked: u64,
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
            let key = (deadline, sleepers.asked);
            sleepers.asked += 1;
            sleepers.waiting.insert(key, wake);
            if sleepers
                .waiting
                .first_key_value()
                .is_some_and(|(first, _)| *first == key)
            {
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
        while let Some(next) = sleepers.waiting.first_entry() {
            let (at, _) = *next.key();
            if at > now {
                self.arm(at);
                break;
            }
            // Who waits no more need not be woken.
            let _ = next.remove().send(());
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
