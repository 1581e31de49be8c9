//! The keys of a timeline and of a trace.

use strum::VariantNames as _;

use super::*;
use crate::recording::Format;
use crate::timeline::{End, Shape as Distribution};

const NAMES: Shape = Shape::OneOrMore(&Shape::Name);

pub(crate) const INSTANT: Bounds<Duration> = bounds(Duration::ZERO, Duration::from_nanos(1_000_000 * SECOND));
pub(crate) const PERIOD: Bounds<Duration> = bounds(
    Duration::from_nanos(1_000),
    Duration::from_nanos(1_000_000 * SECOND),
);
pub(crate) const TIMES: Bounds<u64> = bounds(1, 1_000_000);
pub(crate) const FACTOR: Bounds<Probability> = bounds(
    Probability::from_billionths(1_000_000),
    Probability::from_billionths(1_000_000_000_000),
);
pub(crate) const STEPS: usize = 10_000;
pub(crate) const LEVEL_NUMBER: Bounds<u64> = bounds(1, LEVELS as u64);
pub(crate) const GROUPS: usize = 64;

const INTERVAL: Shape = Shape::Either(&[Shape::Duration(PERIOD), Shape::Section(&RANDOM_DURATION)]);

pub(crate) static TIMELINE: Section = Section {
    what: "a timeline",
    title: "timeline",
    doc: "How the network changes. The programs look a step up by time, so none is late: it counts for the first packet that begins service after it. Changes of the profile in force keep the clock. `timeline: { steps: [{ at: 5s, server: wan, down: 1s }, { at: 8s, server: wan, bandwidth: 5Mbit/s, over: 2s }, { at: 20s, every: 30s, times: 5, for: 2s, server: wan, loss: 10% }] }`; more in `configs/scenarios`. No two steps change one key at a time. Steps that come again without end, at fixed intervals, make the timeline repeat.",
    keys: &[
        key(
            "start",
            Shape::Either(&[Shape::Choice(&["apply", "first-packet"]), Shape::Text]),
            "apply",
            "What times count from, those of traces too: when the profile comes into force (apply), the first packet at a server that changes (first-packet), or an instant such as `2026-11-24T12:00:00Z`, by this machine's clock at `apply`.",
        ),
        key(
            "repeat",
            Shape::Duration(PERIOD),
            "never, or as often as steps with `every` do",
            "It begins anew whenever so much has passed.",
        ),
        key(
            "end",
            Shape::Duration(PERIOD),
            "never: the last values hold",
            "After so long the servers are again what their own keys say.",
        ),
        key(
            "steps",
            Shape::List(&Shape::Section(&STEP), 1, STEPS),
            "none",
            "The changes. Without steps it says when traces start.",
        ),
    ],
};

pub(crate) static STEP: Section = Section {
    what: "a step",
    title: "step",
    doc: "What changes (`server`, `class`, `link`, `level`, `partition` or `overhead`), when, and to what. With the keys of one server at the top, a step without a subject is both directions'.",
    keys: &[
        key("at", Shape::Duration(INSTANT), "0s", "When, since the start."),
        key(
            "every",
            INTERVAL,
            "once",
            "It comes again so long after it began; random intervals need `repeat` or `times`.",
        ),
        key(
            "times",
            Shape::Integer(TIMES),
            "without end",
            "How many times, with `every` or `flap`.",
        ),
        key(
            "for",
            Shape::Duration(PERIOD),
            "until another step",
            "How long it lasts; then what was before holds again.",
        ),
        key(
            "over",
            Shape::Duration(PERIOD),
            "0s",
            "How long it takes from the old value to the new one, evenly: pieces of 1ms, at most 1000, with the ramp's integral.",
        ),
        key(
            "flap",
            Shape::Section(&FLAP),
            "none",
            "It comes and goes by turns; without values the server is down meanwhile.",
        ),
        key("server", NAMES, "", "These servers."),
        key(
            "class",
            NAMES,
            "",
            "The packets of these classes: a server of their own, `CLASS-step`, before the others of their paths.",
        ),
        key(
            "link",
            Shape::Either(&[Shape::Choice(&["all"]), NAMES]),
            "",
            "Links of the topology by the names of their servers (`h3-up`), or all.",
        ),
        key(
            "level",
            Shape::Integer(LEVEL_NUMBER),
            "",
            "All links of this height of a tree, 1 the lowest.",
        ),
        key(
            "partition",
            Shape::List(&Shape::List(&Shape::Name, 1, MAX_HOSTS), 2, GROUPS),
            "",
            "Groups of hosts (`[[h1, h2], [h3, h4]]`): no packet passes from one to another during `for` or `flap`. Hosts in none reach all. It takes one class per pair of hosts.",
        ),
        key(
            "latency",
            Shape::Either(&[Shape::Duration(LATENCY), Shape::Section(&RANDOM_DURATION)]),
            "as it was",
            "L.",
        ),
        key(
            "bandwidth",
            Shape::Either(&[Shape::Rate(BANDWIDTH), Shape::Section(&RANDOM_BANDWIDTH)]),
            "as it was",
            "1/G. A packet that is in service then goes on at the new rate.",
        ),
        key(
            "gap",
            Shape::Either(&[Shape::Duration(GAP), Shape::Section(&RANDOM_DURATION)]),
            "as it was",
            "g.",
        ),
        key(
            "buffer",
            Shape::Either(&[Shape::Size(BUFFER_BYTES), Shape::Duration(BUFFER_DELAY)]),
            "as it was",
            "Bytes not yet transmitted, or the wait.",
        ),
        key(
            "loss",
            Shape::Share,
            "as it was",
            "Of each packet independently; bursts are the server's own.",
        ),
        key(
            "jitter",
            Shape::Duration(SCALE),
            "as it was",
            "The scale; the server has the distribution.",
        ),
        key(
            "overhead",
            Shape::Section(&OVERHEAD_CHANGE),
            "as it was",
            "o, of the host; a step of its own, without a subject.",
        ),
        key(
            "down",
            Shape::Duration(PERIOD),
            "",
            "Down for so long: what would begin service is dropped. Stands for `for`.",
        ),
        key(
            "hold",
            Shape::Flag,
            "false",
            "While it is down, packets wait instead, the one in service too.",
        ),
    ],
};

pub(crate) static FLAP: Section = Section {
    what: "a flap",
    title: "flap",
    doc: "Two states by turns, beginning with the one before the step. With exponential dwell times it is a Gilbert channel.",
    keys: &[
        required("up", INTERVAL, "How long the step is not in force."),
        required("down", INTERVAL, "How long it is."),
    ],
};

const OVERHEAD_KEYS: &[Key] = &[
    required("send", Shape::Duration(OVERHEAD), "o_s."),
    required("receive", Shape::Duration(OVERHEAD), "o_r."),
];

pub(crate) static OVERHEAD_CHANGE: Section = Section {
    what: "a change of the overhead",
    title: "changed_overhead",
    doc: "Processor time burnt per wire packet from then on.",
    keys: OVERHEAD_KEYS,
};

macro_rules! random {
    ($name:ident, $title:literal, $shape:expr) => {
        pub(crate) static $name: Section = Section {
            what: "a random value",
            title: $title,
            doc: "A value drawn for each turn of a step. Same seed, same values. What would be out of range becomes the end of the range.",
            keys: &[
                key(
                    "distribution",
                    Shape::Choice(Distribution::VARIANTS),
                    "uniform",
                    "As of a jitter; exponential has no scale.",
                ),
                required("mean", $shape, "The mean."),
                key("scale", $shape, "required, but for exponential", "The width: ± scale, or the standard deviation."),
            ],
        };
    };
}

random!(RANDOM_DURATION, "random_duration", Shape::Duration(INSTANT));
random!(RANDOM_BANDWIDTH, "random_bandwidth", Shape::Rate(BANDWIDTH));

pub(crate) static TRACE: Section = Section {
    what: "a trace",
    title: "trace",
    doc: "A file by which a server changes. What the file does not say is as the server's other keys say. It starts with the `timeline`'s start. `radio: { trace: { file: lte.mm, at_end: loop }, latency: 20ms, buffer: 300ms }`.",
    keys: &[
        required(
            "file",
            Shape::Text,
            "Relative to the profile; at most 1,000,000 entries.",
        ),
        key(
            "format",
            Shape::Choice(Format::VARIANTS),
            "by the name: .mm, .up, .down; .csv; .json",
            "mahimahi: a millisecond for each opportunity to send a full frame, 1514 bytes with the Ethernet header; csv: a header that names columns and units, `time [s],latency [ms],bandwidth [Mbit/s],loss [%]`, also gap, jitter, buffer; theaterq: its two forms of lines; netem-trace: rattan's JSON.",
        ),
        key(
            "at_end",
            Shape::Choice(End::VARIANTS),
            "loop for mahimahi and endless models, else hold",
            "The last values hold, it begins anew, or the server's own keys count.",
        ),
        key(
            "offset",
            Shape::Duration(INSTANT),
            "0s",
            "Where in the file it begins; one that loops returns to the file's beginning.",
        ),
        key(
            "scale",
            Shape::Factor(FACTOR),
            "100%",
            "Bandwidths of the file are multiplied by it; of mahimahi's opportunities the bytes.",
        ),
    ],
};
