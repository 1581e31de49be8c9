//! MPI: from calls to messages between ranks of the world.

use std::collections::HashMap;

use perturb_trace::record::{Collective, Kind, Record, unpair};

use super::collective::{Step, View};

/// What messages of one kind between two ranks have in common: the k-th send meets the k-th receive, as MPI's
/// messages do not overtake each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Channel {
    /// The communicator: its members, and the how-manieth of these members; 0, 0 is the world.
    pub(super) communicator: (u32, u32),
    /// Ranks in the world.
    pub(super) from: u32,
    pub(super) to: u32,
    /// None: messages of collectives.
    pub(super) tag: Option<i32>,
}

/// What a call means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Event {
    Send { channel: Channel, bytes: u64 },
    Receive { channel: Channel },
}

/// The label of communicators with two groups; their messages are told apart by ranks and tags alone.
const BETWEEN: (u32, u32) = (u32::MAX, 0);

#[derive(Clone, Debug)]
struct Communicator {
    label: (u32, u32),
    members: Vec<u32>,
    expected: usize,
}

/// A request that is not complete.
#[derive(Clone, Debug)]
enum Request {
    Receive {
        communicator: u64,
    },
    /// Of a collective: what is left to do.
    Steps {
        events: Vec<Event>,
    },
}

#[derive(Clone, Copy, Debug)]
enum Persistent {
    Send {
        communicator: u64,
        peer: u64,
        bytes: u64,
    },
    Receive {
        communicator: u64,
    },
}

/// The communicators and requests of one process.
#[derive(Debug, Default)]
pub(super) struct Groups {
    /// In the world.
    pub(super) rank: Option<u32>,
    communicators: HashMap<u64, Communicator>,
    /// Communicators so far, by members.
    made: HashMap<u32, u32>,
    requests: HashMap<u64, Request>,
    persistent: HashMap<u64, Persistent>,
    /// Sizes that belong to a thread's next collective.
    sizes: HashMap<u32, Vec<u32>>,
}

impl Groups {
    /// Adds what a record means to `events`. `labels` numbers the sets of members over all processes.
    pub(super) fn record(
        &mut self,
        thread: u32,
        kind: Kind,
        record: &Record,
        labels: &mut HashMap<Vec<u32>, u32>,
        events: &mut Vec<Event>,
    ) {
        let [first, second, third, fourth] = record.words;
        match kind {
            Kind::Communicator => {
                let communicator = Communicator {
                    label: if third == 1 { BETWEEN } else { (0, 0) },
                    members: Vec::new(),
                    expected: second as usize,
                };
                self.communicators.insert(first, communicator);
            }
            Kind::Members => self.members(record, labels),
            Kind::CommunicatorFreed => {
                self.communicators.remove(&first);
            }
            Kind::Send => {
                if fourth != 0 {
                    // The number of a receive that was freed, perhaps.
                    self.requests.remove(&fourth);
                    self.persistent.remove(&fourth);
                }
                events.extend(self.send(first, second, third));
            }
            Kind::Received => events.extend(self.receive(first, second)),
            Kind::Posted if record.small == 1 => {
                if let Some(request) = self.requests.remove(&first) {
                    self.requests.insert(second, request);
                }
            }
            Kind::Posted => {
                self.persistent.remove(&second);
                self.requests
                    .insert(second, Request::Receive { communicator: first });
            }
            Kind::Complete => match self.requests.remove(&first) {
                Some(Request::Receive { communicator }) if record.small == 0 => {
                    events.extend(self.receive(communicator, second));
                }
                Some(Request::Steps { events: rest }) => events.extend(rest),
                Some(Request::Receive { .. }) | None => {}
            },
            Kind::SendInit => {
                let send = Persistent::Send {
                    communicator: first,
                    peer: second,
                    bytes: third,
                };
                self.persistent.insert(fourth, send);
            }
            Kind::ReceiveInit => {
                self.persistent
                    .insert(second, Persistent::Receive { communicator: first });
            }
            Kind::Started => match self.persistent.get(&first).copied() {
                Some(Persistent::Send {
                    communicator,
                    peer,
                    bytes,
                }) => events.extend(self.send(communicator, peer, bytes)),
                Some(Persistent::Receive { communicator }) => {
                    self.requests.insert(first, Request::Receive { communicator });
                }
                None => {}
            },
            Kind::Sizes => {
                let sizes = self.sizes.entry(thread).or_default();
                let all = record.words.into_iter().flat_map(|word| {
                    let (high, low) = unpair(word);
                    [high, low]
                });
                sizes.extend(all.take(usize::from(record.small)));
            }
            Kind::Collective => {
                let mut all = self.collective(thread, record);
                if third != 0 {
                    // Sends that wait for nothing are made at once, the rest when the request is complete.
                    let receives = |event: &Event| matches!(event, Event::Receive { .. });
                    let rest = all.split_off(all.iter().position(receives).unwrap_or(all.len()));
                    self.requests.insert(third, Request::Steps { events: rest });
                }
                events.extend(all);
            }
            Kind::MpiStart
            | Kind::MpiEnd
            | Kind::Local
            | Kind::Remote
            | Kind::Sent
            | Kind::Taken
            | Kind::Closed
            | Kind::Exit
            | Kind::Paused
            | Kind::Resumed => {}
        }
    }

    fn members(&mut self, record: &Record, labels: &mut HashMap<Vec<u32>, u32>) {
        let Some(communicator) = self.communicators.get_mut(&record.words[0]) else {
            return;
        };
        let all = record.words[1..].iter().flat_map(|&word| {
            let (high, low) = unpair(word);
            [high, low]
        });
        communicator.members.extend(all.take(usize::from(record.small)));
        if communicator.members.len() < communicator.expected || communicator.label == BETWEEN {
            return;
        }
        let next = labels.len() as u32;
        let label = *labels.entry(communicator.members.clone()).or_insert(next);
        let made = self.made.entry(label).or_default();
        communicator.label = (label, *made);
        *made += 1;
    }

    /// The channel to or from a rank of a communicator.
    fn channel(&self, communicator: u64, peer: u32, tag: Option<i32>, sends: bool) -> Option<Channel> {
        let communicator = self.communicators.get(&communicator)?;
        let other = *communicator.members.get(peer as usize)?;
        let own = self.rank?;
        let (from, to) = if sends { (own, other) } else { (other, own) };
        Some(Channel {
            communicator: communicator.label,
            from,
            to,
            tag,
        })
    }

    fn send(&self, communicator: u64, to: u64, bytes: u64) -> Option<Event> {
        let (peer, tag) = unpair(to);
        let channel = self.channel(communicator, peer, Some(tag.cast_signed()), true)?;
        Some(Event::Send { channel, bytes })
    }

    fn receive(&self, communicator: u64, from: u64) -> Option<Event> {
        let (peer, tag) = unpair(from);
        let channel = self.channel(communicator, peer, Some(tag.cast_signed()), false)?;
        Some(Event::Receive { channel })
    }

    fn collective(&mut self, thread: u32, record: &Record) -> Vec<Event> {
        let [handle, bytes, _, root] = record.words;
        let sizes = self.sizes.remove(&thread).unwrap_or_default();
        let (Some(which), Some(communicator)) =
            (Collective::of(record.small), self.communicators.get(&handle))
        else {
            return Vec::new();
        };
        let members = &communicator.members;
        let Some(me) = self
            .rank
            .and_then(|rank| members.iter().position(|member| *member == rank))
        else {
            return Vec::new();
        };
        let view = View {
            which,
            me: me as u32,
            size: members.len() as u32,
            root: root as u32,
            bytes,
            sizes: &sizes,
        };
        let event = |step| match step {
            Step::Send(to, bytes) => {
                let channel = self.channel(handle, to, None, true)?;
                Some(Event::Send { channel, bytes })
            }
            Step::Receive(from) => {
                let channel = self.channel(handle, from, None, false)?;
                Some(Event::Receive { channel })
            }
        };
        view.steps().into_iter().filter_map(event).collect()
    }
}
