//! The programs pass the verifier of the running kernel.
use perturb_common::tables::Tables;
use perturb_dataplane::{
    programs::{LoadOptions, Pacer, Program, Programs},
    room::Room,
};
use perturb_verdict::{or_end, root};

#[test]
fn every_program_loads_for_both_pacers() {
    or_end!(root());
    for pacer in [Pacer::Fq, Pacer::User] {
        let mut programs = Programs::load(LoadOptions {
            pacer,
            room: Room::of(&Tables::default()),
            verbose: true,
        })
        .unwrap();
        for program in [
            Program::Idle,
            Program::Stamp,
            Program::Egress,
            Program::Ingress,
            Program::Release,
            Program::Discard,
        ] {
            let start = std::time::Instant::now();
            match programs.program(program) {
                Ok(p) => eprintln!(
                    "{pacer:?} {program:?}: {:?} insns verified, {:?}",
                    p.info().unwrap().verified_instruction_count(),
                    start.elapsed()
                ),
                Err(e) => {
                    let s = format!("{e:?}");
                    let n = s.len();
                    panic!(
                        "{program:?}: {}",
                        &s[n.saturating_sub(6000)..].replace("\\n", "\n")
                    )
                }
            }
        }
        programs.steering().unwrap();
    }
}
