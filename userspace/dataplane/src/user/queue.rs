//! Packets in the order of their departures. Most arrive in that order already (a constant delay):
//! those wait in a list; only the others pay for a heap.

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, VecDeque},
};

/// A queue of `T` by departure time; first in, first out among equals.
#[derive(Debug)]
pub(crate) struct DepartureQueue<T> {
    in_order: VecDeque<Entry<T>>,
    others: BinaryHeap<Reverse<Entry<T>>>,
    arrivals: u64,
}

#[derive(Debug)]
struct Entry<T> {
    departure: u64,
    arrival: u64,
    packet: T,
}

impl<T> Entry<T> {
    fn key(&self) -> (u64, u64) {
        (self.departure, self.arrival)
    }
}

impl<T> PartialEq for Entry<T> {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl<T> Eq for Entry<T> {}

impl<T> PartialOrd for Entry<T> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> Ord for Entry<T> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.key().cmp(&other.key())
    }
}

impl<T> Default for DepartureQueue<T> {
    fn default() -> Self {
        Self {
            in_order: VecDeque::new(),
            others: BinaryHeap::new(),
            arrivals: 0,
        }
    }
}

impl<T> DepartureQueue<T> {
    /// Bytes that a packet takes here.
    pub(crate) const PLACE: usize = size_of::<Entry<T>>();

    /// Adds a packet that leaves at `departure`.
    pub(crate) fn push(&mut self, departure: u64, packet: T) {
        self.arrivals += 1;
        let entry = Entry {
            departure,
            arrival: self.arrivals,
            packet,
        };
        match self.in_order.back() {
            Some(last) if last.departure > departure => self.others.push(Reverse(entry)),
            _ => self.in_order.push_back(entry),
        }
    }

    /// When the next packet leaves.
    pub(super) fn next_departure(&self) -> Option<u64> {
        let first = self.in_order.front().map(|entry| entry.departure);
        let other = self.others.peek().map(|entry| entry.0.departure);
        first.into_iter().chain(other).min()
    }

    /// Takes the next packet if it leaves at `now` or before.
    pub(super) fn pop_due(&mut self, now: u64) -> Option<(u64, T)> {
        let from_list = match (self.in_order.front(), self.others.peek()) {
            (None, None) => return None,
            (Some(_), None) => true,
            (None, Some(_)) => false,
            (Some(first), Some(Reverse(other))) => first.key() < other.key(),
        };
        let due = |entry: &Entry<T>| entry.departure <= now;
        let entry = if from_list {
            self.in_order.pop_front_if(|entry| due(entry))?
        } else {
            if !self.others.peek().is_some_and(|entry| due(&entry.0)) {
                return None;
            }
            self.others.pop()?.0
        };
        Some((entry.departure, entry.packet))
    }

    /// Removes the packets that `keep` refuses.
    pub(super) fn retain(&mut self, mut keep: impl FnMut(&T) -> bool) {
        self.in_order.retain(|entry| keep(&entry.packet));
        self.others.retain(|entry| keep(&entry.0.packet));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A small generator, so that the test needs no dependency: Knuth's MMIX constants.
    fn random(state: &mut u64) -> u64 {
        *state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        *state >> 33
    }

    #[test]
    fn packets_leave_by_departure_then_arrival_as_in_a_stable_sort() {
        for seed in 0..200 {
            let mut state = seed;
            let mut queue = DepartureQueue::default();
            let mut expected: Vec<(u64, u64)> = (0..500).map(|n| (random(&mut state) % 50, n)).collect();
            for &(departure, n) in &expected {
                queue.push(departure, n);
            }
            expected.sort();
            let popped: Vec<(u64, u64)> = std::iter::from_fn(|| queue.pop_due(u64::MAX)).collect();
            assert_eq!(popped, expected, "seed {seed}");
        }
    }

    #[test]
    fn nothing_leaves_early() {
        let mut queue = DepartureQueue::default();
        queue.push(20, 'b');
        queue.push(10, 'a');
        assert_eq!(queue.next_departure(), Some(10));
        assert_eq!(queue.pop_due(9), None);
        assert_eq!(queue.pop_due(10), Some((10, 'a')));
        assert_eq!(queue.pop_due(19), None);
        assert_eq!(queue.pop_due(20), Some((20, 'b')));
        assert_eq!(queue.next_departure(), None);
    }

    #[test]
    fn retained_packets_keep_their_order() {
        let mut queue = DepartureQueue::default();
        for n in [5u64, 1, 4, 2, 3] {
            queue.push(n, n);
        }
        queue.retain(|&n| n != 3);
        let left: Vec<u64> = std::iter::from_fn(|| queue.pop_due(9)).map(|(_, n)| n).collect();
        assert_eq!(left, [1, 2, 4, 5]);
    }
}
