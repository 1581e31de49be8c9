//! Frames on a bus with CSMA/CD lose the time, and are given up, as `perturb_common::collisions` says, frame for frame.

use crate::support::{
    Context, Rig,
    choices::Choices,
    packet::{UDP, V4, udp},
};
use perturb_common::{
    abi::{Direction, Event},
    collisions::{Contention, Fate, contend},
    departure::{Load, Outcome, departure},
    units::Instant,
};
use perturb_dataplane::programs::Pacer;

const FRAMES: u64 = 2000;

fn profile(seed: u64, attempts: u32) -> String {
    format!(
        "version: 1\nseed: {seed}\nservers:\n  clock: {{ gap: 1ns }}\n  bus: {{ bandwidth: 10Mbit/s, latency: 1us, \
         collisions: {{ slot: 51.2us, attempts: {attempts} }} }}\n\
         classes:\n  - {{ name: all, match: {{}}, egress: [clock, bus] }}\n"
    )
}

fn frame(station: u8, bytes: usize) -> Vec<u8> {
    V4::new([10, 0, 0, station], [10, 0, 0, 200], UDP, udp(7, 9, bytes)).frame()
}

#[test]
fn frames_fare_as_the_seed_says() {
    for (pacer, attempts) in [(Pacer::Fq, 16), (Pacer::User, 4)] {
        let Some(mut rig) = Rig::new(&profile(7, attempts), pacer) else {
            return;
        };
        let config = rig.tables.servers[1];
        let table = rig.tables.collisions[0];
        let (mut contention, mut free) = (Contention::default(), Instant(0));
        let (mut lost_some, mut given_up) = (0, 0);
        let mut choices = Choices::new(attempts.into());
        for index in 0..FRAMES {
            // Alone at first, then ever more of them.
            let station = choices.below(1 + index / 100) as u8;
            let frame = frame(station, 20 + choices.below(1400) as usize);
            let ran = rig.send(Direction::Egress, &frame, Context::default());
            let arrival = Instant(rig.state("clock").free);
            let load = Load {
                bytes: frame.len() as u64,
                segments: 1,
            };
            let times = (arrival, free);
            match contend(&mut contention, &table, &config, station.into(), times, load) {
                Fate::Lost(lost) => {
                    let Outcome::Served(service) = departure(&config.server, free, arrival, load) else {
                        panic!("the bus has no buffer");
                    };
                    let service = service.delayed(lost, config.server.latency);
                    free = service.free;
                    lost_some += u32::from(lost.0 > 0);
                    assert_eq!(rig.departure(&ran), service.next.ceil_nanos().0, "frame {index}");
                }
                Fate::GivenUp => given_up += 1,
            }
            assert_eq!(rig.state("bus").free, free.0, "frame {index}");
            assert_eq!(rig.event(Event::Collided), given_up, "frame {index}");
        }
        let slot = rig.slot("bus");
        assert_eq!(rig.loader.maps().contention.get(&slot, 0).unwrap().0, contention);
        let counters = rig.counters(1).servers[1];
        assert_eq!((counters.losses, counters.packets), (given_up, FRAMES - given_up));
        assert!(
            lost_some > 100 && (given_up > 100) == (attempts == 4),
            "{lost_some} {given_up}"
        );
    }
}
