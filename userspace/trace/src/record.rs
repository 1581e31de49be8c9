//! The layout of a ring: a header, then slots of 64 bytes. Both sides are compiled from this file, and a
//! collector refuses a ring of another [`VERSION`].

use std::cell::UnsafeCell;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// First word of a ring, written last: "perturb\n".
pub(crate) const MAGIC: u64 = u64::from_le_bytes(*b"perturb\n");
/// Of this layout.
pub(crate) const VERSION: u32 = 3;
/// Records in a ring.
pub(crate) const CAPACITY: u64 = 4096;
/// Where the records begin, in bytes.
pub(crate) const RECORDS: usize = 4096;
/// Size of a ring in bytes.
pub(crate) const SIZE: usize = RECORDS + CAPACITY as usize * size_of::<Slot>();

/// The beginning of a ring.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Header {
    /// [`MAGIC`] once the rest is valid.
    pub(crate) magic: AtomicU64,
    /// [`VERSION`].
    pub(crate) version: u32,
    /// The process, in its own PID namespace.
    pub(crate) pid: u32,
    /// Inode of its PID namespace.
    pub(crate) pid_namespace: u64,
    /// Inode of its network namespace.
    pub(crate) net_namespace: u64,
    /// What recording one event costs, in ns, as measured when the ring was made.
    pub(crate) cost_ns: u64,
    /// The program's name, zero-padded.
    pub(crate) name: [u8; 32],
    /// Its host's name, zero-padded.
    pub(crate) host: [u8; 64],
    /// Set by the collector when it stops reading.
    pub(crate) closed: AtomicU32,
    /// Records reserved by writers.
    pub(crate) head: AtomicU64,
    /// Records taken by the collector.
    pub(crate) tail: AtomicU64,
    /// Records lost because nobody took the ones before.
    pub(crate) lost: AtomicU64,
    /// Threads that have recorded; those beyond are not looked at when they are silent.
    pub(crate) threads: [ThreadState; THREADS],
}

/// Threads whose state a ring has room for.
pub(crate) const THREADS: usize = 64;

/// What whoever reads a thread's CPU clock from outside has to know of it.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct ThreadState {
    /// Its number; 0 if the place is free.
    pub(crate) thread: AtomicU32,
    /// Begins and ends of MPI calls: odd inside one.
    pub(crate) calls: AtomicU32,
    /// CPU time that is left out, in ns.
    pub(crate) out_ns: AtomicU64,
    /// CLOCK_MONOTONIC of its last record, in ns; 0 until the rest is filled in.
    pub(crate) time_ns: AtomicU64,
}

impl ThreadState {
    /// Its thread ends: the next one that has the place fills it in anew.
    pub(crate) fn free(&self) {
        self.time_ns.store(0, Ordering::Relaxed);
        self.thread.store(0, Ordering::Release);
    }
}

/// Room for a record.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Slot {
    /// The lap of the ring, from 1, once the rest is whole.
    pub(crate) lap: AtomicU32,
    thread: AtomicU32,
    cpu_ns: AtomicU64,
    time_ns: AtomicU64,
    event: UnsafeCell<MaybeUninit<Event>>,
}

impl Slot {
    /// Writes a record, and then the lap.
    ///
    /// # Safety
    /// Nobody else writes into this slot, and the reader has taken what was in it.
    pub(crate) unsafe fn put(&self, lap: u32, record: Record) {
        self.thread.store(record.thread, Ordering::Relaxed);
        self.cpu_ns.store(record.cpu_ns, Ordering::Relaxed);
        self.time_ns.store(record.time_ns, Ordering::Relaxed);
        // SAFETY: as the caller says.
        unsafe { self.event.get().write(MaybeUninit::new(record.event)) };
        self.lap.store(lap, Ordering::Release);
    }

    /// The record of this lap, if it is whole; inside, none if its event is not one of [`Event`]'s.
    pub(crate) fn take(&self, lap: u32) -> Option<Option<Record>> {
        if self.lap.load(Ordering::Acquire) != lap {
            return None;
        }
        // SAFETY: once the record is whole, its writer leaves it alone until the reader's `tail` has passed it; every
        // event begins with its number (`repr(u16)`).
        let (event, number) = unsafe {
            let event = self.event.get().read_volatile();
            // Of the copy: a program that overwrites what it shares must not change it in between.
            (event, event.as_ptr().cast::<u16>().read())
        };
        Some((1..=Event::LAST).contains(&number).then(|| Record {
            thread: self.thread.load(Ordering::Relaxed),
            cpu_ns: self.cpu_ns.load(Ordering::Relaxed),
            time_ns: self.time_ns.load(Ordering::Relaxed),
            // SAFETY: the number is one of an event, and its fields are integers, for which all bits will do.
            event: unsafe { event.assume_init() },
        }))
    }
}

/// One event of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(not(interpose), derive(serde::Serialize, serde::Deserialize))]
pub(crate) struct Record {
    /// The thread.
    pub(crate) thread: u32,
    /// The thread's CPU time so far, without MPI calls, in ns.
    pub(crate) cpu_ns: u64,
    /// CLOCK_MONOTONIC, in ns: of what sends and of MPI's blocking receives when the call began, else when it ended.
    pub(crate) time_ns: u64,
    /// What has happened.
    pub(crate) event: Event,
}

/// What a record tells. All fields are integers and arrays of them: another process writes them.
#[repr(u16)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(not(interpose), derive(serde::Serialize, serde::Deserialize))]
pub(crate) enum Event {
    /// MPI is initialized; the rank is that in the world.
    MpiStart { rank: u32 } = 1,
    /// A communicator of one group, or of two, which has `size` members to send to; `Members` follow.
    Communicator {
        groups: u16,
        size: u32,
        communicator: u64,
    },
    /// Ranks in the world of a communicator's members: `count` of them.
    Members {
        count: u16,
        communicator: u64,
        ranks: [u32; 6],
    },
    /// A communicator is freed.
    CommunicatorFreed { communicator: u64 },
    /// A message is sent to a rank of the communicator; the request is 0 if the call waits.
    Send {
        peer: u32,
        tag: i32,
        communicator: u64,
        bytes: u64,
        request: u64,
    },
    /// A message is received from a rank of the communicator.
    Received { peer: u32, tag: i32, communicator: u64 },
    /// A receive is posted, or a message is matched, which is a request until it is received.
    Posted { communicator: u64, request: u64 },
    /// A receive of a matched message is posted: `request` takes its place.
    MatchedPosted { message: u64, request: u64 },
    /// A request is complete, with a message of a rank of the communicator if it was a receive; -1 if it was cancelled.
    Complete { peer: i32, tag: i32, request: u64 },
    /// A persistent send.
    SendInit {
        peer: u32,
        tag: i32,
        communicator: u64,
        bytes: u64,
        request: u64,
    },
    /// A persistent receive.
    ReceiveInit { communicator: u64, request: u64 },
    /// A persistent request is started.
    Started { request: u64 },
    /// Bytes for each rank, for the collective that follows: `count` of them.
    Sizes { count: u16, sizes: [u32; 8] },
    /// A collective, by the number of its [`Collective`]; the request is 0 if the call waits.
    Collective {
        which: u16,
        root: u32,
        communicator: u64,
        bytes: u64,
        request: u64,
    },
    /// MPI is about to be finalized.
    MpiEnd,
    /// A connected TCP socket's own address, as IPv6 writes it; `Remote` follows.
    Local {
        port: u16,
        descriptor: i32,
        address: [u64; 2],
        cookie: u64,
    },
    /// Its peer's address.
    Remote {
        port: u16,
        descriptor: i32,
        address: [u64; 2],
        cookie: u64,
    },
    /// Bytes were sent; `before` is the CPU time at the call.
    Sent {
        descriptor: i32,
        bytes: u64,
        before: u64,
    },
    /// Bytes were received; `before` is the CPU time at the call.
    Taken {
        descriptor: i32,
        bytes: u64,
        before: u64,
    },
    /// A descriptor is closed.
    Closed { descriptor: i32 },
    /// The process ends.
    Exit,
    /// The thread ends.
    ThreadExit,
    /// MPI_Pcontrol(0): what follows is not recorded.
    Paused,
    /// It is recorded again; CPU time in between is nobody's.
    Resumed,
    /// The thread goes on computing: written by the collector, for one that has recorded nothing for long.
    KeepAlive,
}

impl Event {
    /// The number of the last one.
    const LAST: u16 = 25;
}

/// Which collective operation.
#[repr(u16)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Collective {
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
    pub(crate) const ALL: [Self; 10] = [
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
    pub(crate) fn of(number: u16) -> Option<Self> {
        Self::ALL.get(usize::from(number).checked_sub(1)?).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slot() -> Slot {
        // SAFETY: a mapping begins as zeros, and zeros are a slot.
        unsafe { std::mem::zeroed() }
    }

    #[test]
    fn the_layout_fits() {
        assert_eq!(size_of::<Slot>(), 64);
        assert_eq!(SIZE, 4096 + 4096 * 64);
        const { assert!(size_of::<Header>() <= RECORDS) };
        for number in 1..=10 {
            assert_eq!(Collective::of(number).map(|kind| kind as u16), Some(number));
        }
        assert_eq!((Collective::of(0), Collective::of(11)), (None, None));
    }

    #[test]
    fn a_record_is_read_as_it_was_written() {
        let record = Record {
            thread: 7,
            cpu_ns: 8,
            time_ns: u64::MAX,
            event: Event::KeepAlive,
        };
        let slot = slot();
        assert_eq!(slot.take(3), None);
        // SAFETY: nobody else has this slot.
        unsafe { slot.put(3, record) };
        assert_eq!(slot.take(3), Some(Some(record)));
        for number in [0, Event::LAST + 1, u16::MAX] {
            // SAFETY: as above; the slot is larger than a number.
            unsafe { slot.event.get().cast::<u16>().write(number) };
            assert_eq!(slot.take(3), Some(None), "{number}");
        }
        // SAFETY: as above. `KeepAlive` is the last one.
        unsafe { slot.event.get().cast::<u16>().write(Event::LAST) };
        assert_eq!(slot.take(3), Some(Some(record)));
    }
}
