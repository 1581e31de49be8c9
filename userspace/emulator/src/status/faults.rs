//! Why a result is not to be trusted: what an emulation did to packets that no profile asked for. Every command that
//! measures asks here, at its end.

use std::fmt;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::Report;
use crate::conduct::Pacer;

/// Where packets were lost, or treated otherwise than the profile says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Place {
    /// Nowhere that anybody counts: the balance does not come out.
    Unaccounted,
    /// At a server, beyond the horizon.
    Horizon,
    /// On the way into the hold device.
    HoldFull,
    /// The same, for want of a slot.
    NoSlot,
    /// On the way out of the hold device.
    SlotReused,
    /// In the pacers user and switch.
    Pacer,
    /// In the hold device.
    HoldDevice,
    /// In the splitter.
    Splitter,
    /// On the way into the switch.
    Unread,
    /// Past a server, as if it were not there: what was busy left no room for a further instance.
    NoInstance,
    /// Past a server that the tables do not have.
    Inconsistent,
    /// Past the whole emulation.
    LeaseExpired,
    /// In a tunnel to a host on another machine.
    Tunnel,
    /// Nowhere; they left late, and their network has hosts on other machines.
    Late,
    /// The emulation ended while something was measured under it; no packets are counted.
    Ended,
}

/// So many packets in one place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Fault {
    /// Where.
    pub place: Place,
    /// How many.
    pub packets: u64,
}

impl Fault {
    /// The emulation, or a part of it on another machine, ended too early.
    pub const ENDED: Self = Self {
        place: Place::Ended,
        packets: 0,
    };
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self.place {
            Place::Unaccounted => {
                "packets were captured and came out nowhere, or came out twice, and no counter says why; look for drops on \
                 the devices whose names begin with `pt` (`ip -s -s link`)"
            }
            Place::Horizon => {
                "packets would have been held beyond the horizon, and were dropped; raise `horizon`, or give servers a \
                 `buffer`"
            }
            Place::HoldFull => {
                "packets could not be copied or changed, and were dropped; the kernel lacks memory"
            }
            Place::NoSlot => {
                "packets were dropped because too many were held that need a slot; give servers a `buffer`, or shorten \
                 delays"
            }
            Place::SlotReused => {
                "packets came out of the hold device more than 2 s late, and were dropped; leave the machine a processor"
            }
            Place::Pacer => {
                "packets were dropped because the pacer held all that `limits.held` allows, or could not pass them on; raise \
                 it, or give servers a `buffer`"
            }
            Place::HoldDevice => {
                "packets were dropped by a hold device (`pthold…`), whose queue or whose processor's backlog was full; \
                 raise `net.core.netdev_max_backlog`, or leave the machine a processor"
            }
            Place::Splitter => {
                "packets were dropped by a splitter (`ptsplit…`), because a processor's backlog was full; raise \
                 `net.core.netdev_max_backlog`, or leave the machine a processor"
            }
            Place::Unread => {
                "packets were sent faster than the switch reads them, and were dropped before they came to the emulation; \
                 send less, or leave the machine a processor"
            }
            Place::NoInstance => {
                "packets passed a server as if it were not there: more flows or hosts were busy at once than \
                 `limits.flows` has room for; raise it"
            }
            Place::Inconsistent => {
                "packets met tables that contradict each other, and passed; report this as a bug of perturb"
            }
            Place::LeaseExpired => {
                "packets passed untouched because the lease had run out; leave the machine a processor, or choose a longer \
                 `--lease`"
            }
            Place::Tunnel => {
                "packets were lost between this machine and others, or came twice; look for drops at the interfaces of all of them \
                 (`ip -s -s link`), leave them processors, or raise their `net.core.netdev_max_backlog`"
            }
            Place::Late => {
                "packets, or more, left more than 5 ms late: this machine is too slow a core for so many; have hosts elsewhere, \
                 or a slower network"
            }
            Place::Ended => {
                return f.write_str(
                    "the emulation ended while this was measured; measure again under one that lasts",
                );
            }
        };
        write!(f, "{} {what}", self.packets)
    }
}

impl Place {
    /// Whether packets are lost there, and do not pass.
    fn loses(self) -> bool {
        match self {
            Self::Unaccounted
            | Self::Horizon
            | Self::HoldFull
            | Self::NoSlot
            | Self::SlotReused
            | Self::Pacer
            | Self::HoldDevice
            | Self::Splitter
            | Self::Unread
            | Self::Tunnel => true,
            Self::NoInstance | Self::Inconsistent | Self::LeaseExpired | Self::Late | Self::Ended => false,
        }
    }
}

impl Report {
    /// All of them. Only at rest do packets that are between two devices count for nothing.
    #[must_use]
    pub fn faults(&self) -> Vec<Fault> {
        let places = self.places().into_iter();
        let unaccounted = (Place::Unaccounted, self.balance.unaccounted.unsigned_abs());
        faults([unaccounted].into_iter().chain(places))
    }

    /// Packets that are lost by all of them together.
    #[must_use]
    pub fn lost(&self) -> u64 {
        let twice = (self.balance.unaccounted < 0).then_some(Place::Unaccounted);
        let mut faults = self.faults();
        faults.retain(|fault| Some(fault.place) != twice);
        lost(&faults)
    }

    /// Those that have come since an earlier report of the same emulation, without what is unaccounted for.
    #[must_use]
    pub(super) fn faults_since(&self, earlier: &Self) -> Vec<Fault> {
        let pairs = self.places().into_iter().zip(earlier.places());
        faults(pairs.map(|((place, now), (_, before))| (place, now.saturating_sub(before))))
    }

    /// What only grows.
    fn places(&self) -> [(Place, u64); 10] {
        let unintended = &self.unintended;
        // A switch has no splitter that could drop anything: see `SwitchVitals::publish`.
        let splitter = if self.pacer == Pacer::Switch.name() {
            Place::Unread
        } else {
            Place::Splitter
        };
        [
            (Place::Horizon, unintended.horizon),
            (Place::HoldFull, unintended.hold_full),
            (Place::NoSlot, unintended.no_slot),
            (Place::SlotReused, unintended.slot_reused),
            (Place::Pacer, unintended.pacer),
            (Place::HoldDevice, unintended.hold_device),
            (splitter, unintended.splitter),
            (Place::NoInstance, unintended.no_instance),
            (Place::Inconsistent, self.events.inconsistent),
            (Place::LeaseExpired, self.events.lease_expired),
        ]
    }
}

fn faults(places: impl Iterator<Item = (Place, u64)>) -> Vec<Fault> {
    places
        .filter(|(_, packets)| *packets > 0)
        .map(|(place, packets)| Fault { place, packets })
        .collect()
}

/// Packets that are lost by all of them together: others passed.
#[must_use]
pub fn lost(faults: &[Fault]) -> u64 {
    let losses = faults.iter().filter(|fault| fault.place.loses());
    losses.map(|fault| fault.packets).sum()
}

/// Warns that a result is not to be trusted, and says why.
pub fn warn(faults: &[Fault]) {
    for fault in faults {
        log::warn!("{fault}; no profile asks for this, so do not trust the result");
    }
}

/// A result with what speaks against it, as one JSON object.
#[derive(Clone, Debug, Serialize)]
pub struct Checked<T> {
    /// What was measured.
    #[serde(flatten)]
    pub result: T,
    /// Empty: nothing speaks against it. Absent: this user may not see the emulations of this machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub faults: Option<Vec<Fault>>,
}

#[cfg(test)]
mod tests {
    use perturb_common::abi::Event;
    use serde_json::{Value, json};

    use super::{Fault, Place};
    use crate::status::{
        Report,
        counts::tests::{ALL, none, only},
        read::tests::report,
    };

    fn places(report: &Report) -> Vec<Value> {
        let faults = report.faults().into_iter();
        faults.map(|fault| json!(fault.place)).collect()
    }

    /// What is dropped unasked is a fault by its own name, and so is what passes a server; nothing that a profile asks
    /// for is.
    #[test]
    fn faults_are_what_no_profile_asks_for() {
        assert_eq!(report(&none()).faults(), []);
        for event in ALL {
            let mut counts = only(event);
            // Nothing is missing: only what the event itself says counts.
            let missing = counts.balance().unaccounted;
            let other = if missing < 0 {
                Event::Captured
            } else {
                Event::Released
            };
            counts.events[other as usize] += missing.unsigned_abs();
            let found = places(&report(&counts));
            let expected: &[&str] = match event {
                Event::Horizon => &["horizon"],
                Event::HoldFull => &["hold_full"],
                Event::NoSlot => &["no_slot"],
                Event::SlotReused => &["slot_reused"],
                Event::MemoryLimit => &["pacer"],
                Event::NoInstance => &["no_instance"],
                Event::Inconsistent => &["inconsistent"],
                Event::LeaseExpired => &["lease_expired"],
                _ => &[],
            };
            assert_eq!(found, expected, "{event:?}");
            let passes = matches!(
                event,
                Event::NoInstance | Event::Inconsistent | Event::LeaseExpired
            );
            let lost = if expected.is_empty() || passes { 0 } else { 100 };
            assert_eq!(report(&counts).lost(), lost, "{event:?}");
        }
    }

    #[test]
    fn what_is_unaccounted_for_is_a_fault_either_way() {
        for event in [Event::Captured, Event::Released] {
            let faults = report(&only(event)).faults();
            let expected = Fault {
                place: Place::Unaccounted,
                packets: 100,
            };
            assert_eq!(faults, [expected], "{event:?}");
        }
        assert_eq!(report(&only(Event::Captured)).lost(), 100);
        assert_eq!(report(&only(Event::Released)).lost(), 0, "they came out twice");
    }

    #[test]
    fn only_what_has_come_since_counts() {
        let (before, mut counts) = (report(&only(Event::Horizon)), only(Event::Horizon));
        assert_eq!(report(&counts).faults_since(&before), []);
        counts.events[Event::Horizon as usize] += 3;
        let faults = report(&counts).faults_since(&before);
        assert_eq!(
            serde_json::to_string(&faults).unwrap(),
            r#"[{"place":"horizon","packets":3}]"#
        );
    }

    #[test]
    fn a_fault_says_how_many_and_what_to_do() {
        let fault = Fault {
            place: Place::Pacer,
            packets: 7,
        };
        let text = fault.to_string();
        assert!(
            text.starts_with("7 packets") && text.contains("`limits.held`"),
            "{text}"
        );
    }
}
