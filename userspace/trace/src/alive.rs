//! Keep-alive events of threads that compute and record nothing.
//!
//! Nothing of a what-if may be reported while a process has no event (Eom and Hollingsworth 2000, 2.1), so one that
//! computes for long without communicating would hold up all others. There, alarms in the processes make further events.
//! Here the collector reads the CPU clock of a silent thread from outside (`/proc/PID/task/TID/stat`), so that nothing
//! interrupts the program: no signal ends its system calls.
//!
//! A thread inside an MPI call is not looked at: what it spends there is left out. What the clock shows beyond what has been
//! left out is what it has computed; if it made a call meanwhile, the reading counts for nothing.
//!
//! The clock counts hundredths of a second and never more than the thread's own, which the next event goes by: what keep-alives carry is
//! less for that event.

use std::{
    collections::HashMap,
    fs,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    sync::atomic::Ordering,
    time::{Duration, Instant},
};

use nix::{
    time::{ClockId, clock_gettime},
    unistd::{SysconfVar, sysconf},
};

use crate::record::{Event, Record, ThreadState};
use crate::spool::{Ring, Writer};

/// A thread that has recorded nothing for so long is silent; then one event for each.
const PERIOD: Duration = Duration::from_millis(500);
/// Between two looks.
const LOOK: Duration = Duration::from_millis(100);

/// A silent thread as it was seen last.
struct Seen {
    /// Its directory below `/proc`.
    place: PathBuf,
    /// When it began, in clock ticks: numbers are given again.
    began: u64,
    cpu_ns: u64,
    time_ns: u64,
}

/// What is known of silent threads.
#[derive(Default)]
pub(super) struct Alive {
    looked: Option<Instant>,
    /// By ring and thread.
    seen: HashMap<(usize, u32), Seen>,
    /// Processes' directories below `/proc`, by ring, once they are looked for; none when it is over.
    places: HashMap<usize, Option<PathBuf>>,
}

impl Alive {
    /// A record for each thread that has been silent for a period and has computed since its last one, by its ring's number.
    pub(super) fn silent(&mut self, rings: &[Ring]) -> Vec<(usize, Record)> {
        let now = Instant::now();
        if self.looked.is_some_and(|looked| now < looked + LOOK) {
            return Vec::new();
        }
        self.looked = Some(now);
        let Ok(time) = clock_gettime(ClockId::CLOCK_MONOTONIC) else {
            return Vec::new();
        };
        let time_ns = Duration::from(time).as_nanos() as u64;
        let mut records = Vec::new();
        for (number, ring) in rings.iter().enumerate() {
            let mut of_ring = Vec::new();
            let mut is_silent = false;
            for state in ring.threads() {
                let thread = state.thread.load(Ordering::Acquire);
                let last = state.time_ns.load(Ordering::Acquire);
                let told = self.seen.get(&(number, thread)).map_or(0, |seen| seen.time_ns);
                if thread == 0 || last == 0 || time_ns < last.max(told) + PERIOD.as_nanos() as u64 {
                    continue;
                }
                let place = self.places.entry(number).or_insert_with(|| process(&ring.writer));
                let Some(process) = place.clone() else { break };
                is_silent = true;
                let cpu_ns = self.computed((number, thread), (&process, &ring.writer), state, time_ns);
                of_ring.extend(cpu_ns.map(|cpu_ns| Record {
                    thread,
                    cpu_ns,
                    time_ns,
                    event: Event::KeepAlive,
                }));
            }
            // After the clocks were read: if it has the ring still, they are its own.
            let has_ring =
                |place: &mut Option<PathBuf>| place.take_if(|process| !maps(process, &ring.name)).is_none();
            if is_silent && self.places.get_mut(&number).is_some_and(has_ring) {
                records.extend(of_ring.into_iter().map(|record| (number, record)));
            }
        }
        records
    }

    /// A thread's CPU time without what is left out, if it has grown and can be known.
    fn computed(
        &mut self,
        id: (usize, u32),
        (process, writer): (&Path, &Writer),
        state: &ThreadState,
        time_ns: u64,
    ) -> Option<u64> {
        let place = match self.seen.get(&id) {
            Some(seen) => seen.place.clone(),
            None => thread(process, writer, id.1)?,
        };
        let calls = state.calls.load(Ordering::Acquire);
        let out_ns = state.out_ns.load(Ordering::Acquire);
        let (cpu_ns, began) = clock(&place)?;
        let is_same =
            state.calls.load(Ordering::Acquire) == calls && state.thread.load(Ordering::Acquire) == id.1;
        if calls % 2 == 1 || !is_same {
            return None;
        }
        let cpu_ns = cpu_ns.saturating_sub(out_ns);
        let seen = Seen {
            place,
            began,
            cpu_ns,
            time_ns,
        };
        match self.seen.insert(id, seen) {
            Some(before) if before.began != began => None,
            Some(before) => Some(cpu_ns).filter(|cpu_ns| *cpu_ns > before.cpu_ns),
            None => Some(cpu_ns),
        }
    }
}

/// The directory of a process, whatever its PID namespace.
fn process(writer: &Writer) -> Option<PathBuf> {
    let is_it = |place: &Path| namespace(place) == Some(writer.pid_namespace);
    let own = Path::new("/proc").join(writer.pid.to_string());
    if namespace(Path::new("/proc/self")) == Some(writer.pid_namespace) {
        return Some(own);
    }
    entries(Path::new("/proc")).find(|place| innermost(place) == Some(writer.pid) && is_it(place))
}

/// Whether a process has this ring in its memory: not after it has ended, if its number was given again, nor when it
/// runs another program (exec).
fn maps(process: &Path, ring: &str) -> bool {
    fs::read(process.join("maps")).is_ok_and(|maps| String::from_utf8_lossy(&maps).contains(ring))
}

/// The directory of a process's thread.
fn thread(process: &Path, writer: &Writer, thread: u32) -> Option<PathBuf> {
    let tasks = process.join("task");
    if namespace(Path::new("/proc/self")) == Some(writer.pid_namespace) {
        return Some(tasks.join(thread.to_string()));
    }
    entries(&tasks).find(|place| innermost(place) == Some(thread))
}

/// Directories named by numbers.
fn entries(directory: &Path) -> impl Iterator<Item = PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries
        .filter(|entry| {
            entry
                .file_name()
                .to_string_lossy()
                .bytes()
                .all(|byte| byte.is_ascii_digit())
        })
        .map(|entry| entry.path())
}

fn namespace(place: &Path) -> Option<u64> {
    fs::metadata(place.join("ns/pid"))
        .ok()
        .map(|namespace| namespace.ino())
}

/// A process's or thread's number in its own PID namespace.
fn innermost(place: &Path) -> Option<u32> {
    let status = fs::read_to_string(place.join("status")).ok()?;
    let numbers = status.lines().find_map(|line| line.strip_prefix("NSpid:"))?;
    numbers.split_whitespace().last()?.parse().ok()
}

/// A thread's CPU time in ns, and when it began in clock ticks (proc(5)).
fn clock(place: &Path) -> Option<(u64, u64)> {
    let stat = fs::read_to_string(place.join("stat")).ok()?;
    // Its name may hold anything; what follows begins with the third field.
    let (_, rest) = stat.rsplit_once(')')?;
    let fields: Vec<&str> = rest.split_whitespace().collect();
    let field = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
    let second = sysconf(SysconfVar::CLK_TCK).ok()??.unsigned_abs();
    let ticks = field(14)? + field(15)?;
    Some((ticks * 1_000_000_000 / second.max(1), field(22)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_is_read_from_outside() {
        let place = Path::new("/proc/self/task").join(nix::unistd::gettid().to_string());
        let (before, began) = clock(&place).unwrap();
        let own =
            || Duration::from(clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).unwrap()).as_nanos() as u64;
        let start = own();
        while own() < start + 100_000_000 {
            std::hint::spin_loop();
        }
        let (after, still) = clock(&place).unwrap();
        // It counts hundredths, and is brought up to date by the timer's interrupt.
        let grown = before + 60_000_000..=own() + 10_000_000;
        assert!(grown.contains(&after), "{before} {after} {}", own());
        assert_eq!(began, still);
        assert_eq!(
            innermost(&place),
            Some(nix::unistd::gettid().as_raw().unsigned_abs())
        );
    }

    #[test]
    fn a_process_is_known_by_what_it_has_mapped() {
        let own = Path::new("/proc/self");
        let library = fs::read_to_string(own.join("maps")).unwrap();
        let mapped = library.lines().find_map(|line| line.rsplit_once('/')).unwrap().1;
        assert!(maps(own, mapped));
        assert!(!maps(own, "1-2-3-ring"));
        assert!(!maps(Path::new("/proc/0"), mapped));
    }
}
