//! A network of many hosts without a path for each pair: 1024 hosts are 10^6 pairs, but 2048 lists.
//!
//! In a bus, a star and a tree the path from host i to host j is what i crosses outward, as far up as the switch
//! that both are below, and what leads inward to j from there. With the height H of that switch, the position of the
//! highest bit in which i and j differ (hosts are counted from 0),
//!
//! ```text
//! outward(i) = own servers of i, then the edges of heights 1 to `up` above i
//! inward(j)  = the edges of heights `down` to 1 above j, then own servers of j
//! path(i, j) = outward(i) without its last up - min(H, up), inward(j) without its first down - min(H, down)
//! ```
//!
//! A tree has up = down = its height, a star 1 and 1, a bus 1 and 0. Meshes have no such form: with dimension-ordered
//! routing the links near j depend on i in more than one number.

use crate::abi::{MAX_PATH_SERVERS, PATH_PLACES, Path};

/// log2 of the most hosts of a network.
pub const HOST_BITS: u32 = 10;

/// Heights that are told apart, a power of two above [`HOST_BITS`].
const HEIGHTS: usize = 16;

/// Where the lists of a network lie, and how they join.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "alloc", derive(bytemuck::Pod, bytemuck::Zeroable))]
#[repr(C)]
pub struct Network {
    /// Index within the half of the first host's outward list; its inward list follows, then the next host's.
    pub first: u32,
    /// How many hosts; 0 for no network.
    pub hosts: u32,
    /// By height of the common switch: servers that a path leaves out at the end of the outward list.
    pub above: [u8; HEIGHTS],
    /// By height of the common switch: servers that a path leaves out at the beginning of the inward list.
    pub before: [u8; HEIGHTS],
}

impl Network {
    /// A network whose outward lists end with `up` edges and whose inward lists begin with `down` of them.
    #[must_use]
    pub fn new(first: u32, hosts: u32, up: usize, down: usize) -> Self {
        let left_out = |edges: usize| core::array::from_fn(|height| edges.saturating_sub(height) as u8);
        Self {
            first,
            hosts,
            above: left_out(up),
            before: left_out(down),
        }
    }

    /// Index of a host's outward list.
    #[inline(always)]
    #[must_use]
    pub const fn outward(&self, host: u32) -> u32 {
        self.first + 2 * host
    }

    /// Index of a host's inward list.
    #[inline(always)]
    #[must_use]
    pub const fn inward(&self, host: u32) -> u32 {
        self.first + 2 * host + 1
    }

    /// Writes the path between two hosts to `path`, from the outward list of the one and the inward list of the other.
    #[inline(always)]
    pub fn join(&self, hosts: Pair, outward: &Path, inward: &Path, path: &mut Path) {
        // No branches on the way to the lengths: each would be verified apart, with all that follows.
        let height = hosts.height() as usize & (HEIGHTS - 1);
        let skipped = u32::from(self.before[height]) & 31;
        let kept = outward.len.wrapping_sub(u32::from(self.above[height])) & 31;
        let rest = inward.len.wrapping_sub(skipped) & 31;
        let len = kept + rest;
        path.len = if len > MAX_PATH_SERVERS as u32 {
            MAX_PATH_SERVERS as u32
        } else {
            len
        };
        path.cuts = outward.cuts & ((1 << kept) - 1) | (inward.cuts >> skipped) << kept;
        path.servers = outward.servers;
        for position in 0..MAX_PATH_SERVERS {
            if position as u32 >= rest {
                break;
            }
            let place = (kept as usize + position) & (PATH_PLACES - 1);
            path.servers[place] = inward.servers[(skipped as usize + position) & (PATH_PLACES - 1)];
        }
    }
}

/// A sender and a receiver, from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pair {
    /// Who sends.
    pub from: u32,
    /// Who receives.
    pub to: u32,
}

impl Pair {
    /// The height of the lowest switch that both are below: the position of the highest bit in which they differ, from
    /// 1; at most [`HOST_BITS`].
    #[inline(always)]
    #[must_use]
    pub const fn height(self) -> u32 {
        // The bits below the highest one, set and counted: leading_zeros would expand to far more on the BPF target.
        let mut bits = (self.from ^ self.to) & ((1 << HOST_BITS) - 1);
        bits |= bits >> 1;
        bits |= bits >> 2;
        bits |= bits >> 4;
        bits |= bits >> 8;
        let pairs = bits - ((bits >> 1) & 0x5555);
        let nibbles = (pairs & 0x3333) + ((pairs >> 2) & 0x3333);
        let bytes = (nibbles + (nibbles >> 4)) & 0x0f0f;
        (bytes + (bytes >> 8)) & 0x1f
    }
}

/// A place of the cache of pairs: the pair of a flow, in a word, as in [`crate::flow`].
///
/// ```text
/// bits 63..20  fingerprint of the key and the generation
/// bits 19..10  sender
/// bits 9..0    receiver
/// ```
///
/// 0 is an empty place: nobody sends to himself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(transparent)]
pub struct PairEntry(pub u64);

impl PairEntry {
    const PAIR: u64 = (1 << (2 * HOST_BITS)) - 1;

    /// That the key with this hash goes between these two.
    #[inline(always)]
    #[must_use]
    pub const fn new(hash: u64, pair: Pair) -> Self {
        let pair = (pair.from as u64) << HOST_BITS | pair.to as u64;
        Self(hash & !Self::PAIR | pair & Self::PAIR)
    }

    /// The pair of the key with this hash; nothing if the place is empty or another's.
    #[inline(always)]
    #[must_use]
    pub const fn open(self, hash: u64) -> Option<Pair> {
        let pair = self.0 & Self::PAIR;
        if (self.0 ^ hash) & !Self::PAIR != 0 || pair == 0 {
            return None;
        }
        Some(Pair {
            from: (pair >> HOST_BITS) as u32,
            to: (pair & ((1 << HOST_BITS) - 1)) as u32,
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn pair() -> impl Strategy<Value = Pair> {
        (0..1024u32, 0..1024u32).prop_map(|(from, to)| Pair { from, to })
    }

    fn list(first: u32, len: u32, cuts: u32) -> Path {
        Path {
            len,
            cuts,
            servers: core::array::from_fn(|index| first + index as u32),
        }
    }

    proptest! {
        #[test]
        fn height_is_that_of_the_highest_bit(pair in pair()) {
            prop_assert_eq!(pair.height(), u32::BITS - (pair.from ^ pair.to).leading_zeros());
        }

        #[test]
        fn entries_say_what_was_noted(pair in pair(), hash: u64, other: u64) {
            prop_assume!(pair.from != pair.to);
            let entry = PairEntry::new(hash, pair);
            prop_assert_eq!(entry.open(hash), Some(pair));
            prop_assert_eq!(entry.open(other).is_some(), hash >> 20 == other >> 20);
            prop_assert_eq!(PairEntry::default().open(hash), None);
        }
    }

    #[test]
    fn lists_join_at_the_common_switch() {
        // Two own servers at either end, three heights.
        let network = Network::new(0, 8, 3, 3);
        let (outward, inward) = (list(10, 5, 0b11100), list(20, 5, 0b01111));
        let mut path = Path::default();
        network.join(Pair { from: 2, to: 3 }, &outward, &inward, &mut path);
        assert_eq!((path.len, path.cuts), (6, 0b011_100));
        assert_eq!(path.servers[..6], [10, 11, 12, 22, 23, 24]);
        network.join(Pair { from: 0, to: 7 }, &outward, &inward, &mut path);
        assert_eq!((path.len, path.cuts), (10, 0b01111_11100));
        assert_eq!(path.servers[..10], [10, 11, 12, 13, 14, 20, 21, 22, 23, 24]);
        let bus = Network::new(0, 8, 1, 0);
        bus.join(
            Pair { from: 0, to: 7 },
            &list(10, 3, 0b100),
            &list(20, 2, 0b11),
            &mut path,
        );
        assert_eq!((path.len, path.cuts), (5, 0b11100));
        assert_eq!(path.servers[..5], [10, 11, 12, 20, 21]);
    }

    #[test]
    fn what_does_not_fit_is_no_path_out_of_bounds() {
        let network = Network::new(0, 2, 90, 90);
        let (outward, inward) = (list(0, u32::MAX, 0), list(0, 31, 0));
        let mut path = Path::default();
        network.join(Pair { from: 0, to: 1 }, &outward, &inward, &mut path);
        assert!(path.len as usize <= MAX_PATH_SERVERS);
    }
}
