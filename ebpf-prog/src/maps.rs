//! The maps. Tables that the controller writes have two halves ([`perturb_common::abi`]); state and
//! counters are written here only. The sizes of tables, states and counters are the largest there are; the controller
//! makes the maps as large as the profile needs.

use aya_ebpf::{
    Global,
    macros::map,
    maps::{Array, HashMap, LruHashMap, PerCpuArray, RingBuf},
};
use perturb_common::{
    abi::{
        Attachment, BUCKETS, Bound, CLOCKS_LEN, CONTROL_LEN, Class, ClassCounters, EVENTS, FlowKey, FlowNote,
        FragmentKey, FragmentPorts, HELD_LEN, JitterTable, MAX_BOUNDS, MAX_CLASSES, MAX_COLLISION_TABLES,
        MAX_JITTER_TABLES, MAX_NTH, MAX_PATHS, MAX_RING_SLOTS, MAX_RULES, MAX_SEGMENTS, MAX_SERVERS,
        MAX_TIMELINES, MAX_VECTORS, NEAR_INTERFACES, NONE, NOTED_FLOWS, NthKey, PACER_STATS_LEN, PAIR_PLACES,
        Path, REQUEST_BYTES, RuleVector, SIGHTING_BYTES, SPANS_LEN, ServerConfig, ServerCounters,
        ServerState, Settings, Slot, Sojourns, Span,
    },
    collisions::{CollisionTable, Contention},
    flow::{FlowEntry, SECRET_WORDS},
    grants::Granted,
    instance::PAGE_PLACES,
    network::PairEntry,
    priorities::LABELS,
    queue::Queue,
    timeline::{Course, Row},
};

/// 1 if the kernel compiles programs: callbacks (`bpf_loop`) need it, the interpreter refuses them.
#[cfg_attr(target_arch = "bpf", unsafe(no_mangle))]
pub(crate) static HAVE_JIT: Global<u32> = Global::new(1);
/// [`perturb_common::abi::PACER_FQ`] or [`perturb_common::abi::PACER_USER`].
#[cfg_attr(target_arch = "bpf", unsafe(no_mangle))]
pub(crate) static PACER: Global<u32> = Global::new(0);
/// 1 if the kernel says of which cgroup a packet's socket is (`bpf_skb_ancestor_cgroup_id`).
#[cfg_attr(target_arch = "bpf", unsafe(no_mangle))]
pub(crate) static HAVE_CGROUPS: Global<u32> = Global::new(1);
/// One less than the places of the flow cache, a power of two.
#[cfg_attr(target_arch = "bpf", unsafe(no_mangle))]
pub(crate) static FLOW_MASK: Global<u32> = Global::new(262_143);
/// One less than the places of the table of instances, a power of two.
#[cfg_attr(target_arch = "bpf", unsafe(no_mangle))]
pub(crate) static INSTANCE_MASK: Global<u32> = Global::new(PAGE_PLACES - 1);
/// The slot of a server per flow at whose instances the flow cache lies ([`perturb_common::flow::beside`]), or
/// [`NONE`]: in [`FLOWS`].
#[cfg_attr(target_arch = "bpf", unsafe(no_mangle))]
pub(crate) static FLOW_HOME: Global<u32> = Global::new(NONE);
/// What flows are hashed by ([`perturb_common::flow::Secret`]): the controller writes random words.
#[cfg_attr(target_arch = "bpf", unsafe(no_mangle))]
pub(crate) static SECRET: [Global<u64>; SECRET_WORDS] = [const { Global::new(0) }; SECRET_WORDS];

/// BPF_F_MMAPABLE (5.5): nobody maps them, but the values then begin at a page (`array_map_alloc`), and so at a cache
/// line; else 16 bytes after one.
const FROM_A_PAGE: u32 = 1 << 10;

#[map]
pub(crate) static CONTROL: Array<u64> = Array::with_max_entries(CONTROL_LEN, 0);
#[map]
pub(crate) static SETTINGS: Array<Settings> = Array::with_max_entries(2, 0);
#[map]
pub(crate) static ATTACHMENTS: HashMap<u32, Attachment> = HashMap::with_max_entries(4096, 0);
/// The same for interfaces of low index, which most are: an array is read without a call.
#[map]
pub(crate) static NEAR: Array<Attachment> = Array::with_max_entries(NEAR_INTERFACES, 0);

#[map]
pub(crate) static SERVERS: Array<ServerConfig> = Array::with_max_entries(2 * MAX_SERVERS, 0);
#[map]
pub(crate) static PATHS: Array<Path> = Array::with_max_entries(2 * MAX_PATHS, 0);
#[map]
pub(crate) static CLASSES: Array<Class> = Array::with_max_entries(2 * MAX_CLASSES, 0);
#[map]
pub(crate) static JITTER: Array<JitterTable> = Array::with_max_entries(2 * MAX_JITTER_TABLES, 0);
#[map]
pub(crate) static COLLISIONS: Array<CollisionTable> = Array::with_max_entries(2 * MAX_COLLISION_TABLES, 0);
#[map]
pub(crate) static TIMELINES: Array<Course> = Array::with_max_entries(2 * MAX_TIMELINES, 0);
/// Of both halves, one behind the other.
#[map]
pub(crate) static SEGMENTS: Array<Row> = Array::with_max_entries(2 * MAX_SEGMENTS, FROM_A_PAGE);
/// By slot, of servers that change: [`perturb_common::timeline::Hints`].
#[map]
pub(crate) static HINTS: Array<u64> = Array::with_max_entries(MAX_SERVERS, 0);
/// By slot, of servers whose law judges packets.
#[map]
pub(crate) static QUEUES: Array<Queue> = Array::with_max_entries(MAX_SERVERS, FROM_A_PAGE);
/// By slot, of servers whose packets leave in slots.
#[map]
pub(crate) static GRANTS: Array<Granted> = Array::with_max_entries(MAX_SERVERS, FROM_A_PAGE);
/// When timelines' clocks started, ticks of CLOCK_MONOTONIC; 0 if they have not yet.
#[map]
pub(crate) static CLOCKS: Array<u64> = Array::with_max_entries(CLOCKS_LEN, 0);
#[map]
pub(crate) static NTH: HashMap<NthKey, u32> =
    HashMap::with_max_entries(2 * MAX_NTH, 1 /* BPF_F_NO_PREALLOC */);

#[map]
pub(crate) static SPANS: Array<Span> = Array::with_max_entries(SPANS_LEN, 0);
#[map]
pub(crate) static BOUNDS: Array<Bound> = Array::with_max_entries(2 * MAX_BOUNDS, 0);
#[map]
pub(crate) static VECTORS: Array<RuleVector> = Array::with_max_entries(2 * MAX_VECTORS, 0);
#[map]
pub(crate) static RULES: Array<u32> = Array::with_max_entries(4 * MAX_RULES, 0);

#[map]
pub(crate) static STATES: Array<ServerState> = Array::with_max_entries(MAX_SERVERS, FROM_A_PAGE);
/// By slot, of servers with collisions.
#[map]
pub(crate) static CONTENTION: Array<Contention> = Array::with_max_entries(MAX_SERVERS, 0);
#[map]
pub(crate) static ORDINALS: Array<u64> = Array::with_max_entries(MAX_SERVERS, 0);
#[map]
pub(crate) static RING: Array<u64> = Array::with_max_entries(MAX_RING_SLOTS, 0);
/// Resized by the controller to [`perturb_common::instance::places`] of the profile's `limits.flows`.
#[map]
pub(crate) static INSTANCES: Array<ServerState> = Array::with_max_entries(PAGE_PLACES, FROM_A_PAGE);
/// Resized by the controller to [`perturb_common::flow::places`] of the profile's `limits.flows`.
#[map]
pub(crate) static FLOWS: Array<FlowEntry> = Array::with_max_entries(262_144, FROM_A_PAGE);
/// Which hosts of a network a flow goes between.
#[map]
pub(crate) static PAIRS: Array<PairEntry> = Array::with_max_entries(PAIR_PLACES, 0);
/// The path that a packet takes through a network.
#[map]
pub(crate) static JOINED: PerCpuArray<Path> = PerCpuArray::with_max_entries(1, 0);
#[map]
pub(crate) static FRAGMENTS: LruHashMap<FragmentKey, FragmentPorts> = LruHashMap::with_max_entries(8192, 0);

/// Written once per flow.
#[map]
pub(crate) static NOTED: LruHashMap<FlowKey, FlowNote> = LruHashMap::with_max_entries(NOTED_FLOWS, 0);
/// Written while `perturb status --flows --watch` reads it.
#[map]
pub(crate) static REQUESTS: RingBuf = RingBuf::with_byte_size(REQUEST_BYTES, 0);
/// Written while `perturb capture` reads it.
#[map]
pub(crate) static SIGHTINGS: RingBuf = RingBuf::with_byte_size(SIGHTING_BYTES, 0);
/// By [`perturb_common::abi::Direction`], records for which there was no room there.
#[map]
pub(crate) static UNSEEN: PerCpuArray<u64> = PerCpuArray::with_max_entries(2, 0);

/// Departures of packets that cannot carry them (fq), and what the MAC addresses were (user pacer).
#[map]
pub(crate) static SLOTS: Array<Slot> = Array::with_max_entries(1 << 18, 0);
#[map]
pub(crate) static NEXT_SLOT: Array<u64> = Array::with_max_entries(1, 0);
/// Priorities that packets had, by label.
#[map]
pub(crate) static PRIORITIES: Array<u64> = Array::with_max_entries(LABELS, 0);

/// What sch_fq holds, as words of [`perturb_common::memory::Held`].
#[map]
pub(crate) static HELD: Array<u64> = Array::with_max_entries(HELD_LEN, 0);
/// What a processor has not told there yet.
#[map]
pub(crate) static HELD_HERE: PerCpuArray<u64> = PerCpuArray::with_max_entries(1, 0);

#[map]
pub(crate) static EVENTS_SEEN: PerCpuArray<u64> = PerCpuArray::with_max_entries(EVENTS, 0);
#[map]
pub(crate) static CLASS_COUNTERS: PerCpuArray<ClassCounters> =
    PerCpuArray::with_max_entries(2 * MAX_CLASSES, 0);
#[map]
pub(crate) static SERVER_COUNTERS: PerCpuArray<ServerCounters> =
    PerCpuArray::with_max_entries(MAX_SERVERS, 0);
#[map]
pub(crate) static LATENESS: PerCpuArray<u64> = PerCpuArray::with_max_entries(BUCKETS, 0);
/// By slot, of servers whose law judges packets. Not per CPU, for each takes 2 KiB: who counts here has just had the queue's lock.
#[map]
pub(crate) static SOJOURNS: Array<Sojourns> = Array::with_max_entries(MAX_SERVERS, 0);
/// Written by the controller, read by `perturb status`.
#[map]
pub(crate) static PACER_STATS: Array<u64> = Array::with_max_entries(PACER_STATS_LEN, 0);
