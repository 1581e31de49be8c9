//! The keys of groups and of the matrix between them.

use super::*;

pub(crate) static GROUP: Section = Section {
    what: "a group",
    title: "group",
    doc: "A set of peers: those with any of these addresses, names or networks. No address may be in two groups.",
    keys: &[
        key(
            "prefix",
            Shape::OneOrMore(&Shape::Prefix),
            "none",
            "Their addresses.",
        ),
        key(
            "host",
            Shape::OneOrMore(&Shape::Host),
            "none",
            "Their names, looked up as `host` of a match is; in `perturb run`, those of private hosts.",
        ),
        key(
            "container",
            Shape::OneOrMore(&Shape::Text),
            "none",
            "Containers, as `apply --container` takes them: NAME, label=KEY or label=KEY=VALUE; looked up again every 10 s. A service of \
             Compose has the label com.docker.compose.service.",
        ),
        key(
            "interface",
            Shape::OneOrMore(&Shape::Name),
            "none",
            "The networks that interfaces of this machine have addresses of, such as those of a bridge, as they are when the profile is \
             put in force; link-local ones excepted.",
        ),
    ],
};

pub(crate) static MATRIX: Section = Section {
    what: "a matrix",
    title: "matrix",
    doc: "What lies between each two groups, from a table. All packets from `eu` to `us` cross one server, `eu-to-us`, in a class of that \
          name behind the hand-written ones. Each host that has the profile delays what it sends; so do private hosts. A file has either \
          the columns `from,to,latency`, and `bandwidth`, `loss`, `jitter`, `buffer` as wanted, one way, with units in the header or the \
          cells; or the groups as header and first column, and latencies, in ms unless they have a unit. What it has of other groups is \
          ignored. A group without a row for itself delays nothing inside; all other pairs must be there.",
    keys: &[
        required(
            "file",
            Shape::Text,
            "The table, relative to the profile; or aws-regions or ibm-regions, which perturb has.",
        ),
        key(
            "symmetric",
            Shape::Flag,
            "false",
            "true: a pair that stands there one way only holds for both.",
        ),
        key(
            "round_trip",
            Shape::Flag,
            "false",
            "true: its latencies are round trips; each way has half.",
        ),
        key(
            "here",
            Shape::Name,
            "none",
            "The group of this machine, which then emulates both ways alone, as the others do not have the profile. `perturb run` ignores it.",
        ),
    ],
};
