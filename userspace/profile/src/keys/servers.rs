//! The keys of servers, and of links and levels, which are servers too.

use strum::VariantNames as _;

use super::*;
use crate::model::Scope;

macro_rules! server_keys {
    ($($extra:expr),* $(,)?) => { &[
        key("gap", Shape::Duration(GAP), "0s", "LogGP's g: how long one wire packet occupies the server, whatever its size."),
        key("bandwidth", Shape::Rate(BANDWIDTH), "unlimited", "LogGP's 1/G, counted in wire bytes (Ethernet header included, preamble and gap between frames not)."),
        key("framing", Shape::Section(&FRAMING), "none", "What the link sends besides packets' bytes: ATM, PPPoE, DOCSIS. Needs a bandwidth."),
        key("latency", Shape::Duration(LATENCY), "0s", "LogGP's L: one-way delay after the service, once for each direction; the overhead is burnt on both hosts. A round trip has two."),
        key("buffer", Shape::Either(&[Shape::Size(BUFFER_BYTES), Shape::Duration(BUFFER_DELAY), Shape::Packets, Shape::Section(&BUFFER)]), "none: the queue may grow to the horizon",
            "Drop-tail buffer: bytes, the time they take, or `100 packets`. A packet that would exceed it is dropped. Bytes and time need a bandwidth; packets need scope shared."),
        key("jitter", Shape::Either(&[Shape::Duration(SCALE), Shape::Section(&JITTER)]), "none", "Random addition to the latency; a duration alone means evenly within ± that."),
        key("loss", Shape::Either(&[Shape::Share, Shape::Section(&LOSS)]), "none", "Which packets are lost here; a percentage alone means each packet independently."),
        key("duplicate", CHANCE, "0%", "Probability that a packet leaves twice."),
        key("corrupt", CHANCE, "0%", "Probability that one random bit of a packet is flipped."),
        key("reorder", Shape::Either(&[Shape::Share, Shape::Section(&REORDER)]), "0%", "Probability that a packet goes ahead of others, without latency and jitter. A jitter has a `reorder` of its own."),
        key("ecn", Shape::Either(&[Shape::Size(ECN_BYTES), Shape::Duration(ECN_DELAY)]), "never", "Backlog above which ECN-capable packets are CE-marked: bytes need a bandwidth, a time needs a bandwidth or gap."),
        key("queue", Shape::Section(&QUEUE), "tail drop", "What drops and marks packets before the buffer is full. Needs a bandwidth or gap, and scope shared."),
        key("slot", Shape::Section(&SLOTS), "none", "Slots in which packets leave, in bursts, behind their service and before the latency. Needs scope shared."),
        $($extra),*
    ] };
}

const CHANCE: Shape = Shape::Either(&[Shape::Share, Shape::Section(&CORRELATED)]);

const PROBABILITY: Key = required("probability", Shape::Share, "Of each packet, in the long run.");

const CORRELATED_KEY: Key = key(
    "correlation",
    Shape::Factor(CORRELATION),
    "0%",
    "From one packet to the next: events k packets apart are correlated by its k-th power.",
);

pub(crate) static CORRELATED: Section = Section {
    what: "a probability",
    title: "correlated",
    doc: "A probability whose events come together. Unlike netem's, the correlation leaves the probability as it is.",
    keys: &[PROBABILITY, CORRELATED_KEY],
};

pub(crate) static REORDER: Section = Section {
    what: "a reordering",
    title: "reorder",
    doc: "Packets that leave at once, ahead of those that wait out the latency.",
    keys: &[
        required(
            "probability",
            Shape::Share,
            "Of each packet that may go ahead, in the long run.",
        ),
        key(
            "correlation",
            Shape::Factor(CORRELATION),
            "0%",
            "From one packet that may go ahead to the next: those k apart are correlated by its k-th power.",
        ),
        key(
            "gap",
            Shape::Integer(REORDER_GAP),
            "1",
            "At most every `gap`-th packet goes ahead, counted from the last one that did: netem's gap.",
        ),
    ],
};

const SCOPE: Key = key(
    "scope",
    Shape::Choice(Scope::VARIANTS),
    "shared",
    "Whose packets queue together: all that cross it (shared), those of one interface, of one remote address (host) or of one 5-tuple (flow).",
);

const COLLISIONS_KEY: Key = key(
    "collisions",
    Shape::Section(&COLLISIONS),
    "none",
    "CSMA/CD between the stations that send over it, told apart by the last six bits of their addresses. Needs a bandwidth or gap, and scope shared.",
);

const TRACE_KEY: Key = key(
    "trace",
    Shape::Section(&TRACE),
    "none",
    "A file by which it changes.",
);

pub(crate) static SERVER: Section = Section {
    what: "a server",
    title: "server",
    doc: "A FIFO server: packets wait for those ahead, occupy it for gap + bytes/bandwidth, and arrive a latency later.",
    keys: server_keys!(SCOPE, COLLISIONS_KEY, TRACE_KEY),
};

pub(crate) static LINK: Section = Section {
    what: "a link of a topology",
    title: "link",
    doc: "A server of a topology; it is always shared.",
    keys: server_keys!(),
};

pub(crate) static LEVEL: Section = Section {
    what: "a level of a tree",
    title: "level",
    doc: "An edge of one height of a tree; it is always shared.",
    keys: server_keys!(key(
        "buffer_delay",
        Shape::Duration(BUFFER_DELAY),
        "as `buffer` says",
        "PlogPT's d(h), another way to write `buffer` in time."
    )),
};

pub(crate) const QUEUES: &[&str] = &["tail", "step", "codel", "pie", "red"];

const THRESHOLD: Shape = Shape::Either(&[Shape::Size(ECN_BYTES), Shape::Duration(ECN_DELAY)]);

pub(crate) static QUEUE: Section = Section {
    what: "a queue",
    title: "queue",
    doc: "A law that drops or marks packets, when their service begins or (pie, red) when they come. Super-packets are split first, unless `segmentation: whole`: then each is judged as one.",
    keys: &[
        key(
            "kind",
            Shape::Choice(QUEUES),
            "tail",
            "tail: none but the buffer; step: marks above a wait (DCTCP, L4S); codel: RFC 8289; pie: RFC 8033; red: Floyd and Jacobson 1993.",
        ),
        key(
            "threshold",
            THRESHOLD,
            "required by step",
            "step: the wait, or the bytes that take it, above which ECN-capable packets are CE-marked.",
        ),
        key("l4s", Shape::Flag, "false", "step: marks ECT(1) only."),
        key(
            "target",
            Shape::Duration(TARGET),
            "5ms of codel, 15ms of pie",
            "codel: the wait that may last; what a full frame takes may, too. pie: QDELAY_REF.",
        ),
        key(
            "interval",
            Shape::Duration(INTERVAL),
            "100ms",
            "codel: for how long the wait must be above the target: a round trip.",
        ),
        key(
            "ecn",
            Shape::Flag,
            "false",
            "codel, pie, red: ECN-capable packets are marked in place of being dropped.",
        ),
        key(
            "ce_threshold",
            THRESHOLD,
            "never",
            "codel: ECN-capable packets are marked above this, too.",
        ),
        key(
            "t_update",
            Shape::Duration(T_UPDATE),
            "15ms",
            "pie: T_UPDATE, from one change of the drop probability to the next.",
        ),
        key(
            "max_burst",
            Shape::Duration(MAX_BURST),
            "150ms",
            "pie: MAX_BURST, for how long nothing is dropped once the queue was short.",
        ),
        key(
            "mark_ecnth",
            Shape::Share,
            "10%",
            "pie with `ecn`: the drop probability above which packets are dropped all the same.",
        ),
        key(
            "derandomize",
            Shape::Flag,
            "false",
            "pie: drops keep a distance, at least and at most (section 5.4).",
        ),
        key(
            "min",
            THRESHOLD,
            "required by red",
            "red: the average wait, or the bytes that take it, above which packets are dropped at random.",
        ),
        key(
            "max",
            THRESHOLD,
            "required by red",
            "red: the average from which on all are.",
        ),
        key(
            "probability",
            Shape::Share,
            "2%",
            "red: max_p. At `max` one of the next 1/max_p packets is dropped, whichever: about twice this share.",
        ),
        key(
            "avpkt",
            Shape::Size(AVPKT),
            "1kB",
            "red: a packet's size, by which the average falls while the queue is empty.",
        ),
        key(
            "burst",
            Shape::Integer(BURST),
            "(2 min + max) / (3 avpkt)",
            "red: so many packets may come into an empty queue; the average's weight is of it.",
        ),
        key(
            "adaptive",
            Shape::Flag,
            "false",
            "red: every 0.5 s max_p moves, between 1% and 50%, to keep the average in the middle of `min` and `max` (as Linux has it).",
        ),
    ],
};

pub(crate) static BUFFER: Section = Section {
    what: "a buffer",
    title: "buffer",
    doc: "Limits of a drop-tail buffer; a packet is dropped if one of them would be exceeded.",
    keys: &[
        key(
            "bytes",
            Shape::Size(BUFFER_BYTES),
            "no limit",
            "Wire bytes waiting or in service, the arriving packet included.",
        ),
        key(
            "delay",
            Shape::Duration(BUFFER_DELAY),
            "no limit",
            "The time those bytes take; excludes `bytes`.",
        ),
        key(
            "packets",
            Shape::Integer(BUFFER_PACKETS),
            "no limit",
            "Wire packets waiting, for a slot too, or in service.",
        ),
    ],
};

pub(crate) const DISTRIBUTIONS: &[&str] = &["uniform", "normal", "pareto", "pareto-normal", "table"];

pub(crate) static JITTER: Section = Section {
    what: "a jitter",
    title: "jitter",
    doc: "A random addition to the latency. The sum is never below zero: a scale near the latency raises the mean. Unless `reorder`, a packet waits for the one ahead: the closer the packets, the larger the mean and the smaller the deviation; `check` says by how much.",
    keys: &[
        key(
            "distribution",
            Shape::Choice(DISTRIBUTIONS),
            "uniform",
            "uniform: within ± scale; normal: scale is the standard deviation; pareto, pareto-normal: as netem's, whose standard deviation is not the scale (`check` prints it); table: from a file.",
        ),
        key(
            "scale",
            Shape::Duration(SCALE),
            "required",
            "The width of the distribution.",
        ),
        key(
            "stddev",
            Shape::Duration(SCALE),
            "none",
            "Another word for the scale of a normal distribution.",
        ),
        key(
            "table",
            Shape::Text,
            "",
            "File in iproute2's .dist format (integers, 8192 stands for one scale), relative to the profile.",
        ),
        key(
            "reorder",
            Shape::Flag,
            "false",
            "Whether a packet may overtake another; TCP takes reordering for loss.",
        ),
        key(
            "correlation",
            Shape::Factor(CORRELATION),
            "0%",
            "From one packet to the next: of a normal process of first order, which is taken to the distribution. It stays as it is, unlike netem's.",
        ),
        key(
            "time_constant",
            Shape::Duration(TIME_CONSTANT),
            "none",
            "Jitter as a process in time, in place of `correlation`: packets t apart correlate by e^(-t / time_constant), t between the ends of their service here; one out of order has the jitter of the latest.",
        ),
    ],
};

pub(crate) static FRAMING: Section = Section {
    what: "a framing",
    title: "framing",
    doc: "netem's PACKETOVERHEAD CELLSIZE CELLOVERHEAD of `rate`. Buffers in bytes count it, too. With cells super-packets are split first; with `segmentation: whole` their segments count as equal ones.",
    keys: &[
        key(
            "packet_overhead",
            Shape::Integer(FRAMING_BYTES),
            "0",
            "Bytes of each packet besides: 8 of PPPoE, 18 of a DOCSIS frame.",
        ),
        key(
            "cell_size",
            Shape::Integer(CELL),
            "no cells",
            "Bytes of packets that a cell carries; cells are sent whole. ATM: 48.",
        ),
        key(
            "cell_overhead",
            Shape::Integer(FRAMING_BYTES),
            "0",
            "Bytes of each cell besides. ATM: 5. Needs `cell_size`.",
        ),
        key(
            "without_ethernet",
            Shape::Flag,
            "false",
            "The Ethernet header of 14 bytes does not cross the link.",
        ),
    ],
};

pub(crate) static SLOTS: Section = Section {
    what: "a slot",
    title: "slot",
    doc: "netem's `slot`, a rough model of Wi-Fi, LTE and DOCSIS: what is ready when a slot opens leaves at once, until so many packets or bytes have left. The next slot opens a while later; who comes behind a slot asks for a new one, which opens a while from then. Super-packets are split first, unless `segmentation: whole`.",
    keys: &[
        key(
            "min",
            Shape::Duration(SLOT_DELAY),
            "required without `distribution`",
            "The least time to the next slot.",
        ),
        key(
            "max",
            Shape::Duration(SLOT_DELAY),
            "as `min`",
            "The longest; any in between is as likely.",
        ),
        key(
            "distribution",
            Shape::Choice(DISTRIBUTIONS),
            "none",
            "In place of `min` and `max`: the shape of the time to the next slot, as a jitter's. Below zero counts as zero.",
        ),
        key(
            "delay",
            Shape::Duration(SLOT_DELAY),
            "required by `distribution`",
            "Its middle.",
        ),
        key(
            "jitter",
            Shape::Duration(SLOT_DELAY),
            "required by `distribution`",
            "Its scale.",
        ),
        key(
            "table",
            Shape::Text,
            "",
            "File in iproute2's .dist format, relative to the profile.",
        ),
        key(
            "packets",
            Shape::Integer(SLOT_PACKETS),
            "any number",
            "At most so many leave in one slot.",
        ),
        key(
            "bytes",
            Shape::Size(SLOT_BYTES),
            "any number",
            "The packet with which so many have left is the slot's last.",
        ),
    ],
};

pub(crate) static LOSS: Section = Section {
    what: "a loss model",
    title: "loss",
    doc: "Packets are lost that any of the three selects. The same seed and packets lose the same packets.",
    keys: &[
        key(
            "random",
            Shape::Share,
            "0%",
            "Each packet independently, or with a correlation.",
        ),
        key(
            "correlation",
            Shape::Factor(CORRELATION),
            "0%",
            "Of random losses: those k packets apart are correlated by its k-th power. The share lost stays as it is.",
        ),
        key(
            "gilbert_elliott",
            Shape::Section(&GILBERT_ELLIOTT),
            "none",
            "Loss in bursts.",
        ),
        key(
            "state",
            Shape::Section(&LOSS_STATES),
            "none",
            "Loss in bursts and alone; excludes `gilbert_elliott`.",
        ),
        key(
            "nth",
            Shape::List(&Shape::Integer(NTH), 1, abi::MAX_NTH as usize),
            "none",
            "These packets of each instance of the server, counted from 1.",
        ),
        key(
            "ecn",
            Shape::Flag,
            "false",
            "Of these packets, the ECN-capable ones are CE-marked and go on, as with netem's `ecn`.",
        ),
    ],
};

pub(crate) static GILBERT_ELLIOTT: Section = Section {
    what: "a Gilbert-Elliott model",
    title: "gilbert_elliott",
    doc: "A chain with a good and a bad state (Gilbert 1960, Elliott 1963), parameters as in netem's gemodel. It begins good.",
    keys: &[
        required("p", Shape::Share, "From good to bad, per packet."),
        required("r", Shape::Share, "From bad to good, per packet."),
        key("bad_loss", Shape::Share, "100%", "1-h: loss in the bad state."),
        key("good_loss", Shape::Share, "0%", "1-k: loss in the good state."),
    ],
};

pub(crate) static LOSS_STATES: Section = Section {
    what: "a model of four states",
    title: "state",
    doc: "netem's `loss state`: 1 good, 3 lost in a burst, 2 good within a burst, 4 lost alone. It begins in 1. Keys left out are as tc has them.",
    keys: &[
        required("p13", Shape::Share, "Into a burst of losses."),
        key(
            "p31",
            Shape::Share,
            "100% less the larger of p13 and p32",
            "Out of it; with p32 at most 100%, as p13 with p14.",
        ),
        key(
            "p32",
            Shape::Share,
            "0%",
            "From a loss to good packets within the burst.",
        ),
        key("p23", Shape::Share, "100%", "Back from there."),
        key("p14", Shape::Share, "0%", "A loss by itself."),
    ],
};
