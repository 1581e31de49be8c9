//! What a datagram of a measurement says: a header of 32 bytes, little-endian, then nothing that matters.

/// Bytes of the header, and so the smallest datagram.
pub(crate) const HEADER: usize = 32;
/// Bytes that a datagram has on the wire beside its payload: Ethernet, IPv4, UDP.
pub(crate) const WIRE_V4: usize = 14 + 20 + 8;
/// The same over IPv6.
pub(crate) const WIRE_V6: usize = 14 + 40 + 8;
const MAGIC: [u8; 4] = *b"LGGP";

/// What is to be done with a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Note when it came.
    Train,
    /// Note it, and answer at once.
    Request,
    /// The answer.
    Answer,
}

/// The header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Message {
    /// What is to be done with it.
    pub kind: Kind,
    /// In an answer: how many datagrams of the train had come before the request, 255 if more.
    pub before: u8,
    /// Payload of the answer that is asked for, bytes.
    pub answer: u16,
    /// Which train it belongs to.
    pub train: u32,
    /// Its place there, from 0.
    pub number: u32,
    /// In an answer: when the request arrived, by the answering host's clock, ns.
    pub arrival: u64,
    /// In an answer: how long it took from then on until the answer was handed to the kernel, ns.
    pub turnaround: u64,
}

impl Message {
    /// Writes it at the start of a buffer of at least [`HEADER`] bytes.
    pub(crate) fn write(&self, buffer: &mut [u8]) {
        let kind = match self.kind {
            Kind::Train => 0,
            Kind::Request => 1,
            Kind::Answer => 2,
        };
        buffer[..4].copy_from_slice(&MAGIC);
        buffer[4] = kind;
        buffer[5] = self.before;
        buffer[6..8].copy_from_slice(&self.answer.to_le_bytes());
        buffer[8..12].copy_from_slice(&self.train.to_le_bytes());
        buffer[12..16].copy_from_slice(&self.number.to_le_bytes());
        buffer[16..24].copy_from_slice(&self.arrival.to_le_bytes());
        buffer[24..32].copy_from_slice(&self.turnaround.to_le_bytes());
    }

    /// Reads it; `None` if the datagram is none of ours.
    #[must_use]
    pub(crate) fn read(datagram: &[u8]) -> Option<Self> {
        let header: &[u8; HEADER] = datagram.first_chunk()?;
        let u16_at = |at: usize| u16::from_le_bytes([header[at], header[at + 1]]);
        let u32_at = |at: usize| u32::from(u16_at(at)) | u32::from(u16_at(at + 2)) << 16;
        let u64_at = |at: usize| u64::from(u32_at(at)) | u64::from(u32_at(at + 4)) << 32;
        if header[..4] != MAGIC {
            return None;
        }
        let kind = match header[4] {
            0 => Kind::Train,
            1 => Kind::Request,
            2 => Kind::Answer,
            _ => return None,
        };
        Some(Self {
            kind,
            before: header[5],
            answer: u16_at(6),
            train: u32_at(8),
            number: u32_at(12),
            arrival: u64_at(16),
            turnaround: u64_at(24),
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_is_written_is_read(kind in 0..3, before: u8, answer: u16, train: u32, number: u32, arrival: u64, turnaround: u64) {
            let kind = [Kind::Train, Kind::Request, Kind::Answer][kind as usize];
            let message = Message { kind, before, answer, train, number, arrival, turnaround };
            let mut buffer = [0; 40];
            message.write(&mut buffer);
            prop_assert_eq!(Message::read(&buffer), Some(message));
        }

        #[test]
        fn anything_may_arrive(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
            let ours = bytes.len() >= HEADER && bytes.starts_with(b"LGGP") && bytes[4] < 3;
            prop_assert_eq!(Message::read(&bytes).is_some(), ours);
        }
    }
}
