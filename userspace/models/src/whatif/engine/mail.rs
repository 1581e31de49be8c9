//! Messages of the online algorithm: from the reported send, over the bus where there is one, to the
//! receive.

use std::collections::hash_map::Entry;

use super::super::event::{Event, Kind, MessageId};
use super::super::few::Few;
use super::super::input::Overhead;
use super::super::table::Table;
use super::{Predictor, State};

/// Sends whose receiver is unknown hold up the bus behind them; beyond this many the oldest counts as
/// remote, so that a trace without its receivers' events stays bounded.
const MOST_UNKNOWN: usize = 1 << 20;

/// A send that has been reported, on its way to a receive that has not.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Sent {
    /// The receiver is unknown, so the table is too.
    Unknown(Send),
    /// It waits for sends before it on the bus whose receiver is unknown.
    OnBus { serial: u64 },
    /// It arrives then, and takes so much of the receiver's processor.
    Arrives { at: f64, overhead: f64 },
}

/// The sends and receives of one message id; the k-th send belongs to the k-th receive.
#[derive(Clone, Debug, Default)]
pub(super) struct Message {
    pub(super) receivers: Few<u32>,
    pub(super) sent: Few<Sent>,
}

impl Message {
    /// The place of a process's next receive.
    fn place(&self, process: u32) -> Option<usize> {
        self.receivers.position(|receiver| receiver == process)
    }
}

/// A reported send.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Send {
    pub(super) message: MessageId,
    /// Numbers the sends, since ids may be used again.
    pub(super) serial: u64,
    pub(super) time: f64,
    pub(super) bytes: f64,
    /// The sender's group, to tell local from remote.
    pub(super) group: u32,
}

/// How long messages take.
#[derive(Clone, Debug)]
pub(super) struct Times {
    pub(super) local: Table,
    pub(super) remote: Table,
    pub(super) overhead: Option<Overhead>,
}

impl Times {
    /// A message inside a group.
    fn inside(&self, send: Send) -> Sent {
        Sent::Arrives {
            at: send.time + self.local.time(send.bytes),
            overhead: 0.0,
        }
    }

    /// A message between groups that starts, or has passed the bus, at `time`. Its table's time ends with what the
    /// receiver's processor does.
    fn between(&self, time: f64, bytes: f64) -> Sent {
        let total = self.remote.time(bytes);
        let overhead = self
            .overhead
            .as_ref()
            .map_or(0.0, |overhead| overhead.receive.time(bytes).min(total));
        Sent::Arrives {
            at: time + (total - overhead),
            overhead,
        }
    }
}

impl Predictor {
    /// What sending takes of the sender's processor. A receiver that the event does not name counts as remote.
    pub(super) fn send_overhead(&self, event: &Event) -> f64 {
        let (Kind::Send { bytes, to, .. }, Some(overhead)) = (event.kind, &self.times.overhead) else {
            return 0.0;
        };
        let inside = to.is_some_and(|to| self.placement.group(to) == self.placement.group(event.process));
        if inside { 0.0 } else { overhead.send.time(bytes) }
    }

    /// A send is reported.
    pub(super) fn send(&mut self, send: Send, to: Option<u32>) {
        self.counters.in_flight += 1;
        let message = self.messages.entry(send.message).or_default();
        let expected = message.receivers.get(message.sent.len());
        let sent = match expected.or(to) {
            None => Sent::Unknown(send),
            Some(receiver) if self.placement.group(receiver) == send.group => {
                self.counters.local += 1;
                self.times.inside(send)
            }
            Some(_) if self.boarding.is_empty() => {
                self.counters.remote += 1;
                let passed = self
                    .bus
                    .as_mut()
                    .map_or(send.time, |bus| bus.pass(send.group, send.time, send.bytes));
                self.times.between(passed, send.bytes)
            }
            Some(_) => Sent::OnBus { serial: send.serial },
        };
        message.sent.push(sent);
        if self.bus.is_some() && !matches!(sent, Sent::Arrives { .. }) {
            self.boarding.push_back(send);
            if self.boarding.len() > MOST_UNKNOWN {
                self.board(false);
            }
        }
        if let Some(receiver) = expected {
            self.deliver(send.message, receiver);
        }
    }

    /// The message that a process receives, or begins to wait for, by its next event; none if that was known before.
    pub(super) fn awaited(&mut self, event: &Event) -> Option<MessageId> {
        let process = &mut self.processes[event.process as usize];
        let awaits = match event.kind {
            Kind::StartRecv { message } => message,
            _ => None,
        };
        let before = std::mem::replace(&mut process.awaits, awaits);
        let received = match event.kind {
            Kind::EndRecv { message } => Some(message),
            _ => None,
        };
        if before.is_some() && before == received {
            return None;
        }
        if let Some(message) = before {
            self.give_up(message, event.process);
        }
        received.or(awaits)
    }

    /// A process that waited for a message goes on, or ends, without it.
    fn give_up(&mut self, message: MessageId, receiver: u32) {
        let process = &mut self.processes[receiver as usize];
        if process.is_blocked() {
            process.state = State::Missing;
            self.missing += 1;
            self.held_up -= usize::from(std::mem::take(&mut process.held_up));
        }
        let Entry::Occupied(mut entry) = self.messages.entry(message) else {
            return;
        };
        let receivers = &mut entry.get_mut().receivers;
        let last = (0..receivers.len()).rfind(|place| receivers.get(*place) == Some(receiver));
        if let Some(place) = last {
            receivers.remove(place);
        }
        if receivers.is_empty() && entry.get().sent.is_empty() {
            entry.remove();
        }
    }

    /// A receive of `message` is in the input: its send, if reported, learns where it goes.
    pub(super) fn expect(&mut self, message: MessageId, process: u32) {
        let entry = self.messages.entry(message).or_default();
        entry.receivers.push(process);
        let place = entry.receivers.len() - 1;
        let Some(Sent::Unknown(send)) = entry.sent.get(place) else {
            return;
        };
        let sent = if self.placement.group(process) == send.group {
            self.counters.local += 1;
            self.times.inside(send)
        } else if self.bus.is_some() {
            Sent::OnBus { serial: send.serial }
        } else {
            self.counters.remote += 1;
            self.times.between(send.time, send.bytes)
        };
        entry.sent.set(place, sent);
        self.board(false);
    }

    /// Lets messages onto the bus, in order, until one whose receiver is unknown; `all` counts those as
    /// remote.
    pub(super) fn board(&mut self, all: bool) {
        while let Some(send) = self.boarding.front().copied() {
            let overfull = self.boarding.len() > MOST_UNKNOWN;
            let found = self.messages.get_mut(&send.message).and_then(|message| {
                let place = message.sent.position(|sent| match sent {
                    Sent::OnBus { serial } | Sent::Unknown(Send { serial, .. }) => serial == send.serial,
                    Sent::Arrives { .. } => false,
                })?;
                Some((place, message))
            });
            // A send that is not found turned out to be local.
            if let Some((place, message)) = found {
                let unknown = matches!(message.sent.get(place), Some(Sent::Unknown(_)));
                if unknown && !all && !overfull {
                    return;
                }
                let Some(bus) = self.bus.as_mut() else { return };
                let passed = bus.pass(send.group, send.time, send.bytes);
                let sent = self.times.between(passed, send.bytes);
                message.sent.set(place, sent);
                self.counters.assumed_remote += u64::from(unknown && !all);
                self.counters.remote += 1;
                let receiver = message.receivers.get(place);
                self.boarding.pop_front();
                if let Some(receiver) = receiver {
                    self.deliver(send.message, receiver);
                }
            } else {
                self.boarding.pop_front();
            }
        }
    }

    /// If the process's current event is the receive of this message, or if it waits for it, it learns what is known of it.
    pub(super) fn deliver(&mut self, id: MessageId, receiver: u32) {
        let process = &mut self.processes[receiver as usize];
        let State::Pending { since } = process.state else {
            return;
        };
        let is_this = process.queue.front().map_or(process.awaits == Some(id), |event| {
            event.kind == (Kind::EndRecv { message: id })
        });
        if !is_this {
            return;
        }
        let Entry::Occupied(mut entry) = self.messages.entry(id) else {
            return;
        };
        let Some(place) = entry.get().place(receiver) else {
            return;
        };
        match entry.get().sent.get(place) {
            None => {}
            Some(Sent::OnBus { .. } | Sent::Unknown(_)) => {
                self.held_up += usize::from(!process.held_up);
                process.held_up = true;
            }
            Some(Sent::Arrives { at, overhead }) => {
                self.held_up -= usize::from(process.held_up);
                process.held_up = false;
                let Some(event) = process.queue.front_mut() else {
                    // It may go on: what it does must be known first.
                    process.state = State::Missing;
                    self.missing += 1;
                    return;
                };
                self.counters.in_flight -= 1;
                let message = entry.get_mut();
                message.sent.remove(place);
                message.receivers.remove(place);
                if message.sent.is_empty() && message.receivers.is_empty() {
                    entry.remove();
                }
                event.cpu += overhead;
                let cpu = event.cpu;
                self.arrive(receiver, since, at, cpu);
                self.reschedule(receiver);
            }
        }
    }
}
