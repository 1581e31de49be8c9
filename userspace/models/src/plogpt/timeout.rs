//! Which transfers wait for a retransmission time-out (eq. 14), and the way back to decide it.
//!
//! Whether a transfer qualifies at its finish time `f` is known at `f + J` only, when nothing more can
//! enter within the jitter. Until then the simulation goes on as if it were not delayed. If it does
//! qualify, the simulation returns to a checkpoint before `f` and runs again with that decision made.
//! Checkpoints are taken as often as the work done pays for a copy of the state, so that both the
//! copies and the repeated work stay in proportion.

use std::collections::{BTreeSet, HashSet, VecDeque};

use super::network::Network;
use super::simulation::{OpTimes, Timeouts, same_instant};
use super::state::{Ended, Flow, State};

/// What eq. 14 needs to know of two transfers to one destination.
#[derive(Clone, Debug)]
struct Condition {
    /// `P_S` by the two heights.
    different: Vec<Vec<bool>>,
    /// Largest volume that does not overflow, by height.
    buffer: Vec<f64>,
}

impl Condition {
    fn new(network: &Network) -> Self {
        let heights = 1..=network.heights();
        Self {
            different: heights
                .clone()
                .map(|one| {
                    heights
                        .clone()
                        .map(|other| network.different_switches(one, other))
                        .collect()
                })
                .collect(),
            buffer: heights.map(|height| network.buffer_share(height)).collect(),
        }
    }

    fn possible(&self) -> bool {
        self.different.iter().flatten().any(|different| *different)
    }

    fn holds(&self, one: (usize, f64), other: (usize, f64)) -> bool {
        self.different[one.0 - 1][other.0 - 1] && one.1.min(other.1) > self.buffer[one.0.min(other.0) - 1]
    }
}

/// Transfers found to qualify at the earliest instant that is not yet decided.
#[derive(Clone, Debug)]
struct Pending {
    finish: f64,
    ops: BTreeSet<u32>,
}

/// A state to return to.
struct Checkpoint {
    time: f64,
    state: State,
    /// Length of the journal, counted from its very start.
    journal: usize,
}

/// Decides which transfers are delayed.
pub(super) struct TimeoutRule {
    condition: Condition,
    jitter: f64,
    /// Draws one of those that qualify together, if not all are delayed.
    draw: Option<SplitMix>,
    delayed: HashSet<u32>,
    /// Finish times up to this are final.
    decided: Option<f64>,
    pending: Option<Pending>,
    checkpoints: VecDeque<Checkpoint>,
    /// Former times of the operations that changed since the oldest checkpoint.
    journal: VecDeque<(u32, OpTimes)>,
    /// Entries dropped from the journal's front.
    dropped: usize,
    /// Work done since the last checkpoint.
    work: usize,
}

impl TimeoutRule {
    /// The rule for a network; `None` if no transfer can ever be delayed.
    pub(super) fn new(network: &Network, timeouts: Timeouts) -> Option<Self> {
        let draw = match timeouts {
            Timeouts::Never => return None,
            Timeouts::AllThatQualify => None,
            Timeouts::OneOfThem { seed } => Some(SplitMix(seed)),
        };
        let condition = Condition::new(network);
        condition.possible().then(|| Self {
            condition,
            jitter: network.jitter,
            draw,
            delayed: HashSet::new(),
            decided: None,
            pending: None,
            checkpoints: VecDeque::new(),
            journal: VecDeque::new(),
            dropped: 0,
            work: 0,
        })
    }

    /// Whether it is decided that a transfer is delayed.
    pub(super) fn delays(&self, op: u32) -> bool {
        self.delayed.contains(&op)
    }

    /// Counts work that would have to be repeated.
    pub(super) fn worked(&mut self, amount: usize) {
        self.work += amount;
    }

    /// Remembers what the times of an operation were.
    pub(super) fn changed(&mut self, op: u32, before: OpTimes) {
        self.journal.push_back((op, before));
    }

    /// Looks at a transfer that ends now, while it and all others that end now are still in `state`.
    pub(super) fn ends(&mut self, state: &mut State, flow: &Flow, now: f64) {
        let destination = flow.destination as usize;
        let own = (flow.height, flow.volume);
        let recent = &mut state.ended[destination];
        while recent
            .front()
            .is_some_and(|ended| ended.finish + self.jitter < now)
        {
            recent.pop_front();
        }
        let ended = Ended {
            op: flow.op,
            finish: now,
            height: flow.height,
            volume: flow.volume,
        };
        let met = recent
            .iter()
            .any(|other| self.condition.holds(own, (other.height, other.volume)))
            || state.to[destination].iter().any(|&slot| {
                let other = &state.flows[slot as usize];
                other.op != flow.op && self.condition.holds(own, (other.height, other.volume))
            });
        recent.push_back(ended);
        if met {
            self.qualifies(flow.op, now);
        }
    }

    /// Looks at a transfer that enters now, and at those that have just ended.
    pub(super) fn enters(&mut self, state: &State, flow: &Flow, now: f64) {
        for ended in &state.ended[flow.destination as usize] {
            // Abutting transfers do not meet without jitter.
            if now < ended.finish + self.jitter
                && self
                    .condition
                    .holds((ended.height, ended.volume), (flow.height, flow.volume))
            {
                self.qualifies(ended.op, ended.finish);
            }
        }
    }

    fn qualifies(&mut self, op: u32, finish: f64) {
        if self
            .decided
            .is_some_and(|decided| finish <= decided || same_instant(finish, decided))
        {
            return;
        }
        match &mut self.pending {
            Some(pending) if same_instant(pending.finish, finish) => {
                pending.ops.insert(op);
            }
            Some(pending) if pending.finish < finish => {}
            _ => {
                self.pending = Some(Pending {
                    finish,
                    ops: BTreeSet::from([op]),
                });
            }
        }
    }

    /// Before the instant `next` is worked on (`None` if there is none any more): either returns to
    /// an earlier state, and says so, or takes a checkpoint if it pays.
    pub(super) fn before(&mut self, state: &mut State, times: &mut [OpTimes], next: Option<f64>) -> bool {
        match (&self.pending, next) {
            (Some(pending), Some(next)) if next < pending.finish + self.jitter => {}
            (Some(_), _) => {
                self.decide(state, times);
                return true;
            }
            (None, None) => return false,
            (None, Some(_)) => {}
        }
        let Some(next) = next else {
            return false;
        };
        if self.checkpoints.is_empty() || self.work >= state.size() {
            self.checkpoint(state, next);
        }
        false
    }

    fn checkpoint(&mut self, state: &State, time: f64) {
        self.work = 0;
        // Everything that ended up to here is decided, or waits to be.
        let safe = match &self.pending {
            Some(pending) => pending.finish.min(time - self.jitter),
            None => time - self.jitter,
        };
        while self
            .checkpoints
            .get(1)
            .is_some_and(|second| earlier(second.time, safe))
        {
            self.checkpoints.pop_front();
        }
        if let Some(first) = self.checkpoints.front() {
            let stale = first.journal - self.dropped;
            self.journal.drain(..stale);
            self.dropped += stale;
        }
        self.checkpoints.push_back(Checkpoint {
            time,
            state: state.clone(),
            journal: self.dropped + self.journal.len(),
        });
    }

    /// Makes the pending decision and returns to the last checkpoint before it matters.
    fn decide(&mut self, state: &mut State, times: &mut [OpTimes]) {
        let Some(pending) = self.pending.take() else {
            return;
        };
        match &mut self.draw {
            None => self.delayed.extend(pending.ops),
            Some(draw) => {
                let chosen = draw.below(pending.ops.len() as u64) as usize;
                self.delayed.extend(pending.ops.iter().nth(chosen));
            }
        }
        self.decided = Some(pending.finish);
        while self.checkpoints.len() > 1
            && self
                .checkpoints
                .back()
                .is_some_and(|last| !earlier(last.time, pending.finish))
        {
            self.checkpoints.pop_back();
        }
        if let Some(last) = self.checkpoints.back() {
            state.clone_from(&last.state);
            let keep = last.journal - self.dropped;
            for (op, before) in self.journal.drain(keep..).rev() {
                times[op as usize] = before;
            }
        }
        self.work = 0;
    }
}

/// Whether a time is before another and not the same instant: there may be several rounds of events at
/// one time, and a checkpoint between them is too late for a transfer that ended in the first.
fn earlier(one: f64, other: f64) -> bool {
    one < other && !same_instant(one, other)
}

/// Steele, Lea and Flood's SplitMix64: small, seeded, and good enough to draw victims.
struct SplitMix(u64);

impl SplitMix {
    /// A number below `bound`; the bias of the remainder is below 2^-40 for any number of ranks.
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % bound
    }
}
