//! The sections of a profile and their keys.

use perturb_common::abi;

use strum::VariantNames as _;

use super::*;
use crate::matching::{DSCPS, ETHERTYPES, Family, PROTOCOLS};
use crate::model::{Acknowledgments, Limits, Segmentation};
use crate::topology::Sharing;

const PATH: Shape = Shape::List(&Shape::Name, 0, abi::MAX_PATH_SERVERS);
const PREFIXES: Shape = Shape::OneOrMore(&Shape::Prefix);
const PORTS: Shape = Shape::OneOrMore(&Shape::Port);
const SERVER_SHAPE: Shape = Shape::Section(&SERVER);

pub(crate) static OVERHEAD_SECTION: Section = Section {
    what: "the overhead",
    title: "overhead",
    doc: "LogGP's o: processor time burnt on this host for each wire packet of a class, in either direction's own context. \
          On private hosts each host burns it: `send` where a packet leaves, `receive` where it arrives, while the \
          `latency` of a path is there once for each direction. TCP acknowledges what it gets, and its acknowledgments are packets, too: a message and its answer cost each \
          host up to three times o (o_s, o_r, and an acknowledgment's) unless `acknowledgments: free`. What is burnt at \
          ingress is burnt by the processor that takes the packet in. Between private hosts of one machine that is the one on \
          which the receiver runs, if it receives by TCP or by connected UDP (receive flow steering); what else comes is spread \
          over all processors by the flow's hash. With one processor all hosts share it.",
    keys: &[
        key(
            "send",
            Shape::Duration(OVERHEAD),
            "0s",
            "o_s, in the sender's context at egress.",
        ),
        key("receive", Shape::Duration(OVERHEAD), "0s", "o_r, at ingress."),
        key(
            "acknowledgments",
            Shape::Choice(Acknowledgments::VARIANTS),
            "charged",
            "TCP packets that carry neither data nor SYN, FIN or RST: charged as any packet, or free, as LogP has it, whose o is a message's.",
        ),
    ],
};

pub(crate) static LIMITS: Section = Section {
    what: "the limits",
    title: "limits",
    doc: "Bounds on the memory of the emulation.",
    keys: &[
        key(
            "flows",
            Shape::Integer(FLOWS),
            "131072",
            "Flows, and instances of servers per flow or host, remembered at once.",
        ),
        key(
            "held",
            Shape::Size(HELD),
            "from bandwidths and delays",
            "Memory that held packets take at once, theirs and the kernel's: 1 KiB for a small packet, 2.3 KiB for a full frame, \
             and 1.6 times its bytes for a super-packet. Without it, at most a quarter of the machine's. What exceeds it is \
             dropped and counted as unintended.",
        ),
    ],
};

pub(crate) static MATCH: Section = Section {
    what: "a match",
    title: "match",
    doc: "Conditions on a packet. All keys must hold; entries of a list are alternatives. `{}` matches everything, IP or not.",
    keys: &[
        key("family", Shape::Choice(Family::VARIANTS), "any", "IP version."),
        key(
            "non_ip",
            Shape::True,
            "any",
            "Everything that is not IP (ARP, LLDP, ...).",
        ),
        key(
            "ethertype",
            Shape::OneOrMore(&Shape::Word(&ETHERTYPES, bounds(0, 0xffff))),
            "any",
            "EtherType below any VLAN tags, by name or number (0x88b5).",
        ),
        key(
            "protocol",
            Shape::OneOrMore(&Shape::Word(&PROTOCOLS, bounds(0, 255))),
            "any",
            "IP protocol, by name or number, after IPv6 extension headers.",
        ),
        key("source", PREFIXES, "any", "Source address of the header."),
        key(
            "destination",
            PREFIXES,
            "any",
            "Destination address of the header.",
        ),
        key(
            "local",
            PREFIXES,
            "any",
            "Address of this side: source at egress, destination at ingress.",
        ),
        key(
            "remote",
            PREFIXES,
            "any",
            "Address of the other side: destination at egress, source at ingress.",
        ),
        key(
            "host",
            Shape::OneOrMore(&Shape::Host),
            "any",
            "Name of the other side: one of `hosts`, or what the system's resolver knows. Looked up when the profile is put in force, \
             and every 10 s; a connection to an address that it had before matches no more. Excludes `remote`.",
        ),
        key(
            "group",
            Shape::OneOrMore(&Shape::Name),
            "any",
            "The other side is in one of these `groups`.",
        ),
        key(
            "local_group",
            Shape::OneOrMore(&Shape::Name),
            "any",
            "This side is. Private hosts then emulate as `apply` would on each of them: what a host sends at egress, what it receives at ingress.",
        ),
        key("address", PREFIXES, "any", "Address of either side."),
        key(
            "source_port",
            PORTS,
            "any",
            "Source port of the header; needs a protocol with ports, or none.",
        ),
        key(
            "destination_port",
            PORTS,
            "any",
            "Destination port of the header.",
        ),
        key("local_port", PORTS, "any", "Port of this side."),
        key("remote_port", PORTS, "any", "Port of the other side."),
        key("port", PORTS, "any", "Port of either side."),
        key(
            "dscp",
            Shape::OneOrMore(&Shape::Word(&DSCPS, bounds(0, 63))),
            "any",
            "DiffServ code point, by name (ef, af11, cs0, ...) or number.",
        ),
        key(
            "fwmark",
            Shape::OneOrMore(&Shape::Integer(ANY_U32)),
            "any",
            "Firewall mark, decimal or 0x.",
        ),
        key(
            "cgroup",
            Shape::OneOrMore(&Shape::Text),
            "any",
            "Path of a cgroup below the root of cgroup2, as systemd's `ControlGroup` or /proc/PID/cgroup have it: \
             system.slice/postgresql.service. Packets that this host sends through a socket made in it, or in one below it. Looked up \
             when the profile is put in force, and every 10 s; it need not be there yet. Not with `ingress`.",
        ),
    ],
};

pub(crate) static CLASS: Section = Section {
    what: "a class",
    title: "class",
    doc: "Packets that match cross the servers named, in order. Without a list for a direction they pass it untouched; an empty list burns the overhead only.",
    keys: &[
        key(
            "name",
            Shape::Name,
            "class-1, ...",
            "What it is called in counters.",
        ),
        key("match", Shape::Section(&MATCH), "all packets", "Which packets."),
        key(
            "egress",
            PATH,
            "untouched",
            "Servers crossed by packets that this host sends, at most 24.",
        ),
        key(
            "ingress",
            PATH,
            "untouched",
            "Servers crossed by packets that this host receives, at most 24.",
        ),
        key(
            "bypass",
            Shape::True,
            "",
            "They pass untouched both ways, without overhead.",
        ),
    ],
};

pub(crate) static COLLISIONS: Section = Section {
    what: "collisions",
    title: "collisions",
    doc: "CSMA/CD (IEEE 802.3): a frame that finds the server busy and k stations with frames, its own among them, occupies it for what truncated binary exponential back-off takes among k, drawn by the seed, and is dropped if its attempts run out. No frame overtakes another.",
    keys: &[
        required(
            "slot",
            Shape::Duration(SLOT),
            "The slot time; 51.2us on 10 Mbit/s Ethernet.",
        ),
        key(
            "attempts",
            Shape::Integer(ATTEMPTS),
            "16",
            "After how many attempts a frame is given up.",
        ),
    ],
};

pub(crate) const LAYOUTS: &[&str] = &["bus", "star", "tree", "mesh", "torus"];

pub(crate) static TOPOLOGY: Section = Section {
    what: "a topology",
    title: "topology",
    doc: "A generated network between the hosts of `perturb run --hosts N`, or those under `hosts`.",
    keys: &[
        required(
            "kind",
            Shape::Choice(LAYOUTS),
            "bus: one server all cross; star: a link to and from a switch per host; tree: a perfect binary tree of switches; mesh, torus: a grid with dimension-ordered routing.",
        ),
        key(
            "link",
            Shape::Section(&LINK),
            "",
            "Each link of a bus, star, mesh or torus.",
        ),
        key(
            "collisions",
            Shape::Section(&COLLISIONS),
            "none",
            "CSMA/CD on a bus; needs a bandwidth or gap.",
        ),
        key(
            "levels",
            Shape::List(&Shape::Section(&LEVEL), 1, LEVELS),
            "",
            "The edges of a tree by height, the lowest first; n levels join 2^n hosts.",
        ),
        key(
            "sharing",
            Shape::Choice(Sharing::VARIANTS),
            "unidirectional",
            "Whether the two directions of a tree edge share one server (bidirectional).",
        ),
        key(
            "dimensions",
            Shape::List(&Shape::Integer(DIMENSION), 1, DIMENSIONS),
            "",
            "Hosts along each dimension of a mesh or torus.",
        ),
        key(
            "egress",
            PATH,
            "[]",
            "Servers of the sending host, before the network.",
        ),
        key(
            "ingress",
            PATH,
            "[]",
            "Servers of the receiving host, after the network.",
        ),
    ],
};

const WINDOW_SHAPE: Shape = Shape::List(&Shape::Size(WINDOW), 3, 3);

pub(crate) static TCP: Section = Section {
    what: "the tcp settings",
    title: "tcp",
    doc: "TCP of the private hosts of `perturb run`; what is absent stays as the kernel has it.",
    keys: &[
        key(
            "congestion_control",
            Shape::Name,
            "the kernel's",
            "cubic, reno, bbr, ...",
        ),
        key("sack", Shape::Flag, "the kernel's", "Selective acknowledgments."),
        key(
            "early_retrans",
            Shape::Integer(EARLY_RETRANS),
            "the kernel's",
            "net.ipv4.tcp_early_retrans; 0 disables tail loss probes, 3 is Linux's default.",
        ),
        key(
            "recovery",
            Shape::Integer(RECOVERY),
            "the kernel's",
            "net.ipv4.tcp_recovery; 0 disables RACK.",
        ),
        key(
            "rto_min",
            Shape::Duration(RTO_MIN),
            "the kernel's",
            "Smallest retransmission time-out; Linux has 200ms. In whole ms, or, with net.ipv4.tcp_rto_min_us (Linux 6.11), in us; the kernel rounds up to its timers' ticks, and delays acknowledgments for less than it.",
        ),
        key(
            "rto_max",
            Shape::Duration(RTO_MAX),
            "the kernel's",
            "net.ipv4.tcp_rto_max_ms (Linux 6.15): largest retransmission time-out.",
        ),
        key(
            "thin_linear_timeouts",
            Shape::Flag,
            "the kernel's",
            "net.ipv4.tcp_thin_linear_timeouts: with less than four segments on their way, time-outs do not double.",
        ),
        key(
            "slow_start_after_idle",
            Shape::Flag,
            "the kernel's",
            "net.ipv4.tcp_slow_start_after_idle: after a time-out without sending, windows begin anew.",
        ),
        key(
            "ecn",
            Shape::Flag,
            "the kernel's",
            "net.ipv4.tcp_ecn: true, connections ask for ECN; false, they refuse it. Linux answers, and does not ask.",
        ),
        key(
            "delayed_acks",
            Shape::Flag,
            "the kernel's",
            "false: each segment is acknowledged at once (`quickack` of the routes, IPv4).",
        ),
        key(
            "receive_buffer",
            WINDOW_SHAPE,
            "the kernel's",
            "net.ipv4.tcp_rmem: [min, initial, max].",
        ),
        key(
            "send_buffer",
            WINDOW_SHAPE,
            "the kernel's",
            "net.ipv4.tcp_wmem: [min, initial, max].",
        ),
        key(
            "offloads",
            Shape::Flag,
            "the kernel's",
            "Segmentation and checksum offloads of the interfaces.",
        ),
        key(
            "no_metrics_save",
            Shape::Flag,
            "the kernel's",
            "true: a connection learns nothing from earlier ones.",
        ),
    ],
};

/// The only version there is.
pub(crate) const VERSION: u64 = 1;

pub(crate) static PROFILE: Section = Section {
    what: "a profile",
    title: "profile",
    doc: "A network to put programs on. Either `servers` and `classes`, or, as a shorthand for one server each way that everything crosses, the keys of a server at the top.",
    keys: &[
        required(
            "version",
            Shape::Integer(bounds(VERSION, VERSION)),
            "Version of this format.",
        ),
        key("name", Shape::Name, "none", "What it is called."),
        key("description", Shape::Text, "none", "What it is, for people."),
        key(
            "seed",
            Shape::Integer(ANY_U64),
            "1",
            "Same seed, same packets: same losses and jitter.",
        ),
        key(
            "overhead",
            Shape::Section(&OVERHEAD_SECTION),
            "none",
            "Processor time burnt on this host for each wire packet.",
        ),
        key(
            "segmentation",
            Shape::Choice(Segmentation::VARIANTS),
            "auto",
            "Super-packets: exact splits them into wire packets first, whole never, auto where it matters.",
        ),
        key(
            "horizon",
            Shape::Duration(HORIZON),
            "from latencies and buffers",
            "The longest a packet is held; beyond it, it is dropped and counted as unintended.",
        ),
        key("limits", Shape::Section(&LIMITS), "", "Bounds on memory."),
        key(
            "servers",
            Shape::Named(&SERVER_SHAPE),
            "none",
            "The servers by name.",
        ),
        key(
            "classes",
            Shape::List(&Shape::Section(&CLASS), 0, abi::MAX_CLASSES as usize),
            "none; without this key and a topology, everything crosses a lone server of `servers`, both ways",
            "Which packets cross which servers. The first class that matches counts; what matches none passes untouched.",
        ),
        key(
            "hosts",
            Shape::Named(&PREFIXES),
            "none",
            "Hosts by name, with their addresses, in the order of their ranks in a topology.",
        ),
        key(
            "groups",
            Shape::Named(&Shape::Section(&GROUP)),
            "none",
            "Sets of peers by name.",
        ),
        key(
            "matrix",
            Shape::Either(&[Shape::Text, Shape::Section(&MATRIX)]),
            "none",
            "What lies between the groups: a file, or more about it.",
        ),
        key(
            "topology",
            Shape::Section(&TOPOLOGY),
            "none",
            "A generated network between hosts.",
        ),
        key(
            "tcp",
            Shape::Section(&TCP),
            "the kernel's",
            "TCP of the private hosts.",
        ),
        key(
            "mtu",
            Shape::Size(MTU),
            "1500B",
            "The largest IP packet of the private hosts. Gap and overhead are paid once for each packet of that size, the Ethernet \
             header comes on top. An interface keeps its own.",
        ),
        key(
            "timeline",
            Shape::Section(&TIMELINE),
            "none",
            "How the network changes.",
        ),
    ],
};

/// Keys that make the shorthand.
pub(crate) fn shorthand() -> &'static [Key] {
    SERVER.keys
}

const _: () =
    assert!(Limits::DEFAULT_FLOWS == 131_072 && abi::MAX_CLASSES == 4096 && abi::MAX_PATH_SERVERS == 24);
