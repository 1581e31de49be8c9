//! MPI: from calls to messages between ranks of the world.

use std::collections::HashMap;

use crate::collective::{Move, View};
use crate::record::{Collective, Event};

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
pub(super) enum Step {
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
    Steps(Vec<Step>),
}

#[derive(Clone, Copy, Debug)]
enum Persistent {
    Send {
        communicator: u64,
        peer: u32,
        tag: i32,
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
    /// Adds what an event of a thread means to `steps`. `labels` numbers the sets of members over all processes.
    pub(super) fn record(
        &mut self,
        thread: u32,
        event: &Event,
        labels: &mut HashMap<Vec<u32>, u32>,
        steps: &mut Vec<Step>,
    ) {
        match *event {
            Event::Communicator {
                groups,
                size,
                communicator,
            } => {
                let made = Communicator {
                    label: if groups == 2 { BETWEEN } else { (0, 0) },
                    members: Vec::new(),
                    expected: size as usize,
                };
                self.communicators.insert(communicator, made);
            }
            Event::Members {
                count,
                communicator,
                ranks,
            } => self.members(communicator, &ranks[..ranks.len().min(count.into())], labels),
            Event::CommunicatorFreed { communicator } => {
                self.communicators.remove(&communicator);
            }
            Event::Send {
                peer,
                tag,
                communicator,
                bytes,
                request,
            } => {
                if request != 0 {
                    // The number of a receive that was freed, perhaps.
                    self.requests.remove(&request);
                    self.persistent.remove(&request);
                }
                steps.extend(self.send(communicator, peer, Some(tag), bytes));
            }
            Event::Received {
                peer,
                tag,
                communicator,
            } => steps.extend(self.receive(communicator, peer, Some(tag))),
            Event::MatchedPosted { message, request } => {
                if let Some(receive) = self.requests.remove(&message) {
                    self.requests.insert(request, receive);
                }
            }
            Event::Posted {
                communicator,
                request,
            } => {
                self.persistent.remove(&request);
                self.requests.insert(request, Request::Receive { communicator });
            }
            Event::Complete { peer, tag, request } => match self.requests.remove(&request) {
                Some(Request::Receive { communicator }) if peer >= 0 => {
                    steps.extend(self.receive(communicator, peer.unsigned_abs(), Some(tag)));
                }
                Some(Request::Steps(rest)) => steps.extend(rest),
                Some(Request::Receive { .. }) | None => {}
            },
            Event::SendInit {
                peer,
                tag,
                communicator,
                bytes,
                request,
            } => {
                let send = Persistent::Send {
                    communicator,
                    peer,
                    tag,
                    bytes,
                };
                self.persistent.insert(request, send);
            }
            Event::ReceiveInit {
                communicator,
                request,
            } => {
                self.persistent
                    .insert(request, Persistent::Receive { communicator });
            }
            Event::Started { request } => match self.persistent.get(&request).copied() {
                Some(Persistent::Send {
                    communicator,
                    peer,
                    tag,
                    bytes,
                }) => steps.extend(self.send(communicator, peer, Some(tag), bytes)),
                Some(Persistent::Receive { communicator }) => {
                    self.requests.insert(request, Request::Receive { communicator });
                }
                None => {}
            },
            Event::Sizes { count, sizes } => {
                let sizes = sizes.into_iter().take(count.into());
                self.sizes.entry(thread).or_default().extend(sizes);
            }
            Event::Collective {
                which,
                root,
                communicator,
                bytes,
                request,
            } => {
                let sizes = self.sizes.remove(&thread).unwrap_or_default();
                let mut all = self.collective(which, communicator, root, bytes, &sizes);
                if request != 0 {
                    // Sends that wait for nothing are made at once, the rest when the request is complete.
                    let receives = |step: &Step| matches!(step, Step::Receive { .. });
                    let rest = all.split_off(all.iter().position(receives).unwrap_or(all.len()));
                    self.requests.insert(request, Request::Steps(rest));
                }
                steps.extend(all);
            }
            // Of the process or its sockets.
            _ => {}
        }
    }

    fn members(&mut self, communicator: u64, ranks: &[u32], labels: &mut HashMap<Vec<u32>, u32>) {
        let Some(communicator) = self.communicators.get_mut(&communicator) else {
            return;
        };
        communicator.members.extend(ranks);
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

    fn send(&self, communicator: u64, to: u32, tag: Option<i32>, bytes: u64) -> Option<Step> {
        let channel = self.channel(communicator, to, tag, true)?;
        Some(Step::Send { channel, bytes })
    }

    fn receive(&self, communicator: u64, from: u32, tag: Option<i32>) -> Option<Step> {
        let channel = self.channel(communicator, from, tag, false)?;
        Some(Step::Receive { channel })
    }

    fn collective(&self, which: u16, communicator: u64, root: u32, bytes: u64, sizes: &[u32]) -> Vec<Step> {
        let (Some(which), Some(Communicator { members, .. })) =
            (Collective::of(which), self.communicators.get(&communicator))
        else {
            return Vec::new();
        };
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
            root,
            bytes,
            sizes,
        };
        let step = |step| match step {
            Move::Send(to, bytes) => self.send(communicator, to, None, bytes),
            Move::Receive(from) => self.receive(communicator, from, None),
        };
        view.steps().into_iter().filter_map(step).collect()
    }
}
