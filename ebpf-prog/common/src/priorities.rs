//! What a held packet carries in place of its priority (`skb->priority`), which the hop between two interfaces clears
//! (`____dev_forward_skb`): a label of four bits.
//!
//! Model: priorities are few: the classes of a qdisc, of mqprio, of a VLAN's PCP. Each that is seen gets the next label for the life
//! of the emulation; 0 needs none. What lacks: those beyond the first [`LABELS`] - 1 are lost.

use crate::shared::Word;

/// Labels, that of priority 0 included.
pub const LABELS: u32 = 16;

/// The label of a priority; 0 if there is none left. `word` is a label's: the priority, or 0 if it has none yet.
#[inline(always)]
pub fn label<W: Word>(word: impl Fn(u32) -> Option<W>, priority: u32) -> u32 {
    let own = priority as u64;
    if own == 0 {
        return 0;
    }
    for label in 1..LABELS {
        let Some(word) = word(label) else { return 0 };
        let mut seen = word.load();
        if seen == 0 {
            // Somebody else may have taken it for another, or for the same.
            seen = match word.compare_exchange(0, own) {
                0 => own,
                other => other,
            };
        }
        if seen == own {
            return label;
        }
    }
    0
}

/// The priority of a label.
#[inline(always)]
pub fn priority<W: Word>(word: impl Fn(u32) -> Option<W>, label: u32) -> u32 {
    if label == 0 {
        return 0;
    }
    word(label).map_or(0, |word| word.load() as u32)
}

#[cfg(test)]
mod tests {
    extern crate std;

    use core::sync::atomic::AtomicU64;
    use std::{thread, vec::Vec};

    use super::{LABELS, label, priority};

    fn table() -> Vec<AtomicU64> {
        (0..LABELS).map(|_| AtomicU64::new(0)).collect()
    }

    #[test]
    fn as_many_as_there_are_labels_come_back() {
        let table = table();
        let word = |label: u32| table.get(label as usize);
        let given: Vec<u32> = (0..LABELS).map(|turn| turn * 0x1_0001).collect();
        for _ in 0..2 {
            for &own in &given {
                assert_eq!(priority(word, label(word, own)), own);
            }
        }
        // One more is lost; the others stay.
        assert_eq!(label(word, 77), 0);
        assert_eq!(priority(word, label(word, 0x1_0001)), 0x1_0001);
    }

    #[test]
    fn processors_agree_on_a_label() {
        for _ in 0..200 {
            let table = table();
            let word = |label: u32| table.get(label as usize);
            let labels: Vec<Vec<u32>> = thread::scope(|scope| {
                let turns: Vec<_> = (0..4_u32)
                    .map(|turn| {
                        scope.spawn(move || {
                            let at = |place| 1 + (place + 5 * turn) % (LABELS - 1);
                            let mut labels: Vec<(u32, u32)> = (0..LABELS - 1)
                                .map(|place| (at(place), label(word, at(place))))
                                .collect();
                            labels.sort_unstable();
                            labels.into_iter().map(|(_, label)| label).collect()
                        })
                    })
                    .collect();
                turns.into_iter().map(|turn| turn.join().unwrap()).collect()
            });
            assert!(labels.windows(2).all(|pair| pair[0] == pair[1]), "{labels:?}");
            let mut all = labels[0].clone();
            all.sort_unstable();
            assert!(all.into_iter().eq(1..LABELS));
        }
    }
}
