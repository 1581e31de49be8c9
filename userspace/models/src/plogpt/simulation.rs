//! The event-driven simulation: instants, not single events, so that what happens at one time happens
//! together.
//!
//! At an instant the transfers that end are taken off the way, the ranks that can go on run until
//! they have to wait, and then the rates of all transfers are looked at again that share an edge whose
//! count changed. An edge that is wide enough for all its transfers at full speed slows none of them,
//! so its changes are ignored; that is what makes trees without bottlenecks cheap.

use super::parameters::Network;
use super::program::{Op, Program, Size};
use super::state::{Deadlock, Direction, Edges, Event, Flow, Rank, State, What};
use super::timeout::Decisions;

/// Which of the transfers that qualify for a time-out are delayed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Timeouts {
    /// None: the network without losses.
    Never,
    /// All that qualify at the same instant: the worst case.
    AllThatQualify,
    /// One of those that qualify at the same instant, drawn evenly.
    OneOfThem {
        /// Seed of the draws.
        seed: u64,
    },
}

/// When an operation was entered and finished.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OpTimes {
    /// When its rank got there, µs; NaN if it never did.
    pub enter: f64,
    /// When it finished (a wait or computation: was left), µs; NaN if it never did.
    pub finish: f64,
    /// Time-outs on the chain of operations that led to `finish`.
    pub path: u32,
    /// Whether it is an isend that waited for a time-out.
    pub timed_out: bool,
}

const NOT_YET: OpTimes = OpTimes {
    enter: f64::NAN,
    finish: f64::NAN,
    path: 0,
    timed_out: false,
};

/// The times of a whole program.
#[derive(Clone, Debug, PartialEq)]
pub struct Timing {
    /// By operation, rank after rank.
    pub ops: Vec<OpTimes>,
    /// When the last operation finished, µs.
    pub total: f64,
    /// Time-outs on the chain of operations that led there; the most of several.
    pub path_timeouts: u32,
    /// Transfers that waited for a time-out.
    pub timeouts: u64,
}

/// Runs a program.
///
/// # Errors
/// When the program never ends.
pub fn simulate(network: &Network, program: &Program, timeouts: Timeouts) -> Result<Timing, Deadlock> {
    let edges = Edges::new(network);
    let simulation = Simulation {
        network,
        program,
        state: State::new(program, &edges),
        times: vec![NOT_YET; program.ops().len()],
        rule: Decisions::new(network, timeouts),
        touched_at: vec![0; edges.len()],
        touched: Vec::new(),
        fresh: Vec::new(),
        instant: 0,
        edges,
    };
    simulation.run()
}

/// Whether two times are one instant: rounding must not tear apart what is symmetric.
pub(super) fn same_instant(one: f64, other: f64) -> bool {
    (one - other).abs() <= 1e-6 + 1e-12 * one.abs().max(other.abs())
}

/// What became of the share of an edge.
#[derive(Clone, Copy)]
struct Change {
    height: usize,
    before: f64,
    after: f64,
}

struct Simulation<'input> {
    network: &'input Network,
    program: &'input Program,
    edges: Edges,
    state: State,
    times: Vec<OpTimes>,
    rule: Option<Decisions>,
    /// Number of the current instant, never reused.
    instant: u64,
    /// Edges whose count was changed at this instant, and their counts before.
    touched: Vec<(usize, u32)>,
    touched_at: Vec<u64>,
    /// Transfers that entered at this instant.
    fresh: Vec<u32>,
}

impl Simulation<'_> {
    fn run(mut self) -> Result<Timing, Deadlock> {
        let (mut ending, mut ready) = (Vec::new(), Vec::new());
        loop {
            let next = self.state.next_time();
            if let Some(rule) = &mut self.rule
                && rule.before(&mut self.state, &mut self.times, next)
            {
                continue;
            }
            let Some(now) = next else {
                break;
            };
            self.instant += 1;
            while let Some(event) = self.state.events.peek().copied() {
                if event.time > now && !same_instant(event.time, now) {
                    break;
                }
                self.state.events.pop();
                match event.what {
                    What::Finish { flow, .. } if self.state.stands(&event) => ending.push(flow),
                    What::Finish { .. } => {}
                    What::Wake { rank } => ready.push(rank),
                }
            }
            if let Some(rule) = &mut self.rule {
                rule.worked(ending.len() + ready.len());
            }
            self.end(&ending, &mut ready, now);
            ready.sort_unstable();
            for rank in ready.drain(..) {
                self.proceed(rank, now);
            }
            ending.clear();
            self.share(now);
            self.state.compact();
        }
        match self.state.deadlock(self.program) {
            Some(deadlock) => Err(deadlock),
            None => Ok(self.timing()),
        }
    }

    /// Ends transfers; ranks that waited for them become ready or get their wake-up.
    fn end(&mut self, ending: &[u32], ready: &mut Vec<u32>, now: f64) {
        if let Some(rule) = &mut self.rule {
            for &slot in ending {
                let flow = self.state.flows[slot as usize];
                rule.ends(&mut self.state, &flow, now);
            }
        }
        for &slot in ending {
            let flow = self.state.flows[slot as usize];
            self.state.remove(slot);
            self.count(&flow, false);
            let timed_out = self.rule.as_ref().is_some_and(|rule| rule.delays(flow.op));
            let (finish, path) = if timed_out {
                (now + self.network.rto, flow.path + 1)
            } else {
                (now, flow.path)
            };
            self.finish(flow.source, flow.op, finish, path, timed_out, ready, now);
            if let Some(receive) = self.program.partner(flow.op) {
                let arrival = finish + self.network.latency;
                self.finish(flow.destination, receive, arrival, path, false, ready, now);
            }
        }
    }

    #[expect(
        clippy::too_many_arguments,
        reason = "all of them are the outcome of one transfer"
    )]
    fn finish(
        &mut self,
        rank: u32,
        op: u32,
        finish: f64,
        path: u32,
        timed_out: bool,
        ready: &mut Vec<u32>,
        now: f64,
    ) {
        let enter = self.times[op as usize].enter;
        self.record(
            op,
            OpTimes {
                enter,
                finish,
                path,
                timed_out,
            },
        );
        let waiter = &self.state.ranks[rank as usize];
        if waiter.waiting && self.target(rank) == Some(op) {
            if finish > now {
                self.state.events.push(Event {
                    time: finish,
                    what: What::Wake { rank },
                });
            } else {
                ready.push(rank);
            }
        }
    }

    /// The operation that a rank's next operation waits for.
    fn target(&self, rank: u32) -> Option<u32> {
        match self.program.ops()[self.state.ranks[rank as usize].next as usize] {
            Op::Wait(target) => Some(self.program.range(rank).start as u32 + target),
            Op::Isend { .. } | Op::Irecv { .. } | Op::Compute(_) => None,
        }
    }

    fn record(&mut self, op: u32, times: OpTimes) {
        let before = std::mem::replace(&mut self.times[op as usize], times);
        if let Some(rule) = &mut self.rule {
            rule.changed(op, before);
        }
    }

    /// Runs a rank until it waits or ends.
    fn proceed(&mut self, rank: u32, now: f64) {
        loop {
            let Rank {
                next,
                end,
                waiting,
                path,
            } = self.state.ranks[rank as usize];
            if next == end {
                return;
            }
            match self.program.ops()[next as usize] {
                Op::Isend { to, size } => {
                    self.record(
                        next,
                        OpTimes {
                            enter: now,
                            path,
                            ..NOT_YET
                        },
                    );
                    self.send(next, rank, to, self.program.size(size), path, now);
                }
                Op::Irecv { .. } => {
                    // Its message may have arrived before.
                    let times = OpTimes {
                        enter: now,
                        ..self.times[next as usize]
                    };
                    self.record(next, times);
                }
                Op::Compute(time) => {
                    if !waiting {
                        self.record(
                            next,
                            OpTimes {
                                enter: now,
                                finish: now + time,
                                path,
                                timed_out: false,
                            },
                        );
                        self.block(rank, Some(now + time));
                        return;
                    }
                }
                Op::Wait(target) => {
                    let done = self.times[self.program.range(rank).start + target as usize];
                    let enter = if waiting {
                        self.times[next as usize].enter
                    } else {
                        now
                    };
                    if !(done.finish <= now || same_instant(done.finish, now)) {
                        self.record(
                            next,
                            OpTimes {
                                enter: now,
                                path,
                                ..NOT_YET
                            },
                        );
                        self.block(rank, Some(done.finish).filter(|finish| finish.is_finite()));
                        return;
                    }
                    // What finished before it was waited for is not on the path.
                    let path = if same_instant(done.finish.max(enter), enter) {
                        if same_instant(done.finish, enter) {
                            path.max(done.path)
                        } else {
                            path
                        }
                    } else {
                        done.path
                    };
                    self.state.ranks[rank as usize].path = path;
                    self.record(
                        next,
                        OpTimes {
                            enter,
                            finish: now,
                            path,
                            timed_out: false,
                        },
                    );
                }
            }
            let state = &mut self.state.ranks[rank as usize];
            state.next += 1;
            state.waiting = false;
        }
    }

    /// Lets a rank wait, until a known time or until its operation finishes.
    fn block(&mut self, rank: u32, until: Option<f64>) {
        self.state.ranks[rank as usize].waiting = true;
        if let Some(time) = until {
            self.state.events.push(Event {
                time,
                what: What::Wake { rank },
            });
        }
    }

    fn send(&mut self, op: u32, source: u32, destination: u32, size: Size, path: u32, now: f64) {
        let flow = Flow {
            op,
            source,
            destination,
            height: Network::ancestor(source, destination),
            bytes: size.bytes,
            remaining: size.volume,
            rate: 0.0,
            since: now,
            path,
            version: 0,
            looked: 0,
            places: (0, 0),
        };
        if let Some(rule) = &mut self.rule {
            rule.enters(&mut self.state, &flow, now);
        }
        let slot = self.state.insert(flow);
        self.count(&flow, true);
        self.fresh.push(slot);
    }

    /// Counts a transfer in or out on all its edges.
    fn count(&mut self, flow: &Flow, enters: bool) {
        for height in 1..=flow.height {
            for edge in [
                self.edges.index(flow.source, height, Direction::Up),
                self.edges.index(flow.destination, height, Direction::Down),
            ] {
                let count = &mut self.state.counts[edge];
                if self.touched_at[edge] != self.instant {
                    self.touched_at[edge] = self.instant;
                    self.touched.push((edge, *count));
                }
                if enters {
                    *count += 1;
                } else {
                    *count -= 1;
                }
            }
        }
    }

    /// Shares the edges whose counts changed among the transfers on them.
    fn share(&mut self, now: f64) {
        let touched = std::mem::take(&mut self.touched);
        let full_speed = if self.edges.len() > 0 {
            self.network.bandwidth(1)
        } else {
            0.0
        };
        for &(edge, before) in &touched {
            let after = self.state.counts[edge];
            if before == after {
                continue;
            }
            let (height, first, up, down) = self.edges.place(edge);
            let bandwidth = self.network.bandwidth(height);
            if full_speed * f64::from(before.max(after)) <= bandwidth {
                continue;
            }
            let change = Change {
                height,
                before: bandwidth / f64::from(before),
                after: bandwidth / f64::from(after),
            };
            let last = (first + (1 << (height - 1))).min(self.state.from.len());
            for node in first..last {
                if up {
                    self.look_at_all(node, Direction::Up, change, now);
                }
                if down {
                    self.look_at_all(node, Direction::Down, change, now);
                }
            }
        }
        for slot in std::mem::take(&mut self.fresh) {
            self.look_at(slot, now);
        }
        self.touched = touched;
        self.touched.clear();
    }

    /// Looks at the transfers of a node to which a changed share can make a difference.
    fn look_at_all(&mut self, node: usize, direction: Direction, change: Change, now: f64) {
        let list = |state: &State, index: usize| match direction {
            Direction::Up => state.from[node].get(index).copied(),
            Direction::Down => state.to[node].get(index).copied(),
        };
        let mut index = 0;
        while let Some(slot) = list(&self.state, index) {
            let flow = &self.state.flows[slot as usize];
            // It was this edge that limited it, or it is now. Rates are shares, so equality is exact.
            if flow.height >= change.height && (flow.rate == change.before || flow.rate > change.after) {
                self.look_at(slot, now);
            }
            index += 1;
        }
    }

    /// Gives a transfer its rate and, if that is new, its finish time.
    fn look_at(&mut self, slot: u32, now: f64) {
        let flow = &mut self.state.flows[slot as usize];
        if flow.looked == self.instant {
            return;
        }
        flow.looked = self.instant;
        let mut rate = f64::INFINITY;
        for height in 1..=flow.height {
            let up = self.edges.index(flow.source, height, Direction::Up);
            let down = self.edges.index(flow.destination, height, Direction::Down);
            let count = self.state.counts[up].max(self.state.counts[down]);
            rate = rate.min(self.network.bandwidth(height) / f64::from(count));
        }
        if rate == flow.rate {
            return;
        }
        flow.remaining = (flow.remaining - flow.rate * (now - flow.since)).max(0.0);
        flow.since = now;
        flow.rate = rate;
        flow.version += 1;
        let what = What::Finish {
            flow: slot,
            version: flow.version,
        };
        self.state.events.push(Event {
            time: now + flow.remaining / rate,
            what,
        });
        if let Some(rule) = &mut self.rule {
            rule.worked(1);
        }
    }

    fn timing(self) -> Timing {
        let (mut total, mut path_timeouts, mut timeouts) = (0.0_f64, 0, 0);
        for times in &self.times {
            // An irecv that nothing matches never finishes; nobody waits for it.
            let finish = times.finish.max(times.enter);
            if same_instant(finish, total) {
                path_timeouts = path_timeouts.max(times.path);
                total = total.max(finish);
            } else if finish > total {
                (total, path_timeouts) = (finish, times.path);
            }
            timeouts += u64::from(times.timed_out);
        }
        Timing {
            ops: self.times,
            total,
            path_timeouts,
            timeouts,
        }
    }
}
