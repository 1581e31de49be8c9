//! The model again, without any of the shortcuts: every event looks at all transfers, and every
//! decision about a time-out starts the program over.

use std::collections::{HashMap, HashSet};

use perturb_quantity::ByteSize;

use super::super::simulation::same_instant;
use super::super::*;

const SIZES: [f64; 4] = [0.0, 40.0, 200.0, 900.0];

/// Programs that end: a rank waits only for messages that stand earlier in one common order.
pub(super) fn ranks(nodes: u32, messages: &[(u32, u32, usize, bool)]) -> Vec<Vec<OpInput>> {
    let mut ranks: Vec<Vec<OpInput>> = vec![Vec::new(); nodes as usize];
    let mut open: Vec<Vec<u32>> = vec![Vec::new(); nodes as usize];
    for &(from, to, size, at_once) in messages {
        let (from, to) = (from % nodes, to % nodes);
        if from == to {
            continue;
        }
        let size = ByteSize(SIZES[size]);
        for (rank, op) in [
            (from, OpInput::Isend(Send { to, size })),
            (
                to,
                OpInput::Irecv(Receive {
                    from,
                    size: Some(size),
                }),
            ),
        ] {
            let list = &mut ranks[rank as usize];
            let index = list.len() as u32;
            list.push(op);
            if at_once {
                list.push(OpInput::Wait(index));
            } else {
                open[rank as usize].push(index);
            }
        }
    }
    for (list, open) in ranks.iter_mut().zip(open) {
        list.extend(open.into_iter().map(OpInput::Wait));
    }
    ranks
}

/// One message: its isend, who, how much, and when without time-out.
#[derive(Clone, Copy)]
struct Transfer {
    op: usize,
    source: u32,
    destination: u32,
    bytes: f64,
    /// Bytes per us when it ends.
    rate: f64,
    enter: f64,
    finish: f64,
}

pub(super) fn simulate(network: &Network, program: &Program, timeouts: Timeouts) -> Vec<OpTimes> {
    let mut delayed: HashSet<usize> = HashSet::new();
    let mut decided = -1.0;
    loop {
        let (times, transfers) = run(network, program, &delayed);
        if timeouts == Timeouts::Never {
            return times;
        }
        let found: Vec<&Transfer> = transfers
            .iter()
            .filter(|transfer| transfer.finish > decided && !same_instant(transfer.finish, decided))
            .filter(|one| transfers.iter().any(|other| qualifies(network, one, other)))
            .collect();
        let Some(first) = found.iter().map(|transfer| transfer.finish).reduce(f64::min) else {
            return times;
        };
        delayed.extend(
            found
                .iter()
                .filter(|transfer| same_instant(transfer.finish, first))
                .map(|transfer| transfer.op),
        );
        decided = first;
    }
}

fn qualifies(network: &Network, one: &Transfer, other: &Transfer) -> bool {
    let height = |transfer: &Transfer| Network::ancestor(transfer.source, transfer.destination);
    let (h1, h2) = (height(one), height(other));
    one.op != other.op
        && one.destination == other.destination
        && match network.competitors {
            Competitors::Starting => (other.enter - one.finish).abs() < network.jitter,
            Competitors::Overlapping => {
                other.enter < one.finish + network.jitter && one.finish <= other.finish + network.jitter
            }
        }
        && network.different_switches(h1, h2)
        && network.buffer_delay(h1) * one.rate < one.bytes
}

fn path(transfer: &Transfer) -> Vec<(bool, usize, u32)> {
    let height = Network::ancestor(transfer.source, transfer.destination);
    (1..=height)
        .flat_map(|height| {
            [
                (true, height, transfer.source >> (height - 1)),
                (false, height, transfer.destination >> (height - 1)),
            ]
        })
        .collect()
}

fn run(network: &Network, program: &Program, delayed: &HashSet<usize>) -> (Vec<OpTimes>, Vec<Transfer>) {
    let unknown = OpTimes {
        enter: f64::NAN,
        finish: f64::NAN,
        path: 0,
        timed_out: false,
    };
    let mut times = vec![unknown; program.ops().len()];
    let mut next: Vec<usize> = (0..program.ranks())
        .map(|rank| program.range(rank).start)
        .collect();
    let mut active: Vec<(Transfer, f64)> = Vec::new();
    let mut ended = Vec::new();
    let mut now = 0.0;
    loop {
        for rank in 0..program.ranks() {
            let range = program.range(rank);
            while next[rank as usize] < range.end {
                let op = next[rank as usize];
                if times[op].enter.is_nan() {
                    times[op].enter = now;
                }
                match program.ops()[op] {
                    Op::Isend { to, size } => {
                        let size = program.size(size);
                        let transfer = Transfer {
                            op,
                            source: rank,
                            destination: to,
                            bytes: size.bytes,
                            rate: f64::NAN,
                            enter: now,
                            finish: f64::NAN,
                        };
                        active.push((transfer, size.volume));
                    }
                    Op::Irecv { .. } => {}
                    Op::Wait(target) => {
                        let finish = times[range.start + target as usize].finish;
                        if !(finish <= now || same_instant(finish, now)) {
                            break;
                        }
                        times[op].finish = now;
                    }
                    Op::Compute(_) => unreachable!("not generated"),
                }
                next[rank as usize] += 1;
            }
        }
        let mut counts: HashMap<(bool, usize, u32), f64> = HashMap::new();
        for edge in active.iter().flat_map(|(transfer, _)| path(transfer)) {
            *counts.entry(edge).or_default() += 1.0;
        }
        let rates: Vec<f64> = active
            .iter()
            .map(|(transfer, _)| {
                path(transfer)
                    .iter()
                    .map(|edge| network.bandwidth(edge.1) / counts[edge])
                    .fold(f64::INFINITY, f64::min)
            })
            .collect();
        let ends = active
            .iter()
            .zip(&rates)
            .map(|((_, left), rate)| now + left / rate);
        let arrivals = times
            .iter()
            .map(|times| times.finish)
            .filter(|finish| *finish > now && !same_instant(*finish, now));
        let Some(then) = ends.chain(arrivals).reduce(f64::min) else {
            return (times, ended);
        };
        for ((_, left), rate) in active.iter_mut().zip(&rates) {
            *left -= rate * (then - now);
        }
        now = then;
        let (done, left): (Vec<_>, Vec<_>) = active
            .into_iter()
            .zip(&rates)
            .partition(|((_, left), rate)| same_instant(now + left / *rate, now));
        active = left.into_iter().map(|(transfer, _)| transfer).collect();
        for ((mut transfer, _), &rate) in done {
            transfer.finish = now;
            transfer.rate = rate;
            let timed_out = delayed.contains(&transfer.op);
            let finish = if timed_out { now + network.rto } else { now };
            times[transfer.op].finish = finish;
            times[transfer.op].timed_out = timed_out;
            if let Some(receive) = program.partner(transfer.op as u32) {
                times[receive as usize].finish = finish + network.latency;
            }
            ended.push(transfer);
        }
    }
}
