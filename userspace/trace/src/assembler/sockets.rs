//! Records of sockets: what descriptors mean, and the bytes that were sent and taken.

use super::{Assembler, Handled, PEER_PATIENCE_NS, SEND_PATIENCE_NS, ThreadId};
use crate::line::{Happening, MessageName};
use crate::record::Event;
use crate::streams::{EndId, Place};

impl Assembler {
    /// Handles what changes the meaning of descriptors.
    pub(super) fn descriptors(&mut self, id: ThreadId, event: &Event) {
        let source = &mut self.sources[id.0];
        let namespace = (source.writer.machine, source.writer.net_namespace);
        match *event {
            Event::Local { port, address, .. } => {
                source.opening.insert(id.1, Place::new(address, port, namespace));
            }
            Event::Remote {
                port,
                descriptor,
                address,
                cookie,
            } => {
                if let Some(own) = source.opening.remove(&id.1) {
                    let peer = Place::new(address, port, namespace);
                    let end = self.streams.open((source.host, cookie), own, peer, id);
                    source.ends.insert(descriptor, end);
                }
            }
            Event::Closed { descriptor } => {
                source.ends.remove(&descriptor);
            }
            _ => {}
        }
    }

    pub(super) fn sent(
        &mut self,
        id: ThreadId,
        (end, place): (EndId, u64),
        bytes: u64,
        before: u64,
        forced: bool,
    ) -> Handled {
        let Some(peer) = self.streams.peer(end) else {
            if !forced {
                return Handled::Waits {
                    patience_ns: PEER_PATIENCE_NS,
                };
            }
            self.streams.leave_out(end, place);
            self.outside += 1;
            return Handled::Done;
        };
        let message = MessageName::Stream(self.streams.tell(end, place));
        let to = self.thread(peer).name.clone();
        self.emit(id, before, &Happening::Send { message, bytes, to });
        Handled::Done
    }

    pub(super) fn taken(
        &mut self,
        id: ThreadId,
        end: EndId,
        bytes: u64,
        cpu_ns: [u64; 2],
        forced: bool,
    ) -> Handled {
        if !forced && !self.streams.can_take(end, bytes) {
            let patience_ns = if self.streams.peer(end).is_some() {
                SEND_PATIENCE_NS
            } else {
                PEER_PATIENCE_NS
            };
            return Handled::Waits { patience_ns };
        }
        if self.streams.peer(end).is_none() {
            self.outside += 1;
        }
        let complete = self.streams.take(end, bytes);
        let [before, after] = cpu_ns;
        for (place, number) in complete.into_iter().enumerate() {
            let message = MessageName::Stream(number);
            if place == 0 {
                self.emit(id, before, &Happening::StartReceive { message });
            }
            self.emit(id, after, &Happening::EndReceive { message });
        }
        Handled::Done
    }
}
