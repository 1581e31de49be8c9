//! Timelines of random steps.

use perturb_profile::*;
use proptest::collection::vec;
use proptest::option::of;
use proptest::prelude::*;

use super::{duration, rate, share};

fn given<Q: Copy + std::fmt::Debug + 'static>(value: BoxedStrategy<Q>) -> BoxedStrategy<Given<Q>> {
    let shape = prop_oneof![
        Just(Shape::Uniform),
        Just(Shape::Normal),
        Just(Shape::Pareto),
        Just(Shape::ParetoNormal),
        Just(Shape::Exponential),
    ];
    let random = (shape, value.clone(), value.clone()).prop_map(|(shape, mean, scale)| {
        let scale = if shape == Shape::Exponential { mean } else { scale };
        Given::Random(Random { shape, mean, scale })
    });
    prop_oneof![3 => value.prop_map(Given::Fixed), 1 => random].boxed()
}

fn change() -> BoxedStrategy<Change> {
    let volume = prop_oneof![
        (1514..=1_000_000u64).prop_map(|bytes| Volume::Bytes(Size::from_bytes(bytes))),
        (1..=100_000_000u64).prop_map(|nanos| Volume::Delay(Duration::from_nanos(nanos))),
    ];
    let scale = (1..=1_000_000u64).prop_map(Duration::from_nanos);
    (
        given(duration(1_000_000_000)),
        (of(given(duration(1_000_000))), of(given(rate()))),
        of(volume),
        (of(share()), of(scale)),
    )
        .prop_map(|(latency, (gap, bandwidth), buffer, (loss, jitter))| Change {
            latency: Some(latency),
            gap,
            bandwidth,
            buffer,
            loss,
            jitter,
            ..Change::default()
        })
        .boxed()
}

/// A server that changes has no law, and none whose rate may change has a threshold in bytes.
pub(super) fn take_laws(timeline: &Timeline, servers: &mut [(Name, Server)]) {
    if *timeline != Timeline::default() {
        let rate = timeline.steps.iter().any(|step| step.change.bandwidth.is_some());
        for (_, server) in servers {
            server.queue = Queue::Tail;
            if rate {
                server.ecn = server.ecn.filter(|ecn| !matches!(ecn, Volume::Bytes(_)));
            }
        }
    }
}

/// A step of each server, at times that fit each other.
pub(super) fn timeline(servers: usize) -> BoxedStrategy<Timeline> {
    let period = || (1_000..=1_000_000_000u64).prop_map(Duration::from_nanos).boxed();
    let down = prop_oneof![Just(Down::Drop), Just(Down::Hold)];
    let when = (
        (0..1_000_000_000_000u64).prop_map(Duration::from_nanos),
        of((given(period()), 1..100u64)),
        of(period()),
        of((given(period()), given(period()))),
    );
    let step = (when, of(down), change()).prop_map(|((at, every, lasts, flap), down, values)| {
        let flap = flap.map(|(up, down)| Flap { up, down });
        let (every, times) = match (&flap, every) {
            (Some(_), _) => (None, Some(7)),
            (None, Some((Given::Fixed(every), times))) => {
                // No longer than until it comes again.
                let every = every.max(lasts.unwrap_or_default());
                (Some(Given::Fixed(every)), Some(times))
            }
            (None, every) => (every.map(|(every, _)| every), every.map(|(_, times)| times)),
        };
        let dead = down.filter(|_| flap.is_some() || lasts.is_some());
        Step {
            at,
            every,
            times,
            lasts: lasts.filter(|_| flap.is_none()),
            over: Duration::ZERO,
            flap,
            subject: Subject::Servers(Vec::new()),
            change: match dead {
                Some(_) => Change {
                    down: dead,
                    ..Change::default()
                },
                None => values,
            },
        }
    });
    let start = prop_oneof![
        Just(Start::Apply),
        Just(Start::FirstPacket),
        (0..4_000_000_000_000_000_000u64).prop_map(Start::At)
    ];
    (start, vec(step, servers))
        .prop_map(|(start, mut steps)| {
            for (index, step) in steps.iter_mut().enumerate() {
                step.subject = Subject::Servers(ServerId::new(index).into_iter().collect());
            }
            Timeline {
                start,
                steps,
                ..Timeline::default()
            }
        })
        .boxed()
}
