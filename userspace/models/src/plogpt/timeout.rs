//! Which transfers wait for a retransmission time-out (eq. 14), and the way back to decide it.
//!
//! Whether a transfer qualifies at its finish time `f` is known at `f + J` only, when nothing more can
//! enter within the jitter. Until then the simulation goes on as if it were not delayed. If it does
//! qualify, the simulation returns to a checkpoint before `f` and runs again with that decision made.
//! Checkpoints are taken as often as the work done pays for a copy of the state, so that both the
//! copies and the repeated work stay in proportion.

use std::collections::{BTreeSet, HashSet, VecDeque};

use perturb_stats::SplitMix64;

use super::input::Competitors;
use super::parameters::{Network, near, overflows};
use super::simulation::{OpTimes, Timeouts, same_instant};
use super::state::{Ended, Entered, Flow, State};

/// What eq. 14 needs to know of two transfers to one destination.
#[derive(Clone, Debug)]
struct Condition {
    /// `P_S` by the two heights.
    different: Vec<Vec<bool>>,
    /// `d(h)` by height, us.
    buffer_delay: Vec<f64>,
    competitors: Competitors,
    jitter: f64,
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
            buffer_delay: heights.map(|height| network.buffer_delay(height)).collect(),
            competitors: network.competitors,
            jitter: network.jitter,
        }
    }

    fn possible(&self) -> bool {
        self.different.iter().flatten().any(|different| *different)
    }

    /// `P_S` of two heights.
    fn different(&self, one: usize, other: usize) -> bool {
        self.different[one - 1][other - 1]
    }

    /// `P_B` of a transfer that ends with the rate that it has.
    fn fills(&self, flow: &Flow) -> bool {
        overflows(self.buffer_delay[flow.height - 1] * flow.rate, flow.bytes)
    }

    /// Whether two times are within the jitter of each other.
    fn near(&self, one: f64, other: f64) -> bool {
        near(one, other, self.jitter)
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
pub(super) struct Decisions {
    condition: Condition,
    /// Draws one of those that qualify together, if not all are delayed.
    draw: Option<SplitMix64>,
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

impl Decisions {
    /// The rule for a network; `None` if no transfer can ever be delayed.
    pub(super) fn new(network: &Network, timeouts: Timeouts) -> Option<Self> {
        let draw = match timeouts {
            Timeouts::Never => return None,
            Timeouts::AllThatQualify => None,
            Timeouts::OneOfThem { seed } => Some(SplitMix64::new(seed)),
        };
        let condition = Condition::new(network);
        condition.possible().then(|| Self {
            condition,
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
        let condition = &self.condition;
        let destination = flow.destination as usize;
        let fills = condition.fills(flow);
        let ended = &mut state.ended[destination];
        while ended
            .front()
            .is_some_and(|ended| ended.finish + condition.jitter < now)
        {
            ended.pop_front();
        }
        let competes = |height: usize| condition.different(flow.height, height);
        let met = fills
            && match condition.competitors {
                Competitors::Starting => state.entered[destination]
                    .iter()
                    .any(|other| condition.near(other.enter, now) && competes(other.height)),
                Competitors::Overlapping => {
                    ended.iter().any(|other| competes(other.height))
                        || state.to[destination]
                            .iter()
                            .any(|&slot| competes(state.flows[slot as usize].height))
                }
            };
        ended.push_back(Ended {
            op: flow.op,
            finish: now,
            height: flow.height,
            fills,
        });
        if met {
            self.qualifies(flow.op, now);
        }
    }

    /// Looks at a transfer that enters now, and at those that have just ended.
    pub(super) fn enters(&mut self, state: &mut State, flow: &Flow, now: f64) {
        let destination = flow.destination as usize;
        let entered = &mut state.entered[destination];
        while entered
            .front()
            .is_some_and(|entered| entered.enter + self.condition.jitter < now)
        {
            entered.pop_front();
        }
        entered.push_back(Entered {
            enter: now,
            height: flow.height,
        });
        for ended in &state.ended[destination] {
            let met = ended.fills
                && self.condition.near(now, ended.finish)
                && self.condition.different(ended.height, flow.height);
            if met {
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
            (Some(pending), Some(next)) if next < pending.finish + self.condition.jitter => {}
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
            Some(pending) => pending.finish.min(time - self.condition.jitter),
            None => time - self.condition.jitter,
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
                let chosen = (draw.bits() % pending.ops.len() as u64) as usize;
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
