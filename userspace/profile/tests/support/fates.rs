//! Arbitrary jitter and losses.

use perturb_profile::*;
use proptest::collection::btree_set;
use proptest::{option::of, prelude::*};

use super::share;

fn correlation() -> BoxedStrategy<Probability> {
    (0..=999_000_000u64)
        .prop_map(Probability::from_billionths)
        .boxed()
}

pub(crate) fn correlated() -> BoxedStrategy<Correlated> {
    (share(), correlation())
        .prop_map(|(probability, correlation)| Correlated {
            probability,
            correlation,
        })
        .boxed()
}

pub(crate) fn reorder() -> BoxedStrategy<Reorder> {
    (correlated(), 1..=8191u32)
        .prop_map(|(chance, gap)| Reorder { chance, gap })
        .boxed()
}

fn distribution() -> BoxedStrategy<Distribution> {
    prop_oneof![
        Just(Distribution::Uniform),
        Just(Distribution::Normal),
        Just(Distribution::Pareto),
        Just(Distribution::ParetoNormal),
        "\\PC{1,20}".prop_map(Distribution::Table),
    ]
    .boxed()
}

pub(crate) fn framing() -> BoxedStrategy<Framing> {
    // Cells that are mostly overhead would have a few packets wait longer than the horizon allows.
    (
        0..=4096u32,
        any::<bool>(),
        prop_oneof![Just(0), 32..=4096u32],
        0..=64u32,
    )
        .prop_map(|(packet_overhead, without_ethernet, cell_size, more)| Framing {
            packet_overhead,
            without_ethernet,
            cell_size,
            cell_overhead: if cell_size == 0 { 0 } else { more },
        })
        .boxed()
}

pub(crate) fn jitter() -> BoxedStrategy<Jitter> {
    let drift = prop_oneof![
        correlation().prop_filter_map("none", |one| (one > Probability::ZERO)
            .then_some(Drift::Packets(one))),
        (1_000_000..=60_000_000_000u64).prop_map(|nanos| Drift::Time(Duration::from_nanos(nanos))),
    ];
    (distribution(), 1..=1_000_000_000u64, any::<bool>(), of(drift))
        .prop_map(|(distribution, scale, reorder, drift)| Jitter {
            drift,
            distribution,
            scale: Duration::from_nanos(scale),
            reorder,
        })
        .boxed()
}

pub(crate) fn slot() -> BoxedStrategy<Slot> {
    // A drawn slot may take five times as long, and all of a path together at most the horizon.
    let time = || (0..=1_000_000_000u64).prop_map(Duration::from_nanos);
    let between = prop_oneof![
        (time(), time()).prop_map(|(one, other)| Between::Range(one.min(other), one.max(other))),
        (distribution(), time(), time()).prop_map(|(distribution, delay, scale)| Between::Drawn {
            distribution,
            delay,
            scale,
        }),
    ];
    let bytes = of((1..=4u64 << 30).prop_map(Size::from_bytes));
    (between, of(1..=u32::MAX), bytes)
        .prop_map(|(between, packets, bytes)| Slot {
            between,
            packets,
            bytes,
        })
        .prop_filter("opens at once", |slot| {
            !matches!(
                slot.between,
                Between::Range(_, Duration::ZERO)
                    | Between::Drawn {
                        delay: Duration::ZERO,
                        scale: Duration::ZERO,
                        ..
                    }
            )
        })
        .boxed()
}

pub(crate) fn loss() -> BoxedStrategy<Loss> {
    let burst = (share(), share(), share(), share()).prop_map(|(to_bad, to_good, bad_loss, good_loss)| {
        GilbertElliott {
            to_bad,
            to_good,
            bad_loss,
            good_loss,
        }
    });
    let nth = btree_set(1..1_000_000u64, 0..5).prop_map(|set| set.into_iter().collect());
    let rest =
        |of: Probability| Probability::from_billionths(Probability::ONE.billionths() - of.billionths());
    let states =
        (share(), share(), share(), share(), share()).prop_map(move |(p13, p31, p32, p23, p14)| LossStates {
            p13: p13.min(rest(p14)),
            p31: p31.min(rest(p32)),
            p32,
            p23,
            p14,
        });
    (
        (share(), correlation()),
        (of(burst), of(states)),
        nth,
        any::<bool>(),
    )
        .prop_map(|((random, correlation), (burst, states), nth, ecn)| Loss {
            random,
            correlation,
            states: if burst.is_some() { None } else { states },
            burst,
            nth,
            ecn,
        })
        .boxed()
}
