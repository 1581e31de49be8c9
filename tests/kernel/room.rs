//! The tables are as large as the profile needs, with room for it to grow: what they take, what is refused, and that
//! instances fit.

use std::{
    collections::{BTreeSet, HashMap},
    fmt::Write as _,
};

use crate::support::{
    Context, Rig, compiled,
    packet::{UDP, V4, udp},
};
use aya::maps::MapData;
use perturb_common::{
    abi::{Direction, Event, ServerCounters, ServerState},
    instance,
};
use perturb_dataplane::{loader::LoaderError, maps::Maps, programs::Pacer, room::Room};

/// A profile with so many classes and servers, one each.
fn profile(count: u32) -> String {
    let mut text = String::from("version: 1\nservers:\n");
    for server in 0..count {
        writeln!(text, "  s{server}: {{ latency: 1ms }}").unwrap();
    }
    text.push_str("classes:\n");
    for class in 0..count {
        writeln!(
            text,
            "  - {{ name: c{class}, match: {{ port: {} }}, egress: [s{class}] }}",
            1000 + class
        )
        .unwrap();
    }
    text
}

/// `flow` of 65,536, of 1242 bytes.
fn datagram(flow: u32) -> Vec<u8> {
    let [_, _, high, low] = flow.to_be_bytes();
    V4::new([10, 0, high, low], [192, 0, 2, 2], UDP, udp(7, 9, 1200)).frame()
}

#[test]
fn small_profile_takes_little() {
    let Some(rig) = Rig::with_flows("{ version: 1, latency: 20ms }", Pacer::Fq, 131_072) else {
        return;
    };
    let memory = rig.programs.memory().unwrap();
    eprintln!(
        "`latency: 20ms`: {} KiB, and {} KiB for each possible processor: {} KiB with 256 of them",
        memory.shared >> 10,
        memory.per_cpu >> 10,
        memory.with(256) >> 10
    );
    // Before the tables were sized by the profile it was 90 MB and 1.1 MB for each: 375 MB with 256.
    assert!(memory.shared < 24 << 20, "{memory:?}");
    assert!(memory.per_cpu < 24 << 10, "{memory:?}");
}

#[test]
fn large_profile_has_its_room() {
    let Some(mut rig) = Rig::with_flows(&profile(1500), Pacer::Fq, 4096) else {
        return;
    };
    let memory = rig.programs.memory().unwrap();
    eprintln!(
        "1500 classes: {} KiB, and {} KiB for each possible processor",
        memory.shared >> 10,
        memory.per_cpu >> 10
    );
    // Half as many again fit beside it, and it beside them.
    rig.load(&profile(2250));
    rig.load(&profile(1500));
    let wanted = V4::new([10, 0, 0, 1], [192, 0, 2, 2], UDP, udp(7, 2499, 58)).frame();
    rig.send(Direction::Egress, &wanted, Context::default());
    assert_eq!(rig.packets(1499, Direction::Egress), 1);
}

#[test]
fn update_that_needs_more_room_is_refused_and_changes_nothing() {
    let Some(mut rig) = Rig::new(&profile(3), Pacer::Fq) else {
        return;
    };
    rig.load(&profile(64));
    let error = rig.loader.load(&compiled(&profile(65))).unwrap_err();
    assert!(
        matches!(
            error,
            LoaderError::NoRoom {
                what: "servers",
                count: 65,
                room: 64
            }
        ),
        "{error:?}"
    );
    let text = error.to_string();
    assert!(
        text.contains("65 servers") && text.contains("clear it and apply the profile anew"),
        "{text}"
    );
    let per_flow = "version: 1\nservers: { s: { bandwidth: 1Mbit/s, scope: flow } }\nclasses:\n  - { name: all, match: {}, egress: [s] }\n";
    let error = rig.loader.load(&compiled(per_flow)).unwrap_err();
    assert!(matches!(error, LoaderError::NoRoom { room: 64, .. }), "{error:?}");
    // The 64th class is still in force.
    let last = V4::new([10, 0, 0, 1], [192, 0, 2, 2], UDP, udp(7, 1063, 58)).frame();
    rig.send(Direction::Egress, &last, Context::default());
    assert_eq!(
        (rig.packets(63, Direction::Egress), rig.event(Event::Unmatched)),
        (1, 0)
    );
}

#[test]
fn states_begin_at_cache_lines() {
    /// `BPF_F_MMAPABLE`: the values begin at a page.
    const FROM_A_PAGE: u32 = 1 << 10;
    let Some(rig) = Rig::new("{ version: 1, latency: 20ms }", Pacer::Fq) else {
        return;
    };
    assert_eq!(size_of::<ServerState>(), 64);
    let ids = serde_json::to_value(Maps::ids(&rig.programs).unwrap()).unwrap();
    for name in ["STATES", "INSTANCES", "FLOWS"] {
        let id = u32::try_from(ids[name].as_u64().unwrap()).unwrap();
        let info = MapData::from_id(id).unwrap().info().unwrap();
        assert_eq!(info.map_flags() & FROM_A_PAGE, FROM_A_PAGE, "{name}");
    }
}

/// Each packet occupies the server for some 10 s: all stay busy to the end of the test, on the slowest machine.
const PER_FLOW: &str = "version: 1\nhorizon: 60s\nlimits: { flows: 1024 }\nservers: { s: { bandwidth: 1kbit/s, scope: flow } }\nclasses:\n  - { name: all, match: {}, egress: [s] }\n";

/// As many flows as the profile remembers, all busy: each waits for its own packets, and for nobody else's.
#[test]
fn each_of_the_flows_that_fit_has_its_own_server() {
    for pacer in [Pacer::Fq, Pacer::User] {
        let Some(mut rig) = Rig::with_flows(PER_FLOW, pacer, 1024) else {
            return;
        };
        let mut before = HashMap::new();
        let mut steps = BTreeSet::new();
        for round in 1..=3u64 {
            for flow in 0..1024 {
                rig.send(Direction::Egress, &datagram(flow), Context::default());
            }
            let mut ordinals = Vec::new();
            for place in 0..instance::places(1024) {
                let state = rig.loader.maps().instances.get(&place, 0).unwrap().0;
                if state.name != 0 {
                    ordinals.push(state.ordinal);
                    let last = before.insert(state.name, state.free);
                    steps.extend(last.map(|last| state.free - last));
                }
            }
            ordinals.sort_unstable();
            assert!(ordinals.into_iter().eq(0..1024), "each instance has its number");
            assert_eq!(
                (before.len(), rig.event(Event::NoInstance)),
                (1024, 0),
                "{pacer:?}, round {round}"
            );
        }
        // One packet each more than before, which all take the same time: more than 5 s, of 64,000,000,000 ticks each.
        assert_eq!(steps.len(), 1, "{pacer:?}: {steps:?}");
        assert!(
            steps.first().is_some_and(|&step| step > 5 * 64_000_000_000),
            "{pacer:?}: {steps:?}"
        );
    }
}

/// Beyond that, what is idle makes room and what is busy stays; who finds no room is counted.
#[test]
fn busy_instances_stay_and_idle_ones_make_room() {
    let Some(mut rig) = Rig::with_flows(PER_FLOW, Pacer::Fq, 32) else {
        return;
    };
    for flow in 0..100 {
        rig.send(Direction::Egress, &datagram(flow), Context::default());
    }
    // 64 places, all busy: the first 64 flows keep theirs.
    assert_eq!(rig.event(Event::NoInstance), 36);
    for flow in 0..64 {
        rig.send(Direction::Egress, &datagram(flow), Context::default());
    }
    assert_eq!(rig.event(Event::NoInstance), 36);
    // Some become idle; others take their places.
    for place in 0..10 {
        let mut state = rig.loader.maps().instances.get(&place, 0).unwrap();
        state.0.free = 1 + u64::from(place);
        rig.loader.maps_mut().instances.set(place, state, 0).unwrap();
    }
    for flow in 100..120 {
        rig.send(Direction::Egress, &datagram(flow), Context::default());
    }
    assert_eq!(rig.event(Event::NoInstance), 46);
    let ordinals: Vec<u32> = (0..64)
        .map(|place| rig.loader.maps().instances.get(&place, 0).unwrap().0.ordinal)
        .collect();
    assert_eq!(ordinals.iter().filter(|&&ordinal| ordinal >= 64).count(), 10);
}

/// A profile with one server of this name, whose third packet is lost.
fn renamed(name: &str) -> String {
    format!(
        "version: 1\nservers: {{ {name}: {{ bandwidth: 100kbit/s, loss: {{ nth: [3] }} }} }}\n\
         classes: [{{ name: all, match: {{}}, egress: [{name}] }}]\n"
    )
}

/// A server with a new name begins idle and with its first packet, also in a slot that another one has left busy; the one before
/// keeps what it has, should its profile come back.
#[test]
fn a_new_server_begins_idle() {
    let Some(mut rig) = Rig::new(&renamed("s0"), Pacer::Fq) else {
        return;
    };
    // More than there are slots.
    let rounds = Room::of(&rig.tables).servers * 2 + 3;
    for round in 0..rounds {
        let name = format!("s{round}");
        if round > 0 {
            let before = format!("s{}", round - 1);
            let (slot, state) = (rig.slot(&before), rig.state(&before));
            let had = rig.loader.slots().clone();
            rig.load(&renamed(&name));
            assert_ne!(rig.slot(&name), slot, "the slot of a server in force");
            assert_eq!(rig.state(&name), ServerState::default(), "round {round}");
            assert_eq!(
                rig.counters(1).servers,
                [ServerCounters::default()],
                "round {round}"
            );
            if round % 2 == 1 {
                // Nobody confirms the change: the profile before comes back, with its state.
                rig.loader.go_back(had).unwrap();
                assert_eq!((rig.slot(&before), rig.state(&before)), (slot, state));
                rig.load(&renamed(&name));
            }
        }
        let losses = rig.event(Event::NthLoss);
        for packet in 1..=3 {
            rig.send(Direction::Egress, &datagram(packet), Context::default());
            assert_eq!(
                rig.event(Event::NthLoss) - losses,
                u64::from(packet == 3),
                "round {round}"
            );
        }
        let state = rig.state(&name);
        assert!(state.arrivals == 3 && state.free > 0, "{state:?}");
        assert_eq!(rig.counters(1).servers[0].packets, 3);
    }
}
