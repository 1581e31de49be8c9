//! Messages on the mesh, one by one.
//!
//! Processors are FIFO servers as well: sending takes one for o_s, a request's handler for o_r + o_s, a
//! reply's for o_r. So the simulation shows both contentions that LoGPC adds to LogGP. A message of B bytes
//! occupies a channel for B cycles, as in LoGPC. It is at its receiver L (and (B - 1) G, if it is long) after
//! its injection plus what it waited for channels.
//!
//! Destinations are uniform over the other nodes; everything drawn depends on the seed alone. The first
//! fifth of the messages fills the network and is not measured. A cycle counts 64 ticks.

#[cfg(test)]
mod tests;

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use perturb_common::departure::{Load, Outcome, Server, departure};
use perturb_common::fate::{Purpose, draw};
use perturb_common::units::{Instant, Ticks};
use serde::Serialize;

use super::Mesh;
use crate::logpc::message::LogGp;

/// Ticks per cycle.
const CYCLE: f64 = 64.0;

/// What the nodes do.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Traffic {
    /// Work, request, reply, again.
    RequestReply {
        /// Cycles of work per request.
        work: f64,
    },
    /// An open load: intervals between a node's messages are exponential.
    Poisson {
        /// Mean interval in cycles.
        interval: f64,
    },
    /// An open load: a node's intervals are constant, the nodes' phases random.
    Periodic {
        /// Interval in cycles.
        interval: f64,
    },
    /// Long messages as fast as possible: the next one an interval after the last, plus what that
    /// waited.
    Bulk {
        /// T, in cycles.
        interval: f64,
    },
}

/// A simulation's settings.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    /// What the nodes do.
    pub traffic: Traffic,
    /// Message parameters.
    pub message: LogGp,
    /// From one channel to the next, for a message's head.
    pub hop: f64,
    /// Messages (requests and replies counted) in all.
    pub messages: u64,
    /// For destinations and intervals.
    pub seed: u64,
}

/// What was seen, in cycles.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Seen {
    /// Messages measured.
    pub messages: u64,
    /// Mean wait for channels per message: C_n.
    pub network_contention_cycles: f64,
    /// Mean wait for processors per message.
    pub processor_wait_cycles: f64,
    /// Mean time from one message of a node to its next: the cycle of the program.
    pub period_cycles: f64,
    /// Mean channels crossed per message.
    pub hops: f64,
    /// Mean utilization of the channels that exist.
    pub utilization: f64,
    /// Utilization of the busiest channel.
    pub busiest: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum What {
    /// The node sends its next message.
    Ready { node: u32 },
    /// A message's head is before a channel of its path.
    Head { message: u32 },
    /// A message is at its receiver.
    There { message: u32 },
}

#[derive(Clone, Debug)]
struct Message {
    from: u32,
    to: u32,
    reply: bool,
    path: Vec<u32>,
    crossed: usize,
    injected: Instant,
    waited: u64,
}

struct Simulation<'m> {
    mesh: &'m Mesh,
    settings: Settings,
    channel: Server,
    channels: Vec<Instant>,
    busy: Vec<u64>,
    processors: Vec<Instant>,
    events: BinaryHeap<Reverse<(Instant, u64, What)>>,
    messages: Vec<Message>,
    spare: Vec<u32>,
    last_ready: Vec<Option<Instant>>,
    serial: u64,
    injected: u64,
    warm: u64,
    measuring_since: Instant,
    now: Instant,
    seen: Sums,
}

#[derive(Default)]
struct Sums {
    messages: u64,
    waited: u64,
    processor: u64,
    hops: u64,
    periods: u64,
    period: u64,
}

fn ticks(cycles: f64) -> Ticks {
    Ticks((cycles * CYCLE).round() as u64)
}

/// Simulates until the settings' number of messages has been sent.
#[must_use]
pub fn simulate(mesh: &Mesh, settings: Settings) -> Seen {
    let mut simulation = Simulation {
        mesh,
        settings,
        channel: Server {
            gap: ticks(settings.message.bytes),
            ..Server::IDLE
        },
        channels: vec![Instant(0); mesh.places()],
        busy: vec![0; mesh.places()],
        processors: vec![Instant(0); mesh.nodes() as usize],
        events: BinaryHeap::new(),
        messages: Vec::new(),
        spare: Vec::new(),
        last_ready: vec![None; mesh.nodes() as usize],
        serial: 0,
        injected: 0,
        warm: settings.messages / 5,
        measuring_since: Instant(0),
        now: Instant(0),
        seen: Sums::default(),
    };
    // A network of one node has nobody to send to.
    if mesh.nodes() > 1 {
        simulation.run();
    }
    simulation.result()
}

impl Simulation<'_> {
    fn run(&mut self) {
        let period = match self.settings.traffic {
            Traffic::RequestReply { work } => self.settings.message.round_trip() + work,
            Traffic::Poisson { interval } | Traffic::Periodic { interval } | Traffic::Bulk { interval } => {
                interval
            }
        };
        for node in 0..self.mesh.nodes() {
            let phase = self.fraction() * period;
            self.at(Instant(ticks(phase).0), What::Ready { node });
        }
        while let Some(Reverse((time, _, what))) = self.events.pop() {
            self.now = time;
            match what {
                What::Ready { node } => self.ready(node),
                What::Head { message } => self.head(message),
                What::There { message } => self.there(message),
            }
        }
    }

    fn at(&mut self, time: Instant, what: What) {
        self.serial += 1;
        self.events.push(Reverse((time, self.serial, what)));
    }

    /// Uniform in [0, 1).
    fn fraction(&mut self) -> f64 {
        self.serial += 1;
        let bits = draw(self.settings.seed, 0, self.serial, Purpose::Jitter);
        (bits >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// A processor does a job; returns when it is done and what it waited.
    fn process(&mut self, node: u32, cycles: f64) -> (Instant, Ticks) {
        let server = Server {
            gap: ticks(cycles),
            ..Server::IDLE
        };
        let free = &mut self.processors[node as usize];
        match departure(
            &server,
            *free,
            self.now,
            Load {
                bytes: 0,
                segments: 1,
            },
        ) {
            Outcome::Served(service) => {
                *free = service.free;
                (service.next, service.backlog)
            }
            // The server has neither buffer limit, horizon nor law, and does not change.
            Outcome::TailDrop | Outcome::BeyondHorizon | Outcome::Down | Outcome::Early => {
                (self.now, Ticks(0))
            }
        }
    }

    fn ready(&mut self, node: u32) {
        if self.injected >= self.settings.messages {
            return;
        }
        if let Some(last) = self.last_ready[node as usize]
            .replace(self.now)
            .filter(|_| self.measuring())
        {
            self.seen.periods += 1;
            self.seen.period += self.now.since(last).0;
        }
        let others = f64::from(self.mesh.nodes() - 1);
        let draw = (self.fraction() * others) as u32;
        let to = if draw >= node { draw + 1 } else { draw };
        match self.settings.traffic {
            Traffic::RequestReply { .. } => {
                let (sent, waited) = self.process(node, self.settings.message.send);
                self.processor_wait(waited);
                self.inject(sent, node, to, false);
            }
            Traffic::Poisson { interval } => {
                self.inject(self.now, node, to, false);
                let next = -interval * (1.0 - self.fraction()).ln();
                self.at(self.now.after(ticks(next)), What::Ready { node });
            }
            Traffic::Periodic { interval } => {
                self.inject(self.now, node, to, false);
                self.at(self.now.after(ticks(interval)), What::Ready { node });
            }
            Traffic::Bulk { .. } => self.inject(self.now, node, to, false),
        }
    }

    fn inject(&mut self, time: Instant, from: u32, to: u32, reply: bool) {
        self.injected += 1;
        if self.injected == self.warm {
            self.measuring_since = self.now;
            self.busy.fill(0);
        }
        let path = self
            .mesh
            .path(from, to)
            .iter()
            .map(|channel| self.mesh.index(*channel) as u32)
            .collect();
        let message = Message {
            from,
            to,
            reply,
            path,
            crossed: 0,
            injected: time,
            waited: 0,
        };
        let index = match self.spare.pop() {
            Some(index) => {
                self.messages[index as usize] = message;
                index
            }
            None => {
                self.messages.push(message);
                self.messages.len() as u32 - 1
            }
        };
        self.at(time, What::Head { message: index });
    }

    fn measuring(&self) -> bool {
        self.injected > self.warm
    }

    fn processor_wait(&mut self, waited: Ticks) {
        if self.measuring() {
            self.seen.processor += waited.0;
        }
    }

    /// The head of a message gets its next channel.
    fn head(&mut self, index: u32) {
        let message = &mut self.messages[index as usize];
        let channel = message.path[message.crossed] as usize;
        let outcome = departure(
            &self.channel,
            self.channels[channel],
            self.now,
            Load {
                bytes: 0,
                segments: 1,
            },
        );
        let Outcome::Served(service) = outcome else { return };
        self.channels[channel] = service.free;
        self.busy[channel] += self.channel.gap.0;
        message.waited += service.backlog.0;
        message.crossed += 1;
        if message.crossed < message.path.len() {
            let next = self.now.after(service.backlog).after(ticks(self.settings.hop));
            return self.at(next, What::Head { message: index });
        }
        let LogGp { latency, send, .. } = self.settings.message;
        let transit = match self.settings.traffic {
            Traffic::Bulk { .. } => self.settings.message.long() - send,
            _ => latency,
        };
        let there = message
            .injected
            .after(Ticks(message.waited))
            .after(ticks(transit));
        // The head cannot be there before it has crossed its last channel.
        let there = there.max(self.now.after(service.backlog));
        self.at(there, What::There { message: index });
    }

    fn there(&mut self, index: u32) {
        let Message {
            from,
            to,
            reply,
            path,
            waited,
            injected,
            ..
        } = self.messages[index as usize].clone();
        self.spare.push(index);
        if self.measuring() {
            self.seen.messages += 1;
            self.seen.waited += waited;
            self.seen.hops += path.len() as u64;
        }
        let LogGp { send, receive, .. } = self.settings.message;
        match self.settings.traffic {
            Traffic::RequestReply { .. } if !reply => {
                let (done, waited) = self.process(to, receive + send);
                self.processor_wait(waited);
                self.inject(done, to, from, true);
            }
            Traffic::RequestReply { work } => {
                let (done, waited) = self.process(to, receive);
                self.processor_wait(waited);
                self.at(done.after(ticks(work)), What::Ready { node: to });
            }
            Traffic::Bulk { interval } => {
                let next = injected.after(ticks(interval)).after(Ticks(waited));
                self.at(next.max(self.now), What::Ready { node: from });
            }
            Traffic::Poisson { .. } | Traffic::Periodic { .. } => {}
        }
    }

    fn result(&self) -> Seen {
        let count = self.seen.messages.max(1) as f64;
        let elapsed = self.now.since(self.measuring_since).0.max(1) as f64;
        let busy: u64 = self.busy.iter().sum();
        Seen {
            messages: self.seen.messages,
            network_contention_cycles: self.seen.waited as f64 / CYCLE / count,
            processor_wait_cycles: self.seen.processor as f64 / CYCLE / count,
            period_cycles: self.seen.period as f64 / CYCLE / self.seen.periods.max(1) as f64,
            hops: self.seen.hops as f64 / count,
            utilization: busy as f64 / elapsed / self.mesh.channels().max(1) as f64,
            busiest: self.busy.iter().copied().max().unwrap_or(0) as f64 / elapsed,
        }
    }
}
