//! Programs on the loopback network.

use std::{fs, num::NonZeroUsize, thread, time::Duration};

use proptest::prelude::*;

use super::*;
use crate::mesh::on_loopback;

/// Small problems, by name.
fn programs() -> Vec<Program> {
    let radix = Radix {
        keys: 403,
        digit: 8,
        bulk: false,
        seed: 3,
    };
    let em3d = Em3d {
        nodes: 82,
        degree: 4,
        remote: 0.4,
        steps: 3,
        form: Form::Read,
        seed: 4,
    };
    vec![
        Program::Radix(radix.clone()),
        Program::Radix(Radix { bulk: true, ..radix }),
        Program::Sample(Sample {
            keys: 500,
            samples: 8,
            seed: 5,
        }),
        Program::Em3d(em3d.clone()),
        Program::Em3d(Em3d {
            form: Form::Write,
            ..em3d
        }),
        Program::Barnes(Barnes {
            bodies: 70,
            steps: 2,
            opening: 0.6,
            seed: 6,
        }),
        Program::PRay(PRay {
            side: 13,
            spheres: 60,
            cache: NonZeroUsize::new(9).unwrap(),
            seed: 7,
        }),
        Program::Connect(Connect {
            side: 31,
            connected: 0.4,
            seed: 8,
        }),
        Program::Murphi(Murphi { caches: 2 }),
        Program::NowSort(NowSort {
            records: 700,
            disk: None,
            directory: std::env::temp_dir(),
            seed: 9,
        }),
    ]
}

fn name(program: &Program) -> String {
    format!("{program:?}")
}

fn run_all(
    program: &Program,
    size: usize,
    meddle: impl Fn(&mut Part) + Sync,
) -> Vec<Result<Option<Outcome>, SplitCError>> {
    on_loopback(size, |rank, addresses| program.run_with(rank, addresses, &meddle))
}

fn outcome(program: &Program, size: usize) -> Outcome {
    let mut ends = run_all(program, size, |_| {});
    for end in &ends {
        assert!(end.is_ok(), "{program:?} on {size}: {end:?}");
    }
    ends.remove(0).unwrap().unwrap()
}

#[test]
fn answers_are_right_and_the_same_for_any_number_of_processes() {
    for program in programs() {
        let outcomes = [1, 2, 4].map(|size| outcome(&program, size));
        assert_eq!(outcomes[0].messages, 0, "{program:?}");
        for (outcome, size) in outcomes.iter().zip([1, 2, 4]) {
            assert!(outcome.checked && outcome.processes == size, "{outcome:?}");
            assert!(outcome.run_time_s > 0.0);
            // The graph of EM3D depends on the number of processes: which neighbors are remote.
            if !matches!(program, Program::Em3d(_)) {
                assert_eq!(outcome.answer, outcomes[0].answer, "{}", name(&program));
            }
        }
        assert!(outcomes[2].messages > 0);
    }
}

#[test]
fn the_forms_of_em3d_compute_the_same() {
    let answers: Vec<String> = programs()
        .iter()
        .filter(|program| matches!(program, Program::Em3d(_)))
        .map(|program| outcome(program, 3).answer)
        .collect();
    assert_eq!(answers[0], answers[1]);
}

#[test]
fn a_wrong_answer_is_caught() {
    for program in programs() {
        let last = on_loopback(2, |rank, addresses| {
            program.run_with(rank, addresses, |part| {
                // The only part of Murphi is the first process'.
                if (rank == 1 || matches!(program, Program::Murphi(_))) && !part.values.is_empty() {
                    part.values[0] ^= 1 << 62;
                }
            })
        });
        let said: Vec<String> = last.iter().map(|end| format!("{end:?}")).collect();
        assert!(last[0].is_err(), "{program:?}: {said:?}");
        assert!(
            last.iter()
                .any(|end| matches!(end, Err(SplitCError::Wrong { .. }))),
            "{program:?}: {said:?}"
        );
    }
}

#[test]
fn a_part_that_is_missing_is_caught() {
    let program = &programs()[0];
    let ends = run_all(program, 2, |part| {
        part.values.pop();
    });
    let Err(SplitCError::Incomplete { found, expected }) = ends[0] else {
        panic!("{ends:?}");
    };
    assert_eq!((found, expected), (401, 403));
}

#[test]
fn whatever_ends_now_sort_leaves_no_file() {
    let directory = tempfile::tempdir().unwrap();
    let program = Program::NowSort(NowSort {
        records: 2_000,
        disk: Some(1e6),
        directory: directory.path().into(),
        seed: 1,
    });
    let found = thread::scope(|scope| {
        let sorting = scope.spawn(|| outcome(&program, 2));
        let mut found = 0;
        while !sorting.is_finished() {
            found += fs::read_dir(&directory).unwrap().count();
            thread::sleep(Duration::from_millis(1));
        }
        sorting.join().unwrap();
        found
    });
    // What has no name goes with its process, even by SIGKILL.
    assert_eq!(found, 0);
}

/// Computes nothing, and takes a while to bring it in.
struct Slow;

const WHILE: Duration = Duration::from_secs(2);

impl Parallel for Slow {
    type Input = ();

    fn name(&self) -> &'static str {
        "slow"
    }

    fn words(&self, _: usize) -> usize {
        0
    }

    fn values(&self) -> u64 {
        0
    }

    fn prepare(&self, _: &mut Process) -> Result<(), SplitCError> {
        Ok(())
    }

    fn compute(&self, _: &mut Process, (): &mut ()) -> Result<Part, SplitCError> {
        Ok(Part::default())
    }

    fn collect(&self, _: &mut Process, (): (), part: Part) -> Result<Part, SplitCError> {
        thread::sleep(WHILE);
        Ok(part)
    }

    fn check(&self, _: usize, _: &Part) -> Result<(), String> {
        Ok(())
    }
}

#[test]
fn the_look_at_the_answer_takes_no_time_of_the_run() {
    let ends = on_loopback(2, |rank, addresses| run(&Slow, rank, addresses, |_| {}));
    let outcome = ends[0].as_ref().unwrap().as_ref().unwrap();
    assert!(outcome.run_time_s < WHILE.as_secs_f64(), "{outcome:?}");
}

#[test]
fn fewer_things_than_processes_are_refused() {
    let program = Program::Sample(Sample {
        keys: 2,
        samples: 1,
        seed: 0,
    });
    let ends = run_all(&program, 3, |_| {});
    for end in ends {
        let said = end.unwrap_err().to_string();
        assert!(said.contains("2 keys are too few for 3 processes"), "{said}");
    }
    let program = Program::Barnes(Barnes {
        bodies: 15,
        steps: 1,
        opening: 0.6,
        seed: 0,
    });
    for end in run_all(&program, 2, |_| {}) {
        let said = end.unwrap_err().to_string();
        assert!(said.contains("at least 8 for each"), "{said}");
    }
}

#[test]
fn programs_communicate_as_in_the_thesis() {
    let outcomes: Vec<Outcome> = programs().iter().map(|program| outcome(program, 4)).collect();
    let names = |of: fn(&Outcome) -> bool| -> Vec<&str> {
        let some = outcomes.iter().filter(|outcome| of(outcome));
        some.map(|outcome| outcome.program).collect()
    };
    // Murphi's first process asks as often as it finds nothing to do, and that depends on the machine.
    assert_eq!(
        names(|outcome| outcome.reads > 0 && outcome.program != "murphi"),
        ["em3d-read", "barnes", "p-ray", "connect"],
        "those that read more than 1 % in table 3.2"
    );
    assert_eq!(
        names(|outcome| outcome.bulk_messages > 0),
        ["radb", "barnes", "p-ray", "now-sort"],
        "those that send more than 1 % in bulk, but for Murphi, whose states are one word here"
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]
    #[test]
    fn sorts_sort(keys in 4_usize..300, size in 1_usize..5, digit in 1_u32..=8, bulk in any::<bool>(), seed in any::<u64>()) {
        let radix = Program::Radix(Radix { keys, digit, bulk, seed });
        let sample = Program::Sample(Sample { keys, samples: 4, seed });
        let records = NowSort { records: keys, disk: None, directory: std::env::temp_dir(), seed };
        let radix = outcome(&radix, size);
        // The same keys, sorted: the same answer, whichever way.
        prop_assert_eq!(radix.answer, outcome(&sample, size).answer);
        outcome(&Program::NowSort(records), size);
    }

    #[test]
    fn each_thing_lies_in_one_block(total in 1_usize..500, size in 1_usize..9) {
        prop_assume!(total >= size);
        let blocks = Blocks { total, size };
        let mut next = 0;
        for rank in 0..size {
            let range = blocks.range(rank);
            prop_assert_eq!(range.start, next);
            prop_assert!(!range.is_empty() && range.len() <= blocks.most());
            for thing in range.clone() {
                prop_assert_eq!(blocks.place(thing), (rank, thing - range.start));
            }
            next = range.end;
        }
        prop_assert_eq!(next, total);
    }
}
