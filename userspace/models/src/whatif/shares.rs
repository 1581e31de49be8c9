//! Fair round robin with quanta without length: the processes that compute have equal shares.
//!
//! Virtual time V is the CPU time that each computing process has received since the processor was
//! last idle; it advances at speed / k with k of them. A process with `cpu` left is done at V + cpu, a
//! number that no later arrival changes, so a heap keeps the order and no remaining time is ever
//! updated. V returns to 0 whenever nobody computes, which keeps it small and exact.

use std::collections::BinaryHeap;

use super::processor::{Due, Next};

/// A processor and those who compute on it.
#[derive(Clone, Debug)]
pub(crate) struct Shares {
    clock: f64,
    speed: f64,
    virtual_time: f64,
    computing: BinaryHeap<Due>,
    waiting: BinaryHeap<Due>,
}

impl Shares {
    pub(crate) fn new(speed: f64) -> Self {
        Self {
            clock: 0.0,
            speed,
            virtual_time: 0.0,
            computing: BinaryHeap::new(),
            waiting: BinaryHeap::new(),
        }
    }

    /// The group time.
    pub(crate) fn clock(&self) -> f64 {
        self.clock
    }

    /// A process computes for `cpu` from now; returns the virtual time at which it is done.
    pub(crate) fn compute(&mut self, process: u32, cpu: f64) -> f64 {
        if self.computing.is_empty() {
            self.virtual_time = 0.0;
        }
        let at = self.virtual_time + cpu;
        self.computing.push(Due { at, process });
        at
    }

    /// A process's message arrives at `time`, after the clock.
    pub(crate) fn wait(&mut self, process: u32, time: f64) {
        self.waiting.push(Due { at: time, process });
    }

    /// When something happens here next if nothing comes from outside; infinite for never.
    pub(crate) fn next_time(&self) -> f64 {
        let done = self
            .computing
            .peek()
            .map_or(f64::INFINITY, |due| self.finish(due.at));
        let arrived = self.waiting.peek().map_or(f64::INFINITY, |due| due.at);
        done.min(arrived)
    }

    /// When a process that is done at virtual time `at` is done if nobody comes or goes.
    pub(crate) fn finish(&self, at: f64) -> f64 {
        self.clock + ((at - self.virtual_time) * self.computing.len() as f64 / self.speed).max(0.0)
    }

    /// CPU time that a process done at virtual time `at` has left.
    pub(crate) fn remaining(&self, at: f64) -> f64 {
        (at - self.virtual_time).max(0.0)
    }

    /// Number of processes computing.
    pub(crate) fn sharing(&self) -> usize {
        self.computing.len()
    }

    /// Advances to what is next and takes it out.
    pub(crate) fn step(&mut self) -> Option<Next> {
        let done = self.computing.peek().map(|due| self.finish(due.at));
        let arrived = self.waiting.peek().map(|due| due.at);
        match (done, arrived) {
            (None, None) => None,
            // At the same instant the process that is done comes first: it is reported, while the one
            // whose message arrived may still have to compute.
            (Some(done), arrived) if arrived.is_none_or(|arrived| done <= arrived) => {
                let due = self.computing.pop()?;
                self.clock = done;
                self.virtual_time = due.at;
                Some(Next::Done(due.process))
            }
            (_, _) => {
                let due = self.waiting.pop()?;
                let elapsed = (due.at - self.clock).max(0.0);
                if !self.computing.is_empty() {
                    self.virtual_time += elapsed * self.speed / self.computing.len() as f64;
                }
                self.clock = self.clock.max(due.at);
                Some(Next::Arrived(due.process))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_shares() {
        let mut shares = Shares::new(1.0);
        shares.compute(0, 1.0);
        shares.compute(1, 2.0);
        assert_eq!(shares.next_time(), 2.0);
        assert_eq!(shares.step(), Some(Next::Done(0)));
        assert_eq!(shares.next_time(), 3.0);
        assert_eq!(shares.step(), Some(Next::Done(1)));
        assert_eq!((shares.clock(), shares.step()), (3.0, None));
    }

    #[test]
    fn an_arrival_in_between_takes_its_share_from_then_on() {
        let mut shares = Shares::new(2.0);
        shares.compute(0, 10.0);
        shares.wait(1, 2.0);
        assert_eq!(shares.step(), Some(Next::Arrived(1)));
        // 4 of 10 are done by 2; two processes share speed 2 from there.
        shares.compute(1, 1.0);
        assert_eq!(shares.step(), Some(Next::Done(1)));
        assert_eq!(shares.clock(), 3.0);
        assert_eq!(shares.step(), Some(Next::Done(0)));
        assert_eq!(shares.clock(), 5.5);
    }

    #[test]
    fn ties_go_to_the_process_that_stands_first() {
        let mut shares = Shares::new(1.0);
        shares.compute(5, 1.0);
        shares.compute(3, 1.0);
        assert_eq!(shares.step(), Some(Next::Done(3)));
        assert_eq!(shares.step(), Some(Next::Done(5)));
    }
}
