//! Writes pcapng files: a section header, two interfaces, packets with comments, and statistics at the end. Little-endian, times
//! in nanoseconds.

use std::io::{self, Write};

use perturb_common::abi::Direction;

const SECTION: u32 = 0x0a0d_0d0a;
const INTERFACE: u32 = 1;
const STATISTICS: u32 = 5;
const PACKET: u32 = 6;

/// LINKTYPE_ETHERNET.
const ETHERNET: u16 = 1;

/// Options of every block.
const COMMENT: u16 = 1;
/// Of sections.
const APPLICATION: u16 = 4;
/// Of interfaces.
const NAME: u16 = 2;
const DESCRIPTION: u16 = 3;
const RESOLUTION: u16 = 9;
/// Of packets.
const FLAGS: u16 = 2;
const PACKET_ID: u16 = 5;
const VERDICT: u16 = 7;
/// Of statistics.
const START: u16 = 2;
const END: u16 = 3;
const RECEIVED: u16 = 4;
const DROPPED: u16 = 5;

const INBOUND: u32 = 1;
const OUTBOUND: u32 = 2;
/// A verdict of an eBPF program of tc, and what it says of a packet that is dropped (`TC_ACT_SHOT`).
const OF_TC: u8 = 1;
const SHOT: u64 = 2;

/// An option's length has 16 bits.
const LONGEST: usize = u16::MAX as usize;

/// An interface.
pub(super) struct Interface<'a> {
    pub(super) name: &'a str,
    pub(super) description: &'a str,
}

/// A packet.
pub(super) struct Frame<'a> {
    /// The number of its interface is the direction's.
    pub(super) direction: Direction,
    /// ns since 1970.
    pub(super) time: u64,
    /// How it begins.
    pub(super) bytes: &'a [u8],
    /// How long it is.
    pub(super) length: u32,
    pub(super) comment: &'a str,
    /// The same of all frames that show one packet.
    pub(super) id: Option<u64>,
    pub(super) dropped: bool,
}

/// What is said of an interface at the end.
#[derive(Clone, Copy, Default)]
pub(super) struct Statistics {
    /// ns since 1970.
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) received: u64,
    /// Of them, what is not in the file.
    pub(super) dropped: u64,
}

/// A block in the making.
struct Block(Vec<u8>);

impl Block {
    fn new(kind: u32) -> Self {
        let mut block = Self(Vec::with_capacity(512));
        block.word(kind);
        // The length, written last.
        block.word(0);
        block
    }

    fn word(&mut self, word: u32) {
        self.0.extend(word.to_le_bytes());
    }

    /// Bytes, filled up to words.
    fn padded(&mut self, bytes: &[u8]) {
        self.0.extend(bytes);
        self.0.resize(self.0.len().next_multiple_of(4), 0);
    }

    fn option(&mut self, code: u16, value: &[u8]) {
        let value = value.get(..LONGEST).unwrap_or(value);
        self.0.extend(code.to_le_bytes());
        self.0.extend((value.len() as u16).to_le_bytes());
        self.padded(value);
    }

    fn text(&mut self, code: u16, text: &str) {
        let end = text.floor_char_boundary(LONGEST);
        self.option(code, text.get(..end).unwrap_or_default().as_bytes());
    }

    /// A time: its high half comes first, whatever the order of bytes.
    fn time(&mut self, time: u64) {
        self.word((time >> 32) as u32);
        self.word(time as u32);
    }

    fn write(mut self, out: &mut impl Write) -> io::Result<()> {
        // The end of options.
        self.word(0);
        let length = self.0.len() as u32 + 4;
        self.word(length);
        if let Some(place) = self.0.get_mut(4..8) {
            place.copy_from_slice(&length.to_le_bytes());
        }
        out.write_all(&self.0)
    }
}

/// A file.
pub(super) struct File<W: Write> {
    out: W,
}

impl<W: Write> File<W> {
    /// Begins it: who writes it, what is to be said of it, how much of a packet is in it, and its interfaces by direction.
    pub(super) fn begin(
        mut out: W,
        comment: &str,
        snap: u32,
        interfaces: [Interface<'_>; 2],
    ) -> io::Result<Self> {
        let mut section = Block::new(SECTION);
        section.word(0x1a2b_3c4d);
        // Version 1.0.
        section.word(1);
        // Of unknown length.
        section.word(u32::MAX);
        section.word(u32::MAX);
        section.text(COMMENT, comment);
        section.text(APPLICATION, concat!("perturb ", env!("CARGO_PKG_VERSION")));
        section.write(&mut out)?;
        for Interface { name, description } in interfaces {
            let mut interface = Block::new(INTERFACE);
            interface.word(ETHERNET.into());
            interface.word(snap);
            interface.text(NAME, name);
            interface.text(DESCRIPTION, description);
            interface.option(RESOLUTION, &[9]);
            interface.write(&mut out)?;
        }
        Ok(Self { out })
    }

    pub(super) fn frame(&mut self, frame: &Frame<'_>) -> io::Result<()> {
        let mut packet = Block::new(PACKET);
        packet.word(frame.direction as u32);
        packet.time(frame.time);
        packet.word(frame.bytes.len() as u32);
        packet.word(frame.length.max(frame.bytes.len() as u32));
        packet.padded(frame.bytes);
        packet.text(COMMENT, frame.comment);
        let way = match frame.direction {
            Direction::Egress => OUTBOUND,
            Direction::Ingress => INBOUND,
        };
        packet.option(FLAGS, &way.to_le_bytes());
        if let Some(id) = frame.id {
            packet.option(PACKET_ID, &id.to_le_bytes());
        }
        if frame.dropped {
            let mut verdict = vec![OF_TC];
            verdict.extend(SHOT.to_le_bytes());
            packet.option(VERDICT, &verdict);
        }
        packet.write(&mut self.out)
    }

    pub(super) fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }

    /// Ends it.
    pub(super) fn end(mut self, statistics: [Statistics; 2]) -> io::Result<()> {
        for (interface, of) in (0..).zip(statistics) {
            let mut block = Block::new(STATISTICS);
            block.word(interface);
            block.time(of.end);
            let halves = |time: u64| time.rotate_left(32).to_le_bytes();
            block.option(START, &halves(of.start));
            block.option(END, &halves(of.end));
            block.option(RECEIVED, &of.received.to_le_bytes());
            block.option(DROPPED, &of.dropped.to_le_bytes());
            block.write(&mut self.out)?;
        }
        self.flush()
    }
}

#[cfg(test)]
mod tests {
    use perturb_common::abi::Direction;

    use super::{File, Frame, Interface, Statistics};

    /// Blocks say their length at both ends, and lie on words: whatever reads the file finds its way by that.
    #[test]
    fn blocks_follow_one_another() {
        let mut bytes = Vec::new();
        let interface = |name| Interface {
            name,
            description: "",
        };
        let mut file = File::begin(
            &mut bytes,
            "é",
            64,
            [interface("eth0 egress"), interface("eth0 in")],
        )
        .unwrap();
        for length in [0, 1, 14, 63] {
            file.frame(&Frame {
                direction: Direction::Ingress,
                time: 0x0102_0304_0506_0708,
                bytes: &vec![7; length],
                length: 2000,
                comment: &"x".repeat(length),
                id: Some(length as u64),
                dropped: length == 1,
            })
            .unwrap();
        }
        file.end([Statistics::default(); 2]).unwrap();
        let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
        let (mut at, mut kinds) = (0, Vec::new());
        while at < bytes.len() {
            let length = word(at + 4) as usize;
            assert_eq!((length % 4, word(at + length - 4) as usize), (0, length));
            kinds.push(word(at));
            at += length;
        }
        assert_eq!(kinds, [0x0a0d_0d0a, 1, 1, 6, 6, 6, 6, 5, 5]);
    }

    /// As long as a comment may be, and not through the middle of a letter.
    #[test]
    fn a_comment_is_cut() {
        let mut bytes = Vec::new();
        let interface = || Interface {
            name: "",
            description: "",
        };
        let comment = "é".repeat(40_000);
        File::begin(&mut bytes, &comment, 64, [interface(), interface()]).unwrap();
        let length = u16::from_le_bytes(bytes[26..28].try_into().unwrap());
        assert_eq!((u16::from_le_bytes([bytes[24], bytes[25]]), length), (1, 65_534));
        assert!(std::str::from_utf8(&bytes[28..28 + usize::from(length)]).is_ok());
    }
}
