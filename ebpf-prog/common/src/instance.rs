//! The table of instances: where the states of servers lie that have one per flow, host or interface.
//!
//! An instance is named by a word, the keyed hash ([`crate::flow::hash`]) of what its scope tells apart and of its
//! server's slot. The hash says at which place of the table it is looked for first, its home, and then in which order
//! at the others of the same memory page. A place is one cache line and holds name and state: with half of the places taken, a packet
//! of a known instance looks at 1.5 of them on average, mostly at its home alone, and touches one page of the table.
//!
//! A page gives up an instance only when all its places are taken, and then the one whose server has been free for
//! longest. It gives up none that is busy: what is forgotten of an idle one is only its index for the draws. So the
//! profile's number of instances fits, but for pages that more than 64 are asked of, two in 10^7 (`NoInstance` counts
//! their packets), and what comes beyond it takes the place of what is idle.
//!
//! Places are taken by compare-and-exchange of the name. What is lacking: two CPUs that make the same instance at the
//! same moment, while a server in the same page becomes idle, may make it twice; the second is then never found
//! again, and the queue forgets one packet.

use crate::abi::ServerState;

/// Places in a page.
pub const PAGE_PLACES: u32 = 64;
/// Bytes of a cache line, of which [`ServerState`] takes one.
const LINE: usize = 64;
const _: () = assert!(size_of::<ServerState>() == LINE && PAGE_PLACES as usize * LINE == 4096);

/// Places for so many instances: twice as many, because pages fill unevenly; one page if the profile has no server
/// that makes any.
#[must_use]
pub const fn places(instances: u32) -> u32 {
    let instances = if instances > 1 << 30 { 1 << 30 } else { instances };
    let places = (instances * 2).next_power_of_two();
    if places < PAGE_PLACES { PAGE_PLACES } else { places }
}

/// The name of the instance with this hash: never 0, which is a vacant place's.
#[inline(always)]
#[must_use]
pub const fn name(hash: u64) -> u64 {
    hash | 1 << 63
}

/// Where the instance with this name may lie: `turn` from 0 to [`PAGE_PLACES`] - 1 says where to look first, second and
/// so on. `mask` is one less than the table's places.
#[inline(always)]
#[must_use]
pub const fn place(name: u64, turn: u32, mask: u32) -> u32 {
    // Neighbours by turns: the processor fetches the other line of a pair by itself.
    (name as u32 & mask) ^ turn
}

#[cfg(test)]
mod tests {
    extern crate std;

    use std::{collections::BTreeSet, vec};

    use proptest::prelude::*;

    use super::{PAGE_PLACES, name, place, places};
    use crate::flow::{hash, tests::secret};

    proptest! {
        #[test]
        fn turns_visit_a_page_once(hash: u64, size in 6..24u32) {
            let mask = (1 << size) - 1;
            let visited: BTreeSet<u32> = (0..PAGE_PLACES).map(|turn| place(name(hash), turn, mask)).collect();
            prop_assert_eq!(visited.len() as u32, PAGE_PLACES);
            let first = visited.first().copied().unwrap_or_default();
            prop_assert!(first % PAGE_PLACES == 0 && visited.last().copied() == Some(first + PAGE_PLACES - 1));
            prop_assert!(first + PAGE_PLACES - 1 <= mask);
        }

        #[test]
        fn no_instance_is_named_like_a_vacant_place(hash: u64) {
            prop_assert_ne!(name(hash), 0);
        }
    }

    /// As many as the profile asks for fit, whatever the secret, and most are at home. (With 32 of 64
    /// places taken on average, more than 64 are asked of one page with probability 1e-7: Poisson.)
    #[test]
    fn instances_find_room_near_home() {
        let count = 131_072u32;
        let mask = places(count) - 1;
        for seed in 1..4u64 {
            let secret = secret(seed);
            let mut table = vec![0u64; mask as usize + 1];
            let mut steps = 0u64;
            for flow in 0..count {
                let key = [
                    0,
                    0x0a01_0000_ffff + u64::from(flow >> 8),
                    0,
                    0xffff,
                    u64::from(flow & 255),
                    6 << 32,
                ];
                let name = name(hash(&key, 0, |word| secret[word]));
                let turn = (0..PAGE_PLACES).find(|&turn| table[place(name, turn, mask) as usize] == 0);
                let turn = turn.unwrap_or_else(|| panic!("no room for instance {flow}, seed {seed}"));
                table[place(name, turn, mask) as usize] = name;
                steps += u64::from(turn) + 1;
            }
            assert!(
                steps < u64::from(count) * 2,
                "{steps} steps to find {count} instances"
            );
        }
    }

    /// Keys in steps fill pages as evenly as others, whatever the secret: 0.01 of these tables have a page of more than 64
    /// (binomial).
    #[test]
    fn keys_in_steps_fill_pages_evenly() {
        let count = 1024;
        let mask = places(count) - 1;
        for seed in 0..4000u64 {
            let secret = secret(seed << 32);
            let mut pages = [0u32; 32];
            for flow in 0..u64::from(count) {
                // Clients' consecutive ports.
                let key = [
                    0,
                    0x0a01_0000_ffff,
                    0,
                    0x0a02_0000_ffff,
                    (32_768 + flow) | 9 << 16,
                    6 << 32,
                ];
                let home = place(name(hash(&key, 0, |word| secret[word])), 0, mask);
                pages[(home / PAGE_PLACES) as usize] += 1;
            }
            let fullest = pages.iter().max().copied().unwrap_or_default();
            assert!(fullest <= PAGE_PLACES, "{fullest} in a page, seed {seed}");
        }
    }

    #[test]
    fn places_are_whole_pages() {
        for count in [0, 1, 63, 1024, 100_000, 4_194_304, u32::MAX] {
            assert!(places(count).is_power_of_two() && places(count) >= PAGE_PLACES);
            assert!(count > 1 << 30 || u64::from(places(count)) >= 2 * u64::from(count));
        }
    }
}
