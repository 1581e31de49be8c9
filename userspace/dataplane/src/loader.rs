//! Writes a compiled profile into the half of the maps that is not in force, then puts it in force
//! with one store. A server keeps its slot, and so its state, as long as its name stays.

mod slots;
mod timeline;

use std::{
    hash::{DefaultHasher, Hash as _, Hasher as _},
    thread,
    time::{Duration, Instant},
};

use aya::maps::MapError;
use perturb_common::{
    abi::{
        ABI_VERSION, Bound, CONTROL_GENERATION, CONTROL_VERSION, DIMENSIONS, MAX_BOUNDS, MAX_CLASSES,
        MAX_COLLISION_TABLES, MAX_JITTER_TABLES, MAX_PATHS, MAX_RING_SLOTS, MAX_RULES, MAX_SEGMENTS,
        MAX_SERVERS, MAX_TIMELINES, MAX_VECTORS, NONE, NthKey, RULE_WORDS, RuleVector, SERVER_TIES,
        SERVER_TIMELINE, ServerCounters, ServerState, Sojourns, Span, cgroups_span, hosts_span, in_half,
        rule_place,
    },
    collisions::Contention,
    grants::Granted,
    queue::{Queue, STEP},
    tables::Tables,
    timeline::Unfit,
};
pub use slots::Slots;

use crate::{
    maps::{Maps, Wire},
    room::Room,
};

/// How long the kernel may take to find memory for an entry.
const PATIENCE: Duration = Duration::from_secs(1);

/// Why a profile could not be loaded.
#[derive(Debug, thiserror::Error)]
pub enum LoaderError {
    /// The kernel's answer.
    #[error("writing map {map}: {source}")]
    Map {
        /// Which map.
        map: &'static str,
        source: MapError,
    },
    /// The profile is larger than the tables.
    #[error("the profile has {count} {what}, more than the {limit} that fit")]
    TooLarge {
        what: &'static str,
        count: u32,
        /// How many fit.
        limit: u32,
    },
    /// The profile is larger than the tables were made.
    #[error(
        "the profile has {count} {what}; the emulation was made with room for {room}; clear it and apply the profile anew"
    )]
    NoRoom {
        what: &'static str,
        count: u32,
        /// For how many there is room.
        room: u32,
    },
    /// The profile's compiler should have refused it.
    #[error("a timeline of the profile cannot be played: {0:?}")]
    Unfit(Unfit),
    #[error("a timeline that does not repeat starts before this machine did; give it a later start")]
    BeforeBoot,
}

/// Puts profiles and leases in force.
pub struct Loader {
    maps: Maps,
    room: Room,
    slots: Slots,
    generation: u64,
    anew: bool,
}

impl From<Unfit> for LoaderError {
    fn from(unfit: Unfit) -> Self {
        Self::Unfit(unfit)
    }
}

fn write<T>(map: &'static str, result: Result<T, MapError>) -> Result<T, LoaderError> {
    result.map_err(|source| LoaderError::Map { map, source })
}

/// What stands for the paths of all packets: the same for two profiles that differ in nothing but what servers do.
fn ways(tables: &Tables) -> u64 {
    let mut hasher = DefaultHasher::new();
    let Tables {
        server_names,
        paths,
        hosts,
        classes,
        classifier,
        settings,
        ..
    } = tables;
    (server_names, paths, hosts, classes, classifier, settings.network).hash(&mut hasher);
    hasher.finish()
}

/// Where the elements of a half lie, one after the other.
fn places(half: u32) -> impl Iterator<Item = u32> {
    (0..).map(move |index| in_half(half, index))
}

/// Whether so many fit: into any tables, and into these.
fn fits(what: &'static str, count: u32, limit: u32, room: u32) -> Result<(), LoaderError> {
    if count > limit {
        Err(LoaderError::TooLarge { what, count, limit })
    } else if count > room {
        Err(LoaderError::NoRoom { what, count, room })
    } else {
        Ok(())
    }
}

/// Whether all of a profile does.
fn all_fits(tables: &Tables, room: &Room) -> Result<(), LoaderError> {
    let count = Room::needed(tables);
    fits("servers", count.servers, MAX_SERVERS, room.servers)?;
    fits("classes", count.classes, MAX_CLASSES, room.classes)?;
    fits("paths", count.paths, MAX_PATHS, room.paths)?;
    fits("jitter tables", count.jitter, MAX_JITTER_TABLES, room.jitter)?;
    fits(
        "tables of collisions",
        count.collisions,
        MAX_COLLISION_TABLES,
        room.collisions,
    )?;
    fits("timelines", count.timelines, MAX_TIMELINES, room.timelines)?;
    fits(
        "segments in its timelines",
        count.segments,
        MAX_SEGMENTS,
        room.segments,
    )?;
    fits("rules", count.rules, MAX_RULES, room.rules)?;
    fits("boundaries in its matches", count.bounds, MAX_BOUNDS, room.bounds)?;
    fits(
        "distinct sets of rules in its matches",
        count.vectors,
        MAX_VECTORS,
        room.vectors,
    )?;
    fits(
        "packets in packet-limited buffers",
        count.ring,
        MAX_RING_SLOTS,
        room.ring,
    )?;
    fits(
        "places for servers per flow, host or interface",
        count.instances,
        u32::MAX,
        room.instances,
    )
}

impl Loader {
    /// For fresh maps.
    pub fn new(mut maps: Maps) -> Result<Self, LoaderError> {
        write("CONTROL", maps.control.set(CONTROL_VERSION, ABI_VERSION, 0))?;
        Ok(Self {
            room: Room::of_maps(&maps),
            maps,
            slots: Slots::default(),
            generation: 0,
            anew: false,
        })
    }

    /// For maps in use, with the slots that were assigned there.
    pub fn resume(maps: Maps, slots: Slots) -> Result<Self, LoaderError> {
        let generation = write("CONTROL", maps.control.get(&CONTROL_GENERATION, 0))?;
        Ok(Self {
            room: Room::of_maps(&maps),
            maps,
            slots,
            generation,
            anew: false,
        })
    }

    /// The slots in force.
    #[must_use]
    pub fn slots(&self) -> &Slots {
        &self.slots
    }

    /// The maps.
    #[must_use]
    pub fn maps(&self) -> &Maps {
        &self.maps
    }

    /// The maps, to write attachments.
    pub fn maps_mut(&mut self) -> &mut Maps {
        &mut self.maps
    }

    /// Lets the programs emulate until `until`, CLOCK_MONOTONIC ns; `u64::MAX` for ever.
    pub fn set_lease(&mut self, until: u64) -> Result<(), LoaderError> {
        write("CONTROL", self.maps.set_lease(until))
    }

    /// Puts a profile in force. Packets that are held keep their departure times.
    pub fn load(&mut self, tables: &Tables) -> Result<(), LoaderError> {
        all_fits(tables, &self.room)?;
        let generation = self.generation + 1;
        let half = (generation & 1) as u32;
        let mut slots = self.slots.clone();
        slots.ways = ways(tables);
        let epoch = self.epoch(slots.ways)?;
        slots.retain(&tables.server_names);
        for slot in slots.assign(&tables.server_names, &self.slots, self.room.servers) {
            self.clean(slot)?;
        }
        self.load_servers(tables, half, &mut slots)?;
        self.begin_laws(&slots)?;
        for (path, index) in tables.paths.iter().zip(places(half)) {
            write("PATHS", self.maps.paths.set(index, Wire(*path), 0))?;
        }
        for (class, index) in tables.classes.iter().zip(places(half)) {
            write("CLASSES", self.maps.classes.set(index, Wire(*class), 0))?;
        }
        for (table, index) in tables.jitter.iter().zip(places(half)) {
            write("JITTER", self.maps.jitter.set(index, Wire(*table), 0))?;
        }
        for (table, index) in tables.collisions.iter().zip(places(half)) {
            write("COLLISIONS", self.maps.collisions.set(index, Wire(*table), 0))?;
        }
        self.load_nth(tables, half)?;
        self.load_classifier(tables, half)?;
        let mut settings = tables.settings;
        for (words, classifier) in settings.rule_words.iter_mut().zip(&tables.classifier) {
            *words = classifier.rules.len().div_ceil(64) as u32;
        }
        slots.clock = self.load_timelines(tables, half, &mut settings)?;
        settings.epoch = epoch;
        settings.held = match tables.held {
            0 => u64::MAX,
            held => held,
        };
        write("SETTINGS", self.maps.settings.set(half, Wire(settings), 0))?;
        write(
            "CONTROL",
            self.maps.control.set(CONTROL_GENERATION, generation, 0),
        )?;
        self.generation = generation;
        self.slots = slots;
        Ok(())
    }

    /// Puts the profile before the one in force in force again, if its tables were not overwritten since; `slots` are those
    /// that its servers had.
    pub fn go_back(&mut self, slots: Slots) -> Result<(), LoaderError> {
        self.begin_laws(&slots)?;
        let generation = self.generation + 1;
        write(
            "CONTROL",
            self.maps.control.set(CONTROL_GENERATION, generation, 0),
        )?;
        self.generation = generation;
        self.slots = slots;
        Ok(())
    }

    /// The epoch of a profile with these paths: that of the profile in force if it has the same, else one that neither half has, for
    /// packets of both may be held.
    fn epoch(&self, ways: u64) -> Result<u32, LoaderError> {
        if self.generation == 0 {
            return Ok(0);
        }
        let of = |turn| {
            let half = ((self.generation + turn) & 1) as u32;
            let settings = write("SETTINGS", self.maps.settings.get(&half, 0))?;
            Ok::<u32, LoaderError>(settings.0.epoch)
        };
        let (here, there) = (of(0)?, of(1)?);
        if ways == self.slots.ways {
            return Ok(here);
        }
        Ok(here.max(there).wrapping_add(1))
    }

    /// A server begins idle, and with its first packet, whatever another one has left in its slot.
    fn clean(&mut self, slot: u32) -> Result<(), LoaderError> {
        let maps = &mut self.maps;
        write("STATES", maps.states.set(slot, Wire(ServerState::default()), 0))?;
        write(
            "CONTENTION",
            maps.contention.set(slot, Wire(Contention::default()), 0),
        )?;
        write("QUEUES", maps.queues.set(slot, Wire(Queue::default()), 0))?;
        write("GRANTS", maps.grants.set(slot, Wire(Granted::default()), 0))?;
        write("ORDINALS", maps.ordinals.set(slot, 0, 0))?;
        write("SOJOURNS", maps.sojourns.set(slot, Wire(Sojourns::default()), 0))?;
        write(
            "SERVER_COUNTERS",
            maps.server_counters.fill(slot, Wire(ServerCounters::default())),
        )
    }

    /// A law that the profile in force does not have begins anew: what it remembered has passed.
    fn begin_laws(&mut self, slots: &Slots) -> Result<(), LoaderError> {
        for &(slot, _) in slots.memories.difference(&self.slots.memories) {
            write("QUEUES", self.maps.queues.set(slot, Wire(Queue::default()), 0))?;
        }
        Ok(())
    }

    fn load_servers(&mut self, tables: &Tables, half: u32, slots: &mut Slots) -> Result<(), LoaderError> {
        slots.memories.clear();
        let named = tables.servers.iter().zip(&tables.server_names);
        for ((server, name), index) in named.zip(places(half)) {
            let mut server = *server;
            server.slot = slots.of(name).unwrap_or_default();
            // A step remembers nothing.
            if server.law.kind > STEP {
                slots.memories.insert((server.slot, server.law.kind));
            }
            if server.jitter_table != NONE {
                server.jitter_table = in_half(half, server.jitter_table);
            }
            if server.grants.table != NONE {
                server.grants.table = in_half(half, server.grants.table);
            }
            if server.flags & SERVER_TIES != 0 {
                server.ties.normal = in_half(half, server.ties.normal);
                server.ties.cumulative = in_half(half, server.ties.cumulative);
            }
            if server.collision_table != NONE {
                server.collision_table = in_half(half, server.collision_table);
            }
            if server.timeline != NONE {
                server.flags |= SERVER_TIMELINE;
                server.timeline = in_half(half, server.timeline);
            }
            if server.ring_len != 0 {
                let room = self.room.ring;
                // The others' gaps may lie so that none is long enough.
                let (start, fresh) = slots
                    .ring(name, server.ring_len, room)
                    .ok_or(LoaderError::NoRoom {
                        what: "packets in a packet-limited buffer beside those in use",
                        count: server.ring_len,
                        room,
                    })?;
                server.ring_start = start;
                if fresh {
                    for slot in start..start + server.ring_len {
                        write("RING", self.maps.ring.set(slot, 0, 0))?;
                    }
                }
            }
            write("SERVERS", self.maps.servers.set(index, Wire(server), 0))?;
        }
        Ok(())
    }

    fn load_nth(&mut self, tables: &Tables, half: u32) -> Result<(), LoaderError> {
        let here = |key: &Wire<NthKey>| key.0.server % 2 == half;
        for entry in self.maps.nth.all() {
            let (key, _) = write("NTH", entry)?;
            if here(&key) {
                write("NTH", self.maps.nth.remove(&key))?;
            }
        }
        for key in &tables.nth {
            let key = NthKey {
                server: in_half(half, key.server),
                ..*key
            };
            self.insert_nth(key)?;
        }
        Ok(())
    }

    /// The kernel fetches memory for entries in the background (`bpf_mem_alloc`, 6.1), so that a series of insertions
    /// may find none for a moment.
    fn insert_nth(&mut self, key: NthKey) -> Result<(), LoaderError> {
        let start = Instant::now();
        loop {
            match self.maps.nth.insert(Wire(key), 1, 0) {
                Err(MapError::SyscallError(error))
                    if error.io_error.raw_os_error() == Some(libc::ENOMEM) && start.elapsed() < PATIENCE =>
                {
                    thread::sleep(Duration::from_millis(1));
                }
                done => return write("NTH", done),
            }
        }
    }

    fn load_classifier(&mut self, tables: &Tables, half: u32) -> Result<(), LoaderError> {
        let classifiers = &tables.classifier;
        let mut bound = half * self.room.bounds;
        let mut vector = 2 + half * self.room.vectors;
        let all = RuleVector {
            words: [u64::MAX; RULE_WORDS],
        };
        write("VECTORS", self.maps.vectors.set(half, Wire(all), 0))?;
        for (classifier, table) in classifiers.iter().zip(half * 2..) {
            for (span, index) in classifier.spans.iter().zip(table * DIMENSIONS..) {
                let span = Span {
                    start: span.start + bound,
                    len: span.len,
                };
                write("SPANS", self.maps.spans.set(index, Wire(span), 0))?;
            }
            for (class, rule) in classifier.rules.iter().zip(0..) {
                write("RULES", self.maps.rules.set(rule_place(table, rule), *class, 0))?;
            }
            for (place, index) in classifier.bounds.iter().zip(bound..) {
                let place = Bound {
                    vector: place.vector + vector,
                    ..*place
                };
                write("BOUNDS", self.maps.bounds.set(index, Wire(place), 0))?;
            }
            for (rules, index) in classifier.vectors.iter().zip(vector..) {
                write("VECTORS", self.maps.vectors.set(index, Wire(*rules), 0))?;
            }
            bound += classifier.bounds.len() as u32;
            vector += classifier.vectors.len() as u32;
        }
        for (span, places) in [
            (hosts_span(half), &tables.hosts),
            (cgroups_span(half), &tables.cgroups),
        ] {
            let own = Span {
                start: bound,
                len: places.len() as u32,
            };
            write("SPANS", self.maps.spans.set(span, Wire(own), 0))?;
            for (place, index) in places.iter().zip(bound..) {
                write("BOUNDS", self.maps.bounds.set(index, Wire(*place), 0))?;
            }
            bound += own.len;
        }
        Ok(())
    }
}
