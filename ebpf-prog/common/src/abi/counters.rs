//! What comes back: events and counters.

/// Why a packet was dropped, marked or let pass; index into the EVENTS counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Event {
    /// Passed: no class matched, or the class has no path this way.
    Unmatched = 0,
    /// Passed: the lease ran out.
    LeaseExpired = 1,
    /// Passed: the headers are truncated or inconsistent.
    Malformed = 2,
    /// Classified without ports: a later fragment whose first was not seen.
    FragmentUnknown = 3,
    /// Dropped by emulation: a buffer in bytes was full.
    TailDrop = 4,
    /// Dropped by emulation: a buffer in packets was full.
    PacketLimit = 5,
    /// Dropped by emulation: independent loss.
    Loss = 6,
    /// Dropped by emulation: burst loss.
    BurstLoss = 7,
    /// Dropped by emulation: a listed packet.
    NthLoss = 8,
    /// Unintended drop: beyond the horizon of the pacer.
    Horizon = 9,
    /// Unintended drop: the hold device would not take the packet.
    HoldFull = 10,
    /// CPUs that raced for a server's state left it otherwise than one alone would have ([`crate::steps`]): the server stood
    /// idle, a packet waited for longer than it had to, or was dropped beside a free place of a buffer. What was dropped
    /// counts as what it was dropped for besides.
    Contention = 11,
    /// CE mark set.
    Marked = 12,
    /// CE mark wanted, but the packet is not ECN-capable.
    NotEcnCapable = 13,
    /// One more copy sent.
    Duplicated = 14,
    /// A bit flipped.
    Corrupted = 15,
    /// Split into wire packets first.
    Split = 16,
    /// Held packets that came out of the hold device.
    Released = 17,
    /// Foreign packets seen on the hold device, dropped there.
    Foreign = 18,
    /// An instance could not be made, because all that could make room for it are busy: the packet passed that
    /// server as if it were not there.
    NoInstance = 19,
    /// The tables contradict themselves (an index that leads nowhere); passed.
    Inconsistent = 20,
    /// Not logged: whoever reads the log of requests is too slow.
    Unlogged = 21,
    /// Dropped by emulation: given up after too many collisions.
    Collided = 22,
    /// Unintended drop: too many packets are held that need a slot.
    NoSlot = 23,
    /// Unintended drop: the packet came out of the hold device so late that its slot was another's.
    SlotReused = 24,
    /// Packets whose path was begun; a super-packet that is split first counts once for each wire packet.
    Captured = 25,
    /// Unintended drop: sch_fq holds as much memory as it may.
    MemoryLimit = 26,
    /// The paths of the profile were changed while a packet waited between two servers of its own: it skipped the rest.
    Outdated = 27,
    /// Dropped by emulation: it would have begun service while its server was down.
    Down = 28,
    /// Dropped by emulation: by the law of a queue ([`crate::queue`]), whatever room there was.
    EarlyDrop = 29,
    /// Passed: the emulation was paused.
    Paused = 30,
}

/// Number of events.
pub const EVENTS: u32 = 31;

/// Index of a class's counters in the CLASS_COUNTERS map.
#[inline(always)]
#[must_use]
pub const fn class_counter(class: u32, direction: u32) -> u32 {
    class * 2 + direction
}

/// Counters of a class in one direction, per CPU, by [`class_counter`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "alloc", derive(bytemuck::Pod, bytemuck::Zeroable))]
#[repr(C)]
pub struct ClassCounters {
    /// Packets (super-packets count once).
    pub packets: u64,
    /// Wire packets.
    pub segments: u64,
    /// Wire bytes.
    pub bytes: u64,
    /// Dropped, whatever the reason.
    pub dropped: u64,
    /// Sum of the delays of what was not dropped, ns; and of those that a packet which was dropped on a
    /// later leg had had before.
    pub delay: u64,
}

/// Counters of a server, per CPU, by its slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "alloc", derive(bytemuck::Pod, bytemuck::Zeroable))]
#[repr(C)]
pub struct ServerCounters {
    /// Packets served.
    pub packets: u64,
    /// Wire bytes served.
    pub bytes: u64,
    /// Dropped here because a buffer was full.
    pub tail_drops: u64,
    /// Dropped here by a loss model, or given up after collisions.
    pub losses: u64,
    /// Time it was busy, ticks.
    pub busy: u64,
    /// Largest backlog that a packet found, ticks.
    pub max_backlog: u64,
    /// Dropped here by the law of its queue.
    pub early_drops: u64,
    /// Marked here by that law in place of being dropped.
    pub marks: u64,
    /// Marked here because they waited for longer than its threshold.
    pub marks_above: u64,
    /// Marked here in place of being lost.
    pub loss_marks: u64,
}

/// What the controller tells of pacer and devices through the PACER_STATS map: index into it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum PacerStat {
    /// Packets that wait.
    HeldPackets = 0,
    /// Memory that they take, bytes.
    HeldBytes = 1,
    /// Packets that it dropped: the limit was reached, or the TAP would not take them back.
    Dropped = 2,
    /// 1 if its threads may have real-time priority.
    RealTime = 3,
    /// How often a thread gave real-time priority up because it was busy.
    Busy = 4,
    /// How often a thread was kept from running for more than 5 ms while a packet was due.
    Stalls = 5,
    /// For how long in all, ns.
    StalledNanos = 6,
    /// The longest of them, ns.
    LongestStall = 7,
    /// Packets that hold devices dropped: the TAP's ring, sch_fq, a processor's backlog behind a veth.
    HoldDrops = 8,
    /// Packets that splitters dropped.
    SplitterDrops = 9,
    /// Packets that the emulated interfaces themselves dropped since they are emulated, whosesoever they were.
    InterfaceDrops = 10,
    /// Threads that the user pacer has.
    Threads = 11,
}

/// Number of [`PacerStat`]s.
const PACER_STATS: u32 = 12;

/// Threads that the user pacer has at most.
pub const MAX_PACER_THREADS: u32 = 8;

/// What the user pacer tells of each of its threads: [`thread_stat`] says where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum ThreadStat {
    /// Packets that it let go.
    Released = 0,
    /// As [`PacerStat::Busy`].
    Busy = 1,
    /// As [`PacerStat::Stalls`].
    Stalls = 2,
    /// As [`PacerStat::StalledNanos`].
    StalledNanos = 3,
    /// As [`PacerStat::LongestStall`].
    LongestStall = 4,
}

/// Number of [`ThreadStat`]s.
const THREAD_STATS: u32 = 5;

/// Index in the PACER_STATS map of a figure of the user pacer's thread of this number: behind all [`PacerStat`]s.
#[inline(always)]
#[must_use]
pub const fn thread_stat(thread: u32, stat: ThreadStat) -> u32 {
    PACER_STATS + thread * THREAD_STATS + stat as u32
}

/// Elements of the PACER_STATS map.
pub const PACER_STATS_LEN: u32 = PACER_STATS + MAX_PACER_THREADS * THREAD_STATS;
