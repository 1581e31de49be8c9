//! What the programs, the pacer and the devices have counted, as the report says it: every counter has a place in it.

use perturb_common::abi::{EVENTS, Event, PACER_STATS_LEN, PacerStat, ThreadStat, thread_stat};

use super::{Balance, Drops, Events, Held, PacerThread, Unintended};

/// The counters.
pub(super) struct Counts {
    /// By [`Event`], summed over the processors.
    pub(super) events: [u64; EVENTS as usize],
    /// By [`PacerStat`] and [`thread_stat`].
    pub(super) figures: [u64; PACER_STATS_LEN as usize],
}

impl Counts {
    fn event(&self, event: Event) -> u64 {
        self.events[event as usize]
    }

    fn stat(&self, stat: PacerStat) -> u64 {
        self.figures[stat as usize]
    }

    pub(super) fn drops(&self) -> Drops {
        Drops {
            tail_drop: self.event(Event::TailDrop),
            packet_limit: self.event(Event::PacketLimit),
            loss: self.event(Event::Loss),
            burst_loss: self.event(Event::BurstLoss),
            nth_loss: self.event(Event::NthLoss),
            collided: self.event(Event::Collided),
            down: self.event(Event::Down),
            early_drop: self.event(Event::EarlyDrop),
        }
    }

    pub(super) fn unintended(&self) -> Unintended {
        Unintended {
            horizon: self.event(Event::Horizon),
            hold_full: self.event(Event::HoldFull),
            no_slot: self.event(Event::NoSlot),
            slot_reused: self.event(Event::SlotReused),
            pacer: self.stat(PacerStat::Dropped) + self.event(Event::MemoryLimit),
            hold_device: self.stat(PacerStat::HoldDrops),
            splitter: self.stat(PacerStat::SplitterDrops),
            no_instance: self.event(Event::NoInstance),
        }
    }

    pub(super) fn events(&self) -> Events {
        Events {
            unmatched: self.event(Event::Unmatched),
            lease_expired: self.event(Event::LeaseExpired),
            paused: self.event(Event::Paused),
            malformed: self.event(Event::Malformed),
            fragment_unknown: self.event(Event::FragmentUnknown),
            contention: self.event(Event::Contention),
            marked: self.event(Event::Marked),
            not_ecn_capable: self.event(Event::NotEcnCapable),
            duplicated: self.event(Event::Duplicated),
            corrupted: self.event(Event::Corrupted),
            split: self.event(Event::Split),
            released: self.event(Event::Released),
            foreign: self.event(Event::Foreign),
            inconsistent: self.event(Event::Inconsistent),
            outdated: self.event(Event::Outdated),
            unlogged: self.event(Event::Unlogged),
        }
    }

    pub(super) fn balance(&self) -> Balance {
        let unintended = self.unintended();
        let mut balance = Balance {
            // What a splitter drops never came to where packets are counted.
            captured: self.event(Event::Captured) + unintended.splitter,
            duplicated: self.event(Event::Duplicated),
            released: self.event(Event::Released),
            held: self.stat(PacerStat::HeldPackets),
            held_bytes: self.stat(PacerStat::HeldBytes),
            dropped: self.drops().total(),
            unintended: unintended.dropped(),
            unaccounted: 0,
            interface_drops: self.stat(PacerStat::InterfaceDrops),
        };
        let entered = balance.captured + balance.duplicated;
        let left = balance.released + balance.held + balance.dropped + balance.unintended;
        balance.unaccounted = entered.cast_signed().wrapping_sub(left.cast_signed());
        balance
    }

    /// The user pacer's store.
    pub(super) fn held(&self) -> Held {
        let thread = |number| {
            let figure = |stat| self.figures[thread_stat(number, stat) as usize];
            PacerThread {
                released: figure(ThreadStat::Released),
                busy: figure(ThreadStat::Busy),
                stalls: figure(ThreadStat::Stalls),
                stalled_ms: figure(ThreadStat::StalledNanos) as f64 / 1e6,
                longest_stall_ms: figure(ThreadStat::LongestStall) as f64 / 1e6,
            }
        };
        Held {
            packets: self.stat(PacerStat::HeldPackets),
            bytes: self.stat(PacerStat::HeldBytes),
            real_time: self.stat(PacerStat::RealTime) != 0,
            busy: self.stat(PacerStat::Busy),
            stalls: self.stat(PacerStat::Stalls),
            stalled_ms: self.stat(PacerStat::StalledNanos) as f64 / 1e6,
            longest_stall_ms: self.stat(PacerStat::LongestStall) as f64 / 1e6,
            threads: (0..self.stat(PacerStat::Threads) as u32).map(thread).collect(),
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use perturb_common::abi::{EVENTS, Event, PACER_STATS_LEN, PacerStat};
    use serde_json::{Value, json};

    use super::Counts;

    /// How many packets of a balance an event stands for, on its left side less on its right one.
    fn sides(event: Event) -> i64 {
        match event {
            Event::Captured | Event::Duplicated => 1,
            Event::Released
            | Event::TailDrop
            | Event::PacketLimit
            | Event::Loss
            | Event::BurstLoss
            | Event::NthLoss
            | Event::Collided
            | Event::Down
            | Event::EarlyDrop
            | Event::Horizon
            | Event::HoldFull
            | Event::NoSlot
            | Event::SlotReused
            | Event::MemoryLimit => -1,
            // Never captured, or still on their way.
            Event::Unmatched
            | Event::LeaseExpired
            | Event::Paused
            | Event::Malformed
            | Event::FragmentUnknown
            | Event::Contention
            | Event::Marked
            | Event::NotEcnCapable
            | Event::Corrupted
            | Event::Split
            | Event::Foreign
            | Event::NoInstance
            | Event::Inconsistent
            | Event::Outdated
            | Event::Unlogged => 0,
        }
    }

    /// All of them: [`sides`] does not compile with one more, nor this with one less.
    pub(in crate::status) const ALL: [Event; EVENTS as usize] = [
        Event::Unmatched,
        Event::LeaseExpired,
        Event::Malformed,
        Event::FragmentUnknown,
        Event::TailDrop,
        Event::PacketLimit,
        Event::Loss,
        Event::BurstLoss,
        Event::NthLoss,
        Event::Horizon,
        Event::HoldFull,
        Event::Contention,
        Event::Marked,
        Event::NotEcnCapable,
        Event::Duplicated,
        Event::Corrupted,
        Event::Split,
        Event::Released,
        Event::Foreign,
        Event::NoInstance,
        Event::Inconsistent,
        Event::Unlogged,
        Event::Collided,
        Event::NoSlot,
        Event::SlotReused,
        Event::Captured,
        Event::MemoryLimit,
        Event::Outdated,
        Event::Down,
        Event::EarlyDrop,
        Event::Paused,
    ];

    /// Nothing but a hundred of one event.
    pub(in crate::status) fn only(event: Event) -> Counts {
        let mut counts = none();
        counts.events[event as usize] = 100;
        counts
    }

    /// Nothing.
    pub(in crate::status) fn none() -> Counts {
        Counts {
            events: [0; EVENTS as usize],
            figures: [0; PACER_STATS_LEN as usize],
        }
    }

    fn written(counts: &Counts) -> Value {
        json!({
            "drops": counts.drops(),
            "unintended": counts.unintended(),
            "events": counts.events(),
            "balance": counts.balance(),
            "held": counts.held(),
        })
    }

    /// Its name is that of the event, but for what the balance names.
    #[test]
    fn no_event_of_the_abi_is_left_out_of_the_report() {
        for (number, event) in ALL.into_iter().enumerate() {
            assert_eq!(event as usize, number, "{event:?} is listed out of order");
            let mut name = String::new();
            for letter in format!("{event:?}").chars() {
                if letter.is_uppercase() && !name.is_empty() {
                    name.push('_');
                }
                name.extend(letter.to_lowercase());
            }
            if event == Event::MemoryLimit {
                // Who holds a packet, and where, does not matter to whoever reads it.
                name = "pacer".into();
            }
            let report = written(&only(event));
            let sections = ["drops", "unintended", "events", "balance"];
            let named = sections.iter().any(|section| report[section][&name] == 100);
            assert!(named, "nothing in the report is called {name}: {report}");
        }
    }

    #[test]
    fn every_event_is_on_its_side_of_the_balance() {
        for event in ALL {
            let unaccounted = only(event).balance().unaccounted;
            assert_eq!(unaccounted, 100 * sides(event), "{event:?}");
        }
    }

    /// A device's drop and what waits are on the right; what a splitter drops is on both sides.
    #[test]
    fn every_device_is_on_its_side_of_the_balance() {
        for (stat, unaccounted) in [
            (PacerStat::HeldPackets, -100),
            (PacerStat::Dropped, -100),
            (PacerStat::HoldDrops, -100),
            (PacerStat::SplitterDrops, 0),
            (PacerStat::InterfaceDrops, 0),
        ] {
            let mut counts = none();
            counts.figures[stat as usize] = 100;
            assert_eq!(counts.balance().unaccounted, unaccounted, "{stat:?}");
            assert_ne!(
                written(&counts),
                written(&none()),
                "{stat:?} is not in the report"
            );
        }
    }
}
