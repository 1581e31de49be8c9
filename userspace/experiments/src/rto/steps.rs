//! A program's operations as what ranks do with real connections.
//!
//! A connection is a stream: a receive is complete when its bytes and those of all receives from the same rank that were
//! posted before have come, and a wait for a send waits for all sends to that rank that have begun. What a program does not
//! wait for is waited for at its end, so that nothing of it reaches into the next round.

use std::{collections::BTreeMap, time::Duration};

use perturb_models::plogpt::{Op, Program};
use perturb_workloads::collective::Step;

/// The steps of each rank.
pub(super) fn steps(program: &Program) -> Vec<Vec<Step>> {
    (0..program.ranks()).map(|rank| of_rank(program, rank)).collect()
}

fn of_rank(program: &Program, rank: u32) -> Vec<Step> {
    let range = program.range(rank);
    let bytes = |op: usize| program.bytes(op as u32).unwrap_or(0.0).round() as u64;
    let mut steps = Vec::new();
    // Bytes that are waited for by now, by sender; and whether all that was sent to a rank is.
    let mut received: BTreeMap<u32, u64> = BTreeMap::new();
    let mut sent: BTreeMap<u32, bool> = BTreeMap::new();
    let mut receive = |steps: &mut Vec<Step>, from: u32, until: u64| {
        let before = received.insert(from, until.max(received.get(&from).copied().unwrap_or(0)));
        let missing = until.saturating_sub(before.unwrap_or(0));
        if missing > 0 {
            let from = from as usize;
            steps.push(Step::Received { from, bytes: missing });
        }
    };
    let posted = |from: u32, until: usize| {
        let own = |op: &usize| program.ops()[*op] == Op::Irecv { from };
        (range.start..until).filter(own).map(bytes).sum()
    };
    for op in range.clone() {
        match program.ops()[op] {
            Op::Isend { to, .. } => {
                steps.push(Step::Send {
                    to: to as usize,
                    bytes: bytes(op),
                });
                sent.insert(to, false);
            }
            Op::Irecv { .. } => {}
            Op::Wait(target) => match program.ops()[range.start + target as usize] {
                Op::Isend { to, .. } => {
                    steps.push(Step::Sent(to as usize));
                    sent.insert(to, true);
                }
                Op::Irecv { from } => {
                    let until = posted(from, range.start + target as usize + 1);
                    receive(&mut steps, from, until);
                }
                Op::Wait(_) | Op::Compute(_) => {}
            },
            Op::Compute(us) => steps.push(Step::Compute(Duration::from_secs_f64(us / 1e6))),
        }
    }
    let begun = sent.into_iter().filter(|(_, waited)| !waited);
    steps.extend(begun.map(|(to, _)| Step::Sent(to as usize)));
    for from in 0..program.ranks() {
        let to_this = |op: &usize| matches!(program.ops()[*op], Op::Isend { to, .. } if to == rank);
        let all = program.range(from).filter(to_this).map(bytes).sum();
        receive(&mut steps, from, all);
    }
    steps
}

#[cfg(test)]
mod tests {
    use perturb_models::plogpt::{Beside, CollectiveKind, ProgramInput};
    use perturb_quantity::ByteSize;
    use perturb_workloads::collective::Algorithm;

    use super::{
        super::prediction::{Case, collective},
        *,
    };

    fn of(program: &ProgramInput, hosts: u32) -> Vec<Vec<Step>> {
        let profile = "version: 1\ntopology: { kind: star, link: { bandwidth: 8Mbit/s } }\n";
        let case = Case {
            profile: &perturb_profile::parse(profile).unwrap(),
            hosts,
            beside: &Beside::default(),
            program,
        };
        steps(&case.operations().unwrap())
    }

    fn parsed(ranks: &str) -> Vec<Vec<Step>> {
        let program: ProgramInput = serde_saphyr::from_str(&format!("ranks: {ranks}")).unwrap();
        of(&program, program.ranks.as_ref().unwrap().len() as u32)
    }

    #[test]
    fn collectives_are_those_of_the_workload() {
        for algorithm in [Algorithm::AlltoallA, Algorithm::AlltoallB, Algorithm::Incast] {
            for (rank, steps) in of(&collective(algorithm, 700), 6).into_iter().enumerate() {
                assert_eq!(steps, algorithm.steps(rank, 6, 700), "{algorithm:?}");
            }
        }
        let doubling = ProgramInput::collective(CollectiveKind::RecursiveDoubling, ByteSize(10.0));
        let bytes = 20;
        assert!(of(&doubling, 4)[0].contains(&Step::Received { from: 2, bytes }));
    }

    #[test]
    fn a_wait_is_for_what_was_posted_before_too() {
        let found = parsed(
            "[[{isend: {to: 1, size: 3B}}, {isend: {to: 1, size: 4B}}, {wait: 1}],
              [{irecv: {from: 0}}, {irecv: {from: 0}}, {wait: 1}, {wait: 0}, {compute: 2ms}]]",
        );
        let sends = [3, 4].map(|bytes| Step::Send { to: 1, bytes });
        assert_eq!(found[0], [sends[0], sends[1], Step::Sent(1)]);
        let compute = Step::Compute(Duration::from_millis(2));
        assert_eq!(found[1], [Step::Received { from: 0, bytes: 7 }, compute]);
    }

    #[test]
    fn nothing_reaches_into_the_next_round() {
        let found = parsed("[[{isend: {to: 1, size: 3B}}], [{irecv: {from: 0}}]]");
        assert_eq!(found[0], [Step::Send { to: 1, bytes: 3 }, Step::Sent(1)]);
        assert_eq!(found[1], [Step::Received { from: 0, bytes: 3 }]);
        // Nobody has posted a receive.
        let found = parsed("[[{isend: {to: 1, size: 3B}}, {wait: 0}], []]");
        assert_eq!(found[1], [Step::Received { from: 0, bytes: 3 }]);
    }
}
