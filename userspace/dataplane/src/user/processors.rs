//! On which processor each thread of the pacer stays.
//!
//! The kernel receives what a thread writes to a TAP on the thread's processor, and where a soft interrupt is behind there it
//! waits in that processor's backlog (`netif_rx`). A thread that moved meanwhile could send a packet before the one ahead of
//! it: 155 of 40 000 datagrams did so on four emulated processors. So each thread stays where it is.
//!
//! Emulations know nothing of each other, but each sees the threads of all in /proc: a new one takes the processors on which the
//! fewest of them stay, the last ones first, because interrupts and the first processes are usually on the first. What cannot be
//! found out is left to the scheduler.

use std::{
    ffi::c_ulong,
    fs, io,
    path::{Path, PathBuf},
};

use crate::steering::processors;

/// The name of the pacer's threads,
pub(super) const THREAD: &str = "perturb-pacer";
/// and how the name of a process begins that has some (`main` sees to it).
const PROCESS: &str = "perturb";

/// A processor for each of so many threads that start now; empty if nobody knows which ones this thread may use.
pub(super) fn choose(threads: usize) -> Vec<u32> {
    // No library's set of processors is used, for those end at 1024: the kernel refuses them where it has more.
    let usable = allowed(Path::new("/proc/thread-self")).unwrap_or_default();
    share_out(&usable, &taken(), threads)
}

/// Keeps the calling thread on a processor.
pub(super) fn stay_on(processor: u32) -> io::Result<()> {
    const BITS: usize = c_ulong::BITS as usize;
    let processor = processor as usize;
    let mut mask: Vec<c_ulong> = vec![0; processor / BITS + 1];
    mask[processor / BITS] = 1 << (processor % BITS);
    let size = size_of_val(mask.as_slice());
    // SAFETY: the kernel reads so many bytes from there; the set concerns this thread alone.
    if unsafe { libc::sched_setaffinity(0, size, mask.as_ptr().cast()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// For each of so many threads the processor with the fewest, of those that may be used; each entry of `taken` is a thread's.
fn share_out(usable: &[u32], taken: &[u32], threads: usize) -> Vec<u32> {
    let mut all = taken.to_vec();
    for _ in 0..threads {
        let fewest = |processor: &&u32| all.iter().filter(|taken| taken == processor).count();
        // Of equals the first one found.
        let Some(&processor) = usable.iter().rev().min_by_key(fewest) else {
            break;
        };
        all.push(processor);
    }
    all.split_off(taken.len())
}

/// The processor of each of the pacers' threads of this machine, as far as this process sees them.
fn taken() -> Vec<u32> {
    let is_ours = |process: &PathBuf| name(process).is_some_and(|name| name.starts_with(PROCESS));
    let processes = entries(Path::new("/proc")).filter(is_ours);
    processes.flat_map(|process| stays(&process)).collect()
}

/// The processors of one process's threads of a pacer.
fn stays(process: &Path) -> Vec<u32> {
    let is_pacer = |thread: &PathBuf| name(thread).as_deref() == Some(THREAD);
    let one = |thread: PathBuf| match allowed(&thread)?.as_slice() {
        [processor] => Some(*processor),
        _ => None,
    };
    let threads = entries(&process.join("task")).filter(is_pacer);
    threads.filter_map(one).collect()
}

/// What a directory has; nothing if it has gone.
fn entries(directory: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries.map(|entry| entry.path())
}

/// The name of a process or thread.
fn name(task: &Path) -> Option<String> {
    let name = fs::read_to_string(task.join("comm")).ok()?;
    Some(name.trim_end().into())
}

/// The processors that a process or thread may use.
fn allowed(task: &Path) -> Option<Vec<u32>> {
    let status = fs::read_to_string(task.join("status")).ok()?;
    let list = |line: &str| processors(line.strip_prefix("Cpus_allowed_list:")?);
    status.lines().find_map(list)
}

#[cfg(test)]
mod tests {
    use std::{
        thread,
        time::{Duration, Instant},
    };

    use super::*;
    use crate::user::{SpinBudget, UserPacer};

    #[test]
    fn threads_take_the_processors_that_the_fewest_have() {
        assert_eq!(share_out(&[0, 1], &[], 1), [1]);
        assert_eq!(share_out(&[0, 1], &[1], 1), [0]);
        assert_eq!(share_out(&[0, 1], &[1, 0], 1), [1]);
        assert_eq!(share_out(&[0, 1, 2, 3], &[3], 2), [2, 1]);
        assert_eq!(share_out(&[2, 5, 2000], &[7, 7, 5, 2000], 4), [2, 2000, 5, 2]);
        assert_eq!(share_out(&[], &[1], 2), []);
    }

    /// A pacer's threads stay on processors, and are seen there by others.
    #[test]
    fn threads_stay_and_are_seen() {
        let usable = allowed(Path::new("/proc/thread-self")).unwrap();
        let pacer = UserPacer::start(2, SpinBudget::default(), 0, Box::new(drop)).unwrap();
        let start = Instant::now();
        let mut found = stays(Path::new("/proc/self"));
        // Each names itself and takes its place when it first runs.
        while found.len() < 2 && start.elapsed() < Duration::from_secs(60) {
            thread::yield_now();
            found = stays(Path::new("/proc/self"));
        }
        assert_eq!(found.len(), 2);
        assert!(
            found.iter().all(|processor| usable.contains(processor)),
            "{found:?}"
        );
        let all = taken();
        assert!(found.iter().all(|processor| all.contains(processor)), "{found:?}");
        assert_eq!(allowed(Path::new("/proc/thread-self")).unwrap(), usable);
        drop(pacer);
    }

    /// A set of processors has no end: what the kernel says is that there is no such processor, and nothing worse.
    #[test]
    fn processors_beyond_the_usual_sets_can_be_asked_for() {
        let beyond = thread::spawn(|| {
            let before = allowed(Path::new("/proc/thread-self"));
            let refused = stay_on(1 << 20).unwrap_err();
            (
                refused.raw_os_error(),
                before == allowed(Path::new("/proc/thread-self")),
            )
        });
        assert_eq!(beyond.join().unwrap(), (Some(libc::EINVAL), true));
        let last = *allowed(Path::new("/proc/self")).unwrap().last().unwrap();
        let stayed = thread::spawn(move || stay_on(last).map(|()| allowed(Path::new("/proc/thread-self"))));
        assert_eq!(stayed.join().unwrap().unwrap(), Some(vec![last]));
    }
}
