//! The programs pass the verifier of the running kernel.
use perturb_common::{
    abi::{ABI_VERSION, CONTROL_VERSION},
    tables::Tables,
};
use perturb_dataplane::{
    maps::Maps,
    programs::{LoadOptions, Pacer, Program, Programs},
    room::Room,
};
use perturb_verdict::{or_end, root};

use crate::support::Rig;

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
            Program::Sent,
            Program::Received,
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

/// What another version's programs have counted is not read as this one's.
#[test]
fn another_versions_maps_are_refused() {
    let Some(mut rig) = Rig::new("{ version: 1, latency: 20ms }", Pacer::Fq) else {
        return;
    };
    let ids = Maps::ids(&rig.programs).unwrap();
    assert!(Maps::by_id(&ids).is_ok());
    let control = &mut rig.loader.maps_mut().control;
    control.set(CONTROL_VERSION, ABI_VERSION + 1, 0).unwrap();
    let said = Maps::by_id(&ids).err().unwrap().to_string();
    let versions = format!("version {}, this perturb has {ABI_VERSION}", ABI_VERSION + 1);
    assert!(
        said.contains(&versions) && said.contains("perturb clear"),
        "{said}"
    );
}
