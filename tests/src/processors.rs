//! Which processor does what, and how long soft interrupts keep it busy.

use std::{
    fs, io,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

use anyhow::{Context as _, Result};
use nix::{
    sched::{CpuSet, sched_getaffinity, sched_setaffinity},
    unistd::Pid,
};

/// In what /proc/stat counts (USER_HZ); the kernel's own ticks divide it.
pub const TICK: Duration = Duration::from_millis(10);

/// The processors that this process may use, by number.
///
/// # Errors
/// When the kernel does not say.
pub fn usable() -> io::Result<Vec<usize>> {
    let set = sched_getaffinity(Pid::from_raw(0))?;
    Ok((0..CpuSet::count())
        .filter(|&number| set.is_set(number).unwrap_or(false))
        .collect())
}

/// Keeps the calling thread on a processor.
///
/// # Errors
/// When the processor may not be used.
pub fn keep_to(processor: usize) -> io::Result<()> {
    let mut set = CpuSet::new();
    set.set(processor)?;
    Ok(sched_setaffinity(Pid::from_raw(0), &set)?)
}

/// Does something while no processor sleeps. The tick of one that sleeps stops (`NO_HZ_IDLE`), and the kernel counts the
/// times of soft interrupts by ticks; on each of these processors a thread that runs only when nothing else wants to
/// (`SCHED_IDLE`) keeps the tick.
///
/// # Errors
/// When a processor may not be used, and those of `work`.
pub fn awake<T>(processors: &[usize], work: impl FnOnce() -> Result<T>) -> Result<T> {
    /// Ends the threads, however the work ends.
    struct End<'a>(&'a AtomicBool);
    impl Drop for End<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let threads: Vec<_> = processors
            .iter()
            .map(|&processor| {
                let done = &done;
                scope.spawn(move || spin(processor, done))
            })
            .collect();
        let end = End(&done);
        let result = work();
        drop(end);
        for thread in threads {
            thread
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
                .context("keeping a processor awake")?;
        }
        result
    })
}

fn spin(processor: usize, done: &AtomicBool) -> io::Result<()> {
    keep_to(processor)?;
    let parameters = libc::sched_param { sched_priority: 0 };
    // SAFETY: the parameters live until the call returns; it concerns this thread alone.
    if unsafe { libc::sched_setscheduler(0, libc::SCHED_IDLE, &raw const parameters) } != 0 {
        return Err(io::Error::last_os_error());
    }
    while !done.load(Ordering::Relaxed) {
        std::hint::spin_loop();
    }
    Ok(())
}

/// Time that each processor has spent in soft interrupts (/proc/stat, seventh column), by the processor's number.
///
/// # Errors
/// When /proc/stat cannot be read.
pub fn soft_interrupts() -> Result<Vec<Duration>> {
    let stat = fs::read_to_string("/proc/stat")?;
    let mut all = Vec::new();
    for line in stat.lines() {
        let mut words = line.split_whitespace();
        let number = words
            .next()
            .and_then(|word| word.strip_prefix("cpu")?.parse::<usize>().ok());
        let Some(number) = number else { continue };
        let ticks: u32 = words
            .nth(6)
            .context("/proc/stat has no column of soft interrupts")?
            .parse()?;
        all.resize(all.len().max(number + 1), Duration::ZERO);
        all[number] = TICK * ticks;
    }
    Ok(all)
}
