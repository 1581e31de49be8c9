//! Whom the scheduler prefers.

/// Whom the scheduler prefers to a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Priority {
    /// Nobody, or another program's threads of higher real-time priority: for threads that watch the others.
    First,
    /// Those and perturb's own pacer: other programs then do not delay a measurement.
    RealTime,
    /// As with any other thread.
    Ordinary,
    /// Everybody.
    Idle,
}

/// Sets the calling thread's priority; whether it may have it. If not, it keeps its own.
pub fn set_priority(priority: Priority) -> bool {
    let (policy, sched_priority) = match priority {
        Priority::First => (libc::SCHED_FIFO, 2),
        Priority::RealTime => (libc::SCHED_FIFO, 1),
        Priority::Ordinary => (libc::SCHED_OTHER, 0),
        Priority::Idle => (libc::SCHED_IDLE, 0),
    };
    let parameter = libc::sched_param { sched_priority };
    // SAFETY: `parameter` outlives the call; 0 is the calling thread.
    unsafe { libc::sched_setscheduler(0, policy | libc::SCHED_RESET_ON_FORK, &raw const parameter) == 0 }
}
