//! Whom the scheduler prefers.

/// Whom the scheduler prefers to a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Priority {
    /// Nobody, or another program's threads of higher real-time priority: for threads that watch the others.
    First,
    /// Those and perturb's own pacer: other programs then do not delay a measurement.
    RealTime,
    /// All other threads without real-time priority: for threads that do not sleep, which the kernel stops for 50 ms of
    /// each second if they have real-time priority (`kernel.sched_rt_runtime_us`).
    Favored,
    /// As with any other thread.
    Ordinary,
    /// Everybody.
    Idle,
}

/// The nice value whose threads get the largest share of a processor.
const LEAST_NICE: libc::c_int = -20;

/// Sets the calling thread's priority; whether it may have it. If not, it keeps its own.
pub fn set_priority(priority: Priority) -> bool {
    let (policy, sched_priority) = match priority {
        Priority::First => (libc::SCHED_FIFO, 2),
        Priority::RealTime => (libc::SCHED_FIFO, 1),
        Priority::Favored | Priority::Ordinary => (libc::SCHED_OTHER, 0),
        Priority::Idle => (libc::SCHED_IDLE, 0),
    };
    let policy = policy | libc::SCHED_RESET_ON_FORK;
    // The kernel's `struct sched_param` is this number alone. By a system call, since musl's function does nothing.
    let parameter: libc::c_int = sched_priority;
    // SAFETY: `parameter` outlives the call; 0 is the calling thread.
    let set = unsafe { libc::syscall(libc::SYS_sched_setscheduler, 0, policy, &raw const parameter) == 0 };
    if priority == Priority::Favored {
        // SAFETY: the call takes numbers only; 0 is the calling thread, on Linux.
        return unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, LEAST_NICE) == 0 } && set;
    }
    set
}
