//! Property tests of the recursion, the units and the draws.

extern crate std;

use proptest::prelude::*;

use crate::{
    abi::{BUCKETS, SLOTS, Tag, Ticket, histogram},
    departure::{Load, Outcome, Server, Service, departure},
    fate::{Chance, GilbertElliott, Purpose, draw, jitter_ticks},
    units::{GapPerByte, Instant, MonoNanos, Nanos, Ticks, saturating_mul},
};

fn any_server() -> impl Strategy<Value = Server> {
    (
        any::<u64>(),
        any::<u64>(),
        any::<u64>(),
        any::<u64>(),
        any::<u64>(),
    )
        .prop_map(|(gap, per_byte, latency, buffer, horizon)| Server {
            gap: Ticks(gap),
            per_byte: GapPerByte(per_byte),
            latency: Ticks(latency),
            buffer: Ticks(buffer),
            horizon: Ticks(horizon),
        })
}

/// A server and arrivals as they occur: microseconds to seconds, frames of up to 64 KB.
fn sane_run() -> impl Strategy<Value = (Server, std::vec::Vec<(u64, u64)>)> {
    let server =
        (0..1_000_000u64, 1..10_000_000_000u64, 0..1_000_000_000u64).prop_map(|(gap, rate, latency)| {
            Server {
                gap: Nanos(gap).ticks(),
                per_byte: GapPerByte::from_bits_per_sec(8 * rate),
                latency: Nanos(latency).ticks(),
                ..Server::IDLE
            }
        });
    (
        server,
        prop::collection::vec((0..1_000_000u64, 1..65_536u64), 1..200),
    )
}

fn served(outcome: Outcome) -> Service {
    match outcome {
        Outcome::Served(service) => service,
        other => panic!("dropped without a limit: {other:?}"),
    }
}

proptest! {
    #[test]
    fn no_input_panics_or_departs_early(
        server in any_server(), free: u64, arrival: u64, bytes: u64, segments: u64,
    ) {
        if let Outcome::Served(service) =
            departure(&server, Instant(free), Instant(arrival), Load { bytes, segments })
        {
            prop_assert!(service.free.0 >= arrival);
            prop_assert!(service.free.0 >= free);
            prop_assert!(service.next >= service.free);
        }
    }

    #[test]
    fn departures_are_fifo_and_work_is_conserved((server, arrivals) in sane_run()) {
        let (mut free, mut now, mut work, mut last) = (Instant(0), 0, 0u64, Instant(0));
        let mut idle = 0u64;
        for (wait, bytes) in arrivals {
            now += wait;
            let arrival = MonoNanos(now).instant();
            idle += arrival.since(free).0;
            let service = served(departure(&server, free, arrival, Load { bytes, segments: 1 }));
            work += server.gap.0 + server.per_byte.transmit(bytes).0;
            free = service.free;
            prop_assert!(service.next >= last);
            last = service.next;
        }
        // Busy time plus idle time is all the time there was.
        prop_assert_eq!(free.0, work + idle);
    }

    #[test]
    fn a_buffer_never_holds_more_than_it_says((server, arrivals) in sane_run(), kib in 2..256u64) {
        prop_assume!(server.per_byte.0 > 0);
        let buffer = server.per_byte.transmit(kib * 1024);
        let server = Server { buffer, gap: Ticks(0), ..server };
        let (mut free, mut now) = (Instant(0), 0);
        for (wait, bytes) in arrivals {
            now += wait;
            let arrival = MonoNanos(now).instant();
            match departure(&server, free, arrival, Load { bytes, segments: 1 }) {
                Outcome::Served(service) => {
                    prop_assert!(service.free.since(arrival) <= buffer);
                    free = service.free;
                }
                Outcome::TailDrop => {
                    let found = free.since(arrival).plus(server.per_byte.transmit(bytes));
                    prop_assert!(found > buffer, "dropped although it fits");
                }
                Outcome::BeyondHorizon | Outcome::Down | Outcome::Early => prop_assert!(false, "nothing else was asked for"),
            }
        }
    }

    #[test]
    fn transmit_is_monotone_and_exact_to_a_tick(rate in 1_000..1_000_000_000_000u64, bytes in 0..1u64 << 30) {
        let per_byte = GapPerByte::from_bits_per_sec(8 * rate);
        let ours = per_byte.transmit(bytes).0;
        prop_assert!(per_byte.transmit(bytes + 1).0 >= ours);
        let exact = u128::from(bytes) * (1_000_000_000 << 6) / u128::from(rate);
        // G is rounded to 2^-21 ns per byte; one tick for each of the two shifts.
        let bound = u128::from(bytes >> 15) + 2;
        prop_assert!(u128::from(ours).abs_diff(exact) <= bound, "{ours} against {exact}");
    }

    #[test]
    fn transmit_never_overflows(per_byte: u64, bytes: u64) {
        let _ = GapPerByte(per_byte).transmit(bytes);
    }

    #[test]
    fn saturating_mul_is_right(a: u64, b: u64, shift in 0..64u32) {
        let (a, b) = (a >> shift, b >> (63 - shift));
        prop_assert_eq!(saturating_mul(a, b), a.saturating_mul(b));
    }

    #[test]
    fn chance_hits_as_often_as_it_says(parts in 0..=1_000_000_000u64) {
        let chance = Chance::from_parts_per_billion(parts);
        let hits = if chance.0 == 0 { 0.0 } else { (f64::from(chance.0) + 1.0) / 4_294_967_296.0 };
        prop_assert!((hits - parts as f64 / 1e9).abs() < 5e-10);
        prop_assert!(!Chance::NEVER.hit(0) && Chance::ALWAYS.hit(u32::MAX));
    }

    #[test]
    fn jitter_never_overflows(scale: u64, entry: i16) {
        let ticks = jitter_ticks(scale, entry);
        prop_assert_eq!(ticks < 0, entry < 0 && ticks != 0);
        prop_assert!(ticks.unsigned_abs() <= 1 << 48);
    }

    #[test]
    fn tags_round_trip(
        direction in 0..2u32,
        position in 0..32u32,
        waits: bool,
        epoch in 0..Tag::EPOCHS,
    ) {
        let tag = Tag { direction, position, waits, epoch };
        prop_assert!(tag.encode() <= u32::from(u16::MAX));
        prop_assert_eq!(Tag::decode(tag.encode()), Some(Tag { epoch: 0, ..tag }));
        for label in 0..crate::priorities::LABELS {
            prop_assert!(tag.encode_with(label) <= u32::from(u16::MAX));
            prop_assert_eq!(Tag::decode_with(tag.encode_with(label)), Some((tag, label)));
        }
    }

    #[test]
    fn tickets_carry_all_of_a_tag(
        departure: u64,
        slot in 0..SLOTS,
        direction in 0..2u32,
        position in 0..32u32,
        waits: bool,
    ) {
        let tag = Tag { direction, position, waits, epoch: 0 };
        prop_assert_eq!(Ticket::new(departure, slot, tag).open(), Some((slot, tag)));
    }
}

#[test]
fn buckets_cover_every_time_to_an_eighth() {
    let mut last = 0;
    for nanos in (0..4096).chain((12..40).flat_map(|bits| [(1u64 << bits) - 1, 1 << bits, (1 << bits) + 1])) {
        let bucket = histogram::bucket(nanos);
        assert!(
            bucket >= last && bucket < BUCKETS,
            "{nanos} ns in bucket {bucket} after {last}"
        );
        last = bucket;
        if nanos >> 33 == 0 {
            let bound = histogram::bound(bucket);
            assert!(
                bound >= nanos && bound - nanos <= nanos / 8,
                "{nanos} ns: bound {bound}"
            );
        }
    }
}

#[test]
fn untagged_packets_are_not_ours() {
    assert_eq!(Tag::decode(0), None);
    assert_eq!(Tag::decode(1), None);
    assert_eq!(Tag::decode_with(0), None);
    assert_eq!(Tag::decode_with(1), None);
    assert_eq!(Tag::decode_with(0x7fff), None);
    assert_eq!(Tag::decode_with(0xc000), None);
}

#[test]
fn a_burst_leaves_spaced_by_the_gap() {
    let server = Server {
        gap: Nanos(500_000).ticks(),
        latency: Nanos(1_000).ticks(),
        ..Server::IDLE
    };
    let mut free = Instant(0);
    let arrival = MonoNanos(7_000).instant();
    for nth in 1..=20u64 {
        let service = served(departure(
            &server,
            free,
            arrival,
            Load {
                bytes: 60,
                segments: 1,
            },
        ));
        assert_eq!(
            service.next.ceil_nanos(),
            MonoNanos(7_000 + nth * 500_000 + 1_000)
        );
        free = service.free;
    }
}

#[test]
fn a_super_packet_costs_its_segments() {
    let server = Server {
        gap: Nanos(1_000).ticks(),
        per_byte: GapPerByte::from_bits_per_sec(1_000_000_000),
        ..Server::IDLE
    };
    let load = Load {
        bytes: 45 * 1514,
        segments: 45,
    };
    let service = served(departure(&server, Instant(0), Instant(0), load));
    assert_eq!(service.free.ceil_nanos().0, 45 * 1_000 + 45 * 1514 * 8);
}

#[test]
fn draws_are_uniform_and_purposes_independent() {
    let (mut ones, mut agree) = (0u64, 0u64);
    let samples = 100_000;
    for index in 0..samples {
        let loss = draw(42, 0, index, Purpose::Loss);
        let jitter = draw(42, 0, index, Purpose::Jitter);
        ones += u64::from(loss.count_ones());
        agree += u64::from((loss ^ jitter).count_ones());
    }
    for count in [ones, agree] {
        let mean = count as f64 / samples as f64;
        // 64 fair bits: standard deviation 4 per draw, 0.0127 of the mean; five of them.
        assert!((mean - 32.0).abs() < 0.064, "{mean}");
    }
}

#[test]
fn independent_loss_lies_in_its_binomial_interval() {
    let chance = Chance::from_parts_per_billion(10_000_000);
    for seed in 0..20 {
        let lost = (0..100_000)
            .filter(|&i| chance.hit((draw(seed, 0, i, Purpose::Loss) >> 32) as u32))
            .count();
        // 1000 expected, standard deviation 31.5; 4.5 of them.
        assert!((858..=1142).contains(&lost), "seed {seed}: {lost}");
    }
}

#[test]
fn gilbert_elliott_has_its_stationary_loss_and_burst_length() {
    let model = GilbertElliott {
        to_bad: Chance::from_parts_per_billion(10_000_000),
        to_good: Chance::from_parts_per_billion(250_000_000),
        bad_loss: Chance::ALWAYS,
        good_loss: Chance::NEVER,
    };
    let (mut bad, mut lost, mut bursts) = (false, 0u64, 0u64);
    let packets = 1_000_000;
    for index in 0..packets {
        let was = bad;
        bad = model.step(bad, draw(9, 0, index, Purpose::Burst));
        lost += u64::from(model.lost(bad, 0));
        bursts += u64::from(bad && !was);
    }
    let share = lost as f64 / packets as f64;
    assert!(
        (share - 0.01 / 0.26).abs() < 0.002,
        "stationary share p/(p+r): {share}"
    );
    let length = lost as f64 / bursts as f64;
    assert!((length - 4.0).abs() < 0.15, "mean burst 1/r: {length}");
}
