//! The patterns of the Split-C suite.

use std::{
    net::IpAddr,
    time::{Duration, Instant},
};

use perturb_stats::SplitMix64;

use super::{
    Outcome, PatternError,
    mesh::{Inbox, Kind, Mesh, VALUE, locked},
};

/// A program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Program {
    /// Each process reads so many values of others, one after another.
    Reads(u64),
    /// Each process writes so many values to others, without waiting.
    Writes(u64),
    /// Rounds in which each process sends so many short messages to each other one.
    ShortAllToAll {
        /// Rounds, each with a barrier.
        rounds: u64,
        /// Messages to each other process in a round.
        messages: u64,
    },
    /// Rounds in which each process sends so many bytes to each other one.
    BulkAllToAll {
        /// Rounds, each with a barrier.
        rounds: u64,
        /// Bytes to each other process in a round.
        bytes: u64,
    },
    /// Tasks that all lie with the first process at the start; who has none steals one, under a lock.
    Tasks {
        /// How many.
        tasks: u64,
        /// Computation of one.
        work: Duration,
    },
}

/// Bytes of a bulk message.
const BULK: usize = 16 << 10;
/// The data port of all processes.
const PORT: u16 = 7700;

/// Runs process `rank` of a program between hosts with these addresses.
pub(super) fn run(program: Program, rank: usize, addresses: &[IpAddr]) -> Result<Outcome, PatternError> {
    let mesh = Mesh::connect(rank, addresses, PORT)?;
    if let Program::Tasks { tasks, .. } = program
        && rank == 0
    {
        locked(&mesh.shared.tasks).extend(0..u32::try_from(tasks).unwrap_or(u32::MAX));
    }
    mesh.run(|mesh, inbox| {
        mesh.barrier(inbox)?;
        let before = mesh.sent();
        let start = Instant::now();
        let failed_locks = execute(program, mesh, inbox)?;
        mesh.barrier(inbox)?;
        let run_time_s = start.elapsed().as_secs_f64();
        let messages = mesh.sent() - before;
        // Nobody hangs up before all have left the barrier.
        mesh.barrier(inbox)?;
        Ok(Outcome {
            run_time_s,
            messages,
            failed_locks,
            remap: None,
        })
    })
}

fn execute(program: Program, mesh: &Mesh, inbox: &mut Inbox) -> Result<Option<u64>, PatternError> {
    let mut random = SplitMix64::new(mesh.rank() as u64 + 1);
    let others: Vec<usize> = (0..mesh.size()).filter(|peer| *peer != mesh.rank()).collect();
    let mut any = || others[random.below(others.len() as u64) as usize];
    match program {
        Program::Reads(count) => {
            for _ in 0..count {
                mesh.send(any(), Kind::Read, 0, 0)?;
                inbox.wait(Kind::Value)?;
            }
        }
        Program::Writes(count) => {
            for _ in 0..count {
                mesh.send(any(), Kind::Write, 0, VALUE)?;
            }
            mesh.fence(inbox)?;
        }
        Program::ShortAllToAll { rounds, messages } => {
            for _ in 0..rounds {
                for _ in 0..messages {
                    for peer in &others {
                        mesh.send(*peer, Kind::Write, 0, VALUE)?;
                    }
                }
                mesh.fence(inbox)?;
                mesh.barrier(inbox)?;
            }
        }
        Program::BulkAllToAll { rounds, bytes } => {
            for _ in 0..rounds {
                for peer in &others {
                    let mut left = bytes as usize;
                    while left > 0 {
                        let part = left.min(BULK);
                        mesh.send(*peer, Kind::Write, 0, part)?;
                        left -= part;
                    }
                }
                mesh.fence(inbox)?;
                mesh.barrier(inbox)?;
            }
        }
        Program::Tasks { work, .. } => return tasks(mesh, inbox, &others, work).map(Some),
    }
    Ok(None)
}

/// Works off tasks, own ones and stolen ones, until nobody has any; locks that were asked for in vain.
fn tasks(mesh: &Mesh, inbox: &mut Inbox, others: &[usize], work: Duration) -> Result<u64, PatternError> {
    let mut failed = 0;
    loop {
        if !own(mesh, work) {
            let mut found = false;
            for victim in others {
                found |= steal(mesh, inbox, *victim, &mut failed)?;
                if found {
                    compute(work);
                    break;
                }
            }
            if !found {
                return Ok(failed);
            }
        }
    }
}

/// Takes a task of this process, also under the lock.
fn own(mesh: &Mesh, work: Duration) -> bool {
    if locked(&mesh.shared.tasks).is_empty() {
        return false;
    }
    while !mesh.grant(mesh.rank()) {
        std::thread::yield_now();
    }
    let task = locked(&mesh.shared.tasks).pop_front();
    mesh.unlock(mesh.rank());
    if task.is_some() {
        compute(work);
    }
    task.is_some()
}

/// Takes a task of another process.
fn steal(mesh: &Mesh, inbox: &mut Inbox, victim: usize, failed: &mut u64) -> Result<bool, PatternError> {
    loop {
        mesh.send(victim, Kind::Lock, 0, 0)?;
        if inbox.wait(Kind::Locked)?.number == 1 {
            break;
        }
        // At once again, as a test-and-set in a loop does: under contention these messages are the load.
        *failed += 1;
    }
    mesh.send(victim, Kind::Steal, 0, 0)?;
    let stolen = inbox.wait(Kind::Stolen)?.number == 1;
    mesh.send(victim, Kind::Unlock, 0, 0)?;
    Ok(stolen)
}

fn compute(work: Duration) {
    let start = Instant::now();
    while start.elapsed() < work {
        std::hint::spin_loop();
    }
}

#[cfg(test)]
mod tests {
    use std::{net::Ipv4Addr, thread};

    use super::*;

    /// The processes have addresses of their own on the loopback network.
    fn all(program: Program, count: u8, network: u8) -> Vec<Outcome> {
        let addresses: Vec<IpAddr> = (1..=count)
            .map(|host| Ipv4Addr::new(127, 77, network, host).into())
            .collect();
        let start = |rank: usize| {
            let addresses = addresses.clone();
            thread::spawn(move || run(program, rank, &addresses).unwrap())
        };
        let processes: Vec<_> = (0..usize::from(count)).map(start).collect();
        processes
            .into_iter()
            .map(|process| process.join().unwrap())
            .collect()
    }

    #[test]
    fn processes_send_what_they_are_told_to() {
        // Besides there are fences of its own; answers to others may come after it has counted.
        let least = |program, processes, network, messages: u64| {
            let outcomes = all(program, processes, network);
            assert!(
                outcomes.iter().all(|outcome| outcome.messages >= messages),
                "{outcomes:?}"
            );
        };
        least(Program::Reads(40), 2, 1, 40);
        least(Program::Writes(40), 3, 2, 40 + 2);
        let (rounds, messages, bytes) = (2, 5, 100_000);
        least(Program::ShortAllToAll { rounds, messages }, 3, 3, 2 * (10 + 2));
        least(Program::BulkAllToAll { rounds, bytes }, 2, 4, 2 * (7 + 1));
    }

    #[test]
    fn tasks_are_worked_off_by_all() {
        let work = Duration::from_millis(1);
        let outcomes = all(Program::Tasks { tasks: 60, work }, 3, 5);
        assert!(outcomes.iter().all(|outcome| outcome.failed_locks.is_some()));
        // One processor alone would need 60 ms, three 20 ms; the machine may have one.
        assert!(outcomes[0].run_time_s >= 0.019, "{outcomes:?}");
    }
}
