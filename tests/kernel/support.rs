//! Runs the programs on packets made by hand: `BPF_PROG_TEST_RUN` in a network namespace of the
//! test's own, with a veth pair where packets are held in earnest.
//!
//! The kernel gives every such packet a socket, so both directions take the way of a local sender:
//! the packet is cloned into the hold device and the original consumed. What the program did is
//! read off the original, which carries the same stamps.

#![allow(dead_code, reason = "each test binary uses its part")]
#![allow(clippy::unwrap_used, reason = "tests")]

pub(crate) mod batches;
pub(crate) mod cgroup;
pub(crate) mod choices;
pub(crate) mod headers;
pub(crate) mod lines;
pub(crate) mod oracle;
pub(crate) mod packet;
pub(crate) mod sink;
pub(crate) mod steps;

use aya::programs::{ProgramError, SchedClassifier, TestRun as _, TestRunOptions};
use perturb_common::{
    abi::{
        Attachment, CONTROL_CLASSES, CONTROL_SIGHT, CONTROL_SNAP, Direction, Event, HELD_ALL, MAX_BOUNDS,
        MAX_CLASSES, MAX_PATHS, MAX_RULES, MAX_SERVERS, MAX_VECTORS, ServerState, class_counter,
    },
    flow::WAYS,
    instance,
    memory::Held,
    tables::Tables,
};
use perturb_dataplane::{
    counters::Counters,
    loader::Loader,
    maps::{Maps, Sightings, Wire},
    netlink::{Netlink, VethPair},
    programs::{LoadError, LoadOptions, Pacer, Program, Programs},
    room::Room,
};
use perturb_verdict::{conclude, root, skipped};

/// `TC_ACT_UNSPEC`: the packet goes on untouched.
pub(crate) const PASS: i32 = -1;
/// `TC_ACT_REDIRECT`: the packet is held (or, to nowhere, consumed).
pub(crate) const REDIRECT: i32 = 7;
/// Ifindex of the loopback device, where test packets are by default.
pub(crate) const LOOPBACK: u32 = 1;

/// What the kernel lets a test say of a packet, and what it says afterwards: `struct __sk_buff`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(crate) struct Context {
    pub(crate) unused_1: [u32; 2],
    pub(crate) mark: u32,
    pub(crate) unused_2: [u32; 5],
    pub(crate) priority: u32,
    pub(crate) ingress_ifindex: u32,
    pub(crate) ifindex: u32,
    pub(crate) unused_3: u32,
    pub(crate) cb: [u32; 5],
    pub(crate) unused_4: [u32; 21],
    pub(crate) tstamp: u64,
    pub(crate) wire_len: u32,
    pub(crate) gso_segs: u32,
    pub(crate) unused_5: [u32; 2],
    pub(crate) gso_size: u32,
    pub(crate) unused_6: u32,
    pub(crate) hwtstamp: u64,
}

impl Context {
    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: plain integers without padding.
        unsafe { std::slice::from_raw_parts((&raw const *self).cast(), size_of::<Self>()) }
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: plain integers without padding, for which any bytes are valid.
        unsafe { std::slice::from_raw_parts_mut((&raw mut *self).cast(), size_of::<Self>()) }
    }
}

/// What a run did to a packet.
#[derive(Clone, Debug)]
pub(crate) struct Ran {
    pub(crate) action: i32,
    pub(crate) context: Context,
    pub(crate) data: Vec<u8>,
}

/// Runs a loaded program once.
pub(crate) fn run(program: &SchedClassifier, data: &[u8], context: Context) -> Result<Ran, ProgramError> {
    let mut after = Context::default();
    let mut out = vec![0; data.len() + 64];
    let result = program.test_run(TestRunOptions {
        data_in: Some(data),
        data_out: Some(&mut out),
        ctx_in: Some(context.bytes()),
        ctx_out: Some(after.bytes_mut()),
        ..TestRunOptions::default()
    })?;
    out.truncate(result.data_size_out as usize);
    Ok(Ran {
        action: result.return_value.cast_signed(),
        context: after,
        data: out,
    })
}

/// A veth pair that is up; the indices of its ends.
pub(crate) fn pair(netlink: &mut Netlink, names: [&str; 2]) -> [u32; 2] {
    netlink.add_veth(&VethPair::new(names[0], names[1])).unwrap();
    for name in names {
        netlink.set_quiet(name).unwrap();
        netlink.set_up(name).unwrap();
    }
    names.map(|name| netlink.link(name).unwrap().unwrap().index)
}

/// Programs, tables and devices of one test.
pub(crate) struct Rig {
    pub(crate) programs: Programs,
    pub(crate) loader: Loader,
    pub(crate) tables: Tables,
    /// Index of the device in which packets are held.
    pub(crate) hold: u32,
    pub(crate) sink: sink::Sink,
    pub(crate) pacer: Pacer,
    flows: u32,
}

impl Rig {
    /// With a profile in force for ever on the loopback device of a new namespace. `None`, and the test counts as skipped,
    /// without root or if this was built without the eBPF programs.
    pub(crate) fn new(profile: &str, pacer: Pacer) -> Option<Self> {
        Self::with_flows(profile, pacer, 4096)
    }

    /// The same, remembering this many flows.
    pub(crate) fn with_flows(profile: &str, pacer: Pacer, flows: u32) -> Option<Self> {
        Self::with_room(profile, pacer, flows, Room::of)
    }

    /// The same, with room for any other profile that is put in force later; the flow cache lies at the instances of its
    /// second server.
    pub(crate) fn spacious(profile: &str, pacer: Pacer) -> Option<Self> {
        Self::with_room(profile, pacer, 4096, |tables| Room {
            servers: MAX_SERVERS,
            classes: MAX_CLASSES,
            paths: MAX_PATHS,
            rules: MAX_RULES,
            bounds: MAX_BOUNDS,
            vectors: MAX_VECTORS,
            instances: instance::places(tables.flows),
            flows: WAYS,
            home: 1,
            ..Room::of(tables)
        })
    }

    /// The same, with this room.
    pub(crate) fn with_room(
        profile: &str,
        pacer: Pacer,
        flows: u32,
        room: fn(&Tables) -> Room,
    ) -> Option<Self> {
        if let Err(unprivileged) = root() {
            conclude(Err(unprivileged));
            return None;
        }
        let tables = Tables {
            flows,
            ..compiled(profile)
        };
        let options = LoadOptions {
            pacer,
            room: room(&tables),
            verbose: false,
        };
        let programs = match Programs::load(options) {
            Err(LoadError::NotEmbedded) => {
                skipped("perturb was built without its eBPF programs");
                return None;
            }
            other => other.unwrap(),
        };
        // Each test has a thread of its own, and the namespace ends with it.
        nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNET).unwrap();
        let mut netlink = Netlink::open().unwrap();
        let [hold, sink] = pair(&mut netlink, ["hold", "sink"]);
        let sink = sink::Sink::new(sink).unwrap();
        let mut programs = programs;
        for program in [Program::Idle, Program::Egress, Program::Ingress] {
            programs
                .program(program)
                .unwrap_or_else(|error| panic!("{error:?}"));
        }
        let loader = Loader::new(Maps::of(&programs).unwrap()).unwrap();
        let mut rig = Self {
            programs,
            loader,
            tables: Tables::default(),
            hold,
            sink,
            pacer,
            flows,
        };
        rig.load_tables(tables);
        rig.loader.set_lease(u64::MAX).unwrap();
        rig.attach(
            LOOPBACK,
            Attachment {
                target: LOOPBACK,
                hold,
                split: 0,
                rank: 0,
            },
        );
        Some(rig)
    }

    /// Puts a profile in force.
    pub(crate) fn load(&mut self, profile: &str) {
        self.load_tables(compiled(profile));
    }

    /// The same, compiled.
    pub(crate) fn load_tables(&mut self, tables: Tables) {
        self.tables = Tables {
            flows: self.flows,
            ..tables
        };
        self.loader.load(&self.tables).unwrap();
    }

    /// Tells the programs about an interface.
    pub(crate) fn attach(&mut self, index: u32, attachment: Attachment) {
        self.loader.maps_mut().attach(index, attachment).unwrap();
    }

    /// The capture program of a direction.
    pub(crate) fn capture(&mut self, direction: Direction) -> &SchedClassifier {
        let program = match direction {
            Direction::Egress => Program::Egress,
            Direction::Ingress => Program::Ingress,
        };
        self.programs.program(program).unwrap()
    }

    /// Captures a packet on the loopback device.
    pub(crate) fn send(&mut self, direction: Direction, data: &[u8], context: Context) -> Ran {
        run(self.capture(direction), data, context).unwrap()
    }

    /// How often an event was counted so far.
    pub(crate) fn event(&self, event: Event) -> u64 {
        self.loader
            .maps()
            .events
            .get(&(event as u32), 0)
            .unwrap()
            .iter()
            .sum()
    }

    /// What the programs have charged for, and not taken back.
    pub(crate) fn held(&self) -> Held {
        let maps = self.loader.maps();
        let here = maps.held_here.get(&0, 0).unwrap();
        here.iter()
            .fold(Held(maps.held.get(&HELD_ALL, 0).unwrap()), |sum, &more| {
                sum.and(Held(more))
            })
    }

    /// The packets of a class so far.
    pub(crate) fn packets(&self, class: u32, direction: Direction) -> u64 {
        let index = class_counter(class, direction as u32);
        let counters = self.loader.maps().class_counters.get(&index, 0).unwrap();
        counters.iter().map(|cpu| cpu.0.packets).sum()
    }

    /// All counters of the profile's servers and so many classes.
    pub(crate) fn counters(&self, classes: u32) -> Counters {
        let slots: Vec<u32> = self
            .tables
            .server_names
            .iter()
            .map(|name| self.slot(name))
            .collect();
        Counters::read(self.loader.maps(), classes.min(MAX_CLASSES), &slots).unwrap()
    }

    /// Where a server's state lies.
    pub(crate) fn slot(&self, server: &str) -> u32 {
        self.loader.slots().of(server).unwrap()
    }

    /// What `perturb capture` reads until a time: so many bytes of packets of these classes, a bit each.
    pub(crate) fn see(&mut self, until: u64, snap: u64, classes: u64) -> Sightings {
        let sightings = Sightings::by_id(&Maps::ids(&self.programs).unwrap()).unwrap();
        let control = &mut self.loader.maps_mut().control;
        control.set(CONTROL_SNAP, snap, 0).unwrap();
        control.set(CONTROL_CLASSES, classes, 0).unwrap();
        control.set(CONTROL_SIGHT, until, 0).unwrap();
        sightings
    }

    /// The same of the first 64 classes, for ever.
    pub(crate) fn capture_all(&mut self, snap: u64) -> Sightings {
        self.see(u64::MAX, snap, u64::MAX)
    }

    /// The departure time that a packet carries after a run; 0 if none, or with fq, if it lies in a slot.
    pub(crate) fn departure(&self, ran: &Ran) -> u64 {
        match self.pacer {
            Pacer::User => u64::from_le_bytes(ran.data[..8].try_into().unwrap()),
            Pacer::Fq | Pacer::Switch => ran.context.tstamp,
        }
    }

    /// All servers are idle again, and their instances forgotten.
    pub(crate) fn forget_states(&mut self) {
        let slots: Vec<u32> = self
            .tables
            .server_names
            .iter()
            .map(|name| self.slot(name))
            .collect();
        for slot in slots {
            let maps = self.loader.maps_mut();
            maps.states.set(slot, Wire(ServerState::default()), 0).unwrap();
            maps.ordinals.set(slot, 0, 0).unwrap();
        }
        let instances = &mut self.loader.maps_mut().instances;
        for place in 0..instances.len() {
            if instances.get(&place, 0).unwrap().0.name != 0 {
                instances.set(place, Wire(ServerState::default()), 0).unwrap();
            }
        }
    }

    /// The state of a shared server.
    pub(crate) fn state(&self, server: &str) -> ServerState {
        self.loader.maps().states.get(&self.slot(server), 0).unwrap().0
    }

    /// Sets the state of a shared server.
    pub(crate) fn set_state(&mut self, server: &str, state: ServerState) {
        let slot = self.slot(server);
        self.loader.maps_mut().states.set(slot, Wire(state), 0).unwrap();
    }
}

/// A profile from its text to the tables; a topology joins the hosts that it names.
pub(crate) fn compiled(text: &str) -> Tables {
    let profile = perturb_profile::parse(text).unwrap_or_else(|errors| panic!("{errors}"));
    let hosts = perturb_profile::hosts_of(&profile);
    match perturb_profile::network(&profile, &hosts).unwrap() {
        Some(network) => perturb_profile::compile_network(&network, &perturb_profile::Files::default()),
        None => {
            let written = perturb_profile::expand_prefixes(&profile, &hosts).unwrap();
            perturb_profile::compile(&written, &perturb_profile::Files::default())
        }
    }
    .unwrap()
}
