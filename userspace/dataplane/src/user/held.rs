//! Packets that wait, and the memory that they wait in; and what the user pacer's threads do with them.

use std::{io, sync::Arc};

use perturb_common::abi::Ticket;

use super::{figures::Figures, queue::DepartureQueue, tap::Queue, worker::Course};

/// virtio_net header of a TAP (`TUNSETVNETHDRSZ`'s default).
pub(crate) const HEADER: usize = 10;
/// A packet of at most this size lies in one buffer of its own.
pub(crate) const SMALL: usize = 2048;
/// The rest of a packet of at most this size is copied into a buffer of its size.
const MEDIUM: usize = 16 * 1024;
/// The rest of the largest packet: IP's 64 KiB and headers.
const LARGE: usize = 68 * 1024;
/// Large buffers kept for reuse by all threads together,
const SPARE_BUFFERS: u64 = 1024;
/// and the part that they may take at most of the memory that packets may.
const SPARE_PART: u64 = 8;

/// A packet that waits.
pub(crate) struct Held {
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
pub(crate) fn memory(length: usize) -> u64 {
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
    /// Where it lies: its first bytes, and the rest.
    pub(crate) fn bytes(&mut self) -> (&mut [u8], &mut [u8]) {
        let tail = match &mut self.tail {
            Tail::None => &mut [][..],
            Tail::Exact(bytes) => bytes,
            Tail::Pooled(buffer, used) => &mut buffer[..*used],
        };
        (&mut self.head, tail)
    }

    /// One of these bytes, which came from that queue.
    pub(crate) fn of(queue: &Arc<Queue>, bytes: &[u8]) -> Self {
        let (head, rest) = bytes.split_at(bytes.len().min(SMALL));
        Self {
            queue: Arc::clone(queue),
            head: head.into(),
            tail: if rest.is_empty() {
                Tail::None
            } else {
                Tail::Exact(rest.into())
            },
        }
    }

    /// Another one of the same bytes.
    pub(crate) fn copy(&self) -> Self {
        Self::of(&self.queue, &[&self.head, self.tail.bytes()].concat())
    }

    /// The queue that it came from.
    pub(crate) fn queue(&self) -> &Arc<Queue> {
        &self.queue
    }

    /// Gives it to the kernel by another queue.
    pub(crate) fn send_to(&self, queue: &Queue) -> io::Result<()> {
        queue.send(&self.head, self.tail.bytes())
    }

    /// Bytes of memory that it takes.
    pub(crate) fn memory(&self) -> u64 {
        memory(self.head.len() + self.tail.bytes().len())
    }

    /// Gives it back to the kernel.
    pub(crate) fn send(&self) -> io::Result<()> {
        self.queue.send(&self.head, self.tail.bytes())
    }
}

/// Where a thread reads packets into, and large buffers that it uses again.
pub(crate) struct Buffers {
    head: Box<[u8]>,
    tail: Vec<u8>,
    spare: Vec<Vec<u8>>,
    most_spare: usize,
}

impl Buffers {
    /// Those of one of so many threads, which may hold so much memory together.
    pub(crate) fn new(threads: usize, limit: u64) -> Self {
        let spare = (limit / SPARE_PART / LARGE as u64).min(SPARE_BUFFERS);
        Self {
            head: vec![0; SMALL].into(),
            tail: vec![0; LARGE],
            spare: Vec::new(),
            most_spare: usize::try_from(spare).unwrap_or(usize::MAX) / threads.max(1),
        }
    }

    /// Reads a packet, in the place of the last one; its length. `None` if there is none.
    pub(crate) fn read(&mut self, queue: &Queue) -> io::Result<Option<usize>> {
        queue.receive(&mut self.head, &mut self.tail)
    }

    /// When the packet of this length that was read leaves; `None` if it does not say.
    pub(crate) fn departure(&self, length: usize) -> Option<u64> {
        departure(&self.head[..length.min(SMALL)])
    }

    /// Gives the packet of this length that was read back to the kernel at once.
    pub(crate) fn send(&self, queue: &Queue, length: usize) -> io::Result<()> {
        let rest = length.saturating_sub(SMALL);
        queue.send(&self.head[..length.min(SMALL)], &self.tail[..rest])
    }

    /// Keeps the packet of this length that was read.
    pub(crate) fn keep(&mut self, queue: &Arc<Queue>, length: usize) -> Held {
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
    pub(crate) fn reuse(&mut self, held: Held) {
        if let Tail::Pooled(buffer, _) = held.tail
            && self.spare.len() < self.most_spare
        {
            self.spare.push(buffer);
        }
    }
}

/// The course of the user pacer: packets come with their departures, and go back where they came from.
pub(super) struct Tickets {
    buffers: Buffers,
    figures: Arc<Figures>,
}

impl Tickets {
    /// Of one of the pacer's threads.
    pub(super) fn new(figures: &Arc<Figures>) -> Self {
        Self {
            buffers: Buffers::new(figures.threads(), figures.limit()),
            figures: Arc::clone(figures),
        }
    }
}

impl Course for Tickets {
    type Packet = Held;

    fn read(&mut self, queue: &Arc<Queue>, held: &mut DepartureQueue<Held>) -> io::Result<bool> {
        let Some(length) = self.buffers.read(queue)? else {
            return Ok(false);
        };
        let Some(departure) = self.buffers.departure(length) else {
            // What others send to the TAP goes out at once and takes no room: the program there drops it, and counts it as
            // foreign. That the TAP would not take it back is no loss of ours.
            let _ = self.buffers.send(queue, length);
            return Ok(true);
        };
        if self.figures.admit(memory(length)) {
            held.push(departure, self.buffers.keep(queue, length));
        }
        Ok(true)
    }

    fn let_go(&mut self, packet: Held, _: &mut DepartureQueue<Held>) -> bool {
        // EIO while the device is down.
        let sent = packet.send().is_ok();
        self.buffers.reuse(packet);
        sent
    }

    fn interface(packet: &Held) -> u32 {
        packet.queue.interface()
    }

    fn memory(packet: &Held) -> u64 {
        packet.memory()
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
