//! What a thread of the switch does with frames.

use std::{
    io, mem,
    sync::{Arc, atomic::Ordering},
};

use perturb_common::abi::Direction;

use super::{
    Ports,
    cut::{self, GSO_UDP_L4},
};
use crate::{
    native::{self, Frame, Program, Seat, Tables, Verdict},
    user::{Buffers, Course, DepartureQueue, Figures, HEADER, Held, Queue},
};

/// Bytes of an Ethernet header.
const ETHERNET: usize = 14;
/// `skb->tstamp` is one of CLOCK_MONOTONIC.
const STAMP_MONO: u8 = 1;
/// `gso_type` of a virtio_net header without the flag for ECN.
const GSO_TYPE: u8 = 0x7f;

/// A frame, with what the programs note on it (`skb->tc_index`, `skb->tstamp`).
pub(super) struct Parcel {
    held: Held,
    tag: u32,
    stamp: u64,
    /// The port whose interface it is at.
    at: usize,
}

/// Where a frame goes on.
#[derive(Clone, Copy, Debug)]
enum Next {
    /// Untouched.
    Pass,
    /// Nowhere.
    Gone,
    /// It waits, so often.
    Wait(u32),
    /// Into the splitter.
    Split,
    /// Out of its interface,
    Out,
    /// or into it.
    In,
}

/// A thread's own things.
pub(super) struct Crossing {
    number: u32,
    ports: Arc<Ports>,
    figures: Arc<Figures>,
    buffers: Buffers,
    changes: u64,
    programs: Option<Programs>,
    /// How long ago the next frame came.
    behind: u64,
}

struct Programs {
    seat: Seat,
    // The seat's memory.
    _tables: Arc<Tables>,
}

type Waiting = DepartureQueue<Parcel>;

impl Crossing {
    /// Of the thread with this number.
    pub(super) fn new(number: usize, ports: Arc<Ports>, figures: Arc<Figures>) -> Self {
        /// Memory by which buffers are kept for reuse.
        const USUAL: u64 = 1 << 29;
        Self {
            number: number as u32,
            ports,
            buffers: Buffers::new(figures.threads(), USUAL),
            figures,
            changes: 0,
            programs: None,
            behind: 0,
        }
    }

    /// Takes the programs that are in force.
    fn look(&mut self) {
        let changes = self.ports.changes.load(Ordering::Acquire);
        if changes != self.changes {
            self.changes = changes;
            self.programs = self.ports.emulated().tables.clone().map(|tables| Programs {
                seat: tables.seat(self.number),
                _tables: tables,
            });
        }
    }

    fn set_behind(&self, nanos: u64) {
        if let Some(programs) = &self.programs {
            programs.seat.set_behind(nanos);
        }
    }

    /// Runs a program on a frame, at this interface.
    fn run(&mut self, program: Program, interface: u32, parcel: &mut Parcel) -> Next {
        let Some(programs) = &self.programs else {
            return match program {
                Program::Capture(_) => Next::Pass,
                Program::Release => Next::Gone,
            };
        };
        let (first, rest) = parcel.held.bytes();
        let (header, first) = first.split_at_mut(HEADER);
        let protocol = u16::from_ne_bytes([first[12], first[13]]);
        let headers = headers(header, first);
        let mut frame = Frame::new(first, rest);
        frame.skb.ifindex = interface;
        frame.skb.protocol = protocol.into();
        if header[1] & GSO_TYPE != 0 {
            frame.skb.gso_size = u16::from_ne_bytes([header[4], header[5]]).into();
            let data = frame.skb.len.saturating_sub(headers);
            frame.skb.gso_segs = data.div_ceil(frame.skb.gso_size.max(1)).max(1);
        }
        frame.skb.tc_index = parcel.tag;
        frame.skb.tstamp = parcel.stamp;
        if parcel.stamp != 0 {
            frame.skb.tstamp_type = STAMP_MONO;
        }
        // SAFETY: `_tables` keeps the memory, and this thread alone has its number.
        let verdict = unsafe { native::run(&programs.seat, program, &mut frame) };
        parcel.tag = frame.skb.tc_index;
        parcel.stamp = frame.skb.tstamp;
        let port = &self.ports.ports[parcel.at];
        match verdict {
            Verdict::Pass => Next::Pass,
            Verdict::Discard => Next::Gone,
            Verdict::Redirect => match frame.redirected.device {
                device if device == port.hold() => Next::Wait(1 + frame.clones),
                device if device == port.split() => Next::Split,
                device if device == port.index && frame.redirected.received => Next::In,
                device if device == port.index => Next::Out,
                _ => Next::Gone,
            },
        }
    }

    /// Takes a frame on from where a program has left it; whether it got where it was to go.
    fn go_on(&mut self, next: Next, direction: Direction, parcel: Parcel, waiting: &mut Waiting) -> bool {
        match next {
            Next::Pass => match direction {
                Direction::Egress => self.leave(parcel, waiting),
                Direction::Ingress => self.deliver(parcel),
            },
            Next::Out => self.leave(parcel, waiting),
            Next::In => self.deliver(parcel),
            Next::Gone => {
                self.buffers.reuse(parcel.held);
                true
            }
            Next::Wait(copies) => {
                for _ in 1..copies {
                    let copy = parcel.copy();
                    self.wait(copy, waiting);
                }
                self.wait(parcel, waiting);
                true
            }
            Next::Split => self.split(parcel, direction, waiting),
        }
    }

    fn wait(&mut self, parcel: Parcel, waiting: &mut Waiting) {
        self.figures.hold(parcel.held.memory());
        waiting.push(parcel.stamp, parcel);
    }

    /// Cuts a frame into those that the wire would see; each goes its own way.
    fn split(&mut self, mut parcel: Parcel, direction: Direction, waiting: &mut Waiting) -> bool {
        let parts = self.ports.ports[parcel.at].parts();
        let (first, rest) = parcel.held.bytes();
        let whole = [&*first, &*rest].concat();
        let mut all = true;
        for part in cut::cut(&whole) {
            let mut part = Parcel {
                held: Held::of(parcel.held.queue(), &part),
                tag: parcel.tag,
                stamp: parcel.stamp,
                at: parcel.at,
            };
            let next = self.run(Program::Release, parts, &mut part);
            all &= self.go_on(next, direction, part, waiting);
        }
        self.buffers.reuse(parcel.held);
        all
    }

    /// A frame leaves its host: it comes to another, or to all others.
    fn leave(&mut self, mut parcel: Parcel, waiting: &mut Waiting) -> bool {
        let from = parcel.at;
        let (first, _) = parcel.held.bytes();
        let address = &first[HEADER..HEADER + 6];
        let other = |port: &super::Port| port.address == address;
        if let Some(to) = self.ports.ports.iter().position(other) {
            return to == from || self.arrive(to, parcel, waiting);
        }
        let mut all = true;
        for to in (0..self.ports.ports.len()).filter(|&to| to != from) {
            all &= self.arrive(to, parcel.copy(), waiting);
        }
        self.buffers.reuse(parcel.held);
        all
    }

    /// A frame comes to a host's interface.
    fn arrive(&mut self, to: usize, mut parcel: Parcel, waiting: &mut Waiting) -> bool {
        parcel.at = to;
        (parcel.tag, parcel.stamp) = (0, 0);
        let interface = self.ports.ports[to].index;
        let next = self.run(Program::Capture(Direction::Ingress), interface, &mut parcel);
        self.go_on(next, Direction::Ingress, parcel, waiting)
    }

    /// Gives a frame to its host.
    fn deliver(&mut self, parcel: Parcel) -> bool {
        let sent = parcel.held.send_to(&self.ports.ports[parcel.at].out);
        self.buffers.reuse(parcel.held);
        // EIO while the interface is down: nobody waits for the frame there.
        sent.is_ok() || sent.is_err_and(|error| error.raw_os_error() == Some(libc::EIO))
    }
}

/// Bytes of a super-packet's headers, which each of its segments has: up to TCP's or UDP's, whose checksum its virtio_net header
/// has to do, and that one. Its `hdr_len` may be more: it is what lay in one piece.
fn headers(header: &[u8], frame: &[u8]) -> u32 {
    let upper = usize::from(u16::from_ne_bytes([header[6], header[7]]));
    let own = match header[1] & GSO_TYPE {
        GSO_UDP_L4 => 8,
        _ => frame
            .get(upper + 12)
            .map_or(0, |offset| usize::from(offset >> 4) * 4),
    };
    (upper + own) as u32
}

impl Parcel {
    /// Another one of the same bytes.
    fn copy(&self) -> Self {
        Self {
            held: self.held.copy(),
            tag: self.tag,
            stamp: self.stamp,
            at: self.at,
        }
    }
}

impl Course for Crossing {
    type Packet = Parcel;

    fn overslept(&mut self, nanos: u64) {
        self.behind = nanos;
    }

    fn read(&mut self, queue: &Arc<Queue>, held: &mut Waiting) -> io::Result<bool> {
        self.look();
        let Some(length) = self.buffers.read(queue)? else {
            return Ok(false);
        };
        let Some(at) = self
            .ports
            .of(queue.interface())
            .filter(|_| length >= HEADER + ETHERNET)
        else {
            return Ok(true);
        };
        let mut parcel = Parcel {
            held: self.buffers.keep(queue, length),
            tag: 0,
            stamp: 0,
            at,
        };
        let behind = mem::take(&mut self.behind);
        self.set_behind(behind);
        let next = self.run(
            Program::Capture(Direction::Egress),
            queue.interface(),
            &mut parcel,
        );
        if !self.go_on(next, Direction::Egress, parcel, held) {
            self.figures.dropped.fetch_add(1, Ordering::Relaxed);
        }
        if behind != 0 {
            self.set_behind(0);
        }
        Ok(true)
    }

    fn let_go(&mut self, mut packet: Parcel, held: &mut Waiting) -> bool {
        self.look();
        let hold = self.ports.ports[packet.at].hold();
        let next = self.run(Program::Release, hold, &mut packet);
        self.programs.is_some() && self.go_on(next, Direction::Egress, packet, held)
    }

    fn interface(packet: &Parcel) -> u32 {
        packet.held.queue().interface()
    }

    fn memory(packet: &Parcel) -> u64 {
        packet.held.memory()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_end_where_the_data_begins() {
        let mut header = [0; HEADER];
        header[6..8].copy_from_slice(&34_u16.to_ne_bytes());
        let mut frame = vec![0; 100];
        frame[34 + 12] = 0x80;
        header[1] = 1;
        assert_eq!(headers(&header, &frame), 34 + 32);
        header[1] = GSO_UDP_L4;
        assert_eq!(headers(&header, &frame), 34 + 8);
    }
}
