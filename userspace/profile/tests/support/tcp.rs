//! TCP settings of private hosts.

use perturb_profile::{Duration, Size, Tcp, Window};
use proptest::{option::of, prelude::*};

use super::name;

pub(super) fn tcp() -> BoxedStrategy<Tcp> {
    let window = || {
        (4096..=1u64 << 30, 4096..=1u64 << 30, 4096..=1u64 << 30).prop_map(|(a, b, c)| {
            let mut sizes = [a, b, c];
            sizes.sort_unstable();
            let [min, initial, max] = sizes.map(Size::from_bytes);
            Window { min, initial, max }
        })
    };
    let flags = || (of(any::<bool>()), of(any::<bool>()), of(any::<bool>()));
    let time = |least| of((least..=120_000_000_000u64).prop_map(Duration::from_nanos));
    let numbers = (of(0..=4u8), of(0..=7u8), time(1_000), time(1_000_000_000));
    (
        of(name()),
        flags(),
        flags(),
        numbers,
        (of(window()), of(window()), of(any::<bool>())),
    )
        .prop_map(|(congestion_control, flags, timers, numbers, windows)| Tcp {
            congestion_control,
            sack: flags.0,
            early_retrans: numbers.0,
            recovery: numbers.1,
            rto_min: numbers.2,
            rto_max: numbers.3,
            thin_linear_timeouts: timers.0,
            slow_start_after_idle: timers.1,
            ecn: windows.2,
            delayed_acks: timers.2,
            receive_buffer: windows.0,
            send_buffer: windows.1,
            offloads: flags.1,
            no_metrics_save: flags.2,
        })
        .boxed()
}
