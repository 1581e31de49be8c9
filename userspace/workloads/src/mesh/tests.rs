//! Processes on the loopback network.

use std::{
    cell::Cell,
    sync::{
        atomic::{AtomicBool, AtomicU64, Ordering},
        mpsc,
    },
    thread,
};

use super::*;

thread_local! {
    /// o of this thread's process: for each message that it sends or serves. It waits and burns nothing, so that the
    /// processes' processors are their own however few this machine has.
    pub(crate) static OVERHEAD: Cell<Duration> = const { Cell::new(Duration::ZERO) };
}

pub(super) fn overhead() {
    if !OVERHEAD.get().is_zero() {
        thread::sleep(OVERHEAD.get());
    }
}

/// Runs a program in each of some processes, with so many words.
fn run<T: Send>(
    size: usize,
    words: usize,
    program: impl Fn(&mut Process) -> Result<T, MeshError> + Sync,
) -> Vec<Result<T, MeshError>> {
    on_loopback(size, |rank, addresses| {
        Process::connect(rank, addresses, words)?.run(|process| program(process))
    })
}

#[test]
fn what_is_written_is_there_after_the_fence() {
    let seen = run(3, 700, |process| {
        let values: Vec<u64> = (0..600).map(|index| index + process.rank() as u64).collect();
        let next = (process.rank() + 1) % process.size();
        process.write_words(next, 100, &values)?;
        process.write(next, 7, 70)?;
        process.settle()?;
        let other = process.read_words((next + 1) % 3, 100, 600)?;
        Ok((process.load(7), process.loads(100, 600), other, process.traffic()))
    });
    for (rank, seen) in seen.into_iter().enumerate() {
        let (short, own, other, traffic) = seen.unwrap();
        assert_eq!(
            (short, own.len(), own[0], own[599]),
            (70, 600, (rank as u64 + 2) % 3, (rank as u64 + 2) % 3 + 599)
        );
        assert_eq!(other[0], (rank as u64 + 1) % 3);
        // 600 words are two messages, asked for by two, and answered by two, perhaps later.
        assert!((2..=4).contains(&traffic.bulk_messages), "{traffic:?}");
        assert!((2..=4).contains(&traffic.reads), "{traffic:?}");
        assert_eq!((traffic.barriers, traffic.failed_locks), (1, 0));
    }
}

#[test]
fn locks_exclude_each_other() {
    const TIMES: u64 = 50;
    let counts = run(3, 2, |process| {
        for _ in 0..TIMES {
            process.lock(1, 0)?;
            let count = process.read(1, 1)?;
            process.write(1, 1, count + 1)?;
            process.unlock(1, 0)?;
        }
        process.settle()?;
        Ok([process.read(1, 0)?, process.read(1, 1)?])
    });
    for count in counts {
        assert_eq!(count.unwrap(), [0, 3 * TIMES]);
    }
}

#[test]
fn everybody_knows_what_was_gathered_and_posted() {
    let seen = run(4, 0, |process| {
        let first = process.gather(process.rank() as u64)?;
        let second = process.gather(10 * process.rank() as u64)?;
        for peer in 0..process.size() {
            process.post(peer, &[process.rank() as u8])?;
        }
        let mut posts: Vec<u8> = (0..4)
            .map(|_| process.awaited().map(|(_, payload)| payload[0]))
            .collect::<Result<_, _>>()?;
        posts.sort_unstable();
        Ok((first, second, posts, process.posted(Duration::ZERO)?))
    });
    for seen in seen {
        assert_eq!(
            seen.unwrap(),
            (vec![0, 1, 2, 3], vec![0, 10, 20, 30], vec![0, 1, 2, 3], None)
        );
    }
}

#[test]
fn processes_that_flood_each_other_do_not_block() {
    // More than sockets hold, in both directions, with questions in between that the other side has to answer.
    let done = run(2, 512, |process| {
        let peer = 1 - process.rank();
        for round in 0..4_000 {
            process.write_words(peer, 0, &[round; 512])?;
            if round % 500 == 0 {
                process.read(peer, 0)?;
            }
        }
        process.settle()?;
        Ok(process.load(511))
    });
    assert!(done.into_iter().all(|last| last.unwrap() == 3_999));
}

#[test]
fn who_ends_early_is_missed_at_once() {
    let start = Instant::now();
    let ends = run(3, 0, |process| match process.rank() {
        1 => Err(MeshError::Silence),
        _ => process.barrier(),
    });
    assert!(matches!(ends[0], Err(MeshError::Lost(_))), "{ends:?}");
    assert!(matches!(ends[2], Err(MeshError::Lost(_))), "{ends:?}");
    assert!(start.elapsed() < PATIENCE / 2);
}

#[test]
fn a_place_outside_the_memory_is_refused() {
    let ends = run(2, 1, |process| match process.rank() {
        0 => process.read(1, 5).map(|_| ()),
        _ => process.barrier(),
    });
    assert!(
        matches!(ends[1], Err(MeshError::Unknown { from: 0, .. })),
        "{ends:?}"
    );
    assert!(ends[0].is_err());
}

/// Long enough for all that was sent to arrive.
const WHILE: Duration = Duration::from_millis(300);

#[test]
fn requests_wait_while_a_process_computes() {
    let computing = AtomicBool::new(true);
    let seen = run(2, 1, |process| {
        process.barrier()?;
        if process.rank() == 0 {
            thread::sleep(WHILE);
            computing.store(false, Ordering::Release);
            return Ok(false);
        }
        process.read(0, 0)?;
        Ok(computing.load(Ordering::Acquire))
    });
    // Its one processor serves nobody meanwhile.
    assert!(!seen.into_iter().any(Result::unwrap));
}

#[test]
fn all_that_came_is_served_before_a_send() {
    // More than is read at once.
    const WRITES: u64 = 40;
    let seen = run(2, LONGEST / 8, |process| {
        process.barrier()?;
        if process.rank() == 1 {
            for write in 1..=WRITES {
                process.write_words(0, 0, &[write; LONGEST / 8])?;
            }
            return Ok(WRITES);
        }
        thread::sleep(WHILE);
        process.post(1, &[])?;
        Ok(process.load(0))
    });
    for seen in seen {
        assert_eq!(seen.unwrap(), WRITES);
    }
}

#[test]
fn a_lock_whose_holder_has_died_ends_the_wait() {
    let ends = run(2, 1, |process| {
        if process.rank() == 1 {
            process.lock(0, 0)?;
            process.post(0, &[])?;
            return Err(MeshError::Silence);
        }
        process.awaited()?;
        process.lock(0, 0)
    });
    assert!(matches!(ends[0], Err(MeshError::Lost(1))), "{ends:?}");
}

#[test]
fn who_does_not_come_is_named() {
    // The second process of three is the last that comes, or greets with a number that none has.
    let ends = on_loopback(3, |rank, addresses| match rank {
        1 => {
            let mut stream = patiently(SocketAddr::new(addresses[0], PORT), PATIENCE).unwrap();
            stream.write_all(&7_u32.to_le_bytes()).unwrap();
            thread::sleep(3 * WHILE);
            Ok(())
        }
        _ => Process::connect_within(2 * WHILE, rank, addresses, 0).map(|_| ()),
    });
    for rank in [0, 2] {
        assert!(
            matches!(ends[rank], Err(MeshError::Absent { peer: 1, .. })),
            "{ends:?}"
        );
    }
}

#[test]
fn who_connects_and_says_nothing_is_not_waited_for() {
    let (over, is_over) = mpsc::channel();
    let is_over = Mutex::new(is_over);
    let took = on_loopback(2, |rank, addresses| {
        if rank == 0 {
            let begun = Instant::now();
            let connected = Process::connect_within(6 * WHILE, rank, addresses, 0);
            over.send(()).unwrap();
            return connected.map(|_| begun.elapsed());
        }
        let _silent = patiently(SocketAddr::new(addresses[0], PORT), PATIENCE).unwrap();
        let process = Process::connect_within(6 * WHILE, rank, addresses, 0);
        locked(&is_over).recv_timeout(20 * WHILE).unwrap();
        process.map(|_| WHILE)
    });
    for took in took {
        assert!(took.unwrap() < 6 * WHILE);
    }
}

#[test]
fn who_waits_for_those_who_have_ended_is_alone() {
    let ends = run(2, 0, |process| match process.rank() {
        0 => process.awaited().map(|_| ()),
        _ => {
            process.leave();
            Err(MeshError::Alone)
        }
    });
    assert!(matches!(ends[0], Err(MeshError::Alone)), "{ends:?}");
}

#[test]
#[ignore = "long: cargo xtask test --full"]
fn who_computes_for_long_is_waited_for() {
    let ends = run(2, 0, |process| {
        if process.rank() == 1 {
            thread::sleep(PATIENCE + 5 * WHILE);
        }
        process.gather(1)
    });
    for end in ends {
        assert_eq!(end.unwrap(), [1, 1]);
    }
}

#[test]
fn who_is_asked_for_its_lock_all_the_time_does_not_come_to_give_it_back() {
    // Live-lock: the handlers for some processes that ask at once take all time of the holder, which needs a value first.
    const TRIES: u64 = 8;
    const SPINNING: u64 = 6;
    let tries = AtomicU64::new(0);
    let seen = run(2 + SPINNING as usize, 1, |process| {
        if process.rank() == 0 {
            process.lock(0, 0)?;
        }
        process.barrier()?;
        OVERHEAD.set(Duration::from_millis(5));
        match process.rank() {
            0 => {
                thread::sleep(WHILE);
                process.read(1, 0)?;
                Ok(tries.load(Ordering::Acquire))
            }
            1 => Ok(TRIES * SPINNING),
            _ => {
                for _ in 0..TRIES {
                    process.swap(0, 0, 0, 1)?;
                    tries.fetch_add(1, Ordering::AcqRel);
                }
                Ok(TRIES * SPINNING)
            }
        }
    });
    for tries in seen {
        let tries = tries.unwrap();
        assert!(tries > TRIES * SPINNING * 2 / 3, "{tries} tries before the read");
    }
}
