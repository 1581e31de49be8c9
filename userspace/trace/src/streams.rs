//! TCP connections: which bytes of a receive belong to which sends.
//!
//! **Model.** A connection has two *ends*, each a socket (its cookie names it, in whichever processes it is
//! open). What one end sends in one call is a message; a receive at the other end completes the messages whose
//! last byte it takes. Ends find each other by their addresses, the later ones of equal addresses with each
//! other; addresses of the loopback device are those of a network namespace.
//!
//! An end that is closed can still find its peer: the records of one process may be read long before another's.
//!
//! Threads may share an end. A send has its place in the stream as soon as its record is read (`reserve`), in the order of
//! the process's records, though its thread may be held up until it can be told (`tell`); a receive waits for that.
//!
//! **What it lacks:** an end whose peer is not traced has no messages, and if its addresses are used again by two
//! traced ends, the first of these may be taken for its peer.

use std::collections::{HashMap, VecDeque};

/// Names a socket: its host and cookie.
pub(super) type Cookie = (u64, u64);

/// Address and port, and the network namespace where that matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Place {
    pub(super) address: [u64; 2],
    pub(super) port: u16,
    pub(super) namespace: Namespace,
}

/// A network namespace: its machine and its number there.
pub(super) type Namespace = (u32, u64);

impl Place {
    /// Of an address in a namespace.
    pub(super) fn new(address: [u64; 2], port: u16, namespace: Namespace) -> Self {
        // ::1, and 127.0.0.0/8 as IPv6 writes it.
        let local = address == [0, 1] || (address[0] == 0 && address[1] >> 24 == 0x00ff_ff7f);
        Self {
            address,
            port,
            namespace: if local { namespace } else { (0, 0) },
        }
    }
}

/// A message on its way over a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Message {
    state: State,
    /// Where it ends in the stream.
    end: u64,
}

/// What has become of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Its sender's event is to come.
    Reserved,
    /// Its number in the trace.
    Told(u64),
    /// The sender's event was left out.
    LeftOut,
}

/// One end of a connection.
#[derive(Debug)]
struct End<O> {
    peer: Option<usize>,
    owner: O,
    sent: u64,
    messages: VecDeque<Message>,
    taken: u64,
}

/// All connections; `O` is who has an end.
#[derive(Debug, Default)]
pub(super) struct Streams<O> {
    ends: Vec<End<O>>,
    by_cookie: HashMap<Cookie, usize>,
    /// Ends that have no peer yet, by their places.
    lonely: HashMap<(Place, Place), usize>,
    messages: u64,
}

/// Names an end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct EndId(usize);

impl<O: Copy> Streams<O> {
    /// An end is seen, perhaps again in another process.
    pub(super) fn open(&mut self, cookie: Cookie, own: Place, peer: Place, owner: O) -> EndId {
        if let Some(&known) = self.by_cookie.get(&cookie) {
            self.ends[known].owner = owner;
            return EndId(known);
        }
        let id = self.ends.len();
        let other = self.lonely.remove(&(peer, own));
        if let Some(other) = other {
            self.ends[other].peer = Some(id);
        } else {
            self.lonely.insert((own, peer), id);
        }
        self.ends.push(End {
            peer: other,
            owner,
            sent: 0,
            messages: VecDeque::new(),
            taken: 0,
        });
        self.by_cookie.insert(cookie, id);
        EndId(id)
    }

    /// Who has the other end, if it is traced.
    pub(super) fn peer(&self, id: EndId) -> Option<O> {
        self.ends[id.0].peer.map(|peer| self.ends[peer].owner)
    }

    /// Bytes are sent; their place in the stream.
    pub(super) fn reserve(&mut self, id: EndId, bytes: u64) -> u64 {
        let end = &mut self.ends[id.0];
        end.sent += bytes;
        end.messages.push_back(Message {
            state: State::Reserved,
            end: end.sent,
        });
        end.sent
    }

    /// The send of this place is told; the number of the message that it is.
    pub(super) fn tell(&mut self, id: EndId, place: u64) -> u64 {
        let number = self.messages;
        self.messages += 1;
        let messages = &mut self.ends[id.0].messages;
        if let Ok(index) = messages.binary_search_by_key(&place, |message| message.end) {
            messages[index].state = State::Told(number);
        }
        number
    }

    /// The send of this place is not told.
    pub(super) fn leave_out(&mut self, id: EndId, place: u64) {
        let End { messages, peer, .. } = &mut self.ends[id.0];
        if let Ok(index) = messages.binary_search_by_key(&place, |message| message.end) {
            messages[index].state = State::LeftOut;
            // An end that nobody takes from would gather messages for ever.
            if peer.is_none() {
                messages.remove(index);
            }
        }
    }

    /// Whether what an end is about to take has been told as sent.
    pub(super) fn can_take(&self, id: EndId, bytes: u64) -> bool {
        let end = &self.ends[id.0];
        let (Some(peer), upto) = (end.peer, end.taken + bytes) else {
            return false;
        };
        let peer = &self.ends[peer];
        let mut complete = peer.messages.iter().take_while(|message| message.end <= upto);
        peer.sent >= upto && complete.all(|message| message.state != State::Reserved)
    }

    /// Bytes are taken; the messages that are complete by them.
    pub(super) fn take(&mut self, id: EndId, bytes: u64) -> Vec<u64> {
        let end = &mut self.ends[id.0];
        end.taken += bytes;
        let (taken, peer) = (end.taken, end.peer);
        let mut complete = Vec::new();
        if let Some(peer) = peer {
            let messages = &mut self.ends[peer].messages;
            while let Some(message) = messages.front().filter(|message| message.end <= taken) {
                match message.state {
                    State::Reserved => break,
                    State::Told(number) => complete.push(number),
                    State::LeftOut => {}
                }
                messages.pop_front();
            }
        }
        complete
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(port: u16) -> Place {
        Place::new([0, 0xffff_0a4d_0001], port, (0, 7))
    }

    fn connection() -> (Streams<&'static str>, EndId, EndId) {
        let mut streams = Streams::default();
        let client = streams.open((0, 1), place(1000), place(80), "client");
        let server = streams.open((0, 2), place(80), place(1000), "server");
        (streams, client, server)
    }

    #[test]
    fn ends_find_each_other() {
        let (streams, client, server) = connection();
        assert_eq!(
            (streams.peer(client), streams.peer(server)),
            (Some("server"), Some("client"))
        );
    }

    fn send(streams: &mut Streams<&'static str>, end: EndId, bytes: u64) -> u64 {
        let place = streams.reserve(end, bytes);
        streams.tell(end, place)
    }

    #[test]
    fn messages_are_complete_with_their_last_byte() {
        let (mut streams, client, server) = connection();
        let first = send(&mut streams, client, 100);
        let second = send(&mut streams, client, 50);
        assert_eq!(streams.take(server, 99), Vec::<u64>::new());
        assert!(streams.can_take(server, 51) && !streams.can_take(server, 52));
        assert_eq!(streams.take(server, 51), [first, second]);
        assert_eq!(streams.take(client, 1), Vec::<u64>::new());
    }

    #[test]
    fn messages_left_out_take_their_bytes() {
        let (mut streams, client, server) = connection();
        let place = streams.reserve(client, 10);
        streams.leave_out(client, place);
        let second = send(&mut streams, client, 10);
        assert_eq!(streams.take(server, 20), [second]);
    }

    #[test]
    fn what_threads_send_on_one_connection_keeps_its_place() {
        let (mut streams, client, server) = connection();
        // The first one's thread is held up.
        let first = streams.reserve(client, 10);
        let second = send(&mut streams, client, 40);
        assert!(streams.can_take(server, 9) && !streams.can_take(server, 10));
        let first = streams.tell(client, first);
        assert!(streams.can_take(server, 50));
        assert_eq!(streams.take(server, 10), [first]);
        assert_eq!(streams.take(server, 40), [second]);
    }

    #[test]
    fn the_same_addresses_again() {
        let (mut streams, client, _) = connection();
        let next = streams.open((0, 3), place(1000), place(80), "next client");
        assert_eq!(streams.peer(next), None);
        streams.open((0, 4), place(80), place(1000), "next server");
        assert_eq!(streams.peer(next), Some("next server"));
        assert_eq!(streams.peer(client), Some("server"));
    }

    #[test]
    fn loopback_is_private_to_its_namespace() {
        let lo = [0, 0x0000_ffff_7f00_0001];
        assert_ne!(Place::new(lo, 80, (0, 1)), Place::new(lo, 80, (0, 2)));
        assert_ne!(Place::new([0, 1], 80, (0, 1)), Place::new([0, 1], 80, (0, 2)));
        assert_ne!(Place::new(lo, 80, (0, 1)), Place::new(lo, 80, (1, 1)));
        assert_eq!(Place::new([1, 1], 80, (0, 1)), Place::new([1, 1], 80, (1, 2)));
    }
}
