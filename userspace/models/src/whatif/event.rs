//! The events of a run.

/// What matches a send with its receive. Ids are hashed to 64 bits: only messages that are on their
/// way at the same time are told apart by it, so even a million of them collide once in 10^7 runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MessageId(u64);

impl MessageId {
    /// Of a number.
    #[must_use]
    pub fn of_number(number: u64) -> Self {
        Self(mix(number ^ 0x6d65_7373_6167_6531))
    }

    /// Of a name: FNV-1a, mixed, because FNV leaves the high bits of short names alike.
    #[must_use]
    pub fn of_name(name: &[u8]) -> Self {
        let mut hash = 0xcbf2_9ce4_8422_2325_u64;
        for &byte in name {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
        Self(mix(hash))
    }

    /// The hash itself.
    #[must_use]
    pub fn hash_value(self) -> u64 {
        self.0
    }
}

/// The finalizer of SplitMix64: a bijection, so numbers never collide with each other.
fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// What happens at an event.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    /// A stretch of computing ends; nothing else.
    Compute,
    /// As [`Kind::Compute`], sent only to show that the process is alive.
    KeepAlive,
    /// The process begins to wait for a message.
    StartRecv {
        /// Which message, where the trace knows it: then the receive's end, or the process's, is what it does next.
        message: Option<MessageId>,
    },
    /// The message is there and taken.
    EndRecv {
        /// Which message.
        message: MessageId,
    },
    /// A message is sent.
    Send {
        /// Which message.
        message: MessageId,
        /// Its size.
        bytes: f64,
        /// The receiving process, where the trace knows it.
        to: Option<u32>,
    },
    /// The process ends.
    Exit,
}

impl Kind {
    /// The name in the input.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Compute => "compute",
            Self::KeepAlive => "keep_alive",
            Self::StartRecv { .. } => "start_recv",
            Self::EndRecv { .. } => "end_recv",
            Self::Send { .. } => "send",
            Self::Exit => "exit",
        }
    }
}

/// One event of a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Event {
    /// The process, as its index in the [`Placement`](super::Placement).
    pub process: u32,
    /// CPU time since the process's previous event, in µs.
    pub cpu: f64,
    /// What happens.
    pub kind: Kind,
    /// Where the event stands in the input, from 1; for errors.
    pub line: u64,
}
