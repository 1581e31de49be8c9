//! Whom the scheduler prefers.

/// Whom the scheduler prefers to a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Priority {
    /// Nobody: for threads that watch the others.
    First,
    /// Nobody but perturb's own pacer: other programs then do not delay a measurement. A thread without the right to it
    /// is as any other, and measures the same with more noise.
    RealTime,
    /// Everybody.
    Idle,
}

/// Sets the calling thread's priority; whether it may have it. Without, it is a thread as any other.
pub fn set_priority(priority: Priority) -> bool {
    let set = |policy, sched_priority| {
        let parameter = libc::sched_param { sched_priority };
        // SAFETY: `parameter` outlives the call; 0 is the calling thread.
        unsafe { libc::sched_setscheduler(0, policy | libc::SCHED_RESET_ON_FORK, &raw const parameter) == 0 }
    };
    let may = match priority {
        Priority::First => set(libc::SCHED_FIFO, 2),
        Priority::RealTime => set(libc::SCHED_FIFO, 1),
        Priority::Idle => set(libc::SCHED_IDLE, 0),
    };
    if !may {
        set(libc::SCHED_OTHER, 0);
    }
    may
}
