//! What the simulation knows at an instant: ranks, transfers on the way, events to come.

use std::cmp::Ordering;
use std::collections::{BinaryHeap, VecDeque};

use super::input::Sharing;
use super::parameters::Network;
use super::program::{Op, Program};

/// A program that never ends.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "deadlock: {blocked} of the ranks never end; rank {rank} waits in operation {op} for its {target_name} \
     (operation {target}) with rank {peer}, {reason}"
)]
pub struct Deadlock {
    /// How many ranks never end.
    pub blocked: usize,
    /// The first of them.
    pub rank: u32,
    /// Index of its wait.
    pub op: usize,
    /// Index of the operation it waits for.
    pub target: usize,
    /// What that is.
    pub target_name: &'static str,
    /// The rank at the other end.
    pub peer: u32,
    /// Why it does not finish.
    pub reason: DeadlockReason,
}

/// Why an operation does not finish.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeadlockReason {
    /// Nobody sends.
    NoSend,
    /// The sender does not get there.
    SendNotReached,
}

impl std::fmt::Display for DeadlockReason {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str(match self {
            Self::NoSend => "which has no matching isend",
            Self::SendNotReached => "whose matching isend is never reached",
        })
    }
}

/// A rank between two of its operations.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rank {
    /// Its next operation, as an index into the program.
    pub next: u32,
    /// The operation after its last one.
    pub end: u32,
    /// Whether `next` is a wait that was entered.
    pub waiting: bool,
    /// Time-outs that delayed it so far.
    pub path: u32,
}

/// A transfer on the way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Flow {
    /// Its isend.
    pub op: u32,
    pub source: u32,
    pub destination: u32,
    /// Height of the common ancestor.
    pub height: usize,
    /// Its message's size `m`.
    pub bytes: f64,
    /// Bytes not yet sent at `since`.
    pub remaining: f64,
    /// Bytes per µs from `since` on.
    pub rate: f64,
    pub since: f64,
    /// Time-outs that delayed its sender so far.
    pub path: u32,
    /// Outdates the events of former rates.
    pub version: u32,
    /// Instant at which its rate was last looked at.
    pub looked: u64,
    /// Where it stands in the lists of its sender and its receiver.
    pub places: (u32, u32),
}

/// A transfer that has ended within the jitter.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ended {
    pub op: u32,
    pub finish: f64,
    pub height: usize,
    /// `P_B`.
    pub fills: bool,
}

/// A transfer that was entered within the jitter.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entered {
    pub enter: f64,
    pub height: usize,
}

/// What happens at an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum What {
    /// A transfer, by its slot, ends if it still has this version.
    Finish { flow: u32, version: u32 },
    /// A rank goes on.
    Wake { rank: u32 },
}

/// Something that happens.
#[derive(Clone, Copy, Debug)]
pub(super) struct Event {
    pub time: f64,
    pub what: What,
}

impl PartialEq for Event {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Event {}

impl PartialOrd for Event {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Event {
    /// The earliest event is the greatest, as the heap yields the greatest.
    fn cmp(&self, other: &Self) -> Ordering {
        other
            .time
            .total_cmp(&self.time)
            .then_with(|| other.what.cmp(&self.what))
    }
}

/// An edge, as an index into the counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Direction {
    Up,
    Down,
}

/// Where the edges of each height stand in the list of counts.
#[derive(Clone, Debug)]
pub(super) struct Edges {
    /// Start of each height, height 1 first, and the end.
    starts: Vec<usize>,
    /// Offset of the downward edges; 0 if both directions are one.
    down: usize,
}

impl Edges {
    pub(super) fn new(network: &Network) -> Self {
        let mut starts = vec![0];
        for height in 1..=network.heights() {
            let last = starts[height - 1];
            starts.push(last + (network.nodes as usize).div_ceil(1 << (height - 1)));
        }
        let end = starts[network.heights()];
        let down = if network.sharing == Sharing::FullDuplex {
            end
        } else {
            0
        };
        Self { starts, down }
    }

    pub(super) fn len(&self) -> usize {
        self.starts[self.starts.len() - 1] + self.down
    }

    /// The edge of `height` above `node`.
    pub(super) fn index(&self, node: u32, height: usize, direction: Direction) -> usize {
        let index = self.starts[height - 1] + (node as usize >> (height - 1));
        match direction {
            Direction::Up => index,
            Direction::Down => index + self.down,
        }
    }

    /// Height, first node below, and whether upward and downward transfers are on the edge.
    pub(super) fn place(&self, edge: usize) -> (usize, usize, bool, bool) {
        let end = self.starts[self.starts.len() - 1];
        let (index, up, down) = match (edge >= end, self.down == 0) {
            (true, _) => (edge - end, false, true),
            (false, both) => (edge, true, both),
        };
        let height = self.starts.partition_point(|start| *start <= index);
        (
            height,
            (index - self.starts[height - 1]) << (height - 1),
            up,
            down,
        )
    }
}

/// Everything that a checkpoint has to keep, but the times of the operations.
#[derive(Clone, Debug)]
pub(super) struct State {
    pub ranks: Vec<Rank>,
    pub flows: Vec<Flow>,
    /// Free slots of `flows`.
    pub free: Vec<u32>,
    /// Transfers on each edge.
    pub counts: Vec<u32>,
    /// Transfers on the way by sender.
    pub from: Vec<Vec<u32>>,
    /// Transfers on the way by receiver.
    pub to: Vec<Vec<u32>>,
    /// Transfers just ended by receiver, oldest first; kept only where time-outs are possible.
    pub ended: Vec<VecDeque<Ended>>,
    /// Transfers just entered by receiver, oldest first; kept as `ended` is.
    pub entered: Vec<VecDeque<Entered>>,
    pub events: BinaryHeap<Event>,
}

impl State {
    pub(super) fn new(program: &Program, edges: &Edges) -> Self {
        let ranks: Vec<Rank> = (0..program.ranks())
            .map(|rank| {
                let range = program.range(rank);
                Rank {
                    next: range.start as u32,
                    end: range.end as u32,
                    waiting: false,
                    path: 0,
                }
            })
            .collect();
        let nodes = ranks.len();
        let events = (0..program.ranks())
            .map(|rank| Event {
                time: 0.0,
                what: What::Wake { rank },
            })
            .collect();
        Self {
            ranks,
            flows: Vec::new(),
            free: Vec::new(),
            counts: vec![0; edges.len()],
            from: vec![Vec::new(); nodes],
            to: vec![Vec::new(); nodes],
            ended: vec![VecDeque::new(); nodes],
            entered: vec![VecDeque::new(); nodes],
            events,
        }
    }

    /// Rough number of things a copy of the state has to touch.
    pub(super) fn size(&self) -> usize {
        4 * self.ranks.len() + self.flows.len() + self.counts.len() + self.events.len()
    }

    /// Time of the next event that still stands.
    pub(super) fn next_time(&mut self) -> Option<f64> {
        while let Some(event) = self.events.peek() {
            if self.stands(event) {
                return Some(event.time);
            }
            self.events.pop();
        }
        None
    }

    pub(super) fn stands(&self, event: &Event) -> bool {
        match event.what {
            What::Finish { flow, version } => self.flows[flow as usize].version == version,
            What::Wake { .. } => true,
        }
    }

    /// Drops outdated events once they are the greater part.
    pub(super) fn compact(&mut self) {
        let live = self.flows.len() - self.free.len() + self.ranks.len();
        if self.events.len() > 4 * live + 1024 {
            let events = std::mem::take(&mut self.events).into_vec();
            self.events = events.into_iter().filter(|event| self.stands(event)).collect();
        }
    }

    /// Puts a transfer on the way; returns its slot.
    pub(super) fn insert(&mut self, flow: Flow) -> u32 {
        let slot = match self.free.pop() {
            Some(slot) => {
                let version = self.flows[slot as usize].version;
                self.flows[slot as usize] = Flow { version, ..flow };
                slot
            }
            None => {
                self.flows.push(flow);
                self.flows.len() as u32 - 1
            }
        };
        let from = &mut self.from[flow.source as usize];
        let to = &mut self.to[flow.destination as usize];
        self.flows[slot as usize].places = (from.len() as u32, to.len() as u32);
        from.push(slot);
        to.push(slot);
        slot
    }

    /// Takes a transfer off the way.
    pub(super) fn remove(&mut self, slot: u32) {
        let flow = &mut self.flows[slot as usize];
        flow.version += 1;
        let (source, destination, places) = (flow.source as usize, flow.destination as usize, flow.places);
        // The last of each list takes the place that becomes free.
        self.from[source].swap_remove(places.0 as usize);
        if let Some(&moved) = self.from[source].get(places.0 as usize) {
            self.flows[moved as usize].places.0 = places.0;
        }
        self.to[destination].swap_remove(places.1 as usize);
        if let Some(&moved) = self.to[destination].get(places.1 as usize) {
            self.flows[moved as usize].places.1 = places.1;
        }
        self.free.push(slot);
    }

    /// Why the program did not end, if it did not.
    pub(super) fn deadlock(&self, program: &Program) -> Option<Deadlock> {
        let mut blocked = (0..program.ranks()).filter(|rank| {
            let rank = &self.ranks[*rank as usize];
            rank.next < rank.end
        });
        let rank = blocked.next()?;
        let wait = self.ranks[rank as usize].next;
        let (_, op) = program.place(wait);
        let start = program.range(rank).start;
        let target = match program.ops()[wait as usize] {
            Op::Wait(target) => target as usize,
            // Only a wait blocks.
            Op::Isend { .. } | Op::Irecv { .. } | Op::Compute(_) => op,
        };
        let (target_name, peer) = match program.ops()[start + target] {
            Op::Isend { to, .. } => ("isend", to),
            Op::Irecv { from } => ("irecv", from),
            other => (other.name(), rank),
        };
        let reason = match program.partner((start + target) as u32) {
            Some(_) => DeadlockReason::SendNotReached,
            None => DeadlockReason::NoSend,
        };
        Some(Deadlock {
            blocked: 1 + blocked.count(),
            rank,
            op,
            target,
            target_name,
            peer,
            reason,
        })
    }
}
