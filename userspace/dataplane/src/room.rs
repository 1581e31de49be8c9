//! How large the tables of an emulation are. They are made for the profile that it begins with, with room for it to
//! grow: twice what that profile has, and some for small ones. The kernel cannot resize a map, and state lies in them,
//! so a live update that needs more is refused ([`crate::loader::LoaderError::NoRoom`]).

use std::{
    fs, io,
    os::fd::{AsFd as _, AsRawFd as _},
};

use aya::maps::{Map, MapData, MapType};
use perturb_common::{
    abi::{
        MAX_BOUNDS, MAX_CLASSES, MAX_COLLISION_TABLES, MAX_JITTER_TABLES, MAX_PATHS, MAX_RING_SLOTS,
        MAX_RULES, MAX_SEGMENTS, MAX_SERVERS, MAX_TIMELINES, MAX_VECTORS, NONE, Scope, ServerConfig,
    },
    flow, instance,
    tables::Tables,
};

use crate::maps::Maps;

/// Segments, 64 bytes each, of which a profile gets no room for more than it has: two halves of them are 8 MiB.
const MANY_SEGMENTS: u32 = 1 << 16;

/// For how many of each there is room in a half of the tables, if the table has halves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// Servers.
    pub servers: u32,
    /// Classes.
    pub classes: u32,
    /// Paths.
    pub paths: u32,
    /// Rules of a direction.
    pub rules: u32,
    /// Boundaries of the classifier, and of the hosts of a network.
    pub bounds: u32,
    /// Sets of rules.
    pub vectors: u32,
    /// Jitter tables.
    pub jitter: u32,
    /// Tables of collisions.
    pub collisions: u32,
    /// Timelines.
    pub timelines: u32,
    /// Segments of all timelines.
    pub segments: u32,
    /// Packets in packet-limited buffers.
    pub ring: u32,
    /// Places of the flow cache, a power of two.
    pub flows: u32,
    /// Places for instances, a power of two.
    pub instances: u32,
    /// The slot of a server per flow at whose instances the flow cache lies, or [`NONE`]: the cache has a table of its own.
    pub home: u32,
}

impl Room {
    /// What a profile needs, and as much again.
    #[must_use]
    pub fn of(tables: &Tables) -> Self {
        let count = Self::needed(tables);
        let twice = |count: u32, least: u32, most: u32| count.saturating_mul(2).max(least).min(most);
        // The first profile's servers have their numbers as slots (`Slots::assign`).
        let per_flow = |server: &ServerConfig| server.scope == Scope::Flow as u32;
        let home = (0..count.servers)
            .zip(&tables.servers)
            .find(|(_, server)| per_flow(server));
        Self {
            servers: twice(count.servers, 64, MAX_SERVERS),
            classes: twice(count.classes, 64, MAX_CLASSES),
            paths: twice(count.paths, 64, MAX_PATHS),
            rules: twice(count.rules, 256, MAX_RULES),
            bounds: twice(count.bounds, 1024, MAX_BOUNDS),
            vectors: twice(count.vectors, 320, MAX_VECTORS),
            jitter: twice(count.jitter, 4, MAX_JITTER_TABLES),
            collisions: twice(count.collisions, 1, MAX_COLLISION_TABLES),
            timelines: twice(count.timelines, 4, MAX_TIMELINES),
            segments: twice(count.segments.min(MANY_SEGMENTS), 1024, MAX_SEGMENTS).max(count.segments),
            ring: twice(count.ring, 4096, MAX_RING_SLOTS),
            flows: flow::places(if home.is_some() { 0 } else { tables.flows }),
            instances: count.instances,
            home: home.map_or(NONE, |(slot, _)| slot),
        }
    }

    /// What a profile needs, without more.
    pub(crate) fn needed(tables: &Tables) -> Self {
        let count = |len: usize| u32::try_from(len).unwrap_or(u32::MAX);
        let classifiers = tables.classifier.iter();
        let shared = |scope: u32| scope == Scope::Shared as u32;
        Self {
            servers: count(tables.servers.len()),
            classes: count(tables.classes.len()),
            paths: count(tables.paths.len()),
            rules: count(classifiers.clone().map(|one| one.rules.len()).max().unwrap_or(0)),
            bounds: count(
                classifiers.clone().map(|one| one.bounds.len()).sum::<usize>()
                    + tables.hosts.len()
                    + tables.cgroups.len(),
            ),
            vectors: count(classifiers.map(|one| one.vectors.len()).sum()),
            jitter: count(tables.jitter.len()),
            collisions: count(tables.collisions.len()),
            timelines: count(tables.timelines.len() + usize::from(tables.overheads.is_some())),
            segments: count(
                tables
                    .timelines
                    .iter()
                    .map(|one| one.segments.len())
                    .sum::<usize>()
                    + tables.overheads.as_ref().map_or(0, |one| one.segments.len()),
            ),
            ring: tables
                .servers
                .iter()
                .fold(0, |sum: u32, server| sum.saturating_add(server.ring_len)),
            flows: 0,
            home: NONE,
            instances: instance::places(if tables.servers.iter().all(|server| shared(server.scope)) {
                0
            } else {
                tables.flows
            }),
        }
    }

    /// What there is in the maps of an emulation.
    pub(crate) fn of_maps(maps: &Maps) -> Self {
        Self {
            servers: maps.servers.len() / 2,
            classes: maps.classes.len() / 2,
            paths: maps.paths.len() / 2,
            rules: maps.rules.len() / 4,
            bounds: maps.bounds.len() / 2,
            vectors: maps.vectors.len() / 2 - 1,
            jitter: maps.jitter.len() / 2,
            collisions: maps.collisions.len() / 2,
            timelines: maps.timelines.len() / 2,
            segments: maps.segments.len() / 2,
            ring: maps.ring.len(),
            flows: maps.flows.len(),
            instances: maps.instances.len(),
            home: NONE,
        }
    }

    /// The maps and how many entries each gets.
    pub(crate) fn entries(&self) -> [(&'static str, u32); 22] {
        [
            ("SERVERS", self.servers * 2),
            ("STATES", self.servers),
            ("ORDINALS", self.servers),
            ("CONTENTION", self.servers),
            ("SERVER_COUNTERS", self.servers),
            ("SOJOURNS", self.servers),
            ("CLASSES", self.classes * 2),
            ("CLASS_COUNTERS", self.classes * 2),
            ("PATHS", self.paths * 2),
            ("RULES", self.rules * 4),
            ("BOUNDS", self.bounds * 2),
            // The vector of all rules, of either half, lies before the others.
            ("VECTORS", self.vectors * 2 + 2),
            ("JITTER", self.jitter * 2),
            ("COLLISIONS", self.collisions * 2),
            ("TIMELINES", self.timelines * 2),
            ("SEGMENTS", self.segments * 2),
            ("HINTS", self.servers),
            ("QUEUES", self.servers),
            ("GRANTS", self.servers),
            ("RING", self.ring),
            ("FLOWS", self.flows),
            ("INSTANCES", self.instances),
        ]
    }
}

/// Kernel memory that the maps of an emulation take, bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// Whatever the number of processors.
    pub shared: u64,
    /// For each processor that the machine may ever have (`/sys/devices/system/cpu/possible`).
    pub per_cpu: u64,
}

impl Memory {
    /// On a machine with so many possible processors.
    #[must_use]
    pub const fn with(&self, cpus: u64) -> u64 {
        self.shared + self.per_cpu * cpus
    }

    /// Of these maps: what the kernel says of each (`memlock` in its fdinfo; exact since 6.4, `map_mem_usage`).
    pub(crate) fn of(maps: &[&Map], cpus: u64) -> io::Result<Self> {
        let mut all = Self::default();
        for data in maps.iter().copied().filter_map(crate::maps::data) {
            let info = data.info().map_err(io::Error::other)?;
            let total = memlock(data)?;
            let per_cpu = match info.map_type().map_err(io::Error::other)? {
                MapType::PerCpuArray | MapType::PerCpuHash | MapType::LruPerCpuHash => {
                    u64::from(info.value_size().next_multiple_of(8)) * u64::from(info.max_entries())
                }
                _ => 0,
            };
            all.per_cpu += per_cpu;
            all.shared += total.saturating_sub(per_cpu * cpus);
        }
        Ok(all)
    }
}

fn memlock(map: &MapData) -> io::Result<u64> {
    let path = format!("/proc/self/fdinfo/{}", map.fd().as_fd().as_raw_fd());
    let text = fs::read_to_string(&path)?;
    text.lines()
        .find_map(|line| line.strip_prefix("memlock:")?.trim().parse().ok())
        .ok_or_else(|| io::Error::other(format!("{path} does not say how much memory the map takes")))
}
