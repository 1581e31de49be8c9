//! Queues.

use perturb_profile::{Duration, Queue, Size, Volume};
use proptest::prelude::*;

use super::{of, share};

pub(super) fn ecn() -> impl Strategy<Value = Volume> {
    prop_oneof![
        (1..=1_000_000u64).prop_map(|bytes| Volume::Bytes(Size::from_bytes(bytes))),
        (1..=1_000_000_000u64).prop_map(|nanos| Volume::Delay(Duration::from_nanos(nanos))),
    ]
}

fn pie() -> impl Strategy<Value = Queue> {
    let times = (1_000..=1u64 << 32, 1_000_000..=1u64 << 32, 0..=1u64 << 32);
    (times, any::<[bool; 2]>(), share()).prop_map(
        |((target, t_update, max_burst), [ecn, derandomize], mark_ecnth)| Queue::Pie {
            target: Duration::from_nanos(target),
            t_update: Duration::from_nanos(t_update),
            max_burst: Duration::from_nanos(max_burst),
            ecn,
            mark_ecnth,
            derandomize,
        },
    )
}

/// For red: one that suits a bandwidth from 1 Mbit/s to 1 Gbit/s.
pub(super) fn queue() -> impl Strategy<Value = Queue> {
    let times = (1_000..=1u64 << 32, 1_000..=1u64 << 32);
    prop_oneof![
        Just(Queue::Tail),
        (ecn(), any::<bool>()).prop_map(|(threshold, l4s)| Queue::Step { threshold, l4s }),
        (times, any::<bool>(), of(ecn())).prop_map(|((target, interval), ecn, ce_threshold)| Queue::CoDel {
            target: Duration::from_nanos(target),
            interval: Duration::from_nanos(interval),
            ecn,
            ce_threshold,
        }),
        pie(),
        (
            14_000_000..100_000_000u64,
            1..1_000_000u64,
            share(),
            any::<[bool; 2]>(),
            of(200_000..=1_000_000u64)
        )
            .prop_map(|(min, more, probability, [ecn, adaptive], burst)| Queue::Red {
                min: Volume::Delay(Duration::from_nanos(min)),
                max: Volume::Delay(Duration::from_nanos(min + more)),
                probability,
                avpkt: Size::from_bytes(64 + more % 1400),
                burst,
                ecn,
                adaptive,
            }),
    ]
}
