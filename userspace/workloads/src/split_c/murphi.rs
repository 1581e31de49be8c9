//! Murphi: all states that a protocol can reach, found and looked at, as the Murphi verifier does in parallel (Stern and
//! Dill 1997).
//!
//! A hash says which process a state belongs to. A process takes a state off its queue, applies each rule that it
//! permits, and sends what comes out to whom it belongs; that one puts it into its queue if it is new. There are no
//! rounds. The first process, when it has nothing to do, asks the others how many states they have sent and finished:
//! if all that were sent are finished, so is the search.
//! The protocol is [German's](protocol), a directory of caches; the thesis has that of SCI, whose states are larger.

mod protocol;

use std::{
    collections::{HashSet, VecDeque},
    time::Duration,
};

use perturb_stats::SplitMix64;

pub use self::protocol::MOST;
use self::protocol::Protocol;
use super::{Parallel, Part, SplitCError};
use crate::mesh::{MeshError, PATIENCE, Process};

/// The search.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Murphi {
    /// How many caches: 1 to [`MOST`].
    pub caches: u32,
}

/// Words that tell the others how far a process is.
const SENT: usize = 0;
const FINISHED: usize = 1;
/// Time between two questions of a process that has nothing to do.
const PAUSE: Duration = Duration::from_millis(2);

/// What was found out: states, applications of rules, a digest of the states.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Found {
    states: u64,
    steps: u64,
    digest: u64,
}

impl Found {
    fn add(&mut self, state: u64, steps: usize) {
        self.states += 1;
        self.steps += steps as u64;
        self.digest = self.digest.wrapping_add(mixed(state));
    }

    fn words(self) -> [u64; 3] {
        [self.states, self.steps, self.digest]
    }
}

fn mixed(state: u64) -> u64 {
    SplitMix64::new(state).bits()
}

/// What breaks the protocol's promise.
fn broken(state: u64) -> String {
    format!("state {state:#x} has an exclusive copy beside another one: the protocol is wrong")
}

/// A process' part of the search.
struct Search<'a> {
    process: &'a mut Process,
    known: HashSet<u64>,
    queue: VecDeque<u64>,
}

impl Search<'_> {
    /// Sends a state to whom it belongs.
    fn send(&mut self, state: u64) -> Result<(), MeshError> {
        let owner = (mixed(!state) % self.process.size() as u64) as usize;
        if owner == self.process.rank() {
            self.take(state);
            return Ok(());
        }
        self.process.store(SENT, self.process.load(SENT) + 1);
        self.process.post(owner, &state.to_le_bytes())
    }

    fn take(&mut self, state: u64) {
        if self.known.insert(state) {
            self.queue.push_back(state);
        }
    }

    /// Takes in what has come within so long; whether the search is over.
    fn receive(&mut self, mut patience: Duration) -> Result<(bool, u64), MeshError> {
        let mut taken = 0;
        while let Some((_, payload)) = self.process.posted(patience)? {
            let Some(state) = payload.first_chunk() else {
                return Ok((true, taken));
            };
            self.take(u64::from_le_bytes(*state));
            (taken, patience) = (taken + 1, Duration::ZERO);
        }
        Ok((false, taken))
    }

    /// Whether all that was sent is finished: first it is asked what is finished, then what was sent.
    fn over(&mut self) -> Result<bool, MeshError> {
        let mut sum = |word: usize| {
            (0..self.process.size()).try_fold(0, |sum, peer| Ok(sum + self.process.read(peer, word)?))
        };
        Ok(sum(FINISHED)? == sum(SENT)?)
    }
}

impl Parallel for Murphi {
    type Input = ();

    fn name(&self) -> &'static str {
        "murphi"
    }

    fn words(&self, _: usize) -> usize {
        2
    }

    fn values(&self) -> u64 {
        3
    }

    fn prepare(&self, _: &mut Process) -> Result<(), SplitCError> {
        Ok(())
    }

    fn compute(&self, process: &mut Process, (): &mut ()) -> Result<Part, SplitCError> {
        let protocol = Protocol(self.caches);
        let rank = process.rank();
        let mut search = Search {
            process,
            known: HashSet::new(),
            queue: VecDeque::new(),
        };
        let (mut found, mut next, mut pending) = (Found::default(), Vec::new(), 0);
        if rank == 0 {
            search.send(protocol.first())?;
        }
        loop {
            while let Some(state) = search.queue.pop_front() {
                if protocol.breaks(state) {
                    return Err(SplitCError::Wrong {
                        rank,
                        what: broken(state),
                    });
                }
                next.clear();
                protocol.next(state, &mut next);
                found.add(state, next.len());
                for state in &next {
                    search.send(*state)?;
                }
                pending += search.receive(Duration::ZERO)?.1;
            }
            // What came is finished, and all that followed from it is sent.
            let finished = search.process.load(FINISHED) + pending;
            search.process.store(FINISHED, finished);
            let patience = if rank == 0 { PAUSE } else { PATIENCE };
            let (over, taken) = search.receive(patience)?;
            pending = taken;
            if over {
                break;
            }
            if rank == 0 && taken == 0 && search.over()? {
                for peer in search.process.others() {
                    search.process.post(peer, &[])?;
                }
                break;
            }
        }
        let mut sums = [0; 3];
        for (sum, value) in sums.iter_mut().zip(found.words()) {
            *sum = process.gather(value)?.into_iter().fold(0, u64::wrapping_add);
        }
        Ok(match rank {
            0 => Part {
                first: 0,
                values: sums.to_vec(),
            },
            _ => Part::default(),
        })
    }

    fn check(&self, _: usize, part: &Part) -> Result<(), String> {
        if part.values.is_empty() {
            return Ok(());
        }
        let protocol = Protocol(self.caches);
        let (mut found, mut next) = (Found::default(), Vec::new());
        let mut known = HashSet::from([protocol.first()]);
        let mut queue = vec![protocol.first()];
        while let Some(state) = queue.pop() {
            if protocol.breaks(state) {
                return Err(broken(state));
            }
            next.clear();
            protocol.next(state, &mut next);
            found.add(state, next.len());
            queue.extend(next.iter().copied().filter(|state| known.insert(*state)));
        }
        part.equals(&found.words(), |value| value)
    }
}
