//! What the datagrams of a remap say, and which of them have to come.

use std::collections::HashMap;

use super::{super::PatternError, Remap};

/// A datagram's meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::FromRepr)]
#[repr(u8)]
pub(super) enum Sort {
    /// A value, which asks for a reply where the style has one.
    Value = 1,
    /// A request's reply, or the news that a long message is there.
    Reply,
}

/// The beginning of a datagram: `number` counts the sender's messages, `part` those of a long one down to 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Beginning {
    pub(super) sort: Sort,
    pub(super) from: u16,
    pub(super) part: u32,
    pub(super) number: u32,
    pub(super) value: u64,
}

impl Beginning {
    pub(super) fn put(self, datagram: &mut [u8]) {
        datagram[0] = self.sort as u8;
        datagram[1..3].copy_from_slice(&self.from.to_le_bytes());
        datagram[4..8].copy_from_slice(&self.part.to_le_bytes());
        datagram[8..12].copy_from_slice(&self.number.to_le_bytes());
        datagram[12..20].copy_from_slice(&self.value.to_le_bytes());
    }

    pub(super) fn of(datagram: &[u8]) -> Option<Self> {
        let word = |at: usize| Some(u32::from_le_bytes(datagram.get(at..at + 4)?.try_into().ok()?));
        Some(Self {
            sort: Sort::from_repr(*datagram.first()?)?,
            from: u16::from_le_bytes(datagram.get(1..3)?.try_into().ok()?),
            part: word(4)?,
            number: word(8)?,
            value: u64::from_le_bytes(datagram.get(12..20)?.try_into().ok()?),
        })
    }
}

/// What has to come, and has come.
pub(super) struct Ledger {
    /// Parts that are missing, by sender and number.
    pub(super) missing: HashMap<(u16, u32), u32>,
    pub(super) values: u64,
}

impl Ledger {
    pub(super) fn of(remap: &Remap, rank: usize, size: usize) -> Self {
        let mut missing = HashMap::new();
        for from in (0..size).filter(|from| *from != rank) {
            for number in 0..remap.iterations {
                if remap.destination(from, number, size) == Some(rank) {
                    missing.insert((from as u16, number), remap.parts());
                }
            }
        }
        Self { missing, values: 0 }
    }

    /// A part that came; whether its message is whole.
    pub(super) fn came(&mut self, remap: &Remap, came: Beginning) -> Result<bool, PatternError> {
        let Beginning { from, number, .. } = came;
        let wrong = PatternError::Misplaced {
            from: from.into(),
            number,
        };
        let Some(missing) = self.missing.get_mut(&(from, number)) else {
            return Err(wrong);
        };
        // Paths are FIFO: the parts of a message come in their order. That of messages does not matter.
        if came.value != remap.value(from.into(), number) || came.part.checked_add(1) != Some(*missing) {
            return Err(wrong);
        }
        *missing -= 1;
        let whole = *missing == 0;
        if whole {
            self.missing.remove(&(from, number));
            self.values += 1;
        }
        Ok(whole)
    }
}
