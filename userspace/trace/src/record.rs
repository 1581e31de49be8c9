//! The layout of a ring: a header, then records of 64 bytes. Both sides are compiled from this file, and a
//! collector refuses a ring of another [`VERSION`].

use std::sync::atomic::{AtomicU32, AtomicU64};

/// First word of a ring, written last: "perturb\n".
pub const MAGIC: u64 = u64::from_le_bytes(*b"perturb\n");
/// Of this layout.
pub const VERSION: u32 = 1;
/// Records in a ring.
pub const CAPACITY: u64 = 4096;
/// Where the records begin, in bytes.
pub const RECORDS: usize = 4096;
/// Size of a ring in bytes.
pub const SIZE: usize = RECORDS + CAPACITY as usize * size_of::<Slot>();

/// The beginning of a ring.
#[repr(C)]
#[derive(Debug)]
pub struct Header {
    /// [`MAGIC`] once the rest is valid.
    pub magic: AtomicU64,
    /// [`VERSION`].
    pub version: u32,
    /// The process, in its own PID namespace.
    pub pid: u32,
    /// Inode of its PID namespace.
    pub pid_namespace: u64,
    /// Inode of its network namespace.
    pub net_namespace: u64,
    /// What recording one event costs, in ns, as measured when the ring was made.
    pub cost_ns: u64,
    /// The program's name, zero-padded.
    pub name: [u8; 32],
    /// Its host's name, zero-padded.
    pub host: [u8; 64],
    /// Set by the collector when it stops reading.
    pub closed: AtomicU32,
    /// Records reserved by writers.
    pub head: AtomicU64,
    /// Records taken by the collector.
    pub tail: AtomicU64,
    /// Records lost because nobody took the ones before.
    pub lost: AtomicU64,
}

/// One event of a thread.
#[repr(C)]
#[derive(Debug)]
pub struct Slot {
    /// The lap of the ring, from 1, once the record is whole.
    pub lap: AtomicU32,
    /// What follows it.
    pub record: Record,
}

/// What a slot holds, without the mark that it is whole.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// A [`Kind`].
    pub kind: u16,
    /// A small number that belongs to the kind.
    pub small: u16,
    /// The thread.
    pub thread: u32,
    /// The thread's CPU time so far, without MPI calls, in ns.
    pub cpu_ns: u64,
    /// CLOCK_MONOTONIC, in ns.
    pub time_ns: u64,
    /// What belongs to the kind.
    pub words: [u64; 4],
}

/// What a record tells; in brackets the meaning of its words.
#[repr(u16)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// MPI is initialized \[rank, size\].
    MpiStart = 1,
    /// A communicator \[handle, size, 1 if it has two groups\]; `Members` follow.
    Communicator,
    /// Ranks in the world of a communicator's members: `small` of them \[handle, two per word\].
    Members,
    /// A communicator is freed \[handle\].
    CommunicatorFreed,
    /// A message is sent \[communicator, destination and tag, bytes, request or 0\].
    Send,
    /// A message is received \[communicator, source and tag\].
    Received,
    /// A receive is posted \[communicator, request\].
    Posted,
    /// A request is complete \[request, source and tag\].
    Complete,
    /// A persistent send \[communicator, destination and tag, bytes, request\].
    SendInit,
    /// A persistent receive \[communicator, request\].
    ReceiveInit,
    /// A persistent request is started \[request\].
    Started,
    /// Bytes for each rank, for the collective that follows: `small` of them \[two per word\].
    Sizes,
    /// A collective; `small` is a [`Collective`] \[communicator, bytes, request or 0, root\].
    Collective,
    /// MPI is about to be finalized.
    MpiEnd,
    /// A connected TCP socket's own address; `small` is its port \[descriptor, address, address, cookie\].
    Local,
    /// Its peer's address; `small` is its port \[descriptor, address, address, cookie\].
    Remote,
    /// Bytes were sent \[descriptor, bytes, CPU time at the call\].
    Sent,
    /// Bytes were received \[descriptor, bytes, CPU time at the call\].
    Taken,
    /// A descriptor is closed \[descriptor\].
    Closed,
    /// The process ends; the thread if `small` is 1.
    Exit,
    /// MPI_Pcontrol(0): what follows is not recorded.
    Paused,
    /// It is recorded again; CPU time in between is nobody's.
    Resumed,
}

impl Kind {
    /// By number.
    #[must_use]
    pub fn of(number: u16) -> Option<Self> {
        const ALL: [Kind; 22] = [
            Kind::MpiStart,
            Kind::Communicator,
            Kind::Members,
            Kind::CommunicatorFreed,
            Kind::Send,
            Kind::Received,
            Kind::Posted,
            Kind::Complete,
            Kind::SendInit,
            Kind::ReceiveInit,
            Kind::Started,
            Kind::Sizes,
            Kind::Collective,
            Kind::MpiEnd,
            Kind::Local,
            Kind::Remote,
            Kind::Sent,
            Kind::Taken,
            Kind::Closed,
            Kind::Exit,
            Kind::Paused,
            Kind::Resumed,
        ];
        ALL.get(usize::from(number).checked_sub(1)?).copied()
    }
}

/// Which collective operation.
#[repr(u16)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Collective {
    /// MPI_Barrier.
    Barrier = 1,
    /// MPI_Bcast.
    Broadcast,
    /// MPI_Reduce.
    Reduce,
    /// MPI_Allreduce.
    AllReduce,
    /// MPI_Gather, MPI_Gatherv.
    Gather,
    /// MPI_Scatter, MPI_Scatterv; with sizes, the root's.
    Scatter,
    /// MPI_Allgather, MPI_Allgatherv.
    AllGather,
    /// MPI_Alltoall, MPI_Alltoallv, MPI_Alltoallw; with sizes, one per destination.
    AllToAll,
    /// MPI_Reduce_scatter, MPI_Reduce_scatter_block; bytes of the whole vector.
    ReduceScatter,
    /// MPI_Scan, MPI_Exscan.
    Scan,
}

impl Collective {
    /// All, by their numbers from 1.
    pub const ALL: [Self; 10] = [
        Self::Barrier,
        Self::Broadcast,
        Self::Reduce,
        Self::AllReduce,
        Self::Gather,
        Self::Scatter,
        Self::AllGather,
        Self::AllToAll,
        Self::ReduceScatter,
        Self::Scan,
    ];

    /// By number.
    #[must_use]
    pub fn of(number: u16) -> Option<Self> {
        Self::ALL.get(usize::from(number).checked_sub(1)?).copied()
    }
}

/// Two 32-bit numbers in a word.
#[must_use]
pub const fn pair(high: u32, low: u32) -> u64 {
    (high as u64) << 32 | low as u64
}

/// The numbers of a [`pair`].
#[must_use]
pub const fn unpair(word: u64) -> (u32, u32) {
    ((word >> 32) as u32, word as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_layout_fits() {
        assert_eq!(size_of::<Slot>(), 64);
        assert_eq!(SIZE, 4096 + 4096 * 64);
        const { assert!(size_of::<Header>() <= RECORDS) };
    }

    #[test]
    fn numbers_and_names_agree() {
        for number in 1..=22 {
            assert_eq!(Kind::of(number).map(|kind| kind as u16), Some(number));
        }
        for number in 1..=10 {
            assert_eq!(Collective::of(number).map(|kind| kind as u16), Some(number));
        }
        assert_eq!((Kind::of(0), Kind::of(23)), (None, None));
        assert_eq!((Collective::of(0), Collective::of(11)), (None, None));
    }

    #[test]
    fn pairs() {
        assert_eq!(unpair(pair(u32::MAX, 7)), (u32::MAX, 7));
    }
}
