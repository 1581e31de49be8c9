//! Packets that an operation takes: o and g are paid for each of them.
//!
//! Model: the counters of the emulation between the hosts, looked at while the load runs, from its first replies on; what
//! crossed since then, both ways, over what was answered since then. Acknowledgments, fragments and what was sent again
//! are packets, too. What is lacking: the packets of the calls that are under way at either end.

use std::{
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use perturb_emulator::status;
use perturb_workloads::nfs::load::Progress;

/// How often the counters are looked at.
const PERIOD: Duration = Duration::from_millis(400);

/// What has been seen of a load.
#[derive(Default)]
pub(super) struct Packets(Mutex<Seen>);

#[derive(Default)]
struct Seen {
    looked: Option<Instant>,
    first: Option<Look>,
    last: Option<Look>,
}

/// Packets and answers until then.
#[derive(Clone, Copy)]
struct Look {
    packets: u64,
    calls: u64,
}

impl Packets {
    /// Looks at the counters, if it is time and the load runs.
    pub(super) fn look(&self, progress: Progress) {
        let Progress::Running { answered, failed, .. } = progress else {
            return;
        };
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if answered == 0 || seen.looked.is_some_and(|looked| looked.elapsed() < PERIOD) {
            return;
        }
        seen.looked = Some(Instant::now());
        // Without the counters the figure is absent; the load is as good.
        if let Ok(Some(packets)) = status::wire_packets() {
            seen.add(Look {
                packets,
                calls: answered + failed,
            });
        }
    }

    /// Packets for each call.
    pub(super) fn per_call(self) -> Option<f64> {
        self.0
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner)
            .per_call()
    }
}

impl Seen {
    fn add(&mut self, look: Look) {
        self.first.get_or_insert(look);
        self.last = Some(look);
    }

    fn per_call(&self) -> Option<f64> {
        let (first, last) = (self.first?, self.last?);
        let calls = last.calls.checked_sub(first.calls).filter(|&calls| calls > 0)?;
        // An emulation that touches no packet counts none.
        let packets = last
            .packets
            .checked_sub(first.packets)
            .filter(|&packets| packets > 0)?;
        Some(packets as f64 / calls as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_are_counted_between_two_looks() {
        let mut seen = Seen::default();
        assert_eq!(seen.per_call(), None);
        // The data set took packets, too.
        for (packets, calls) in [(5000, 100), (5240, 200), (7400, 1100)] {
            seen.add(Look { packets, calls });
        }
        assert_eq!(seen.per_call(), Some(2.4));
        let mut untouched = Seen::default();
        for calls in [100, 200] {
            untouched.add(Look { packets: 0, calls });
        }
        assert_eq!(untouched.per_call(), None);
    }
}
