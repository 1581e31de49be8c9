//! From a profile to the tables that the eBPF programs read ([`perturb_common::tables::Tables`]).
//!
//! Exact quantities become the kernel side's units here, each rounded once: durations to ticks of 1/64 ns (exact),
//! G to 2^-20 ns per byte (to nearest), a buffer to the time its bytes take, probabilities to 32 bits (to nearest,
//! never to 0 or 1). Pure: the same profile and files give the same tables. Topologies are servers and classes by
//! then, or a [`Network`].

mod classifier;
mod intervals;
mod jitter;
mod law;
mod members;
mod paths;
mod ties;
pub(crate) mod timeline;

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;

use perturb_common::abi::{
    self, Direction, JitterTable, MAX_BOUNDS, MAX_COLLISION_TABLES, MAX_JITTER_TABLES, MAX_PATHS,
    MAX_VECTORS, NONE, NthKey, SERVER_BURST, SERVER_COLLISIONS, SERVER_FATE, SERVER_FRAMING, SERVER_GRANTS,
    SERVER_KEEP_ORDER, SERVER_LAW, SERVER_NTH, SERVER_SPARES, SERVER_TIES, SETTING_CHECKSUM, SETTING_EXACT,
    SETTING_FREE_ACKNOWLEDGMENTS, ServerConfig, Settings,
};
use perturb_common::collisions::CollisionTable;
use perturb_common::departure::Server as Knobs;
use perturb_common::fate::{self, Chance};
use perturb_common::grants::Grants;
use perturb_common::tables::Tables;
use perturb_common::ties::{TIE_DRIFT, Ties};
use perturb_common::timeline::Timeline;
use perturb_common::units::{GapPerByte, Nanos, TICK_SHIFT, Ticks};
use perturb_quantity::{Duration, Probability, Rate, Size};

use crate::cgroup::Cgroups;
use crate::expand::Network;
use crate::explain::horizon;
use crate::groups::Matrix;
use crate::matching::Prefix;
use crate::model::{
    Acknowledgments, Class, Distribution, Framing, GilbertElliott, Profile, Queue, Scope, Segmentation,
    Server, ServerId, Slot, Volume,
};
use crate::recording::{Format, Recording};
use crate::{Name, delay};

use members::Members;
use timeline::Changes;

pub(crate) use jitter::MAX_ENTRIES as MAX_TABLE_ENTRIES;
pub(crate) use law::{red_too_fast, red_weight};

/// What a profile names and does not contain: the contents of files, by the path in it, and addresses.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Files {
    /// Addresses of the hosts that classes name. A name that is not there has none.
    pub hosts: BTreeMap<String, Vec<IpAddr>>,
    /// Networks of the interfaces that groups name. A name that is not there has none.
    pub networks: BTreeMap<String, Vec<Prefix>>,
    /// cgroups that classes name.
    pub cgroups: Cgroups,
    /// What the files' names are relative to, if they were read.
    pub directory: Option<PathBuf>,
    /// Jitter tables.
    pub jitter: HashMap<String, Vec<i16>>,
    /// Traces, each as its format has it.
    pub(crate) traces: HashMap<(String, Format), Arc<Recording>>,
}

/// Why a valid profile cannot be compiled.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CompileError {
    /// The programs have no room for it.
    #[error(
        "the profile needs {count} {what}, more than the {max} there is room for; use fewer or simpler classes"
    )]
    TooMany {
        /// Of what.
        what: &'static str,
        /// How many it needs.
        count: usize,
        /// How many there can be.
        max: u32,
    },
    /// A jitter table or a trace was not loaded.
    #[error("server `{server}`: {file} was not read; load the profile from its file")]
    NoFile {
        /// The server.
        server: Name,
        /// The file.
        file: String,
    },
    /// A matrix was not read.
    #[error("the matrix {file} was not read; load the profile from its file")]
    NoMatrix {
        /// The file.
        file: String,
    },
    /// Groups that cannot be told apart.
    #[error("the groups `{group}` and `{other}` both have {address}; give every address to one group")]
    SameAddress {
        /// One group.
        group: Name,
        /// The other.
        other: Name,
        /// What they have in common.
        address: Prefix,
    },
    /// A trace begins behind its end.
    #[error("server `{server}`: its trace is {length} long; let its `offset` be below that")]
    Offset {
        /// The server.
        server: Name,
        /// The trace's length.
        length: Duration,
    },
    /// A step of the timeline that does not fit the others.
    #[error("step {step} of the timeline does not fit: {why}; {remedy}")]
    Step {
        /// Which, from 1.
        step: usize,
        /// Why.
        why: String,
        /// What to do.
        remedy: &'static str,
    },
}

/// Compiles `profile`; `files` has the jitter tables it names.
pub fn compile(profile: &Profile, files: &Files) -> Result<Tables, CompileError> {
    with_network(profile, None, files)
}

/// Compiles a network of many hosts.
pub fn compile_network(network: &Network, files: &Files) -> Result<Tables, CompileError> {
    with_network(network.profile(), Some(network), files)
}

fn with_network(profile: &Profile, network: Option<&Network>, files: &Files) -> Result<Tables, CompileError> {
    if let Some(Matrix { file, .. }) = &profile.matrix {
        return Err(CompileError::NoMatrix { file: file.clone() });
    }
    let mut tables = Tables {
        horizon: ticks(horizon(profile)),
        held: profile.limits.held.map_or(0, Size::bytes),
        flows: profile.limits.flows,
        class_names: profile
            .classes
            .iter()
            .map(|class| class.name.to_string())
            .collect(),
        server_names: profile.servers.iter().map(|(name, _)| name.to_string()).collect(),
        ..Tables::default()
    };
    let paths = paths::compile(profile, network);
    limit("paths and lists of paths' parts", paths.distinct.len(), MAX_PATHS)?;
    tables.paths = paths.distinct;
    tables.classes = paths.of_classes;
    if let Some(network) = network {
        tables.hosts = classifier::hosts(network.hosts())?;
    }

    let mut distributions: HashMap<&Distribution, u32> = HashMap::new();
    let mut cumulative = None;
    let mut played: HashMap<u8, CollisionTable> = HashMap::new();
    let queues = longest_queues(profile, network);
    let changes = Changes::new(profile, files)?;
    let mut timelines: HashMap<Timeline, u32> = HashMap::new();
    for ((index, (name, server)), queue) in (0u32..).zip(&profile.servers).zip(queues) {
        let mut config = config(profile, name, server, queue);
        if let Some(timeline) = changes.of_server(index as usize)? {
            config.flags |= timeline::flags(server, &timeline);
            config.timeline = match timelines.get(&timeline) {
                Some(&number) => number,
                None => {
                    let number = u32::try_from(tables.timelines.len()).unwrap_or(NONE);
                    tables.timelines.push(timeline.clone());
                    timelines.insert(timeline, number);
                    number
                }
            };
        }
        let mut number = |distribution| {
            if let Some(&number) = distributions.get(distribution) {
                return Ok(number);
            }
            let number = u32::try_from(tables.jitter.len()).unwrap_or(NONE);
            tables
                .jitter
                .push(shape(distribution, files).map_err(|file| CompileError::NoFile {
                    server: name.clone(),
                    file: file.clone(),
                })?);
            distributions.insert(distribution, number);
            Ok(number)
        };
        if let Some(distribution) = server.slot.as_ref().and_then(Slot::distribution) {
            config.grants.table = number(distribution)?;
        }
        if let Some(distribution) = changes.distribution(server, &config, &tables.timelines) {
            config.jitter_table = number(distribution)?;
            if config.ties.kinds & TIE_DRIFT != 0 {
                config.ties.normal = number(&Distribution::Normal)?;
                config.ties.cumulative = *cumulative.get_or_insert_with(|| {
                    tables.jitter.push(jitter::cumulative());
                    u32::try_from(tables.jitter.len() - 1).unwrap_or(NONE)
                });
            }
        }
        if let Some(shared) = server.collisions {
            let table = played
                .entry(shared.attempts)
                .or_insert_with(|| CollisionTable::new(shared.attempts.into()))
                .with_lengths(&config.server, ticks(shared.slot));
            let known = tables.collisions.iter().position(|other| *other == table);
            let number = known.unwrap_or_else(|| {
                tables.collisions.push(table);
                tables.collisions.len() - 1
            });
            config.collision_table = u32::try_from(number).unwrap_or(NONE);
        }
        tables.servers.push(config);
        tables.nth.extend(server.loss.nth.iter().map(|&nth| NthKey {
            index: nth,
            server: index,
            reserved: 0,
        }));
    }
    tables.overheads = changes.of_overhead()?;
    let segments = tables
        .timelines
        .iter()
        .map(|timeline| timeline.segments.len())
        .sum();
    limit("segments of timelines", segments, abi::MAX_SEGMENTS)?;
    limit("jitter distributions", tables.jitter.len(), MAX_JITTER_TABLES)?;
    limit(
        "different kinds of collisions",
        tables.collisions.len(),
        MAX_COLLISION_TABLES,
    )?;

    let named = Members::of(profile, files)?;
    let egress = classifier::compile(&profile.classes, Direction::Egress, &named)?;
    let ingress = if profile
        .classes
        .iter()
        .any(|class| class.matching.looks_at_sides())
    {
        classifier::compile(&profile.classes, Direction::Ingress, &named)?
    } else {
        egress.clone()
    };
    tables.classifier = [egress, ingress];
    limit("cgroups", named.cgroups.len(), abi::MAX_CGROUPS)?;
    tables.cgroups = classifier::between(named.cgroups.ids(&files.cgroups));
    let bounds: usize = tables
        .classifier
        .iter()
        .map(|classifier| classifier.bounds.len())
        .sum();
    limit(
        "boundaries between the values of the classes' matches",
        bounds + tables.hosts.len() + tables.cgroups.len(),
        MAX_BOUNDS,
    )?;
    // One more is the loader's: that of all rules.
    let vectors: usize = tables
        .classifier
        .iter()
        .map(|classifier| classifier.vectors.len())
        .sum();
    limit(
        "distinct sets of rules in the classes' matches",
        vectors + 1,
        MAX_VECTORS,
    )?;

    let words = |direction: usize| {
        let rules = tables
            .classifier
            .get(direction)
            .map_or(0, |classifier| classifier.rules.len());
        u32::try_from(rules.div_ceil(64)).unwrap_or(NONE)
    };
    tables.settings = Settings {
        // The loader writes that of the tables.
        held: 0,
        overhead_send: profile.overhead.send.nanos(),
        overhead_receive: profile.overhead.receive.nanos(),
        rule_words: [words(0), words(1)],
        flags: if splits(profile) { SETTING_EXACT } else { 0 }
            | if corrupts(profile) { SETTING_CHECKSUM } else { 0 }
            | match profile.overhead.acknowledgments {
                Acknowledgments::Charged => 0,
                Acknowledgments::Free => SETTING_FREE_ACKNOWLEDGMENTS,
            },
        epoch: 0,
        network: paths.network,
        overheads: NONE,
        cgroup_levels: named.cgroups.levels(&files.cgroups),
    };
    Ok(tables)
}

fn limit(what: &'static str, count: usize, max: u32) -> Result<(), CompileError> {
    if count > max as usize {
        Err(CompileError::TooMany { what, count, max })
    } else {
        Ok(())
    }
}

/// Up to this bandwidth, a super-packet of 64 KiB occupies a server for half a millisecond or more.
const SLOW: Rate = Rate::from_bits_per_second(1_000_000_000);

/// Whether super-packets are split into wire packets first: as the profile says, or where a server that is crossed
/// treats packets one by one, counts them, changes, or is so slow that the granularity would show.
pub(crate) fn splits(profile: &Profile) -> bool {
    let shows = |id: ServerId, server: &Server| {
        profile.changes(id)
            || server.gap > Duration::ZERO
            || server.bandwidth.is_some_and(|rate| rate <= SLOW)
            || server.buffer.packets.is_some()
            || server.framing.cell_size > 0
            || server.ecn.is_some()
            || server.queue != Queue::Tail
            || server.slot.is_some()
            || decides(server)
    };
    match profile.segmentation {
        Segmentation::Exact => true,
        Segmentation::Whole => false,
        Segmentation::Auto => crosses(profile, shows),
    }
}

/// Whether packets are damaged anywhere: then their checksums must be complete before.
fn corrupts(profile: &Profile) -> bool {
    crosses(profile, |_, server| !server.corrupt.is_never())
}

/// Whether a server of some kind is on any path.
fn crosses(profile: &Profile, kind: impl Fn(ServerId, &Server) -> bool) -> bool {
    let mut crossed = profile.classes.iter().flat_map(Class::paths).flatten().flatten();
    crossed.any(|&id: &ServerId| profile.server(id).is_some_and(|(_, server)| kind(id, server)))
}

/// Whether a server makes a choice for each packet.
fn decides(server: &Server) -> bool {
    server.jitter.is_some()
        || server.loss != crate::Loss::default()
        || !server.duplicate.is_never()
        || !server.corrupt.is_never()
        || server.reorder.is_some()
}

/// How long the server takes for a volume.
pub(crate) fn time_of(server: &Server) -> impl Fn(Volume) -> Ticks + use<> {
    let per_byte = server.bandwidth.map_or(GapPerByte(0), gap_per_byte);
    move |volume| match volume {
        Volume::Bytes(size) => per_byte.transmit(size.bytes()),
        Volume::Delay(delay) => ticks(delay),
    }
}

fn config(profile: &Profile, name: &Name, server: &Server, longest_queue: Duration) -> ServerConfig {
    let per_byte = server.bandwidth.map_or(GapPerByte(0), gap_per_byte);
    let time_of = time_of(server);
    let flag = |set: bool, flag| if set { flag } else { 0 };
    let in_order = server.jitter.as_ref().is_some_and(|jitter| !jitter.reorder);
    ServerConfig {
        server: Knobs {
            gap: ticks(server.gap),
            per_byte,
            latency: ticks(server.latency),
            buffer: server.buffer.volume.map_or(Ticks::MAX, &time_of),
            horizon: ticks(longest_queue),
        },
        ecn: server.ecn.map_or(Ticks::MAX, &time_of),
        law: law::law(server, profile.frame()),
        jitter_scale: server.jitter.as_ref().map_or(0, |jitter| ticks(jitter.scale).0),
        salt: fate::salt(profile.seed, name.as_str().as_bytes()),
        collision_slot: server.collisions.map_or(0, |collisions| ticks(collisions.slot).0),
        grants: server.slot.as_ref().map_or(Grants::NONE, grants),
        ties: ties::of(server).unwrap_or(Ties::NONE),
        burst: server
            .loss
            .burst
            .map_or_else(fate::GilbertElliott::default, burst),
        loss: chance(server.loss.random),
        duplicate: chance(server.duplicate.probability),
        corrupt: chance(server.corrupt.probability),
        jitter_table: NONE,
        ring_len: server.buffer.packets.unwrap_or(0),
        ring_start: 0,
        scope: match server.scope {
            Scope::Shared => abi::Scope::Shared,
            Scope::Interface => abi::Scope::Interface,
            Scope::Host => abi::Scope::Host,
            Scope::Flow => abi::Scope::Flow,
        } as u32,
        slot: 0,
        flags: flag(in_order, SERVER_KEEP_ORDER)
            | flag(!server.loss.nth.is_empty(), SERVER_NTH)
            | flag(server.loss.burst.is_some(), SERVER_BURST)
            | flag(server.loss.ecn, SERVER_SPARES)
            | flag(ties::of(server).is_some(), SERVER_TIES)
            | flag(server.framing != Framing::default(), SERVER_FRAMING)
            | flag(server.collisions.is_some(), SERVER_COLLISIONS)
            | flag(server.queue != Queue::Tail, SERVER_LAW)
            | flag(server.slot.is_some(), SERVER_GRANTS)
            | flag(decides(server), SERVER_FATE),
        collision_table: NONE,
        timeline: NONE,
        framing: server.framing.compiled(),
    }
}

/// By server: how long a packet may queue there so that, with all else its paths do to it, it stays within the horizon.
fn longest_queues(profile: &Profile, network: Option<&Network>) -> Vec<Duration> {
    let horizon = horizon(profile);
    let mut longest = vec![horizon; profile.servers.len()];
    let mut bound = |total: Duration, servers: &[ServerId]| {
        for &id in servers {
            if let (Some((_, server)), Some(longest)) = (profile.server(id), longest.get_mut(id.index())) {
                let own = delay::known_wait(server, profile.frame());
                let elsewhere = total.nanos().saturating_sub(own.nanos());
                *longest = (*longest).min(Duration::from_nanos(horizon.nanos().saturating_sub(elsewhere)));
            }
        }
    };
    for path in profile.classes.iter().flat_map(Class::paths).flatten() {
        bound(delay::bounded_delay(profile, path), path);
    }
    if let Some(network) = network
        && let Some([Some(path), _]) = profile.classes.last().map(Class::paths)
    {
        // Each host has paths like the longest one.
        let total = delay::bounded_delay(profile, path);
        for list in network.outward().iter().chain(network.inward()) {
            bound(total, list);
        }
    }
    longest
}

fn grants(slot: &Slot) -> Grants {
    let (delay, scale) = slot.middle();
    let half = |halves: u64| Ticks(halves.saturating_mul(1 << (TICK_SHIFT - 1)));
    Grants {
        delay: half(delay),
        scale: half(scale).0,
        packets: slot.packets.map_or(u64::MAX, u64::from),
        bytes: slot.bytes.map_or(u64::MAX, Size::bytes),
        ..Grants::NONE
    }
}

fn ticks(duration: Duration) -> Ticks {
    Nanos(duration.nanos()).ticks()
}

fn gap_per_byte(rate: Rate) -> GapPerByte {
    GapPerByte::from_bits_per_sec(rate.bits_per_second())
}

fn chance(probability: Probability) -> Chance {
    Chance::from_parts_per_billion(probability.billionths())
}

fn burst(burst: GilbertElliott) -> fate::GilbertElliott {
    fate::GilbertElliott {
        to_bad: chance(burst.to_bad),
        to_good: chance(burst.to_good),
        bad_loss: chance(burst.bad_loss),
        good_loss: chance(burst.good_loss),
    }
}

/// The table of a distribution; the name of its file, if that was not read.
pub(crate) fn shape<'a>(distribution: &'a Distribution, files: &Files) -> Result<JitterTable, &'a String> {
    Ok(match distribution {
        Distribution::Uniform => jitter::uniform(),
        Distribution::Normal => jitter::normal(),
        Distribution::Pareto => jitter::pareto(),
        Distribution::ParetoNormal => jitter::pareto_normal(),
        Distribution::Table(file) => jitter::resampled(files.jitter.get(file).ok_or(file)?),
    })
}

#[cfg(test)]
mod tests;
