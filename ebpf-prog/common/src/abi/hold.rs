//! What travels with a packet while it is held.

use crate::{priorities::LABELS, slots::Owner};

/// Where a packet's fold stands, carried in `skb->tc_index` from the hold device to the interface.
///
/// ```text
/// bits 15..7  magic
/// bit  6      waits
/// bit  5      direction
/// bits 4..0   next position on the path; 31: done, deliver
/// ```
///
/// On perturb's own devices, where few others' packets come, the magic carries more: bits 10..7 the label of the packet's priority
/// ([`priorities`]), bits 13..11 the epoch of its path. Only bits 15..14 then tell it from others.
///
/// [`priorities`]: crate::priorities
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tag {
    /// Which way it goes.
    pub direction: u32,
    /// Index of the next server on its path, or [`Tag::DELIVER`].
    pub position: u32,
    /// Whether it waits for its departure: how late it leaves is then how late the pacer's timer is ([`Lead`]). On the way
    /// through the splitter, where nothing waits: whether its hash carries a cgroup ([`carry_cgroup`]).
    ///
    /// [`Lead`]: crate::lead::Lead
    pub waits: bool,
    /// Epoch of the paths ([`Settings::epoch`](super::Settings::epoch)) of which `position` is an index, modulo
    /// [`Tag::EPOCHS`]; 0 of a packet on its interface.
    pub epoch: u32,
}

impl Tag {
    /// The fold is complete.
    pub const DELIVER: u32 = 31;
    const MAGIC: u32 = 0x169;
    const LABEL: u32 = 7;
    const LABEL_MASK: u32 = LABELS - 1;
    /// How many epochs a tag tells apart, a power of two: a packet that is held while the paths change so often is taken for one
    /// of the last.
    pub const EPOCHS: u32 = 8;
    const EPOCH: u32 = Self::LABEL + LABELS.trailing_zeros();
    const EPOCH_MASK: u32 = Self::EPOCHS - 1;

    /// What a tag says of an epoch.
    #[inline(always)]
    #[must_use]
    pub const fn epoch(epoch: u32) -> u32 {
        epoch & Self::EPOCH_MASK
    }

    /// As a `tc_index`, without the epoch.
    #[inline(always)]
    #[must_use]
    pub const fn encode(self) -> u32 {
        (Self::MAGIC << 7) | ((self.waits as u32) << 6) | ((self.direction & 1) << 5) | (self.position & 31)
    }

    /// From a `tc_index`; `None` if it is not ours.
    #[inline(always)]
    #[must_use]
    pub const fn decode(tc_index: u32) -> Option<Self> {
        if tc_index >> 7 != Self::MAGIC {
            return None;
        }
        Some(Self {
            direction: (tc_index >> 5) & 1,
            position: tc_index & 31,
            waits: (tc_index >> 6) & 1 != 0,
            epoch: 0,
        })
    }

    /// As the `tc_index` of a packet on perturb's own devices.
    #[inline(always)]
    #[must_use]
    pub const fn encode_with(self, label: u32) -> u32 {
        let epoch = self.epoch & Self::EPOCH_MASK;
        self.encode() ^ ((label & Self::LABEL_MASK) << Self::LABEL) ^ (epoch << Self::EPOCH)
    }

    /// Tag and label of a `tc_index` on perturb's own devices; `None` if it is not ours.
    #[inline(always)]
    #[must_use]
    pub const fn decode_with(tc_index: u32) -> Option<(Self, u32)> {
        let own = tc_index ^ (Self::MAGIC << Self::LABEL);
        let label = (own >> Self::LABEL) & Self::LABEL_MASK;
        let epoch = (own >> Self::EPOCH) & Self::EPOCH_MASK;
        match Self::decode(tc_index ^ (label << Self::LABEL) ^ (epoch << Self::EPOCH)) {
            Some(tag) => Some((Self { epoch, ..tag }, label)),
            None => None,
        }
    }
}

const _: () = assert!(Tag::EPOCHS.is_power_of_two() && Tag::EPOCH + Tag::EPOCHS.trailing_zeros() <= 14);

/// Bits of a hash that carry the number of a cgroup.
const CGROUP: u32 = super::MAX_CGROUPS;
const _: () = assert!((CGROUP + 1).is_power_of_two());

/// A packet's hash (`skb->hash`) that carries the number of its sender's cgroup where the packet has no socket any more: on
/// perturb's own devices, and on the parts of a super-packet, which have it from the whole. The upper bits, by which a queue and a
/// processor are chosen (`reciprocal_scale`), stay; sch_fq takes all of it for the flow, of which a cgroup is a part.
#[inline(always)]
#[must_use]
pub const fn carry_cgroup(hash: u32, cgroup: u16) -> u32 {
    let upper = hash & !CGROUP;
    // 0 would be no hash.
    (if upper == 0 { CGROUP + 1 } else { upper }) | (cgroup as u32 & CGROUP)
}

/// The number that a hash carries.
#[inline(always)]
#[must_use]
pub const fn carried_cgroup(hash: u32) -> u16 {
    (hash & CGROUP) as u16
}

/// The hold device is a veth pair with sch_fq: the kernel keeps the time.
pub const PACER_FQ: u32 = 0;
/// The hold device is a TAP that a thread of the controller reads.
pub const PACER_USER: u32 = 1;

/// Slots for what a held packet cannot carry; a power of two.
pub const SLOTS: u32 = 1 << 18;

/// What a held packet cannot carry itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Slot {
    /// Whose it is; the departure in it is what a packet that is not IP waits for (fq pacer).
    pub owner: Owner,
    /// fwmark (user pacer: a TAP loses it, and what follows).
    pub mark: u32,
    /// `skb->priority`.
    pub priority: u32,
    /// Destination and source MAC addresses (user pacer: the ticket lies in their place).
    pub mac: [u8; 12],
    /// [`Tag::epoch`] (user pacer).
    pub epoch: u16,
    /// Number of the sender's cgroup (user pacer).
    pub cgroup: u16,
}

/// The 12 bytes in place of the MAC addresses while a packet is in the TAP: when it leaves and
/// which way it goes on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C, packed)]
pub struct Ticket {
    /// CLOCK_MONOTONIC ns of the departure.
    pub departure: u64,
    /// Bits 0..18: index of the [`Slot`]; bits 18..25: the lowest bits of [`Tag::encode`]; bits 25..32:
    /// [`Ticket::MAGIC`].
    pub token: u32,
}

impl Ticket {
    /// Tells our tickets from a stranger's MAC addresses.
    pub const MAGIC: u32 = 0x5b;
    const STATE: u32 = 18;
    const STATE_MASK: u32 = 127;

    /// A ticket; the tag's epoch has no room in it and waits in the slot.
    #[inline(always)]
    #[must_use]
    pub const fn new(departure: u64, slot: u32, tag: Tag) -> Self {
        let token =
            (slot & (SLOTS - 1)) | ((tag.encode() & Self::STATE_MASK) << Self::STATE) | (Self::MAGIC << 25);
        Self { departure, token }
    }

    /// Slot and tag; `None` if it is no ticket.
    #[inline(always)]
    #[must_use]
    pub const fn open(self) -> Option<(u32, Tag)> {
        let token = self.token;
        if token >> 25 != Self::MAGIC {
            return None;
        }
        match Tag::decode((Tag::MAGIC << 7) | ((token >> Self::STATE) & Self::STATE_MASK)) {
            Some(tag) => Some((token & (SLOTS - 1), tag)),
            None => None,
        }
    }
}
