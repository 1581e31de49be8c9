//! The steps on shared state, with all interleavings of two or three CPUs: `loom` runs the source that the programs run,
//! with its words exchanged for ones whose every order of loads and exchanges it tries.
//!
//!     cargo test -p perturb-common --test races

#![allow(clippy::unwrap_used, reason = "tests")]

use std::{
    cell::Cell,
    sync::{Mutex, atomic::AtomicBool},
};

use loom::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering, fence},
    },
    thread,
};
use perturb_common::{
    departure::{Load, Outcome, Server, Service, departure},
    shared::Word,
    slots::{self, Answer, Owner},
    steps::{self, Reserved},
    units::{Instant, MonoNanos, Ticks},
};

/// A word of a map.
#[derive(Clone)]
struct Shared(Arc<AtomicU64>);

impl Shared {
    fn new(value: u64) -> Self {
        Self(Arc::new(AtomicU64::new(value)))
    }
}

impl Word for Shared {
    fn load(&self) -> u64 {
        // Programs load plainly: kernels before 6.15 know no other load.
        self.0.load(Ordering::Relaxed)
    }

    fn compare_exchange(&self, old: u64, new: u64) -> u64 {
        let done = self
            .0
            .compare_exchange(old, new, Ordering::SeqCst, Ordering::SeqCst);
        done.unwrap_or_else(|seen| seen)
    }

    fn fetch_add(&self, amount: u64) -> u64 {
        self.0.fetch_add(amount, Ordering::SeqCst)
    }
}

/// The word that a loaded one names. All machines look at it after that one, and at no other word: the fence stands for that, and
/// orders no load behind the word.
fn named(words: &[Shared], index: usize) -> Option<Shared> {
    fence(Ordering::Acquire);
    words.get(index).cloned()
}

/// Tries all interleavings of the same work on so many CPUs; `finally` sees what each said.
fn on_cpus<T: Send + 'static>(
    cpus: u64,
    words: impl Fn() -> Vec<Shared> + Send + Sync + 'static,
    work: impl Fn(u64, &[Shared]) -> T + Clone + Send + Sync + 'static,
    finally: impl Fn(&[Shared], Vec<T>) + Send + Sync + 'static,
) {
    let mut search = loom::model::Builder::new();
    // All interleavings in which a CPU is interrupted so often while it could go on: more find nothing new, and take long.
    search.preemption_bound = Some(2);
    search.check(move || {
        let words = words();
        let others: Vec<_> = (1..cpus)
            .map(|cpu| {
                let (words, work) = (words.clone(), work.clone());
                thread::spawn(move || work(cpu, &words))
            })
            .collect();
        let mut said = vec![work(0, &words)];
        said.extend(others.into_iter().map(|other| other.join().unwrap()));
        finally(&words, said);
    });
}

fn none() {}

const SERVER: Server = Server {
    gap: Ticks(10),
    latency: Ticks(100),
    ..Server::IDLE
};
const PACKET: Load = Load {
    bytes: 100,
    segments: 1,
};

/// Crosses a server, with one exchange before it adds.
fn serve(free: &Shared, server: &Server, arrival: u64) -> Outcome {
    let arrival = Instant(arrival);
    steps::serve::<1, _>(
        free,
        arrival,
        |free| departure(server, free, arrival, PACKET),
        none,
    )
}

fn served(outcomes: Vec<Outcome>) -> Vec<Service> {
    let service = |outcome| match outcome {
        Outcome::Served(service) => Some(service),
        _ => None,
    };
    outcomes.into_iter().filter_map(service).collect()
}

/// No two packets are in service at one time, and none is before it arrives.
fn must_not_overlap(mut services: Vec<Service>) {
    services.sort_by_key(|service| service.free);
    for pair in services.windows(2) {
        assert!(pair[1].free.0 >= pair[0].free.0 + SERVER.gap.0, "{pair:?}");
    }
    for service in services {
        assert_eq!(service.next, service.free.after(SERVER.latency));
    }
}

#[test]
fn no_occupancy_is_lost_at_a_busy_server() {
    on_cpus(
        3,
        || vec![Shared::new(50)],
        |_, words| serve(&words[0], &SERVER, 7),
        |words, outcomes| {
            assert_eq!(words[0].load(), 50 + 3 * SERVER.gap.0);
            let services = served(outcomes);
            for service in &services {
                assert_eq!(service.backlog.0, service.free.0 - SERVER.gap.0 - 7);
            }
            assert_eq!(services.len(), 3);
            must_not_overlap(services);
        },
    );
}

#[test]
fn packets_of_an_idle_server_do_not_overlap() {
    on_cpus(
        3,
        || vec![Shared::new(0)],
        |cpu, words| (cpu, serve(&words[0], &SERVER, [1000, 20, 1500][cpu as usize])),
        |words, said| {
            for (cpu, outcome) in &said {
                let Outcome::Served(service) = outcome else {
                    panic!("dropped by {cpu}")
                };
                let start = service.free.0 - SERVER.gap.0;
                assert_eq!(start - service.backlog.0, [1000, 20, 1500][*cpu as usize]);
                assert!(service.free.0 <= words[0].load());
            }
            must_not_overlap(served(said.into_iter().map(|(_, outcome)| outcome).collect()));
        },
    );
}

/// Whoever adds without looking looks afterwards.
#[test]
fn neither_buffer_nor_horizon_is_exceeded() {
    for limits in [
        Server {
            buffer: Ticks(15),
            ..SERVER
        },
        Server {
            horizon: Ticks(15),
            ..SERVER
        },
    ] {
        on_cpus(
            3,
            || vec![Shared::new(0)],
            move |_, words| serve(&words[0], &limits, 0),
            |_, outcomes| {
                let services = served(outcomes);
                assert!(!services.is_empty());
                assert!(services.iter().all(|service| service.backlog.0 <= 15));
                must_not_overlap(services);
            },
        );
    }
}

/// What was given is never after what is given later, on whichever CPU.
#[test]
fn departures_are_in_order() {
    let order = |word: &Shared, time| steps::in_order::<1, _>(word, Instant(time), none).0;
    on_cpus(
        3,
        || vec![Shared::new(5)],
        move |cpu, words| {
            let time = 10 * (cpu + 1);
            let first = order(&words[0], time);
            assert!(first >= time);
            let second = order(&words[0], 0);
            assert!(second >= first, "{second} after {first}");
            second
        },
        move |words, said| {
            let last = order(&words[0], 0);
            assert!(said.iter().all(|&given| given <= last), "{said:?} before {last}");
        },
    );
}

/// Words that are written one by one change together under a lock; who does not get it knows.
#[test]
fn a_lock_is_one_cpus() {
    on_cpus(
        3,
        || (0..3).map(|_| Shared::new(0)).collect(),
        |_, words| {
            let locked = steps::lock::<2, _>(&words[0]);
            if locked {
                let one = words[1].load();
                assert_eq!(one, words[2].load());
                for word in &words[1..] {
                    word.0.store(one + 1, Ordering::Relaxed);
                }
                steps::unlock(&words[0]);
            }
            locked
        },
        |words, said| {
            let locked = said.into_iter().filter(|&locked| locked).count() as u64;
            assert!(locked > 0);
            let values: Vec<u64> = words.iter().map(Word::load).collect();
            assert_eq!(values, [0, locked, locked]);
        },
    );
}

/// The turns are the first word, the places the others.
fn reserve_and_tell(words: &[Shared], arrival: u64, contended: impl Fn()) -> Option<Reserved> {
    let place = |index: u32| named(words, index as usize + 1);
    steps::reserve(
        &words[0],
        place,
        words.len() as u32 - 1,
        Instant(arrival),
        contended,
    )
}

fn reserve(words: &[Shared], arrival: u64) -> Option<Reserved> {
    reserve_and_tell(words, arrival, none)
}

fn place(words: &[Shared], reserved: Reserved) -> &Shared {
    &words[1 + steps::place_of(reserved.turn, words.len() as u32 - 1) as usize]
}

fn take(words: &[Shared], reserved: Reserved, transmitted: u64) {
    steps::take(place(words, reserved), Instant(transmitted));
}

fn leave(words: &[Shared], reserved: Reserved, contended: impl Fn()) {
    steps::leave(&words[0], place(words, reserved), reserved, contended);
}

/// How many more packets find room before any has left.
fn room(words: &[Shared]) -> usize {
    let mut found = 0;
    while let Some(reserved) = reserve(words, 7) {
        take(words, reserved, 100);
        found += 1;
    }
    found
}

fn buffer(len: usize) -> Vec<Shared> {
    (0..=len).map(|_| Shared::new(0)).collect()
}

/// Of packets that come at one time as many find room as there is, whoever comes first.
#[test]
fn buffers_hold_as_many_packets_as_they_say() {
    for len in [1, 2] {
        on_cpus(
            3,
            move || buffer(len),
            |_, words| {
                let reserved = reserve(words, 7);
                if let Some(reserved) = reserved {
                    take(words, reserved, 100);
                }
                reserved.is_some()
            },
            move |words, said| {
                assert_eq!(said.into_iter().filter(|&room| room).count(), len);
                assert!(reserve(words, 99).is_none(), "nothing has left");
                // All leave.
                for _ in 0..len {
                    take(words, reserve(words, 100).unwrap(), 200);
                }
                assert!(reserve(words, 100).is_none());
            },
        );
    }
}

/// A packet that is dropped for another reason leaves its place to others. There is as much room as without it, or it is told
/// that the turns have moved on meanwhile; and never more.
#[test]
fn places_are_given_back() {
    static TOLD: AtomicBool = AtomicBool::new(false);
    for (cpus, leaving, len) in [(3, 1, 2), (2, 1, 2), (2, 1, 3)] {
        on_cpus(
            cpus,
            move || buffer(len),
            move |cpu, words| {
                let told = Cell::new(false);
                let tell = || told.set(true);
                let reserved = reserve_and_tell(words, 7, tell);
                match reserved {
                    Some(reserved) if cpu < leaving => leave(words, reserved, tell),
                    Some(reserved) => take(words, reserved, 100),
                    // All places were taken at one moment.
                    None => {}
                }
                (told.get(), reserved.is_some() && cpu >= leaving)
            },
            move |words, said| {
                let told = said.iter().any(|(told, _)| *told);
                TOLD.fetch_or(told, Ordering::Relaxed);
                let stayed = said.iter().filter(|(_, stayed)| *stayed).count();
                let room = room(words);
                assert!(
                    room + stayed == len || told && room + stayed < len,
                    "{stayed} of {len} stayed, and {room} find room: {said:?}"
                );
            },
        );
    }
    assert!(TOLD.load(Ordering::Relaxed), "nobody has ever moved on");
}

/// Who is dropped at a server leaves no trace there: a packet that arrives before it, as a launch time may have it, finds the
/// place as it was.
#[test]
fn a_place_that_is_given_back_is_as_it_was() {
    on_cpus(
        1,
        || buffer(1),
        |_, words| {
            let late = reserve(words, 1000).unwrap();
            leave(words, late, || panic!("nobody else is there"));
            let early = reserve(words, 7).expect("the buffer is empty");
            take(words, early, 20);
            let late = reserve(words, 1000).unwrap();
            leave(words, late, || panic!("nobody else is there"));
            assert_eq!(reserve(words, 19), None, "the one before is still there");
            assert!(reserve(words, 20).is_some());
        },
        |_, _| {},
    );
}

/// A place that is left when others have the turns behind it is passed over once, which is told.
#[test]
fn who_leaves_after_others_came_tells() {
    on_cpus(
        1,
        || buffer(3),
        |_, words| {
            let told = Cell::new(0);
            let tell = || told.set(told.get() + 1);
            let [first, second] = [0, 1].map(|_| reserve(words, 7).unwrap());
            leave(words, first, tell);
            assert_eq!(told.get(), 1);
            leave(words, second, tell);
            assert_eq!(told.get(), 1, "nobody has come behind this one");
            assert_eq!(reserve(words, 7).map(|reserved| reserved.turn), Some(second.turn));
        },
        |_, _| {},
    );
}

/// A slot has one owner; who comes too late gets nothing of another's.
#[test]
fn slots_have_one_owner() {
    // Held for so long that the slot of departure 1 may be another's.
    let now = MonoNanos(10_000_000_000);
    on_cpus(
        2,
        || {
            vec![
                Shared::new(0),
                Shared::new(Owner::new(MonoNanos(1), 1).0),
                Shared::new(0),
                Shared::new(0),
            ]
        },
        move |cpu, words| {
            let late = slots::give_back(&words[1], MonoNanos(1)) == Answer::Own;
            let departure = MonoNanos(now.0 + cpu);
            let word = |index: u32| words.get(1 + index as usize % 3).cloned();
            let index = slots::claim(&words[0], word, Owner::new(departure, 1), now);
            let own = word(index.expect("three slots")).unwrap();
            (late, slots::give_back(&own, departure) == Answer::Own)
        },
        |words, said| {
            assert!(said.iter().filter(|(late, _)| *late).count() <= 1);
            assert!(said.iter().all(|(_, own)| *own), "what was claimed was another's");
            let free = |word: &Shared| Owner(word.load()) == Owner::FREE;
            assert!(words[2..].iter().all(free));
        },
    );
}

/// A packet and its copy both find their slot, at one time or not.
#[test]
fn copies_share_a_slot() {
    on_cpus(
        2,
        || vec![Shared::new(Owner::new(MonoNanos(9), 2).0)],
        |_, words| slots::give_back(&words[0], MonoNanos(9)),
        |words, said| {
            assert_eq!(said, [Answer::Own; 2]);
            assert_eq!(Owner(words[0].load()), Owner::FREE);
        },
    );
}

/// The searches find what they look for: a server that reads and writes plainly loses occupancy.
#[test]
fn a_broken_step_is_caught() {
    static FOUND: Mutex<bool> = Mutex::new(false);
    on_cpus(
        2,
        || vec![Shared::new(0)],
        |_, words| {
            let free = words[0].load();
            words[0].0.store(free + 10, Ordering::Relaxed);
        },
        |words, _| *FOUND.lock().unwrap() |= words[0].load() != 20,
    );
    assert!(*FOUND.lock().unwrap());
}
