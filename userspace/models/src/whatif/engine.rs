//! The online algorithm (fig. 2): events in, reports out, everything reported freed.

mod mail;

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};

use super::bus::Buses;
use super::event::{Event, Kind, MessageId};
use super::input::Scenario;
use super::placement::{Placement, ProcessName};
use super::processor::{Next, Processor};
use super::schedule::Schedule;
use super::table::Table;
use mail::{Message, Send, Times};

/// A queue that has grown beyond this gives its memory back once it is empty.
const KEPT_QUEUE: usize = 64;

/// Message ids are hashes already.
#[derive(Clone, Debug, Default)]
struct IdHasher(u64);

impl Hasher for IdHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }

    fn write_u64(&mut self, value: u64) {
        self.0 = value;
    }
}

/// Where a process is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum State {
    /// It has no event: nobody may be reported until it has one.
    Missing,
    /// It computes until this virtual time of its processor, where that has one.
    Computing(f64),
    /// Its message arrives then; the process waits since `since`.
    Waiting { since: f64, arrival: f64 },
    /// Its message has not been sent yet; it waits since then. Without an event: a `start_recv` said for which one.
    Pending { since: f64 },
    /// It has exited, or its events have ended.
    Ended,
}

#[derive(Clone, Debug)]
pub(crate) struct Process {
    pub(crate) state: State,
    /// The front is the current event, the others are queued.
    pub(crate) queue: VecDeque<Event>,
    exits: bool,
    /// Processor time of its last send that its next event pays, in µs.
    owed: f64,
    /// Its current receive's message is sent, but held up on the bus by one of unknown receiver.
    held_up: bool,
    /// What it waits for by its last event, a `start_recv`.
    awaits: Option<MessageId>,
}

impl Process {
    /// It can do nothing before a message is sent to it.
    fn is_blocked(&self) -> bool {
        self.queue.is_empty() && matches!(self.state, State::Pending { .. })
    }
}

/// An event at its predicted time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Report {
    /// The event.
    pub event: Event,
    /// Its predicted time, in µs.
    pub time: f64,
}

/// Why a prediction cannot go on.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum PredictionError {
    /// An event after the process's exit.
    #[error("line {line}: process {process} has exited before this event; remove the event or its exit")]
    AfterExit {
        /// In the input.
        line: u64,
        /// Whose.
        process: ProcessName,
    },
    /// The receive of a message that nobody sends.
    #[error(
        "line {line}: process {process} waits for a message that is never sent{}; give the send the same `message`",
        if *.stuck { ", or only after it" } else { "" }
    )]
    NeverSent {
        /// In the input.
        line: u64,
        /// Who waits.
        process: ProcessName,
        /// Other events wait behind it, among which the send may be.
        stuck: bool,
    },
}

/// What the prediction says, so far or at the end.
#[derive(Clone, Debug, PartialEq)]
pub struct Prediction {
    /// The largest group time, in µs.
    pub program_time: f64,
    /// The groups' times, in µs.
    pub group_time: Vec<f64>,
}

/// What passed through, for reports and for the bound on memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Events reported.
    pub reported: u64,
    /// Events held now: queued, current and pending.
    pub held: u64,
    /// The most events ever held.
    pub most_held: u64,
    /// Messages that were sent and not received yet.
    pub in_flight: u64,
    /// Messages inside groups.
    pub local: u64,
    /// Messages between groups.
    pub remote: u64,
    /// Sends taken as remote because too many receivers were unknown.
    pub assumed_remote: u64,
}

/// The state of a prediction. [`Predictor::push`] adds events, [`Predictor::advance`] reports what can
/// be reported.
#[derive(Clone, Debug)]
pub struct Predictor {
    placement: Placement,
    times: Times,
    bus: Option<Buses>,
    boarding: VecDeque<Send>,
    pub(crate) processes: Vec<Process>,
    pub(crate) processors: Vec<Processor>,
    schedule: Schedule,
    messages: HashMap<MessageId, Message, BuildHasherDefault<IdHasher>>,
    missing: usize,
    /// Current receives whose message is held up on the bus: nothing may be reported.
    held_up: usize,
    /// No more events come.
    input_ended: bool,
    sends: u64,
    counters: Counters,
}

impl Predictor {
    /// Before the first event.
    #[must_use]
    pub fn new(scenario: &Scenario) -> Self {
        let placement = scenario.placement.clone();
        let processors: Vec<Processor> = placement
            .speeds()
            .iter()
            .map(|speed| Processor::new(*speed, scenario.scheduler))
            .collect();
        let process = Process {
            state: State::Missing,
            queue: VecDeque::new(),
            exits: false,
            owed: 0.0,
            held_up: false,
            awaits: None,
        };
        Self {
            times: Times {
                // An absent table is one that no message needs, but for those of a process to itself.
                local: scenario.local.clone().unwrap_or_else(|| Table::constant(0.0)),
                remote: scenario.remote.clone().unwrap_or_else(|| Table::constant(0.0)),
                overhead: scenario.overhead.clone(),
            },
            bus: scenario.bus.as_ref().map(|bus| bus.idle(processors.len())),
            boarding: VecDeque::new(),
            missing: placement.processes(),
            processes: vec![process; placement.processes()],
            schedule: Schedule::new(processors.len()),
            processors,
            messages: HashMap::default(),
            held_up: 0,
            input_ended: false,
            sends: 0,
            counters: Counters::default(),
            placement,
        }
    }

    /// Takes an event; the events of one process come in their order.
    ///
    /// # Errors
    /// When the process has exited.
    pub fn push(&mut self, mut event: Event) -> Result<(), PredictionError> {
        let owes = self.send_overhead(&event);
        let process = &mut self.processes[event.process as usize];
        if process.exits {
            let process = self.placement.name(event.process).clone();
            return Err(PredictionError::AfterExit {
                line: event.line,
                process,
            });
        }
        process.exits = matches!(event.kind, Kind::Exit);
        let expected = self.awaited(&event);
        let process = &mut self.processes[event.process as usize];
        event.cpu += std::mem::replace(&mut process.owed, owes);
        process.queue.push_back(event);
        self.counters.held += 1;
        self.counters.most_held = self.counters.most_held.max(self.counters.held);
        let was_missing = process.state == State::Missing;
        if let Some(message) = expected {
            self.expect(message, event.process);
        }
        if was_missing {
            self.missing -= 1;
            self.activate(event.process);
            self.reschedule(event.process);
        }
        Ok(())
    }

    /// Reports the earliest event, if it may be: every process that has not ended has a current one.
    pub fn advance(&mut self) -> Option<Report> {
        while self.missing == 0 && self.held_up == 0 {
            let (group, _) = self.schedule.earliest()?;
            let next = self.processors[group as usize].step()?;
            let clock = self.processors[group as usize].clock();
            match next {
                Next::Arrived(process) => {
                    let cpu = self.processes[process as usize]
                        .queue
                        .front()
                        .map_or(0.0, |event| event.cpu);
                    if cpu > 0.0 {
                        self.compute(process, cpu);
                        self.reschedule(process);
                    } else {
                        return self.report(process, clock);
                    }
                }
                Next::Done(process) => return self.report(process, clock),
                Next::Turn => self
                    .schedule
                    .set(group, self.processors[group as usize].next_time()),
            }
        }
        None
    }

    /// Says that no more events come: processes without one have ended. Call [`Predictor::advance`]
    /// until it returns `None`, then [`Predictor::finish`].
    pub fn end_of_events(&mut self) {
        for process in &mut self.processes {
            if process.state == State::Missing || process.is_blocked() {
                process.state = State::Ended;
                self.held_up -= usize::from(std::mem::take(&mut process.held_up));
            }
        }
        self.missing = 0;
        self.input_ended = true;
        // What has no receiver by now never gets one.
        self.board(true);
    }

    /// The prediction, once everything has been reported.
    ///
    /// # Errors
    /// When a process still waits for a message.
    pub fn finish(&self) -> Result<Prediction, PredictionError> {
        if let Some(error) = self.deadlock() {
            return Err(error);
        }
        Ok(self.prediction())
    }

    /// Whether all that goes on is waiting for messages that can no longer be sent.
    #[must_use]
    pub fn deadlock(&self) -> Option<PredictionError> {
        if self.missing > 0 || self.held_up > 0 || self.schedule.earliest().is_some() {
            return None;
        }
        // What these do next is not known yet.
        if self.processes.iter().any(Process::is_blocked) {
            return None;
        }
        let waits = |process: &&Process| matches!(process.state, State::Pending { .. });
        let event = self
            .processes
            .iter()
            .filter(waits)
            .filter_map(|process| process.queue.front());
        let event = event.min_by_key(|event| event.line)?;
        let stuck = self.processes.iter().any(|process| process.queue.len() > 1);
        let process = self.placement.name(event.process).clone();
        Some(PredictionError::NeverSent {
            line: event.line,
            process,
            stuck,
        })
    }

    /// The prediction for what has been reported so far.
    #[must_use]
    pub fn prediction(&self) -> Prediction {
        let group_time: Vec<f64> = self.processors.iter().map(Processor::clock).collect();
        let program_time = group_time.iter().copied().fold(0.0, f64::max);
        Prediction {
            program_time,
            group_time,
        }
    }

    /// Whether every process has exited.
    #[must_use]
    pub fn ended(&self) -> bool {
        self.processes.iter().all(|process| process.state == State::Ended)
    }

    /// What passed through.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// The bus or the links, if the scenario has one.
    #[must_use]
    pub fn bus(&self) -> Option<&Buses> {
        self.bus.as_ref()
    }

    /// Where the processes are.
    #[must_use]
    pub fn placement(&self) -> &Placement {
        &self.placement
    }

    /// The process's front event becomes its current one, at its group's clock.
    fn activate(&mut self, process: u32) {
        let Some(event) = self.processes[process as usize].queue.front().copied() else {
            return;
        };
        let Kind::EndRecv { message } = event.kind else {
            return self.compute(process, event.cpu);
        };
        let since = self.processors[self.placement.group(process) as usize].clock();
        self.processes[process as usize].state = State::Pending { since };
        self.deliver(message, process);
    }

    fn compute(&mut self, process: u32, cpu: f64) {
        let group = self.placement.group(process);
        let processor = &mut self.processors[group as usize];
        let at = processor.compute(process, cpu);
        self.processes[process as usize].state = State::Computing(at);
    }

    /// A current receive learns when its message arrives. A clock never runs backwards: a message that
    /// was there before is taken now.
    fn arrive(&mut self, process: u32, since: f64, arrival: f64, cpu: f64) {
        let group = self.placement.group(process);
        let processor = &mut self.processors[group as usize];
        if arrival <= processor.clock() && processor.takes_at_once(process) {
            return self.compute(process, cpu);
        }
        self.processes[process as usize].state = State::Waiting { since, arrival };
        processor.wait(process, arrival);
    }

    /// The current event of `process` happens at `time` and is freed.
    fn report(&mut self, process: u32, time: f64) -> Option<Report> {
        let state = &mut self.processes[process as usize];
        let event = state.queue.pop_front()?;
        self.counters.held -= 1;
        self.counters.reported += 1;
        let more = !state.queue.is_empty();
        if !more && state.queue.capacity() > KEPT_QUEUE {
            state.queue = VecDeque::new();
        }
        let ended = event.kind == Kind::Exit || self.input_ended;
        state.state = if ended { State::Ended } else { State::Missing };
        if let Kind::Send { message, bytes, to } = event.kind {
            self.sends += 1;
            let group = self.placement.group(process);
            self.send(
                Send {
                    message,
                    serial: self.sends,
                    time,
                    bytes,
                    group,
                },
                to,
            );
        }
        if more {
            self.activate(process);
        } else if let (
            Kind::StartRecv {
                message: Some(message),
            },
            false,
        ) = (event.kind, ended)
        {
            self.processes[process as usize].state = State::Pending { since: time };
            self.deliver(message, process);
        } else if !ended {
            self.missing += 1;
        }
        let group = self.placement.group(process);
        self.schedule
            .set(group, self.processors[group as usize].next_time());
        Some(Report { event, time })
    }

    /// What is next on the process's processor has changed.
    fn reschedule(&mut self, process: u32) {
        let group = self.placement.group(process);
        self.schedule
            .set(group, self.processors[group as usize].next_time());
    }
}
