//! Random timelines and traces against what their words say, instant by instant.

use proptest::prelude::*;

use super::*;

/// The segment in force at `at`, which a loop has brought back.
fn in_force(timeline: &wire::Timeline, at: u64) -> Segment {
    let at = match timeline.end {
        wire::End::Loop(period) => at % period.0,
        wire::End::Hold => at,
    };
    let above = timeline.segments.partition_point(|segment| segment.at.0 <= at);
    timeline.segments[above - 1]
}

/// A step of the latency that lasts, or that stays: (at, for, every, times, latency), all ms.
type Drawn = (u64, Option<u64>, Option<(u64, u64)>, u64);

fn step() -> impl Strategy<Value = Drawn> {
    let every = (1..60u64, 1..6u64);
    (
        0..200u64,
        proptest::option::of(1..40u64),
        proptest::option::of(every),
        1..100u64,
    )
}

/// The latency in ms that steps ask for at `now`.
fn said(steps: &[Drawn], now: u64) -> u64 {
    // Turns: from when to when, and whether it stays.
    let mut turns = Vec::new();
    for &(at, lasts, every, latency) in steps {
        let (interval, times) = every.unwrap_or((0, 1));
        for turn in 0..times {
            let begin = at + turn * interval;
            turns.push((begin, lasts.map(|lasts| begin + lasts), latency));
        }
    }
    turns.sort_unstable();
    let stays = turns
        .iter()
        .filter(|turn| turn.0 <= now && turn.1.is_none())
        .max_by_key(|turn| turn.0);
    let passes = turns
        .iter()
        .find(|turn| turn.0 <= now && turn.1.is_some_and(|end| now < end));
    passes.or(stays).map_or(10, |turn| turn.2)
}

proptest! {
    #[test]
    fn steps_hold_when_they_say(steps in proptest::collection::vec(step(), 1..5), now in 0..600u64) {
        let written: Vec<String> = steps
            .iter()
            .map(|(at, lasts, every, latency)| {
                let lasts = lasts.map_or(String::new(), |lasts| format!(", for: {lasts}ms"));
                let every = every.map_or(String::new(), |(every, times)| format!(", every: {every}ms, times: {times}"));
                format!("{{ at: {at}ms{lasts}{every}, latency: {latency}ms }}")
            })
            .collect();
        let text = format!(
            "version: 1\nlatency: 10ms\ntimeline: {{ steps: [{}] }}\n",
            written.join(", ")
        );
        // Those that contradict each other are refused.
        let Ok(profile) = parse(&text) else { return Ok(()) };
        let tables = compile(&profile, &Files::default()).unwrap();
        let segment = in_force(&tables.timelines[0], now * MS);
        prop_assert_eq!(latency_ms(&segment), said(&steps, now), "{}", text);
    }

    #[test]
    fn an_offset_begins_in_the_file(
        opportunities in proptest::collection::vec(0..50u64, 1..30),
        offset in 0..50u64,
        now in 0..200_000u64,
    ) {
        let mut lines = opportunities;
        lines.sort_unstable();
        let last = *lines.last().unwrap();
        prop_assume!(last > offset);
        let content: String = lines.iter().map(|line| format!("{line}\n")).collect();
        let plain = traced("trace: { file: a.mm }", "a.mm", &content).unwrap();
        let moved = traced(&format!("trace: {{ file: a.mm, offset: {offset}ms }}"), "a.mm", &content).unwrap();
        let at = now * MS / 1000 + now % 7;
        let rate = |tables: &Tables, at| in_force(&tables.timelines[0], at).rate;
        prop_assert_eq!(rate(&moved, at), rate(&plain, at + offset * MS));
        // A turn serves a frame for each line, wherever it begins.
        for tables in [&plain, &moved] {
            let timeline = &tables.timelines[0];
            let ends = timeline.segments.iter().skip(1).map(|segment| segment.at.0).chain([last * MS]);
            let bytes: u64 = timeline
                .segments
                .iter()
                .zip(ends)
                .filter(|(segment, _)| segment.rate != Rate::Stopped)
                .map(|(segment, end)| end - segment.at.0)
                .sum();
            prop_assert_eq!(bytes, lines.len() as u64 * 1514);
        }
    }
}
