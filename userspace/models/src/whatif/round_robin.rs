//! A processor whose scheduler hands out time slices: round robin with a quantum of some length.
//!
//! One process has the processor until its slice ends, or until it waits for a message that is not there;
//! then the next one in the queue has it. A slice ends once the quantum is used up or, where the clock
//! ticks, at the first tick from then on. A process whose slice ends goes behind the others in the queue,
//! and so does one whose message arrives: it takes the message when its turn comes. While nobody else can
//! run a process keeps the processor, but its slices end on as they would, and one that comes meanwhile
//! waits for the end of the slice under way.
//!
//! This is how Linux (EEVDF, 6.6 and later) treats processes that poll for their messages and yield: a yield
//! gives up the slice (`yield_task_fair`), and a process that computes is asked to make way by the tick
//! (`task_tick_fair`) that finds its slice, `base_slice_ns`, used up (`update_deadline`). One that blocks may
//! instead get the processor as soon as its message arrives ([`Wakeup::Preempt`], `check_preempt_wakeup_fair`).
//!
//! Costs: O(log waiting) per event and O(1) per slice; slices that nobody else waits for cost nothing.
//!
//! **What it lacks:** what switching costs (with a quantum of milliseconds, parts in a thousand), and
//! credit for what a process did not use, weights, and priorities.

use std::collections::{BinaryHeap, VecDeque};

use serde::Deserialize;

use super::processor::{Due, Next};

/// What a process does whose message arrives while another has the processor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Wakeup {
    /// It joins the queue.
    #[default]
    Queue,
    /// It takes the processor; who had it is next, with a new slice.
    Preempt,
}

/// How processors are scheduled.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scheduler {
    /// Length of a time slice, in µs, above 0.
    pub quantum: f64,
    /// Slices end at multiples of this, in µs; 0 for anywhere.
    pub tick: f64,
    /// What becomes of a process whose message arrives.
    pub wakeup: Wakeup,
}

/// What a process does with the processor.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Work {
    /// It computes; so much CPU time is left, in µs.
    Compute(f64),
    /// It takes its message.
    Take,
}

/// Who has the processor.
#[derive(Clone, Copy, Debug)]
struct Holder {
    process: u32,
    /// None: its event has been reported, and if the next one is no computing, it gives up the processor.
    work: Option<Work>,
    /// When its turn began.
    began: f64,
}

/// The processor, its holder and its queue.
#[derive(Clone, Debug)]
pub(crate) struct RoundRobin {
    clock: f64,
    speed: f64,
    scheduler: Scheduler,
    holder: Option<Holder>,
    queue: VecDeque<(u32, Work)>,
    waiting: BinaryHeap<Due>,
}

impl RoundRobin {
    pub(crate) fn new(speed: f64, scheduler: Scheduler) -> Self {
        Self {
            clock: 0.0,
            speed,
            scheduler,
            holder: None,
            queue: VecDeque::new(),
            waiting: BinaryHeap::new(),
        }
    }

    /// The group time.
    pub(crate) fn clock(&self) -> f64 {
        self.clock
    }

    /// Whether the process has the processor.
    pub(crate) fn is_holder(&self, process: u32) -> bool {
        self.holder.is_some_and(|holder| holder.process == process)
    }

    /// A process computes for `cpu`: within its turn if it has the processor, else when its turn comes.
    pub(crate) fn compute(&mut self, process: u32, cpu: f64) {
        if let Some(holder) = self.holder.as_mut().filter(|holder| holder.process == process) {
            holder.work = Some(Work::Compute(cpu));
            return;
        }
        // Only before the first turn: the order in which first events are read changes nothing.
        let place = self.queue.partition_point(|(other, _)| *other < process);
        self.queue.insert(place, (process, Work::Compute(cpu)));
    }

    /// A process's message arrives at `time`.
    pub(crate) fn wait(&mut self, process: u32, time: f64) {
        self.waiting.push(Due { at: time, process });
    }

    /// Who works now if nothing comes from outside: the holder, or the first of the queue.
    fn working(&self) -> Option<(Holder, Work)> {
        if let Some(holder) = self.holder
            && let Some(work) = holder.work
        {
            return Some((holder, work));
        }
        let (process, work) = *self.queue.front()?;
        let holder = Holder {
            process,
            work: Some(work),
            began: self.clock,
        };
        Some((holder, work))
    }

    /// When the holder's turn ends: at the end of its slice if others are in the queue.
    fn turn_end(&self, holder: &Holder) -> f64 {
        let others = if self.is_holder(holder.process) { 0 } else { 1 };
        if self.queue.len() == others {
            return f64::INFINITY;
        }
        let Scheduler { quantum, tick, .. } = self.scheduler;
        let used_up = if tick > 0.0 {
            // A tick may ask only once the quantum is used up; a process that has been alone makes way at the next.
            let at = (holder.began + quantum).max(self.clock);
            (at / tick).ceil() * tick
        } else {
            let slices = ((self.clock - holder.began) / quantum).ceil().max(1.0);
            holder.began + slices * quantum
        };
        used_up.max(self.clock)
    }

    /// When something happens here next if nothing comes from outside; infinite for never.
    pub(crate) fn next_time(&self) -> f64 {
        let arrived = self
            .waiting
            .peek()
            .map_or(f64::INFINITY, |due| due.at.max(self.clock));
        match self.working() {
            None => arrived,
            Some((_, Work::Take)) => self.clock,
            Some((holder, Work::Compute(cpu))) => {
                let done = self.clock + cpu / self.speed;
                done.min(arrived).min(self.turn_end(&holder))
            }
        }
    }

    /// Advances to what is next and takes it out.
    pub(crate) fn step(&mut self) -> Option<Next> {
        let Some((mut holder, work)) = self.working() else {
            // Nobody can run: a message is noticed when it arrives.
            let due = self.waiting.pop()?;
            self.clock = self.clock.max(due.at);
            self.holder = Some(Holder {
                process: due.process,
                work: None,
                began: self.clock,
            });
            return Some(Next::Arrived(due.process));
        };
        let turn_end = self.turn_end(&holder);
        if !self.is_holder(holder.process) {
            self.queue.pop_front();
        }
        let Work::Compute(cpu) = work else {
            holder.work = None;
            self.holder = Some(holder);
            return Some(Next::Arrived(holder.process));
        };
        let done = self.clock + cpu / self.speed;
        let arrived = self
            .waiting
            .peek()
            .map_or(f64::INFINITY, |due| due.at.max(self.clock));
        if done <= arrived && done <= turn_end {
            self.clock = done;
            holder.work = None;
            self.holder = Some(holder);
            return Some(Next::Done(holder.process));
        }
        let until = arrived.min(turn_end);
        let left = (cpu - (until - self.clock) * self.speed).max(0.0);
        self.clock = until;
        holder.work = Some(Work::Compute(left));
        self.holder = Some(holder);
        if arrived > turn_end {
            self.holder = None;
            self.queue.push_back((holder.process, Work::Compute(left)));
        } else if let Some(due) = self.waiting.pop() {
            match self.scheduler.wakeup {
                Wakeup::Queue => self.queue.push_back((due.process, Work::Take)),
                Wakeup::Preempt => {
                    self.holder = None;
                    self.queue.push_front((holder.process, Work::Compute(left)));
                    self.queue.push_front((due.process, Work::Take));
                }
            }
        }
        Some(Next::Turn)
    }

    /// CPU time that a computing process has left.
    pub(crate) fn remaining(&self, process: u32) -> f64 {
        let held = self.holder.filter(|holder| holder.process == process);
        let queued = || self.queue.iter().find(|(other, _)| *other == process);
        let work = held
            .and_then(|holder| holder.work)
            .or_else(|| queued().map(|(_, work)| *work));
        match work {
            Some(Work::Compute(cpu)) => cpu,
            Some(Work::Take) | None => 0.0,
        }
    }

    /// When a process is done if nothing else happens: with its computing, or with `cpu` after its message.
    pub(crate) fn finish(&self, process: u32, cpu: f64) -> f64 {
        let mut turns = self.clone();
        while let Some(next) = turns.step() {
            match next {
                Next::Done(other) if other == process => break,
                Next::Arrived(other) if other == process => {
                    turns.compute(process, cpu);
                }
                Next::Done(_) | Next::Arrived(_) | Next::Turn => {}
            }
        }
        turns.clock
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUEUE: Scheduler = Scheduler {
        quantum: 4.0,
        tick: 0.0,
        wakeup: Wakeup::Queue,
    };
    const PREEMPT: Scheduler = Scheduler {
        quantum: 4.0,
        tick: 0.0,
        wakeup: Wakeup::Preempt,
    };

    /// Steps until something is to be reported.
    fn report(turns: &mut RoundRobin) -> (Option<Next>, f64) {
        loop {
            let expected = turns.next_time();
            match turns.step() {
                Some(Next::Turn) => assert_eq!(expected, turns.clock()),
                next => {
                    assert!(next.is_none() || expected == turns.clock());
                    return (next, turns.clock());
                }
            }
        }
    }

    #[test]
    fn slices_in_turn() {
        let mut turns = RoundRobin::new(1.0, QUEUE);
        turns.compute(1, 5.0);
        turns.compute(0, 6.0);
        assert_eq!((turns.finish(0, 0.0), turns.finish(1, 0.0)), (10.0, 11.0));
        // 0 from 0 to 4, 1 from 4 to 8, the rest of each.
        assert_eq!(report(&mut turns), (Some(Next::Done(0)), 10.0));
        assert_eq!(report(&mut turns), (Some(Next::Done(1)), 11.0));
        assert_eq!(report(&mut turns).0, None);
    }

    #[test]
    fn a_stretch_that_follows_at_once_is_within_the_slice() {
        let mut turns = RoundRobin::new(1.0, QUEUE);
        turns.compute(0, 1.0);
        turns.compute(1, 1.0);
        assert_eq!(report(&mut turns), (Some(Next::Done(0)), 1.0));
        turns.compute(0, 5.0);
        assert_eq!(report(&mut turns), (Some(Next::Done(1)), 5.0));
        assert_eq!(report(&mut turns), (Some(Next::Done(0)), 7.0));
    }

    #[test]
    fn an_arrival_waits_for_the_end_of_the_slice() {
        // The slices of a process that is alone end at 4, 8, 12.
        for (arrival, taken) in [(5.0, 8.0), (8.0, 8.0), (8.5, 12.0)] {
            let mut turns = RoundRobin::new(1.0, QUEUE);
            turns.compute(0, 100.0);
            turns.wait(1, arrival);
            assert_eq!(report(&mut turns), (Some(Next::Arrived(1)), taken));
        }
        // It has the processor when the other waits, or at once when nobody computes.
        let mut turns = RoundRobin::new(2.0, QUEUE);
        turns.compute(0, 6.0);
        turns.wait(1, 1.0);
        turns.wait(2, 7.0);
        assert_eq!(report(&mut turns), (Some(Next::Done(0)), 3.0));
        assert_eq!(report(&mut turns), (Some(Next::Arrived(1)), 3.0));
        assert_eq!(report(&mut turns), (Some(Next::Arrived(2)), 7.0));
    }

    #[test]
    fn a_slice_ends_at_a_tick() {
        let ticking = Scheduler {
            quantum: 1.5,
            tick: 4.0,
            wakeup: Wakeup::Queue,
        };
        let mut turns = RoundRobin::new(1.0, ticking);
        turns.compute(0, 2.75);
        turns.compute(1, 9.0);
        turns.compute(2, 1.0);
        assert_eq!(report(&mut turns), (Some(Next::Done(0)), 2.75));
        // 1 has used 1.25 of its slice by the tick at 4, and so goes on to 8; then it is alone from 9 on.
        assert_eq!(report(&mut turns), (Some(Next::Done(2)), 9.0));
        turns.wait(0, 10.25);
        assert_eq!(report(&mut turns), (Some(Next::Arrived(0)), 12.0));
        assert_eq!(report(&mut turns), (Some(Next::Done(1)), 12.75));
    }

    #[test]
    fn or_takes_the_processor() {
        let mut turns = RoundRobin::new(1.0, PREEMPT);
        turns.compute(0, 6.0);
        turns.wait(1, 2.0);
        assert_eq!(report(&mut turns), (Some(Next::Arrived(1)), 2.0));
        turns.compute(1, 1.0);
        assert_eq!(report(&mut turns), (Some(Next::Done(1)), 3.0));
        assert_eq!(report(&mut turns), (Some(Next::Done(0)), 7.0));
    }
}
