//! Packets that wait, and the memory that they wait in.

use std::{io, sync::Arc};

use perturb_common::abi::Ticket;

use super::{queue::DepartureQueue, tap::Queue};

/// virtio_net header of a TAP (`TUNSETVNETHDRSZ`'s default).
const HEADER: usize = 10;
/// A packet of at most this size lies in one buffer of its own.
const SMALL: usize = 2048;
/// The rest of a packet of at most this size is copied into a buffer of its size.
const MEDIUM: usize = 16 * 1024;
/// The rest of the largest packet: IP's 64 KiB and headers.
const LARGE: usize = 68 * 1024;
/// Large buffers kept for reuse by all threads together,
const SPARE_BUFFERS: u64 = 1024;
/// and the part that they may take at most of the memory that packets may.
const SPARE_PART: u64 = 8;

/// A packet that waits.
pub(super) struct Held {
    queue: Arc<Queue>,
    head: Box<[u8]>,
    tail: Tail,
}

enum Tail {
    None,
    Exact(Box<[u8]>),
    /// A reusable buffer and how much of it is used.
    Pooled(Vec<u8>, usize),
}

impl Tail {
    fn bytes(&self) -> &[u8] {
        match self {
            Self::None => &[],
            Self::Exact(bytes) => bytes,
            Self::Pooled(buffer, used) => &buffer[..*used],
        }
    }
}

/// Bytes of memory that a packet of this length takes: its buffers, and its place in a queue that doubles when it is full.
pub(super) fn memory(length: usize) -> u64 {
    let rest = length.saturating_sub(SMALL);
    let tail = match rest {
        0 => 0,
        rest if rest > MEDIUM => LARGE,
        rest => allocated(rest),
    };
    (allocated(length.min(SMALL)) + tail + 2 * DepartureQueue::<Held>::PLACE) as u64
}

/// What an allocator gives for a buffer: multiples of 16 bytes, behind 8 of its own (`malloc_usable_size`).
const fn allocated(bytes: usize) -> usize {
    (bytes + 8).next_multiple_of(16)
}

impl Held {
    /// The interface whose packet it is.
    pub(super) fn interface(&self) -> u32 {
        self.queue.interface()
    }

    /// Bytes of memory that it takes.
    pub(super) fn memory(&self) -> u64 {
        memory(self.head.len() + self.tail.bytes().len())
    }

    /// Gives it back to the kernel.
    pub(super) fn send(&self) -> io::Result<()> {
        self.queue.send(&self.head, self.tail.bytes())
    }
}

/// Where a thread reads packets into, and large buffers that it uses again.
pub(super) struct Buffers {
    head: Box<[u8]>,
    tail: Vec<u8>,
    spare: Vec<Vec<u8>>,
    most_spare: usize,
}

impl Buffers {
    /// Those of one of so many threads, which may hold so much memory together.
    pub(super) fn new(threads: usize, limit: u64) -> Self {
        let spare = (limit / SPARE_PART / LARGE as u64).min(SPARE_BUFFERS);
        Self {
            head: vec![0; SMALL].into(),
            tail: vec![0; LARGE],
            spare: Vec::new(),
            most_spare: usize::try_from(spare).unwrap_or(usize::MAX) / threads.max(1),
        }
    }

    /// Reads a packet, in the place of the last one; its length. `None` if there is none.
    pub(super) fn read(&mut self, queue: &Queue) -> io::Result<Option<usize>> {
        queue.receive(&mut self.head, &mut self.tail)
    }

    /// When the packet of this length that was read leaves; `None` if it does not say.
    pub(super) fn departure(&self, length: usize) -> Option<u64> {
        departure(&self.head[..length.min(SMALL)])
    }

    /// Gives the packet of this length that was read back to the kernel at once.
    pub(super) fn send(&self, queue: &Queue, length: usize) -> io::Result<()> {
        let rest = length.saturating_sub(SMALL);
        queue.send(&self.head[..length.min(SMALL)], &self.tail[..rest])
    }

    /// Keeps the packet of this length that was read.
    pub(super) fn keep(&mut self, queue: &Arc<Queue>, length: usize) -> Held {
        let rest = length.saturating_sub(SMALL);
        let tail = if rest == 0 {
            Tail::None
        } else if rest <= MEDIUM {
            Tail::Exact(self.tail[..rest].into())
        } else {
            let next = self.spare.pop().unwrap_or_else(|| vec![0; LARGE]);
            Tail::Pooled(std::mem::replace(&mut self.tail, next), rest)
        };
        Held {
            queue: Arc::clone(queue),
            head: self.head[..length.min(SMALL)].into(),
            tail,
        }
    }

    /// Takes back what a packet waited in.
    pub(super) fn reuse(&mut self, held: Held) {
        if let Tail::Pooled(buffer, _) = held.tail
            && self.spare.len() < self.most_spare
        {
            self.spare.push(buffer);
        }
    }
}

/// The departure time in a packet as it comes out of a TAP; `None` if it has none.
fn departure(packet: &[u8]) -> Option<u64> {
    let ticket = packet.get(HEADER..HEADER + 12)?;
    let (departure, token) = ticket.split_at_checked(8)?;
    let ticket = Ticket {
        departure: u64::from_ne_bytes(departure.try_into().ok()?),
        token: u32::from_ne_bytes(token.try_into().ok()?),
    };
    ticket.open().map(|_| ticket.departure)
}

#[cfg(test)]
mod tests {
    use perturb_common::abi::Tag;

    use super::*;

    #[test]
    fn a_departure_is_read_off_a_ticket_only() {
        let tag = Tag {
            epoch: 0,
            direction: 1,
            position: Tag::DELIVER,
            waits: true,
        };
        let ticket = Ticket::new(0x0123_4567_89ab, 77, tag);
        let mut packet = vec![0; HEADER];
        packet.extend(ticket.departure.to_ne_bytes());
        packet.extend(ticket.token.to_ne_bytes());
        assert_eq!(departure(&packet), Some(0x0123_4567_89ab));
        assert_eq!(departure(&packet[..packet.len() - 1]), None);
        packet[HEADER + 8..].fill(0xff);
        assert_eq!(departure(&packet), None);
    }

    #[test]
    fn memory_counts_what_is_allocated() {
        let own = 2 * DepartureQueue::<Held>::PLACE;
        assert_eq!(memory(60), (80 + own) as u64);
        assert_eq!(memory(SMALL + MEDIUM), (SMALL + 16 + MEDIUM + 16 + own) as u64);
        assert_eq!(memory(SMALL + MEDIUM + 1), (SMALL + 16 + LARGE + own) as u64);
    }
}
