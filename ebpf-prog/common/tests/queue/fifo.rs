//! A queue that is played event by event. It shares no code with what it is compared with.

use std::collections::VecDeque;

use perturb_common::queue::Verdict;

use super::{BYTE, Packet};

/// What became of each, and when it left; and of how many the queue said what it could not have said without those behind.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Played {
    pub(super) fates: Vec<(Verdict, u64)>,
    pub(super) behind: Vec<usize>,
}

/// Who transmits: from when on, ticks, a byte takes so many; 0 while it is stopped. Powers of two, if there are several.
#[derive(Clone, Debug)]
pub(super) struct Link(pub(super) Vec<(u64, u64)>);

impl Link {
    pub(super) fn at(&self, now: u64) -> usize {
        self.0.partition_point(|&(from, _)| from <= now) - 1
    }

    /// What so many bytes take at the rate of now, or at first while it is stopped.
    pub(super) fn takes(&self, now: u64, bytes: u64) -> u64 {
        let byte = self.0[self.at(now)].1;
        bytes * if byte == 0 { self.0[0].1 } else { byte }
    }

    /// When so many bytes have been transmitted.
    pub(super) fn end(&self, now: u64, bytes: u64) -> u64 {
        // Of a byte.
        const PARTS: u64 = 1 << 16;
        let (mut now, mut left) = (now, bytes * PARTS);
        for index in self.at(now).. {
            let until = self.0.get(index + 1).map_or(u64::MAX, |next| next.0);
            let byte = self.0[index].1;
            if byte != 0 || left == 0 {
                let end = now + left * byte / PARTS;
                if end <= until {
                    return end;
                }
                left -= (until - now) * PARTS / byte;
            }
            now = until;
        }
        now
    }
}

/// A queue that is played event by event.
pub(super) struct Fifo {
    pub(super) link: Link,
    pub(super) packets: Vec<Packet>,
    pub(super) waiting: VecDeque<usize>,
    pub(super) bytes: u64,
    /// When the packet in service leaves.
    pub(super) busy_until: Option<u64>,
    pub(super) played: Played,
}

impl Fifo {
    pub(super) fn pop(&mut self) -> Option<usize> {
        let index = self.waiting.pop_front()?;
        self.bytes -= self.packets[index].bytes;
        Some(index)
    }

    pub(super) fn drop(&mut self, index: usize) {
        self.played.fates[index] = (Verdict::Drop, 0);
    }

    pub(super) fn mark(&mut self, index: usize, why: Verdict) {
        self.played.fates[index].0 = why;
    }

    /// How long it takes until all that is there has left.
    pub(super) fn work(&self, now: u64) -> u64 {
        self.link.end(self.busy_until.unwrap_or(now), self.bytes) - now
    }
}

/// What a queue does beside being one.
pub(super) trait Discipline {
    /// When it does something of itself next.
    fn timer(&self) -> Option<u64> {
        None
    }

    /// It does.
    fn expire(&mut self, _fifo: &Fifo, _now: u64) {}

    /// Whether it takes a packet.
    fn enque(&mut self, _fifo: &mut Fifo, _index: usize, _now: u64) -> bool {
        true
    }

    /// The packet that is served next.
    fn deque(&mut self, fifo: &mut Fifo, _now: u64) -> Option<usize> {
        fifo.pop()
    }
}

/// Plays arrivals and departures. A packet that arrives when another leaves, or a timer expires, comes behind that.
pub(super) fn play(packets: &[Packet], discipline: &mut impl Discipline) -> Played {
    play_at(Link(vec![(0, BYTE)]), packets, discipline)
}

/// The same at another link.
pub(super) fn play_at(link: Link, packets: &[Packet], discipline: &mut impl Discipline) -> Played {
    let mut fifo = Fifo {
        link,
        packets: packets.to_vec(),
        waiting: VecDeque::new(),
        bytes: 0,
        busy_until: None,
        played: Played {
            fates: vec![(Verdict::Pass, 0); packets.len()],
            behind: Vec::new(),
        },
    };
    let mut coming = 0..packets.len();
    loop {
        let next = coming.start;
        let arrival = packets.get(next).map(|packet| packet.arrival);
        let Some(now) = fifo.busy_until.into_iter().chain(arrival).min() else {
            return fifo.played;
        };
        if let Some(time) = discipline.timer()
            && time <= now
        {
            discipline.expire(&fifo, time);
            continue;
        }
        if fifo.busy_until == Some(now) {
            fifo.busy_until = None;
        } else {
            coming.next();
            if discipline.enque(&mut fifo, next, now) {
                fifo.waiting.push_back(next);
                fifo.bytes += packets[next].bytes;
            } else {
                fifo.drop(next);
            }
        }
        if fifo.busy_until.is_none()
            && let Some(index) = discipline.deque(&mut fifo, now)
        {
            let left = fifo.link.end(now, packets[index].bytes);
            fifo.played.fates[index].1 = left;
            fifo.busy_until = Some(left);
        }
    }
}
