mod random;

use std::path::Path;

use perturb_common::abi::NONE;
use perturb_common::tables::Tables;

use super::*;
use crate::{Files, compile, files, parse};

const MS: u64 = 64_000_000 / 1000 * 1000;

fn compiled(text: &str) -> Tables {
    compile(&parse(text).unwrap(), &Files::default()).unwrap()
}

/// (ms, value) of the only timeline's segments.
fn by_time<T>(tables: &Tables, of: impl Fn(&Segment) -> T) -> Vec<(f64, T)> {
    let [timeline] = tables.timelines.as_slice() else {
        panic!("{} timelines", tables.timelines.len())
    };
    timeline
        .segments
        .iter()
        .map(|segment| (segment.at.0 as f64 / MS as f64, of(segment)))
        .collect()
}

fn latency_ms(segment: &Segment) -> u64 {
    segment.latency.0 / MS
}

fn refused(steps: &str) -> String {
    let text = format!(
        "version: 1\nservers: {{ wan: {{ bandwidth: 100Mbit/s, latency: 10ms, buffer: 1s }} }}\n\
         classes: [{{ name: all, egress: [wan] }}]\ntimeline:\n{steps}"
    );
    parse(&text).unwrap_err().to_string()
}

fn wan(steps: &str) -> Tables {
    compiled(&format!(
        "version: 1\nservers: {{ wan: {{ bandwidth: 100Mbit/s, latency: 10ms, buffer: 1s }} }}\n\
         classes: [{{ name: all, egress: [wan] }}]\ntimeline: {{ {steps} }}\n"
    ))
}

#[test]
fn the_contract_of_steps() {
    let tables = wan(
        "start: apply, steps: [{ at: 2s, server: wan, latency: 50ms }, { at: 5s, server: wan, down: 1s }, \
                      { at: 8s, server: wan, bandwidth: 5Mbit/s, over: 2s }]",
    );
    assert_eq!(tables.servers[0].timeline, 0);
    let timeline = &tables.timelines[0];
    assert_eq!(
        (timeline.start, timeline.end),
        (wire::Start::Apply, wire::End::Hold)
    );
    let latencies = by_time(&tables, latency_ms);
    assert_eq!(
        latencies[..4],
        [(0.0, 10), (2000.0, 50), (5000.0, 50), (6000.0, 50)]
    );
    let gates = by_time(&tables, |segment| segment.gate);
    let open = Gate::Open;
    assert_eq!(
        gates[..4],
        [(0.0, open), (2000.0, open), (5000.0, Gate::Drop), (6000.0, open)]
    );
    // The ramp: a thousand pieces of 2 ms, whose integral is the straight line's.
    let ramp = &timeline.segments[4..];
    assert_eq!(ramp.len(), 1001);
    let rate = |segment: &Segment| match segment.rate {
        Rate::PerByte(gap) => 8e9 * f64::from(1 << 20) / gap.0 as f64,
        _ => panic!("no rate"),
    };
    let ends = ramp.iter().skip(1).map(|segment| segment.at);
    let bits: f64 = ramp
        .iter()
        .zip(ends)
        .map(|(segment, end)| rate(segment) * (end.0 - segment.at.0) as f64 / 64e9)
        .sum();
    assert!((bits / (52.5e6 * 2.0) - 1.0).abs() < 1e-6, "{bits}");
    assert_eq!(ramp[1000].at.0, 10_000 * MS);
    assert!((rate(&ramp[1000]) / 5e6 - 1.0).abs() < 1e-6);
}

#[test]
fn a_step_lasts_and_comes_again() {
    let once = wan("steps: [{ at: 10ms, for: 5ms, server: wan, latency: 1ms }], end: 1s");
    assert_eq!(by_time(&once, latency_ms), [(0.0, 10), (10.0, 1), (15.0, 10)]);
    let ended = wan("steps: [{ at: 10ms, server: wan, latency: 1ms }], end: 1s");
    assert_eq!(by_time(&ended, latency_ms), [(0.0, 10), (10.0, 1), (1000.0, 10)]);
    let twice = wan("steps: [{ at: 10ms, every: 20ms, times: 2, for: 5ms, server: wan, latency: 1ms }]");
    assert_eq!(
        by_time(&twice, latency_ms),
        [(0.0, 10), (10.0, 1), (15.0, 10), (30.0, 1), (35.0, 10)]
    );
    // Without end: the least common multiple of the intervals.
    let endless = wan(
        "steps: [{ at: 10ms, every: 20ms, for: 5ms, server: wan, latency: 1ms }, \
                       { every: 30ms, at: 29ms, for: 1ms, server: wan, loss: 50% }]",
    );
    assert_eq!(endless.timelines[0].end, wire::End::Loop(Ticks(60 * MS)));
    let times: Vec<f64> = by_time(&endless, latency_ms).iter().map(|(at, _)| *at).collect();
    assert_eq!(times, [0.0, 10.0, 15.0, 29.0, 30.0, 35.0, 50.0, 55.0, 59.0]);
    let flaps = wan("steps: [{ server: wan, flap: { up: 3s, down: 200ms }, hold: true }]");
    assert_eq!(flaps.timelines[0].end, wire::End::Loop(Ticks(3200 * MS)));
    let stopped = by_time(&flaps, |segment| segment.rate == Rate::Stopped);
    assert_eq!(stopped, [(0.0, false), (3000.0, true)]);
    let repeated =
        wan("repeat: 1s, steps: [{ at: 400ms, every: 400ms, server: wan, latency: 20ms, over: 300ms }]");
    assert_eq!(repeated.timelines[0].end, wire::End::Loop(Ticks(1000 * MS)));
}

#[test]
fn random_steps_are_drawn_by_the_seed() {
    let text = |seed: u64| {
        format!(
            "version: 1\nseed: {seed}\nlatency: 10ms\ntimeline: {{ repeat: 100s, steps: [{{ every: 100ms, \
             latency: {{ distribution: normal, mean: 50ms, scale: 10ms }} }}] }}\n"
        )
    };
    let tables = compiled(&text(1));
    assert_eq!(tables, compiled(&text(1)));
    assert_ne!(tables.timelines, compiled(&text(2)).timelines);
    // Both directions are alike, and share it.
    assert_eq!(tables.servers[0].timeline, tables.servers[1].timeline);
    let drawn = by_time(&tables, |segment| segment.latency.0 as f64 / MS as f64);
    assert_eq!(drawn.len(), 1000);
    let mean = drawn.iter().map(|(_, value)| value).sum::<f64>() / 1000.0;
    let deviation = (drawn.iter().map(|(_, value)| (value - mean).powi(2)).sum::<f64>() / 1000.0).sqrt();
    assert!(
        (49.0..51.0).contains(&mean) && (9.3..10.7).contains(&deviation),
        "{mean} {deviation}"
    );
    let channel = compiled(
        "version: 1\nlatency: 1ms\ntimeline: { repeat: 2000s, steps: [{ loss: 30%, flap: { \
         up: { distribution: exponential, mean: 900ms }, down: { distribution: exponential, mean: 100ms } } }] }\n",
    );
    let segments = &channel.timelines[0].segments;
    let ends = segments.iter().skip(1).map(|segment| segment.at.0);
    let bad: u64 = segments
        .iter()
        .zip(ends)
        .filter(|(segment, _)| segment.loss != Chance::NEVER)
        .map(|(segment, end)| end - segment.at.0)
        .sum();
    // 2000 turns: the share's standard deviation is 0.3 %.
    let share = bad as f64 / (2_000_000 * MS) as f64;
    assert!((0.087..0.113).contains(&share), "{share}");
}

#[test]
fn overheads_classes_and_buffers_change() {
    let tables = compiled(
        "version: 1\noverhead: { send: 5us }\nservers: { wan: { bandwidth: 10Mbit/s, buffer: 64KiB, jitter: 1ms } }\n\
         classes: [{ name: nfs, match: { port: 2049 }, egress: [wan], ingress: [wan] }, { name: all, egress: [wan] }]\n\
         timeline:\n  start: first-packet\n  steps:\n\
         \x20   - { at: 1s, overhead: { send: 50us, receive: 10us } }\n\
         \x20   - { at: 1s, class: nfs, latency: 30ms }\n\
         \x20   - { at: 2s, server: wan, buffer: 1MiB, jitter: 5ms }\n",
    );
    let overheads = tables.overheads.unwrap();
    assert_eq!(overheads.start, wire::Start::FirstPacket);
    assert_eq!(
        (overheads.segments[1].send, overheads.segments[1].receive),
        (50_000, 10_000)
    );
    assert_eq!(tables.server_names, ["wan", "nfs-step"]);
    let path = tables.paths[tables.classes[0].path[0] as usize];
    assert_eq!((path.len, path.servers[..2].to_vec()), (2, vec![1, 0]));
    let of_wan = &tables.timelines[tables.servers[0].timeline as usize];
    assert_eq!(of_wan.segments[0].room, Room::Bytes(64 << 10));
    assert_eq!(of_wan.segments[1].room, Room::Bytes(1 << 20));
    assert_eq!(of_wan.segments[1].jitter_scale, 5 * MS);
    // A latency that falls lets no packet overtake; a jitter that only a step gives has a shape.
    let flags = |steps: &str| wan(steps).servers[0].flags;
    let fate = SERVER_KEEP_ORDER | SERVER_FATE;
    assert_eq!(tables.servers[1].flags, SERVER_KEEP_ORDER, "it rises");
    assert_eq!(
        flags("repeat: 2s, steps: [{ at: 1s, server: wan, latency: 30ms }]"),
        fate
    );
    assert_eq!(
        flags("end: 2s, steps: [{ at: 1s, server: wan, latency: 30ms }]"),
        fate
    );
    assert_eq!(flags("steps: [{ at: 1s, server: wan, latency: 9ms }]"), fate);
    // Until the instant it is 10 ms.
    assert_eq!(
        flags("start: 2100-01-01T00:00:00Z, steps: [{ at: 0s, server: wan, latency: 5ms }]"),
        fate
    );
    let plain = wan("steps: [{ at: 1s, server: wan, bandwidth: 1Mbit/s }]");
    assert_eq!(
        (plain.servers[0].flags, plain.servers[0].jitter_table),
        (SERVER_KEEP_ORDER, NONE)
    );
    let jittered = wan("steps: [{ at: 1s, server: wan, jitter: 1ms }]");
    assert_eq!((jittered.servers[0].jitter_table, jittered.jitter.len()), (0, 1));
}

#[test]
fn a_topology_changes_by_its_links() {
    let text = "version: 1\nservers: { nic: { gap: 1us } }\n\
                topology: { kind: tree, levels: [{ latency: 1ms }, { latency: 2ms }], egress: [nic] }\n\
                timeline:\n  steps:\n    - { at: 1s, level: 2, latency: 9ms }\n    - { at: 1s, link: [h3-up], down: 1s }\n\
                \x20   - { at: 4s, for: 1s, partition: [[h1, h2], [h4]] }\n    - { at: 5s, server: nic, gap: 2us }\n";
    let hosts: Vec<Vec<std::net::IpAddr>> = (1..=4)
        .map(|host| vec![format!("10.0.0.{host}").parse().unwrap()])
        .collect();
    let expanded = crate::expand(&parse(text).unwrap(), &hosts).unwrap();
    assert_eq!(parse(&expanded.to_string()).unwrap(), expanded);
    let names: Vec<&str> = expanded.servers.iter().map(|(name, _)| name.as_str()).collect();
    let changing: Vec<&str> = (0..names.len())
        .filter(|&index| expanded.changes(ServerId::new(index).unwrap()))
        .map(|index| names[index])
        .collect();
    let expected = [
        "h1-nic",
        "h2-nic",
        "h3-nic",
        "h4-nic",
        "h3-up",
        "h1..h2-up",
        "h1..h2-down",
        "h3..h4-up",
        "h3..h4-down",
        "partition-3",
    ];
    let sorted = |mut names: Vec<&str>| {
        names.sort_unstable();
        names.join(" ")
    };
    assert_eq!(sorted(changing), sorted(expected.to_vec()));
    let cut = names.iter().position(|name| *name == "partition-3").unwrap();
    let parted: Vec<&str> = expanded
        .classes
        .iter()
        .filter(|class| class.paths()[0].unwrap()[0].index() == cut)
        .map(|class| class.name.as_str())
        .collect();
    assert_eq!(parted, ["h1-h4", "h2-h4", "h4-h1", "h4-h2"]);
    let endless = text.replace("for: 1s, partition", "partition");
    let error = parse(&endless).unwrap_err().to_string();
    assert!(error.contains("needs `for` beside it"), "{error}");
    let unknown = text.replace("h3-up", "h9-up");
    let error = crate::expand(&parse(&unknown).unwrap(), &hosts)
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("step 2 of the timeline: there is no link `h9-up`"),
        "{error}"
    );
}

#[test]
fn steps_that_do_not_fit_are_refused_at_their_place() {
    for (steps, said) in [
        (
            "  steps:\n    - { at: 1s, for: 2s, server: wan, latency: 1ms }\n    - { at: 2s, server: wan, latency: 2ms }\n",
            ":7:7: timeline.steps[1]: does not fit: it changes",
        ),
        (
            "  steps:\n    - { at: 1s, for: 2s, server: wan, latency: 1ms }\n    - { at: 2s, server: wan, latency: 2ms }\n",
            "it changes `latency` while the step on line 6 does",
        ),
        (
            "  steps: [{ at: 1s, server: wan, latency: 1ms }, { at: 1s, server: wan, latency: 2ms }]\n",
            "or at the same time",
        ),
        (
            "  steps: [{ at: 1s, server: wan, buffer: 64KiB, over: 1s }]\n",
            "no ramp leads from the `buffer`",
        ),
        (
            "  repeat: 5s\n  steps: [{ at: 4s, for: 2s, server: wan, loss: 1% }]\n",
            "beyond 5s, when the timeline begins anew",
        ),
        (
            "  end: 5s\n  steps: [{ at: 6s, server: wan, loss: 1% }]\n",
            "beyond 5s, when the timeline ends",
        ),
        (
            "  steps: [{ every: { mean: 1s, scale: 1s }, server: wan, loss: 1% }]\n",
            "it is random and without end",
        ),
        (
            "  steps: [{ every: 2s, for: 1s, server: wan, loss: 1% }, { at: 5s, server: wan, latency: 1ms }]\n",
            "this one is at a time of its own",
        ),
        (
            "  steps: [{ at: 1s, every: 2s, server: wan, loss: 1% }]\n",
            "no step says what `loss` is",
        ),
        (
            "  repeat: 1000s\n  steps: [{ every: 1us, for: 1us, server: wan, loss: 1% }]\n",
            "more than 1000000 changes",
        ),
        (
            "  steps: [{ at: 1s, server: man, latency: 1ms }]\n",
            "did you mean `wan`?",
        ),
        ("  steps: [{ at: 1s, latency: 1ms }]\n", "lacks the key `server`"),
        ("  steps: [{ at: 1s, server: wan }]\n", "lacks the key `latency`"),
        (
            "  steps: [{ at: 1s, server: wan, class: all, loss: 1% }]\n",
            "a step changes one thing",
        ),
        (
            "  steps: [{ at: 1s, server: wan, down: 1s, loss: 1% }]\n",
            "no value shows",
        ),
        (
            "  steps: [{ at: 1s, server: wan, hold: true, loss: 1% }]\n",
            "needs `down` beside it",
        ),
        (
            "  steps: [{ at: 1s, link: all, loss: 1% }]\n",
            "needs `topology` beside it",
        ),
        (
            "  steps: [{ at: 1s, server: wan, for: 3s, every: 2s, loss: 1% }]\n",
            "longer than until it comes again",
        ),
        (
            "  start: tomorrow\n  steps: [{ at: 1s, server: wan, loss: 1% }]\n",
            "neither apply, first-packet nor an instant",
        ),
        ("  repeat: 5s\n  end: 5s\n", "what repeats has no end"),
        // What is not written does not become 0.
        (
            "  steps: [{ at: 1s, overhead: { send: 60us } }]\n",
            "lacks the key `receive`",
        ),
        (
            "  steps: [{ at: 1s, overhead: { receive: 60us } }]\n",
            "lacks the key `send`",
        ),
    ] {
        let error = refused(steps);
        assert!(error.contains(said), "{error}");
    }
}

fn traced(server: &str, name: &str, content: &str) -> Result<Tables, String> {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join(name), content).unwrap();
    let text = format!(
        "version: 1\nservers: {{ radio: {{ {server} }} }}\nclasses: [{{ name: all, egress: [radio], ingress: [radio] }}]\n"
    );
    let profile = parse(&text).map_err(|error| error.to_string())?;
    let files = files(&profile, Path::new(directory.path())).map_err(|error| error.to_string())?;
    compile(&profile, &files).map_err(|error| error.to_string())
}

#[test]
fn an_opportunity_is_a_burst_that_ends_at_its_millisecond() {
    let radio = "trace: { file: lte.mm, at_end: loop }, latency: 20ms, buffer: 300ms";
    let tables = traced(radio, "lte.mm", "1\n1\n3\n").unwrap();
    let timeline = &tables.timelines[0];
    assert_eq!(timeline.end, wire::End::Loop(Ticks(3 * MS)));
    let segments: Vec<(u64, bool)> = timeline
        .segments
        .iter()
        .map(|segment| (segment.at.0, segment.rate == Rate::PerByte(GapPerByte(1 << 14))))
        .collect();
    let (one, three) = (MS, 3 * MS);
    assert_eq!(
        segments,
        [
            (0, false),
            (one - 2 * 1514, true),
            (one, false),
            (three - 1514, true)
        ]
    );
    assert!(
        timeline
            .segments
            .iter()
            .all(|segment| segment.latency.0 == 20 * MS)
    );
    assert_eq!(timeline.segments[0].room, Room::Wait(Ticks(300 * MS)));
    // One tick per byte: what 1514 bytes take.
    assert_eq!(GapPerByte(1 << 14).transmit(1514), Ticks(1514));

    let offset = traced("trace: { file: lte.mm, offset: 2ms }", "lte.mm", "1\n1\n3\n").unwrap();
    let times = by_time(&offset, |segment| segment.rate == Rate::Stopped);
    let burst = 1514.0 / MS as f64;
    assert_eq!(
        times,
        [
            (0.0, true),
            (1.0 - burst, false),
            (1.0, true),
            (2.0 - 2.0 * burst, false),
            (2.0, true)
        ]
    );
    let half = traced("trace: { file: lte.mm, scale: 50% }", "lte.mm", "1\n").unwrap();
    assert_eq!(half.timelines[0].segments[1].at, Ticks(MS - 757));
}

#[test]
fn a_table_takes_the_place_of_the_servers_keys() {
    let text = "time [s],latency [ms],bandwidth [Mbit/s],loss [%]\n0,20,10,0\n1,30,5,1\n2,40,0,0\n";
    let server =
        "latency: 1ms, bandwidth: 1Gbit/s, buffer: 64KiB, trace: { file: a.csv, at_end: clear, scale: 200% }";
    let tables = traced(server, "a.csv", text).unwrap();
    assert_eq!(
        by_time(&tables, latency_ms),
        [(0.0, 20), (1000.0, 30), (2000.0, 40), (3000.0, 1)]
    );
    let rates = by_time(&tables, |segment| segment.rate);
    let rate = |bits| Rate::PerByte(GapPerByte::from_bits_per_sec(bits));
    assert_eq!(
        rates,
        [
            (0.0, rate(20_000_000)),
            (1000.0, rate(10_000_000)),
            (2000.0, Rate::Stopped),
            (3000.0, rate(1_000_000_000))
        ]
    );
    assert_ne!(tables.servers[0].flags & SERVER_FATE, 0);
    let late = traced("trace: { file: a.csv, offset: 2500ms }", "a.csv", text).unwrap();
    assert_eq!(by_time(&late, latency_ms), [(0.0, 40)]);
    for (server, said) in [
        ("trace: { file: a.csv, offset: 3s }", "its trace is 3s long"),
        ("trace: { file: a.dat }", "needs `format` beside it"),
        (
            "trace: { file: a.csv, format: theaterq }",
            "a.csv:2:1: the line has 4 numbers",
        ),
        ("trace: { file: b.csv }", "b.csv: cannot be read"),
    ] {
        let error = traced(server, "a.csv", text).unwrap_err();
        assert!(error.contains(said), "{error}");
    }
}
